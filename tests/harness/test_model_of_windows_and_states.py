"""What the reference model says about windows and states: each statement broken, and found."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec
import pytest
import torch

from tests.harness.spoilt_cores import (
    Fault,
    after,
    answers,
    insert_actions,
    insert_result,
    judge,
    returns,
    sound,
)
from treedrift.backends.contract import (
    ComponentType,
    MambaEvictExcessPathStates,
    RecoverSWAWithLockedFull,
    SWARebuild,
)
from treedrift.harness.config import Config
from treedrift.harness.ops import (
    AnyOp,
    Ask,
    AttachWindow,
    CapPath,
    CoreEnd,
    CoreInsert,
    CoreMatch,
    EvictLeaf,
    Lock,
    ReleaseWindow,
    StoreValue,
    Unlock,
    WalkNext,
    WalkStart,
    WindowRanges,
)

FULL, SWA, MAMBA = ComponentType.FULL, ComponentType.SWA, ComponentType.MAMBA
WINDOW = Config(components=("full", "swa"), window=2)
STATE = Config(components=("full", "mamba"))
CAPPED = Config(components=("full", "mamba"), state_cap=0)
HYBRID = Config(components=("full", "swa", "mamba"), window=2)
FOUR = CoreInsert([1, 2, 3, 4])
SIX = CoreInsert([1, 2, 3, 4, 5, 6], swa_evicted=4)
"""Four units without a window, then a leaf of two with one."""

LEAF = "live:0"


def without(kind: type[Any]) -> Fault:
    """A core whose inserts leave out one kind of action."""
    return insert_actions(
        lambda actions: [action for action in actions if not isinstance(action, kind)]
    )


def about(kind: ComponentType, name: str, change: Callable[[Any], Any]) -> Fault:
    """A core that answers wrongly when it is asked about one component."""

    def spoil(core: Any) -> None:
        method = getattr(core, name)

        def call(*arguments: Any) -> Any:
            told = method(*arguments)
            return change(told) if kind in arguments else told

        setattr(core, name, call)

    return spoil


def freed_as_well(kind: ComponentType, slots: list[int]) -> Fault:
    """A core whose walks free more than they should."""

    def change(result: Any) -> Any:
        frees = {**result.device_frees, kind: [torch.tensor(slots)]}
        tracker = {**result.tracker, kind: len(slots)}
        return msgspec.structs.replace(
            result, device_frees=frees, tracker=tracker, made_progress=True, node_id=None
        )

    return returns("evict_device_next_node", change)


def leaf_without(kind: ComponentType) -> Fault:
    """A core whose evicted leaves keep what one component has there."""

    def change(result: Any) -> Any:
        frees = {one: runs for one, runs in result.device_frees.items() if one is not kind}
        tracker = {one: count for one, count in result.tracker.items() if one is not kind}
        return msgspec.structs.replace(result, device_frees=frees, tracker=tracker)

    return returns("evict_device_leaf", change)


def caps_the_tail(core: Any) -> None:
    """The cap of a path takes the state of its end."""

    def then(_: None, tail: int, device_frees: Any, *__: Any) -> None:
        device_frees[MAMBA] = [core.get_component_device_value(tail, MAMBA)]

    after(core, "evict_excess_path_states", then)


def frees_early(core: Any) -> None:
    """An early release gives up the window of a node that FULL still locks."""

    def then(result: Any, node: int, *_: Any) -> Any:
        return msgspec.structs.replace(
            result, device_frees={SWA: [core.get_component_device_value(node, FULL)]}
        )

    after(core, "dec_swa_lock_only", then)


def new_boundaries(core: Any) -> None:
    """Every lock gives the boundary of its window another id."""
    ids = count(1)
    after(core, "inc_lock_ref", lambda told, *_: _receipt(told, {SWA: next(ids)}))


WALKS: dict[ComponentType, list[AnyOp]] = {
    SWA: [WalkStart(9, "swa"), WalkNext("swa")],
    MAMBA: [WalkStart(9, "mamba"), WalkNext("mamba")],
}

BROKEN: list[tuple[str, Config, Fault, list[AnyOp], str]] = [
    (
        "a match that ends where too little of the window is left",
        WINDOW,
        answers("match_prefix", device_prefix_len=lambda result: 5),
        [SIX, CoreMatch([1, 2, 3, 4, 5])],
        "device_prefix_len of a match is 5, must be 0",
    ),
    (
        "a match that ends without a state",
        STATE,
        answers("match_prefix", device_prefix_len=lambda result: result.full_kv_hit_length),
        [FOUR, CoreMatch([1, 2])],
        "device_prefix_len of a match is 2, must be 0",
    ),
    (
        "a window that would help and is not told",
        WINDOW,
        answers("match_prefix", swa_branching_seqlen=lambda _: None),
        [SIX, CoreMatch([1, 2, 3, 4, 5])],
        "swa_branching_seqlen of a match is None, must be 5",
    ),
    (
        "a state that would help and is not told",
        STATE,
        answers("match_prefix", mamba_branching_seqlen=lambda _: None),
        [FOUR, CoreMatch([1, 2])],
        "mamba_branching_seqlen of a match is None, must be 2",
    ),
    (
        "a window that is not rebuilt",
        WINDOW,
        without(SWARebuild),
        [FOUR],
        "an insert does not ask for SWARebuild of slot 1",
    ),
    (
        "a window rebuilt from where it is gone",
        WINDOW,
        insert_actions(
            lambda actions: [
                msgspec.structs.replace(action, source_value=action.source_value - 1)
                for action in actions
            ]
        ),
        [SIX],
        "an insert asks for SWARebuild of slot 4, must ask for SWARebuild of slot 5",
    ),
    (
        "a locked segment that moves to other slots",
        WINDOW,
        insert_actions(
            lambda actions: [
                SWARebuild(action.node_id, action.incoming_full)
                if isinstance(action, RecoverSWAWithLockedFull)
                else action
                for action in actions
            ]
        ),
        [CoreInsert([1, 2], swa_evicted=2), Lock(LEAF), CoreInsert([1, 2])],
        "an insert asks for SWARebuild of slot 3, must ask for RecoverSWAWithLockedFull of slot 1",
    ),
    (
        "a cap that is not asked for",
        CAPPED,
        without(MambaEvictExcessPathStates),
        [FOUR],
        "an insert does not ask for MambaEvictExcessPathStates",
    ),
    (
        "a cap that takes the last state",
        CAPPED,
        caps_the_tail,
        [FOUR],
        "a path's cap frees states [[1]], must free []",
    ),
    (
        "a state that was there and is not told",
        STATE,
        insert_result(mamba_exist=lambda _: False),
        [FOUR, FOUR],
        "mamba_exist of an insert is False, must be True",
    ),
    (
        "a branch that was reached and is not told",
        WINDOW,
        returns("resume_insert", lambda step: _unbranched(step)),
        [CoreInsert([1, 2, 3, 4], branch=4)],
        "swa_branch_inserted of an insert is False, must be True",
    ),
    (
        "a receipt without its window",
        WINDOW,
        returns("inc_lock_ref", lambda told: _receipt(told, {})),
        [FOUR, Lock(LEAF)],
        "whether a receipt has a window of swa is False, must be True",
    ),
    (
        "a boundary that has two ids",
        WINDOW,
        new_boundaries,
        [FOUR, Lock(LEAF), Lock(LEAF)],
        "the boundary of a window is 2, must be 1",
    ),
    (
        "a boundary although the root was reached",
        WINDOW,
        returns("inc_lock_ref", lambda told: _receipt(told, {SWA: 5})),
        [CoreInsert([1]), Lock(LEAF)],
        "the boundary of a window that reaches the root is 5, must be None",
    ),
    (
        "a ledger of windows that misses a unit",
        WINDOW,
        about(SWA, "component_evictable_size", lambda size: max(size - 1, 0)),
        [FOUR],
        "size of swa is 3, must be 4",
    ),
    (
        "a ledger of states on the wrong side",
        STATE,
        lambda core: (
            about(MAMBA, "component_evictable_size", lambda size: size - 1)(core),
            about(MAMBA, "component_protected_size", lambda size: size + 1)(core),
        ),
        [FOUR],
        "protected size of mamba is 1, must be 0",
    ),
    (
        "a node with other window slots",
        WINDOW,
        about(SWA, "get_component_device_value", lambda slots: slots + 1),
        [FOUR, Ask("predicates", [LEAF])],
        "value of swa is ",
    ),
    (
        "a node without its state",
        STATE,
        about(MAMBA, "get_component_device_value", lambda _: None),
        [FOUR, Ask("predicates", [LEAF])],
        "value of mamba is None, must be [1]",
    ),
    (
        "a state that is not listed",
        STATE,
        returns("all_mamba_values_flatten", lambda states: states[:0]),
        [FOUR, Ask("flatten")],
        "the tree has states [], must have [1]",
    ),
    (
        "a span without a window that is not told",
        WINDOW,
        returns("swa_tombstone_ranges", lambda _: []),
        [SIX, WindowRanges([1, 2, 3, 4, 5, 6], 0, 6)],
        "ranges without swa is [], must be [(0, 4)]",
    ),
    (
        "a window given up under its lock",
        WINDOW,
        freed_as_well(SWA, [1, 2]),
        [FOUR, Lock(LEAF), *WALKS[SWA]],
        "swa frees slots [1, 2], whose window is locked",
    ),
    (
        "a window given up twice",
        WINDOW,
        freed_as_well(SWA, [1, 2, 3, 4]),
        [SIX, *WALKS[SWA]],
        "swa frees slots [1, 2, 3, 4], whose window is gone already",
    ),
    (
        "a window of half a node",
        WINDOW,
        freed_as_well(SWA, [6]),
        [SIX, *WALKS[SWA]],
        "a window of slots [6] is given up, which are those of no node",
    ),
    (
        "a leaf that gives up its window alone",
        WINDOW,
        freed_as_well(SWA, [5, 6]),
        [SIX, *WALKS[SWA]],
        "swa of a leaf of 6 units goes without its leaf",
    ),
    (
        "a state of nobody",
        STATE,
        freed_as_well(MAMBA, [9]),
        [FOUR, *WALKS[MAMBA]],
        "a state [9] is freed, which no prefix has",
    ),
    (
        "a state given up under its lock",
        STATE,
        freed_as_well(MAMBA, [1]),
        [FOUR, Lock(LEAF), *WALKS[MAMBA]],
        "the state of a prefix of 4 units is freed under its lock",
    ),
    (
        "a window that leaves its state behind",
        HYBRID,
        returns("evict_device_next_node", lambda result: _only(result, SWA)),
        [CoreInsert([1, 2]), FOUR, *WALKS[SWA]],
        "whether mamba goes with swa is False, must be True",
    ),
    (
        "a leaf that leaves its window behind",
        WINDOW,
        leaf_without(SWA),
        [CoreInsert([1, 2]), WalkStart(9), WalkNext(), EvictLeaf()],
        "an eviction frees a prefix of 2 units without its swa",
    ),
    (
        "a leaf that leaves its state behind",
        STATE,
        leaf_without(MAMBA),
        [FOUR, WalkStart(9), WalkNext(), EvictLeaf()],
        "an eviction frees a prefix of 4 units without its mamba",
    ),
    (
        "a window that goes early although FULL is locked",
        WINDOW,
        frees_early,
        [FOUR, Lock(LEAF), ReleaseWindow(0)],
        "whether a release gives up its window is True, must be False",
    ),
]


def _receipt(told: Any, marks: dict[ComponentType, int | None]) -> Any:
    return msgspec.structs.replace(told, component_lock_uuids=marks)


def _unbranched(step: Any) -> Any:
    if step.result is not None:
        step.result.swa_branch_inserted = False
    return step


def _only(result: Any, kind: ComponentType) -> Any:
    frees = {one: runs for one, runs in result.device_frees.items() if one is kind}
    tracker = {one: count for one, count in result.tracker.items() if one is kind}
    return msgspec.structs.replace(result, device_frees=frees, tracker=tracker)


@pytest.mark.parametrize(
    ("config", "fault", "trace", "message"),
    [case[1:] for case in BROKEN],
    ids=[case[0] for case in BROKEN],
)
def test_the_model_finds(config: Config, fault: Fault, trace: list[AnyOp], message: str) -> None:
    assert judge(sound, trace, config) == []
    told = judge(fault, trace, config)
    assert told[:1] == [one for one in told[:1] if one.startswith(message)]
    assert told


SOUND: dict[str, tuple[Config, list[AnyOp]]] = {
    "an abandoned insert that cut nothing yet": (
        WINDOW,
        [
            CoreInsert([1, 2], swa_evicted=2),
            CoreInsert([1, 2, 3, 4, 5], swa_evicted=2),
            CoreInsert([1, 2, 3], suspend=True),
            CoreEnd(),
            CoreMatch([1, 2, 3, 4, 5]),
        ],
    ),
    "rows attached inside a node": (
        WINDOW,
        [
            CoreInsert([1, 2, 3, 4, 5, 6], swa_evicted=6),
            AttachWindow([1, 2, 3, 4], range=0),
            CoreMatch([1, 2, 3, 4]),
            WindowRanges([1, 2, 3, 4, 5, 6], 0, 6),
        ],
    ),
    "a state stored by hand": (
        STATE,
        [FOUR, CoreMatch([1, 2]), StoreValue("live:1"), CoreMatch([1, 2]), CapPath(LEAF)],
    ),
    "a window lock across a split": (
        WINDOW,
        [FOUR, Lock(LEAF), CoreMatch([1, 2, 3]), ReleaseWindow(0), Unlock(0), *WALKS[SWA]],
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_core_is_not_accused_of(name: str) -> None:
    config, trace = SOUND[name]
    assert judge(sound, [*trace, CoreInsert([7, 8, 9]), CoreMatch([7, 8])], config) == []
