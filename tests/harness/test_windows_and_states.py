"""Ops on windows and states do what they say, and nothing of theirs is ever lost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness import mutants
from treedrift.harness import observation, ops
from treedrift.harness.compare import SIZE_NAMES
from treedrift.harness.config import Config
from treedrift.harness.observation import Observation
from treedrift.harness.ops import (
    AnyOp,
    Arrive,
    AttachWindow,
    CapPath,
    CoreEnd,
    CoreInsert,
    CoreMatch,
    EarlyRelease,
    Evict,
    EvictLeaf,
    Lock,
    Prefill,
    ReleaseWindow,
    StoreValue,
    Unlock,
    WalkEnd,
    WalkNext,
    WalkStart,
    WindowRanges,
)
from treedrift.harness.side import LocalSide, Settings

WATCHED = Settings(tree_every=1, inspect=True)
SWA = Config(components=("full", "swa"), window=2, capacity=32)
MAMBA = Config(components=("full", "mamba"), states=4, capacity=32)
HYBRID = Config(components=("full", "swa", "mamba"), window=2, states=4, capacity=32)
WINDOWS = Config(components=("full", "swa", "aux_swa"), window=3, aux_window=2, capacity=32)


def opened(config: Config, *faults: mutants.Mutation) -> LocalSide:
    side = mutants.side(*faults)
    assert side.open(config, WATCHED) is None
    return side


def run(side: LocalSide, *steps: AnyOp) -> list[Observation]:
    return [observation.decode(data) for data in side.run(steps).observations]


def called(seen: Observation) -> list[str]:
    return [call[0] for call in seen.calls]


def counted(seen: Observation) -> dict[str, int]:
    return dict(zip(SIZE_NAMES, seen.sizes, strict=False))


def drained(side: LocalSide) -> None:
    """Everything comes back to every pool."""
    for data in side.finish().observations:
        seen = observation.decode(data)
        assert seen.findings == []
        assert seen.outcome is None


# --- Nothing to work on -------------------------------------------------------------------

ON_NOTHING: list[AnyOp] = [
    EarlyRelease(0),
    ReleaseWindow(0),
    ReleaseWindow(1, receipt="released", force=True),
    CapPath("live:0"),
    StoreValue("live:0"),
    StoreValue("live:0", "swa"),
    AttachWindow([1, 2, 3]),
    AttachWindow([1, 2, 3], component="aux_swa"),
    WalkNext("swa"),
    WalkEnd("mamba"),
]


@pytest.mark.parametrize("config", [Config(), SWA, MAMBA, HYBRID, WINDOWS])
@pytest.mark.parametrize("op", ON_NOTHING, ids=str)
def test_an_op_that_finds_nothing_does_nothing(op: AnyOp, config: Config) -> None:
    side = opened(config)
    (seen,) = run(side, op)
    assert (seen.outcome, seen.pool, seen.sizes[0]) == (None, [], 0)
    drained(side)


LACKING: list[AnyOp] = [
    WalkStart(1, "swa"),
    WalkStart(1, "mamba"),
    CapPath("live:0"),
    StoreValue("live:0"),
    StoreValue("live:0", "aux_swa"),
    WindowRanges([1, 2]),
    AttachWindow([1, 2]),
    ops.HostEvict(1, "swa"),
    ops.AdjustSize("live:0", 1, "mamba"),
]


@pytest.mark.parametrize("op", LACKING, ids=str)
def test_an_op_on_a_component_that_is_lacking_does_nothing(op: AnyOp) -> None:
    seen = run(opened(Config()), CoreInsert([1, 2]), op)[1]
    assert (seen.outcome, seen.calls) == (None, [])


# --- Inserts ------------------------------------------------------------------------------


def test_slots_below_the_evicted_length_have_no_peers() -> None:
    side = opened(SWA)
    (seen,) = run(side, CoreInsert([1, 2, 3, 4], swa_evicted=3))
    assert counted(seen)["free"] == 28
    assert counted(seen)["swa_free"] == 31
    drained(side)


def test_an_insert_brings_a_state_and_takes_it_back_where_there_is_one() -> None:
    side = opened(MAMBA)
    first, again = run(side, CoreInsert([1, 2]), CoreInsert([1, 2]))
    assert counted(first)["mamba_free"] == 3
    assert counted(again)["mamba_free"] == 3
    assert ["mamba:free", [2]] in again.pool
    drained(side)


@pytest.mark.parametrize("kind", ["none", "two"])
def test_a_bad_state_is_refused_and_every_slot_comes_back(kind: ops.StateKind) -> None:
    side = opened(HYBRID)
    (seen,) = run(side, CoreInsert([1, 2, 3], state=kind))
    assert seen.outcome == "InvalidArgumentError"
    assert seen.sizes == [0, 0, 0, 32, 0, 0, 0, 32, 0, 0, 0, 0, 0, 4]


def test_an_insert_without_a_state_to_bring_takes_nothing() -> None:
    side = opened(MAMBA)
    steps = [op for key in range(1, 5) for op in (CoreInsert([key]), Lock(f"live:{key - 1}"))]
    *_, seen = run(side, *steps, CoreInsert([9, 9]))
    assert "begin_insert" not in called(seen)
    assert counted(seen)["free"] == 28
    drained(side)


@pytest.mark.parametrize("end", [CoreEnd(), Evict(0), CoreInsert([7])])
@pytest.mark.parametrize("config", [SWA, HYBRID, WINDOWS])
def test_an_abandoned_insert_loses_nothing(config: Config, end: AnyOp) -> None:
    side = opened(config)
    steps: list[AnyOp] = [
        CoreInsert([1, 2, 3, 4, 5]),
        Evict(0, 3, 0),
        CoreInsert([1, 2, 3, 4, 5, 6], suspend=True),
        end,
    ]
    assert all(seen.findings == [] for seen in run(side, *steps))
    drained(side)


def test_a_caller_that_owns_a_part_of_a_node_gives_no_slots_of_the_tree() -> None:
    side = opened(WINDOWS)
    steps: list[AnyOp] = [
        CoreInsert([1, 2, 3, 4], swa_evicted=4, aux_evicted=4),
        CoreInsert([1, 2, 3, 4, 5, 6], owned=2),
    ]
    assert all(seen.findings == [] for seen in run(side, *steps))
    drained(side)


# --- Locks --------------------------------------------------------------------------------


def test_a_released_window_is_left_out_of_the_release() -> None:
    side = opened(HYBRID)
    steps: list[AnyOp] = [CoreInsert([1, 2, 3, 4]), Lock("live:1")]
    _, _, once, twice = run(side, *steps, ReleaseWindow(0), ReleaseWindow(0))
    assert called(once) == ["dec_swa_lock_only"]
    assert called(twice) == []
    assert (counted(once)["protected"], counted(once)["swa_protected"]) == (4, 0)
    (last,) = run(side, Unlock(0))
    assert last.calls[0][1][-1] is True
    assert counted(last)["protected"] == 0
    drained(side)


def test_a_window_that_reached_the_root_is_not_released_early() -> None:
    seen = run(opened(SWA), CoreInsert([1]), Lock("live:0"), ReleaseWindow(0))[2]
    assert seen.calls == []


def test_a_lock_ends_open_walks_of_windows_and_states_alone() -> None:
    side = opened(HYBRID)
    walks: list[AnyOp] = [WalkStart(9), WalkStart(9, "swa"), WalkStart(9, "mamba")]
    *_, seen = run(side, CoreInsert([1, 2]), *walks, Lock("live:0"))
    assert called(seen) == ["evict_device_end", "evict_device_end", "inc_lock_ref"]
    assert list(side.references.walks) == [0]


MISUSED: list[AnyOp] = [
    ReleaseWindow(0, receipt="stripped"),
    ReleaseWindow(0, receipt="foreign"),
    ReleaseWindow(0, "swa", "foreign"),
    StoreValue("live:0", "swa", force=True),
    StoreValue("live:0", "full", force=True),
    StoreValue("root", force=True),
    AttachWindow([1, 2, 3], start=0, end=3, raw=True),
    AttachWindow([1, 2, 3], start=-1, end=3, raw=True),
    WindowRanges([1, 2, 3], start=2, end=1, raw=True),
    CoreInsert([1, 2, 3], raw_evicted=-1),
]


@pytest.mark.parametrize("op", MISUSED, ids=str)
def test_a_misuse_is_refused_and_changes_nothing(op: AnyOp) -> None:
    side = opened(HYBRID)
    *_, before, seen = run(side, CoreInsert([1, 2, 3]), Lock("live:0"), op)
    assert ops.is_hostile(op)
    assert seen.outcome is not None
    assert seen.findings == []
    assert (seen.sizes, seen.snapshot) == (before.sizes, before.snapshot)
    drained(side)


@pytest.mark.parametrize(
    "op",
    [
        ReleaseWindow(0, receipt="released"),
        ReleaseWindow(0, force=True),
        Unlock(0, receipt="released"),
        Unlock(0, skip_swa=True),
        Unlock(0, window="swa"),
    ],
    ids=str,
)
def test_a_misused_receipt_robs_nobody(op: AnyOp) -> None:
    side = opened(HYBRID)
    steps: list[AnyOp] = [
        CoreInsert([1, 2, 3, 4]),
        Lock("live:0"),
        Lock("live:0"),
        Unlock(0),
        op,
        op,
    ]
    assert all(seen.findings == [] for seen in run(side, *steps))
    drained(side)


# --- Values -------------------------------------------------------------------------------


def test_a_window_that_is_attached_makes_its_key_match_again() -> None:
    side = opened(SWA)
    key = [1, 2, 3, 4]
    steps: list[AnyOp] = [
        CoreInsert(key, swa_evicted=4),
        CoreMatch(key),
        WindowRanges(key, 1),
        AttachWindow(key, start=2),
        CoreMatch(key),
    ]
    _, missed, ranges, attached, hit = run(side, *steps)
    assert missed.calls[0][2][1][1] == 0
    assert ranges.calls[0][2] == ["ok", [[1, 4]]]
    assert counted(attached)["swa_evictable"] == 2
    assert hit.calls[0][2][1][1] == 4
    assert all(seen.findings == [] for seen in (missed, attached, hit))
    drained(side)


def test_a_stored_state_makes_its_node_a_boundary() -> None:
    side = opened(MAMBA)
    steps: list[AnyOp] = [
        CoreInsert([1, 2, 3]),
        CoreInsert([1, 2, 4]),
        CoreMatch([1, 2]),
        StoreValue("live:3"),
        CoreMatch([1, 2]),
    ]
    *_, missed, _, hit = run(side, *steps)
    assert missed.calls[0][2][1][1] == 0
    assert hit.calls[0][2][1][1] == 2
    assert hit.findings == []
    drained(side)


def test_what_the_core_refuses_goes_back_to_the_pool() -> None:
    side = opened(HYBRID)
    lacking = [CoreInsert([1, 2, 3, 4, 5], swa_evicted=5), StoreValue("live:0", "swa", short=True)]
    seen = run(side, *lacking)[1]
    assert seen.outcome == "ContractError"
    assert counted(seen)["swa_free"] == 32
    drained(side)


def test_a_path_is_capped() -> None:
    config = Config(components=("full", "mamba"), states=4, capacity=32, state_cap=-1)
    side = opened(config)
    (_, seen) = run(side, CoreInsert([1]), CapPath("live:0"))
    assert called(seen) == ["evict_excess_path_states"]
    drained(side)


# --- Walks --------------------------------------------------------------------------------


def test_what_one_walk_evicts_counts_for_every_other() -> None:
    side = opened(HYBRID)
    steps: list[AnyOp] = [
        CoreInsert([1, 2]),
        WalkStart(1),
        WalkStart(1, "mamba"),
        WalkNext("mamba"),
        EvictLeaf(),
    ]
    run(side, *steps)
    assert {int(kind): walk.total for kind, walk in side.references.walks.items()} == {0: 2, 2: 1}


def test_the_drain_shows_the_order_of_both_lists_before_it_empties_the_tree() -> None:
    side = opened(HYBRID)
    run(side, CoreInsert([1, 2, 3]), CoreInsert([1, 2, 3, 4, 5]))
    seen = [observation.decode(data) for data in side.finish().observations]
    steps = [call for one in seen for call in one.calls if call[0] == "evict_device_next_node"]
    assert [call[1][0] for call in steps if call[1][0]][:1] == [2]
    assert {call[1][0] for call in steps} == {0, 1, 2}


# --- Oracles ------------------------------------------------------------------------------


def forget_state_values(core: Any) -> None:
    """A core that loses a state whenever it evicts a leaf."""
    evict = core.evict_device_leaf

    def spoilt(node: int, is_write_back: bool) -> Any:
        result = evict(node, is_write_back)
        for kind in [kind for kind in result.device_frees if kind]:
            del result.device_frees[kind]
        return result

    core.evict_device_leaf = spoilt


@pytest.mark.parametrize(("config", "name"), [(SWA, "swa"), (MAMBA, "mamba")])
def test_a_slot_that_nobody_owns_is_found(config: Config, name: str) -> None:
    side = opened(config, forget_state_values)
    seen = run(side, CoreInsert([1]), Evict(1))[1]
    assert f"{name} pages that nobody owns: [1]" in [found.message for found in seen.findings]


def test_a_request_that_gives_its_window_up_early_loses_nothing() -> None:
    side = opened(HYBRID)
    steps: list[AnyOp] = [
        CoreInsert([1, 2, 3, 4]),
        Arrive([1, 2, 3, 4, 5, 6]),
        EarlyRelease(0),
        Evict(0, 4),
        Prefill(0),
    ]
    seen = run(side, *steps)
    assert "dec_swa_lock_only" in called(seen[2])
    assert all(one.findings == [] for one in seen)
    drained(side)
