"""What a person sees on standard error while a run lasts: how far it is, and what it finds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from ..harness import campaign, events
from ..harness.compare import Divergence
from .words import headline

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
