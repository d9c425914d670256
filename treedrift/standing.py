"""Where a run stands: how far each of its jobs is, and which kinds it has found.

A run that goes on is built from the stream of the one that ended, so everything that it needs is
in the events and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from .harness.campaign import Budget, Start
from .harness.events import Checkpoint, Event, Found
from .harness.lockstep import Pair
from .harness.tally import Tally


class Standing(msgspec.Struct, kw_only=True):
    """The last checkpoint of every job, the kinds found so far, and the cases that showed them.

    Replays before a campaign are told as jobs with negative numbers; they spend no budget.
    """

    checkpoints: dict[int, Checkpoint] = {}
    kinds: dict[tuple[Pair, str], None] = {}
    told: dict[int, list[tuple[int, Pair, str]]] = {}

    @classmethod
    def of(cls, events: Iterable[Event]) -> Standing:
        """Where the run of these events stands."""
        standing = cls()
        for event in events:
            standing.take(event)
        return standing

    def take(self, event: Event) -> None:
        """Take one event into account."""
        if isinstance(event, Checkpoint):
            self.checkpoints[event.job] = event
        elif isinstance(event, Found):
            kind = (event.divergence.pair, event.divergence.signature)
            self.kinds[kind] = None
            self.told.setdefault(event.job, []).append((event.case, *kind))

    def tally(self) -> Tally:
        """What all jobs together have counted."""
        total = Tally.empty()
        for checkpoint in self.checkpoints.values():
            total.add(checkpoint.tally)
        return total

    def seconds(self) -> float:
        """How long the run has been going: its replays one after another, then all jobs at once."""
        replays = sum(one.seconds for job, one in self.checkpoints.items() if job < 0)
        jobs = [one.seconds for job, one in self.checkpoints.items() if job >= 0]
        return replays + max(jobs, default=0.0)

    def start_of(self, job: int) -> Start:
        """Where a job goes on."""
        start = Start(job=job, kinds=list(self.kinds), told=self.told.get(job, []))
        checkpoint = self.checkpoints.get(job)
        if checkpoint is not None:
            start.next_case, start.seconds = checkpoint.next_case, checkpoint.seconds
            start.tally = checkpoint.tally
        return start

    def is_spent(self, budget: Budget) -> bool:
        """Whether the cases of the campaign are done, so that only what follows them is left."""
        jobs = [checkpoint for job, checkpoint in self.checkpoints.items() if job >= 0]
        ops = sum(checkpoint.tally.op_count for checkpoint in jobs)
        seconds = max((checkpoint.seconds for checkpoint in jobs), default=0.0)
        return bool(jobs) and budget.is_spent(ops, seconds)
