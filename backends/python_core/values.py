"""Sizes, values and paths: what callers read from the tree (SIZE, FLAT, PATH, ORD, NODE)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..contract import (
    ComponentType,
    ContractError,
    InvalidArgumentError,
    NodeId,
    RadixCacheWalkResult,
    TreePathNodeInfo,
    UnsupportedError,
)
from . import arguments
from .auxiliary import AuxiliaryComponent
from .base import CoreBase
from .canary import canary_rows
from .node import ComponentData, Node
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
        """FULL device tokens, and the entries of all other device values (SIZE-4)."""
        full_size = auxiliary_size = 0
        for node in self._tree.pre_order():
            full_size += node.length
            for data in node.auxiliary:
                if data.device_value is not None:
                    auxiliary_size += len(data.device_value)
        return full_size, auxiliary_size

    def adjust_component_size(
        self, node_id: NodeId, component_type: ComponentType, delta: int
    ) -> None:
        """Correct the ledger that counts this node by `delta` tokens or states (SIZE-5).

        Nothing on the root and on a node without a value. Raises `InvalidArgumentError` for a
        component that the core lacks and for a result that is negative or beyond 64 unsigned bits.
        """
        arguments.handle(node_id)
        component_type = arguments.component(component_type)
        delta = arguments.signed(delta, "delta")
        node = self._node(node_id)
        component = self._find_component(component_type)
        if component is None:
            raise InvalidArgumentError(f"this core was built without {component_type.name}")
        data = component.data(node)
        if data.device_value is None:
            return
        is_locked = data.lock_ref > 0
        size = (component.protected if is_locked else component.evictable) + delta
        if not 0 <= size <= arguments.UNSIGNED_MAX:
            raise InvalidArgumentError(f"a size can't become {size}")
        if is_locked:
            component.protected = size
        else:
            component.evictable = size

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
        return self._component(component_type).data(node).device_value

    def set_component_device_value(
        self, node_id: NodeId, component_type: ComponentType, value: torch.Tensor
    ) -> None:
        """Store a value on a node that has none of this component; it is not copied (SIZE-7).

        Raises `ContractError` for FULL, the root, a node with a value and a wrong length,
        `InvalidArgumentError` for a tensor that is not 1-D int64 on the core's device.
        """
        arguments.handle(node_id)
        component_type = arguments.component(component_type)
        arguments.device_indices(arguments.tensor(value, "value"), self.device, 0)
        node = self._node(node_id)
        component = self._component(component_type)
        if not isinstance(component, AuxiliaryComponent):
            raise ContractError("FULL's value is set by inserts alone")
        if node is self._tree.root or component.data(node).device_value is not None:
            name = component_type.name
            raise ContractError(f"node {node.id} is the root, or has a value of {name} already")
        if len(value) != component.value_length(node):
            raise ContractError(f"{len(value)} entries do not fit node {node.id}")
        component.store(node, value)

    def component_has_host_value_only(self, node_id: NodeId, component_type: ComponentType) -> bool:
        """False for every node: this core has no host tier (SIZE-9)."""
        arguments.handle(node_id)
        component_type = arguments.component(component_type)
        self._node(node_id)
        self._component(component_type)
        return False

    def all_values_flatten(self) -> torch.Tensor:
        """All FULL device indices in pre-order (FLAT-2)."""
        return self._concatenate(node.full for node in self._tree.pre_order())

    def all_mamba_values_flatten(self) -> torch.Tensor:
        """All MAMBA device indices in pre-order; empty in a core without MAMBA (FLAT-3)."""
        component = self._find_component(ComponentType.MAMBA)
        if component is None:
            return self._concatenate([])
        return self._concatenate(component.data(node) for node in self._tree.pre_order())

    def walk_for_kv_canary(
        self, unlocked_only: bool, swa_resident_only: bool
    ) -> RadixCacheWalkResult:
        """One row per device slot: slot, position, slot before it (FLAT-4 to FLAT-6).

        `swa_resident_only` leaves out the nodes that have no window value, in a core with windows.
        """
        arguments.flag(swa_resident_only, "swa_resident_only")
        arguments.flag(unlocked_only, "unlocked_only")
        window = self._find_component(ComponentType.SWA) if swa_resident_only else None
        return canary_rows(self._tree, unlocked_only, window)

    def _concatenate(self, records: Iterable[ComponentData]) -> torch.Tensor:
        """A fresh tensor of the values that there are."""
        values = [data.device_value for data in records]
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
        return self._concatenate(each.full for each in path)

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
