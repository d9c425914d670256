"""Windows and states through the front door: receipts, lists, ownership of tensors, refusals."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import pytest
import torch

from treedrift.backends.contract import (
    AuxiliaryWindow,
    CacheInitParams,
    ComponentType,
    ContractError,
    InsertParams,
    InsertResult,
    InvalidArgumentError,
    MambaEvictExcessPathStates,
    MatchPrefixParams,
    PoolHitPolicy,
    PoolName,
    RadixKey,
    RecoverEvictedSWA,
    RecoverSWAWithLockedFull,
    SWARebuild,
    TreeCore,
    UnknownNodeError,
    UnsupportedError,
)
from treedrift.backends.rust_core import RustTreeCore, inspector

FULL, SWA, MAMBA = ComponentType.FULL, ComponentType.SWA, ComponentType.MAMBA
AUXILIARY = ComponentType.AUXILIARY_SWA
WINDOWED = CacheInitParams(tree_components=(FULL, SWA), sliding_window_size=2)
HYBRID = CacheInitParams(
    tree_components=(FULL, SWA, MAMBA), sliding_window_size=2, mamba_cache_chunk_size=1
)


def key(*tokens: int) -> RadixKey:
    return RadixKey(array("q", tokens))


def publish(core: TreeCore, actions: list[Any]) -> None:
    """What a cache does about window values and the cap; a peer has its full slot's number."""
    for action in actions:
        if isinstance(action, SWARebuild):
            slots = action.source_value
            core.set_component_device_value(action.node_id, action.component_type, slots)
        elif isinstance(action, RecoverSWAWithLockedFull):
            slots = action.kept_full
            core.set_component_device_value(action.node_id, action.component_type, slots)
        elif isinstance(action, MambaEvictExcessPathStates):
            core.evict_excess_path_states(action.tail_node_id, {}, {}, [])


def insert(core: TreeCore, *tokens: int, first: int = 10, **fields: Any) -> InsertResult:
    """Insert slots from `first` on and do what is asked for."""
    fields.setdefault("mamba_value", torch.tensor([first]))
    value = torch.arange(first, first + len(tokens))
    step = core.begin_insert(InsertParams(key=key(*tokens), value=value, **fields))
    publish(core, step.actions)
    while step.result is None:
        step = core.resume_insert()
        publish(core, step.actions)
    return step.result


@pytest.fixture(params=[False, True], ids=["host", "tensors"])
def build(request: pytest.FixtureRequest) -> Callable[[CacheInitParams], RustTreeCore]:
    """Makes cores over plain numbers, and cores that keep tensors as on a GPU."""
    return lambda params: RustTreeCore(params, keeps_tensors=request.param)


Build = Callable[[CacheInitParams], RustTreeCore]


def test_receipts_name_windows_and_early_releases_keep_the_rest(build: Build) -> None:
    core = build(HYBRID)
    leaf = insert(core, 1, 2, 3, 4).last_device_node
    receipt = core.inc_lock_ref(leaf)
    assert receipt.component_lock_uuids == {SWA: 100000000000001}
    assert core.dec_swa_lock_only(leaf, receipt.to_dec_params()).device_frees == {}
    assert (core.protected_size(), core.swa_protected_size(), core.mamba_protected_size()) == (
        4,
        0,
        0,
    )
    core.dec_lock_ref(leaf, receipt.to_dec_params(), skip_swa=True)
    assert core.inc_lock_ref(leaf, (SWA,)).component_lock_uuids == {}
    assert core.inc_host_lock_ref(leaf).component_host_lock_uuids == {SWA: 100000000000002}


def test_leaves_report_every_component_and_windows_their_full_slots(build: Build) -> None:
    core = build(HYBRID)
    leaf = insert(core, 1, 2, 3, 4).last_device_node
    result = core.evict_device_leaf(leaf, False)
    freed = {kind: [one.tolist() for one in slots] for kind, slots in result.device_frees.items()}
    assert freed == {FULL: [[12, 13]], SWA: [[12, 13]], MAMBA: [[10]]}
    assert result.tracker == {FULL: 2, SWA: 2, MAMBA: 1}
    assert result.unbacked_tokens == 2
    core.evict_device_start(SWA, 1)
    assert core.evict_device_next_node(SWA, {}).node_id is not None
    core.evict_device_end(SWA)


def test_an_inner_victim_is_freed_without_a_leaf(build: Build) -> None:
    core = build(WINDOWED)
    insert(core, 1, 2, 3, 4)
    core.evict_device_start(SWA, 1)
    step = core.evict_device_next_node(SWA, {FULL: 9})
    assert (step.node_id, step.made_progress, step.tracker) == (None, True, {SWA: 2})
    assert [slots.tolist() for slots in step.device_frees[SWA]] == [[10, 11]]
    step.device_frees[SWA][0].fill_(-1)
    assert core.all_values_flatten().tolist() == [10, 11, 12, 13]
    assert not core.evict_device_next_node(SWA, step.tracker).made_progress


def test_a_state_is_kept_as_the_tensor_that_it_came_as(build: Build) -> None:
    # MAM-I6, MAM-A2, BND-29.
    core = build(HYBRID)
    state = torch.tensor([7], dtype=torch.int32)
    leaf = insert(core, 1, 2, mamba_value=state).last_device_node
    assert core.get_component_device_value(leaf, MAMBA).tolist() == [7]
    assert core.all_mamba_values_flatten().tolist() == [7]
    (freed,) = core.drop_subtree_no_host(leaf).device_frees[MAMBA]
    assert freed is state


def test_window_values_are_copied(build: Build) -> None:
    core = build(WINDOWED)
    leaf = insert(core, 1, 2, component_evicted_seqlens={SWA: 2}).last_device_node
    slots = torch.tensor([5, 6])
    core.set_component_device_value(leaf, SWA, slots)
    slots.fill_(-1)
    assert core.get_component_device_value(leaf, SWA).tolist() == [5, 6]


def test_lists_and_marks_are_on_show() -> None:
    inspect = inspector()
    if inspect is None:
        pytest.skip("the inspection build is not there")
    core = RustTreeCore(HYBRID)
    leaf = insert(core, 1, 2, 3, 4).last_device_node
    core.inc_lock_ref(leaf)
    insert(core, 1, 2, first=20)
    shown = inspect(core)
    upper = shown.nodes[1].node_id
    assert shown.lru_lists == {FULL: [], SWA: [upper, leaf], MAMBA: [upper, leaf]}
    assert shown.nodes[2].device_lock_uuid == {SWA: 100000000000001}
    assert shown.nodes[1].lock_ref == {FULL: 1, SWA: 0, MAMBA: 0}
    assert shown.nodes[2].device_value == {FULL: [12, 13], SWA: [12, 13], MAMBA: [10]}
    assert (shown.evictable, shown.protected) == (
        {FULL: 0, SWA: 2, MAMBA: 1},
        {FULL: 4, SWA: 2, MAMBA: 1},
    )
    core.evict_device_start(MAMBA, 1)
    assert inspect(core).open_walks == [MAMBA]


def test_the_cap_appends_what_it_evicts_to_the_callers_lists(build: Build) -> None:
    core = build(
        CacheInitParams(
            tree_components=(FULL, MAMBA), mamba_cache_chunk_size=1, mamba_max_states_per_path=0
        )
    )
    insert(core, 1, 2, first=20)
    leaf = insert(core, 1, 2, 3, 4).last_device_node
    frees = {FULL: [torch.tensor([1])]}
    core.set_component_device_value(
        core.match_prefix(MatchPrefixParams(key(1, 2))).last_visited_node_id,
        MAMBA,
        torch.tensor([3]),
    )
    core.evict_excess_path_states(leaf, frees, {}, [])
    assert [slots.tolist() for slots in frees[MAMBA]] == [[3]]
    assert [slots.tolist() for slots in frees[FULL]] == [[1]]


def test_offloads_name_each_pool(build: Build) -> None:
    core = build(HYBRID)
    core.enable_external_cache_linker = True
    leaf = insert(core, 1, 2, 3, 4).last_device_node
    transfers = core.build_external_linker_offload_transfers(leaf)
    assert [one.name for one in transfers] == [PoolName.KV, PoolName.SWA, PoolName.MAMBA]
    assert [len(one.keys) for one in transfers] == [2, 2, 1]
    assert [one.hit_policy for one in transfers] == [
        PoolHitPolicy.ALL_PAGES,
        PoolHitPolicy.TRAILING_PAGES,
        PoolHitPolicy.TRAILING_PAGES,
    ]


def test_canary_rows_follow_the_window(build: Build) -> None:
    core = build(WINDOWED)
    leaf = insert(core, 1, 2, 3, component_evicted_seqlens={SWA: 1}).last_device_node
    core.inc_full_pin(leaf)
    for unlocked, resident, slots in [
        (False, False, [10, 11, 12]),
        (True, False, []),
        (False, True, [11, 12]),
        (True, True, [11, 12]),
    ]:
        assert core.walk_for_kv_canary(unlocked, resident).slot_indices.tolist() == slots


def test_a_second_window_has_its_own_figures(build: Build) -> None:
    core = build(
        CacheInitParams(
            tree_components=(FULL, SWA, AUXILIARY),
            sliding_window_size=4,
            component_registry_override={AUXILIARY: AuxiliaryWindow(2)},
        )
    )
    lengths = {AUXILIARY: 4}
    leaf = insert(core, 1, 2, 3, 4, component_evicted_seqlens=lengths).last_device_node
    assert core.component_evictable_size(AUXILIARY) == 0
    assert core.swa_tombstone_ranges(key(1, 2, 3, 4), 0, 4, AUXILIARY) == [(0, 4)]
    assert core.attach_swa_window(key(1, 2, 3, 4), 2, 4, torch.tensor([7, 8]), AUXILIARY) == []
    assert core.component_evictable_size(AUXILIARY) == 2
    receipt = core.inc_lock_ref(leaf)
    assert receipt.component_lock_uuids == {SWA: 100000000000001, AUXILIARY: 500000000000001}
    core.dec_window_lock_only(leaf, AUXILIARY, receipt.to_dec_params())
    assert core.component_protected_size(AUXILIARY) == 0
    step = core.begin_insert(InsertParams(key=key(1, 2), value=torch.arange(20, 22)))
    assert isinstance(step.actions[0], RecoverEvictedSWA)
    assert (step.actions[0].kept_full.tolist(), step.actions[0].incoming_full.tolist()) == (
        [10, 11],
        [20, 21],
    )
    core.end_insert()


@pytest.mark.parametrize(
    "state",
    [
        None,
        torch.tensor(7),
        torch.tensor([7, 8]),
        torch.tensor([7.0]),
        torch.tensor([True]),
        torch.empty(1, dtype=torch.int64, device="meta"),
    ],
)
def test_an_insert_needs_one_state(build: Build, state: Any) -> None:
    core = build(HYBRID)
    with pytest.raises(InvalidArgumentError, match="state"):
        insert(core, 1, 2, mamba_value=state)
    assert not core.has_ongoing_insert()
    assert insert(core, mamba_value=state).mamba_exist
    with pytest.raises(TypeError):
        insert(core, 1, 2, mamba_value=[7])


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (
            lambda core, node, root: core.set_component_device_value(node, FULL, two()),
            ContractError,
        ),
        (lambda core, node, root: core.set_component_device_value(root, SWA, two()), ContractError),
        (lambda core, node, root: core.set_component_device_value(node, SWA, two()), ContractError),
        (
            lambda core, node, root: core.set_component_device_value(99, SWA, two()),
            UnknownNodeError,
        ),
        (
            lambda core, node, root: core.set_component_device_value(node, SWA, two().float()),
            InvalidArgumentError,
        ),
        (lambda core, node, root: core.set_component_device_value(node, SWA, [1, 2]), TypeError),
        (lambda core, node, root: core.finish_swa_state_eviction(node), ContractError),
        (lambda core, node, root: core.finish_mamba_state_eviction(99), UnknownNodeError),
        (lambda core, node, root: core.evict_excess_path_states(node, {}, {}, []), ContractError),
        (lambda core, node, root: core.swa_tombstone_ranges(key(1), 0, 2), ContractError),
        (lambda core, node, root: core.swa_tombstone_ranges(key(1), 1, 0), ContractError),
        (lambda core, node, root: core.swa_tombstone_ranges(key(1), -1, 1), OverflowError),
        (lambda core, node, root: core.swa_tombstone_ranges(key(1), 0, 1, FULL), ContractError),
        (lambda core, node, root: core.attach_swa_window(key(1, 2), 0, 2, two()), ContractError),
        (lambda core, node, root: core.attach_swa_window(key(1), 0, 1, two()), ContractError),
        (
            lambda core, node, root: core.attach_swa_window(key(1), 0, 2, two().float()),
            ContractError,
        ),
        (lambda core, node, root: core.evict_device_next_node(SWA, {}), ContractError),
    ],
)
def test_misuse_is_refused_by_type_and_changes_nothing(
    build: Build, call: Callable[..., Any], error: type[Exception]
) -> None:
    core = build(WINDOWED)
    node = insert(core, 1, 2).last_device_node
    with pytest.raises(error):
        call(core, node, core.root_node_handle())
    assert core.total_size() == (2, 2)
    core.sanity_check([], [])


def two() -> torch.Tensor:
    return torch.tensor([1, 2])


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"tree_components": (FULL, SWA)}, InvalidArgumentError),
        ({"tree_components": (FULL, SWA), "sliding_window_size": 0}, InvalidArgumentError),
        ({"tree_components": (FULL, SWA), "sliding_window_size": 1.5}, TypeError),
        ({"tree_components": (FULL, SWA), "sliding_window_size": 2**64}, OverflowError),
        ({"tree_components": (FULL, MAMBA)}, InvalidArgumentError),
        ({"tree_components": (FULL, MAMBA), "mamba_cache_chunk_size": "1"}, TypeError),
        ({"tree_components": (FULL, SWA, AUXILIARY), "sliding_window_size": 2}, UnsupportedError),
        ({"component_registry_override": {AUXILIARY: AuxiliaryWindow(2)}}, UnsupportedError),
    ],
)
def test_bad_figures_are_refused(fields: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        RustTreeCore(CacheInitParams(**fields))


def test_a_tree_with_states_holds_single_tokens() -> None:
    assert not RustTreeCore(
        CacheInitParams(tree_components=(FULL, MAMBA), mamba_cache_chunk_size=1, is_eagle=True)
    ).is_eagle


def test_a_host_pool_stays_once_it_is_there() -> None:
    core = RustTreeCore(WINDOWED)
    core.has_swa_host_pool = True
    with pytest.raises(ContractError):
        core.has_swa_host_pool = False
    assert core.has_swa_host_pool
    core.set_host_memory_buffer_only()
    root = core.root_node_handle()
    assert core.buffer_backup_pool_keys(root, []) == {SWA: {PoolName.SWA: []}}
