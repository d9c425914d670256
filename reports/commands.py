"""The commands that go on from a finding, with what each is for: the next step of every report."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

MINIMAL = ".min.jsonl"
"""How the name of a trace ends that was shrunk already."""


PROMOTE = "treedrift corpus verify --promote"
"""Makes a regression of every known difference that is gone."""


class Command(msgspec.Struct, frozen=True):
    """A command to type, and in a few words what it does."""

    name: str
    line: str
    purpose: str


def next_commands(
    file: str | None, pair: Sequence[str] | None, *, is_minimal: bool = False
) -> list[Command]:
    """What to do with the trace of a finding, the first step first.

    `pair` is None where the trace names the pair itself. `is_minimal`: nothing is left to shrink;
    the name of a file tells, too.
    """
    if file is None:
        return []
    rest = _rest(file, pair)
    found = [
        Command("show", f"treedrift show {rest}", "both sides where they part, explained"),
        Command("shrink", f"treedrift shrink {rest}", "make it as small as it gets"),
        Command("repro", f"treedrift repro {rest}", "a pytest that fails by itself"),
        Command("replay", f"treedrift replay {rest}", "run it again"),
    ]
    return [command for command in found if not (is_minimal and command.name == "shrink")]


def keeping_commands(
    file: str, pair: Sequence[str] | None, names: Sequence[str], rule: str | None
) -> list[Command]:
    """How to keep a failing trace of the cores `names`, once somebody has decided about it."""
    line = f"treedrift corpus add {_rest(file, pair)}"
    found = [Command("keep", f"{line} --to regressions", "once it is repaired, keep it so")]
    if any("@" in name for name in names):
        rest = f"{line} --to known" + (f" --rule {rule}" if rule else "") + ' --note "..."'
        found.append(Command("know", rest, "or call it known: it is the release's own"))
    return found


def _rest(file: str, pair: Sequence[str] | None) -> str:
    named = "" if pair is None else f" --pair {shlex.quote(','.join(pair))}"
    return shlex.quote(file) + named


def is_named_in(file: str, pair: Sequence[str]) -> bool:
    """Whether a trace names this very pair, so that a command need not."""
    try:
        with Path(file).open("rb") as lines:
            header = msgspec.json.decode(lines.readline())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return isinstance(header, dict) and header.get("pair") == list(pair)


def from_here(file: str) -> str:
    """A path as it is typed in this folder, if it lies inside it."""
    path = Path(file)
    inside = path.is_absolute() and path.is_relative_to(Path.cwd())
    return str(path.relative_to(Path.cwd())) if inside else file


def lines_of(commands: Sequence[Command]) -> list[str]:
    """Commands to copy, each with its purpose as a comment; the comments stand in one column."""
    width = max((len(command.line) for command in commands), default=0)
    return [f"{command.line:{width}}  # {command.purpose}" for command in commands]
