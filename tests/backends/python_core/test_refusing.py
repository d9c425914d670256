"""Out-of-contract calls: the typed error, and a core as it was (BND-21 to BND-32)."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.backends.python_core.conftest import FULL, Driver, NewTree, key
from treedrift.backends.contract import (
    CacheInitParams,
    CacheTransferPhase,
    ComponentType,
    ContractError,
    DecLockRefParams,
    InsertParams,
    InvalidArgumentError,
    PoolName,
    PoolTransfer,
    RadixKey,
    TreeCore,
    UnknownNodeError,
    UnsupportedError,
)

SWA, MAMBA = ComponentType.SWA, ComponentType.MAMBA
SLOTS = torch.arange(4)

BY_HANDLE: dict[str, Callable[[TreeCore, Any], object]] = {
    "inc_lock_ref": lambda core, node: core.inc_lock_ref(node),
    "dec_lock_ref": lambda core, node: core.dec_lock_ref(node, DecLockRefParams()),
    "dec_swa_lock_only": lambda core, node: core.dec_swa_lock_only(node, DecLockRefParams()),
    "dec_window_lock_only": lambda core, node: core.dec_window_lock_only(
        node, SWA, DecLockRefParams()
    ),
    "inc_host_lock_ref": lambda core, node: core.inc_host_lock_ref(node),
    "dec_host_lock_ref": lambda core, node: core.dec_host_lock_ref(node, DecLockRefParams()),
    "inc_full_pin": lambda core, node: core.inc_full_pin(node),
    "dec_full_pin": lambda core, node: core.dec_full_pin(node),
    "evict_device_leaf": lambda core, node: core.evict_device_leaf(node, True),
    "finish_mamba_state_eviction": lambda core, node: core.finish_mamba_state_eviction(node),
    "finish_swa_state_eviction": lambda core, node: core.finish_swa_state_eviction(node),
    "evict_excess_path_states": lambda core, node: core.evict_excess_path_states(node, {}, {}, []),
    "demote": lambda core, node: core.demote(node),
    "drop_subtree_no_host": lambda core, node: core.drop_subtree_no_host(node),
    "adjust_component_size": lambda core, node: core.adjust_component_size(node, SWA, 0),
    "is_root": lambda core, node: core.is_root(node),
    "is_backuped": lambda core, node: core.is_backuped(node),
    "is_full_device_evicted": lambda core, node: core.is_full_device_evicted(node),
    "get_component_device_value": lambda core, node: core.get_component_device_value(node, SWA),
    "set_component_device_value": lambda core, node: core.set_component_device_value(
        node, SWA, SLOTS
    ),
    "component_has_host_value_only": lambda core, node: core.component_has_host_value_only(
        node, SWA
    ),
    "collect_full_device_indices": lambda core, node: core.collect_full_device_indices(
        core.root_node_handle(), node
    ),
    "collect_path_info": lambda core, node: core.collect_path_info([0, node]),
    "dfs_weight_order": lambda core, node: core.dfs_weight_order([0, node]),
    "get_last_hash_value": lambda core, node: core.get_last_hash_value(node),
    "get_hash_values": lambda core, node: core.get_hash_values(node),
    "get_prefix_hash_values": lambda core, node: core.get_prefix_hash_values(node),
    "buffer_backup_pool_keys": lambda core, node: core.buffer_backup_pool_keys(node, []),
    "rotation_base_of": lambda core, node: core.rotation_base_of(node),
    "rotation_phase_of": lambda core, node: core.rotation_phase_of(node),
    "build_backup_kv_action": lambda core, node: core.build_backup_kv_action(node),
    "build_backup_spec": lambda core, node: core.build_backup_spec(node),
    "commit_backup": lambda core, node: core.commit_backup(node, SLOTS, {}),
    "mark_write_through_pending": lambda core, node: core.mark_write_through_pending([node], 0),
    "finish_write_through": lambda core, node: core.finish_write_through([node], 0),
    "build_load_back_spec": lambda core, node: core.build_load_back_spec(node),
    "commit_load_back": lambda core, node: core.commit_load_back(
        node, SLOTS, PoolTransfer(PoolName.KV), {}
    ),
    "finish_load_back": lambda core, node: core.finish_load_back(node),
    "build_hicache_transfers": lambda core, node: core.build_hicache_transfers(
        FULL, node, CacheTransferPhase.PREFETCH
    ),
    "commit_hicache_transfers": lambda core, node: core.commit_hicache_transfers(
        node, CacheTransferPhase.PREFETCH, {}, cache_actions=[]
    ),
    "build_storage_backup_spec": lambda core, node: core.build_storage_backup_spec(node, False),
    "prefetch_anchor_info": lambda core, node: core.prefetch_anchor_info(node),
    "insert_host": lambda core, node: core.insert_host(node, key([1]), SLOTS, []),
    "build_external_linker_offload_transfers": (
        lambda core, node: core.build_external_linker_offload_transfers(node)
    ),
    "mark_external_linker_offload_pending": (
        lambda core, node: core.mark_external_linker_offload_pending(node)
    ),
    "finish_external_linker_offload": lambda core, node: core.finish_external_linker_offload(
        [0, node], 0, True
    ),
    "mark_external_cache_stored_path": lambda core, node: core.mark_external_cache_stored_path(
        0, node
    ),
}
"""A call of every method that takes a handle, wrong in other ways too where it can be."""

HOST_TIER = [
    "build_backup_spec",
    "commit_backup",
    "mark_write_through_pending",
    "finish_write_through",
    "build_load_back_spec",
    "commit_load_back",
    "finish_load_back",
    "build_hicache_transfers",
    "commit_hicache_transfers",
    "insert_host",
]


def assert_refused(
    tree: Driver, call: Callable[[TreeCore], object], error: type[Exception]
) -> BaseException:
    """Check that a call raises and changes nothing; the error."""
    before = tree.snapshot()
    with pytest.raises(error) as caught:
        call(tree.core)
    assert tree.snapshot() == before
    return caught.value


@pytest.fixture
def busy(new_tree: NewTree) -> Driver:
    """A tree with a lock, a walk and a suspended insert. Node 1 is locked, nodes 2 and 3 live."""
    tree = new_tree(enable_kv_cache_events=True)
    tree.core.enable_external_cache_linker = True
    tree.core.write_through_threshold = 1
    tree.insert([1, 2], 10)
    tree.insert([1, 3], 20)
    tree.lock(1)
    tree.core.evict_device_start(FULL, 9)
    assert tree.begin([1, 2, 4], 30)[1] is None
    return tree


@pytest.mark.parametrize("name", BY_HANDLE)
def test_a_handle_that_is_not_live_is_named(busy: Driver, name: str) -> None:
    stale = 10**6
    error = assert_refused(busy, lambda core: BY_HANDLE[name](core, stale), UnknownNodeError)
    assert error.args == (stale,)


@pytest.mark.parametrize("name", BY_HANDLE)
@pytest.mark.parametrize(
    ("handle", "error"),
    [(True, TypeError), (None, TypeError), ("1", TypeError), (-1, OverflowError)],
)
def test_a_handle_of_another_kind_is_no_handle(
    busy: Driver, name: str, handle: Any, error: type[Exception]
) -> None:
    assert_refused(busy, lambda core: BY_HANDLE[name](core, handle), error)


@pytest.mark.parametrize("name", HOST_TIER)
def test_there_is_no_host_tier(busy: Driver, name: str) -> None:
    assert_refused(busy, lambda core: BY_HANDLE[name](core, 1), UnsupportedError)


def test_what_is_not_there_can_not_be_switched_on(busy: Driver) -> None:
    assert_refused(busy, lambda core: core.set_hicache_enabled(), UnsupportedError)
    assert_refused(busy, lambda core: core.node_by_id(1), UnsupportedError)
    assert_refused(busy, lambda core: setattr(core, "has_swa_host_pool", True), UnsupportedError)
    busy.core.has_swa_host_pool = False


@pytest.mark.parametrize("component", [SWA, MAMBA, ComponentType.C128])
def test_a_component_that_the_core_lacks_is_out_of_protocol(
    busy: Driver, component: ComponentType
) -> None:
    calls: list[Callable[[TreeCore], object]] = [
        lambda core: core.evict_device_start(component, 1),
        lambda core: core.evict_device_next_node(component, {}),
        lambda core: core.evict_device_end(component),
        lambda core: core.get_component_device_value(1, component),
        lambda core: core.set_component_device_value(1, component, SLOTS),
        lambda core: core.component_has_host_value_only(1, component),
        lambda core: core.swa_tombstone_ranges(key([1]), 0, 1, component),
        lambda core: core.attach_swa_window(key([1]), 0, 1, SLOTS, component),
        lambda core: core.finish_swa_state_eviction(1),
        lambda core: core.finish_mamba_state_eviction(1),
        lambda core: core.evict_excess_path_states(1, {}, {}, []),
    ]
    for call in calls:
        assert_refused(busy, call, ContractError)
    assert busy.core.drive_host_eviction(component, 5).tracker == {}


def test_full_can_not_be_set_from_outside(busy: Driver) -> None:
    assert_refused(
        busy, lambda core: core.set_component_device_value(1, FULL, SLOTS), ContractError
    )


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda core: core.evict_device_start(FULL, -1), OverflowError),
        (lambda core: core.evict_device_start(FULL, 1.0), TypeError),
        (lambda core: core.evict_device_next_node(FULL, {FULL: -1}), OverflowError),
        (lambda core: core.evict_device_next_node(FULL, None), TypeError),
        (lambda core: core.drive_host_eviction(FULL, -1), OverflowError),
        (lambda core: core.drive_host_eviction(9, 1), InvalidArgumentError),
        (lambda core: core.drive_host_eviction(256, 1), OverflowError),
        (lambda core: core.component_evictable_size("FULL"), TypeError),
        (lambda core: core.inc_lock_ref(1, (9,)), InvalidArgumentError),
        (lambda core: core.evict_device_leaf(2, 0), TypeError),
        (lambda core: core.evict_device_leaf(2, True), ContractError),
        (lambda core: core.dec_lock_ref(1, DecLockRefParams(node_id=1), 1), TypeError),
        (lambda core: core.adjust_component_size(1, FULL, 2**63), OverflowError),
        (lambda core: core.set_component_device_value(1, FULL, [1]), TypeError),
        (lambda core: core.walk_for_kv_canary(0, False), TypeError),
        (lambda core: core.root_node_handle(7), TypeError),
        (lambda core: core.snapshot_buffer_backup(1, 1), TypeError),
        (lambda core: core.validate_buffer_backup(1, -1), OverflowError),
        (lambda core: core.finish_external_linker_offload([1], 1, 1), TypeError),
        (lambda core: core.sanity_check([(1, True)], []), TypeError),
    ],
)
def test_arguments_are_converted_before_anything_is_looked_up(
    busy: Driver, call: Callable[[TreeCore], object], error: type[Exception]
) -> None:
    assert_refused(busy, call, error)


@pytest.mark.parametrize(
    ("switch", "value", "error"),
    [
        ("enable_storage", 1, TypeError),
        ("enable_external_cache_linker", None, TypeError),
        ("is_write_back", 0, TypeError),
        ("has_swa_host_pool", 1, TypeError),
        ("write_through_threshold", 2**63, OverflowError),
        ("write_through_threshold", 1.5, TypeError),
        ("page_size", 2, AttributeError),
        ("is_eagle", True, AttributeError),
        ("enable_hicache", True, AttributeError),
        ("is_host_memory_buffer_only", True, AttributeError),
        ("supports_rotation_base", False, AttributeError),
    ],
)
def test_a_rejected_setting_keeps_its_value(
    busy: Driver, switch: str, value: Any, error: type[Exception]
) -> None:
    before = getattr(busy.core, switch)
    assert_refused(busy, lambda core: setattr(core, switch, value), error)
    assert getattr(busy.core, switch) == before


def foreign_key(**attributes: Any) -> RadixKey:
    """A key with attributes that its class does not allow."""
    made = key([1, 2])
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"key": foreign_key(token_ids=[1, 2])}, ContractError),
        ({"key": foreign_key(token_ids=array("i", [1, 2]))}, ContractError),
        ({"key": foreign_key(limit=-1)}, InvalidArgumentError),
        ({"key": foreign_key(limit="1")}, TypeError),
        ({"key": foreign_key(extra_key=1)}, TypeError),
        ({"key": foreign_key(cache_salt="\ud800")}, UnicodeEncodeError),
        ({"value": [1, 2]}, TypeError),
        ({"value": torch.tensor([1, 2], dtype=torch.int32)}, InvalidArgumentError),
        ({"value": torch.tensor([[1, 2], [3, 4]])}, InvalidArgumentError),
        ({"value": torch.tensor([1])}, InvalidArgumentError),
        ({"value": torch.empty(2, dtype=torch.int64, device="meta")}, InvalidArgumentError),
        ({"prev_prefix_len": -1}, OverflowError),
        ({"inserted_len": 2**64}, OverflowError),
        ({"inserted_len": 0.5}, TypeError),
        ({"component_evicted_seqlens": {SWA: -1}}, OverflowError),
        ({"component_evicted_seqlens": None}, TypeError),
        ({"priority": 2**63}, OverflowError),
        ({"rotation_base": "1"}, TypeError),
        ({"session_id": 5}, TypeError),
        ({"track_adopted_ranges": 1}, TypeError),
    ],
)
def test_a_bad_insert_is_refused_whole(
    new_tree: NewTree, params: dict[str, Any], error: type[Exception]
) -> None:
    tree = new_tree()
    tree.insert([1])
    arguments = InsertParams(**{"key": key([1, 2]), "value": torch.arange(2), **params})
    assert_refused(tree, lambda core: core.begin_insert(arguments), error)


def test_booleans_and_index_objects_count_as_integers(new_tree: NewTree) -> None:
    tree = new_tree()
    tree.insert([1, 2], prev_prefix_len=True, inserted_len=torch.tensor(1), priority=None)
    assert tree.snapshot().nodes[1].hit_count == 1


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"page_size": 0}, InvalidArgumentError),
        ({"page_size": -1}, InvalidArgumentError),
        ({"page_size": 2**64}, OverflowError),
        ({"page_size": True}, TypeError),
        ({"page_size": 1.0}, TypeError),
        ({"is_eagle": 1}, TypeError),
        ({"enable_kv_cache_events": 1}, TypeError),
        ({"dynamo_kv_event_format": None}, TypeError),
        ({"tree_components": (FULL, SWA)}, InvalidArgumentError),
        ({"tree_components": (FULL, ComponentType.C128)}, UnsupportedError),
        ({"tree_components": ()}, UnsupportedError),
        ({"enable_session_radix_cache": True}, UnsupportedError),
        ({"component_registry_override": {FULL: object}}, UnsupportedError),
    ],
)
def test_a_core_that_can_not_be_built_says_why(
    new_tree: NewTree, params: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        new_tree(**params)


class Allocator:
    """Something with a device."""

    def __init__(self, device: str) -> None:
        self.device = device


@pytest.mark.parametrize("device", ["meta", "cpu:0", "nowhere"])
def test_a_tree_lives_on_the_cpu_or_on_cuda(new_tree: NewTree, device: str) -> None:
    with pytest.raises(InvalidArgumentError):
        new_tree(token_to_kv_pool_allocator=Allocator(device))
    assert new_tree(token_to_kv_pool_allocator=Allocator("cpu")).core.device.type == "cpu"


def test_results_are_copies_of_the_cores_own_lists(new_tree: NewTree) -> None:
    tree = new_tree()
    tree.core.enable_storage = True
    leaf = tree.leaf([1, 2])
    before = tree.snapshot()
    tree.core.get_hash_values(leaf).clear()
    tree.core.empty_match_result.cache_actions.append(None)  # type: ignore[arg-type]
    snapshot = tree.core.snapshot_buffer_backup(leaf, True)
    assert snapshot is not None
    snapshot.hash_values.clear()
    snapshot.key.token_ids[0] = 9
    assert tree.snapshot() == before
    assert tree.core.empty_match_result.cache_actions == []


def test_defaults_are_those_of_a_fresh_core(new_tree: NewTree) -> None:
    core = new_tree().core
    assert isinstance(core, TreeCore)
    assert core.supports_rotation_base
    assert not core.supports_fast_match_prefix()
    assert core.is_write_through_compatible()
    assert (core.page_size, core.write_through_threshold) == (1, 256)
    assert (core.enable_hicache, core.enable_storage, core.is_write_back) == (False,) * 3
    assert CacheInitParams().tree_components == (FULL,)
