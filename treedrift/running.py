"""Runs cases in this process: those of one job of a campaign, or given ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path

import msgspec
import torch

from .harness.campaign import Budget, Campaign, Case, Start, numbered
from .harness.config import Config
from .harness.events import Event
from .harness.lockstep import Pair
from .harness.opening import (
    allows_hostile,
    open_lockstep,
    replay_settings,
    settings_for,
)
from .harness.side import Settings, collect_rarely
from .models import hypothesis_engine
from .models.profiles import Profile, profile_of, profiles_named
from .models.swarm import campaign_case

Listener = Callable[[Event], None]


class Plan(msgspec.Struct, kw_only=True, frozen=True):
    """A campaign: what to run, on which pairs, for how long, and where traces go.

    `profile` may be a list, as in `full,hybrid`: each case draws one of them by its seed.
    `shard` is which part of how many: machines that share a campaign out run different cases.
    """

    pairs: tuple[Pair, ...]
    profile: str = "full"
    engine: str = "swarm"
    seed: int = 1
    budget: Budget = Budget(seconds=50.0)
    jobs: int = 1
    shard: tuple[int, int] = (1, 1)
    folder: str | None = None
    device: str = "cpu"


def cases_of(plan: Plan, job: int, first: int = 0) -> Iterator[Case]:
    """The cases of one job of a plan, from its `first` on; all jobs together make those of a seed.

    Hostile ops are made only where both cores of every pair answer them alike. Raises the errors
    of an unknown profile and of a missing engine at once.
    """
    hostile = allows_hostile(plan.pairs)
    part, parts = plan.shard
    start, stride = part - 1 + job * parts, plan.jobs * parts
    if plan.engine == "hypothesis":
        made = hypothesis_engine.cases(plan.seed, plan.profile, hostile, start, stride)
        return islice(map(_with_number, made, count()), first, None)
    seeds = numbered(plan.seed, start + first * stride, stride)
    return _swarm_cases(profiles_named(plan.profile), enumerate(seeds, first), hostile)


def _with_number(case: Case, number: int) -> Case:
    case.number = number
    return case


def _swarm_cases(
    profiles: tuple[Profile, ...], seeds: Iterable[tuple[int, int]], hostile: bool
) -> Iterator[Case]:
    for number, seed in seeds:
        config, ops = campaign_case(seed, profile_of(seed, profiles), hostile)
        yield Case(config, ops, seed, number=number)


def run_job(plan: Plan, start: Start, listen: Listener, go_on: Iterable[object]) -> bool:
    """One job of a plan, in this process; returns whether it was interrupted.

    `go_on` is asked for an item before every case; the job stops when there is none left.
    """
    cases = (
        case for _, case in zip(go_on, cases_of(plan, start.job, start.next_case), strict=False)
    )
    return run_cases(
        plan.pairs,
        settings_for(plan.pairs, plan.device),
        cases,
        _job_budget(plan),
        Path(plan.folder) if plan.folder else None,
        listen,
        start,
    )


def _job_budget(plan: Plan) -> Budget:
    count = None if plan.budget.ops is None else -(-plan.budget.ops // plan.jobs)
    return Budget(count, plan.budget.seconds)


def run_cases(
    pairs: Sequence[Pair],
    settings: Settings,
    cases: Iterable[Case],
    budget: Budget,
    folder: Path | None,
    listen: Listener,
    start: Start | None = None,
) -> bool:
    """Run given cases in this process; returns whether Ctrl-C ended them."""
    torch.set_num_threads(1)  # The tensors are small, and the other core has work of its own.

    def closely(pair: Pair, config: Config) -> Settings:
        return replay_settings([pair], config, settings.device)

    lockstep = open_lockstep(pairs)
    collect_rarely()
    try:
        lockstep.start()
        campaign = Campaign(lockstep, settings, folder, listen, closely, start)
        campaign.run(cases, budget)
    except KeyboardInterrupt:
        return True
    finally:
        lockstep.close()
    return False
