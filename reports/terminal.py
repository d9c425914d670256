"""What a person sees: progress on standard error while a run lasts, its summary afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ..harness import campaign, events
from ..harness.compare import Divergence
from .commands import next_commands
from .words import cut_alike, headline, plural

VALUE_WIDTH_MAX = 160

LINE_MAX = 300

LINE_SECONDS = 10.0
"""Where lines can't be redrawn, as in a CI log, progress is told every so often."""


class ProgressView:
    """A line that says how far a campaign is; a new kind of divergence gets a line of its own."""

    def __init__(self, console: Console, budget: campaign.Budget) -> None:
        self._console = console
        self._budget = budget
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("running", total=1.0, figures="")
        self._next_line = LINE_SECONDS

    @contextmanager
    def live(self) -> Iterator[ProgressView]:
        """Show the line while the block lasts."""
        with self._bar:
            yield self

    def __call__(self, event: events.Event) -> None:
        """Take one event of the campaign."""
        if isinstance(event, events.Found) and event.is_new:
            self._bar.console.print(found_line(event.divergence))
        if not isinstance(event, events.Progress):
            return
        rate = event.op_count / max(event.seconds, 1e-9)
        figures = f"{event.op_count:,} ops  {rate:,.0f}/s  {event.findings} findings"
        self._bar.update(self._task, completed=self._share(event), figures=figures)
        if not self._console.is_terminal and event.seconds >= self._next_line:
            self._next_line = event.seconds + LINE_SECONDS
            self._console.print(f"{event.seconds:,.0f} s  {figures}", highlight=False)

    def _share(self, event: events.Progress) -> float:
        shares = [0.0]
        if self._budget.ops:
            shares.append(event.op_count / self._budget.ops)
        if self._budget.seconds:
            shares.append(event.seconds / self._budget.seconds)
        return min(max(shares), 1.0)


def found_line(divergence: Divergence) -> Text:
    """One line for a new kind of divergence."""
    text = Text("found ", style="bold red")
    text.append(f"{' against '.join(divergence.pair)}: ", style="bold")
    text.append(headline(divergence)[:LINE_MAX])
    return text


def print_summary(console: Console, summary: dict[str, Any], is_campaign: bool = True) -> None:
    """The summary of a campaign, or of a replay, which is not expected to reach everything."""
    statistics = summary["statistics"]
    rate = summary["ops"] / max(summary["seconds"], 1e-9)
    console.print(
        f"{summary['ops']:,} ops in {summary['cases']:,} cases, "
        f"{summary['seconds']:.1f} s ({rate:,.0f} ops/s)"
        + (", interrupted" if summary["interrupted"] else "")
    )
    for pair in summary["pairs"]:
        _print_pair(console, pair, [one for one in summary["divergences"] if one["pair"] == pair])
    _print_cores(console, statistics)
    if is_campaign:
        _print_reached(console, statistics)
    _print_ledger(console, summary["ledger"])
    for canary in summary["canaries"]:
        _print_canary(console, canary)
    # The last lines are read first, so what is new stands there.
    for divergence in sorted(summary["divergences"], key=lambda one: one["status"] != "known"):
        print_divergence(console, divergence)


def _print_pair(console: Console, pair: list[str], found: list[dict[str, Any]]) -> None:
    known = sum(one["status"] == "known" for one in found)
    verdict = f"{plural(len(found), 'kind')} of divergence" if found else "no divergence"
    if known:
        verdict += ", known" if known == len(found) else f", {known:,} of them known"
    style = "red" if len(found) > known else "yellow" if found else "green"
    console.print(f"  {' against '.join(pair)}: {verdict}", style=style)


def _print_ledger(console: Console, ledger: list[dict[str, Any]]) -> None:
    for entry in ledger:
        if not entry["holds"]:
            pair = " against ".join(entry["pair"])
            console.print(
                f"vanished: the known difference {entry['known']} no longer shows for {pair}",
                style="yellow",
            )


def _print_canary(console: Console, canary: dict[str, Any]) -> None:
    if canary["caught"]:
        console.print(f"canary: {canary['drill']} was caught after {canary['ops']:,} ops")
        return
    console.print(
        f"canary: {canary['drill']} was NOT caught in {canary['ops']:,} ops; "
        "this run proves nothing, whatever it says above",
        style="bold red",
    )


def _print_cores(console: Console, statistics: dict[str, Any]) -> None:
    if not statistics["core_seconds"]:
        return
    table = Table("core", "in the core", "whole side", "requests", box=None, pad_edge=False)
    requests = f"{statistics['requests']:,}, hit rate {statistics['hit_rate']:.1%}"
    for name, spent in statistics["core_seconds"].items():
        whole = statistics["side_seconds"][name]
        table.add_row(name, f"{spent:.2f} s", f"{whole:.2f} s", requests)
    console.print(table)


def _print_reached(console: Console, statistics: dict[str, Any]) -> None:
    behaviours = statistics["behaviours"]
    if behaviours:
        shown = ", ".join(f"{name} {count:,}" for name, count in behaviours.items())
        console.print(f"reached: {shown}", style="dim", highlight=False)
    policies = statistics["policies"]
    console.print(
        "policies: " + ", ".join(f"{name} {count:,}" for name, count in policies.items()),
        style="dim",
        highlight=False,
    )
    if statistics["not_reached"]:
        console.print(f"not reached: {', '.join(statistics['not_reached'])}", style="yellow")


def print_divergence(console: Console, divergence: dict[str, Any]) -> None:
    """One kind of divergence, and the commands that show, repeat and shrink it."""
    console.print()
    style = "yellow" if divergence["status"] == "known" else "bold red"
    status = f"{divergence['status']}  " if divergence["status"] else ""
    console.print(f"{status}{divergence['signature']}", style=style, highlight=False)
    console.print(f"  {divergence['headline']}", highlight=False)
    if divergence["rule"]:
        text = f": {divergence['rule_text']}" if divergence["rule_text"] else ""
        console.print(f"  rule {divergence['rule']}{text}", highlight=False)
    place = "the final drain" if divergence["op_index"] is None else f"op {divergence['op_index']}"
    times = "once" if divergence["count"] == 1 else f"{divergence['count']:,} times"
    console.print(f"  {times}; first at {place} ({divergence['op']}){_shrunk(divergence)}")
    for row in divergence["rows"]:
        _print_values(console, divergence["pair"], row)
    if divergence["verdict"]:
        verdict = divergence["verdict"][:VALUE_WIDTH_MAX]
        console.print(f"  guilty: {divergence['side']} ({verdict})", highlight=False)
    if divergence["known"]:
        console.print(f"  known as {divergence['known']}", highlight=False)
    _print_commands(console, divergence)


def _print_values(console: Console, pair: list[str], row: dict[str, Any]) -> None:
    """A field in which the sides differ, with the value of each."""
    console.print(f"  {row['field']}", highlight=False)
    if row["left"] is None and row["right"] is None:
        return
    values = cut_alike(str(row["left"]), str(row["right"]), VALUE_WIDTH_MAX)
    for name, value in zip(pair, values, strict=True):
        console.print(f"    {name}: {value}", highlight=False)


def _shrunk(divergence: dict[str, Any]) -> str:
    shrunk = divergence["shrunk"]
    if shrunk is None:
        return ""
    sizes = f"; shrunk from {shrunk['ops_before']:,} to {plural(shrunk['ops_after'], 'op')}"
    if shrunk["verdict"] == "FLAKY":
        return f"{sizes}, does not show on every replay"
    return sizes + (", minimal" if shrunk["is_minimal"] else ", time ran out")


def _print_commands(console: Console, divergence: dict[str, Any]) -> None:
    shrunk = divergence["shrunk"] or {}
    commands = next_commands(
        shrunk.get("file") or divergence["file"],
        divergence["pair"],
        is_minimal=bool(shrunk.get("is_minimal")),
    )
    # What is known needs no work: one look is enough.
    for command in commands[:1] if divergence["status"] == "known" else commands:
        console.print(f"  {command.line}", highlight=False, end="")
        console.print(f"  # {command.purpose}", style="dim", highlight=False)
