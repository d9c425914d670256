"""Turns what was measured into rows, and rows into a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rich.table import Table

from .measure import Times
from .rows import Row, compared_row, plain_row

MS = "ms/request"

AIMS = (
    ("python", "sglang-python", 1.5),
    ("rust", "sglang-rust", 3.0),
    ("sglang-rust", "sglang-python", None),
)
"""Which core is set against which, and how many times faster it should be."""

OURS = ("python", "rust")

SWARM_NEEDED = 5_000_000 / (15 * 60) / 2
"""Ops a second per process that run five million ops in a quarter of an hour on two cores."""


def log_rows(page_size: int, times: dict[str, Times], floor: Sequence[float]) -> list[Row]:
    """Rows of one page size. `times` is by the cores' names, a release after an @ or not."""
    page = f"page {page_size}"
    by_core = {name.partition("@")[0]: each for name, each in times.items()}
    rows = [plain_row(f"core time {name}, {page}", MS, each.core) for name, each in times.items()]
    for core, base, aim in AIMS:
        if core in by_core and base in by_core:
            rows.append(
                compared_row(
                    f"{core} / {base}, {page}",
                    MS,
                    by_core[core].core,
                    by_core[base].core,
                    aim=aim,
                )
            )
    rows += [
        compared_row(f"memory floor / {name}, {page}", MS, floor, each.core)
        for name, each in by_core.items()
        if floor
    ]
    if all(core in by_core for core in OURS):
        harness = _added([by_core[core].harness for core in OURS])
        cores = _added([by_core[core].core for core in OURS])
        name = f"harness / both cores, {page}"
        rows.append(compared_row(name, MS, harness, cores, aim=1.0))
    return rows


def hybrid_rows(page_size: int, times: dict[str, tuple[Times, Times]]) -> list[Row]:
    """What windows and states cost: the time of a hybrid tree against that of FULL alone.

    `times` holds both by core, the hybrid's first.
    """
    return [
        compared_row(f"{name} hybrid / full, page {page_size}", MS, hybrid.core, full.core)
        for name, (hybrid, full) in times.items()
    ]


def _added(columns: Sequence[Sequence[float]]) -> list[float]:
    return [sum(figures) for figures in zip(*columns, strict=True)]


def swarm_row(pair: tuple[str, str], rates: Sequence[float]) -> Row:
    """How fast one process compares a pair, against what a long run needs."""
    return compared_row(
        f"swarm, {','.join(pair)}",
        "ops/s",
        rates,
        [SWARM_NEEDED] * len(rates),
        aim=1.0,
        more_is_better=True,
    )


def table_of(rows: Sequence[Row], title: str) -> Table:
    """The rows for a terminal; a ratio that misses its aim is marked."""
    table = Table(title=title, title_justify="left")
    table.add_column("what", no_wrap=True)
    for heading in ("figure", "unit", "baseline", "ratio", "spread", "aim"):
        justify: Literal["left", "right"] = "left" if heading == "unit" else "right"
        table.add_column(heading, justify=justify, no_wrap=True)
    for row in rows:
        missed = row.aim is not None and row.ratio is not None and row.ratio < row.aim
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
        table.add_row(
            row.name,
            f"{row.figure:,.3f}" if row.figure < 100 else f"{row.figure:,.0f}",
            row.unit,
            "" if row.baseline is None else f"{row.baseline:,.3f}",
            f"{ratio} (short)" if missed else ratio,
            f"{row.spread[0]:,.2f} to {row.spread[1]:,.2f}",
            "" if row.aim is None else f"{row.aim:g}x",
        )
    return table
