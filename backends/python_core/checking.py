"""The sanity check: every invariant, recomputed from the tree alone (CHK-1 to CHK-20).

Checks of the host tier have nothing to look at in this core.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..contract import NodeId, SanityCheckError
from . import arguments
from .auxiliary import AuxiliaryComponent
from .base import CoreBase
from .component import Component
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


def _tree_violations(tree: Tree, nodes: Sequence[Node]) -> Iterator[str]:
    root = tree.root
    if any(component.data(root).lock_ref <= 0 for component in tree.components):
        yield "the root is not locked"
    if root.parent is not None:
        yield "the root has a parent"
    yield from _child_violations(root)
    leaves = set()
    for node in nodes:
        yield from _child_violations(node)
        if node.full.device_value is None:
            yield f"node {node.id} has no value"
        if not node.children and not _is_locked(tree, node):
            leaves.add(node)
    if leaves != tree.device_leaves:
        wrong = sorted(node.id for node in leaves ^ tree.device_leaves)
        yield f"device leaves are wrong for nodes {wrong}"
    for component in tree.components:
        yield from _component_violations(component, nodes)
    for auxiliary in tree.auxiliary:
        yield from _list_violations(auxiliary, [root, *nodes])


def _is_locked(tree: Tree, node: Node) -> bool:
    return any(component.data(node).lock_ref > 0 for component in tree.components)


def _child_violations(node: Node) -> Iterator[str]:
    for child in node.children.values():
        if child.parent is not node:
            yield f"node {child.id} does not name its parent {node.id}"
        if not child.length:
            yield f"node {child.id} has no key"


def _component_violations(component: Component, nodes: Iterable[Node]) -> Iterator[str]:
    """Counts, boundaries, lengths and ledgers of one component (CHK-8, CHK-18, SWA-V11)."""
    name = component.component_type.name
    evictable = protected = 0
    boundaries: set[int] = set()
    for node in nodes:
        data = component.data(node)
        if data.lock_ref < 0 or data.host_lock_ref < 0:
            yield f"node {node.id} has a negative lock count of {name}"
        marks = {mark for mark in (data.lock_uuid, data.host_lock_uuid) if mark is not None}
        if marks & boundaries:
            yield f"node {node.id} repeats a boundary of {name}"
        boundaries |= marks
        if data.device_value is None:
            continue
        length = len(data.device_value)
        if length != component.value_length(node):
            yield f"node {node.id} has {length} entries of {name}"
        if data.lock_ref > 0:
            protected += length
        else:
            evictable += length
    recorded = (component.evictable, component.protected)
    if recorded != (evictable, protected):
        sizes = (evictable, protected)
        yield f"sizes of {name} are {sizes}, but the ledgers say {recorded}"


def _list_violations(component: AuxiliaryComponent, nodes: Iterable[Node]) -> Iterator[str]:
    """The recency list holds exactly the nodes with a value (CHK-15, SWA-V1, MAM-V1)."""
    name = component.component_type.name
    listed = list(component.recency)
    if len(listed) != len(set(listed)) or any(node not in component.recency for node in listed):
        yield f"the list of {name} is not well linked"
    holders = {node for node in nodes if component.data(node).device_value is not None}
    if holders != set(listed):
        wrong = sorted(node.id for node in holders ^ set(listed))
        yield f"the list of {name} is wrong for nodes {wrong}"


def _ongoing_violations(tree: Tree, handles: Iterable[NodeId]) -> Iterator[str]:
    """Nodes of transfers in flight must be alive and locked (CHK-19)."""
    for handle in handles:
        node = tree.nodes.get(handle)
        if node is None:
            yield f"a transfer is in flight for node {handle}, which is gone"
        elif node.full.lock_ref <= 0:
            yield f"a transfer is in flight for node {handle}, which is not locked"
