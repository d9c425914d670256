"""Tree: the nodes, the clock and the leaf set, and the few changes that keep them consistent.

Operations walk the tree; only this module changes its shape. It hides how recency is counted and
how the leaf set follows from it (LEAF-1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from ..contract import CacheAction, Frees, UpdatePendingBackupOnNodeSplit
from .assembly import AuxiliaryMaker
from .auxiliary import AuxiliaryComponent
from .component import Component
from .events import EventRecorder
from .full import FullComponent
from .hashing import fill_hashes
from .keys import KeyLayout, PackedKey
from .node import ComponentData, Node
from .policies import Policy

ROOT_PRIORITY = -(2**63 - 1)


@dataclass(slots=True)
class Settings:
    """What a caller may change at run time; a reset keeps it (KEY-51)."""

    enable_storage: bool = False
    enable_external_cache_linker: bool = False
    write_through_threshold: int = 256
    is_write_back: bool = False
    is_host_memory_buffer_only: bool = False
    has_swa_host_pool: bool = False


class Tree:
    """All nodes of one core. `device_leaves` is exactly the set that LEAF-1 defines.

    `components` are FULL and the `auxiliary` ones, in component order (CMP-9).
    """

    def __init__(
        self,
        layout: KeyLayout,
        policy: Policy,
        events: EventRecorder,
        device: torch.device,
        makers: Sequence[AuxiliaryMaker] = (),
    ) -> None:
        """Build an empty tree whose values live on `device`."""
        self.layout = layout
        self.policy = policy
        self.events = events
        self.device = device
        self.settings = Settings()
        self._clock = 0
        self._next_node_id = 0
        self.full = FullComponent(self)
        self.auxiliary: tuple[AuxiliaryComponent, ...] = tuple(
            make(self, index) for index, make in enumerate(makers)
        )
        self.components: tuple[Component, ...] = (self.full, *self.auxiliary)
        self.reset()

    def reset(self) -> None:
        """Drop every node; handles, clock and configuration go on (NODE-40, RST-4)."""
        for component in self.components:
            component.reset()
        self.nodes: dict[int, Node] = {}
        self.device_leaves: set[Node] = set()
        self.root = self._new_node(PackedKey(b"", 0, None), ROOT_PRIORITY)
        self.root.hashes = []
        # The root counts as locked for ever (NODE-3).
        for component in self.components:
            component.data(self.root).lock_ref = 1

    @property
    def hashes_inserts(self) -> bool:
        """Whether a new leaf is hashed, for the tree's own use or for an event (KEY-40)."""
        return self._hashes_for_storage or self.events.enabled

    @property
    def _hashes_for_storage(self) -> bool:
        return self.settings.enable_storage or self.settings.enable_external_cache_linker

    # --- Clock ----------------------------------------------------------------------------

    def tick(self) -> int:
        """A new reading of the clock, greater than all before (NODE-20)."""
        self._clock += 1
        return self._clock

    def touch(self, node: Node) -> None:
        """Make a node the most recently used one (NODE-22)."""
        node.last_access_time = self.tick()

    # --- Shape ----------------------------------------------------------------------------

    def _new_node(self, key: PackedKey, priority: int) -> Node:
        """A detached node with a new handle and two clock readings (NODE-4, NODE-21)."""
        node = Node(
            self._next_node_id,
            key.tokens,
            key.length,
            key.namespace,
            priority,
            len(self.auxiliary),
        )
        self._next_node_id += 1
        self.nodes[node.id] = node
        node.last_access_time = self.tick()
        node.creation_time = self.tick()
        return node

    def add_leaf(
        self,
        parent: Node,
        key: PackedKey,
        value: torch.Tensor,
        priority: int,
        rotation_base: int | None,
        session_id: str | None,
    ) -> Node:
        """Hang a new leaf below `parent`; `value` becomes the tree's own (INS-40)."""
        leaf = self._new_node(key, priority)
        leaf.rotation_base = rotation_base
        leaf.parent = parent
        if self.policy.tracks_history:
            self._extend_history(leaf, parent)
        parent.children[self.layout.slot(key.tokens, 0, key.namespace)] = leaf
        self.full.store_new_leaf(leaf, value)
        if self._hashes_for_storage:
            fill_hashes(leaf, self.layout)
        self.device_leaves.add(leaf)
        self.device_leaves.discard(parent)
        self.events.record_stored(leaf, session_id, self.layout)
        return leaf

    def _extend_history(self, leaf: Node, parent: Node) -> None:
        """Set a new leaf's T-LRU lengths and raise its ancestors' (POL-8)."""
        depth = parent.prefix_length + leaf.length
        leaf.prefix_length = leaf.history_length = depth
        ancestor: Node | None = parent
        while ancestor is not None and ancestor.history_length < depth:
            ancestor.history_length = depth
            ancestor = ancestor.parent

    def split(self, lower: Node, length: int) -> Node:
        """Cut the first `length` units off `lower` into a new parent, and return that (SPLIT).

        `lower` keeps its handle. The caller emits `split_action`.
        """
        layout, parent = self.layout, lower.parent
        assert parent is not None
        head = layout.span(lower.key, 0, length)
        upper = self._new_node(PackedKey(head, length, lower.namespace), lower.priority)
        upper.creation_time = lower.creation_time
        upper.hit_count = lower.hit_count
        upper.external_cache_stored = lower.external_cache_stored
        upper.write_through_pending_id = lower.write_through_pending_id
        upper.rotation_base = lower.rotation_base
        if self.policy.tracks_history:
            upper.prefix_length = parent.prefix_length + length
            upper.history_length = lower.history_length
        pages = length // layout.page_size
        upper.hashes, lower.hashes = _cut(lower.hashes, pages)
        upper.event_hashes, lower.event_hashes = _cut(lower.event_hashes, pages)
        lower.key = layout.span(lower.key, length, lower.length)
        lower.length -= length
        # Assigning to the slot that `lower` had keeps its place among the children (NODE-7).
        parent.children[layout.slot(head, 0, lower.namespace)] = upper
        upper.parent = parent
        upper.children[layout.slot(lower.key, 0, lower.namespace)] = lower
        lower.parent = upper
        for component in self.components:
            component.redistribute_on_split(upper, lower, length)
        # The suffix counts as just used, although nobody matched it (NODE-24).
        self.touch(lower)
        # Leaf status is unchanged: `upper` has a child, and `lower` kept its locks and children.
        return upper

    def split_action(self, upper: Node, lower: Node) -> list[CacheAction]:
        """What the cache must learn about a split: nothing, or one action (SPLIT-6)."""
        pending = lower.write_through_pending_id
        if pending is None and not self.settings.is_host_memory_buffer_only:
            return []
        return [UpdatePendingBackupOnNodeSplit(pending, lower.id, upper.id, lower.id)]

    def delete_leaf(self, leaf: Node) -> Frees:
        """Remove a device leaf and return what it held (EVD-21).

        Ancestors need no cleanup, since every node of this core holds data on the device. The
        leaf keeps its link to the parent, where an open walk looks for its next candidate.
        """
        parent = leaf.parent
        assert parent is not None
        self.events.record_removed(leaf)
        frees: Frees = {}
        for component in self.components:
            value = component.evict_device(leaf)
            if value is not None:
                frees[component.component_type] = [value]
        self.device_leaves.discard(leaf)
        del parent.children[self.layout.slot(leaf.key, 0, leaf.namespace)]
        del self.nodes[leaf.id]
        self.refresh_leaf(parent)
        return frees

    def refresh_leaf(self, node: Node) -> None:
        """Put a node into the device leaves or take it out, as LEAF-1 says."""
        is_locked = node.full.lock_ref > 0 or (node.auxiliary and _is_any_locked(node.auxiliary))
        if node.children or is_locked:
            self.device_leaves.discard(node)
        else:
            self.device_leaves.add(node)

    # --- Walks ----------------------------------------------------------------------------

    def pre_order(self) -> Iterator[Node]:
        """Every node but the root, each before its subtree, children in child order (FLAT-1)."""
        stack = list(reversed(self.root.children.values()))
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children.values()))

    def child_at(self, node: Node, key: PackedKey, position: int) -> Node | None:
        """The child of `node` for the page of `key` at `position` (MATCH-2)."""
        return node.children.get(self.layout.slot(key.tokens, position, key.namespace))


def _is_any_locked(records: Iterable[ComponentData]) -> bool:
    return any(data.lock_ref > 0 for data in records)


def _cut(hashes: list[str] | None, pages: int) -> tuple[list[str] | None, list[str] | None]:
    """Both halves of a hash list; None stays None (SPLIT-4)."""
    return (None, None) if hashes is None else (hashes[:pages], hashes[pages:])
