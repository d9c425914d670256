"""RustTreeCore: the native tree behind the contract's interface (PLUG-1).

It hands arguments over and dresses answers in the contract's classes; every decision, check and
error of the tree is native. Hides the tuples that cross the boundary.
"""

# ruff: noqa: D102  (the interface documents the methods)

from __future__ import annotations

from array import array
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from ..contract import (
    BackupKV,
    BufferBackupSnapshot,
    BufferBackupState,
    CacheAction,
    CacheInitParams,
    ComponentType,
    DecLockRefParams,
    DecLockRefResult,
    DecSwaLockOnlyResult,
    DropSubtreeNoHostResult,
    EvictDeviceLeafResult,
    EvictDeviceNextNodeResult,
    Frees,
    IncLockRefResult,
    InsertParams,
    InsertResult,
    InsertStepResult,
    MatchPrefixParams,
    MatchResult,
    NodeId,
    PoolName,
    PoolTransfer,
    RadixCacheWalkResult,
    RadixKey,
    TreePathNodeInfo,
)
from .absent import DeviceTierOnly
from .answers import (
    POOLS,
    TYPES,
    WINDOWS,
    RustKvEvents,
    action,
    freed_by_component,
    freed_of_node,
    offload,
    split_action,
)
from .configuration import check_flags, device, native_auxiliaries, page_size
from .native import default_native
from .policy import native_policy

if TYPE_CHECKING:
    from ..._rust_core import NativeTreeCore

_FULL = ComponentType.FULL


class RustTreeCore(DeviceTierOnly):
    """The Rust core: all components but C128, on the device tier.

    `native` is the module to run on, see `default_native`. `keeps_tensors` says whether
    slot indices stay torch tensors; by default they do unless the device is the CPU.
    """

    def __init__(
        self,
        params: CacheInitParams,
        *,
        native: ModuleType | None = None,
        keeps_tensors: bool | None = None,
    ) -> None:
        page = page_size(params.page_size)
        check_flags(params)
        policy = native_policy(params)
        windows, states = native_auxiliaries(params)
        self._device = device(params.token_to_kv_pool_allocator)
        if keeps_tensors is None:
            keeps_tensors = self._device.type != "cpu"
        names = params.kv_event_lora_names
        lookup = names.resolve if params.dynamo_kv_event_format else names.get
        self._page_size = page
        # A tree with states holds single tokens (MAM-D12).
        self._is_eagle = bool(params.is_eagle) and states is None
        self._components = tuple(params.tree_components)
        self._native: NativeTreeCore = (native or default_native()).NativeTreeCore(
            page,
            self._is_eagle,
            self._device,
            not keeps_tensors,
            policy.name,
            policy.protected_threshold,
            policy.tail_budget,
            lookup if params.enable_kv_cache_events else None,
            params.dynamo_kv_event_format,
            windows,
            states,
        )
        self.kv_events = RustKvEvents(self._native, params.enable_kv_cache_events, page)
        # The value of the insert in flight: its frees are views of it (BND-29).
        self._insert_value: torch.Tensor | None = None

    # --- Configuration --------------------------------------------------------------------

    @property
    def native(self) -> Any:
        """The native core, for the inspector and tests of the boundary."""
        return self._native

    @property
    def page_size(self) -> int:  # type: ignore[override]
        return self._page_size

    @property
    def is_eagle(self) -> bool:  # type: ignore[override]
        return self._is_eagle

    @property
    def supports_rotation_base(self) -> bool:  # type: ignore[override]
        return True

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self._device

    @property
    def enable_storage(self) -> bool:
        return self._native.enable_storage

    @enable_storage.setter
    def enable_storage(self, value: bool) -> None:
        self._native.enable_storage = value

    @property
    def enable_external_cache_linker(self) -> bool:
        return self._native.enable_external_cache_linker

    @enable_external_cache_linker.setter
    def enable_external_cache_linker(self, value: bool) -> None:
        self._native.enable_external_cache_linker = value

    @property
    def write_through_threshold(self) -> int:
        return self._native.write_through_threshold

    @write_through_threshold.setter
    def write_through_threshold(self, value: int) -> None:
        self._native.write_through_threshold = value

    @property
    def is_write_back(self) -> bool:
        return self._native.is_write_back

    @is_write_back.setter
    def is_write_back(self, value: bool) -> None:
        self._native.is_write_back = value

    @property
    def is_host_memory_buffer_only(self) -> bool:  # type: ignore[override]
        return self._native.is_host_memory_buffer_only

    def set_host_memory_buffer_only(self) -> None:
        self._native.set_host_memory_buffer_only()

    def reset(self) -> None:
        self._native.reset()
        self._insert_value = None

    # --- Match ----------------------------------------------------------------------------

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        key = params.key
        length, node, hit, visited, split, swa, mamba = self._native.match_prefix(
            key.token_ids, key.extra_key, key.cache_salt, key.limit
        )
        actions: list[CacheAction] = [] if split is None else [split_action(split)]
        return MatchResult(
            length, node, node, node, 0, 0, swa, 0, mamba, None, hit, actions, visited
        )

    def match_full_device_prefix(self, key: RadixKey) -> tuple[int, NodeId, int]:
        return self._native.match_full_device_prefix(
            key.token_ids, key.extra_key, key.cache_salt, key.limit
        )

    @property
    def empty_match_result(self) -> MatchResult:
        root = self._native.root()
        return MatchResult(0, root, root, root)

    # --- Insert ---------------------------------------------------------------------------

    def begin_insert(self, params: InsertParams) -> InsertStepResult:
        key = params.key
        value = params.value
        if value is None:
            value = self._tokens_as_value(key.token_ids)
        step = self._native.begin_insert(
            key.token_ids,
            key.extra_key,
            key.cache_salt,
            key.limit,
            value,
            params.prev_prefix_len,
            params.component_evicted_seqlens,
            params.inserted_len,
            params.priority,
            params.session_id,
            params.track_adopted_ranges,
            params.rotation_base,
            params.mamba_value,
            params.swa_branching_seqlen,
        )
        return self._step(step, value)

    def resume_insert(self) -> InsertStepResult:
        return self._step(self._native.resume_insert(), self._insert_value)

    def has_ongoing_insert(self) -> bool:
        return self._native.has_ongoing_insert()

    def end_insert(self) -> list[CacheAction]:
        self._native.end_insert()
        self._insert_value = None
        return []

    def _tokens_as_value(self, token_ids: Any) -> torch.Tensor:
        """The token ids themselves, as an insert without a value stores them (INS-11)."""
        if not isinstance(token_ids, array) or token_ids.typecode != "q" or not token_ids:
            return torch.empty(0, dtype=torch.int64, device=self._device)
        return torch.frombuffer(token_ids, dtype=torch.int64).to(self._device, copy=True)

    def _step(self, step: Any, value: torch.Tensor | None) -> InsertStepResult:
        raw_actions, outcome = step
        actions = [action(raw, value) for raw in raw_actions] if raw_actions else []
        if outcome is None:
            self._insert_value = value
            return InsertStepResult(actions)
        self._insert_value = None
        prefix_len, last_node, mamba_exist, is_branch_inserted, is_declined, adopted = outcome
        result = InsertResult(
            prefix_len, 0, last_node, mamba_exist, is_branch_inserted, is_declined
        )
        if adopted is not None:
            result.adopted_ranges = {TYPES[number]: spans for number, spans in adopted}
        return InsertStepResult(actions, result)

    # --- Locks ----------------------------------------------------------------------------

    def inc_lock_ref(
        self, node_id: NodeId, skip_lock_components: Sequence[ComponentType] = ()
    ) -> IncLockRefResult:
        delta, skipped, marks = self._native.inc_lock_ref(node_id, skip_lock_components)
        uuids = {TYPES[number]: mark for number, mark in marks}
        return IncLockRefResult(delta, node_id, tuple([TYPES[number] for number in skipped]), uuids)

    def dec_lock_ref(
        self, node_id: NodeId, params: DecLockRefParams, skip_swa: bool = False
    ) -> DecLockRefResult:
        self._native.dec_lock_ref(node_id, params, skip_swa)
        return DecLockRefResult()

    def dec_swa_lock_only(self, node_id: NodeId, params: DecLockRefParams) -> DecSwaLockOnlyResult:
        freed = self._native.dec_swa_lock_only(node_id, params)
        return DecSwaLockOnlyResult(device_frees=freed_by_component(freed))

    def dec_window_lock_only(
        self, node_id: NodeId, component_type: ComponentType, params: DecLockRefParams
    ) -> DecSwaLockOnlyResult:
        freed = self._native.dec_window_lock_only(node_id, component_type, params)
        return DecSwaLockOnlyResult(device_frees=freed_by_component(freed))

    def inc_host_lock_ref(self, node_id: NodeId) -> IncLockRefResult:
        marks = self._native.inc_host_lock_ref(node_id)
        uuids = {TYPES[number]: mark for number, mark in marks}
        return IncLockRefResult(None, node_id, component_host_lock_uuids=uuids)

    def dec_host_lock_ref(self, node_id: NodeId, params: DecLockRefParams) -> DecLockRefResult:
        self._native.dec_host_lock_ref(node_id, params)
        return DecLockRefResult()

    def inc_full_pin(self, node_id: NodeId) -> None:
        self._native.inc_full_pin(node_id)

    def dec_full_pin(self, node_id: NodeId) -> None:
        self._native.dec_full_pin(node_id)

    # --- Device eviction ------------------------------------------------------------------

    def evict_device_start(self, component_type: ComponentType, request_cnt: int) -> None:
        self._native.evict_device_start(component_type, request_cnt)

    def evict_device_next_node(
        self, component_type: ComponentType, tracker: dict[ComponentType, int]
    ) -> EvictDeviceNextNodeResult:
        node, freed = self._native.evict_device_next_node(component_type, tracker)
        if not freed:
            return EvictDeviceNextNodeResult(node_id=node, made_progress=node is not None)
        counts: dict[ComponentType, int] = {}
        frees = freed_of_node(freed, counts)
        return EvictDeviceNextNodeResult(made_progress=True, device_frees=frees, tracker=counts)

    def evict_device_leaf(self, node_id: NodeId, is_write_back: bool) -> EvictDeviceLeafResult:
        freed = self._native.evict_device_leaf(node_id, is_write_back)
        if freed is None:
            return EvictDeviceLeafResult(backup_kv=BackupKV([node_id]))
        tracker = dict.fromkeys(self._components, 0)  # Zeros are told as well (EVD-22).
        frees = freed_of_node(freed, tracker)
        return EvictDeviceLeafResult(
            device_frees=frees, tracker=tracker, unbacked_tokens=tracker[_FULL]
        )

    def evict_device_end(self, component_type: ComponentType) -> None:
        self._native.evict_device_end(component_type)

    def drop_subtree_no_host(self, node_id: NodeId) -> DropSubtreeNoHostResult:
        freed = self._native.drop_subtree_no_host(node_id)
        if freed is None:
            return DropSubtreeNoHostResult()
        tracker = dict.fromkeys(self._components, 0)
        frees = freed_of_node(freed, tracker)
        return DropSubtreeNoHostResult(device_frees=frees, tracker=tracker, is_dropped=True)

    def evict_excess_path_states(
        self,
        tail_node_id: NodeId,
        device_frees: Frees,
        host_frees: Frees,
        cache_actions: list[CacheAction],
    ) -> None:
        freed = self._native.evict_excess_path_states(tail_node_id)
        if freed:
            device_frees.setdefault(ComponentType.MAMBA, []).extend(freed)

    # --- Sizes ----------------------------------------------------------------------------

    def component_evictable_size(self, component_type: ComponentType) -> int:
        return self._native.component_evictable_size(component_type)

    def component_protected_size(self, component_type: ComponentType) -> int:
        return self._native.component_protected_size(component_type)

    def total_size(self) -> tuple[int, int]:
        return self._native.total_size()

    def adjust_component_size(
        self, node_id: NodeId, component_type: ComponentType, delta: int
    ) -> None:
        self._native.adjust_component_size(node_id, component_type, delta)

    # --- Values, paths and order ----------------------------------------------------------

    def root_node_handle(self, extra_key: str | None = None) -> NodeId:
        return self._native.root(extra_key)

    def is_root(self, node_id: NodeId) -> bool:
        return self._native.is_root(node_id)

    def is_full_device_evicted(self, node_id: NodeId) -> bool:
        return self._native.is_full_device_evicted(node_id)

    def get_component_device_value(
        self, node_id: NodeId, component_type: ComponentType
    ) -> torch.Tensor | None:
        return self._native.get_component_device_value(node_id, component_type)

    def set_component_device_value(
        self, node_id: NodeId, component_type: ComponentType, value: torch.Tensor
    ) -> None:
        self._native.set_component_device_value(node_id, component_type, value)

    def collect_full_device_indices(
        self, from_node_id: NodeId, until_node_id: NodeId
    ) -> torch.Tensor:
        return self._native.collect_full_device_indices(from_node_id, until_node_id)

    def collect_path_info(
        self, end_node_ids: Sequence[NodeId]
    ) -> tuple[tuple[TreePathNodeInfo, ...], ...]:
        paths = self._native.collect_path_info(end_node_ids)
        return tuple(tuple(TreePathNodeInfo(*node) for node in path) for path in paths)

    def dfs_weight_order(self, node_ids: Sequence[NodeId]) -> list[int]:
        return self._native.dfs_weight_order(node_ids)

    def all_values_flatten(self) -> torch.Tensor:
        return self._native.all_values_flatten()

    def all_mamba_values_flatten(self) -> torch.Tensor:
        return self._native.all_mamba_values_flatten()

    def walk_for_kv_canary(
        self, unlocked_only: bool, swa_resident_only: bool
    ) -> RadixCacheWalkResult:
        columns = self._native.walk_for_kv_canary(unlocked_only, swa_resident_only)
        return RadixCacheWalkResult(*(_int64_tensor(column) for column in columns))

    def swa_tombstone_ranges(
        self,
        key: RadixKey,
        start: int,
        end: int,
        component_type: ComponentType = ComponentType.SWA,
    ) -> list[tuple[int, int]]:
        return self._native.swa_tombstone_ranges(
            key.token_ids, key.extra_key, key.cache_salt, key.limit, start, end, component_type
        )

    def attach_swa_window(
        self,
        key: RadixKey,
        window_start: int,
        window_end: int,
        swa_values: torch.Tensor,
        component_type: ComponentType = ComponentType.SWA,
    ) -> list[CacheAction]:
        splits = self._native.attach_swa_window(
            key.token_ids,
            key.extra_key,
            key.cache_salt,
            key.limit,
            window_start,
            window_end,
            swa_values,
            component_type,
        )
        return [split_action(split) for split in splits]

    # --- Hashes and buffer mode -----------------------------------------------------------

    def get_last_hash_value(self, node_id: NodeId) -> str | None:
        return self._native.get_last_hash_value(node_id)

    def get_hash_values(self, node_id: NodeId) -> list[str]:
        return self._native.get_hash_values(node_id)

    def get_prefix_hash_values(self, node_id: NodeId) -> list[str]:
        return self._native.get_prefix_hash_values(node_id)

    def backfill_missing_hash_values(self) -> int:
        return self._native.backfill_missing_hash_values()

    def snapshot_buffer_backup(
        self, node_id: NodeId, pass_prefix_keys: bool
    ) -> BufferBackupSnapshot | None:
        fields = self._native.snapshot_buffer_backup(node_id, pass_prefix_keys)
        if fields is None:
            return None
        state, hash_values, token_bytes, extra_key, cache_salt, prefix_keys = fields
        tokens = array("q", token_bytes)
        key = RadixKey(tokens, extra_key, self._is_eagle, cache_salt=cache_salt)
        parent, parent_is_root, parent_last_hash = state
        return BufferBackupSnapshot(
            node_id, parent, parent_is_root, parent_last_hash, hash_values, key, prefix_keys
        )

    def validate_buffer_backup(
        self, node_id: NodeId, expected_key_length: int
    ) -> BufferBackupState | None:
        state = self._native.validate_buffer_backup(node_id, expected_key_length)
        return None if state is None else BufferBackupState(*state)

    # --- Rotation -------------------------------------------------------------------------

    def rotation_base_of(self, node_id: NodeId) -> int | None:
        return self._native.rotation_base_of(node_id)

    def rotation_phase_of(self, node_id: NodeId) -> int | None:
        return self._native.rotation_phase_of(node_id)

    # --- Host tier and storage ------------------------------------------------------------

    def buffer_backup_pool_keys(
        self, node_id: NodeId, hash_values: list[str]
    ) -> dict[ComponentType, dict[PoolName, list[str]]]:
        self._native.is_root(node_id)  # The handle must be known.
        if not self.is_host_memory_buffer_only:
            return {}
        # Windows have no host pool to copy to, so they withhold theirs (BUF-12).
        pools = {
            component: POOLS[component] for component in self._components if component in WINDOWS
        }
        return {component: {pool: []} for component, pool in pools.items()}

    def build_backup_kv_action(self, node_id: NodeId) -> BackupKV:
        return BackupKV(self._native.build_backup_chain(node_id))

    def prefetch_anchor_info(self, node_id: NodeId) -> tuple[str | None, str | None]:
        return self._native.prefetch_anchor_info(node_id)

    # --- External cache linker ------------------------------------------------------------

    def build_external_linker_offload_transfers(self, node_id: NodeId) -> list[PoolTransfer] | None:
        plans = self._native.build_offload(node_id)
        if plans is None:
            return None
        return [offload(*plan) for plan in plans]

    def mark_external_linker_offload_pending(self, node_id: NodeId) -> None:
        self._native.mark_offload_pending(node_id)

    def finish_external_linker_offload(
        self, node_ids: Sequence[NodeId], ack_id: NodeId, success: bool
    ) -> None:
        self._native.finish_offload(node_ids, ack_id, success)

    def mark_external_cache_stored_path(self, from_node_id: NodeId, until_node_id: NodeId) -> None:
        self._native.mark_stored_path(from_node_id, until_node_id)

    # --- Checking -------------------------------------------------------------------------

    def sanity_check(
        self,
        ongoing_write_through: list[tuple[int, NodeId]],
        ongoing_load_back: list[tuple[int, NodeId]],
    ) -> None:
        self._native.sanity_check(ongoing_write_through, ongoing_load_back)

    def pretty_print(self) -> None:
        print(self._native.tree_text(), end="")


def _int64_tensor(data: bytes) -> torch.Tensor:
    if not data:
        return torch.empty(0, dtype=torch.int64)
    return torch.frombuffer(bytearray(data), dtype=torch.int64)
