"""What a person sees when a run is over: its summary, on a screen or two."""

from __future__ import annotations

import sys
import textwrap
from typing import Any

from rich.console import Console
from rich.table import Table

from ..harness.behaviours import EXPECTED_BEHAVIOURS
from ..harness.events import Canary
from ..harness.lockstep import Pair
from .commands import MINIMAL, PROMOTE, Command, from_here, is_named_in, lines_of, next_commands
from .groups import Group, groups_of
from .run import Kind, RunView
from .summary import OP_KINDS, POLICIES, differing_rows, not_reached, statistics_of
from .words import cut, cut_alike, listed, plural, versus

WIDTH_MAX = 100
"""Columns that a summary takes, but for what is there to be copied."""

LABEL_WIDTH = 9

VALUE_WIDTH_MIN = 30

CUT_MARKS = 8
"""Columns of the dots before and after a value that is cut."""

TEXT_MAX = 400
"""Characters of a rule or a verdict."""

GROUPS_MAX = 5
"""Groups of kinds told in full; others get a line each."""

LINES_MAX = 20
"""Groups of kinds told in a line; the report has all of them."""

OTHERS_MAX = 8
"""Kinds of a group told beside the one that leads."""

MISSED_MAX = 12
"""Ops, policies and behaviours that were not reached, by name."""


def print_summary(console: Console, run: RunView, is_campaign: bool = True) -> None:
    """The summary of a campaign, or of a replay, which is not expected to reach everything."""
    console.print(
        f"{run.tally.op_count:,} ops in {plural(run.tally.cases, 'case')}, "
        f"{run.seconds:.1f} s ({run.rate:,.0f} ops/s)"
        + (", interrupted" if run.is_interrupted else "")
    )
    for pair in run.pairs:
        _print_pair(console, run, pair)
    _print_cores(console, run)
    if is_campaign:
        _print_reached(console, run)
    for entry in run.vanished:
        gone = f"vanished: the known difference {entry.known} no longer shows for "
        console.print(gone + versus(entry.pair), style="yellow")
        console.print(f"  if it is repaired, keep it so: {PROMOTE}", highlight=False)
    for canary in run.canaries:
        _print_canary(console, canary)
    # The last lines are read first, so what is new stands there.
    for group in groups_of(run.known):
        _print_known(console, run, group)
    _print_new(console, groups_of(run.new), names_pairs=len(run.pairs) > 1)


def _print_pair(console: Console, run: RunView, pair: Pair) -> None:
    new = [kind for kind in run.new if kind.pair == pair]
    known = sum(kind.pair == pair for kind in run.known)
    count = len(new) + known
    verdict = f"{plural(count, 'kind')} of divergence" if count else "no divergence"
    if known:
        verdict += ", known" if not new else f", {known:,} of them known"
    groups = len(groups_of(new))
    if groups < len(new):
        verdict += f"; the new ones look like {plural(groups, 'fault')}"
    style = "red" if new else "yellow" if known else "green"
    console.print(f"  {versus(pair)}: {verdict}", style=style)


def _print_canary(console: Console, canary: Canary) -> None:
    if canary.caught:
        console.print(f"canary: {canary.drill} was caught after {plural(canary.ops, 'op')}")
        return
    console.print(
        f"canary: {canary.drill} was NOT caught in {plural(canary.ops, 'op')}; "
        "this run proves nothing, whatever it says above",
        style="bold red",
    )


def _print_cores(console: Console, run: RunView) -> None:
    if not run.tally.core_seconds:
        return
    statistics = statistics_of(run.tally)
    table = Table("core", "in the core", "whole side", "requests", box=None, pad_edge=False)
    requests = f"{statistics['requests']:,}, hit rate {statistics['hit_rate']:.1%}"
    for name, spent in statistics["core_seconds"].items():
        whole = statistics["side_seconds"][name]
        table.add_row(name, f"{spent:.2f} s", f"{whole:.2f} s", requests)
    console.print(table)


def _print_reached(console: Console, run: RunView) -> None:
    """How much of what a long run should reach was reached; what was not, by name."""
    missed = not_reached(run.tally)
    every = len(EXPECTED_BEHAVIOURS) + len(POLICIES) + len(OP_KINDS)
    said = f"reached: {every - len(missed)} of {every} ops, policies and behaviours"
    if missed:
        said += f"; not reached: {listed(missed, MISSED_MAX)}"
    console.print(said, style="yellow" if missed else "dim", highlight=False)


# --- Findings -----------------------------------------------------------------------------


def _print_known(console: Console, run: RunView, group: Group) -> None:
    """A known difference, in one line; the page says more."""
    kind = group.lead
    name = (kind.judged.known if kind.judged is not None else None) or group.headline
    rule = f"{kind.rule}, " if kind.rule else ""
    note = run.note_of(kind)
    line = f"{name}: {rule}{plural(group.count, 'time')}" + (f"; {note}" if note else "")
    short = textwrap.shorten(line, WIDTH_MAX - len("known  "), placeholder=" ...")
    console.print(f"known  {short}", style="yellow", highlight=False)


def _print_new(console: Console, groups: list[Group], names_pairs: bool) -> None:
    """The new groups, the first ones in full, and what to do about the smallest of them."""
    for group in groups[GROUPS_MAX : GROUPS_MAX + LINES_MAX]:
        _print_line(console, group)
    if len(groups) > GROUPS_MAX + LINES_MAX:
        more = f"{len(groups) - GROUPS_MAX - LINES_MAX:,} more are in the report"
        console.print(more, style="bold red")
    told = groups[:GROUPS_MAX]
    first = min((group.lead for group in told if group.lead.file), key=_size, default=None)
    for group in told:
        _print_group(console, group, names_pairs)
        if group.lead is not first:
            for command in _commands_of(group.lead)[:1]:
                _print_row(console, command.name, command.line, 0)
    if first is not None:
        console.print("\nnext", style="bold")
        for line in lines_of(_commands_of(first)):
            console.print(f"  {line}", highlight=False)


def _size(kind: Kind) -> int:
    return sys.maxsize if kind.shrunk is None else kind.shrunk.ops_after


def _commands_of(kind: Kind) -> list[Command]:
    """What to type about a kind in this folder."""
    if kind.file is None:
        return []
    file, pair = from_here(kind.file), kind.pair_to_name
    if pair is not None and is_named_in(file, pair):
        pair = None
    is_minimal = file.endswith(MINIMAL) if kind.shrunk is None else kind.shrunk.is_minimal
    return next_commands(file, pair, is_minimal=is_minimal)


def _print_line(console: Console, group: Group) -> None:
    rule = f" ({group.lead.rule})" if group.lead.rule else ""
    text = f"{_status(group.lead)}  {group.headline}{rule}, {plural(group.count, 'time')}"
    console.print(cut(text, WIDTH_MAX), style="bold red", highlight=False)


def _status(kind: Kind) -> str:
    return "found" if kind.judged is None else kind.judged.status


def _print_group(console: Console, group: Group, names_pair: bool) -> None:
    """One group: what differs, by which rule, who is wrong, how often, and the values."""
    kind = group.lead
    console.print()
    console.print(f"{_status(kind)}  {group.headline}", style="bold red", highlight=False)
    if names_pair:
        _print_row(console, "pair", versus(kind.pair))
    explanation = kind.explanation
    guilty, verdict = kind.first.side, kind.first.verdict
    if explanation is not None and explanation.guilty:
        guilty, verdict = explanation.guilty, explanation.verdict
    if kind.rule:
        _print_row(console, "rule", kind.rule + (f": {kind.rule_text}" if kind.rule_text else ""))
    if guilty is not None:
        _print_row(console, "wrong", guilty + (f": {verdict}" if verdict else ""))
    if kind.first.is_soft:
        _print_row(console, "effect", "none on the state: the case went on")
    _print_row(console, "seen", f"{_seen(group)}{_shrunk(kind)}")
    for row in differing_rows(kind):
        _print_values(console, kind.pair, row)
    _print_row(console, "kind", kind.signature, 0)
    for other in group.others[:OTHERS_MAX]:
        said = f"{other.first.op_kind}: {plural(other.count, 'time')}"
        said += "" if other.shrunk is None else f", {plural(other.shrunk.ops_after, 'op')}"
        said += "" if other.file is None else f", {from_here(other.file)}"
        _print_row(console, "also", said, 0)
    if len(group.others) > OTHERS_MAX:
        _print_row(console, "also", f"{len(group.others) - OTHERS_MAX} other ops; see the report")


def _print_row(console: Console, label: str, text: str, width: int = WIDTH_MAX) -> None:
    """A label and what it labels; wrapped, unless `width` is 0, so that it can be copied."""
    indent = " " * (2 + LABEL_WIDTH)
    lines = textwrap.wrap(cut(text, TEXT_MAX), width - len(indent)) if width else [text]
    console.print(f"  {label:{LABEL_WIDTH}}{lines[0]}", highlight=False)
    for line in lines[1:]:
        console.print(indent + line, highlight=False)


def _seen(group: Group) -> str:
    first = group.lead.first
    count = "once" if group.count == 1 else f"{group.count:,} times"
    if first.op_index is None:
        return f"{count}, first in the final drain"
    return f"{count}, first at op {first.op_index} ({first.op_kind})"


def _shrunk(kind: Kind) -> str:
    shrunk = kind.shrunk
    if shrunk is None:
        return ""
    sizes = f"; shrunk from {shrunk.ops_before:,} to {plural(shrunk.ops_after, 'op')}"
    if shrunk.verdict == "FLAKY":
        return f"{sizes}, does not show on every replay"
    return sizes + (", minimal" if shrunk.is_minimal else ", time ran out")


def _print_values(console: Console, pair: Pair, row: dict[str, Any]) -> None:
    """A field in which the sides differ, with the value of each."""
    _print_row(console, "differs", row["field"])
    if row["left"] is None and row["right"] is None:
        return
    indent, name_width = " " * (4 + LABEL_WIDTH), max(map(len, pair))
    width = max(WIDTH_MAX - len(indent) - name_width - 2 - CUT_MARKS, VALUE_WIDTH_MIN)
    values = cut_alike(str(row["left"]), str(row["right"]), width)
    for name, value in zip(pair, values, strict=True):
        console.print(f"{indent}{name:{name_width}}  {value}", highlight=False)
