"""Broken protocols end alike on both cores: a typed error, an unchanged tree, no slot lost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pytest

from treedrift.backends import registry
from treedrift.harness import observation
from treedrift.harness.config import Config
from treedrift.harness.observation import Observation
from treedrift.harness.ops import (
    AnyOp,
    CoreEnd,
    CoreInsert,
    CoreResume,
    EvictLeaf,
    Lock,
    ReleaseWindow,
    Unlock,
    WalkNext,
    WalkStart,
)
from treedrift.harness.side import LocalSide, Settings

CORES = ("python", "rust")
WATCHED = Settings(tree_every=1, inspect=True)
SWA = Config(components=("full", "swa"), window=2, capacity=32)
MAMBA = Config(components=("full", "mamba"), states=4, capacity=32)
HYBRID = Config(components=("full", "swa", "mamba"), window=2, states=4, capacity=32)
WINDOWS = Config(components=("full", "swa", "aux_swa"), window=2, aux_window=1, capacity=32)

TREE: list[AnyOp] = [CoreInsert([1, 2, 3, 4, 5, 6]), CoreInsert([1, 2, 3, 7, 8])]


class Broken(NamedTuple):
    """Steps in protocol, one that is not and is refused, and what still works after it."""

    config: Config
    steps: list[AnyOp]
    refused: AnyOp
    after: list[AnyOp]


BROKEN = {
    "a window locked between two steps": Broken(
        SWA,
        [WalkStart(9, "swa"), Lock("live:0", force=True), Lock("live:1", force=True)],
        WalkNext("swa"),
        [Unlock(0), Unlock(0), WalkNext("swa")],
    ),
    "a second window locked between two steps": Broken(
        WINDOWS,
        [WalkStart(9, "aux_swa"), Lock("live:0", force=True), Lock("live:1", force=True)],
        WalkNext("aux_swa"),
        [Unlock(0), Unlock(0), WalkNext("aux_swa")],
    ),
    "a state locked between two steps": Broken(
        MAMBA,
        [WalkStart(9, "mamba"), Lock("live:0", force=True), Lock("live:1", force=True)],
        WalkNext("mamba"),
        [Unlock(0), Unlock(0), WalkNext("mamba")],
    ),
    "a receipt released twice": Broken(
        HYBRID, [Lock("live:0"), Unlock(0)], Unlock(0, receipt="released"), []
    ),
    "a window given up twice": Broken(
        HYBRID,
        [Lock("live:0"), ReleaseWindow(0)],
        ReleaseWindow(0, force=True),
        [Unlock(0)],
    ),
    "a receipt of another node": Broken(
        HYBRID, [Lock("live:0")], Unlock(0, receipt="foreign"), [Unlock(0)]
    ),
    "a receipt without its node": Broken(
        HYBRID, [Lock("live:0")], Unlock(0, receipt="stripped"), [Unlock(0)]
    ),
    "a window's boundary of another tree": Broken(
        HYBRID, [Lock("live:0")], ReleaseWindow(0, receipt="foreign"), [Unlock(0)]
    ),
    "a window that would go under a locked state": Broken(
        HYBRID,
        [CoreInsert([1, 2, 3]), Lock("live:1", ["swa"]), WalkStart(9, "swa"), WalkNext("swa")],
        WalkNext("swa"),
        [Unlock(0), WalkNext("swa")],
    ),
    "an insert whose leaf was evicted": Broken(
        HYBRID,
        [CoreInsert([9, 9, 9], suspend=True), EvictLeaf("live:4")],
        CoreResume(force=True),
        [CoreEnd()],
    ),
}


def opened(core: str, config: Config) -> LocalSide:
    backend = registry.local_backend(core)
    if backend.inspect is None:
        pytest.skip(f"{core} shows its state only as an inspection build")
    side = LocalSide(backend.create, backend.inspect)
    assert side.open(config, WATCHED) is None
    return side


def run(side: LocalSide, *steps: AnyOp) -> list[Observation]:
    return [observation.decode(data) for data in side.run(steps).observations]


def assert_sound(seen: Iterable[Observation]) -> None:
    assert {(one.outcome, *one.findings) for one in seen} <= {(None,)}


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_protocol_is_refused_and_changes_nothing(core: str, broken: Broken) -> None:
    side = opened(core, broken.config)
    before = run(side, *TREE, *broken.steps)
    assert_sound(before)
    (seen,) = run(side, broken.refused)
    # A refused call that changes the tree would be a finding, also while nobody can look.
    assert (seen.outcome, seen.findings) == ("ContractError", [])
    assert (seen.sizes, seen.snapshot) == (before[-1].sizes, before[-1].snapshot)
    assert_sound(run(side, *broken.after))
    assert_sound(map(observation.decode, side.finish().observations))


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_both_cores_show_the_same(broken: Broken) -> None:
    shown = []
    for core in CORES:
        side = opened(core, broken.config)
        steps = [*TREE, *broken.steps, broken.refused, *broken.after]
        shown.append([*side.run(steps).observations, *side.finish().observations])
    assert shown[0] == shown[1]
