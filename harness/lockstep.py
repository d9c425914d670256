"""Runs one case through several sides and compares them pair by pair.

Each side runs a batch of ops alone; the observations are compared afterwards, one by one. That is
sound because ops name nothing of a side, and sides in worker processes run at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Protocol

import msgspec

from . import observation, ops
from .compare import Divergence, compare_decoded
from .config import Config
from .observation import Observation
from .remote import Worker, WorkerFailure
from .side import Batch, LocalSide, Settings

BATCH_OPS = 128

BATCH_SECONDS_MAX = 120.0
"""How long a worker may take for one batch before it counts as hanging."""

Pair = tuple[str, str]


class Client(Protocol):
    """How the lockstep talks to a side, wherever it runs. `submit` starts, `collect` waits."""

    name: str

    def open(self, config: Config, settings: Settings) -> str | None:
        """Build a fresh side; the class of the error if its core refuses the configuration."""

    def submit(self, batch: Sequence[ops.AnyOp] | None) -> None:
        """Start a batch; None starts the final drain."""

    def collect(self) -> Batch:
        """The observations of the batch that was submitted."""

    def figures(self) -> dict[str, int]:
        """Times and counts since `open`."""

    def close(self) -> None:
        """Give back what the side holds."""


class LocalClient:
    """A side in this process."""

    def __init__(self, name: str, side: LocalSide) -> None:
        self.name = name
        self._side = side
        self._batch: Sequence[ops.AnyOp] | None = None

    def open(self, config: Config, settings: Settings) -> str | None:
        """See `Client`."""
        return self._side.open(config, settings)

    def submit(self, batch: Sequence[ops.AnyOp] | None) -> None:
        """See `Client`; nothing starts before `collect`."""
        self._batch = batch

    def collect(self) -> Batch:
        """See `Client`."""
        return self._side.finish() if self._batch is None else self._side.run(self._batch)

    def figures(self) -> dict[str, int]:
        """See `Client`."""
        return self._side.figures()

    def close(self) -> None:
        """Nothing to give back: the side goes with its last reference."""


class RemoteClient:
    """A side in a worker process; a worker that failed is started again for the next case."""

    def __init__(self, name: str, worker: Worker) -> None:
        self.name = name
        self._worker = worker
        self._pool = ThreadPoolExecutor(1)
        self._pending: Future[bytes] | None = None
        self._decode = msgspec.msgpack.Decoder(Batch).decode

    def open(self, config: Config, settings: Settings) -> str | None:
        """See `Client`."""
        self._worker.start()
        answer = self._request("open", msgspec.json.encode((config, settings)))
        return msgspec.msgpack.decode(answer, type=str | None)

    def _request(self, kind: str, payload: bytes) -> bytes:
        return self._worker.request(kind, payload, BATCH_SECONDS_MAX)

    def submit(self, batch: Sequence[ops.AnyOp] | None) -> None:
        """See `Client`."""
        if batch is None:
            self._pending = self._pool.submit(self._request, "finish", b"")
        else:
            data = msgspec.json.encode(batch)
            self._pending = self._pool.submit(self._request, "run", data)

    def collect(self) -> Batch:
        """See `Client`."""
        assert self._pending is not None, "collect without submit"
        return self._decode(self._pending.result())

    def figures(self) -> dict[str, int]:
        """See `Client`."""
        return msgspec.msgpack.decode(self._request("figures", b""), type=dict[str, int])

    def close(self) -> None:
        """End the worker."""
        self._pool.shutdown()
        self._worker.close()


class CaseResult(msgspec.Struct):
    """What one case gave: ops run, the first divergence per pair, and each side's figures."""

    op_count: int = 0
    refused: str | None = None
    divergences: list[Divergence] = []
    figures: dict[str, dict[str, int]] = {}


class Lockstep:
    """Sides that run the same cases, and the pairs of them that are compared."""

    def __init__(self, clients: dict[str, Client], pairs: Sequence[Pair]) -> None:
        self.clients = clients
        self.pairs = list(pairs)

    def start(self) -> None:
        """Wait until every worker is up, before time is measured; one that fails is told later."""
        self.run(Config(), (), Settings())

    def close(self) -> None:
        """Close every side."""
        for client in self.clients.values():
            client.close()

    def run(
        self,
        config: Config,
        trace: Iterable[ops.AnyOp],
        settings: Settings,
        tell: Callable[[int], None] = lambda op_count: None,
    ) -> CaseResult:
        """Run one case to its end, or until every pair has diverged.

        `tell` hears the number of ops so far, after every batch.
        """
        case = _Case(self, config, settings)
        if case.open():
            for batch in _batches(trace):
                case.step(batch)
                tell(case.result.op_count)
                if not case.active:
                    break
            if case.active:
                case.step(None)
        case.result.figures = case.figures()
        return case.result

    def session(self, config: Config, settings: Settings) -> Session:
        """Start a case whose ops come one after another, each chosen after the last was seen."""
        return Session(_Case(self, config, settings))


class Session:
    """One case that goes on step by step; its sides keep their state between the steps."""

    def __init__(self, case: _Case) -> None:
        self._case = case
        self._pair = case.active[0]
        self._told = 0
        self.seen: observation.Observation | None = None
        """What the left side of the first pair showed last."""
        case.open()

    @property
    def is_open(self) -> bool:
        """Whether any pair is still compared."""
        return bool(self._case.active)

    @property
    def refused(self) -> str | None:
        """The class of the error with which both cores refused the configuration."""
        return self._case.result.refused

    def step(self, steps: Sequence[ops.AnyOp]) -> list[Divergence]:
        """Run ops on every side and compare; the divergences that they showed."""
        return self._step(list(steps))

    def finish(self) -> list[Divergence]:
        """Run the final drain and compare; the divergences that it showed."""
        return self._step(None)

    def _step(self, batch: list[ops.AnyOp] | None) -> list[Divergence]:
        if self.is_open:
            left = self._case.step(batch).get(self._pair[0])
            if left is not None and left.observations:
                self.seen = observation.decode(left.observations[-1])
        found = self._case.result.divergences[self._told :]
        self._told += len(found)
        return found


class _Case:
    """The state of one case while it runs."""

    def __init__(self, lockstep: Lockstep, config: Config, settings: Settings) -> None:
        self.clients = lockstep.clients
        self.active = list(lockstep.pairs)
        self.config = config
        self.settings = settings
        self.failed: set[str] = set()
        self.result = CaseResult(divergences=[], figures={})

    def open(self) -> bool:
        """Open all sides; False if nothing is left to compare."""
        answers: dict[str, str | None] = {}
        for name, client in self.clients.items():
            try:
                answers[name] = client.open(self.config, self.settings)
            except WorkerFailure as failure:
                self._failure(name, failure, None, "open")
        for pair in list(self.active):
            left, right = (answers.get(name) for name in pair)
            if left != right:
                self._record(
                    pair,
                    Divergence(
                        pair=pair,
                        kind="refused",
                        op_index=0,
                        op_kind="open",
                        where=f"{left}|{right}",
                        left=left,
                        right=right,
                    ),
                )
            elif left is not None:
                self.result.refused = left
                self.active.remove(pair)
        return bool(self.active)

    def step(self, batch: list[ops.AnyOp] | None) -> dict[str, Batch]:
        """Run one batch on every side that is still compared, then compare what they showed."""
        names = self._remote_first()
        done: dict[str, Batch] = {}
        for name in names:
            self.clients[name].submit(batch)
        for name in names:
            try:
                done[name] = self.clients[name].collect()
            except WorkerFailure as failure:
                # Which op of the batch it was is not known, so the trace keeps the whole batch.
                last = None if batch is None else self.result.op_count + len(batch) - 1
                self._failure(name, failure, last, "batch")
        for pair in list(self.active):
            if pair[0] in done and pair[1] in done:
                for found in self._compare(pair, done[pair[0]], done[pair[1]], batch):
                    self._record(pair, found)
        self.result.op_count += len(batch) if batch is not None else 0
        return done

    def _remote_first(self) -> list[str]:
        """Sides that are still compared; those in workers start before this process is busy."""
        names = dict.fromkeys(name for pair in self.active for name in pair)
        return sorted(names, key=lambda name: isinstance(self.clients[name], LocalClient))

    def _compare(
        self, pair: Pair, left: Batch, right: Batch, batch: list[ops.AnyOp] | None
    ) -> Iterator[Divergence]:
        """Every soft divergence of a batch up to the first hard one."""
        alarms = {*left.alarms, *right.alarms}
        for index, (one, other) in enumerate(
            zip(left.observations, right.observations, strict=False)
        ):
            if one == other and index not in alarms:
                continue
            op_index = None if batch is None else self.result.op_count + index
            op_kind = "drain" if batch is None else ops.kind_of(batch[index])
            # A soft difference hides no finding: the oracle may not repeat it.
            for told in (_difference, _finding):
                found = told(pair, one, other, op_index, op_kind)
                if found is not None:
                    yield found
                    if not found.is_soft:
                        return
        if len(left.observations) != len(right.observations):
            shorter = min(len(left.observations), len(right.observations))
            yield Divergence(
                pair=pair,
                kind="crash",
                op_index=self.result.op_count + shorter,
                op_kind="batch",
                where="one side stopped",
                left=len(left.observations),
                right=len(right.observations),
            )

    def _record(self, pair: Pair, divergence: Divergence) -> None:
        self.result.divergences.append(divergence)
        if pair in self.active and not divergence.is_soft:
            self.active.remove(pair)

    def _failure(self, name: str, failure: WorkerFailure, index: int | None, where: str) -> None:
        self.failed.add(name)
        for pair in list(self.active):
            if name in pair:
                self._record(
                    pair,
                    Divergence(
                        pair=pair,
                        kind=failure.kind,
                        op_index=index,
                        op_kind=where,
                        where=str(failure),
                        side=name,
                        signature=f"{failure.kind}:{name}",
                    ),
                )

    def figures(self) -> dict[str, dict[str, int]]:
        """Figures of every side that can still answer."""
        if self.result.refused is not None:
            return {}
        alive = {name: side for name, side in self.clients.items() if name not in self.failed}
        refused = {
            pair
            for found in self.result.divergences
            if found.kind == "refused"
            for pair in found.pair
        }
        found = {}
        for name in [name for name in alive if name not in refused]:
            try:
                found[name] = alive[name].figures()
            except WorkerFailure as failure:
                self._failure(name, failure, None, "figures")
        return found


def _difference(
    pair: Pair, left: bytes, right: bytes, op_index: int | None, op_kind: str
) -> Divergence | None:
    if left == right:
        return None
    seen = observation.decode(left), observation.decode(right)
    found = compare_decoded(*seen)
    if found is None:
        return None
    side, verdict = (None, None) if found.is_soft else _referee(pair, *seen)
    return Divergence(
        pair=pair,
        kind="difference",
        op_index=op_index,
        op_kind=op_kind,
        where=found.where,
        left=found.left,
        right=found.right,
        side=side,
        is_soft=found.is_soft,
        verdict=verdict,
    )


def _referee(
    pair: Pair, left: Observation, right: Observation
) -> tuple[str, str] | tuple[None, None]:
    """The guilty side of a difference and what tells: one side alone has broken an invariant.

    Where both have, or neither, nobody is named: oracles judge each side by itself.
    """
    if bool(left.findings) == bool(right.findings):
        return None, None
    first = (left.findings or right.findings)[0]
    return pair[0 if left.findings else 1], f"{first.oracle}: {first.message}"


def _finding(
    pair: Pair, left: bytes, right: bytes, op_index: int | None, op_kind: str
) -> Divergence | None:
    """A finding of one side; of both when they agree, for a fault that the cores share."""
    mine, theirs = (observation.decode(data).findings for data in (left, right))
    if not mine and not theirs:
        return None
    finding = (mine or theirs)[0]
    is_shared = finding in mine and finding in theirs
    side = None if is_shared else pair[0] if finding in mine else pair[1]
    return Divergence(
        pair=pair,
        kind="oracle",
        op_index=op_index,
        op_kind=op_kind,
        where=f"{finding.oracle}: {finding.message}",
        side=side,
        signature=f"oracle:{op_kind}:{finding.oracle}" + ("" if side is None else f"@{side}"),
    )


def _batches(trace: Iterable[ops.AnyOp]) -> Iterator[list[ops.AnyOp]]:
    source = iter(trace)
    while batch := list(islice(source, BATCH_OPS)):
        yield batch
