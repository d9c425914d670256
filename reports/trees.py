"""Pictures of trees as inline SVG: one box a node, indented below its parent, changes marked.

A change has a word as well as a colour, so that it can be seen in print and by everybody. Hides
the layout; colours are the page's.
"""

from __future__ import annotations

from xml.etree import ElementTree

import msgspec

from ..harness.explanation import Explanation
from .marks import Marked, Tree, trees_after, trees_before

ROW, BOX, INDENT, MARGIN = 46, 38, 22, 2
CHARACTER = 7.3
"""Width of one character of the page's monospace font at 12 px."""

TEXT_MAX = 46
"""Longer labels are cut; the whole one is the box's tooltip."""

FACT_MAX, FACTS_MAX = 30, 90
"""So long may one fact be, and all of a node: long slots leave room for the rest."""


class Picture(msgspec.Struct):
    """A drawn tree, with what to write above it."""

    title: str
    svg: str


def pictures(explanation: Explanation) -> list[Picture]:
    """The trees of both sides before and after; one picture where both sides show the same."""
    before, after = trees_before(explanation.sides), trees_after(explanation.sides)
    if before == after and len(before) == 1:
        return [_picture(f"Before and after, {tree.title}", tree) for tree in before]
    return [
        _picture(f"{moment}, {tree.title}", tree)
        for moment, trees in (("Before", before), ("After", after))
        for tree in trees
    ]


# --- Drawing ------------------------------------------------------------------------------


def _picture(title: str, tree: Tree) -> Picture:
    boxes = [_texts(one) for one in tree.nodes]
    width = max(
        2 * MARGIN + one.node.depth * INDENT + _width(texts)
        for one, texts in zip(tree.nodes, boxes, strict=True)
    )
    height = len(tree.nodes) * ROW - (ROW - BOX) + 2 * MARGIN
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
    depths = [one.node.depth for one in tree.nodes]
    for row in range(len(depths)):
        _draw_branch(svg, depths, row)
    for row, (one, texts) in enumerate(zip(tree.nodes, boxes, strict=True)):
        _draw_box(svg, row, one, texts)
    return Picture(title, ElementTree.tostring(svg, encoding="unicode"))


def _texts(one: Marked) -> tuple[str, str, str, str]:
    """Handle, label, small print and mark of a box."""
    node = one.node
    name = "" if node.handle is None or node.parent is None else f"#{node.handle}"
    facts = [f"slots {node.slots}"] if node.slots else []
    small = " · ".join(_cut(fact, FACT_MAX) for fact in [*facts, *node.facts])
    return name, _cut(node.label), _cut(small, FACTS_MAX), one.mark


def _cut(text: str, most: int = TEXT_MAX) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _width(texts: tuple[str, str, str, str]) -> float:
    name, label, small, mark = texts
    first = len(name) + len(label) + (2 if name else 0) + (len(mark) + 2 if mark else 0)
    return max(first * CHARACTER, len(small) * CHARACTER * 0.92) + 18


def _draw_branch(svg: ElementTree.Element, depths: list[int], row: int) -> None:
    """The line from the nearest node above that is one level higher."""
    above = [other for other in range(row) if depths[other] == depths[row] - 1]
    if not above:
        return
    across = MARGIN + (depths[row] - 1) * INDENT + 10
    start = MARGIN + above[-1] * ROW + BOX
    end = MARGIN + row * ROW + BOX // 2
    line = f"M{across} {start}V{end}H{MARGIN + depths[row] * INDENT}"
    ElementTree.SubElement(svg, "path", {"class": "branch", "d": line})


def _draw_box(
    svg: ElementTree.Element, row: int, one: Marked, texts: tuple[str, str, str, str]
) -> None:
    node, mark = one.node, one.mark
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


def _spoken(tree: Tree) -> str:
    """The tree for those who hear it."""
    nodes = []
    for node, mark in ((one.node, one.mark) for one in tree.nodes):
        name = node.label if node.handle is None else f"#{node.handle} {node.label}"
        nodes.append(_cut(name) + (f" ({mark})" if mark else ""))
    return ", ".join(nodes)
