"""The part of the plug that speaks of host memory, storage and the external linker.

Hides the conversion of transfers. Released cores keep their own transfer objects: what a spec
handed out is rebuilt on its way back in.
"""

# ruff: noqa: D102 -- the contract documents the methods of a core.

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..contract import (
    BackupKV,
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
    TreeCore,
)
from .call import ReleasedCall
from .values import Values


class HostTierCalls(TreeCore):
    """Host tier, storage and linker methods of a released core."""

    _call: ReleasedCall
    _values: Values

    def build_backup_kv_action(self, node_id: NodeId) -> BackupKV:
        action: BackupKV = self._values.action_out(self._call("build_backup_kv_action", node_id))
        return action

    def build_backup_spec(self, node_id: NodeId) -> tuple[torch.Tensor, ComponentTransfers]:
        value, transfers = self._call("build_backup_spec", node_id)
        # The tree keeps the tensors that it answers with (BND-29).
        return value.clone(), self._values.transfers_out(transfers)

    def commit_backup(
        self, node_id: NodeId, host_indices: torch.Tensor, comp_xfers: ComponentTransfers
    ) -> None:
        transfers = self._values.transfers_in(comp_xfers)
        self._call("commit_backup", node_id, host_indices, transfers)

    def mark_write_through_pending(self, node_ids: list[NodeId], ack_id: NodeId) -> list[NodeId]:
        return list(self._call("mark_write_through_pending", list(node_ids), ack_id))

    def finish_write_through(self, node_ids: list[NodeId], ack_id: int) -> None:
        self._call("finish_write_through", list(node_ids), ack_id)

    def build_load_back_spec(
        self, node_id: NodeId, req: Any = None
    ) -> tuple[PoolTransfer, ComponentTransfers]:
        optional = {} if req is None else {"req": req}
        kv_transfer, transfers = self._call("build_load_back_spec", node_id, **optional)
        return self._values.result_out(kv_transfer), self._values.transfers_out(transfers)

    def commit_load_back(
        self,
        node_id: NodeId,
        device_indices: torch.Tensor,
        kv_xfer: PoolTransfer,
        comp_xfers: ComponentTransfers,
    ) -> list[CacheAction]:
        kv_transfer = self._values.param_in(kv_xfer)
        transfers = self._values.transfers_in(comp_xfers)
        actions = self._call("commit_load_back", node_id, device_indices, kv_transfer, transfers)
        return self._values.actions_out(actions)

    def finish_load_back(self, anchor_node_id: NodeId) -> None:
        self._call("finish_load_back", anchor_node_id)

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
        given = {
            "host_indices": host_indices,
            "token_ids": token_ids,
            "prefetch_tokens": prefetch_tokens,
            "staging_tokens": staging_tokens,
            "last_hash": last_hash,
        }
        optional = {
            name: value
            for name, value in given.items()
            if value is not None and not (isinstance(value, int) and value == 0)
        }
        component = self._values.component_in(component_type)
        direction = self._values.phase_in(phase)
        found = self._call("build_hicache_transfers", component, node_id, direction, **optional)
        return None if found is None else [self._values.result_out(item) for item in found]

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
        actions: list[Any] = []
        optional: dict[str, Any] = {"cache_actions": actions}
        if insert_result is not None:
            optional["insert_result"] = self._values.param_in(insert_result)
        if pool_storage_result is not None:
            optional["pool_storage_result"] = self._values.param_in(pool_storage_result)
        transfers, direction = self._values.transfers_in(comp_xfers), self._values.phase_in(phase)
        self._call("commit_hicache_transfers", node_id, direction, transfers, **optional)
        if insert_result is not None:
            # The core answers through the caller's own result (BND-18).
            insert_result.mamba_exist = optional["insert_result"].mamba_exist
        cache_actions.extend(self._values.actions_out(actions))

    def build_storage_backup_spec(
        self, node_id: NodeId, pass_prefix_keys: bool
    ) -> StorageBackupSpec | None:
        found = self._call("build_storage_backup_spec", node_id, pass_prefix_keys)
        return None if found is None else self._values.result_out(found)

    def prefetch_anchor_info(self, node_id: NodeId) -> tuple[str | None, str | None]:
        extra_key, cache_salt = self._call("prefetch_anchor_info", node_id)
        return extra_key, cache_salt

    def insert_host(
        self, node_id: NodeId, key: RadixKey, host_value: torch.Tensor, hash_value: list[str]
    ) -> InsertResult:
        given = self._values.key_in(key)
        hashes = list(hash_value) if hash_value is not None else hash_value
        result: InsertResult = self._values.result_out(
            self._call("insert_host", node_id, given, host_value, hashes)
        )
        return result

    # --- External cache linker ------------------------------------------------------------

    def build_external_linker_offload_transfers(self, node_id: NodeId) -> list[PoolTransfer] | None:
        found = self._call("build_external_linker_offload_transfers", node_id)
        return None if found is None else [self._values.result_out(item) for item in found]

    def mark_external_linker_offload_pending(self, node_id: NodeId) -> None:
        self._call("mark_external_linker_offload_pending", node_id)

    def finish_external_linker_offload(
        self, node_ids: Sequence[NodeId], ack_id: NodeId, success: bool
    ) -> None:
        self._call("finish_external_linker_offload", list(node_ids), ack_id, success)

    def mark_external_cache_stored_path(self, from_node_id: NodeId, until_node_id: NodeId) -> None:
        self._call("mark_external_cache_stored_path", from_node_id, until_node_id)
