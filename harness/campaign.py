"""Runs case after case through a lockstep within a budget, and keeps what it finds.

A campaign tells what happens as events; terminal, JSON and whatever comes later read the same
stream. The first trace of each kind of divergence is saved the moment it is found, so that an
interrupted run has lost nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import monotonic

import msgspec

from . import ops
from .compare import Divergence
from .config import Config
from .events import Event, Found, Progress
from .lockstep import Lockstep, Pair
from .side import Settings
from .tally import Tally
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


Listener = Callable[[Event], None]


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
            self.tally.count(case.config.policy, case.ops, result)
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
