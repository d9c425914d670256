"""Tries candidates ahead of time in several processes, and gives their results in order.

The first success in order is what counts, as in one process, so the result is the same; what was
tried beyond it is thrown away. A process that dies takes no more than one candidate with it.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType

import msgspec
import torch

from ..compare import Divergence
from ..lockstep import Pair
from ..opening import open_lockstep
from ..side import HarnessError, collect_rarely
from .draft import Candidate, Draft
from .trial import Evaluation, Judge, Memo, Outcome, Trial

AHEAD = 2
"""Candidates in flight for every process."""

DEAD_PROCESS = "crash:process"
"""The kind of a candidate that ends the process that tries it, twice."""


class Alone:
    """Tries one candidate after another in this process."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def stream(
        self, base: Draft, candidates: Iterator[Candidate], deadline: float
    ) -> Iterator[Evaluation]:
        """See `search.Evaluator`."""
        for candidate in candidates:
            yield self._judge.evaluate(base, candidate, deadline)


class _Task(msgspec.Struct):
    base: Draft
    candidate: Candidate
    deadline: float


_ENCODE = msgspec.msgpack.Encoder().encode

Waiting = deque[tuple[Candidate, Future[bytes]]]


class Together:
    """Tries candidates in `jobs` processes, each with sides of its own. Use it as a context."""

    def __init__(self, pair: Pair, kept: Divergence, jobs: int, memo: Memo) -> None:
        self._start = msgspec.msgpack.encode((pair, kept.kind, kept.op_kind, kept.signature, memo))
        self._jobs = jobs
        self._memo = memo
        self._pool = self._open()

    def _open(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self._jobs, context, _open_judge, (self._start,))

    def __enter__(self) -> Together:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def stream(
        self, base: Draft, candidates: Iterator[Candidate], deadline: float
    ) -> Iterator[Evaluation]:
        """See `search.Evaluator`."""
        waiting: Waiting = deque()
        try:
            while True:
                while len(waiting) < AHEAD * self._jobs:
                    candidate = next(candidates, None)
                    if candidate is None:
                        break
                    waiting.append((candidate, self._submit(base, candidate, deadline)))
                if not waiting:
                    return
                yield self._collect(base, waiting, deadline)
        finally:
            for _, future in waiting:
                future.cancel()

    def _submit(self, base: Draft, candidate: Candidate, deadline: float) -> Future[bytes]:
        known = self._memo.outcomes.get(candidate.draft.digest())
        if known is not None and known.slip == DEAD_PROCESS:
            done: Future[bytes] = Future()
            done.set_result(_ENCODE(_deadly(candidate.draft)))
            return done
        task = _ENCODE(_Task(base, candidate, deadline))
        # The first call starts the processes: Ctrl-C must not reach them while they import.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            return self._pool.submit(_evaluate, task)
        except BrokenProcessPool:
            broken: Future[bytes] = Future()
            broken.set_exception(BrokenProcessPool())
            return broken
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])

    def _collect(self, base: Draft, waiting: Waiting, deadline: float) -> Evaluation:
        candidate, future = waiting.popleft()
        try:
            data = future.result()
        except BrokenProcessPool:
            evaluation = self._alone(base, candidate, deadline)
            rest = [one for one, _ in waiting]
            waiting.clear()
            waiting.extend((one, self._submit(base, one, deadline)) for one in rest)
        else:
            evaluation = msgspec.msgpack.decode(data, type=Evaluation)
        self._memo.relinked |= evaluation.relinked
        self._memo.outcomes |= {trial.digest: trial.outcome for trial in evaluation.trials}
        return evaluation

    def _alone(self, base: Draft, candidate: Candidate, deadline: float) -> Evaluation:
        """Try a candidate by itself in new processes; if they end too, it is to blame.

        Raises `HarnessError` if they end without it as well: then nothing can be tried here.
        """
        self._pool.shutdown(cancel_futures=True)
        self._pool = self._open()
        try:
            data = self._submit(base, candidate, deadline).result()
        except BrokenProcessPool:
            self._pool.shutdown(cancel_futures=True)
            self._pool = self._open()
            self._check_that_it_opens()
            return _deadly(candidate.draft)
        return msgspec.msgpack.decode(data, type=Evaluation)

    def _check_that_it_opens(self) -> None:
        try:
            self._pool.submit(_stand_ready).result()
        except BrokenProcessPool:
            raise HarnessError(
                "the processes that try candidates end while they open their sides; shrink with "
                "--jobs 1"
            ) from None


def _deadly(draft: Draft) -> Evaluation:
    return Evaluation([Trial(draft.digest(), Outcome(False, None, DEAD_PROCESS), draft)])


# --- In a process of the pool ---------------------------------------------------------------

_judge: Judge | None = None


def _open_judge(start: bytes) -> None:
    global _judge
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent ends the pool.
    torch.set_num_threads(1)
    kind = tuple[Pair, str, str, str, Memo]
    pair, what, op_kind, signature, memo = msgspec.msgpack.decode(start, type=kind)
    kept = Divergence(
        pair=pair, kind=what, op_index=None, op_kind=op_kind, where="", signature=signature
    )
    _judge = Judge(open_lockstep([pair]), pair, kept, memo)
    collect_rarely()


def _stand_ready() -> None:
    """Nothing, once the process has opened its sides."""


def _evaluate(data: bytes) -> bytes:
    task = msgspec.msgpack.decode(data, type=_Task)
    assert _judge is not None, "a process of the pool opens its sides first"
    return _ENCODE(_judge.evaluate(task.base, task.candidate, task.deadline))
