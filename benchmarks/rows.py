"""Rows of a benchmark report: medians with their spread, set against a baseline.

Hides how figures of interleaved rounds become one: what is compared is always two figures of the
same round, so a machine that is busy for a while slows both.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec


class Row(msgspec.Struct, kw_only=True):
    """One line of the report.

    `figure` and `baseline` are medians over the rounds, in `unit`. `ratio` says how many times
    better than the baseline the figure is, `spread` the lowest and the highest ratio of a round
    (of the figure where there is no baseline). `aim` is the ratio that is wanted.
    """

    name: str
    figure: float
    unit: str
    baseline: float | None = None
    ratio: float | None = None
    spread: tuple[float, float]
    aim: float | None = None


def plain_row(name: str, unit: str, figures: Sequence[float]) -> Row:
    """A row without a baseline. Raises `ValueError` without any figures."""
    _check(figures)
    return Row(name=name, figure=median(figures), unit=unit, spread=(min(figures), max(figures)))


def compared_row(
    name: str,
    unit: str,
    figures: Sequence[float],
    baselines: Sequence[float],
    *,
    aim: float | None = None,
    more_is_better: bool = False,
) -> Row:
    """A row of figures against baselines, round by round.

    Raises `ValueError` unless there are as many of both, at least one, and all positive.
    """
    _check(figures)
    if len(figures) != len(baselines):
        raise ValueError(f"{len(figures)} figures and {len(baselines)} baselines")
    if min(*figures, *baselines, 1.0) <= 0:
        raise ValueError(f"{name}: figures must be positive, got {figures} and {baselines}")
    ratios = [
        figure / baseline if more_is_better else baseline / figure
        for figure, baseline in zip(figures, baselines, strict=True)
    ]
    return Row(
        name=name,
        figure=median(figures),
        unit=unit,
        baseline=median(baselines),
        ratio=median(ratios),
        spread=(min(ratios), max(ratios)),
        aim=aim,
    )


def _check(figures: Sequence[float]) -> None:
    if not figures:
        raise ValueError("a row needs at least one figure")


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write rows as a JSON list of objects; the folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = msgspec.json.encode(list(rows))
    path.write_bytes(msgspec.json.format(data, indent=2) + b"\n")
