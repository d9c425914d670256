"""What each component's pool does with the actions of a core (CTL-20 to CTL-22).

A driver executes; it decides nothing. It hides the mapping between full and window slots from the
controller, and checks on the way what a core can't see: that a window value really has peers.
"""

from __future__ import annotations

from typing import Protocol

import torch

from treedrift.backends.contract import (
    ComponentAction,
    ComponentType,
    FreeComponentDeviceSlot,
    NodeId,
    RebuildFullToSWAMapping,
    RecoverEvictedSWA,
    RecoverSWAWithLockedFull,
    SWARebuild,
    TreeCore,
    UpdatePendingBackupOnNodeSplit,
)
from treedrift.backends.pools import PagedAllocator, Pools, StatePool, TokenAllocator, WindowPool

from .findings import CacheError, OracleFinding


class Driver(Protocol):
    """Executes the actions of one component. Raises `CacheError` for one it has no use for."""

    def execute(self, action: ComponentAction) -> None:
        """One action."""


class FullDriver:
    """FULL: slots of evicted nodes go back (CTL-20)."""

    def __init__(self, allocator: TokenAllocator | PagedAllocator) -> None:
        self._allocator = allocator

    def execute(self, action: ComponentAction) -> None:
        """One action."""
        match action:
            case FreeComponentDeviceSlot(indices=indices):
                for segment in indices:
                    self._allocator.free_segment(segment)
            case UpdatePendingBackupOnNodeSplit():
                # Nothing of FULL's own follows a split.
                pass
            case _:
                raise CacheError(f"FULL has no use for {type(action).__name__}")


class StateDriver:
    """MAMBA: states of evicted nodes go back (CTL-22); the controller caps paths itself."""

    def __init__(self, states: StatePool) -> None:
        self._states = states

    def execute(self, action: ComponentAction) -> None:
        """One action."""
        match action:
            case FreeComponentDeviceSlot(indices=indices):
                for slots in indices:
                    self._states.free(slots)
            case _:
                raise CacheError(f"MAMBA has no use for {type(action).__name__}")


class WindowDriver:
    """One sliding window: its peers are freed, moved and published (CTL-21, SWA-A1 to SWA-A7)."""

    def __init__(
        self,
        component: ComponentType,
        core: TreeCore,
        pools: Pools,
        findings: list[OracleFinding],
    ) -> None:
        self._component = component
        self._core = core
        self._window = pools.windows[component]
        self._allocator = pools.allocator
        self._findings = findings
        self._others = [side for kind, side in pools.windows.items() if kind is not component]

    def execute(self, action: ComponentAction) -> None:
        """One action."""
        window = self._window
        match action:
            case FreeComponentDeviceSlot(indices=indices):
                # These are full slots of the node, not window slots (SWA-A1).
                for segment in indices:
                    window.free_peers(segment)
            case RebuildFullToSWAMapping(full_indices=full, swa_indices=peers):
                for slots, mapped in zip(full, peers, strict=True):
                    window.set_mapping(slots, mapped)
            case SWARebuild(node_id=node_id, source_value=source):
                self._publish(node_id, source)
            case RecoverEvictedSWA(kept_full=kept, incoming_full=incoming):
                self._move(kept, incoming)
            case RecoverSWAWithLockedFull(node_id=node_id, kept_full=kept, incoming_full=incoming):
                self._move(kept, incoming)
                for other in self._others:
                    # The tree keeps what it has of another window, so nobody takes these.
                    other.free_mapped_peers(incoming)
                self._allocator.free_full_segment(incoming)
                self._publish(node_id, kept)
            case _:
                raise CacheError(f"{self._component.name} has no use for {type(action).__name__}")

    def _move(self, kept: torch.Tensor, incoming: torch.Tensor) -> None:
        peers = self._window.translate(incoming)
        self._window.clear_mapping(incoming)
        self._window.set_mapping(kept, peers)

    def _publish(self, node_id: NodeId, full: torch.Tensor) -> None:
        """Store the peers of a node's full slots as its window value (SWA-A5)."""
        peers = self._window.translate(full)
        lacking = int((peers <= 0).sum())
        if lacking and not self._window.is_ring:
            message = f"{lacking} of {peers.numel()} slots of a rebuilt {self._component.name} node"
            self._findings.append(OracleFinding("window_mapping", f"{message} have no peer"))
        self._core.set_component_device_value(node_id, self._component, peers)


class PoolFrees:
    """Slots that a core gives back with all their peers, or without (SWA-A3, SWA-A4).

    A core tells what the first window has given up, not what the second has (INS-31), so of that
    one goes what is there.
    """

    def __init__(self, pools: Pools, findings: list[OracleFinding]) -> None:
        self._allocator = pools.allocator
        self._first = pools.windows.get(ComponentType.SWA)
        self._others = [
            side for kind, side in pools.windows.items() if kind is not ComponentType.SWA
        ]
        self._findings = findings

    def free(self, segments: list[torch.Tensor]) -> None:
        """Window peers, then full slots."""
        for segment in segments:
            if self._first is not None:
                self._first.free_peers(segment)
            self._free_others(segment)
            self._allocator.free_segment(segment)

    def free_full_only(self, segments: list[torch.Tensor]) -> None:
        """Full slots whose first window must be gone."""
        for segment in segments:
            if self._first is not None:
                self._check_unmapped(self._first, segment)
            self._free_others(segment)
            self._allocator.free_full_segment(segment)

    def _free_others(self, segment: torch.Tensor) -> None:
        for window in self._others:
            window.free_mapped_peers(segment)

    def _check_unmapped(self, window: WindowPool, segment: torch.Tensor) -> None:
        mapped = int(window.translate(segment).count_nonzero())
        if mapped:
            message = f"{mapped} of {segment.numel()} slots freed without their window have one"
            self._findings.append(OracleFinding("window_mapping", message))
