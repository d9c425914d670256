"""Requests of a Mooncake log: lengths and block ids, with tokens that treedrift makes up."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from treedrift.harness.importers.mooncake import LogEntry
from treedrift.harness.ops import Arrive
from treedrift.harness.tokens import expand

from .scheduler import Ask, Scheduler

WAITING = 8
"""Requests that wait at a time: some, so that a step may admit several."""


def asks_of(entries: Sequence[LogEntry], first_token: int, output_max: int) -> Iterator[Ask]:
    """The requests of a log, in order. Their tokens start at `first_token`; outputs are cut."""
    for number, entry in enumerate(entries):
        made = expand(Arrive(blocks=entry.hash_ids, length=entry.input_length))
        yield Ask(
            name=f"request-{number}",
            prompt=array("q", [token + first_token for token in made]) if first_token else made,
            output=max(1, min(entry.output_length, output_max)),
            first_output=first_token,
        )


def serve(scheduler: Scheduler, asks: Iterator[Ask], waiting: int = WAITING) -> None:
    """Serve requests in their order, so many of them waiting at a time."""
    more = True
    while more or scheduler.has_work:
        while more and len(scheduler.waiting) < waiting:
            ask = next(asks, None)
            more = ask is not None
            if ask is not None:
                scheduler.submit(ask)
        scheduler.step()


def longest(entries: Sequence[LogEntry], output_max: int) -> int:
    """Tokens of the longest request with its output."""
    return max(entry.input_length + min(entry.output_length, output_max) for entry in entries)
