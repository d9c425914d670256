"""Transcripts: the calls that a cache makes on its core, told as ops of a trace."""

from .call import Call
from .flags import Flags
from .pseudonyms import Naming, PlainNames, Pseudonyms
from .room import Room, config_of
from .transcript import Transcript

__all__ = [
    "Call",
    "Flags",
    "Naming",
    "PlainNames",
    "Pseudonyms",
    "Room",
    "Transcript",
    "config_of",
]
