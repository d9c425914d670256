"""Locks and their receipts (LOCK-1 to LOCK-31).

A release is checked whole before any count changes, so a refused one leaves every lock in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

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
from .auxiliary import AuxiliaryComponent
from .base import CoreBase
from .component import Component
from .node import Node
from .window import Window


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
        if skip_swa:
            window = self._find_window(ComponentType.SWA)
            released = [each for each in released if not _goes_early(each, window)]
        for component in released:
            component.check_release(node, receipt)
        for component in released:
            component.release(node, receipt)
        return DecLockRefResult()

    def dec_swa_lock_only(self, node_id: NodeId, params: DecLockRefParams) -> DecSwaLockOnlyResult:
        """Release the window of a receipt early, and what can't outlast it (LOCK-15, SWA-L11).

        Nothing on the root or in a core without a window. Raises `ContractError` for a receipt
        without an entry for the window, or of a lock that is not held.
        """
        receipt = _convert(node_id, params)
        node = self._node(node_id)
        _check_anchor(node, receipt)
        window = self._find_window(ComponentType.SWA)
        if window is None or node is self._tree.root:
            return DecSwaLockOnlyResult()
        with_it = [
            each
            for each in self._released_components(receipt)
            if each is not window and _goes_early(each, window)
        ]
        for component in (window, *with_it):
            component.check_release(node, receipt)
        result = _freed_early(window, window.release_early(node, receipt))
        for component in with_it:
            component.release(node, receipt)
        return result

    def dec_window_lock_only(
        self, node_id: NodeId, component_type: ComponentType, params: DecLockRefParams
    ) -> DecSwaLockOnlyResult:
        """Release one window of a receipt and nothing else (LOCK-18, SWA-L12).

        Nothing on the root and for a window that the lock skipped. Raises `ContractError` for a
        component that is no window of this core, and for a lock that is not held.
        """
        arguments.handle(node_id)
        component_type = arguments.component(component_type)
        receipt = _convert(node_id, params)
        node = self._node(node_id)
        _check_anchor(node, receipt)
        if node is self._tree.root or component_type in receipt.skipped_lock_components:
            return DecSwaLockOnlyResult()
        window = self._find_window(component_type)
        if window is None:
            raise ContractError(f"{component_type.name} is no window component of this core")
        window.check_release(node, receipt)
        return _freed_early(window, window.release_early(node, receipt))

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

    def _find_window(self, component_type: ComponentType) -> Window | None:
        component = self._find_component(component_type)
        return component if isinstance(component, Window) else None

    def _released_components(self, receipt: DecLockRefParams) -> list[Component]:
        """What a receipt releases, in reversed component order (CMP-9)."""
        skipped = receipt.skipped_lock_components
        components = reversed(self._tree.components)
        return [each for each in components if each.component_type not in skipped]


def _goes_early(component: Component, window: Window | None) -> bool:
    """Whether an early release of the window includes a component (SWA-L10)."""
    if window is None or not isinstance(component, AuxiliaryComponent):
        return False
    return component is window or component.internal_priority < window.internal_priority


def _freed_early(window: Window, slots: list[torch.Tensor]) -> DecSwaLockOnlyResult:
    return DecSwaLockOnlyResult(device_frees={window.component_type: slots} if slots else {})


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
