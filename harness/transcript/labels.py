"""The numbers under which the nodes that calls answered are told.

Numbers are used again, so that neither this side nor a replay keeps more than so many: the one
whose node was answered longest ago goes first, but never one that a lock is held on.
"""

from __future__ import annotations

from collections import Counter

from treedrift.backends.contract import NodeId

from ..ops import NodeRef

LABELS_MAX = 4096
"""Nodes without a lock that can be told at a time."""


class Labels:
    """The number of every node that can be told. `root` is told by its own name, once it is known.

    Nodes go by their handles on the recorded side.
    """

    def __init__(self, most: int = LABELS_MAX) -> None:
        self._most = most
        self._numbers: dict[NodeId, int] = {}
        self._free: list[int] = []
        self._issued = 0
        self._holds = Counter[NodeId]()
        self.root: NodeId | None = None

    def answer(self, node: NodeId) -> int:
        """A call answered a node: its number, as the op's `answer`."""
        number = self._numbers.pop(node, None)
        if number is None:
            number = self.reserve()
        self._numbers[node] = number
        return number

    def reserve(self) -> int:
        """A number for an answer that is not there yet; to be given to `bind` in the end."""
        if self._free:
            return self._free.pop()
        if len(self._numbers) >= self._most + len(self._holds):
            oldest = next((node for node in self._numbers if node not in self._holds), None)
            if oldest is not None:
                return self._numbers.pop(oldest)
        self._issued += 1
        return self._issued - 1

    def bind(self, number: int, node: NodeId | None) -> None:
        """The answer for a reserved number: a node, or None for nothing."""
        before = number if node is None else self._numbers.pop(node, None)
        if before is not None:
            self._free.append(before)
        if node is not None:
            self._numbers[node] = number

    def ref(self, node: NodeId) -> NodeRef | None:
        """How an op names a node; None if it can't."""
        if node == self.root:
            return "root"
        number = self._numbers.get(node)
        return None if number is None else f"answer:{number}"

    def hold(self, node: NodeId) -> None:
        """A lock is taken on a node."""
        self._holds[node] += 1

    def release(self, node: NodeId) -> None:
        """A lock on a node is released."""
        self._holds[node] -= 1
        if self._holds[node] <= 0:
            del self._holds[node]

    def forget(self) -> None:
        """The tree was emptied: all nodes are gone."""
        self._numbers.clear()
        self._free.clear()
        self._issued = 0
        self._holds.clear()
        self.root = None
