"""What a worker runs inside the environment of a released SGLang: every method of the contract.

Each scenario drives a fresh core and asserts what the contract says; of a release that lacks
something (it says so in `missing`) it asks less. `make_handlers` answers `run` with the scenarios
that failed and the methods that none of them called.
"""

from __future__ import annotations

import json
import traceback
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from treedrift.backends.contract import (
    AllBlocksCleared,
    AuxiliaryWindow,
    BackupKV,
    BlockRemoved,
    BlockStored,
    CacheInitParams,
    CacheTransferPhase,
    ComponentType,
    ContractError,
    CorePoisonedError,
    FreeDeviceKV,
    Frees,
    InsertParams,
    InsertProtocolError,
    InvalidArgumentError,
    MambaEvictExcessPathStates,
    MatchPrefixParams,
    PoolName,
    RadixKey,
    StorageMedium,
    TreeCore,
    UnknownNodeError,
    UnsupportedError,
    UpdatePendingBackupOnNodeSplit,
)
from treedrift.backends.sglang.adapter import SglangCore

FULL = ComponentType.FULL
SWA = ComponentType.SWA
MAMBA = ComponentType.MAMBA
KINDS_OF_UNKNOWN = (UnknownNodeError, CorePoisonedError)
KINDS_OF_REFUSAL = (ContractError, CorePoisonedError)
CALLED: dict[str, set[str]] = {"python": set(), "rust": set()}


class Watched:
    """A core that notes which of its methods were called."""

    def __init__(self, core: SglangCore) -> None:
        self.__dict__.update(core=core, called=CALLED[core.flavour])

    def __getattr__(self, name: str) -> Any:
        self.called.add(name)
        return getattr(self.core, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.core, name, value)


def key(*tokens: int, **more: Any) -> RadixKey:
    return RadixKey(array("q", tokens), **more)


def insert(core: Any, tokens: list[int], slots: list[int], **more: Any) -> Any:
    step = core.begin_insert(InsertParams(key=key(*tokens), value=torch.tensor(slots), **more))
    actions = list(step.actions)
    while step.result is None:
        step = core.resume_insert()
        actions += step.actions
    actions += core.end_insert()
    return step.result, actions


def match(core: Any, *tokens: int) -> Any:
    return core.match_prefix(MatchPrefixParams(key(*tokens)))


def raises(
    kind: type[Exception] | tuple[type[Exception], ...], call: Callable[[], Any]
) -> Exception:
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind}")


def inserts_match_and_split(build: Callable[..., Any]) -> None:
    core = build()
    empty = core.empty_match_result
    root = core.root_node_handle()
    assert empty.device_prefix_len == 0
    assert empty.last_device_node == root == core.root_node_handle("name")
    first, actions = insert(core, [1, 2, 3], [11, 12, 13], track_adopted_ranges=True)
    assert (first.prefix_len, first.adopted_ranges, actions) == (0, {FULL: [(0, 3)]}, [])
    second, actions = insert(core, [1, 2, 4], [21, 22, 23])
    assert second.prefix_len == 2
    assert [type(action) for action in actions] == [FreeDeviceKV]
    assert [part.tolist() for part in actions[0].indices] == [[21, 22]]
    found = match(core, 1, 2, 3, 9)
    assert (found.device_prefix_len, found.last_device_node) == (3, first.last_device_node)
    assert found.cache_actions == []
    matched, node, end = core.match_full_device_prefix(key(1, 2, 4, 5))
    assert (matched, node, end) == (3, second.last_device_node, 3)
    assert core.has_ongoing_insert() is False
    assert core.supports_fast_match_prefix() is False
    core.reset()
    raises(UnknownNodeError, lambda: core.is_root(root))
    assert core.is_root(core.root_node_handle()) is True


def a_callers_key_is_left_alone(build: Callable[..., Any]) -> None:
    core = build(is_eagle=True)
    mine = key(1, 2, 3)
    core.begin_insert(InsertParams(key=mine, value=torch.tensor([1, 2])))
    core.end_insert()
    assert mine.is_bigram is False
    mine.token_ids[0] = 9
    assert match(core, 1, 2, 3).device_prefix_len == 2


def queries_tell_values_paths_and_order(build: Callable[..., Any]) -> None:
    core = build()
    left = insert(core, [1, 2, 3], [11, 12, 13])[0].last_device_node
    right = insert(core, [1, 2, 4], [21, 22, 23])[0].last_device_node
    root = core.root_node_handle()
    (path,) = core.collect_path_info([left])
    assert [(node.path_start, node.path_end) for node in path] == [(0, 2), (2, 3)]
    assert core.collect_full_device_indices(left, root).tolist() == [11, 12, 13]
    assert core.get_component_device_value(root, FULL) is None
    value = core.get_component_device_value(left, FULL)
    value[0] = 99
    assert core.get_component_device_value(left, FULL).tolist() == [13]
    if core.core.flavour == "python":
        raises(ContractError, lambda: core.set_component_device_value(left, FULL, value))
    assert sorted(core.all_values_flatten().tolist()) == [11, 12, 13, 23]
    assert core.all_mamba_values_flatten().tolist() == []
    assert sorted(core.dfs_weight_order([left, right])) == [0, 1]
    rows = core.walk_for_kv_canary(False, False)
    assert sorted(rows.slot_indices.tolist()) == [11, 12, 13, 23]
    assert core.total_size() == (4, 0)
    assert core.component_has_host_value_only(left, FULL) is False
    assert core.is_backuped(left) is False
    assert core.is_full_device_evicted(left) is False
    assert core.is_write_through_compatible() is True
    assert core.rotation_base_of(left) is None
    assert core.rotation_phase_of(left) is None
    assert core.prefetch_anchor_info(left) == (None, None)
    core.sanity_check([], [])
    core.pretty_print()
    if core.core.flavour == "rust":
        raises(UnsupportedError, lambda: core.node_by_id(left))
    else:
        assert core.node_by_id(left) is not None


def sizes_follow_locks(build: Callable[..., Any]) -> None:
    core = build()
    node = insert(core, [1, 2, 3], [11, 12, 13])[0].last_device_node
    receipt = core.inc_lock_ref(node)
    assert receipt.delta == 3
    assert receipt.node_id == node or "IncLockRefResult.node_id" in core.missing
    assert (core.evictable_size(), core.protected_size()) == (0, 3)
    assert (core.full_evictable_size(), core.full_protected_size()) == (0, 3)
    assert core.component_protected_size(FULL) == 3
    assert core.dec_swa_lock_only(node, receipt.to_dec_params()).device_frees == {}
    assert core.dec_lock_ref(node, receipt.to_dec_params(), skip_swa=True).delta is None
    core.inc_full_pin(node)
    core.dec_full_pin(node)
    assert core.component_evictable_size(FULL) == 3
    core.adjust_component_size(node, FULL, 2)
    assert core.evictable_size() == 5
    core.adjust_component_size(node, FULL, -2)
    raises(InvalidArgumentError, lambda: core.adjust_component_size(node, ComponentType.SWA, 1))
    for name in ("swa", "mamba"):
        assert getattr(core, f"{name}_evictable_size")() == 0
        assert getattr(core, f"{name}_protected_size")() == 0
    skipped = core.inc_lock_ref(node, (FULL,))
    assert (skipped.delta, skipped.skipped_lock_components) == (None, (FULL,))
    core.dec_lock_ref(node, skipped.to_dec_params())


def eviction_frees_and_leaves_nothing_to_drain(build: Callable[..., Any]) -> None:
    core = build()
    insert(core, [1, 2, 3], [11, 12, 13])
    insert(core, [5, 6], [21, 22])
    core.evict_device_start(FULL, 3)
    step = core.evict_device_next_node(FULL, {FULL: 0})
    assert step.made_progress is True
    leaf = core.evict_device_leaf(step.node_id, False)
    assert [part.tolist() for part in leaf.device_frees[FULL]] == [[11, 12, 13]]
    assert (leaf.tracker, leaf.host_frees, leaf.backup_kv) == ({FULL: 3}, {}, None)
    step = core.evict_device_next_node(FULL, {FULL: 3})
    assert (step.node_id, step.made_progress) == (None, False)
    core.evict_device_end(FULL)
    node = match(core, 5, 6).last_device_node
    dropped = core.drop_subtree_no_host(node)
    assert dropped.is_dropped is True
    assert [part.tolist() for part in dropped.device_frees[FULL]] == [[21, 22]]
    assert core.drive_host_eviction(FULL, 1).host_frees == {}


def events_arrive_in_the_contracts_types(build: Callable[..., Any]) -> None:
    core = build(enable_kv_cache_events=True)
    assert core.kv_events.enabled is True
    node = insert(core, [1, 2], [11, 12], session_id="s")[0].last_device_node
    core.drop_subtree_no_host(node)
    core.kv_events.record_all_cleared()
    stored, removed, cleared = core.take_events()
    assert isinstance(stored, BlockStored)
    assert (stored.token_ids, stored.medium) == ([1, 2], StorageMedium.GPU)
    assert stored.session_id == "s" or "BlockStored.session_id" in core.missing
    assert removed == BlockRemoved(list(reversed(stored.block_hashes)), StorageMedium.GPU) or (
        removed == BlockRemoved(stored.block_hashes, StorageMedium.GPU)
    )
    assert isinstance(cleared, AllBlocksCleared)
    assert core.kv_events.take() == []


def hashes_are_handed_out_as_copies(build: Callable[..., Any]) -> None:
    core = build()
    core.enable_storage = True
    node = insert(core, [1, 2], [11, 12])[0].last_device_node
    hashes = core.get_hash_values(node)
    assert core.get_last_hash_value(node) == hashes[-1]
    hashes.append("mine")
    assert len(core.get_hash_values(node)) == 2
    assert core.get_prefix_hash_values(node) == []
    assert core.backfill_missing_hash_values() == 0
    snapshot = core.snapshot_buffer_backup(node, True)
    assert (snapshot.key.token_ids.tolist(), snapshot.parent_is_root) == ([1, 2], True)
    assert core.validate_buffer_backup(node, 2).parent_is_root is True
    assert core.validate_buffer_backup(node, 3) is None
    assert core.buffer_backup_pool_keys(node, []) == {}
    core.set_host_memory_buffer_only()
    assert core.is_host_memory_buffer_only is True
    actions = match(core, 1).cache_actions
    if "contract.UpdatePendingBackupOnNodeSplit" in core.missing:
        return
    (action,) = actions
    assert isinstance(action, UpdatePendingBackupOnNodeSplit)
    assert (action.ack_id, action.old_node_id, action.component_type) == (None, node, FULL)


def the_host_tier_round_trip_works(build: Callable[..., Any]) -> None:
    core = build()
    core.set_hicache_enabled()
    assert core.enable_hicache is True
    core.enable_storage = True
    node = insert(core, [1, 2, 3], [11, 12, 13])[0].last_device_node
    root = core.root_node_handle()
    try:
        assert core.build_backup_kv_action(node) == BackupKV([node])
    except UnsupportedError:
        # The compiled core of older releases refuses this one by itself.
        assert core.missing
    value, transfers = core.build_backup_spec(node)
    assert (value.tolist(), transfers) == ([11, 12, 13], {})
    assert core.build_hicache_transfers(FULL, node, CacheTransferPhase.BACKUP_HOST) is None
    core.commit_backup(node, torch.tensor([50, 51, 52]), {})
    core.commit_hicache_transfers(node, CacheTransferPhase.BACKUP_HOST, {}, cache_actions=[])
    assert core.mark_write_through_pending([node], node) == [node]
    core.finish_write_through([node], node)
    assert core.is_backuped(node) is True
    spec = core.build_storage_backup_spec(node, True)
    assert (spec.host_value.tolist(), spec.token_ids.tolist()) == ([50, 51, 52], [1, 2, 3])
    demoted = core.demote(node)
    assert [part.tolist() for part in demoted.device_frees[FULL]] == [[11, 12, 13]]
    kv, transfers = core.build_load_back_spec(node)
    assert (kv.name, kv.host_indices.tolist(), kv.nodes_to_load) == (
        PoolName.KV, [50, 51, 52], [node],
    )  # fmt: skip
    pin = core.inc_host_lock_ref(node)
    assert core.commit_load_back(node, torch.tensor([31, 32, 33]), kv, transfers) == []
    core.finish_load_back(node)
    core.dec_host_lock_ref(node, pin.to_dec_params())
    assert core.get_component_device_value(node, FULL).tolist() == [31, 32, 33]
    hashes = [digit * 64 for digit in "ab"]
    hung = core.insert_host(root, key(7, 8), torch.tensor([60, 61]), hashes)
    assert (hung.total_len, hung.host_insert_dropped) == (2, False)
    assert match(core, 7, 8).host_hit_length == 2


def the_linker_offloads_a_node(build: Callable[..., Any]) -> None:
    core = build()
    try:
        core.enable_external_cache_linker = True
    except InvalidArgumentError:
        # The compiled core of the oldest release has no linker.
        assert core.missing
        return
    node = insert(core, [1, 2], [11, 12])[0].last_device_node
    (transfer,) = core.build_external_linker_offload_transfers(node)
    assert (transfer.name, transfer.device_indices.tolist()) == (PoolName.KV, [11, 12])
    core.mark_external_linker_offload_pending(node)
    raises(ContractError, lambda: core.mark_external_linker_offload_pending(node))
    core.finish_external_linker_offload([node], node, True)
    assert core.build_external_linker_offload_transfers(node) is None
    core.mark_external_cache_stored_path(node, core.root_node_handle())


def a_barrier_suspends_an_insert(build: Callable[..., Any]) -> None:
    core = build()
    core.set_hicache_enabled()
    core.write_through_threshold = 1
    insert(core, [1, 2, 3], [11, 12, 13])
    step = core.begin_insert(InsertParams(key=key(1, 2, 3, 4), value=torch.arange(20, 24)))
    assert step.result is None
    assert core.has_ongoing_insert() is True
    raises(
        InsertProtocolError,
        lambda: core.begin_insert(InsertParams(key=key(5), value=torch.tensor([1]))),
    )
    step = core.resume_insert()
    assert step.result.prefix_len == 3
    assert core.end_insert() == []
    raises(InsertProtocolError, core.resume_insert)


def settings_are_forwarded(build: Callable[..., Any]) -> None:
    core = build(page_size=2)
    assert (core.page_size, core.is_eagle, core.device) == (2, False, torch.device("cpu"))
    assert core.write_through_threshold == 256
    core.write_through_threshold = 3
    core.is_write_back = True
    core.has_swa_host_pool = True
    assert (core.write_through_threshold, core.is_write_back) == (3, True)
    assert core.has_swa_host_pool is True
    assert core.supports_rotation_base is True or core.missing
    assert core.write_back_duplicate_reclaim_digest == 0
    assert build(is_eagle=True).is_eagle is True


def errors_come_in_the_contracts_types(build: Callable[..., Any]) -> None:
    core = build()
    unknown = raises(KINDS_OF_UNKNOWN, lambda: core.inc_lock_ref(10**9))
    if isinstance(unknown, CorePoisonedError):
        # The compiled core of the oldest release panics.
        assert core.missing
        core = build()
    else:
        assert unknown.args == (10**9,)
    raises(ContractError, lambda: core.demote(insert(core, [1], [1])[0].last_device_node))
    raises(InvalidArgumentError, lambda: build(eviction_policy="none"))
    raises(UnsupportedError, lambda: build(tree_components=(FULL, ComponentType.C128)))


def methods_of_components_that_are_not_there(build: Callable[..., Any]) -> None:
    window = ComponentType.SWA
    calls: list[Callable[[Any, int], Any]] = [
        lambda core, node: core.finish_mamba_state_eviction(node),
        lambda core, node: core.finish_swa_state_eviction(node),
        lambda core, node: core.evict_excess_path_states(node, {}, {}, []),
        lambda core, node: core.attach_swa_window(key(1), 0, 1, torch.tensor([1])),
        lambda core, node: core.dec_window_lock_only(
            node, window, core.inc_lock_ref(node).to_dec_params()
        ),
        lambda core, node: core.set_component_device_value(node, window, torch.tensor([1])),
    ]
    for call in calls:
        # A native core may be poisoned by such a call, so each one gets its own.
        core = build()
        node = insert(core, [1], [1])[0].last_device_node
        raises(
            KINDS_OF_REFUSAL,
            lambda call=call, core=core, node=node: call(core, node),  # type: ignore[misc]
        )
    core = build()
    if core.core.flavour == "python":
        assert core.swa_tombstone_ranges(key(1), 0, 1) is not None
    else:
        raises(ContractError, lambda: core.swa_tombstone_ranges(key(1), 0, 1))


def windows_keep_their_length(build: Callable[..., Any]) -> None:
    core = build(tree_components=(FULL, SWA), sliding_window_size=2, draft_swa_window=3)
    params = InsertParams(
        key=key(*range(1, 9)), value=torch.arange(11, 19), component_evicted_seqlens={SWA: 1}
    )
    step = core.begin_insert(params)
    rebuilt = step.actions
    assert [action.source_value.tolist() for action in rebuilt] == [
        [12, 13, 14, 15], [16, 17, 18],
    ]  # fmt: skip
    for action in rebuilt:
        core.set_component_device_value(action.node_id, SWA, action.source_value)
    leaf = core.resume_insert().result.last_device_node
    receipt = core.inc_lock_ref(leaf)
    assert receipt.component_lock_uuids[SWA] is not None
    assert (core.swa_evictable_size(), core.swa_protected_size()) == (4, 3)
    core.evict_device_start(SWA, 1)
    (freed,) = core.evict_device_next_node(SWA, {}).device_frees[SWA]
    core.evict_device_end(SWA)
    freed.zero_()
    root = core.root_node_handle()
    assert core.collect_full_device_indices(leaf, root).tolist() == list(range(11, 19))
    assert core.dec_window_lock_only(leaf, SWA, receipt.to_dec_params()).device_frees == {}
    assert core.swa_tombstone_ranges(key(*range(1, 9)), 0, 8) == [(0, 5)]
    assert core.attach_swa_window(key(*range(1, 9)), 2, 4, torch.tensor([3, 4])) == []


def cores_with_other_state_figures_live_side_by_side(build: Callable[..., Any]) -> None:
    figures = [(4, -1), (1, 1), (6, 0)]
    cores = [
        build(
            tree_components=(FULL, MAMBA),
            mamba_cache_chunk_size=chunk,
            mamba_max_states_per_path=cap,
        )
        for chunk, cap in figures
    ]
    for core, (chunk, cap) in zip(cores, figures, strict=True):
        for length, state in ((2, 900), (23, 901)):
            tokens = range(1, length + 1)
            value, slot = torch.arange(length), torch.tensor([state])
            params = InsertParams(key=key(*tokens), value=value, mamba_value=slot)
            freed: Frees = {}
            step = core.begin_insert(params)
            for action in step.actions:
                if isinstance(action, MambaEvictExcessPathStates):
                    core.evict_excess_path_states(action.tail_node_id, freed, {}, [])
            core.end_insert()
        assert [slot.tolist() for slot in freed.get(MAMBA, [])] == ([] if cap < 0 else [[900]])
        assert match(core, *range(1, 23)).mamba_branching_seqlen == 22 // chunk * chunk


def a_second_window_is_refused(build: Callable[..., Any]) -> None:
    second = ComponentType.AUXILIARY_SWA
    refused: list[dict[str, Any]] = [
        {"tree_components": (FULL, SWA, second)},
        {"component_registry_override": {second: AuxiliaryWindow(2)}},
    ]
    for more in refused:
        raises(UnsupportedError, partial(build, sliding_window_size=4, **more))


def a_panic_poisons_a_native_core_alone(build: Callable[..., Any]) -> None:
    core = build()
    if core.core.flavour == "python":
        return
    node = insert(core, [1], [1])[0].last_device_node
    raises(CorePoisonedError, lambda: core.dec_full_pin(node))
    if not core.missing:
        raises(CorePoisonedError, core.take_events)
    assert insert(build(), [1], [1])[0].prefix_len == 0


def time_in_the_core_is_counted(build: Callable[..., Any]) -> None:
    core = build()
    before = core.core_ns
    insert(core, [1, 2], [1, 2])
    assert core.core_ns > before


SCENARIOS: list[Callable[[Callable[..., Any]], None]] = [
    inserts_match_and_split,
    a_callers_key_is_left_alone,
    queries_tell_values_paths_and_order,
    sizes_follow_locks,
    eviction_frees_and_leaves_nothing_to_drain,
    events_arrive_in_the_contracts_types,
    hashes_are_handed_out_as_copies,
    the_host_tier_round_trip_works,
    the_linker_offloads_a_node,
    a_barrier_suspends_an_insert,
    settings_are_forwarded,
    errors_come_in_the_contracts_types,
    methods_of_components_that_are_not_there,
    windows_keep_their_length,
    cores_with_other_state_figures_live_side_by_side,
    a_second_window_is_refused,
    a_panic_poisons_a_native_core_alone,
    time_in_the_core_is_counted,
]


def run(flavour: str) -> dict[str, Any]:
    failures = {}
    missing = SglangCore(CacheInitParams(), flavour).missing
    for scenario in SCENARIOS:
        try:
            scenario(lambda **more: Watched(SglangCore(CacheInitParams(**more), flavour)))
        except Exception as error:
            if not (missing and isinstance(error, UnsupportedError)):
                failures[scenario.__name__] = traceback.format_exc()
    names = {name for name in vars(TreeCore) if not name.startswith("_")}
    return {
        "failures": failures,
        "not called": sorted(names - CALLED[flavour]),
        "missing": missing,
    }


def make_handlers(core_name: str) -> dict[str, Callable[[bytes], bytes]]:
    return {"run": lambda payload: json.dumps(run(payload.decode())).encode()}
