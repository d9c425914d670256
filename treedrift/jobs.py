"""Runs a campaign, in this process or spread over several whose streams are joined into one."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import queue
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from .harness.campaign import Start
from .harness.events import Event, Found, Progress
from .harness.lockstep import Pair
from .running import Listener, Plan, run_job

DONE = "done"


def run_plan(plan: Plan, listen: Listener, starts: Sequence[Start] | None = None) -> bool:
    """Run a campaign, from its beginning or from where each job of it ended.

    Ctrl-C ends it. Returns whether it did; everything else is told.
    """
    begins = starts or [Start(job=job) for job in range(plan.jobs)]
    try:
        if plan.jobs == 1:
            return run_job(plan, begins[0], listen, itertools.repeat(None))
        return _run_jobs(plan, begins, listen)
    except KeyboardInterrupt:  # Before anything ran, or a second time.
        return True


def _run_jobs(plan: Plan, starts: Sequence[Start], listen: Listener) -> bool:
    context = multiprocessing.get_context("spawn")
    stop, events = context.Event(), context.Queue()
    processes = [
        context.Process(target=_job, args=(plan, start, stop, events), daemon=False)
        for start in starts
    ]
    # Ctrl-C reaches the whole group of processes: a job must not see it, not even while it imports.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        for process in processes:
            process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    gather = _Gather(listen, starts)
    interrupted = False
    try:
        while not gather.is_complete(processes):
            gather.take(events)
    except KeyboardInterrupt:
        stop.set()
        interrupted = True
        while not gather.is_complete(processes):
            gather.take(events)
    finally:
        stop.set()
        for process in processes:
            process.join(timeout=10)
            if process.is_alive():
                process.kill()
    if not (gather.is_done() or interrupted):
        raise RuntimeError("a process of the campaign ended without a report")
    return interrupted


def _job(plan: Plan, start: Start, stop: Any, events: Any) -> None:
    """One process of a campaign. It leaves Ctrl-C to its parent, which asks it to stop.

    It also ends when its parent is gone, however that came.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()

    def go_on() -> Iterator[None]:
        while not stop.is_set() and os.getppid() == parent:
            yield None

    def listen(event: Event) -> None:
        events.put((start.job, msgspec.msgpack.encode(event)))

    try:
        run_job(plan, start, listen, go_on())
    except Exception as error:
        events.put((start.job, error if _is_picklable(error) else RuntimeError(repr(error))))
        return
    events.put((start.job, DONE))


def _is_picklable(error: Exception) -> bool:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True


class _Gather:
    """Joins the events of several jobs into one stream."""

    def __init__(self, listen: Listener, starts: Sequence[Start]) -> None:
        self._listen = listen
        self._progress = {
            start.job: Progress(start.tally.op_count, start.tally.cases, start.seconds, 0)
            for start in starts
        }
        self._done: set[int] = set()
        self._seen: set[tuple[Pair, str]] = {kind for start in starts for kind in start.kinds}
        self._decode = msgspec.msgpack.Decoder(Event).decode

    def is_done(self) -> bool:
        """Whether every job has run to its end."""
        return len(self._done) == len(self._progress)

    def is_complete(self, processes: list[Any]) -> bool:
        """Whether every job has reported, or is dead without a report."""
        jobs = zip(self._progress, processes, strict=True)
        missing = [process for job, process in jobs if job not in self._done]
        return all(not one.is_alive() and one.exitcode not in (None, 0) for one in missing)

    def take(self, events: Any) -> None:
        """Wait a moment for the next event and pass it on."""
        try:
            job, data = events.get(timeout=0.2)
        except queue.Empty:
            return
        if isinstance(data, Exception):
            raise data
        if data == DONE:
            self._done.add(job)
            return
        event = self._decode(data)
        if isinstance(event, Progress):
            self._progress[job] = event
            event = self._sum()
        elif isinstance(event, Found):
            kind = (event.divergence.pair, event.divergence.signature)
            event.is_new = event.is_new and kind not in self._seen
            self._seen.add(kind)
        self._listen(event)

    def _sum(self) -> Progress:
        every = list(self._progress.values())
        return Progress(
            sum(one.op_count for one in every),
            sum(one.cases for one in every),
            max(one.seconds for one in every),
            len(self._seen),
        )
