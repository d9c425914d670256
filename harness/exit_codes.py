"""The exit codes of the command line, in one place.

`docs/exit-codes.md` prints this table for users; a test holds the two equal.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a run of the command says to the shell."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> ExitCode:
        """A code with the sentence that explains it."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    AGREED = 0, "The cores agreed, apart from known differences, or the command did what was asked."
    DIVERGENCE = 1, "Something new was found and saved, or something saved is not as expected."
    USAGE = 2, "The command line, a trace or another input is wrong; nothing was written."
    MISSING = 3, "A core, an environment or a toolchain is missing."
    HARNESS = 4, "The harness itself failed; please report it."
    INTERRUPTED = 130, "Interrupted; what was found until then is kept."
