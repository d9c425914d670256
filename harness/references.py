"""What operands refer to on one side: handles, receipts, pins and walks.

References are numbers that are resolved modulo what exists, so that every op means something in
every state. Which handles are alive is found by asking the core itself, outside the recording.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..backends.contract import (
    ComponentType,
    DecLockRefParams,
    IncLockRefResult,
    NodeId,
    TreeCore,
    UnknownNodeError,
)
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
    """A receipt and the node that it is anchored on.

    `is_swa_released`: SWA's window, and the state with it, was released early (SWA-L11).
    `released_windows` were released by themselves (SWA-L12).
    """

    node: NodeId
    receipt: IncLockRefResult
    is_swa_released: bool = False
    released_windows: set[ComponentType] = field(default_factory=set)

    def params(self) -> DecLockRefParams:
        """What is left of the receipt for its release; SWA is left out by `skip_swa` instead."""
        params = self.receipt.to_dec_params()
        params.skipped_lock_components += tuple(sorted(self.released_windows))
        return params

    def holds(self, component: ComponentType) -> bool:
        """Whether a component's part of the lock is still held."""
        if component in self.receipt.skipped_lock_components or component in self.released_windows:
            return False
        is_early = component in (ComponentType.SWA, ComponentType.MAMBA)
        return not (self.is_swa_released and is_early)


@dataclass
class References:
    """Everything of one side that an operand can name, besides its requests."""

    core: TreeCore
    names: Names
    stale: list[NodeId] = field(default_factory=list)
    locks: list[HeldLock] = field(default_factory=list)
    host_locks: list[HeldLock] = field(default_factory=list)
    has_lost_host_lock: bool = False
    released: list[HeldLock] = field(default_factory=list)
    pins: list[NodeId] = field(default_factory=list)
    walks: dict[ComponentType, Walk] = field(default_factory=dict)
    answers: dict[int, NodeId] = field(default_factory=dict)

    def is_live(self, node: NodeId) -> bool:
        """Whether the core still knows a handle."""
        try:
            self.core.is_root(node)
        except (UnknownNodeError, OverflowError):
            return False
        return True

    def live(self) -> list[NodeId]:
        """All handles that ops were told and that are alive, oldest first; changes nothing."""
        return [node for node in self.names.told if self.is_live(node)]

    def _refresh(self) -> list[NodeId]:
        """The live handles; those found dead move to `stale`, oldest first."""
        alive = self.live()
        if len(alive) < len(self.names.told):
            known = set(alive)
            self.stale += [node for node in self.names.told if node not in known]
            self.names.told = dict.fromkeys(alive)
        return alive

    def node(self, ref: NodeRef, request_nodes: list[NodeId]) -> NodeId | None:
        """The handle that a reference names on this side; None if there is none."""
        kind, _, number = ref.partition(":")
        index = int(number) if number else 0
        if kind == "root":
            root = self.core.root_node_handle()
            self.names.handle(root)
            return root
        if kind == "live":
            alive = self._refresh()
            return alive[index % len(alive)] if alive else None
        if kind == "stale":
            self._refresh()
            return self.stale[index % len(self.stale)] if self.stale else None
        if kind == "answer":
            answered = self.answers.get(index)
            return answered if answered is not None and self.is_live(answered) else None
        if kind == "request":
            return request_nodes[index % len(request_nodes)] if request_nodes else None
        if kind == "offered":
            offered = [walk.offered for walk in self.walks.values() if walk.offered is not None]
            return offered[-1] if offered else None
        return index

    def remember(self, answer: int | None, node: NodeId | None) -> None:
        """Keep the node that an op answered under its number, if it has one."""
        if answer is not None and node is not None:
            self.answers[answer] = node

    def forget_tree(self) -> None:
        """The tree was emptied: receipts, pins, walks and answers of before are dead."""
        self.released.extend(self.locks)
        for held in (self.locks, self.host_locks, self.pins, self.walks, self.answers):
            held.clear()
        self.has_lost_host_lock = False
