"""Runs case after case through a lockstep within a budget, and keeps what it finds.

A campaign tells what happens as events; terminal, JSON and whatever comes later read the same
stream. The first trace of each kind of divergence is saved the moment it is found, so that an
interrupted run has lost nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from . import ops
from .compare import Divergence
from .config import Config
from .lockstep import CaseResult, Lockstep, Pair
from .side import Settings
from .trace import new_trace, write_trace


class Case(msgspec.Struct):
    """One trace to run, and the seed that it was made from."""

    config: Config
    ops: list[ops.AnyOp]
    seed: int | None = None
    source: str = "swarm"


class Budget(msgspec.Struct, frozen=True):
    """When to stop: after so many ops, or so many seconds; None for no limit of that kind."""

    ops: int | None = None
    seconds: float | None = None

    def is_spent(self, op_count: int, seconds: float) -> bool:
        """Whether either limit is reached."""
        if self.ops is not None and op_count >= self.ops:
            return True
        return self.seconds is not None and seconds >= self.seconds


class Progress(msgspec.Struct, tag="progress"):
    """How far a campaign is."""

    op_count: int
    cases: int
    seconds: float
    findings: int


class Found(msgspec.Struct, tag="found"):
    """A divergence; `is_new` if its kind has not been seen before in this campaign."""

    divergence: Divergence
    is_new: bool
    seed: int | None = None


Event = Progress | Found
Listener = Callable[[Event], None]


class Tally(msgspec.Struct):
    """What a campaign counted, in a form that tallies of several jobs add up to."""

    op_count: int = 0
    cases: int = 0
    refused: int = 0
    op_kinds: dict[str, int] = {}
    policies: dict[str, int] = {}
    behaviours: dict[str, int] = {}
    core_seconds: dict[str, float] = {}
    side_seconds: dict[str, float] = {}

    @classmethod
    def empty(cls) -> Tally:
        """A tally of nothing, with mappings of its own."""
        return cls(op_kinds={}, policies={}, behaviours={}, core_seconds={}, side_seconds={})

    def add(self, other: Tally) -> None:
        """Add another tally to this one."""
        self.op_count += other.op_count
        self.cases += other.cases
        self.refused += other.refused
        for name in ("op_kinds", "policies", "behaviours", "core_seconds", "side_seconds"):
            mine, theirs = getattr(self, name), getattr(other, name)
            for key, count in theirs.items():
                mine[key] = mine.get(key, 0) + count

    def count(self, case: Case, result: CaseResult) -> None:
        """Take one finished case into account."""
        self.op_count += result.op_count
        self.cases += 1
        if result.refused is not None:
            self.refused += 1
            return
        kinds = Counter(ops.kind_of(op) for op in case.ops[: result.op_count])
        _add(self.op_kinds, kinds)
        _add(self.policies, {case.config.policy.lower(): 1})
        for name, figures in result.figures.items():
            _add(self.core_seconds, {name: figures.pop("core_ns", 0) / 1e9})
            _add(self.side_seconds, {name: figures.pop("total_ns", 0) / 1e9})
        for figures in list(result.figures.values())[:1]:
            figures.pop("ops", None)
            _add(self.behaviours, figures)


def _add(into: dict[str, Any], counts: Mapping[str, Any]) -> None:
    for key, count in counts.items():
        into[key] = into.get(key, 0) + count


class Campaign:
    """Runs cases and keeps tally, divergences by kind, and their traces in `folder`."""

    def __init__(
        self, lockstep: Lockstep, settings: Settings, folder: Path | None, listen: Listener
    ) -> None:
        self._lockstep = lockstep
        self._settings = settings
        self._folder = folder
        self._listen = listen
        self.tally = Tally.empty()
        self.kinds: dict[tuple[Pair, str], Divergence] = {}
        self.occurrences: Counter[tuple[Pair, str]] = Counter()

    def run(self, cases: Iterable[Case], budget: Budget) -> None:
        """Run until the cases end or the budget is spent."""
        started = monotonic()

        def tell(in_case: int = 0) -> None:
            count, seconds = self.tally.op_count + in_case, monotonic() - started
            self._listen(Progress(count, self.tally.cases, seconds, len(self.kinds)))

        for case in cases:
            result = self._lockstep.run(case.config, case.ops, self._settings, tell)
            for divergence in result.divergences:
                self._keep(case, divergence)
            self.tally.count(case, result)
            tell()
            if budget.is_spent(self.tally.op_count, monotonic() - started):
                break

    def _keep(self, case: Case, divergence: Divergence) -> None:
        key = (divergence.pair, divergence.signature)
        self.occurrences[key] += 1
        is_new = key not in self.kinds
        if is_new:
            if self._folder is not None:
                divergence.file = str(save(self._folder, case, divergence))
            self.kinds[key] = divergence
        self._listen(Found(divergence, is_new, case.seed))


def save(folder: Path, case: Case, divergence: Divergence) -> Path:
    """Write the trace up to the op where the sides parted; the name says pair, kind and seed."""
    end = None if divergence.op_index is None else divergence.op_index + 1
    trace = new_trace(
        case.config,
        case.ops[:end],
        note=f"{divergence.kind} at {divergence.op_kind}: {divergence.where}"[:300],
        source=case.source,
        seed=case.seed,
        pair=divergence.pair,
        expect="diverges",
    )
    folder.mkdir(parents=True, exist_ok=True)
    stem = _slug(f"{'-'.join(divergence.pair)}-{divergence.signature}")
    path = folder / f"{stem}-{case.seed if case.seed is not None else 'replay'}.jsonl"
    write_trace(path, trace, overwrite=True)
    return path


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:120]


def numbered(seed: int, start: int = 0, stride: int = 1) -> Iterator[int]:
    """Seeds of the cases of one job: every `stride`-th case of the campaign of that seed."""
    index = start
    while True:
        yield seed * 1_000_003 + index
        index += stride
