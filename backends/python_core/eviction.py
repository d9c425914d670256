"""Eviction: walks over device leaves and the removal of one leaf (EVD, EVH-6)."""

from __future__ import annotations

from ..contract import (
    BackupKV,
    CacheAction,
    ComponentType,
    ContractError,
    DemoteResult,
    DriveHostEvictionResult,
    DropSubtreeNoHostResult,
    EvictDeviceLeafResult,
    EvictDeviceNextNodeResult,
    Frees,
    NodeId,
)
from . import arguments
from .auxiliary import AuxiliaryComponent
from .base import CoreBase
from .cascade import evict_inner
from .component import Component
from .mamba import MambaComponent
from .node import Node


class EvictionCalls(CoreBase):
    """The calls that make room on the device."""

    # --- Walks ----------------------------------------------------------------------------

    def evict_device_start(self, component_type: ComponentType, request_cnt: int) -> None:
        """Open a walk for `request_cnt` tokens; `ContractError` if one is open (EVD-1)."""
        component_type = arguments.component(component_type)
        request_cnt = arguments.unsigned(request_cnt, "request_cnt")
        component = self._component(component_type)
        if component.has_open_walk:
            raise ContractError(f"a walk of {component_type.name} is open already")
        component.open_walk(request_cnt)

    def evict_device_next_node(
        self, component_type: ComponentType, tracker: dict[ComponentType, int]
    ) -> EvictDeviceNextNodeResult:
        """One step: a leaf to evict, an inner node's value, or nothing at the end (EVD-4, EVD-40).

        Raises `ContractError`, and the walk stays where it is, if a lock came in the way.
        """
        component_type = arguments.component(component_type)
        evicted = arguments.counts(tracker, "tracker")
        component = self._open_walk(component_type)
        victim = component.next_victim(evicted.get(component_type, 0))
        if victim is None:
            return EvictDeviceNextNodeResult()
        if victim in self._tree.device_leaves or not isinstance(component, AuxiliaryComponent):
            return EvictDeviceNextNodeResult(node_id=victim.id, made_progress=True)
        frees = evict_inner(component, victim)
        return EvictDeviceNextNodeResult(
            device_frees=frees, tracker=_counts(frees), made_progress=True
        )

    def evict_device_end(self, component_type: ComponentType) -> None:
        """Close the walk; `ContractError` if none is open (EVD-3)."""
        self._open_walk(arguments.component(component_type)).close_walk()

    def _open_walk(self, component_type: ComponentType) -> Component:
        component = self._component(component_type)
        if not component.has_open_walk:
            raise ContractError(f"no walk of {component_type.name} is open")
        return component

    # --- One leaf -------------------------------------------------------------------------

    def evict_device_leaf(self, node_id: NodeId, is_write_back: bool) -> EvictDeviceLeafResult:
        """Delete a device leaf, or ask for its backup under write-back (EVD-17 to EVD-22).

        Raises `ContractError` if the mode is not the core's or the node is not a device leaf.
        """
        arguments.handle(node_id)
        arguments.flag(is_write_back, "is_write_back")
        node = self._node(node_id)
        if is_write_back != self.is_write_back:
            raise ContractError(f"is_write_back is {self.is_write_back} in this core")
        self._check_device_leaf(node)
        if is_write_back:
            return EvictDeviceLeafResult(backup_kv=BackupKV([node.id]))
        frees = self._tree.delete_leaf(node)
        return EvictDeviceLeafResult(
            device_frees=frees,
            tracker=self._evicted_counts(frees),
            # No node of this core has a host copy, so every token is lost (EVD-18).
            unbacked_tokens=node.length,
        )

    def demote(self, node_id: NodeId) -> DemoteResult:
        """Raise `ContractError`: no node of this core has a host copy to keep (EVD-25)."""
        node = self._node(node_id)
        raise ContractError(f"node {node.id} has no host value to demote to")

    def drop_subtree_no_host(self, node_id: NodeId) -> DropSubtreeNoHostResult:
        """Delete an unbacked device leaf unless it is host-locked (EVD-33 to EVD-35).

        Raises `ContractError` if the node is not a device leaf or has a backup in flight.
        """
        node = self._node(node_id)
        self._check_device_leaf(node)
        if node.write_through_pending_id is not None:
            raise ContractError(f"node {node.id} has a backup in flight")
        if any(each.data(node).host_lock_ref > 0 for each in self._tree.components):
            return DropSubtreeNoHostResult()
        # A device leaf of this core has no descendants: all nodes are on the device.
        frees = self._tree.delete_leaf(node)
        return DropSubtreeNoHostResult(
            device_frees=frees, tracker=self._evicted_counts(frees), is_dropped=True
        )

    def _check_device_leaf(self, node: Node) -> None:
        if node not in self._tree.device_leaves:
            raise ContractError(f"node {node.id} is not an unlocked leaf on the device")

    def _evicted_counts(self, frees: Frees) -> dict[ComponentType, int]:
        """An entry for every component, zeros included (EVD-22)."""
        return {each.component_type: 0 for each in self._tree.components} | _counts(frees)

    # --- Host and other components --------------------------------------------------------

    def drive_host_eviction(
        self, component_type: ComponentType, num_tokens: int
    ) -> DriveHostEvictionResult:
        """Free nothing: no node is on the host (EVH-6)."""
        component_type = arguments.component(component_type)
        arguments.unsigned(num_tokens, "num_tokens")
        if self._find_component(component_type) is None:
            return DriveHostEvictionResult()
        return DriveHostEvictionResult(tracker={component_type: 0})

    def finish_mamba_state_eviction(self, node_id: NodeId) -> EvictDeviceNextNodeResult:
        """Raise `ContractError`: without a host tier no walk waits for a backup (EVD-41)."""
        self._node(node_id)
        self._open_walk(ComponentType.MAMBA)
        raise ContractError(f"no walk waits for a backup of node {node_id}")

    def finish_swa_state_eviction(self, node_id: NodeId) -> EvictDeviceNextNodeResult:
        """Raise `ContractError`: without a host tier no walk waits for a backup (EVD-41)."""
        self._node(node_id)
        self._open_walk(ComponentType.SWA)
        raise ContractError(f"no walk waits for a backup of node {node_id}")

    def evict_excess_path_states(
        self,
        tail_node_id: NodeId,
        device_frees: Frees,
        host_frees: Frees,
        cache_actions: list[CacheAction],
    ) -> None:
        """Append the states that the path to a node gives up for the cap (EVD-48, MAM-P5).

        Raises `ContractError` in a core without states.
        """
        tail = self._node(tail_node_id)
        component = self._component(ComponentType.MAMBA)
        assert isinstance(component, MambaComponent)
        freed = component.evict_excess(tail)
        if freed:
            device_frees.setdefault(ComponentType.MAMBA, []).extend(freed)


def _counts(frees: Frees) -> dict[ComponentType, int]:
    return {component: sum(map(len, slots)) for component, slots in frees.items()}
