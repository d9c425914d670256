"""Sizes, values and paths: what callers read from the tree (SIZE, FLAT, PATH, ORD, NODE)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..contract import (
    CacheAction,
    ComponentType,
    ContractError,
    InvalidArgumentError,
    NodeId,
    RadixCacheWalkResult,
    RadixKey,
    TreePathNodeInfo,
    UnsupportedError,
)
from . import arguments
from .base import CoreBase, lacking
from .canary import canary_rows
from .node import Node
from .order import weight_order


class ValueCalls(CoreBase):
    """The calls that read sizes, values and paths, and the one that corrects a size."""

    # --- Sizes ----------------------------------------------------------------------------

    def component_evictable_size(self, component_type: ComponentType) -> int:
        """Tokens that no lock holds; 0 for a component that the core lacks (SIZE-1, SIZE-2)."""
        component = self._find_component(arguments.component(component_type))
        return 0 if component is None else component.evictable

    def component_protected_size(self, component_type: ComponentType) -> int:
        """Tokens that a lock holds; 0 for a component that the core lacks (SIZE-1, SIZE-2)."""
        component = self._find_component(arguments.component(component_type))
        return 0 if component is None else component.protected

    def total_size(self) -> tuple[int, int]:
        """FULL device tokens, and 0: there are no other components (SIZE-4)."""
        return sum(node.length for node in self._tree.pre_order()), 0

    def adjust_component_size(
        self, node_id: NodeId, component_type: ComponentType, delta: int
    ) -> None:
        """Correct the ledger that counts this node by `delta` tokens (SIZE-5).

        Raises `InvalidArgumentError` for a component that the core lacks and for a result that
        is negative or beyond 64 unsigned bits.
        """
        arguments.handle(node_id)
        component_type = arguments.component(component_type)
        delta = arguments.signed(delta, "delta")
        node = self._node(node_id)
        if component_type != ComponentType.FULL:
            raise InvalidArgumentError(f"this core was built without {component_type.name}")
        if node is self._tree.root:
            return
        full = self._tree.full
        is_locked = node.full.lock_ref > 0
        size = (full.protected if is_locked else full.evictable) + delta
        if not 0 <= size <= arguments.UNSIGNED_MAX:
            raise InvalidArgumentError(f"a size can't become {size}")
        if is_locked:
            full.protected = size
        else:
            full.evictable = size

    # --- Nodes ----------------------------------------------------------------------------

    def root_node_handle(self, extra_key: str | None = None) -> NodeId:
        """The one root of all namespaces (KEY-25)."""
        arguments.optional_text(extra_key, "extra_key")
        return self._tree.root.id

    def node_by_id(self, node_id: NodeId) -> Any:
        """Raise `UnsupportedError`: nodes are private."""
        raise UnsupportedError("this core shows no node objects")

    def is_root(self, node_id: NodeId) -> bool:
        """Whether the handle is the root's (NODE-6)."""
        return self._node(node_id) is self._tree.root

    def is_backuped(self, node_id: NodeId) -> bool:
        """False for every node: this core has no host tier (NODE-6)."""
        self._node(node_id)
        return False

    def is_full_device_evicted(self, node_id: NodeId) -> bool:
        """False for every node: all of them are on the device (NODE-6)."""
        self._node(node_id)
        return False

    def is_write_through_compatible(self) -> bool:
        """Always True: no node has a host copy (NODE-14)."""
        return True

    def rotation_base_of(self, node_id: NodeId) -> int | None:
        """The base stamped at the node's creation (NODE-9)."""
        return self._node(node_id).rotation_base

    def rotation_phase_of(self, node_id: NodeId) -> int | None:
        """Base plus the pages above the node; None without a base (NODE-9)."""
        node = self._node(node_id)
        if node.rotation_base is None:
            return None
        units_above = sum(each.length for each in self._path(node)) - node.length
        return node.rotation_base + units_above // self.page_size

    # --- Values ---------------------------------------------------------------------------

    def get_component_device_value(
        self, node_id: NodeId, component_type: ComponentType
    ) -> torch.Tensor | None:
        """The tree's own tensor, not a copy; None for the root (SIZE-8, BND-29)."""
        arguments.handle(node_id)
        component_type = arguments.component(component_type)
        node = self._node(node_id)
        self._component(component_type)
        return node.full.device_value

    def set_component_device_value(
        self, node_id: NodeId, component_type: ComponentType, value: torch.Tensor
    ) -> None:
        """Raise `ContractError`: FULL can't be set, and there is nothing else (SIZE-7)."""
        arguments.handle(node_id)
        component_type = arguments.component(component_type)
        arguments.tensor(value, "value")
        self._node(node_id)
        self._component(component_type)
        raise ContractError("FULL's value is set by inserts alone")

    def component_has_host_value_only(self, node_id: NodeId, component_type: ComponentType) -> bool:
        """False for every node: this core has no host tier (SIZE-9)."""
        arguments.handle(node_id)
        component_type = arguments.component(component_type)
        self._node(node_id)
        self._component(component_type)
        return False

    def all_values_flatten(self) -> torch.Tensor:
        """All FULL device indices in pre-order (FLAT-2)."""
        return self._concatenate(list(self._tree.pre_order()))

    def all_mamba_values_flatten(self) -> torch.Tensor:
        """An empty tensor: there is no MAMBA component (FLAT-3)."""
        return self._concatenate([])

    def walk_for_kv_canary(
        self, unlocked_only: bool, swa_resident_only: bool
    ) -> RadixCacheWalkResult:
        """One row per device slot: slot, position, slot before it (FLAT-4 to FLAT-6).

        There is no window component, so `swa_resident_only` leaves nothing out.
        """
        arguments.flag(swa_resident_only, "swa_resident_only")
        return canary_rows(self._tree, arguments.flag(unlocked_only, "unlocked_only"))

    def _concatenate(self, nodes: Sequence[Node]) -> torch.Tensor:
        """A fresh tensor of the nodes' FULL values."""
        values = [node.full.device_value for node in nodes]
        present = [value for value in values if value is not None]
        if not present:
            return torch.empty(0, dtype=torch.int64, device=self.device)
        return torch.cat(present)

    # --- Paths and order ------------------------------------------------------------------

    def _path(self, node: Node) -> list[Node]:
        """The nodes from the root's child down to `node`; empty for the root."""
        path = []
        while node.parent is not None:
            path.append(node)
            node = node.parent
        path.reverse()
        return path

    def collect_full_device_indices(
        self, from_node_id: NodeId, until_node_id: NodeId
    ) -> torch.Tensor:
        """FULL device indices below `until` down to `from`, as a fresh tensor (PATH-11).

        Raises `ContractError` if `until` is neither `from` nor above it.
        """
        node, until = self._nodes((from_node_id, until_node_id))
        path = self._path(node)
        if until is not self._tree.root:
            if until not in path:
                raise ContractError(f"node {until.id} is not above node {node.id}")
            path = path[path.index(until) + 1 :]
        return self._concatenate(path)

    def collect_path_info(
        self, end_node_ids: Sequence[NodeId]
    ) -> tuple[tuple[TreePathNodeInfo, ...], ...]:
        """The path from the root's child to each handle (PATH-10)."""
        return tuple(self._path_info(node) for node in self._nodes(end_node_ids))

    def _path_info(self, node: Node) -> tuple[TreePathNodeInfo, ...]:
        infos = []
        start = 0
        for each in self._path(node):
            assert each.parent is not None
            end = start + each.length
            infos.append(
                TreePathNodeInfo(
                    each.id, each.parent.id, start, end, each.length, len(each.children)
                )
            )
            start = end
        return tuple(infos)

    def dfs_weight_order(self, node_ids: Sequence[NodeId]) -> list[int]:
        """Input positions in order of shared subtrees (ORD-1 to ORD-3)."""
        return weight_order(self._tree.root, self._nodes(node_ids))

    # --- Window spans ---------------------------------------------------------------------

    def swa_tombstone_ranges(
        self,
        key: RadixKey,
        start: int,
        end: int,
        component_type: ComponentType = ComponentType.SWA,
    ) -> list[tuple[int, int]]:
        """Raise `ContractError`: this core has no window component."""
        raise lacking(arguments.component(component_type))

    def attach_swa_window(
        self,
        key: RadixKey,
        window_start: int,
        window_end: int,
        swa_values: torch.Tensor,
        component_type: ComponentType = ComponentType.SWA,
    ) -> list[CacheAction]:
        """Raise `ContractError`: this core has no window component."""
        raise lacking(arguments.component(component_type))
