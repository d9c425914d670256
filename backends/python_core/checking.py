"""The sanity check: every invariant, recomputed from the tree alone (CHK-1 to CHK-20).

Checks of the host tier and of other components have nothing to look at in this core.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..contract import NodeId, SanityCheckError
from . import arguments
from .base import CoreBase
from .node import Node
from .tree import Tree


class CheckingCalls(CoreBase):
    """The calls that check and show the tree."""

    def sanity_check(
        self,
        ongoing_write_through: list[tuple[int, NodeId]],
        ongoing_load_back: list[tuple[int, NodeId]],
    ) -> None:
        """Raise `SanityCheckError` with one line per violation, after a line that counts them."""
        ongoing = _handles(ongoing_write_through) + _handles(ongoing_load_back)
        tree = self._tree
        nodes = list(tree.pre_order())
        violations = [*_tree_violations(tree, nodes), *_ongoing_violations(tree, ongoing)]
        if violations:
            count = len(nodes) + 1
            first = f"Sanity check FAILED ({len(violations)} violations across {count} nodes):"
            raise SanityCheckError("\n".join([first, *violations]))

    def pretty_print(self) -> None:
        """Print one line per node, indented by depth (CHK-22)."""
        depths = {self._tree.root: 0}
        for node in (self._tree.root, *self._tree.pre_order()):
            if node.parent is not None:
                depths[node] = depths[node.parent] + 1
            indent = "  " * depths[node]
            print(f"{indent}node {node.id}: {node.length} units, {node.full.lock_ref} locks")


def _handles(ongoing: Sequence[tuple[int, NodeId]]) -> list[NodeId]:
    """The nodes of pairs of an operation and a node."""
    handles = []
    for operation_id, node_id in ongoing:
        arguments.signed(operation_id, "an operation id")
        handles.append(arguments.handle(node_id))
    return handles


def _tree_violations(tree: Tree, nodes: Iterable[Node]) -> Iterator[str]:
    root = tree.root
    if root.full.lock_ref <= 0:
        yield "the root is not locked"
    if root.parent is not None:
        yield "the root has a parent"
    yield from _child_violations(root)
    leaves = set()
    evictable = protected = 0
    for node in nodes:
        yield from _child_violations(node)
        yield from _node_violations(node)
        if node.full.lock_ref > 0:
            protected += node.length
        else:
            evictable += node.length
            if not node.children:
                leaves.add(node)
    if leaves != tree.device_leaves:
        wrong = sorted(node.id for node in leaves ^ tree.device_leaves)
        yield f"device leaves are wrong for nodes {wrong}"
    if (evictable, protected) != (tree.full.evictable, tree.full.protected):
        recorded = (tree.full.evictable, tree.full.protected)
        yield f"sizes are {(evictable, protected)}, but the ledgers say {recorded}"


def _child_violations(node: Node) -> Iterator[str]:
    for child in node.children.values():
        if child.parent is not node:
            yield f"node {child.id} does not name its parent {node.id}"
        if not child.length:
            yield f"node {child.id} has no key"


def _node_violations(node: Node) -> Iterator[str]:
    data = node.full
    if data.device_value is None or len(data.device_value) != node.length:
        yield f"node {node.id} has no value of its length"
    if data.lock_ref < 0 or data.host_lock_ref < 0:
        yield f"node {node.id} has a negative lock count"


def _ongoing_violations(tree: Tree, handles: Iterable[NodeId]) -> Iterator[str]:
    """Nodes of transfers in flight must be alive and locked (CHK-19)."""
    for handle in handles:
        node = tree.nodes.get(handle)
        if node is None:
            yield f"a transfer is in flight for node {handle}, which is gone"
        elif node.full.lock_ref <= 0:
            yield f"a transfer is in flight for node {handle}, which is not locked"
