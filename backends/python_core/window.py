"""A sliding-window component: values that only the last tokens of a request need (SWA).

Any node may lack its value and is then a tombstone. A match may end where an unbroken window
before it is present; a lock holds one window, up to a boundary that its receipt names. What an
insert publishes is in `window_insert`.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import msgspec
import torch

from ..contract import (
    ComponentType,
    ContractError,
    DecLockRefParams,
    IncLockRefResult,
    MatchResult,
    PoolHitPolicy,
    PoolName,
    PoolTransfer,
)
from .auxiliary import AuxiliaryComponent
from .component import NodeTest

if TYPE_CHECKING:
    from .node import Node
    from .tree import Tree

_POOLS = {
    ComponentType.SWA: PoolName.SWA,
    ComponentType.AUXILIARY_SWA: PoolName.AUXILIARY_SWA,
}
_FIRST_LOCK_UUIDS = {
    ComponentType.SWA: 100_000_000_000_001,
    ComponentType.AUXILIARY_SWA: 500_000_000_000_001,
}


class Window(AuxiliaryComponent):
    """One window's part of one tree, but for inserts. `length` is how many units it spans."""

    internal_priority = 1

    def __init__(
        self,
        tree: Tree,
        index: int,
        component_type: ComponentType,
        length: int,
        gates_match: bool,
    ) -> None:
        """A tombstone ends no match unless `gates_match` is off (SWA-C5)."""
        self.component_type = component_type
        self.pool_name = _POOLS[component_type]
        self.length = length
        self._gates_match = gates_match
        # Not rewound by a reset (SWA-D11).
        self._next_lock_uuid = _FIRST_LOCK_UUIDS[component_type]
        super().__init__(tree, index)

    def value_length(self, node: Node) -> int:
        """One entry for each unit (SWA-D2)."""
        return node.length

    def freed_slots(self, node: Node, value: torch.Tensor) -> torch.Tensor:
        """FULL's slots, whose window peers are to be freed (SWA-E10)."""
        slots = node.full.device_value
        assert slots is not None
        return slots

    # --- Match ----------------------------------------------------------------------------

    def match_validator(self) -> NodeTest:
        """Accept a node with a whole window, or with everything from the root on (SWA-M2)."""
        index, length, accepts_tombstones = self._index, self.length, not self._gates_match
        covered: float = inf

        def accepts(node: Node) -> bool:
            nonlocal covered
            if node.auxiliary[index].device_value is None:
                covered = 0
                return accepts_tombstones
            covered += node.length
            return covered >= length

        return accepts

    def finalize_match(self, result: MatchResult) -> MatchResult:
        """Say how far the window would have to be filled for a longer match (SWA-M8)."""
        if result.full_kv_hit_length <= result.device_prefix_len:
            return result
        return msgspec.structs.replace(result, swa_branching_seqlen=result.full_kv_hit_length)

    def refresh_after_match(self, best: Node) -> None:
        """Make the window of the match recent."""
        self._refresh(best)

    def refresh_after_insert(self, target: Node) -> None:
        """Make the window of the insert recent."""
        self._refresh(target)

    def _refresh(self, node: Node) -> None:
        """Move the values of the last window and page to the recent end, deepest first (SWA-U2)."""
        root, end = self._tree.root, self.length + self._tree.layout.page_size
        held = []
        visited_length = 0
        while node is not root and visited_length < end:
            if self.data(node).device_value is not None:
                held.append(node)
            visited_length += node.length
            assert node.parent is not None
            node = node.parent
        for each in reversed(held):
            self.recency.promote(each)

    # --- Splits ---------------------------------------------------------------------------

    def redistribute_on_split(self, upper: Node, lower: Node, length: int) -> None:
        """Cut the value, copy the locks up and move their boundaries there (SWA-S1 to SWA-S5)."""
        mine, theirs = self.data(upper), self.data(lower)
        value = theirs.device_value
        if value is not None:
            # Copies, so that neither half keeps the other's memory alive after an eviction.
            mine.device_value = value[:length].clone()
            theirs.device_value = value[length:].clone()
            self.recency.push_behind(upper, lower)
        mine.lock_ref = theirs.lock_ref
        mine.host_lock_ref = theirs.host_lock_ref
        mine.lock_uuid, theirs.lock_uuid = theirs.lock_uuid, None
        mine.host_lock_uuid, theirs.host_lock_uuid = theirs.host_lock_uuid, None

    # --- Locks ----------------------------------------------------------------------------

    def acquire(self, node: Node, receipt: IncLockRefResult) -> None:
        """Lock nodes upwards until they cover the window; the last is the boundary (SWA-L1)."""
        uuids = receipt.component_lock_uuids
        uuids[self.component_type] = None
        segment, is_whole = self._window_above(node)
        for each in segment:
            self._lock(each)
        if is_whole:
            boundary = self.data(segment[-1])
            if boundary.lock_uuid is None:
                boundary.lock_uuid = self._new_lock_uuid()
            uuids[self.component_type] = boundary.lock_uuid

    def acquire_host(self, node: Node, receipt: IncLockRefResult) -> None:
        """Count a host lock on the same nodes, with a boundary of its own (SWA-L19)."""
        uuids = receipt.component_host_lock_uuids
        uuids[self.component_type] = None
        segment, is_whole = self._window_above(node)
        for each in segment:
            self.data(each).host_lock_ref += 1
        if is_whole:
            boundary = self.data(segment[-1])
            if boundary.host_lock_uuid is None:
                boundary.host_lock_uuid = self._new_lock_uuid()
            uuids[self.component_type] = boundary.host_lock_uuid

    def _window_above(self, node: Node) -> tuple[list[Node], bool]:
        """Nodes from `node` upwards, tombstones too, and whether they cover the window."""
        segment = []
        covered = 0
        while node.parent is not None and covered < self.length:
            segment.append(node)
            covered += node.length
            node = node.parent
        return segment, covered >= self.length

    def _new_lock_uuid(self) -> int:
        uuid = self._next_lock_uuid
        self._next_lock_uuid += 1
        return uuid

    def check_release(self, node: Node, receipt: DecLockRefParams) -> None:
        """Refuse a receipt whose window is not locked, up to its boundary (SWA-L7, SWA-L8)."""
        self._locked_segment(node, receipt)

    def release(self, node: Node, receipt: DecLockRefParams) -> None:
        """Unlock the window of a receipt (SWA-L7). The caller has checked it."""
        for each in self._locked_segment(node, receipt):
            self._unlock(each)

    def release_early(self, node: Node, receipt: DecLockRefParams) -> list[torch.Tensor]:
        """Unlock the window and give up what becomes a device leaf at once (SWA-L13)."""
        freed = []
        for each in self._locked_segment(node, receipt):
            self._unlock(each)
            if each in self._tree.device_leaves:
                value = self.evict_device(each)
                if value is not None:
                    freed.append(value)
        return freed

    def check_release_host(self, node: Node, receipt: DecLockRefParams) -> None:
        """Refuse a receipt whose window has no host lock (SWA-L20)."""
        self._locked_segment(node, receipt, is_host=True)

    def release_host(self, node: Node, receipt: DecLockRefParams) -> None:
        """Take the host lock off the window of a receipt (SWA-L20)."""
        for each in self._locked_segment(node, receipt, is_host=True):
            self.data(each).host_lock_ref -= 1

    def _locked_segment(
        self, node: Node, receipt: DecLockRefParams, *, is_host: bool = False
    ) -> list[Node]:
        """The segment of a receipt; `ContractError` unless all of it is locked on this tier."""
        uuids = receipt.component_host_lock_uuids if is_host else receipt.component_lock_uuids
        segment = self._segment(node, uuids, is_host=is_host)
        for each in segment:
            data = self.data(each)
            if (data.host_lock_ref if is_host else data.lock_ref) <= 0:
                lock = f"{'host' if is_host else 'device'} lock of {self.component_type.name}"
                raise ContractError(f"node {each.id} holds no {lock} to release")
        return segment

    def _segment(
        self, node: Node, uuids: dict[ComponentType, int | None], *, is_host: bool
    ) -> list[Node]:
        """The nodes from `node` up to the boundary that a receipt names, or below the root.

        Raises `ContractError` for a receipt without an entry or with an unknown boundary.
        """
        if node.parent is None:
            return []
        if self.component_type not in uuids:
            raise ContractError(f"the receipt has no entry of {self.component_type.name}")
        uuid = uuids[self.component_type]
        segment = []
        while node.parent is not None:
            segment.append(node)
            data = self.data(node)
            boundary = data.host_lock_uuid if is_host else data.lock_uuid
            if uuid is not None and boundary == uuid:
                return segment
            node = node.parent
        if uuid is not None:
            raise ContractError(f"no node from {segment[0].id} up carries the boundary {uuid}")
        return segment

    # --- Offload --------------------------------------------------------------------------

    def offload(self, node: Node) -> PoolTransfer | None:
        """The value's whole pages, named by the node's last pages (SWA-N1)."""
        value = self.data(node).device_value
        if value is None or not node.hashes:
            return None
        page_size = self._tree.layout.page_size
        pages = len(value) // page_size
        return PoolTransfer(
            self.pool_name,
            device_indices=value[-pages * page_size :],
            keys=node.hashes[-pages:],
            hit_policy=PoolHitPolicy.TRAILING_PAGES,
        )
