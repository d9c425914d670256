"""TreeCore: the interface that every core implements (PLUG-1).

Method names, parameters and meanings are those of SGLang's tree core interface, so that a core
can be dropped in there. Lengths are in units (KEY-5). A method that takes a handle raises
`UnknownNodeError` for one that is not live and changes nothing, unless its rule says otherwise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch

from .actions import BackupKV, CacheAction
from .components import CacheTransferPhase, ComponentType, NodeId, PoolName
from .events import KvEvent, KvEventRecorder
from .key import RadixKey
from .params import CacheInitParams, DecLockRefParams, InsertParams, MatchPrefixParams
from .results import (
    BufferBackupSnapshot,
    BufferBackupState,
    ComponentTransfers,
    DecLockRefResult,
    DecSwaLockOnlyResult,
    DemoteResult,
    DriveHostEvictionResult,
    DropSubtreeNoHostResult,
    EvictDeviceLeafResult,
    EvictDeviceNextNodeResult,
    Frees,
    IncLockRefResult,
    InsertResult,
    InsertStepResult,
    MatchResult,
    PoolTransfer,
    PoolTransferResult,
    RadixCacheWalkResult,
    StorageBackupSpec,
    TreePathNodeInfo,
)

BUFFERS = frozenset({"device_frees", "host_frees", "cache_actions"})
"""Parameters through which a core answers: it appends to what its caller hands over (BND-20)."""


class TreeCore(ABC):
    """The radix tree: it decides, the cache around it executes."""

    page_size: int
    is_eagle: bool
    device: torch.device
    enable_hicache: bool
    enable_storage: bool
    enable_external_cache_linker: bool
    write_through_threshold: int
    is_write_back: bool
    has_swa_host_pool: bool
    is_host_memory_buffer_only: bool
    kv_events: KvEventRecorder
    supports_rotation_base: bool = False
    write_back_duplicate_reclaim_digest: int = 0

    @abstractmethod
    def __init__(self, params: CacheInitParams) -> None:
        """Build an empty tree. Raises `InvalidArgumentError` or `UnsupportedError` (CFG-1)."""

    # --- Life cycle and configuration -----------------------------------------------------

    @abstractmethod
    def reset(self) -> None:
        """Drop every node, walk and suspended insert; keep configuration and events (RST-1)."""

    @abstractmethod
    def set_hicache_enabled(self) -> None:
        """Turn the host tier on; there is no way back (HIC-1)."""

    @abstractmethod
    def set_host_memory_buffer_only(self) -> None:
        """Use host memory as a bounce buffer only; there is no way back (HIC-2)."""

    def take_events(self) -> list[KvEvent]:
        """All queued KV events in order; empties the queue (EVT-3)."""
        return self.kv_events.take()

    # --- Match ----------------------------------------------------------------------------

    @abstractmethod
    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        """Longest cached prefix; may split one node and refreshes recency (MATCH)."""

    @abstractmethod
    def match_full_device_prefix(self, key: RadixKey) -> tuple[int, NodeId, int]:
        """Matched length, deepest node, its end; read-only (PATH-1, PATH-2)."""

    @property
    @abstractmethod
    def empty_match_result(self) -> MatchResult:
        """The result for an empty key; names the current root (MATCH-1)."""

    def supports_fast_match_prefix(self) -> bool:
        """Whether matching is cheap enough to sort a queue by (MATCH-17)."""
        return False

    # --- Insert ---------------------------------------------------------------------------

    @abstractmethod
    def begin_insert(self, params: InsertParams) -> InsertStepResult:
        """Start an insert and run to its first barrier or its end (INS-2)."""

    @abstractmethod
    def resume_insert(self) -> InsertStepResult:
        """Go on after a barrier (INS-2)."""

    @abstractmethod
    def has_ongoing_insert(self) -> bool:
        """True exactly while an insert is suspended (INS-4)."""

    @abstractmethod
    def end_insert(self) -> list[CacheAction]:
        """Drop the insert in flight and return actions not yet handed out (INS-5)."""

    # --- Locks ----------------------------------------------------------------------------

    @abstractmethod
    def inc_lock_ref(
        self, node_id: NodeId, skip_lock_components: Sequence[ComponentType] = ()
    ) -> IncLockRefResult:
        """Lock the path to a node on the device; returns the receipt (LOCK-1)."""

    @abstractmethod
    def dec_lock_ref(
        self, node_id: NodeId, params: DecLockRefParams, skip_swa: bool = False
    ) -> DecLockRefResult:
        """Release a receipt on its own node (LOCK-8)."""

    @abstractmethod
    def dec_swa_lock_only(self, node_id: NodeId, params: DecLockRefParams) -> DecSwaLockOnlyResult:
        """Release the window of a receipt early (LOCK-15)."""

    @abstractmethod
    def dec_window_lock_only(
        self, node_id: NodeId, component_type: ComponentType, params: DecLockRefParams
    ) -> DecSwaLockOnlyResult:
        """Release one window component of a receipt (LOCK-18)."""

    @abstractmethod
    def inc_host_lock_ref(self, node_id: NodeId) -> IncLockRefResult:
        """Pin a node on the host (LOCK-22)."""

    @abstractmethod
    def dec_host_lock_ref(self, node_id: NodeId, params: DecLockRefParams) -> DecLockRefResult:
        """Release a host pin (LOCK-25)."""

    @abstractmethod
    def inc_full_pin(self, node_id: NodeId) -> None:
        """Lock FULL alone, without a receipt (LOCK-14)."""

    @abstractmethod
    def dec_full_pin(self, node_id: NodeId) -> None:
        """Undo one `inc_full_pin` (LOCK-14)."""

    # --- Device eviction ------------------------------------------------------------------

    @abstractmethod
    def evict_device_start(self, component_type: ComponentType, request_cnt: int) -> None:
        """Open a walk for one component (EVD-1)."""

    @abstractmethod
    def evict_device_next_node(
        self, component_type: ComponentType, tracker: dict[ComponentType, int]
    ) -> EvictDeviceNextNodeResult:
        """One step of the walk; `tracker` is the caller's running total, only read (EVD-4)."""

    @abstractmethod
    def evict_device_leaf(self, node_id: NodeId, is_write_back: bool) -> EvictDeviceLeafResult:
        """Evict a device leaf (EVD-17)."""

    @abstractmethod
    def evict_device_end(self, component_type: ComponentType) -> None:
        """Close the walk (EVD-3)."""

    @abstractmethod
    def finish_mamba_state_eviction(self, node_id: NodeId) -> EvictDeviceNextNodeResult:
        """Go on after the backup of an internal Mamba victim (EVD-41)."""

    @abstractmethod
    def finish_swa_state_eviction(self, node_id: NodeId) -> EvictDeviceNextNodeResult:
        """Go on after the backup of an internal window victim (EVD-41)."""

    @abstractmethod
    def evict_excess_path_states(
        self,
        tail_node_id: NodeId,
        device_frees: Frees,
        host_frees: Frees,
        cache_actions: list[CacheAction],
    ) -> None:
        """Append what the per-path state cap evicts to the caller's buffers (EVD-48)."""

    @abstractmethod
    def demote(self, node_id: NodeId) -> DemoteResult:
        """Drop the device layers of a backed node (EVD-25)."""

    @abstractmethod
    def drop_subtree_no_host(self, node_id: NodeId) -> DropSubtreeNoHostResult:
        """Delete an unbacked device leaf with all below it (EVD-33)."""

    @abstractmethod
    def drive_host_eviction(
        self, component_type: ComponentType, num_tokens: int
    ) -> DriveHostEvictionResult:
        """Free host slots of one component (EVH-6)."""

    # --- Sizes ----------------------------------------------------------------------------

    @abstractmethod
    def component_evictable_size(self, component_type: ComponentType) -> int:
        """Tokens (states for MAMBA) on the device that no lock holds (SIZE-1)."""

    @abstractmethod
    def component_protected_size(self, component_type: ComponentType) -> int:
        """Tokens (states for MAMBA) on the device that a lock holds (SIZE-1)."""

    def evictable_size(self) -> int:
        """FULL's evictable tokens (SIZE-2)."""
        return self.component_evictable_size(ComponentType.FULL)

    def protected_size(self) -> int:
        """FULL's protected tokens (SIZE-2)."""
        return self.component_protected_size(ComponentType.FULL)

    def full_evictable_size(self) -> int:
        """FULL's evictable tokens (SIZE-2)."""
        return self.component_evictable_size(ComponentType.FULL)

    def full_protected_size(self) -> int:
        """FULL's protected tokens (SIZE-2)."""
        return self.component_protected_size(ComponentType.FULL)

    def swa_evictable_size(self) -> int:
        """SWA's evictable tokens (SIZE-2)."""
        return self.component_evictable_size(ComponentType.SWA)

    def swa_protected_size(self) -> int:
        """SWA's protected tokens (SIZE-2)."""
        return self.component_protected_size(ComponentType.SWA)

    def mamba_evictable_size(self) -> int:
        """MAMBA's evictable states (SIZE-2)."""
        return self.component_evictable_size(ComponentType.MAMBA)

    def mamba_protected_size(self) -> int:
        """MAMBA's protected states (SIZE-2)."""
        return self.component_protected_size(ComponentType.MAMBA)

    @abstractmethod
    def total_size(self) -> tuple[int, int]:
        """FULL device tokens, and the device values of all other components (SIZE-4)."""

    @abstractmethod
    def adjust_component_size(
        self, node_id: NodeId, component_type: ComponentType, delta: int
    ) -> None:
        """Correct a ledger by hand (SIZE-5)."""

    # --- Values, paths and order ----------------------------------------------------------

    @abstractmethod
    def root_node_handle(self, extra_key: str | None = None) -> NodeId:
        """The one root of all namespaces (KEY-25)."""

    @abstractmethod
    def node_by_id(self, node_id: NodeId) -> Any:
        """The node object, in cores that show one; else `UnsupportedError`."""

    @abstractmethod
    def is_root(self, node_id: NodeId) -> bool:
        """Whether the handle is the root's (NODE-6)."""

    @abstractmethod
    def is_backuped(self, node_id: NodeId) -> bool:
        """Whether FULL has a host value (NODE-6)."""

    @abstractmethod
    def is_full_device_evicted(self, node_id: NodeId) -> bool:
        """Whether FULL has no device value (NODE-6)."""

    @abstractmethod
    def is_write_through_compatible(self) -> bool:
        """Whether the host copies form a top part of the tree (NODE-14)."""

    @abstractmethod
    def get_component_device_value(
        self, node_id: NodeId, component_type: ComponentType
    ) -> torch.Tensor | None:
        """The device value of one component; None on the root (SIZE-8)."""

    @abstractmethod
    def set_component_device_value(
        self, node_id: NodeId, component_type: ComponentType, value: torch.Tensor
    ) -> None:
        """Store a device value of an auxiliary component (SIZE-7)."""

    @abstractmethod
    def component_has_host_value_only(self, node_id: NodeId, component_type: ComponentType) -> bool:
        """Whether the component is on the host and not on the device (SIZE-9)."""

    @abstractmethod
    def collect_full_device_indices(
        self, from_node_id: NodeId, until_node_id: NodeId
    ) -> torch.Tensor:
        """FULL device indices of the path below `until` down to `from` (PATH-11)."""

    @abstractmethod
    def collect_path_info(
        self, end_node_ids: Sequence[NodeId]
    ) -> tuple[tuple[TreePathNodeInfo, ...], ...]:
        """The path from the root's child to each handle (PATH-10)."""

    @abstractmethod
    def dfs_weight_order(self, node_ids: Sequence[NodeId]) -> list[int]:
        """Input positions in order of shared subtrees (ORD-1)."""

    @abstractmethod
    def all_values_flatten(self) -> torch.Tensor:
        """All FULL device indices in pre-order (FLAT-2)."""

    @abstractmethod
    def all_mamba_values_flatten(self) -> torch.Tensor:
        """All MAMBA device indices in pre-order (FLAT-3)."""

    @abstractmethod
    def walk_for_kv_canary(
        self, unlocked_only: bool, swa_resident_only: bool
    ) -> RadixCacheWalkResult:
        """One row per device slot: slot, position, slot before it (FLAT-4)."""

    @abstractmethod
    def swa_tombstone_ranges(
        self,
        key: RadixKey,
        start: int,
        end: int,
        component_type: ComponentType = ComponentType.SWA,
    ) -> list[tuple[int, int]]:
        """Spans of a cached key whose window value is gone."""

    @abstractmethod
    def attach_swa_window(
        self,
        key: RadixKey,
        window_start: int,
        window_end: int,
        swa_values: torch.Tensor,
        component_type: ComponentType = ComponentType.SWA,
    ) -> list[CacheAction]:
        """Publish loaded window rows on a span without them."""

    # --- Hashes ---------------------------------------------------------------------------

    @abstractmethod
    def get_last_hash_value(self, node_id: NodeId) -> str | None:
        """The node's last page hash (KEY-42)."""

    @abstractmethod
    def get_hash_values(self, node_id: NodeId) -> list[str]:
        """The node's own page hashes (KEY-42)."""

    @abstractmethod
    def get_prefix_hash_values(self, node_id: NodeId) -> list[str]:
        """The page hashes of the node's ancestors, root first (KEY-42)."""

    @abstractmethod
    def backfill_missing_hash_values(self) -> int:
        """Hash every node that has none; returns how many (KEY-41)."""

    @abstractmethod
    def snapshot_buffer_backup(
        self, node_id: NodeId, pass_prefix_keys: bool
    ) -> BufferBackupSnapshot | None:
        """A node as a buffer-mode backup needs it; None if it can't be had (KEY-43)."""

    @abstractmethod
    def validate_buffer_backup(
        self, node_id: NodeId, expected_key_length: int
    ) -> BufferBackupState | None:
        """Where a planned node hangs now; None if it has changed (KEY-44)."""

    def buffer_backup_pool_keys(
        self, node_id: NodeId, hash_values: list[str]
    ) -> dict[ComponentType, dict[PoolName, list[str]]]:
        """Keys per pool that components name for a buffer-mode backup (BUF-12)."""
        return {}

    # --- Rotation -------------------------------------------------------------------------

    def rotation_base_of(self, node_id: NodeId) -> int | None:
        """The base stamped at the node's creation (NODE-9)."""
        return None

    def rotation_phase_of(self, node_id: NodeId) -> int | None:
        """Base plus the pages above the node; None without a base (NODE-9)."""
        return None

    # --- Host tier and storage ------------------------------------------------------------

    @abstractmethod
    def build_backup_kv_action(self, node_id: NodeId) -> BackupKV:
        """The backup chain that ends at a node (INS-56)."""

    @abstractmethod
    def build_backup_spec(self, node_id: NodeId) -> tuple[torch.Tensor, ComponentTransfers]:
        """What a device-to-host backup of a node copies."""

    @abstractmethod
    def commit_backup(
        self, node_id: NodeId, host_indices: torch.Tensor, comp_xfers: ComponentTransfers
    ) -> None:
        """Record the host slots of a backup."""

    @abstractmethod
    def mark_write_through_pending(self, node_ids: list[NodeId], ack_id: NodeId) -> list[NodeId]:
        """Mark nodes as covered by a backup in flight; returns them ancestors first."""

    @abstractmethod
    def finish_write_through(self, node_ids: list[NodeId], ack_id: int) -> None:
        """A backup has landed."""

    @abstractmethod
    def build_load_back_spec(
        self, node_id: NodeId, req: Any = None
    ) -> tuple[PoolTransfer, ComponentTransfers]:
        """What a host-to-device load of a node's path copies."""

    @abstractmethod
    def commit_load_back(
        self,
        node_id: NodeId,
        device_indices: torch.Tensor,
        kv_xfer: PoolTransfer,
        comp_xfers: ComponentTransfers,
    ) -> list[CacheAction]:
        """Record the device slots of a load."""

    @abstractmethod
    def finish_load_back(self, anchor_node_id: NodeId) -> None:
        """A load has landed."""

    @abstractmethod
    def build_hicache_transfers(
        self,
        component_type: ComponentType,
        node_id: NodeId,
        phase: CacheTransferPhase,
        *,
        host_indices: torch.Tensor | None = None,
        token_ids: Sequence[int] | None = None,
        prefetch_tokens: int = 0,
        staging_tokens: int = 0,
        last_hash: str | None = None,
    ) -> list[PoolTransfer] | None:
        """One component's transfers of one phase; None for nothing."""

    @abstractmethod
    def commit_hicache_transfers(
        self,
        node_id: NodeId,
        phase: CacheTransferPhase,
        comp_xfers: ComponentTransfers,
        *,
        cache_actions: list[CacheAction],
        insert_result: InsertResult | None = None,
        pool_storage_result: PoolTransferResult | None = None,
    ) -> None:
        """Record finished transfers; actions are appended to `cache_actions`."""

    @abstractmethod
    def build_storage_backup_spec(
        self, node_id: NodeId, pass_prefix_keys: bool
    ) -> StorageBackupSpec | None:
        """What storing a node's host copy needs; None without one."""

    @abstractmethod
    def prefetch_anchor_info(self, node_id: NodeId) -> tuple[str | None, str | None]:
        """Namespace of a prefetch anchor."""

    @abstractmethod
    def insert_host(
        self, node_id: NodeId, key: RadixKey, host_value: torch.Tensor, hash_value: list[str]
    ) -> InsertResult:
        """Hang prefetched host data below a node."""

    # --- External cache linker ------------------------------------------------------------

    @abstractmethod
    def build_external_linker_offload_transfers(self, node_id: NodeId) -> list[PoolTransfer] | None:
        """What an offload of a node copies; None if stored or pending (LNK-2)."""

    @abstractmethod
    def mark_external_linker_offload_pending(self, node_id: NodeId) -> None:
        """An offload of this node is in flight (LNK-4)."""

    @abstractmethod
    def finish_external_linker_offload(
        self, node_ids: Sequence[NodeId], ack_id: NodeId, success: bool
    ) -> None:
        """An offload has landed or failed (LNK-6)."""

    @abstractmethod
    def mark_external_cache_stored_path(self, from_node_id: NodeId, until_node_id: NodeId) -> None:
        """The external store holds this path already (LNK-8)."""

    # --- Checking -------------------------------------------------------------------------

    @abstractmethod
    def sanity_check(
        self,
        ongoing_write_through: list[tuple[int, NodeId]],
        ongoing_load_back: list[tuple[int, NodeId]],
    ) -> None:
        """Raise `SanityCheckError` if an invariant does not hold (CHK)."""

    @abstractmethod
    def pretty_print(self) -> None:
        """Print the tree to standard output; the text is no contract (CHK-22)."""
