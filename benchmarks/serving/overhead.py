"""`python -m benchmarks.serving.overhead`: what our cores, the shadow and the recorder cost.

Runs in the project's own environment, starts `python -m benchmarks.serving` in one with SGLang,
and prints a table. All contestants serve the same requests and take turns; a ratio compares runs
of the same round.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from benchmarks.report import table_of
from benchmarks.rows import Row, compared_row, plain_row, write_rows
from treedrift.backends.sglang.environments import EnvironmentsError, resolve

from .__main__ import parser_of_runs
from .running import Report

ROOT = Path(__file__).parents[2]
COMPARED = (
    ("treedrift-rust", "sglang-rust"),
    ("treedrift-rust", "sglang-python"),
    ("treedrift-python", "sglang-python"),
    ("shadow:sglang-rust,treedrift-rust", "sglang-rust"),
    ("shadow:sglang-rust,treedrift-python", "sglang-rust"),
    ("record:sglang-rust", "sglang-rust"),
    ("record:treedrift-rust", "treedrift-rust"),
)
"""Who is set against whom."""

TABLE_WIDTH = 124
MS = "ms/request"
TIMES = {"core": "core_s", "run": "wall_s"}
"""What is compared: time in the core's calls, and of the whole run, both as a server sees them."""

out = Console(width=max(Console().width, TABLE_WIDTH))
err = Console(stderr=True, soft_wrap=True, markup=False)


class DifferentRunsError(Exception):
    """Two cores served the same requests differently, so that their times say nothing."""


def main(arguments: list[str]) -> int:
    """Measure and print. 1 if the cores differ, 2 for bad arguments or no environment, else 0."""
    parser = parser_of_runs("python -m benchmarks.serving.overhead", __doc__)
    everyone = list(dict.fromkeys(name for pair in COMPARED for name in pair))
    parser.set_defaults(core=everyone, rounds=5)
    parser.add_argument("--environment", help="with SGLang; default: the newest managed one")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "serving.json")
    options = parser.parse_args(arguments)
    try:
        environment = resolve(options.environment)
    except EnvironmentsError as error:
        err.print(str(error))
        return 2
    passed = _arguments_of(options)
    process = subprocess.run(
        [str(environment.interpreter), "-W", "ignore", "-m", "benchmarks.serving", *passed],
        env={**environment.process_environment(), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        check=False,
    )
    if process.returncode:
        return 2
    reports = [
        msgspec.json.decode(line, type=Report)
        for line in process.stdout.splitlines()
        if line.startswith(b"{")
    ]
    try:
        rows = rows_of(reports)
    except DifferentRunsError as error:
        err.print(str(error))
        return 1
    write_rows(options.output, rows)
    title = f"{options.log.name}, {options.requests} requests, {options.rounds} rounds"
    out.print(table_of(rows, f"{title}, {','.join(options.components)}, page {options.page_size}"))
    out.print(f"written to {options.output}")
    return 0


def _arguments_of(options: object) -> list[str]:
    """The same options for the command in the other environment."""
    passed = []
    for name, value in vars(options).items():
        if name in ("environment", "output") or value is None or value is False:
            continue
        passed.append(f"--{name.replace('_', '-')}")
        if name == "core":
            passed += value
        elif name == "components":
            passed.append(",".join(value))
        elif name == "log":
            passed.append(os.fspath(value.absolute()))
        elif value is not True:
            passed.append(str(value))
    return passed


def rows_of(reports: Sequence[Report]) -> list[Row]:
    """A line for every core, then the ratios. Raises `DifferentRunsError`."""
    by_core: dict[str, list[Report]] = {}
    for report in reports:
        by_core.setdefault(report.core, []).append(report)
        if report.seen() != reports[0].seen():
            raise DifferentRunsError(
                f"{report.core} and {reports[0].core} served the same requests differently: "
                f"{report.seen()} and {reports[0].seen()}"
            )
    figures = {
        (what, name): [1e3 * getattr(run, field) / run.figures.finished for run in runs]
        for what, field in TIMES.items()
        for name, runs in by_core.items()
    }
    rows = [plain_row(f"{what}: {name}", MS, each) for (what, name), each in figures.items()]
    for what in TIMES:
        for name, base in COMPARED:
            if name in by_core and base in by_core:
                label = f"{what}: {name} / {base}"
                rows.append(compared_row(label, MS, figures[what, name], figures[what, base]))
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
