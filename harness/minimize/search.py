"""The search: passes over and over, until none of them finds a simpler trace or time is over.

A pass gives its candidates in a fixed order, and the first one that keeps the signature is taken.
The pass then goes on at the same place with the new trace. The search ends when every pass has
run over one and the same trace from start to end in vain: what those passes tried are the
neighbours that are known to lose the signature.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from time import monotonic
from typing import Protocol

from . import configuration, keys, lowering, operands, removals, runs
from .base import Base, Pass
from .draft import Candidate, Draft, size_of
from .trial import Evaluation, Trial

CHUNKS = (8192, 2048, 512, 256, 128, 64, 32, 16, 8, 4, 2)
"""Lengths of the runs of ops that are removed at once."""

SLIPPED_TRACES_MAX = 4
"""So many other kinds keep their shortest trace."""

PASSES: tuple[tuple[str, Pass], ...] = (
    ("few", removals.few),
    ("rows", configuration.rows),
    *(("chunks", removals.chunks(size)) for size in CHUNKS),
    ("whole kinds", removals.of_a_kind),
    ("uses", removals.uses),
    ("stretches", removals.stretches),
    ("removals", removals.singles),
    ("stories", lowering.stories),
    ("runs together", runs.shorten_together),
    ("runs", runs.shorten),
    ("spelling", runs.spell_out),
    ("config", configuration.configuration),
    ("segments", keys.shorten_segments),
    ("tokens", keys.shorten_keys),
    ("pools", keys.shrink_with_pool),
    ("scale", keys.take_every_second),
    ("kinds", lowering.kinds),
    ("operands together", operands.together),
    ("operands", operands.each),
    ("answers", operands.answers),
    ("names", keys.rename),
    ("values", keys.merge),
    ("keys", keys.exchange),
    ("pairs", removals.pairs),
)
"""Every pass with the name that its neighbours are counted under."""


class Evaluator(Protocol):
    """Who tries candidates: in this process or in several."""

    def stream(
        self, base: Draft, candidates: Iterator[Candidate], deadline: float
    ) -> Iterator[Evaluation]:
        """Evaluations in the order of the candidates; closing it drops those not yet asked for."""


class OutOfTimeError(Exception):
    """The budget is spent."""


class Search:
    """One search from a first draft on. `best` is the simplest draft so far."""

    def __init__(
        self,
        evaluator: Evaluator,
        first: Draft,
        deadline: float,
        tell: Callable[[], None] = lambda: None,
    ) -> None:
        """`tell` is called after every candidate."""
        self._evaluator = evaluator
        self._deadline = deadline
        self._tell = tell
        self.best = first
        self.tried: dict[str, int] = {}
        self.slipped: Counter[str] = Counter()
        self.slips: dict[str, Draft] = {}
        self._counted: set[str] = set()

    @property
    def trials(self) -> int:
        """How many different drafts were tried."""
        return len(self._counted)

    def run(self) -> bool:
        """Search until nothing simpler is found (True) or time is over (False)."""
        in_vain: dict[int, int] = {}
        try:
            while True:
                for number, (_, one) in enumerate(PASSES):
                    if len(in_vain) == len(PASSES):
                        self._count_tried(in_vain)
                        return True
                    before = self.best
                    tried = self._sweep(one)
                    if self.best is not before:
                        in_vain.clear()
                    else:
                        in_vain[number] = tried
        except OutOfTimeError:
            self._count_tried(in_vain)
            return False

    def _count_tried(self, in_vain: dict[int, int]) -> None:
        counts: Counter[str] = Counter()
        for number, tried in in_vain.items():
            counts[PASSES[number][0]] += tried
        self.tried = {name: count for name, count in counts.items() if count}

    def _sweep(self, one: Pass) -> int:
        """Run one pass from start to end; the number of candidates that it had."""
        place = 0
        while True:
            candidates = islice(one(Base(self.best)), place, None)
            stream = self._evaluator.stream(self.best, candidates, self._deadline)
            reached = None
            for evaluation in stream:
                reached = self._take(evaluation)
                if reached is not None:
                    break
                place += 1
            if reached is None:
                return place
            assert size_of(reached) < size_of(self.best), "a step that makes nothing simpler"
            self.best = reached

    def _take(self, evaluation: Evaluation) -> Draft | None:
        for trial in evaluation.trials:
            self._count(trial)
        self._tell()
        if evaluation.reached is None and (evaluation.is_late or monotonic() >= self._deadline):
            raise OutOfTimeError
        return evaluation.reached

    def _count(self, trial: Trial) -> None:
        if trial.digest in self._counted:
            return
        self._counted.add(trial.digest)
        kind = trial.outcome.slip
        if kind is None:
            return
        self.slipped[kind] += 1
        known = self.slips.get(kind)
        if known is None and len(self.slips) >= SLIPPED_TRACES_MAX:
            return
        draft = trial.draft
        if draft is not None and (known is None or size_of(draft) < size_of(known)):
            self.slips[kind] = draft
