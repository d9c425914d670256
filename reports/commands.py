"""The commands that go on from a finding, with what each is for: the next step of every report."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import msgspec


class Command(msgspec.Struct, frozen=True):
    """A command to type, and in a few words what it does."""

    name: str
    line: str
    purpose: str


def next_commands(
    file: str | None, pair: Sequence[str], *, is_minimal: bool = False
) -> list[Command]:
    """What to do with the trace of a finding. `is_minimal`: nothing is left to shrink."""
    if file is None:
        return []
    rest = f"{shlex.quote(file)} --pair {shlex.quote(','.join(pair))}"
    found = [
        Command("show", f"treedrift show {rest}", "both sides where they part, explained"),
        Command("replay", f"treedrift replay {rest}", "run it again"),
        Command("shrink", f"treedrift shrink {rest}", "make it as small as it gets"),
        Command("repro", f"treedrift repro {rest}", "a pytest that fails by itself"),
    ]
    return [command for command in found if not (is_minimal and command.name == "shrink")]
