"""The part of the plug that only asks: values, paths, order, hashes and checks.

Hides conversion of queries' answers. A device value is handed out as a copy, because the tree
keeps the tensor that it answers with (BND-29).
"""

# ruff: noqa: D102 -- the contract documents the methods of a core.

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..contract import (
    BufferBackupSnapshot,
    BufferBackupState,
    CacheAction,
    ComponentType,
    NodeId,
    PoolName,
    RadixCacheWalkResult,
    RadixKey,
    TreeCore,
    TreePathNodeInfo,
    UnsupportedError,
)
from .call import ReleasedCall
from .values import Values


class QueryCalls(TreeCore):
    """Read-only methods of a released core, and the few that name spans of a key."""

    flavour: str
    _call: ReleasedCall
    _values: Values

    def root_node_handle(self, extra_key: str | None = None) -> NodeId:
        optional = {} if extra_key is None else {"extra_key": extra_key}
        return int(self._call("root_node_handle", **optional))

    def node_by_id(self, node_id: NodeId) -> Any:
        return self._call("node_by_id", node_id)

    def is_root(self, node_id: NodeId) -> bool:
        return bool(self._call("is_root", node_id))

    def is_backuped(self, node_id: NodeId) -> bool:
        return bool(self._call("is_backuped", node_id))

    def is_full_device_evicted(self, node_id: NodeId) -> bool:
        return bool(self._call("is_full_device_evicted", node_id))

    def is_write_through_compatible(self) -> bool:
        return bool(self._call("is_write_through_compatible"))

    def get_component_device_value(
        self, node_id: NodeId, component_type: ComponentType
    ) -> torch.Tensor | None:
        component = self._values.component_in(component_type)
        value = self._call("get_component_device_value", node_id, component)
        # The Python core answers with an empty list for FULL on the root (D16).
        return value.clone() if isinstance(value, torch.Tensor) else None

    def set_component_device_value(
        self, node_id: NodeId, component_type: ComponentType, value: torch.Tensor
    ) -> None:
        component = self._values.component_in(component_type)
        # The tree keeps the tensor that it is given (BND-29).
        given = value.clone() if isinstance(value, torch.Tensor) else value
        self._call("set_component_device_value", node_id, component, given)

    def component_has_host_value_only(self, node_id: NodeId, component_type: ComponentType) -> bool:
        component = self._values.component_in(component_type)
        return bool(self._call("component_has_host_value_only", node_id, component))

    def collect_full_device_indices(
        self, from_node_id: NodeId, until_node_id: NodeId
    ) -> torch.Tensor:
        value: torch.Tensor = self._call("collect_full_device_indices", from_node_id, until_node_id)
        return value

    def collect_path_info(
        self, end_node_ids: Sequence[NodeId]
    ) -> tuple[tuple[TreePathNodeInfo, ...], ...]:
        convert = self._values.result_out
        paths = self._call("collect_path_info", list(end_node_ids))
        return tuple(tuple(convert(node) for node in path) for path in paths)

    def dfs_weight_order(self, node_ids: Sequence[NodeId]) -> list[int]:
        return list(self._call("dfs_weight_order", list(node_ids)))

    def all_values_flatten(self) -> torch.Tensor:
        value: torch.Tensor = self._call("all_values_flatten")
        return value

    def all_mamba_values_flatten(self) -> torch.Tensor:
        value: torch.Tensor = self._call("all_mamba_values_flatten")
        return value

    def walk_for_kv_canary(
        self, unlocked_only: bool, swa_resident_only: bool
    ) -> RadixCacheWalkResult:
        rows: RadixCacheWalkResult = self._values.result_out(
            self._call("walk_for_kv_canary", unlocked_only, swa_resident_only)
        )
        return rows

    # --- Window spans ---------------------------------------------------------------------

    def swa_tombstone_ranges(
        self,
        key: RadixKey,
        start: int,
        end: int,
        component_type: ComponentType = ComponentType.SWA,
    ) -> list[tuple[int, int]]:
        given = self._values.key_in(key)
        ranges = self._call(
            "swa_tombstone_ranges", given, start, end, **self._window(component_type)
        )
        return [(first, last) for first, last in ranges]

    def attach_swa_window(
        self,
        key: RadixKey,
        window_start: int,
        window_end: int,
        swa_values: torch.Tensor,
        component_type: ComponentType = ComponentType.SWA,
    ) -> list[CacheAction]:
        given = self._values.key_in(key)
        optional = self._window(component_type)
        actions = self._call(
            "attach_swa_window", given, window_start, window_end, swa_values, **optional
        )
        return self._values.actions_out(actions)

    def _window(self, component_type: ComponentType) -> dict[str, Any]:
        if component_type is ComponentType.SWA:
            return {}
        return {"component_type": self._values.component_in(component_type)}

    # --- Hashes and rotation --------------------------------------------------------------

    def get_last_hash_value(self, node_id: NodeId) -> str | None:
        value: str | None = self._call("get_last_hash_value", node_id)
        return value

    def get_hash_values(self, node_id: NodeId) -> list[str]:
        return list(self._call("get_hash_values", node_id))

    def get_prefix_hash_values(self, node_id: NodeId) -> list[str]:
        return list(self._call("get_prefix_hash_values", node_id))

    def backfill_missing_hash_values(self) -> int:
        return int(self._call("backfill_missing_hash_values"))

    def snapshot_buffer_backup(
        self, node_id: NodeId, pass_prefix_keys: bool
    ) -> BufferBackupSnapshot | None:
        found = self._call("snapshot_buffer_backup", node_id, pass_prefix_keys)
        return None if found is None else self._values.result_out(found)

    def validate_buffer_backup(
        self, node_id: NodeId, expected_key_length: int
    ) -> BufferBackupState | None:
        found = self._call("validate_buffer_backup", node_id, expected_key_length)
        return None if found is None else self._values.result_out(found)

    def buffer_backup_pool_keys(
        self, node_id: NodeId, hash_values: list[str]
    ) -> dict[ComponentType, dict[PoolName, list[str]]]:
        if self._call.lacks("buffer_backup_pool_keys"):
            return super().buffer_backup_pool_keys(node_id, hash_values)
        if self.flavour == "python" and self.is_host_memory_buffer_only and self.has_swa_host_pool:
            raise UnsupportedError(
                "the released Python core asks the window's host pool, and none is plugged in"
            )
        found = self._call("buffer_backup_pool_keys", node_id, list(hash_values))
        return {
            self._values.component_out(component): {
                self._values.pool_out(pool): list(keys) for pool, keys in pools.items()
            }
            for component, pools in found.items()
        }

    def rotation_base_of(self, node_id: NodeId) -> int | None:
        if self._call.lacks("rotation_base_of"):
            return super().rotation_base_of(node_id)
        value: int | None = self._call("rotation_base_of", node_id)
        return value

    def rotation_phase_of(self, node_id: NodeId) -> int | None:
        if self._call.lacks("rotation_phase_of"):
            return super().rotation_phase_of(node_id)
        value: int | None = self._call("rotation_phase_of", node_id)
        return value

    # --- Checking -------------------------------------------------------------------------

    def sanity_check(
        self,
        ongoing_write_through: list[tuple[int, NodeId]],
        ongoing_load_back: list[tuple[int, NodeId]],
    ) -> None:
        self._call("sanity_check", list(ongoing_write_through), list(ongoing_load_back))

    def pretty_print(self) -> None:
        self._call("pretty_print")
