"""The order in which requests that share prefixes are served (ORD-1 to ORD-4)."""

from __future__ import annotations

from collections.abc import Sequence

from .node import Node


def weight_order(root: Node, named: Sequence[Node]) -> list[int]:
    """Positions of `named`, depth-first, heavier subtrees first, parents after children.

    The weight of a subtree is the number of entries that name one of its nodes; ties keep child
    order. Only the paths to named nodes are visited.
    """
    positions: dict[Node, list[int]] = {}
    for position, node in enumerate(named):
        positions.setdefault(node, []).append(position)
    weights = _weights(root, positions)
    order: list[int] = []
    # A node is pushed once to be entered, then once more to be left after its subtree.
    stack = [(root, False)]
    while stack:
        node, is_leaving = stack.pop()
        if is_leaving:
            order += positions.get(node, ())
            continue
        stack.append((node, True))
        children = [child for child in node.children.values() if child in weights]
        children.sort(key=weights.__getitem__, reverse=True)
        stack.extend((child, False) for child in reversed(children))
    return order


def _weights(root: Node, positions: dict[Node, list[int]]) -> dict[Node, int]:
    """The weight of every node that has a named node in its subtree, and of no other (ORD-2)."""
    weights = dict.fromkeys(positions, 0)
    for named in positions:
        ancestor = named.parent
        while ancestor is not None and ancestor not in weights:
            weights[ancestor] = 0
            ancestor = ancestor.parent
    pre_order = []
    stack = [root] if weights else []
    while stack:
        node = stack.pop()
        pre_order.append(node)
        stack.extend(child for child in node.children.values() if child in weights)
    for node in reversed(pre_order):
        weights[node] += len(positions.get(node, ()))
        if node.parent is not None:
            weights[node.parent] += weights[node]
    return weights
