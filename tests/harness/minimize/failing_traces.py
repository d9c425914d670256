"""Traces that fail on a spoilt core, as a campaign finds them; and replays that trust nobody."""

from __future__ import annotations

from collections.abc import Sequence

from tests.harness.mutants import Mutation
from tests.harness.spoilt_pair import PAIR, spoilt_pair
from treedrift.harness.compare import Divergence
from treedrift.harness.config import Config
from treedrift.harness.lockstep import Lockstep
from treedrift.harness.opening import replay_settings
from treedrift.harness.ops import AnyOp
from treedrift.harness.trace import Trace, new_trace
from treedrift.models.profiles import profile_named
from treedrift.models.swarm import generate_case

FIRST_SEED = 1_000_003


def divergences(lockstep: Lockstep, config: Config, steps: Sequence[AnyOp]) -> list[Divergence]:
    """What a whole replay of a saved trace shows."""
    return lockstep.run(config, steps, replay_settings([PAIR], config)).divergences


def signatures(lockstep: Lockstep, config: Config, steps: Sequence[AnyOp]) -> set[str]:
    """The kinds that a replay shows."""
    return {one.signature for one in divergences(lockstep, config, steps)}


def found_by_chance(mutation: Mutation, hostile: bool = False) -> Trace:
    """The first generated case that this fault shows on, up to where it shows."""
    lockstep = spoilt_pair(mutation)
    for seed in range(FIRST_SEED, FIRST_SEED + 100):
        config, steps = generate_case(seed, profile_named("full"), hostile)
        found = divergences(lockstep, config, steps)
        if found:
            end = None if found[0].op_index is None else found[0].op_index + 1
            return new_trace(config, steps[:end], source="swarm", seed=seed, profile="full")
    raise AssertionError("no case shows this fault")
