"""What operands refer to on one side: handles, receipts, pins and walks.

References are numbers that are resolved modulo what exists, so that every op means something in
every state. Which handles are alive is found by asking the core itself, outside the recording.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..backends.contract import ComponentType, IncLockRefResult, NodeId, TreeCore, UnknownNodeError
from .canonical import Names
from .ops import NodeRef


@dataclass
class Walk:
    """An open device walk: what it has evicted, and what it offered last."""

    request: int
    total: int = 0
    offered: NodeId | None = None


@dataclass
class HeldLock:
    """A receipt and the node that it is anchored on."""

    node: NodeId
    receipt: IncLockRefResult


@dataclass
class References:
    """Everything of one side that an operand can name, besides its requests."""

    core: TreeCore
    names: Names
    live: list[NodeId] = field(default_factory=list)
    stale: list[NodeId] = field(default_factory=list)
    locks: list[HeldLock] = field(default_factory=list)
    host_locks: list[HeldLock] = field(default_factory=list)
    released: list[HeldLock] = field(default_factory=list)
    pins: list[NodeId] = field(default_factory=list)
    walks: dict[ComponentType, Walk] = field(default_factory=dict)

    def is_live(self, node: NodeId) -> bool:
        """Whether the core still knows a handle."""
        try:
            self.core.is_root(node)
        except (UnknownNodeError, OverflowError):
            return False
        return True

    def refresh(self) -> list[NodeId]:
        """All live handles, oldest first; the dead among them move to `stale`."""
        self._take_new()
        alive: list[NodeId] = []
        for node in self.live:
            (alive if self.is_live(node) else self.stale).append(node)
        self.live = alive
        return alive

    def _take_new(self) -> None:
        self.live.extend(self.names.new_handles)
        self.names.new_handles.clear()

    def _pick_live(self, index: int) -> NodeId | None:
        self._take_new()
        while self.live:
            position = index % len(self.live)
            node = self.live[position]
            if self.is_live(node):
                return node
            self.stale.append(self.live.pop(position))
        return None

    def node(self, ref: NodeRef, request_nodes: list[NodeId]) -> NodeId | None:
        """The handle that a reference names on this side; None if there is none."""
        kind, _, number = ref.partition(":")
        index = int(number) if number else 0
        if kind == "root":
            root = self.core.root_node_handle()
            self.names.handle(root)
            return root
        if kind == "live":
            return self._pick_live(index)
        if kind == "stale":
            return self.stale[index % len(self.stale)] if self.stale else None
        if kind == "request":
            return request_nodes[index % len(request_nodes)] if request_nodes else None
        if kind == "offered":
            offered = [walk.offered for walk in self.walks.values() if walk.offered is not None]
            return offered[-1] if offered else None
        return index

    def forget_tree(self) -> None:
        """The tree was emptied: receipts, pins and walks of before are dead."""
        self.released.extend(self.locks)
        for held in (self.locks, self.host_locks, self.pins, self.walks):
            held.clear()
