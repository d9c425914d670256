"""What the Rust core lacks: the host tier.

A call for it is checked as far as it goes, then refused or answered with "nothing". These
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
    DemoteResult,
    DriveHostEvictionResult,
    EvictDeviceNextNodeResult,
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


class DeviceTierOnly(TreeCore):
    """The part of the interface that needs a host tier."""

    _native: NativeTreeCore
    _components: tuple[ComponentType, ...]
    _has_swa_host_pool = False

    # --- Host tier ------------------------------------------------------------------------

    @property
    def enable_hicache(self) -> bool:  # type: ignore[override]
        return False

    @property
    def has_swa_host_pool(self) -> bool:
        return self._has_swa_host_pool

    @has_swa_host_pool.setter
    def has_swa_host_pool(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise TypeError("has_swa_host_pool must be a bool")
        if value and ComponentType.SWA not in self._components:
            _unsupported_host_tier()
        if self._has_swa_host_pool and not value:
            raise ContractError("a window's host pool stays once it is there (SWA-C6)")
        self._has_swa_host_pool = value

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
        return DriveHostEvictionResult(tracker={component_type: 0} if has_component else {})

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

    def finish_mamba_state_eviction(self, node_id: NodeId) -> EvictDeviceNextNodeResult:
        self._native.finish_state_eviction(node_id, ComponentType.MAMBA)
        raise AssertionError("the native core lets this call pass")

    def finish_swa_state_eviction(self, node_id: NodeId) -> EvictDeviceNextNodeResult:
        self._native.finish_state_eviction(node_id, ComponentType.SWA)
        raise AssertionError("the native core lets this call pass")

    def component_has_host_value_only(self, node_id: NodeId, component_type: ComponentType) -> bool:
        return self._native.component_has_host_value_only(node_id, component_type)

    # --- Objects --------------------------------------------------------------------------

    def node_by_id(self, node_id: NodeId) -> Any:
        raise UnsupportedError("nodes of the Rust core are not objects")


def _unsupported_host_tier() -> NoReturn:
    raise UnsupportedError("the Rust core has no host tier")
