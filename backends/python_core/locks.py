"""Locks and their receipts (LOCK-1 to LOCK-31).

A release is checked whole before any count changes, so a refused one leaves every lock in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..contract import (
    ComponentType,
    ContractError,
    DecLockRefParams,
    DecLockRefResult,
    DecSwaLockOnlyResult,
    IncLockRefResult,
    NodeId,
)
from . import arguments
from .base import CoreBase
from .component import Component
from .node import Node


class LockCalls(CoreBase):
    """The calls that take and release locks."""

    def inc_lock_ref(
        self, node_id: NodeId, skip_lock_components: Sequence[ComponentType] = ()
    ) -> IncLockRefResult:
        """Lock the path to a node on the device; returns the receipt (LOCK-1, LOCK-2)."""
        arguments.handle(node_id)
        skipped = arguments.components(skip_lock_components)
        node = self._node(node_id)
        receipt = IncLockRefResult(node_id=node.id, skipped_lock_components=skipped)
        for component in self._tree.components:
            if component.component_type not in skipped:
                component.acquire(node, receipt)
        return receipt

    def dec_lock_ref(
        self, node_id: NodeId, params: DecLockRefParams, skip_swa: bool = False
    ) -> DecLockRefResult:
        """Release a receipt on its own node (LOCK-8, LOCK-10).

        Raises `ContractError` for a receipt of another node or a lock that is not held.
        """
        receipt = _convert(node_id, params)
        arguments.flag(skip_swa, "skip_swa")
        node = self._node(node_id)
        _check_anchor(node, receipt)
        released = self._released_components(receipt)
        for component in released:
            component.check_release(node, receipt)
        for component in released:
            component.release(node, receipt)
        return DecLockRefResult()

    def dec_swa_lock_only(self, node_id: NodeId, params: DecLockRefParams) -> DecSwaLockOnlyResult:
        """Release nothing: this core has no window to release early (LOCK-15)."""
        receipt = _convert(node_id, params)
        _check_anchor(self._node(node_id), receipt)
        return DecSwaLockOnlyResult()

    def dec_window_lock_only(
        self, node_id: NodeId, component_type: ComponentType, params: DecLockRefParams
    ) -> DecSwaLockOnlyResult:
        """Raise `ContractError`: this core has no window component (LOCK-18)."""
        arguments.handle(node_id)
        component_type = arguments.component(component_type)
        _convert(node_id, params)
        self._node(node_id)
        raise ContractError(f"{component_type.name} is no window component of this core")

    def inc_host_lock_ref(self, node_id: NodeId) -> IncLockRefResult:
        """Pin a node on the host; returns the receipt (LOCK-22, LOCK-23)."""
        node = self._node(node_id)
        receipt = IncLockRefResult(node_id=node.id)
        for component in self._tree.components:
            component.acquire_host(node, receipt)
        return receipt

    def dec_host_lock_ref(self, node_id: NodeId, params: DecLockRefParams) -> DecLockRefResult:
        """Release a host pin (LOCK-25, LOCK-26).

        Raises `ContractError` for a receipt of another node or a pin that is not held.
        """
        receipt = _convert(node_id, params)
        node = self._node(node_id)
        _check_anchor(node, receipt)
        released = self._released_components(receipt)
        for component in released:
            component.check_release_host(node, receipt)
        for component in released:
            component.release_host(node, receipt)
        return DecLockRefResult()

    def inc_full_pin(self, node_id: NodeId) -> None:
        """Lock FULL alone, without a receipt (LOCK-14)."""
        self._tree.full.pin(self._node(node_id))

    def dec_full_pin(self, node_id: NodeId) -> None:
        """Undo one `inc_full_pin`; `ContractError` if the path is not locked (LOCK-14)."""
        node = self._node(node_id)
        self._tree.full.check_unpin(node)
        self._tree.full.unpin(node)

    def _released_components(self, receipt: DecLockRefParams) -> list[Component]:
        """What a receipt releases, in reversed component order (CMP-9)."""
        skipped = receipt.skipped_lock_components
        components = reversed(self._tree.components)
        return [each for each in components if each.component_type not in skipped]


def _convert(node_id: NodeId, params: DecLockRefParams) -> DecLockRefParams:
    """The receipt with all its fields converted, after the handle that it is released on."""
    arguments.handle(node_id)
    return DecLockRefParams(
        None if params.node_id is None else arguments.handle(params.node_id),
        arguments.components(params.skipped_lock_components),
        _uuids(params.component_lock_uuids),
        _uuids(params.component_host_lock_uuids),
    )


def _uuids(uuids: dict[ComponentType, int | None]) -> dict[ComponentType, int | None]:
    if not isinstance(uuids, Mapping):
        raise TypeError(f"lock uuids must be a mapping, got {type(uuids).__name__}")
    return {
        arguments.component(key): arguments.optional_signed(uuid, "a lock uuid")
        for key, uuid in uuids.items()
    }


def _check_anchor(node: Node, receipt: DecLockRefParams) -> None:
    """A receipt belongs to one node; one without a node never fits (LOCK-8)."""
    if receipt.node_id != node.id:
        raise ContractError(f"a receipt of node {receipt.node_id} was given for node {node.id}")
