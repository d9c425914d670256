"""Results of a core's methods (KEY-54 to KEY-60, EVD-6, LOCK-2, and the host-tier chapter)."""

from __future__ import annotations

from array import array

import msgspec
import torch

from .actions import BackupKV, CacheAction
from .components import ComponentType, NodeId, PoolHitPolicy, PoolName
from .key import RadixKey
from .params import DecLockRefParams

Frees = dict[ComponentType, list[torch.Tensor]]
"""Freed index tensors per component, in the order in which they were freed."""


class MatchResult(msgspec.Struct, frozen=True, eq=False):
    """How far a key is cached (KEY-56). Lengths are in units."""

    device_prefix_len: int
    last_device_node: NodeId
    last_host_node: NodeId
    best_match_node: NodeId
    host_hit_length: int = 0
    swa_host_hit_length: int = 0
    swa_branching_seqlen: int | None = None
    mamba_host_hit_length: int = 0
    mamba_branching_seqlen: int | None = None
    cache_protected_len: int | None = None
    full_kv_hit_length: int = 0
    cache_actions: list[CacheAction] = msgspec.field(default_factory=list)
    last_visited_node_id: NodeId | None = None
    full_device_match_len: int | None = None


class InsertResult(msgspec.Struct, eq=False):
    """What an insert found and did (KEY-54)."""

    prefix_len: int
    total_len: int = 0
    last_device_node: NodeId | None = None
    mamba_exist: bool = False
    swa_branch_inserted: bool = False
    rotation_tail_declined: bool = False
    inserted_host_node: NodeId | None = None
    host_insert_dropped: bool = False
    adopted_ranges: dict[ComponentType, list[tuple[int, int]]] | None = None
    cache_actions: list[CacheAction] = msgspec.field(default_factory=list)

    def record_adopted_range(self, component_type: ComponentType, start: int, end: int) -> None:
        """Note that the tree took over `[start, end)`, merged with the last range (KEY-55)."""
        if self.adopted_ranges is None or start >= end:
            return
        ranges = self.adopted_ranges.setdefault(component_type, [])
        if ranges and start <= ranges[-1][1]:
            last_start, last_end = ranges[-1]
            ranges[-1] = (min(last_start, start), max(last_end, end))
        else:
            ranges.append((start, end))


class InsertStepResult(msgspec.Struct, eq=False):
    """One step of an insert; `result` is None exactly while it is suspended (KEY-57)."""

    actions: list[CacheAction]
    result: InsertResult | None = None


class IncLockRefResult(msgspec.Struct, eq=False):
    """Receipt of a lock (LOCK-2)."""

    delta: int | None = None
    node_id: NodeId | None = None
    skipped_lock_components: tuple[ComponentType, ...] = ()
    component_lock_uuids: dict[ComponentType, int | None] = msgspec.field(default_factory=dict)
    component_host_lock_uuids: dict[ComponentType, int | None] = msgspec.field(default_factory=dict)

    def to_dec_params(self) -> DecLockRefParams:
        """The same receipt in the form that a release takes."""
        return DecLockRefParams(
            self.node_id,
            self.skipped_lock_components,
            dict(self.component_lock_uuids),
            dict(self.component_host_lock_uuids),
        )


class DecLockRefResult(msgspec.Struct):
    """Answer of a release; `delta` is always None (LOCK-8)."""

    delta: int | None = None


class EvictionResult(msgspec.Struct, eq=False, kw_only=True):
    """What one eviction call freed; the caller drains all three lists (BND-19).

    `tracker` counts tokens (states for MAMBA) evicted by this call alone.
    """

    device_frees: Frees = msgspec.field(default_factory=dict)
    host_frees: Frees = msgspec.field(default_factory=dict)
    tracker: dict[ComponentType, int] = msgspec.field(default_factory=dict)
    cache_actions: list[CacheAction] = msgspec.field(default_factory=list)


class EvictDeviceNextNodeResult(EvictionResult, eq=False, kw_only=True):
    """One step of a device walk (EVD-6)."""

    node_id: NodeId | None = None
    made_progress: bool = False
    unbacked_tokens: int = 0
    mamba_backup_node_id: NodeId | None = None
    swa_backup_node_id: NodeId | None = None
    swa_backup_num_tokens: int = 0


class EvictDeviceLeafResult(EvictionResult, eq=False, kw_only=True):
    """Eviction of one leaf, or the backup it needs first (EVD-17 to EVD-24)."""

    backup_kv: BackupKV | None = None
    unbacked_tokens: int = 0


class DemoteResult(EvictionResult, eq=False, kw_only=True):
    """A leaf left the device and stays on the host (EVD-28)."""


class DropSubtreeNoHostResult(EvictionResult, eq=False, kw_only=True):
    """An unbacked subtree was dropped, or not (EVD-33)."""

    is_dropped: bool = False


class DriveHostEvictionResult(EvictionResult, eq=False, kw_only=True):
    """Host eviction for one component (EVH-6)."""


class DecSwaLockOnlyResult(EvictionResult, eq=False, kw_only=True):
    """An early window release (LOCK-15)."""


class RadixCacheWalkResult(msgspec.Struct, eq=False):
    """Rows of the canary walk: three int64 CPU tensors of equal length (FLAT-4)."""

    slot_indices: torch.Tensor
    positions: torch.Tensor
    prev_slot_indices: torch.Tensor


class TreePathNodeInfo(msgspec.Struct, frozen=True):
    """One node of a path (KEY-60); the span is in units from the root."""

    node_id: NodeId
    parent_id: NodeId
    path_start: int
    path_end: int
    full_value_len: int | None
    num_children: int


class PoolTransfer(msgspec.Struct, eq=False):
    """A copy between tiers that the cache is to make."""

    name: PoolName
    host_indices: torch.Tensor | None = None
    device_indices: torch.Tensor | None = None
    keys: list[str] | None = None
    hit_policy: PoolHitPolicy = PoolHitPolicy.ALL_PAGES
    nodes_to_load: list[NodeId] | None = None
    indices_from_pool: PoolName | None = None
    block_pages: int = 0
    group_pages: int = 0


class PoolTransferResult(msgspec.Struct):
    """What a storage prefetch delivered."""

    kv_hit_pages: int
    extra_pool_hit_pages: dict[str, int]
    restorable_prefix_pages: list[int] | None = None


ComponentTransfers = dict[ComponentType, list[PoolTransfer]]
"""Transfers per auxiliary component, in component order."""


class StorageBackupSpec(msgspec.Struct, frozen=True, eq=False):
    """Everything that storing one host node needs."""

    host_value: torch.Tensor
    token_ids: array[int]
    hash_value: list[str] | None
    prefix_keys: list[str] | None
    comp_xfers: ComponentTransfers


class BufferBackupSnapshot(msgspec.Struct, frozen=True, eq=False):
    """A node as it was when its buffer-mode backup was planned (KEY-43)."""

    node_id: NodeId
    parent_node_id: NodeId
    parent_is_root: bool
    parent_last_hash: str | None
    hash_values: list[str]
    key: RadixKey
    prefix_keys: list[str] | None


class BufferBackupState(msgspec.Struct, frozen=True):
    """Where a planned node hangs now (KEY-44)."""

    parent_node_id: NodeId
    parent_is_root: bool
    parent_last_hash: str | None
