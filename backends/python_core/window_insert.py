"""What an insert does for a window: fill tombstones with the request's slots (SWA-I1 to SWA-I24).

The component never sets a value itself. It asks the cache to, because only the cache knows which
window slot belongs to which of FULL's slots; the action comes back as a value to store (SWA-I12).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..contract import (
    ComponentType,
    FreeDeviceKVFullOnly,
    RecoverEvictedSWA,
    RecoverSWAWithLockedFull,
    SWARebuild,
)
from .insertion import Insertion
from .window import Window

if TYPE_CHECKING:
    from .node import Node


class WindowComponent(Window):
    """The window that a request's slots serve first: it may take them over for FULL too."""

    def consume_overlap(self, node: Node, length: int, position: int, insertion: Insertion) -> int:
        """Take over the request's slots where the window is gone and they have it (SWA-I6)."""
        end = position + length
        if insertion.request.prev_prefix_len >= end:
            return length
        consumed = length
        for segment, start in segments(node, position, end):
            live = self._clip(segment, start, self._live_from(insertion), insertion)
            if live is not None:
                self._recover(segment, live, insertion)
                consumed = min(consumed, self._consumed_from(live - position, length))
        return consumed

    def commit_insert(self, target: Node, insertion: Insertion) -> None:
        """Publish the live part of a new leaf, and say whether a branch was reached (SWA-I17)."""
        request = insertion.request
        if request.window_branch_len is not None:
            reached = request.key_units >= request.window_branch_len
            insertion.result.swa_branch_inserted = reached
        if not insertion.is_new_leaf:
            return
        evicted_len = request.evicted_lens.get(self.component_type, 0)
        for segment, start in segments(target, insertion.result.prefix_len, request.key.length):
            live = self._clip(segment, start, evicted_len, insertion)
            if live is None:
                continue
            end = live + segment.length
            self._cap(segment, insertion)
            for piece, _ in segments(segment, live, end):
                self._request_rebuild(piece, insertion)
            insertion.result.record_adopted_range(self.component_type, live, end)

    def _live_from(self, insertion: Insertion) -> int:
        """The position from which on the request's slots have this window's peers (SWA-I1)."""
        return insertion.request.evicted_lens.get(self.component_type, 0)

    def _consumed_from(self, offset: int, length: int) -> int:
        """From which unit of a span a recovery at `offset` keeps the slots (SWA-I9)."""
        return offset

    def _clip(self, segment: Node, start: int, live_from: int, insertion: Insertion) -> int | None:
        """Where the part of a tombstone begins that can be filled; None if there is none (SWA-I3).

        A dead part in front is split off; `segment` is the live part afterwards.
        """
        live = max(start, live_from)
        if self.data(segment).device_value is not None or live >= start + segment.length:
            return None
        if live > start:
            insertion.split(segment, live - start)
        return live

    def _cap(self, leaf: Node, insertion: Insertion) -> None:
        """Split a long leaf so that it holds one window, rounded up to pages (SWA-I20)."""
        page_size = self._tree.layout.page_size
        kept = -(-self.length // page_size) * page_size
        if leaf.length > kept:
            insertion.split(leaf, leaf.length - kept)

    def _recover(self, segment: Node, start: int, insertion: Insertion) -> None:
        """Fill a tombstone: move the window under locked slots, or swap the slots (SWA-I7)."""
        end = start + segment.length
        kept, incoming = segment.full.device_value, insertion.value[start:end]
        assert kept is not None
        insertion.result.record_adopted_range(self.component_type, start, end)
        if segment.full.lock_ref > 0 or self._is_needed_elsewhere(segment):
            insertion.pending.append(
                RecoverSWAWithLockedFull(segment.id, kept, incoming, self.component_type)
            )
            return
        # The caller keeps its tensor, so the tree takes a copy (SWA-I8).
        segment.full.device_value = incoming.clone()
        insertion.result.record_adopted_range(ComponentType.FULL, start, end)
        insertion.pending.append(FreeDeviceKVFullOnly([kept]))
        self._request_rebuild(segment, insertion)

    def _is_needed_elsewhere(self, segment: Node) -> bool:
        """Whether another window's value hangs on the slots that FULL has now."""
        others = (each for each in self._tree.auxiliary if each is not self)
        return any(
            isinstance(each, Window) and each.data(segment).device_value is not None
            for each in others
        )

    def _request_rebuild(self, node: Node, insertion: Insertion) -> None:
        slots = node.full.device_value
        assert slots is not None
        insertion.pending.append(SWARebuild(node.id, slots, self.component_type))


class IndependentWindowComponent(WindowComponent):
    """A further window: it takes window slots from a request, but never FULL's (SWA-I14)."""

    def _live_from(self, insertion: Insertion) -> int:
        """Not below what the request shares with the tree, in whole pages (SWA-I14)."""
        page_size = self._tree.layout.page_size
        shared = -(-insertion.request.prev_prefix_len // page_size) * page_size
        return max(super()._live_from(insertion), shared)

    def _consumed_from(self, offset: int, length: int) -> int:
        """Nowhere: the slots stay duplicates (SWA-I14)."""
        return length

    def _recover(self, segment: Node, start: int, insertion: Insertion) -> None:
        """Move the window from the request's slots to those that the tree keeps (SWA-C8)."""
        end = start + segment.length
        kept, incoming = segment.full.device_value, insertion.value[start:end]
        assert kept is not None
        insertion.result.record_adopted_range(self.component_type, start, end)
        # An earlier window may have swapped the slots already: then nothing has to move.
        if not _is_swapped(segment, insertion):
            move = RecoverEvictedSWA(self.component_type, kept, incoming)
            insertion.pending.insert(_place_before_free(segment, insertion), move)
        self._request_rebuild(segment, insertion)


def _is_swapped(segment: Node, insertion: Insertion) -> bool:
    """Whether the incoming slots of a segment have become the tree's own in this overlap.

    The slots themselves don't tell: a caller may insert the very ones that the tree has.
    """
    return any(
        isinstance(action, SWARebuild) and action.node_id == segment.id
        for action in insertion.pending
    )


def _place_before_free(segment: Node, insertion: Insertion) -> int:
    """Where an action goes that must come before the incoming slots of a segment are freed."""
    for place, action in enumerate(insertion.pending):
        if isinstance(action, RecoverSWAWithLockedFull) and action.node_id == segment.id:
            return place
    return len(insertion.pending)


def segments(last: Node, start: int, end: int) -> list[tuple[Node, int]]:
    """The nodes that make up `[start, end)` of a path down to `last`, with where each begins."""
    found = []
    node = last
    while end > start:
        end -= node.length
        found.append((node, end))
        assert node.parent is not None
        node = node.parent
    found.reverse()
    return found
