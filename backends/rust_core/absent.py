"""What the Rust core lacks: the host tier and every component but FULL.

A call for either is checked as far as it goes, then refused or answered with "nothing". These
methods move into the adapter as the tree learns what they are about.
"""

# ruff: noqa: D102  (the interface documents the methods)

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from ..contract import (
    CacheAction,
    CacheTransferPhase,
    ComponentTransfers,
    ComponentType,
    ContractError,
    DecLockRefParams,
    DecSwaLockOnlyResult,
    DemoteResult,
    DriveHostEvictionResult,
    EvictDeviceNextNodeResult,
    Frees,
    InsertResult,
    NodeId,
    PoolTransfer,
    PoolTransferResult,
    RadixKey,
    StorageBackupSpec,
    TreeCore,
    UnsupportedError,
)

if TYPE_CHECKING:
    from ..._rust_core import NativeTreeCore

_FULL = ComponentType.FULL


class DeviceTierOnly(TreeCore):
    """The part of the interface that needs a host tier or another component."""

    _native: NativeTreeCore
    _device: torch.device

    # --- Host tier ------------------------------------------------------------------------

    @property
    def enable_hicache(self) -> bool:  # type: ignore[override]
        return False

    @property
    def has_swa_host_pool(self) -> bool:
        return False

    @has_swa_host_pool.setter
    def has_swa_host_pool(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise TypeError("has_swa_host_pool must be a bool")
        if value:
            _unsupported_host_tier()

    def set_hicache_enabled(self) -> None:
        _unsupported_host_tier()

    def is_backuped(self, node_id: NodeId) -> bool:
        self._native.check_nodes([node_id])
        return False

    def is_write_through_compatible(self) -> bool:
        self._native.root()
        return True

    def demote(self, node_id: NodeId) -> DemoteResult:
        self._native.check_nodes([node_id])
        raise ContractError(f"node {node_id} has no host value to fall back on")

    def drive_host_eviction(
        self, component_type: ComponentType, num_tokens: int
    ) -> DriveHostEvictionResult:
        has_component = self._native.drive_host_eviction(component_type, num_tokens)
        return DriveHostEvictionResult(tracker={_FULL: 0} if has_component else {})

    def build_storage_backup_spec(
        self, node_id: NodeId, pass_prefix_keys: bool
    ) -> StorageBackupSpec | None:
        self._native.check_storage_backup(node_id, pass_prefix_keys)
        return None

    def build_backup_spec(self, node_id: NodeId) -> tuple[torch.Tensor, ComponentTransfers]:
        self._refuse_host_tier([node_id])

    def commit_backup(
        self, node_id: NodeId, host_indices: torch.Tensor, comp_xfers: ComponentTransfers
    ) -> None:
        self._refuse_host_tier([node_id])

    def mark_write_through_pending(self, node_ids: list[NodeId], ack_id: NodeId) -> list[NodeId]:
        self._refuse_host_tier(node_ids)

    def finish_write_through(self, node_ids: list[NodeId], ack_id: int) -> None:
        self._refuse_host_tier(node_ids)

    def build_load_back_spec(
        self, node_id: NodeId, req: Any = None
    ) -> tuple[PoolTransfer, ComponentTransfers]:
        self._refuse_host_tier([node_id])

    def commit_load_back(
        self,
        node_id: NodeId,
        device_indices: torch.Tensor,
        kv_xfer: PoolTransfer,
        comp_xfers: ComponentTransfers,
    ) -> list[CacheAction]:
        self._refuse_host_tier([node_id])

    def finish_load_back(self, anchor_node_id: NodeId) -> None:
        self._refuse_host_tier([anchor_node_id])

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
        self._refuse_host_tier([node_id])

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
        self._refuse_host_tier([node_id])

    def insert_host(
        self, node_id: NodeId, key: RadixKey, host_value: torch.Tensor, hash_value: list[str]
    ) -> InsertResult:
        self._refuse_host_tier([node_id])

    def _refuse_host_tier(self, node_ids: Sequence[NodeId]) -> NoReturn:
        self._native.check_nodes(node_ids)
        _unsupported_host_tier()

    # --- Other components -----------------------------------------------------------------

    def dec_window_lock_only(
        self, node_id: NodeId, component_type: ComponentType, params: DecLockRefParams
    ) -> DecSwaLockOnlyResult:
        self._native.dec_window_lock_only(node_id, component_type, params)
        raise AssertionError("the native core lets this call pass")

    def finish_mamba_state_eviction(self, node_id: NodeId) -> EvictDeviceNextNodeResult:
        self._refuse_component(node_id, ComponentType.MAMBA)

    def finish_swa_state_eviction(self, node_id: NodeId) -> EvictDeviceNextNodeResult:
        self._refuse_component(node_id, ComponentType.SWA)

    def evict_excess_path_states(
        self,
        tail_node_id: NodeId,
        device_frees: Frees,
        host_frees: Frees,
        cache_actions: list[CacheAction],
    ) -> None:
        self._refuse_component(tail_node_id, ComponentType.MAMBA)

    def set_component_device_value(
        self, node_id: NodeId, component_type: ComponentType, value: torch.Tensor
    ) -> None:
        self._native.set_component_device_value(node_id, component_type, value)

    def component_has_host_value_only(self, node_id: NodeId, component_type: ComponentType) -> bool:
        return self._native.component_has_host_value_only(node_id, component_type)

    def all_mamba_values_flatten(self) -> torch.Tensor:
        self._native.root()
        return torch.empty(0, dtype=torch.int64, device=self._device)

    def swa_tombstone_ranges(
        self,
        key: RadixKey,
        start: int,
        end: int,
        component_type: ComponentType = ComponentType.SWA,
    ) -> list[tuple[int, int]]:
        self._refuse_span(component_type)

    def attach_swa_window(
        self,
        key: RadixKey,
        window_start: int,
        window_end: int,
        swa_values: torch.Tensor,
        component_type: ComponentType = ComponentType.SWA,
    ) -> list[CacheAction]:
        self._refuse_span(component_type)

    # --- Neither --------------------------------------------------------------------------

    def node_by_id(self, node_id: NodeId) -> Any:
        raise UnsupportedError("nodes of the Rust core are not objects")

    def _refuse_component(self, node_id: NodeId, component_type: ComponentType) -> NoReturn:
        """What a call for a component that the tree lacks comes to."""
        self._native.refuse_component(node_id, component_type)
        raise AssertionError("the native core lets this call pass")

    def _refuse_span(self, component_type: ComponentType) -> NoReturn:
        self._native.refuse_span(component_type)
        raise AssertionError("the native core lets this call pass")


def _unsupported_host_tier() -> NoReturn:
    raise UnsupportedError("the Rust core has no host tier")
