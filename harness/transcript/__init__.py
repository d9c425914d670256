"""Transcripts: the calls that a cache makes on its core, told as ops of a trace."""

from .call import Call
from .flags import Flags
from .history import History
from .pseudonyms import Naming, PlainNames, Pseudonyms
from .room import Room, config_of
from .rotation import RotatingTraces
from .transcript import READS, SILENT, Transcript

__all__ = [
    "READS",
    "SILENT",
    "Call",
    "Flags",
    "History",
    "Naming",
    "PlainNames",
    "Pseudonyms",
    "Room",
    "RotatingTraces",
    "Transcript",
    "config_of",
]
