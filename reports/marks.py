"""Trees before and after an op, with a word for what is different about a node.

`new`, `changed` and `goes` compare a side with itself before the op; `differs` and `only here`
compare it with the other side, and count for more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ..harness.explanation import SideView, TreeNode


class Marked(msgspec.Struct, frozen=True):
    """A node and its mark, which is empty for one that is as it was, on both sides."""

    node: TreeNode
    mark: str


class Tree(msgspec.Struct, frozen=True):
    """A tree to show: what to write above it, and its nodes, root first."""

    title: str
    nodes: list[Marked]


BOTH = "on both sides"
"""What stands above a tree that both sides show alike."""


def trees_before(sides: Sequence[SideView]) -> list[Tree]:
    """The trees before the op; one where both sides show the same."""
    shown = [side for side in sides if side.tree_before]
    if _are_alike([side.tree_before for side in shown]):
        return [_before(BOTH, shown[0].tree_before or [], shown)]
    return [_before(f"on {side.name}", side.tree_before or [], [side]) for side in shown]


def trees_after(sides: Sequence[SideView]) -> list[Tree]:
    """The trees after the op; one where both sides show the same."""
    shown = [side for side in sides if side.tree_after]
    if _are_alike([side.tree_after for side in shown]):
        return [Tree(BOTH, _after(shown[0], shown))]
    return [Tree(f"on {side.name}", _after(side, shown)) for side in shown]


def _are_alike(trees: Sequence[list[TreeNode] | None]) -> bool:
    return len(trees) == 2 and _content_of(trees[0]) == _content_of(trees[1])


def _before(title: str, tree: list[TreeNode], sides: list[SideView]) -> Tree:
    goes = _gone(sides)
    return Tree(title, [Marked(node, goes.get(node.handle, "")) for node in tree])


def _gone(sides: Sequence[SideView]) -> dict[int | None, str]:
    """The nodes that the op takes away, and on which of the sides."""
    where: dict[int | None, list[str]] = {}
    seen = [side for side in sides if side.tree_after is not None]
    for side in seen:
        later = _by_handle(side.tree_after)
        for node in side.tree_before or []:
            if node.handle not in later and node.parent is not None:
                where.setdefault(node.handle, []).append(side.name)
    return {
        handle: "goes" if len(names) == len(seen) else f"goes on {names[0]}"
        for handle, names in where.items()
    }


def _after(side: SideView, sides: Sequence[SideView]) -> list[Marked]:
    earlier = None if side.tree_before is None else _by_handle(side.tree_before)
    others = [one.tree_after for one in sides if one is not side and one.tree_after is not None]
    other = _by_handle(others[0]) if others else None
    return [Marked(node, _mark(node, earlier, other)) for node in side.tree_after or []]


def _mark(
    node: TreeNode,
    earlier: Mapping[int | None, TreeNode] | None,
    other: Mapping[int | None, TreeNode] | None,
) -> str:
    if other is not None and node.handle not in other:
        return "only here"
    if other is not None and _content(other[node.handle]) != _content(node):
        return "differs"
    if earlier is None or node.parent is None:
        return ""
    if node.handle not in earlier:
        return "new"
    return "changed" if _content(earlier[node.handle]) != _content(node) else ""


def _by_handle(nodes: Sequence[TreeNode] | None) -> Mapping[int | None, TreeNode]:
    return {node.handle: node for node in nodes or []}


def _content_of(nodes: Sequence[TreeNode] | None) -> list[tuple[object, ...]]:
    return [(node.handle, *_content(node)) for node in nodes or []]


def _content(node: TreeNode) -> tuple[object, ...]:
    return node.parent, node.label, node.slots, tuple(node.facts)
