"""The host tier's calls, which this core refuses (HIC, BKP, LDB, XFER, HINS).

Handles are checked first, so that an unknown one is reported as such. Calls whose answer without
a host tier is no refusal give that answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from ..contract import (
    CacheAction,
    CacheTransferPhase,
    ComponentTransfers,
    ComponentType,
    InsertResult,
    NodeId,
    PoolTransfer,
    PoolTransferResult,
    RadixKey,
    StorageBackupSpec,
    UnsupportedError,
)
from . import arguments
from .base import CoreBase


class HostTierCalls(CoreBase):
    """The calls that copy between device and host."""

    def set_hicache_enabled(self) -> None:
        """Raise `UnsupportedError`: this core has no host tier."""
        _refuse()

    def set_host_memory_buffer_only(self) -> None:
        """Announce every split from now on (HIC-2, BUF-2)."""
        self._tree.settings.is_host_memory_buffer_only = True

    def build_storage_backup_spec(
        self, node_id: NodeId, pass_prefix_keys: bool
    ) -> StorageBackupSpec | None:
        """None for every node: storage is filled from host copies (STO-30)."""
        arguments.handle(node_id)
        arguments.flag(pass_prefix_keys, "pass_prefix_keys")
        self._node(node_id)
        return None

    def prefetch_anchor_info(self, node_id: NodeId) -> tuple[str | None, str | None]:
        """The node's `extra_key` and `cache_salt` (STO-13)."""
        return self._node(node_id).namespace or (None, None)

    def build_backup_spec(self, node_id: NodeId) -> tuple[torch.Tensor, ComponentTransfers]:
        """Raise `UnsupportedError`: this core has no host tier."""
        self._node(node_id)
        _refuse()

    def commit_backup(
        self, node_id: NodeId, host_indices: torch.Tensor, comp_xfers: ComponentTransfers
    ) -> None:
        """Raise `UnsupportedError`: this core has no host tier."""
        self._node(node_id)
        _refuse()

    def mark_write_through_pending(self, node_ids: list[NodeId], ack_id: NodeId) -> list[NodeId]:
        """Raise `UnsupportedError`: this core has no host tier."""
        self._nodes(node_ids)
        _refuse()

    def finish_write_through(self, node_ids: list[NodeId], ack_id: int) -> None:
        """Raise `UnsupportedError`: this core has no host tier."""
        self._nodes(node_ids)
        _refuse()

    def build_load_back_spec(
        self, node_id: NodeId, req: Any = None
    ) -> tuple[PoolTransfer, ComponentTransfers]:
        """Raise `UnsupportedError`: this core has no host tier."""
        self._node(node_id)
        _refuse()

    def commit_load_back(
        self,
        node_id: NodeId,
        device_indices: torch.Tensor,
        kv_xfer: PoolTransfer,
        comp_xfers: ComponentTransfers,
    ) -> list[CacheAction]:
        """Raise `UnsupportedError`: this core has no host tier."""
        self._node(node_id)
        _refuse()

    def finish_load_back(self, anchor_node_id: NodeId) -> None:
        """Raise `UnsupportedError`: this core has no host tier."""
        self._node(anchor_node_id)
        _refuse()

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
        """Raise `UnsupportedError`: this core has no host tier."""
        self._node(node_id)
        _refuse()

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
        """Raise `UnsupportedError`: this core has no host tier."""
        self._node(node_id)
        _refuse()

    def insert_host(
        self, node_id: NodeId, key: RadixKey, host_value: torch.Tensor, hash_value: list[str]
    ) -> InsertResult:
        """Raise `UnsupportedError`: this core has no host tier."""
        self._node(node_id)
        _refuse()


def _refuse() -> NoReturn:
    raise UnsupportedError("this core has no host tier")
