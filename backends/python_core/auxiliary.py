"""AuxiliaryComponent: what windows and states have in common, and FULL has not.

Such a component may be absent on any node, keeps its nodes in order of recency, and gives nodes
up one by one in that order: leaves with all that they hold, inner nodes their value of this
component alone (EVD-40).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import torch

from ..contract import ContractError, MatchResult, PoolName
from .component import Component
from .recency import RecencyList

if TYPE_CHECKING:
    from .node import ComponentData, Node
    from .tree import Tree


class AuxiliaryComponent(Component):
    """One kind of value beside FULL's. `recency` lists exactly the nodes that hold one (LRU-10).

    `internal_priority` orders what an inner node loses: what is higher takes the lower along
    (CMP-1).
    """

    internal_priority: int
    pool_name: PoolName

    def __init__(self, tree: Tree, index: int) -> None:
        """`index` is the component's place among the auxiliary data of every node."""
        self._tree = tree
        self._index = index
        self.reset()

    def reset(self) -> None:
        """Forget all sizes, the order of nodes and any open walk."""
        self.evictable = 0
        self.protected = 0
        self.recency = RecencyList()
        self._walk: _Walk | None = None

    def data(self, node: Node) -> ComponentData:
        """What this component holds on a node."""
        return node.auxiliary[self._index]

    # --- Values ---------------------------------------------------------------------------

    def store(self, node: Node, value: torch.Tensor) -> None:
        """Put a value on a node without one, as the most recent one (SIZE-7, LRU-16)."""
        data = self.data(node)
        data.device_value = value
        self.recency.push(node)
        if data.lock_ref > 0:
            self.protected += len(value)
        else:
            self.evictable += len(value)

    def evict_device(self, node: Node) -> torch.Tensor | None:
        """Take the value of an unlocked node off the ledger and the list (CMP-2, LRU-19)."""
        data = self.data(node)
        value = data.device_value
        if value is None:
            return None
        data.device_value = None
        self.evictable -= len(value)
        self.recency.remove(node)
        return self.freed_slots(node, value)

    @abstractmethod
    def freed_slots(self, node: Node, value: torch.Tensor) -> torch.Tensor:
        """The slots by which a value that a node gave up is freed (CMP-4)."""

    # --- Match and insert -----------------------------------------------------------------

    @abstractmethod
    def finalize_match(self, result: MatchResult) -> MatchResult:
        """The result with this component's figures in it (MATCH-12)."""

    @abstractmethod
    def refresh_after_match(self, best: Node) -> None:
        """Make what a match uses recent; `best` is not the root (LRU-14)."""

    @abstractmethod
    def refresh_after_insert(self, target: Node) -> None:
        """Make what an insert reached recent; `target` is not the root (LRU-14)."""

    # --- Lock counts ----------------------------------------------------------------------

    def _lock(self, node: Node) -> None:
        """Count one device lock on one node; the first one protects its value (LOCK-5)."""
        data = self.data(node)
        if data.lock_ref == 0:
            self._tree.device_leaves.discard(node)
            if data.device_value is not None:
                self.evictable -= len(data.device_value)
                self.protected += len(data.device_value)
        data.lock_ref += 1

    def _unlock(self, node: Node) -> None:
        """Take one device lock off one node; the last one makes its value evictable."""
        data = self.data(node)
        data.lock_ref -= 1
        if data.lock_ref == 0:
            if data.device_value is not None:
                self.protected -= len(data.device_value)
                self.evictable += len(data.device_value)
            self._tree.refresh_leaf(node)

    # --- Walk -----------------------------------------------------------------------------

    @property
    def has_open_walk(self) -> bool:
        """Whether a device walk is open."""
        return self._walk is not None

    def open_walk(self, request_count: int) -> None:
        """Start at the least recent unlocked node (EVD-40)."""
        self._walk = _Walk(request_count, self.recency.least_recent(self.is_unlocked))

    def close_walk(self) -> None:
        """Forget where the walk stands."""
        self._walk = None

    def is_unlocked(self, node: Node) -> bool:
        """Whether no device lock of this component is on the node."""
        return self.data(node).lock_ref == 0

    def next_victim(self, evicted_count: int) -> Node | None:
        """The node where the walk stands, whether leaf or not; the walk moves on (EVD-40)."""
        walk = self._walk
        if walk is None:
            raise ContractError(f"no device walk of {self.component_type.name} is open")
        if walk.cursor is not None and walk.cursor not in self.recency:
            walk.cursor = self.recency.least_recent(self.is_unlocked)
        victim = walk.cursor
        if victim is None or evicted_count >= walk.request_count:
            return None
        if not self.is_unlocked(victim):
            raise ContractError(
                f"the walk stands on node {victim.id}, which was locked meanwhile: "
                "release that lock first, or end the walk"
            )
        if victim not in self._tree.device_leaves:
            self.taken_along(victim)
        walk.cursor = self.recency.next_newer(victim, self.is_unlocked)
        return victim

    def taken_along(self, node: Node) -> list[AuxiliaryComponent]:
        """The components whose values an inner node loses together with this one's (CMP-5).

        Raises `ContractError` if one of them has to go and is locked (MAM-L14).
        """
        others = []
        for other in self._tree.auxiliary:
            data = other.data(node)
            if other is self or data.device_value is None:
                continue
            if other.internal_priority > self.internal_priority:
                continue
            if data.lock_ref > 0:
                if other.internal_priority == self.internal_priority:
                    continue
                name = other.component_type.name
                raise ContractError(
                    f"{name} of node {node.id} would go along, and is locked: "
                    "release that lock first, or end the walk"
                )
            others.append(other)
        return others


class _Walk:
    """A device walk: how much was asked for, and the node that comes next."""

    __slots__ = ("cursor", "request_count")

    def __init__(self, request_count: int, cursor: Node | None) -> None:
        self.request_count = request_count
        self.cursor = cursor
