"""The Full component: one device slot per unit of every node (FULL-1 to FULL-6).

It owns Full's values, ledgers and locks, and the device walk, which ranks leaves by the eviction
policy. Nodes of this core always hold a device value, since there is no host tier to keep them
without one.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import torch

from ..contract import (
    ComponentType,
    ContractError,
    DecLockRefParams,
    IncLockRefResult,
    PoolName,
    PoolTransfer,
)
from .component import Component, NodeTest
from .insertion import Insertion
from .policies import Rank

if TYPE_CHECKING:
    from .node import ComponentData, Node
    from .tree import Tree

_FIRST_HOST_LOCK_UUID = 200_000_000_000_001


class FullComponent(Component):
    """Full's part of one tree."""

    component_type = ComponentType.FULL

    def __init__(self, tree: Tree) -> None:
        """Start with empty ledgers and no walk."""
        self._tree = tree
        # Not rewound by a reset (LOCK-29).
        self._next_host_lock_uuid = _FIRST_HOST_LOCK_UUID
        self.reset()

    def reset(self) -> None:
        """Forget all sizes and any open walk."""
        self.evictable = 0
        self.protected = 0
        self._walk: _DeviceWalk | None = None

    def data(self, node: Node) -> ComponentData:
        """What FULL holds on a node."""
        return node.full

    def value_length(self, node: Node) -> int:
        """One slot for each unit."""
        return node.length

    # --- Match and insert -----------------------------------------------------------------

    def match_validator(self) -> NodeTest:
        """Accept the nodes with a device value (FULL-1)."""
        return _has_device_value

    def store_new_leaf(self, leaf: Node, value: torch.Tensor) -> None:
        """Take over a private value for a leaf, which nobody can have locked yet (FULL-4)."""
        leaf.full.device_value = value
        self.evictable += leaf.length

    def redistribute_on_split(self, upper: Node, lower: Node, length: int) -> None:
        """Cut the value into private halves and copy the locks up (FULL-3)."""
        mine, theirs = upper.full, lower.full
        value = theirs.device_value
        if value is not None:
            # Copies, so that neither half keeps the other's memory alive after an eviction.
            mine.device_value = value[:length].clone()
            theirs.device_value = value[length:].clone()
        mine.lock_ref = theirs.lock_ref
        mine.host_lock_ref = theirs.host_lock_ref
        # The host lock now spans both halves and ends at the upper one (LOCK-27).
        mine.host_lock_uuid, theirs.host_lock_uuid = theirs.host_lock_uuid, None

    def consume_overlap(self, node: Node, length: int, position: int, insertion: Insertion) -> int:
        """Keep none of the request's slots: the tree has its own (INS-30)."""
        return length

    def commit_insert(self, target: Node, insertion: Insertion) -> None:
        """Do nothing: the tree stores Full's value with the leaf (FULL-4)."""

    # --- Device locks ---------------------------------------------------------------------

    def acquire(self, node: Node, receipt: IncLockRefResult) -> None:
        """Lock the path up to the root; `delta` is what became protected (LOCK-2)."""
        receipt.delta = self.pin(node)

    def pin(self, node: Node) -> int:
        """Raise the lock count of the path; returns the tokens that became protected (LOCK-3)."""
        root, leaves = self._tree.root, self._tree.device_leaves
        newly_protected = 0
        while node is not root:
            data = node.full
            if data.lock_ref == 0:
                newly_protected += node.length
                leaves.discard(node)
            data.lock_ref += 1
            node = _parent(node)
        self.evictable -= newly_protected
        self.protected += newly_protected
        return newly_protected

    def check_release(self, node: Node, receipt: DecLockRefParams) -> None:
        """Refuse if a count on the path is 0 (LOCK-10)."""
        self.check_unpin(node)

    def check_unpin(self, node: Node) -> None:
        """Raise `ContractError` unless the whole path is locked."""
        root = self._tree.root
        while node is not root:
            if node.full.lock_ref <= 0:
                raise ContractError(f"node {node.id} holds no lock that could be released")
            node = _parent(node)

    def release(self, node: Node, receipt: DecLockRefParams) -> None:
        """Unlock the path; Full needs nothing of the receipt (LOCK-10)."""
        self.unpin(node)

    def unpin(self, node: Node) -> None:
        """Lower the lock count of the path (LOCK-10). The caller has checked it."""
        tree = self._tree
        newly_evictable = 0
        while node is not tree.root:
            data = node.full
            data.lock_ref -= 1
            if data.lock_ref == 0:
                newly_evictable += node.length
                tree.refresh_leaf(node)
            node = _parent(node)
        self.protected -= newly_evictable
        self.evictable += newly_evictable

    # --- Host locks -----------------------------------------------------------------------

    def acquire_host(self, node: Node, receipt: IncLockRefResult) -> None:
        """Pin one node under write-back; otherwise only host copies could be pinned (LOCK-23)."""
        if not self._tree.settings.is_write_back:
            return
        data = node.full
        if data.host_lock_uuid is None:
            data.host_lock_uuid = self._next_host_lock_uuid
            self._next_host_lock_uuid += 1
        data.host_lock_ref += 1
        receipt.component_host_lock_uuids[self.component_type] = data.host_lock_uuid

    def check_release_host(self, node: Node, receipt: DecLockRefParams) -> None:
        """Refuse if the segment of the receipt's uuid is not pinned (LOCK-26)."""
        self._host_segment(node, receipt)

    def release_host(self, node: Node, receipt: DecLockRefParams) -> None:
        """Unpin the nodes from `node` up to the one that carries the uuid (LOCK-26)."""
        for pinned in self._host_segment(node, receipt):
            pinned.full.host_lock_ref -= 1

    def _host_segment(self, node: Node, receipt: DecLockRefParams) -> list[Node]:
        if self.component_type not in receipt.component_host_lock_uuids:
            return []
        uuid = receipt.component_host_lock_uuids[self.component_type]
        if uuid is None:
            raise ContractError("a host lock of FULL always has a boundary")
        if not self._tree.settings.is_write_back:
            return []
        segment = [node]
        while segment[-1].full.host_lock_uuid != uuid:
            parent = segment[-1].parent
            if parent is None:
                raise ContractError(f"no node from {node.id} up carries the boundary {uuid}")
            segment.append(parent)
        for pinned in segment:
            if pinned.full.host_lock_ref <= 0:
                raise ContractError(f"node {pinned.id} holds no host lock to release")
        return segment

    # --- Eviction and offload -------------------------------------------------------------

    def evict_device(self, node: Node) -> torch.Tensor | None:
        """Take the value off the evictable ledger (FULL-6). The caller deletes the node."""
        value = node.full.device_value
        if value is not None:
            self.evictable -= node.length
        return value

    @property
    def has_open_walk(self) -> bool:
        """Whether a device walk is open."""
        return self._walk is not None

    def open_walk(self, request_count: int) -> None:
        """Rank all current device leaves (EVD-11)."""
        self._walk = _DeviceWalk(self._tree, request_count)

    def next_victim(self, evicted_count: int) -> Node | None:
        """The best candidate left, whose parent becomes one after its eviction (EVD-12)."""
        if self._walk is None:
            raise ContractError("no device walk of FULL is open")
        return self._walk.next_victim(evicted_count)

    def close_walk(self) -> None:
        """Forget the candidates."""
        self._walk = None

    def offload(self, node: Node) -> PoolTransfer | None:
        """All slots, named by the node's own pages (LNK-3)."""
        if not node.hashes:
            return None
        return PoolTransfer(
            PoolName.KV, device_indices=node.full.device_value, keys=list(node.hashes)
        )


class _DeviceWalk:
    """One walk: a heap of ranked leaves, and the leaf that the last step returned.

    Ranks are taken when a node enters the heap and not refreshed (POL-21).
    """

    __slots__ = ("_heap", "_last_victim", "_request_count", "_tree")

    def __init__(self, tree: Tree, request_count: int) -> None:
        self._tree = tree
        self._request_count = request_count
        self._last_victim: Node | None = None
        rank_of = tree.policy.rank_of
        # Handles, not nodes: they break ties, and a deleted node is simply not found again.
        self._heap: list[tuple[Rank, int]] = [
            (rank_of(leaf), leaf.id) for leaf in tree.device_leaves
        ]
        heapq.heapify(self._heap)

    def next_victim(self, evicted_count: int) -> Node | None:
        tree = self._tree
        if self._last_victim is not None:
            parent = self._last_victim.parent
            if parent in tree.device_leaves:
                heapq.heappush(self._heap, (tree.policy.rank_of(parent), parent.id))
            self._last_victim = None
        if evicted_count >= self._request_count:
            return None
        while self._heap:
            leaf = tree.nodes.get(heapq.heappop(self._heap)[1])
            if leaf in tree.device_leaves:
                self._last_victim = leaf
                return leaf
        return None


def _has_device_value(node: Node) -> bool:
    return node.full.device_value is not None


def _parent(node: Node) -> Node:
    """The parent of a node that is not the root."""
    assert node.parent is not None
    return node.parent
