"""Opens the sides of a run, spreads a campaign over processes, and adds up what they found."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import queue
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import torch

from .harness.campaign import Budget, Campaign, Case, numbered
from .harness.compare import Divergence
from .harness.events import Event, Found, Progress
from .harness.lockstep import Pair
from .harness.opening import allows_hostile, open_lockstep, settings_for
from .harness.side import Settings, collect_rarely
from .harness.tally import Tally
from .models.profiles import profile_named
from .models.swarm import generate_case

HOSTILE_EVERY = 3
"""One case in so many is hostile, where the cores allow it."""


class Plan(msgspec.Struct, kw_only=True, frozen=True):
    """A campaign: what to run, on which pairs, for how long, and where traces go."""

    pairs: tuple[Pair, ...]
    profile: str = "full"
    seed: int = 1
    budget: Budget = Budget(seconds=50.0)
    jobs: int = 1
    folder: str | None = None
    device: str = "cpu"


class Outcome(msgspec.Struct, kw_only=True):
    """What a campaign or a replay gave."""

    tally: Tally
    seconds: float
    divergences: list[Divergence]
    occurrences: list[int]
    interrupted: bool = False


def swarm_cases(plan: Plan, job: int) -> Iterator[Case]:
    """The cases of one job of a plan; all jobs together make the cases of the seed."""
    profile = profile_named(plan.profile)
    hostile = allows_hostile(plan.pairs)
    for seed in numbered(plan.seed, job, plan.jobs):
        config, trace = generate_case(seed, profile, hostile and seed % HOSTILE_EVERY == 0)
        yield Case(config, trace, seed)


def run_plan(plan: Plan, listen: Callable[[Event], None]) -> Outcome:
    """Run a campaign, in this process or in several. Ctrl-C ends it and keeps what was found."""
    started = monotonic()
    try:
        results = _run_alone(plan, listen) if plan.jobs == 1 else _run_jobs(plan, listen)
    except KeyboardInterrupt:  # Before anything ran, or a second time.
        results = [_JobResult(Tally.empty(), [], [], interrupted=True)]
    return _outcome(results, monotonic() - started)


class _JobResult(msgspec.Struct):
    tally: Tally
    divergences: list[Divergence]
    occurrences: list[int]
    interrupted: bool = False


def _outcome(results: list[_JobResult], seconds: float) -> Outcome:
    total = Tally.empty()
    kinds: dict[tuple[Pair, str], list[Any]] = {}
    for result in results:
        total.add(result.tally)
        for divergence, count in zip(result.divergences, result.occurrences, strict=True):
            entry = kinds.setdefault((divergence.pair, divergence.signature), [divergence, 0])
            entry[1] += count
    return Outcome(
        tally=total,
        seconds=seconds,
        divergences=[entry[0] for entry in kinds.values()],
        occurrences=[entry[1] for entry in kinds.values()],
        interrupted=any(result.interrupted for result in results),
    )


def run_cases(
    pairs: Sequence[Pair],
    settings: Settings,
    cases: Iterator[Case],
    budget: Budget,
    folder: Path | None,
    listen: Callable[[Event], None],
) -> Outcome:
    """Run given cases in this process."""
    started = monotonic()
    result = _campaign(pairs, settings, cases, budget, folder, listen)
    return _outcome([result], monotonic() - started)


def _campaign(
    pairs: Sequence[Pair],
    settings: Settings,
    cases: Iterator[Case],
    budget: Budget,
    folder: Path | None,
    listen: Callable[[Event], None],
) -> _JobResult:
    torch.set_num_threads(1)  # The tensors are small, and the other core has work of its own.
    lockstep = open_lockstep(pairs)
    collect_rarely()
    interrupted = False
    try:
        campaign = Campaign(lockstep, settings, folder, listen)
        try:
            campaign.run(cases, budget)
        except KeyboardInterrupt:
            interrupted = True
    finally:
        lockstep.close()
    return _JobResult(
        campaign.tally,
        list(campaign.kinds.values()),
        [campaign.occurrences[key] for key in campaign.kinds],
        interrupted,
    )


def _run_alone(plan: Plan, listen: Callable[[Event], None]) -> list[_JobResult]:
    folder = Path(plan.folder) if plan.folder else None
    settings = settings_for(plan.pairs, plan.device)
    cases = swarm_cases(plan, 0)
    return [_campaign(plan.pairs, settings, cases, plan.budget, folder, listen)]


# --- Several processes ----------------------------------------------------------------------


def _job_budget(plan: Plan) -> Budget:
    count = None if plan.budget.ops is None else -(-plan.budget.ops // plan.jobs)
    return Budget(count, plan.budget.seconds)


def _job(plan: Plan, number: int, stop: Any, events: Any) -> None:
    """One process of a campaign. It leaves Ctrl-C to its parent, which asks it to stop.

    It also ends when its parent is gone, however that came.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()

    def listen(event: Event) -> None:
        events.put((number, msgspec.msgpack.encode(event)))

    def cases() -> Iterator[Case]:
        for case in swarm_cases(plan, number):
            if stop.is_set() or os.getppid() != parent:
                return
            yield case

    folder = Path(plan.folder) if plan.folder else None
    settings = settings_for(plan.pairs, plan.device)
    try:
        result = _campaign(plan.pairs, settings, cases(), _job_budget(plan), folder, listen)
    except Exception as error:
        events.put((number, error if _is_picklable(error) else RuntimeError(repr(error))))
        return
    events.put((number, msgspec.msgpack.encode(result), "done"))


def _is_picklable(error: Exception) -> bool:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True


def _run_jobs(plan: Plan, listen: Callable[[Event], None]) -> list[_JobResult]:
    context = multiprocessing.get_context("spawn")
    stop, events = context.Event(), context.Queue()
    processes = [
        context.Process(target=_job, args=(plan, number, stop, events), daemon=False)
        for number in range(plan.jobs)
    ]
    # Ctrl-C reaches the whole group of processes: a job must not see it, not even while it imports.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        for process in processes:
            process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    gather = _Gather(listen, plan.jobs)
    try:
        while not gather.is_complete(processes):
            gather.take(events)
    except KeyboardInterrupt:
        stop.set()
        gather.interrupted = True
        while not gather.is_complete(processes):
            gather.take(events)
    finally:
        stop.set()
        for process in processes:
            process.join(timeout=10)
            if process.is_alive():
                process.kill()
    return gather.finish()


class _Gather:
    """Joins the events of several jobs into one stream."""

    def __init__(self, listen: Callable[[Event], None], jobs: int) -> None:
        self._listen = listen
        self._progress = [Progress(0, 0, 0.0, 0)] * jobs
        self._results: dict[int, _JobResult] = {}
        self._seen: set[tuple[Pair, str]] = set()
        self._decode = msgspec.msgpack.Decoder(Progress | Found).decode
        self.interrupted = False

    def is_complete(self, processes: list[Any]) -> bool:
        """Whether every job has reported, or is dead without a report."""
        missing = [one for number, one in enumerate(processes) if number not in self._results]
        return all(not one.is_alive() and one.exitcode not in (None, 0) for one in missing)

    def take(self, events: Any) -> None:
        """Wait a moment for the next event and pass it on."""
        try:
            number, data, *rest = events.get(timeout=0.2)
        except queue.Empty:
            return
        if isinstance(data, Exception):
            raise data
        if rest:
            self._results[number] = msgspec.msgpack.decode(data, type=_JobResult)
            return
        event = self._decode(data)
        if isinstance(event, Progress):
            self._progress[number] = event
            self._listen(self._sum())
        else:
            key = (event.divergence.pair, event.divergence.signature)
            event.is_new = event.is_new and key not in self._seen
            self._seen.add(key)
            self._listen(event)

    def _sum(self) -> Progress:
        return Progress(
            sum(one.op_count for one in self._progress),
            sum(one.cases for one in self._progress),
            max(one.seconds for one in self._progress),
            len(self._seen),
        )

    def finish(self) -> list[_JobResult]:
        """The results of all jobs. Raises if one died without a word."""
        if len(self._results) < len(self._progress) and not self.interrupted:
            raise RuntimeError("a process of the campaign ended without a report")
        results = list(self._results.values())
        for result in results:
            result.interrupted = self.interrupted
        return results
