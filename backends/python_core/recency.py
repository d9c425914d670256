"""The recency list of an auxiliary component: nodes from most to least recent (LRU-1 to LRU-9).

A circular list of links around a sentinel, so that every change takes constant time wherever the
node stands. It knows nothing of values and locks; a walk over it says which nodes it wants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .node import Node


class _Link:
    """The place of one node. `newer` and `older` are its neighbours; the sentinel has no node."""

    __slots__ = ("newer", "node", "older")

    def __init__(self, node: Node | None) -> None:
        self.node = node
        self.newer = self.older = self


class RecencyList:
    """Nodes in order of recency. No node is in it twice."""

    __slots__ = ("_links", "_sentinel")

    def __init__(self) -> None:
        """Start empty."""
        self._links: dict[Node, _Link] = {}
        # The most recent node is its older neighbour, the least recent its newer one.
        self._sentinel = _Link(None)

    def __contains__(self, node: object) -> bool:
        """Whether the node is listed."""
        return node in self._links

    def __iter__(self) -> Iterator[Node]:
        """The nodes, most recent first."""
        link = self._sentinel.older
        while link.node is not None:
            yield link.node
            link = link.older

    def push(self, node: Node) -> None:
        """List a node as the most recent one (LRU-2)."""
        self._put_behind(self._sentinel, node)

    def push_behind(self, node: Node, listed: Node) -> None:
        """List a node as just less recent than a listed one (LRU-3)."""
        self._put_behind(self._links[listed], node)

    def promote(self, node: Node) -> None:
        """Make a listed node the most recent one (LRU-5)."""
        self.remove(node)
        self.push(node)

    def remove(self, node: Node) -> None:
        """Take a listed node out (LRU-4)."""
        link = self._links.pop(node)
        link.newer.older = link.older
        link.older.newer = link.newer

    def least_recent(self, accepts: Callable[[Node], bool]) -> Node | None:
        """The least recent node that is accepted (LRU-8)."""
        return _search(self._sentinel.newer, accepts)

    def next_newer(self, node: Node, accepts: Callable[[Node], bool]) -> Node | None:
        """The first accepted node among those more recent than a listed one (LRU-9)."""
        return _search(self._links[node].newer, accepts)

    def _put_behind(self, newer: _Link, node: Node) -> None:
        assert node not in self._links
        link = self._links[node] = _Link(node)
        link.newer, link.older = newer, newer.older
        newer.older.newer = link
        newer.older = link


def _search(link: _Link, accepts: Callable[[Node], bool]) -> Node | None:
    while link.node is not None and not accepts(link.node):
        link = link.newer
    return link.node
