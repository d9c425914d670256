"""Runs case after case through a lockstep within a budget, and keeps what it finds.

A campaign tells what happens as events; terminal, JSON and whatever comes later read the same
stream. The first trace of each kind of divergence is saved the moment it is found, so that an
interrupted run has lost nothing; checkpoints say where it can go on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import monotonic

import msgspec
from msgspec.structs import replace

from . import ops
from .compare import Divergence
from .config import Config
from .events import Checkpoint, Event, Found, Progress
from .lockstep import Lockstep, Pair
from .side import Settings
from .tally import Tally
from .trace import Trace, new_trace, write_trace

NAME_MAX = 60
"""Characters of a trace's name before its digest."""

CHECKPOINT_SECONDS = 2.0
"""Seconds between two checkpoints: what a killed run has to do again."""


class Case(msgspec.Struct):
    """One trace to run, and the seed that it was made from. `number` counts the cases of a job.

    `settings` say how its sides are watched, where not as those of the whole campaign.
    """

    config: Config
    ops: list[ops.AnyOp]
    seed: int | None = None
    source: str = "swarm"
    number: int = 0
    settings: Settings | None = None


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


class Start(msgspec.Struct, kw_only=True):
    """Where a job begins: at its first case, or where an earlier run of it ended.

    `kinds` are those that the run has found before: pair and signature of each. `told` are the
    finds of this job that are on record, with the number of their case.
    """

    job: int = 0
    next_case: int = 0
    tally: Tally = msgspec.field(default_factory=Tally.empty)
    seconds: float = 0.0
    kinds: list[tuple[Pair, str]] = []
    told: list[tuple[int, Pair, str]] = []


class Campaign:
    """Runs cases and keeps tally, divergences by kind, and their traces in `folder`.

    `closely` gives the settings of a replay. With it, a kind is what a replay of its trace shows,
    and not what the campaign, which looks less often, saw of it.
    """

    def __init__(
        self,
        lockstep: Lockstep,
        settings: Settings,
        folder: Path | None,
        listen: Listener,
        closely: Callable[[Pair, Config], Settings] | None = None,
        start: Start | None = None,
    ) -> None:
        self._lockstep = lockstep
        self._settings = settings
        self._folder = folder
        self._listen = listen
        self._closely = closely
        self._start = start or Start()
        self._known_kinds = set(self._start.kinds)
        self._told = set(self._start.told)
        self._checkpoint_due = 0.0
        # Tally and next case change in one assignment: an interruption finds a case counted and
        # done, or neither.
        self._done = self._start.tally, self._start.next_case
        self.kinds: dict[tuple[Pair, str], Divergence] = {}
        self._shortest: dict[tuple[Pair, str], int] = {}

    def run(self, cases: Iterable[Case], budget: Budget) -> None:
        """Run until the cases end or the budget is spent; one case at least, unless it goes on."""
        self._began = monotonic() - self._start.seconds
        self._checkpoint_due = self._seconds() + CHECKPOINT_SECONDS
        is_done = self._start.next_case > 0 and self._is_spent(budget)
        try:
            for case in () if is_done else cases:
                self._run_case(case)
                if self._is_spent(budget):
                    break
                if self._seconds() >= self._checkpoint_due:
                    self._checkpoint()
        finally:
            self._checkpoint()

    @property
    def tally(self) -> Tally:
        """What the finished cases counted."""
        return self._done[0]

    def _run_case(self, case: Case) -> None:
        settings = case.settings or self._settings
        result = self._lockstep.run(case.config, case.ops, settings, self._tell)
        for divergence in result.divergences:
            self._keep(case, divergence)
        tally = self.tally.copy()
        tally.count(case.config.policy, case.ops, result)
        self._done = tally, case.number + 1
        self._tell()

    def _is_spent(self, budget: Budget) -> bool:
        return budget.is_spent(self.tally.op_count, self._seconds())

    def _seconds(self) -> float:
        return monotonic() - self._began

    def _tell(self, in_case: int = 0) -> None:
        count = self.tally.op_count + in_case
        kinds = len(self._known_kinds) + len(self.kinds)
        self._listen(Progress(count, self.tally.cases, self._seconds(), kinds))

    def _checkpoint(self) -> None:
        seconds, job = self._seconds(), self._start.job
        self._checkpoint_due = seconds + CHECKPOINT_SECONDS
        tally, next_case = self._done
        self._listen(Checkpoint(job=job, next_case=next_case, tally=tally, seconds=seconds))

    def _keep(self, case: Case, raw: Divergence) -> None:
        settled = self._settle(case, raw)
        key = (settled.pair, settled.signature)
        # A kind counts once a case, also when a case that was cut is run again.
        if (case.number, *key) in self._told:
            return
        self._told.add((case.number, *key))
        is_new = key not in self.kinds and key not in self._known_kinds
        if is_new:
            self.kinds[key] = settled
        if self._folder is not None:
            self._save(self._folder, case, settled, is_new)
        # One kind can show in thousands of cases: only its first find carries the values.
        told = settled if is_new else replace(settled, left=None, right=None)
        self._listen(Found(told, is_new, case.seed, self._start.job, case.number, self._seconds()))

    def _save(self, folder: Path, case: Case, settled: Divergence, is_new: bool) -> None:
        """Keep the trace of a new kind, and later a shorter one in its place."""
        key = (settled.pair, settled.signature)
        length = len(_ops_of(case, settled))
        if is_new:
            settled.file = str(save(folder, case, settled))
        elif length < self._shortest.get(key, 0):
            write_trace(str(self.kinds[key].file), _trace_of(case, settled), overwrite=True)
        else:
            return
        self._shortest[key] = length

    def _settle(self, case: Case, raw: Divergence) -> Divergence:
        """What a replay shows of a find; the find itself if it shows nothing, or can't be run."""
        is_seen_alike = raw.is_soft or raw.kind not in ("difference", "oracle")
        if self._closely is None or is_seen_alike:
            return raw
        pair = raw.pair
        clients = {name: self._lockstep.clients[name] for name in pair}
        end = None if raw.op_index is None else raw.op_index + 1
        replay = Lockstep(clients, [pair]).run(
            case.config, case.ops[:end], self._closely(pair, case.config)
        )
        hard = [found for found in replay.divergences if not found.is_soft]
        return (hard or [raw])[0]


def save(folder: Path, case: Case, divergence: Divergence) -> Path:
    """Write the trace up to the op where the sides parted, under a name of its kind's own."""
    folder.mkdir(parents=True, exist_ok=True)
    # The seed keeps jobs apart that find one kind at the same time.
    seed = "" if case.seed is None else f"-{case.seed}"
    path = folder / f"{stem_of(divergence)}{seed}.jsonl"
    write_trace(path, _trace_of(case, divergence), overwrite=True)
    return path


def _ops_of(case: Case, divergence: Divergence) -> list[ops.AnyOp]:
    """The ops up to the one where the sides part; all if they part in the final drain."""
    return case.ops[: None if divergence.op_index is None else divergence.op_index + 1]


def _trace_of(case: Case, divergence: Divergence) -> Trace:
    return new_trace(
        case.config,
        _ops_of(case, divergence),
        note=f"{divergence.kind} at {divergence.op_kind}: {divergence.where}"[:300],
        source=case.source,
        seed=case.seed,
        pair=divergence.pair,
        expect="diverges",
        signature=divergence.signature,
    )


def stem_of(divergence: Divergence) -> str:
    """A short name of a kind: op, place, and a digest that keeps kinds and pairs apart."""
    place = re.sub(r"\[[^]]*\]", "", divergence.where).split(".")[-3:]
    words = re.findall(r"[A-Za-z0-9]+", " ".join([divergence.op_kind, *place]))
    kind = "\0".join((*divergence.pair, divergence.signature)).encode()
    return "-".join([*words, ""])[:NAME_MAX] + hashlib.blake2b(kind, digest_size=3).hexdigest()


def numbered(seed: int, start: int = 0, stride: int = 1) -> Iterator[int]:
    """Seeds of the cases of one job: every `stride`-th case of the campaign of that seed."""
    index = start
    while True:
        yield seed * 1_000_003 + index
        index += stride
