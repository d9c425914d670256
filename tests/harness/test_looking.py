"""A trace means the same however often its sides are looked at."""

from __future__ import annotations

import pytest

from treedrift.backends.python_core import PythonTreeCore
from treedrift.backends.python_core.inspection import inspect_tree
from treedrift.harness import observation
from treedrift.harness.side import LocalSide, Settings
from treedrift.models.profiles import profile_named
from treedrift.models.swarm import generate_case

NEVER = 2**62


def calls_of(seed: int, tree_every: int) -> list[list[str]]:
    config, trace = generate_case(seed, profile_named("full"), hostile=seed % 2 == 0, length=120)
    side = LocalSide(PythonTreeCore, inspect_tree)
    assert side.open(config, Settings(tree_every=tree_every, inspect=True)) is None
    seen = map(observation.decode, side.run(trace).observations)
    return [[call[0] for call in one.calls] for one in seen]


@pytest.mark.parametrize("seed", range(24))
def test_looks_at_the_tree_change_no_call(seed: int) -> None:
    assert calls_of(seed, tree_every=1) == calls_of(seed, tree_every=NEVER)
