"""What the commands share: how arguments are spelled and read, and where text goes."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .backends.registry import BackendName
from .harness import corpus
from .harness.lockstep import Pair

DEFAULT_PAIR = ",".join(corpus.DEFAULT_PAIR)

out = Console(soft_wrap=True, emoji=False, markup=False)
err = Console(stderr=True, soft_wrap=True, emoji=False, markup=False)


class UsageError(Exception):
    """A bad argument; the message says which one and what to do."""


PairOption = Annotated[
    list[str] | None,
    typer.Option("--pair", help="Two cores, as in python,rust. Repeatable.", metavar="A,B"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")]
SeedOption = Annotated[int, typer.Option(help="Seed of the campaign.")]
ProfileOption = Annotated[
    str, typer.Option(help="Profile of configurations and ops, or several, as in full,hybrid.")
]
JobsOption = Annotated[int, typer.Option(min=1, help="Processes to run in.")]
DeviceOption = Annotated[str, typer.Option(help="Device of the pools, as in cpu or cuda.")]


def parse_pairs(texts: list[str] | None, option: str = "--pair") -> tuple[Pair, ...]:
    """Pairs of core names. Raises `UsageError`, or the registry's error for an unknown core."""
    pairs = []
    for text in texts or [DEFAULT_PAIR]:
        names = [name.strip() for name in text.split(",")]
        if len(names) != 2 or not all(names) or names[0] == names[1]:
            raise UsageError(f"{option} {text!r}: name two different cores, as in {DEFAULT_PAIR}")
        for name in names:
            BackendName.parse(name)
        pairs.append((names[0], names[1]))
    return tuple(pairs)


def parse_seconds(text: str | None, option: str = "--time") -> float | None:
    """A time such as 90, 90s, 10m or 2h, in seconds. Raises `UsageError`."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if match is None:
        raise UsageError(f"{option} {text!r}: give seconds, or a number with s, m or h, as in 10m")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def parse_shard(text: str | None) -> tuple[int, int]:
    """Which part of how many, as in 2/8. Raises `UsageError`."""
    match = re.fullmatch(r"(\d+)/(\d+)", (text or "1/1").strip())
    part, parts = map(int, match.groups()) if match else (0, 0)
    if not 1 <= part <= parts:
        raise UsageError(f"--shard {text!r}: give a part and how many there are, as in 2/8")
    return part, parts


def check_folder(folder: Path, option: str = "--out") -> None:
    """Refuse a folder that can't be written to, before anything runs. Raises `UsageError`."""
    place = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    if not (place.is_dir() and os.access(place, os.W_OK)):
        raise UsageError(f"{option} {folder}: {place} is no folder that can be written to")
