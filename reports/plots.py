"""Plots of a run as SVG text for a page: they take its colours, and have no id but their own.

The same frame gives the same bytes. Hides matplotlib.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "treedrift",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
}

COLOURS = {
    "#010101": "var(--ink-soft)",
    "#020202": "var(--accent)",
    "#030303": "var(--bad)",
    "#040404": "var(--line)",
    "#050505": "var(--good)",
}
"""Stand-ins that are drawn with, and what the page's style sheet gives for them."""

INK, ACCENT, BAD, LINE, GOOD = COLOURS

SIZE = (4.7, 2.5)
"""Inches; small, so that the text can still be read where a phone shows the plot."""


def rate(table: Any) -> str:
    """Ops a second over time, from `tables.over_time`."""
    with _figure("rate", "time", "ops per second") as (axes, drawn):
        times = _time_axis(axes, table["seconds"])
        axes.step(times, table["rate"], where="pre", color=ACCENT, linewidth=1.4)
        axes.fill_between(times, table["rate"], step="pre", color=ACCENT, alpha=0.12, linewidth=0)
        axes.set_ylim(0, float(table["rate"].max()) * 1.12)
    return drawn.pop()


def growth(table: Any, expected: int) -> str:
    """Behaviours reached, of so many `expected`, and kinds of divergence found, over time."""
    with _figure("growth", "time", "reached") as (axes, drawn):
        times = _time_axis(axes, table["seconds"])
        axes.axhline(expected, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.step(times, table["behaviours"], where="post", color=ACCENT, linewidth=1.6)
        axes.step(times, table["kinds"], where="post", color=BAD, linewidth=1.6)
        axes.set_ylim(0, max(expected, int(table["kinds"].max())) * 1.12)
    return drawn.pop()


def kills(table: Any, budget: float) -> str:
    """Drills caught by the seconds that they took; `budget` is in seconds."""
    caught = table[table["caught"]].sort_values(["seconds", "name"])
    with _figure("kills", "seconds until caught", "drills caught") as (axes, drawn):
        # A catch that is quicker than this can't be told from the start of the core.
        seconds = caught["seconds"].clip(lower=0.01)
        axes.step(seconds, range(1, len(caught) + 1), where="post", color=ACCENT, linewidth=1.6)
        axes.axhline(len(table), color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.axvline(budget, color=BAD, linewidth=0.8)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter("")
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.set_ylim(0, len(table) * 1.08)
    return drawn.pop()


def sizes(ops: Any) -> str:
    """How many drills were shrunk to how many ops, from a series of ops."""
    counts = ops.astype(int).value_counts().sort_index()
    with _figure("sizes", "ops after shrinking", "drills") as (axes, drawn):
        axes.bar(counts.index, counts.to_numpy(), color=ACCENT, width=0.8)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.set_xlim(0.4, max(int(ops.max()), 8) + 0.6)
        axes.grid(visible=False, axis="x")
    return drawn.pop()


@contextmanager
def _figure(name: str, across: str, up: str) -> Iterator[tuple[Any, list[str]]]:
    """Axes to draw on; afterwards the list holds the picture."""
    drawn: list[str] = []
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.subplots()
        axes.set_xlabel(across, color=INK)
        axes.set_ylabel(up, color=INK)
        axes.tick_params(colors=INK)
        axes.grid(color=LINE)
        for spine in axes.spines.values():
            spine.set_color(LINE)
        yield axes, drawn
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
        drawn.append(_inline(text.getvalue(), name))


def _time_axis(axes: Any, seconds: Any) -> Any:
    """Label the axis in a unit that suits the run, and give the times in that unit."""
    unit, name = (60.0, "min") if seconds.max() >= 180 else (1.0, "s")
    axes.set_xlim(0, float(seconds.max()) / unit)
    axes.set_xlabel(f"{axes.get_xlabel()} ({name})")
    return seconds / unit


def _inline(svg: str, name: str) -> str:
    """A file's SVG as part of a page: the page's colours, ids of its own, hidden from readers."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg, flags=re.S)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: inherit", svg)
    svg = re.sub(r'\b(id="|xlink:href="#|url\(#)', rf"\g<1>{name}-", svg)
    for stand_in, colour in COLOURS.items():
        svg = svg.replace(stand_in, colour)
    return svg.replace("<svg ", '<svg class="plot" aria-hidden="true" ', 1)
