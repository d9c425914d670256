"""The `drills` command: hunts seeded faults and prints which were caught, how fast and how small.

With `--json` one object comes on standard output:

- `seed`, `budget_seconds`, `shrink_seconds` (null without shrinking), `interrupted`
- `canary`: the drill, whether it was `caught`, `ops` and `seconds`
- `summary`: `drills` hunted, `caught`, `caught_share`, `size_median`, `size_p95`, `minimal`,
  `kept` (how many kept their signature while they shrank), `seconds_max`, `shrink_seconds_max`
- `drills`: for each `name`, `about`, `rule`, `case`, `stands_for`, `caught`, `by` (the signature of
  what caught it first), `signature` (that of the replayed trace), `ops`, `cases` and `seconds` to
  the first catch, `ops_before` and `size` in ops, `shrink_seconds`, `is_minimal`, `kept`, `file`

Sizes are null without shrinking. Hides how hunts are spread over processes.
"""

from __future__ import annotations

import difflib
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import torch
import typer
from rich.console import Console
from rich.table import Table

from .harness.events import Canary
from .harness.exit_codes import ExitCode
from .harness.minimize import minimize
from .harness.side import collect_rarely
from .harness.trace import write_trace
from .models.drills import DRILLS, run_canary
from .models.drills.hunt import Catch, hunt
from .options import JobsOption, JsonOption, UsageError, check_folder, err, out, parse_seconds
from .reports.words import plural

PIPED_WIDTH = 200

ROWS_MAX = 40
"""Rows of the table that are printed unless all are asked for."""

CAUGHT_SHARE_MIN = 0.95
"""The share of drills that must be caught."""


class Task(msgspec.Struct, frozen=True):
    """One hunt: which drill, for how long, from which seed, and how long to shrink."""

    name: str
    seconds: float
    seed: int
    shrink_seconds: float


def drills(
    names: Annotated[list[str] | None, typer.Argument(help="Drills; all when none.")] = None,
    budget: Annotated[str, typer.Option(help="How long to hunt each drill, as in 60s.")] = "60s",
    shrink: Annotated[str, typer.Option(help="How long to shrink each; 0 for not at all.")] = "30s",
    jobs: JobsOption = 1,
    seed: Annotated[int, typer.Option(help="Seed of the hunts.")] = 1,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for the shrunk trace of each drill.")
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help=f"Print every drill, not the first {ROWS_MAX} alone.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the drills and hunt none.")] = False,
    json_: JsonOption = False,
) -> None:
    """Hunt seeded faults of the Python core: what would the harness miss?"""
    chosen = _chosen(names or [])
    if list_:
        _print_list(chosen, json_)
        return
    tasks = _tasks(chosen, budget, shrink, seed)
    if out_folder is not None:
        check_folder(out_folder)
    canary = run_canary()
    catches, interrupted = _hunt_all(tasks, jobs)
    report = _report(tasks[0], canary, catches, interrupted, out_folder)
    if json_:
        sys.stdout.write(json.dumps(report) + "\n")
    else:
        _print(report, None if all_ else ROWS_MAX)
    raise typer.Exit(_exit_code(report))


def _chosen(names: list[str]) -> list[str]:
    for name in names:
        if name not in DRILLS:
            near = difflib.get_close_matches(name, DRILLS, n=1)
            hint = f"did you mean {near[0]}?" if near else "treedrift drills --list names them all"
            raise UsageError(f"no drill {name!r}; {hint}")
    return list(dict.fromkeys(names)) or list(DRILLS)


def _tasks(names: list[str], budget: str, shrink: str, seed: int) -> list[Task]:
    seconds, shrink_seconds = parse_seconds(budget, "--budget"), parse_seconds(shrink, "--shrink")
    assert seconds is not None
    assert shrink_seconds is not None
    return [Task(name, seconds, seed, shrink_seconds) for name in names]


def _print_list(names: list[str], json_: bool) -> None:
    if json_:
        rows = [_described(name) for name in names]
        sys.stdout.write(json.dumps({"drills": rows}) + "\n")
        return
    for name in names:
        drill = DRILLS[name]
        out.print(f"{name:34} {drill.rule:9} {drill.about}", highlight=False)


# --- Hunting ------------------------------------------------------------------------------


def _hunt_all(tasks: list[Task], jobs: int) -> tuple[list[Catch], bool]:
    """What was caught, in the order of the tasks, and whether Ctrl-C cut it short."""
    caught: dict[str, Catch] = {}
    interrupted = False
    try:
        for catch in _alone(tasks) if jobs == 1 else _spread(tasks, jobs):
            caught[catch.drill] = catch
            how = f"caught after {catch.ops:,} ops" if catch.caught else "missed"
            err.print(f"{len(caught)}/{len(tasks)} {catch.drill}: {how}", highlight=False)
    except KeyboardInterrupt:
        interrupted = True
    return [caught[task.name] for task in tasks if task.name in caught], interrupted


def _alone(tasks: list[Task]) -> Iterator[Catch]:
    _prepare()
    return map(_hunt, tasks)


def _spread(tasks: list[Task], jobs: int) -> Iterator[Catch]:
    """Hunt in several processes. They end with this one, whatever ends it."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_process)
    futures: list[Future[Catch]] = []
    # Ctrl-C reaches the whole group of processes: a hunt must not see it, nor while it imports.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        futures += [pool.submit(_hunt, task) for task in tasks]
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    try:
        for future in as_completed(futures):
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()


def _start_process() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _prepare()


def _end_with_parent() -> None:
    """A hunt whose parent was killed would wait for its next task for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _prepare() -> None:
    torch.set_num_threads(1)  # The tensors are small, and other hunts have work of their own.
    collect_rarely()


def _hunt(task: Task) -> Catch:
    minimizer = partial(minimize, jobs=1) if task.shrink_seconds else None
    return hunt(DRILLS[task.name], task.seconds, task.seed, minimizer, task.shrink_seconds)


# --- The kill table -----------------------------------------------------------------------


def _report(
    task: Task, canary: Canary, catches: list[Catch], interrupted: bool, folder: Path | None
) -> dict[str, Any]:
    """The object that `--json` prints; writes the traces."""
    return {
        "seed": task.seed,
        "budget_seconds": task.seconds,
        "shrink_seconds": task.shrink_seconds or None,
        "interrupted": interrupted,
        "canary": {name: getattr(canary, name) for name in ("drill", "caught", "ops", "seconds")},
        "summary": _summary(catches),
        "drills": [_row(catch, folder) for catch in catches],
    }


def _summary(catches: list[Catch]) -> dict[str, Any]:
    import pandas as pd

    caught = [catch for catch in catches if catch.caught]
    shrunk = [catch for catch in caught if catch.shrunk is not None]
    sizes = pd.Series([catch.size for catch in shrunk], dtype=float)
    return {
        "drills": len(catches),
        "caught": len(caught),
        "caught_share": len(caught) / len(catches) if catches else 0.0,
        "size_median": float(sizes.median()) if shrunk else None,
        "size_p95": float(sizes.quantile(0.95, interpolation="higher")) if shrunk else None,
        "minimal": sum(catch.is_minimal is True for catch in shrunk),
        "kept": sum(_kept(catch) is True for catch in shrunk),
        "seconds_max": max((catch.seconds for catch in caught), default=None),
        "shrink_seconds_max": max((catch.shrink_seconds or 0.0 for catch in shrunk), default=None),
    }


def _kept(catch: Catch) -> bool | None:
    """Whether the shrunk trace shows what the found one showed; None without shrinking."""
    return None if catch.shrunk is None else catch.replayed == catch.signature


def _described(name: str) -> dict[str, Any]:
    drill = DRILLS[name]
    return {
        field: getattr(drill, field) for field in ("name", "about", "rule", "case", "stands_for")
    }


def _row(catch: Catch, folder: Path | None) -> dict[str, Any]:
    measured = ("caught", "by", "signature", "ops", "cases", "seconds")
    return {
        **_described(catch.drill),
        **{field: getattr(catch, field) for field in measured},
        "ops_before": None if catch.trace is None else len(catch.trace.ops),
        "size": catch.size,
        "shrink_seconds": catch.shrink_seconds,
        "is_minimal": catch.is_minimal,
        "kept": _kept(catch),
        "file": _saved(catch, folder),
    }


def _saved(catch: Catch, folder: Path | None) -> str | None:
    """Write the smallest trace of a catch; where it is, or None."""
    trace = catch.shrunk or catch.trace
    if folder is None or trace is None:
        return None
    path = folder / f"{catch.drill}.jsonl"
    write_trace(path, trace, overwrite=True)
    return str(path)


def _print(report: dict[str, Any], most: int | None) -> None:
    """The table, what was missed first and then what took longest; and what it comes to."""
    table = Table(box=None, pad_edge=False)
    for name in ("drill", "rule", "caught"):
        table.add_column(name, no_wrap=True)
    table.add_column("by", overflow="fold", max_width=100)
    for name in ("ops", "seconds", "size", "shrunk in", "1-minimal"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = sorted(report["drills"], key=lambda row: (row["caught"], -row["seconds"], row["name"]))
    for row in rows[:most]:
        table.add_row(*_cells(row), style=None if row["caught"] else "red")
    # A table that is piped into a file is not cut to the width of a terminal.
    wide = out if out.is_terminal else Console(width=PIPED_WIDTH, emoji=False, markup=False)
    wide.print(table)
    rest = rows[len(rows[:most]) :]
    if rest:
        said = f"{plural(len(rest), 'quicker drill')} left out; --all prints every one"
        out.print(said, style="dim", highlight=False)
    _print_summary(report)


def _cells(row: dict[str, Any]) -> list[str]:
    shrink = row["shrink_seconds"]
    return [
        row["name"],
        row["rule"],
        "yes" if row["caught"] else "no",
        row["by"] or "",
        f"{row['ops']:,}",
        f"{row['seconds']:.2f}",
        "" if row["size"] is None else str(row["size"]),
        "" if shrink is None else f"{shrink:.1f} s",
        "" if row["is_minimal"] is None else "yes" if row["is_minimal"] else "no",
    ]


def _print_summary(report: dict[str, Any]) -> None:
    summary, canary = report["summary"], report["canary"]
    state = "caught" if canary["caught"] else "missed: nothing here proves anything"
    out.print(f"canary {canary['drill']}: {state}", highlight=False)
    line = f"caught {summary['caught']} of {summary['drills']} ({summary['caught_share']:.1%})"
    if summary["seconds_max"] is not None:
        line += f", the slowest in {summary['seconds_max']:.1f} s"
    out.print(line + (", interrupted" if report["interrupted"] else ""), highlight=False)
    if summary["size_median"] is not None:
        out.print(
            f"after shrinking: median {summary['size_median']:g} ops, 95th percentile "
            f"{summary['size_p95']:g}, the slowest in {summary['shrink_seconds_max']:.1f} s; "
            f"{summary['minimal']} are 1-minimal, {summary['kept']} kept their signature",
            highlight=False,
        )


def _exit_code(report: dict[str, Any]) -> int:
    if report["interrupted"]:
        return ExitCode.INTERRUPTED
    enough = report["summary"]["caught_share"] >= CAUGHT_SHARE_MIN
    return ExitCode.AGREED if enough and report["canary"]["caught"] else ExitCode.DIVERGENCE
