"""Pictures of trees as inline SVG: one box a node, indented below its parent, changes marked.

A change has a word as well as a colour, so that it can be seen in print and by everybody. Hides
the layout; colours are the page's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

import msgspec

from ..harness.explanation import Explanation, SideView, TreeNode

ROW, BOX, INDENT, MARGIN = 46, 38, 22, 2
CHARACTER = 7.3
"""Width of one character of the page's monospace font at 12 px."""

TEXT_MAX = 46
"""Longer labels are cut; the whole one is the box's tooltip."""


class Picture(msgspec.Struct):
    """A drawn tree, with what to write above it."""

    title: str
    side: str | None
    svg: str


def pictures(explanation: Explanation) -> list[Picture]:
    """The trees of both sides before and after; one picture where both sides show the same."""
    sides = [side for side in explanation.sides if side.tree_after or side.tree_before]
    drawn: list[Picture] = []
    if len(sides) == 2 and _is_alike(sides[0].tree_before, sides[1].tree_before):
        goes = _gone(sides)
        tree = [(node, goes.get(node.handle, "")) for node in sides[0].tree_before or []]
        drawn += _pictures("Before, on both sides", None, tree)
    else:
        for side in sides:
            goes = _gone([side])
            tree = [(node, goes.get(node.handle, "")) for node in side.tree_before or []]
            drawn += _pictures(f"Before, on {side.name}", side.name, tree)
    later = [(side, _after(side, sides)) for side in sides]
    if len(later) == 2 and later[0][1] == later[1][1]:
        return drawn + _pictures("After, on both sides", None, later[0][1])
    for side, tree in later:
        drawn += _pictures(f"After, on {side.name}", side.name, tree)
    return drawn


Marked = list[tuple[TreeNode, str]]
"""Nodes in order, each with the word for what happens to it, or an empty one."""


def _is_alike(left: list[TreeNode] | None, right: list[TreeNode] | None) -> bool:
    trees = [[(node.handle, *_content(node)) for node in tree or []] for tree in (left, right)]
    return trees[0] == trees[1]


def _gone(sides: Sequence[SideView]) -> dict[int | None, str]:
    """The nodes that an op takes away, and on which of the sides."""
    where: dict[int | None, list[str]] = {}
    seen = [side for side in sides if side.tree_before and side.tree_after is not None]
    for side in seen:
        later = _by_handle(side.tree_after)
        for node in side.tree_before or []:
            if node.handle not in later and node.parent is not None:
                where.setdefault(node.handle, []).append(side.name)
    return {
        handle: "goes" if len(names) == len(seen) else f"goes on {names[0]}"
        for handle, names in where.items()
    }


def _after(side: SideView, sides: Sequence[SideView]) -> Marked:
    """Every node of the tree after, with what it is beside the other side and beside before."""
    earlier = _by_handle(side.tree_before) if side.tree_before is not None else None
    others = [one.tree_after for one in sides if one is not side and one.tree_after is not None]
    other = _by_handle(others[0]) if others else None
    marked = []
    for node in side.tree_after or []:
        if other is not None and node.handle not in other:
            mark = "only here"
        elif other is not None and _content(other[node.handle]) != _content(node):
            mark = "differs"
        elif earlier is not None and node.handle not in earlier:
            mark = "new"
        elif earlier is not None and _content(earlier[node.handle]) != _content(node):
            mark = "changed"
        else:
            mark = ""
        marked.append((node, mark))
    return marked


def _by_handle(nodes: Sequence[TreeNode] | None) -> Mapping[int | None, TreeNode]:
    return {node.handle: node for node in nodes or []}


def _content(node: TreeNode) -> tuple[object, ...]:
    return node.parent, node.label, node.slots, tuple(node.facts)


# --- Drawing ------------------------------------------------------------------------------


def _pictures(title: str, side: str | None, tree: Marked) -> list[Picture]:
    """The picture of a tree, none of no tree."""
    if not tree:
        return []
    boxes = [_texts(node, mark) for node, mark in tree]
    width = max(
        MARGIN * 2 + node.depth * INDENT + _width(texts)
        for (node, _), texts in zip(tree, boxes, strict=True)
    )
    height = len(tree) * ROW - (ROW - BOX) + 2 * MARGIN
    svg = ElementTree.Element(
        "svg",
        {
            "class": "tree",
            "role": "img",
            "aria-label": f"{title}: {_spoken(tree)}",
            "width": f"{width:.0f}",
            "height": f"{height}",
            "viewBox": f"0 0 {width:.0f} {height}",
        },
    )
    for row, (node, _) in enumerate(tree):
        _draw_branch(svg, tree, row, node)
    for row, ((node, mark), texts) in enumerate(zip(tree, boxes, strict=True)):
        _draw_box(svg, row, node, mark, texts)
    return [Picture(title, side, ElementTree.tostring(svg, encoding="unicode"))]


def _texts(node: TreeNode, mark: str) -> tuple[str, str, str, str]:
    """Handle, label, small print and mark of a box."""
    name = "" if node.handle is None or node.parent is None else f"#{node.handle}"
    small = [f"slots {node.slots}"] if node.slots else []
    small += node.facts
    return name, _cut(node.label), _cut(" · ".join(small)), mark


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"


def _width(texts: tuple[str, str, str, str]) -> float:
    name, label, small, mark = texts
    first = len(name) + len(label) + (2 if name else 0) + (len(mark) + 2 if mark else 0)
    return max(first * CHARACTER, len(small) * CHARACTER * 0.92) + 18


def _draw_branch(svg: ElementTree.Element, tree: Marked, row: int, node: TreeNode) -> None:
    """The line from the nearest node above that is one level higher."""
    above = [other for other in range(row) if tree[other][0].depth == node.depth - 1]
    if not above:
        return
    across = MARGIN + (node.depth - 1) * INDENT + 10
    start = MARGIN + above[-1] * ROW + BOX
    end = MARGIN + row * ROW + BOX // 2
    line = f"M{across} {start}V{end}H{MARGIN + node.depth * INDENT}"
    ElementTree.SubElement(svg, "path", {"class": "branch", "d": line})


def _draw_box(
    svg: ElementTree.Element,
    row: int,
    node: TreeNode,
    mark: str,
    texts: tuple[str, str, str, str],
) -> None:
    name, label, small, _ = texts
    left, top, width = MARGIN + node.depth * INDENT, MARGIN + row * ROW, _width(texts)
    colour = "goes" if mark.startswith("goes") else mark.replace(" ", "-")
    classes = ["node", colour, "concerned" if node.is_concerned else ""]
    group = ElementTree.SubElement(svg, "g", {"class": " ".join(filter(None, classes))})
    ElementTree.SubElement(group, "title").text = " · ".join(
        filter(None, [name, node.label, node.slots and f"slots {node.slots}", *node.facts, mark])
    )
    frame = {"x": left, "y": top, "width": round(width), "height": BOX, "rx": 4}
    ElementTree.SubElement(group, "rect", {key: str(value) for key, value in frame.items()})
    middle = top + (16 if small else 24)
    first = _text(group, left + 9, middle, "name")
    if name:
        ElementTree.SubElement(first, "tspan", {"class": "handle"}).text = name
        first[0].tail = f"\u00a0 {label}"
    else:
        first.text = label
    if small:
        _text(group, left + 9, top + 31, "small").text = small
    if mark:
        _text(group, left + round(width) - 8, middle, "mark").text = mark


def _text(group: ElementTree.Element, x: int, y: int, kind: str) -> ElementTree.Element:
    return ElementTree.SubElement(group, "text", {"x": str(x), "y": str(y), "class": kind})


def _spoken(tree: Marked) -> str:
    """The tree for those who hear it."""
    nodes = [
        f"{node.label if node.handle is None else f'#{node.handle} {node.label}'}"
        + (f" ({mark})" if mark else "")
        for node, mark in tree
    ]
    return ", ".join(map(_cut, nodes))
