"""An explanation as text: what parted, who is wrong by which rule, the trace, values, trees.

It fits into 100 columns and reads the same without colour: what is marked has a sign or a word.
Hides how columns are laid out.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..harness.compare import Divergence
from ..harness.explanation import Explanation, OpLine, Row
from .commands import Command, lines_of
from .marks import Marked, Tree, trees_after, trees_before
from .words import headline, plural, versus

WIDTH_MAX = 100
"""Columns that an explanation takes at most, and takes where the output is no terminal."""

TREE_NODES_MAX = 40
"""Nodes of a larger tree are shown only where they are concerned or have changed."""

CONCERNED, HERE = "*", ">"
"""Signs of what touches the nodes concerned, and of the op at which the sides part."""

NOTED_BY_ITSELF = re.compile(r"(difference|oracle|crash|hang|memory|refused) at \w+: ")
"""How the note begins that a run gives to what it saves."""

DIFFERS = "!"
"""Sign of the rows that differ."""


def print_explanation(
    console: Console, explanation: Explanation, commands: Sequence[Command] = ()
) -> None:
    """Print an explanation, and the commands that go on from it."""
    if not console.is_terminal:
        console.file.write(text_explanation(explanation, commands))
        return
    width = min(WIDTH_MAX, console.width)
    for part in _parts(explanation, width):
        console.print(part, width=width, soft_wrap=False, highlight=False)
    for line in _commands(commands):
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def text_explanation(explanation: Explanation, commands: Sequence[Command] = ()) -> str:
    """An explanation as plain text of up to 100 columns, and the commands that go on from it."""
    sink = io.StringIO()
    plain = Console(file=sink, width=WIDTH_MAX, color_system=None, emoji=False, highlight=False)
    for part in _parts(explanation, WIDTH_MAX):
        plain.print(part)
    lines = [*sink.getvalue().splitlines(), *_commands(commands)]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _parts(explanation: Explanation, width: int) -> list[RenderableType]:
    parts: list[RenderableType] = [_headline(explanation), _facts(explanation)]
    if explanation.ops:
        parts += [_title(_ops_title(explanation)), _ops(explanation)]
    parts += [_title("Where they part"), *_values(explanation)]
    parts += _calls(explanation)
    before, after = trees_before(explanation.sides), trees_after(explanation.sides)
    if before == after and len(before) == 1:
        return [*parts, _title("The tree, before and after"), _trees(before, width)]
    for title, trees in (("The tree before", before), ("The tree after", after)):
        parts += [_title(title), _trees(trees, width)] if trees else []
    return parts


def _title(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


# --- What parted --------------------------------------------------------------------------


def headline_of(explanation: Explanation) -> str:
    """What parted, in one line without values."""
    found = Divergence(
        pair=explanation.pair,
        kind=explanation.kind,
        op_index=explanation.op_index,
        op_kind=explanation.op_kind,
        where=explanation.where,
        side=explanation.guilty,
    )
    return headline(found)


def _headline(explanation: Explanation) -> Text:
    text = Text(f"{versus(explanation.pair)}: they part ", style="bold red")
    text.append(place_of(explanation))
    text.append(f"\n{headline_of(explanation)}", style="not bold")
    return text


def place_of(explanation: Explanation) -> str:
    """Where in its trace the sides part, with the op."""
    if explanation.op_index is None:
        return (
            f"in {explanation.op}" if explanation.op_kind == "drain" else f"when {explanation.op}"
        )
    return f"at op {explanation.op_index}, {explanation.op_kind}"


def _facts(explanation: Explanation) -> Table:
    """The rule, the verdict, the configuration and the rest, as a table of two columns."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    if explanation.rule:
        told = f": {explanation.rule_text}" if explanation.rule_text else ""
        table.add_row("rule", Text(f"{explanation.rule}{told}"))
    table.add_row("wrong", Text(_verdict(explanation)))
    if explanation.is_soft:
        table.add_row("effect", Text("none on the state: the case went on"))
    if explanation.config:
        changed = ", ".join(f"{name}={value}" for name, value in explanation.config.items())
        table.add_row("config", Text(changed))
    if note := written(explanation.note):
        table.add_row("note", Text(note))
    table.add_row("kind", Text(explanation.signature))
    return table


def written(note: str) -> str:
    """A note that somebody wrote; empty for the place that a run notes by itself."""
    return "" if NOTED_BY_ITSELF.match(note) else note


def _verdict(explanation: Explanation) -> str:
    if explanation.guilty is None and explanation.kind == "oracle":
        return "both sides"
    if explanation.guilty is None:
        return explanation.verdict or "not told: nothing here says which side"
    return explanation.guilty + (f": {explanation.verdict}" if explanation.verdict else "")


# --- The trace ----------------------------------------------------------------------------


def _ops_title(explanation: Explanation) -> str:
    title = f"The trace, {plural(explanation.op_count, 'op')}"
    handles = ", ".join(f"#{handle}" for handle in explanation.concerned[:8])
    more = len(explanation.concerned) - 8
    if more > 0:
        handles += f" and {more} more"
    return title + (f" ({CONCERNED} touches {handles})" if handles else "")


def _ops(explanation: Explanation) -> Table:
    table = Table.grid(padding=(0, 1))
    for column in ("left", "right", "left"):
        table.add_column(
            no_wrap=column == "right", justify="right" if column == "right" else "left"
        )
    table.add_column(overflow="fold", style="dim")
    expected = 0
    for op in explanation.ops:
        if op.index > expected:
            table.add_row("", "...", Text(f"{plural(op.index - expected, 'op')} left out"), "")
        expected = op.index + 1
        is_here = op.index == explanation.op_index
        signs = (HERE if is_here else " ") + (CONCERNED if op.is_concerned else " ")
        style = "bold red" if is_here else "bold" if op.is_concerned else ""
        table.add_row(Text(signs), str(op.index), Text(op.text, style=style), Text(_touches(op)))
    return table


def _touches(op: OpLine) -> str:
    shown = " ".join(f"#{handle}" for handle in op.touches[:6])
    return shown + (" ..." if len(op.touches) > 6 else "")


# --- Values -------------------------------------------------------------------------------


def _values(explanation: Explanation) -> list[RenderableType]:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", no_wrap=True)
    table.add_column("field", overflow="fold", max_width=34)
    for name in explanation.pair:
        table.add_column(Text(name), overflow="fold", ratio=1)
    table.expand = True
    for row in differing_first(explanation.rows):
        style = "bold red" if row.differs else ""
        cells = [Text(text, style=style) for text in (row.field, row.left, row.right)]
        table.add_row(DIFFERS if row.differs else " ", *cells)
    call = [Text(explanation.call)] if explanation.call else []
    return [*call, table]


def differing_first(rows: Sequence[Row]) -> list[Row]:
    """Fields with those in front that part; among the rest of a record they are hard to see."""
    return sorted(rows, key=lambda row: not row.differs)


def _calls(explanation: Explanation) -> list[RenderableType]:
    """The other calls of the op, those of both sides once, and how it ended on each side."""
    sides = explanation.sides
    calls = [_without(explanation.call, side.calls) for side in sides]
    common = _common(calls)
    parts: list[RenderableType] = []
    if common:
        title = "Calls before, on both sides" if explanation.call else "Calls, on both sides"
        parts += [_title(title), *map(_line, common)]
    for side, made in zip(sides, calls, strict=True):
        lines = made[len(common) :]
        if side.outcome:
            lines = [*lines, f"the op ended with {side.outcome}"]
        findings = [_line(f"{DIFFERS} {finding}", "bold red") for finding in side.findings]
        if lines or findings:
            parts += [_title(f"On {side.name}"), *map(_line, lines), *findings]
    return parts


def _without(call: str | None, calls: list[str]) -> list[str]:
    """Calls without the one that parts, whose answers stand side by side already."""
    return calls[:-1] if call is not None and calls and calls[-1].startswith(call) else calls


def _common(calls: Sequence[list[str]]) -> list[str]:
    if len(calls) < 2:
        return []
    left, right = calls
    shorter = min(len(left), len(right))
    unequal = (index for index in range(shorter) if left[index] != right[index])
    return left[: next(unequal, shorter)]


def _line(text: str, style: str = "") -> Padding:
    return Padding(Text(text, style=style, overflow="fold"), (0, 0, 0, 2))


# --- Trees --------------------------------------------------------------------------------


def _trees(trees: Sequence[Tree], width: int) -> Table:
    """Trees side by side."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for tree in trees:
        table.add_column(Text(tree.title), width=width // len(trees) - 2, overflow="fold")
    table.add_row(*[_tree(tree.nodes) for tree in trees])
    return table


def _tree(nodes: Sequence[Marked]) -> Table:
    table = Table.grid()
    table.add_column(overflow="fold")
    shown = list(nodes)
    if len(nodes) > TREE_NODES_MAX:
        shown = [one for one in nodes if one.mark or one.node.is_concerned or not one.node.depth]
    for one in shown:
        table.add_row(_node(one))
    if len(shown) < len(nodes):
        table.add_row(Text(f"{plural(len(nodes) - len(shown), 'node')} left out", style="dim"))
    return table


def _node(one: Marked) -> RenderableType:
    """One node, its facts below it where they don't fit beside it."""
    node = one.node
    text = Text()
    if node.handle is not None and node.parent is not None:
        text.append(f"#{node.handle} ")
    text.append(node.label)
    if one.mark:
        text.append(f"  ({one.mark})", style="yellow" if one.mark in ("new", "changed") else "red")
    small = [f"slots {node.slots}"] if node.slots else []
    if small or node.facts:
        text.append("\n" + "  ".join([*small, *node.facts]), style="dim")
    if node.is_concerned:
        text.stylize("bold")
    grid = Table.grid()
    grid.add_column(width=2 * node.depth + 2)
    grid.add_column(overflow="fold")
    grid.add_row(f"{CONCERNED if node.is_concerned else ' '} ", text)
    return grid


# --- What to do next ----------------------------------------------------------------------


def _commands(commands: Sequence[Command]) -> list[str]:
    """The commands, each on one line however long it is, so that it can be copied."""
    return ["", "Next", *[f"  {line}" for line in lines_of(commands)]] if commands else []
