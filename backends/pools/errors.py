"""The one error of the pools: an index was given back that is not out, or not in a proper form."""

from __future__ import annotations

from collections.abc import Iterable

SHOWN = 8
"""Slots that a message names before it goes on with a count."""


class PoolError(AssertionError):
    """A call that would corrupt a pool; nothing was changed. `slots` are the offending indices."""

    def __init__(self, problem: str, slots: Iterable[int] = ()) -> None:
        self.problem = problem
        self.slots = list(slots)
        super().__init__(f"{problem}: {_listing(self.slots)}" if self.slots else problem)


def _listing(slots: list[int]) -> str:
    shown = ", ".join(str(slot) for slot in slots[:SHOWN])
    more = len(slots) - SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
