"""`python -m benchmarks.shrinking`: our minimizer beside Hypothesis' shrinker and plain ddmin.

The traces are those on which random cases first catch the drills. Writes a Markdown table, and
with `--json` the figures, into `build/`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import msgspec
import torch
from rich.console import Console

from treedrift.harness.compare import decisive
from treedrift.harness.minimize.draft import Draft
from treedrift.harness.minimize.trial import replayed
from treedrift.harness.opening import open_lockstep
from treedrift.harness.side import collect_rarely
from treedrift.models.drills import DRILLS
from treedrift.models.drills.hunt import hunt, pair_of

from .shrinkers import WAYS, Failing, Shrunk

ROOT = Path(__file__).resolve().parent.parent
HUNT_SECONDS = 60.0

out = Console(soft_wrap=True, markup=False, highlight=False)
err = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)


class Row(msgspec.Struct):
    """One drill's trace, and what every way made of it."""

    drill: str
    signature: str
    ops_before: int
    results: list[Shrunk]


def main(arguments: list[str]) -> int:
    """Measure and write the table."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    collect_rarely()
    rows = []
    for row in measured(options.drills, options.budget, options.seed, options.way or list(WAYS)):
        rows.append(row)
        told = ", ".join(f"{one.way} {one.ops} in {one.seconds:.1f} s" for one in row.results)
        err.print(f"{row.drill}: {row.ops_before} ops; {told}")
    if not rows:
        err.print("no drill was caught, so there is nothing to shrink")
        return 1
    table = as_markdown(rows, options.budget)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(table)
    if options.json:
        options.output.with_suffix(".json").write_bytes(msgspec.json.encode(rows))
    out.print(table)
    out.print(f"written to {options.output}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shrinking", description=__doc__)
    parser.add_argument("--drills", type=int, default=len(DRILLS), help="take so many drills")
    parser.add_argument(
        "--budget", type=_seconds, default=30.0, help="seconds for one trace and one way, as in 30s"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the hunts")
    parser.add_argument("--way", action="append", choices=list(WAYS), help="only these ways")
    parser.add_argument("--json", action="store_true", help="write the figures as JSON too")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "shrinking.md")
    return parser


def _seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def measured(drills: int, budget: float, seed: int, ways: Sequence[str]) -> Iterator[Row]:
    """The rows, one drill after another; drills that no case catches are left out.

    Of fewer drills than there are, those evenly spread over all of them are taken.
    """
    every = list(DRILLS.values())
    for drill in every[:: max(1, len(every) // drills)][:drills]:
        catch = hunt(drill, HUNT_SECONDS, seed)
        if catch.trace is None:
            err.print(f"{drill.name}: not caught")
            continue
        pair, trace = pair_of(drill), catch.trace
        lockstep = open_lockstep([pair])
        try:
            found = decisive(replayed(lockstep, pair, Draft(trace.header.config, trace.ops)))
            if found is None:
                err.print(f"{drill.name}: a replay does not show it")
                continue
            if found.op_index is not None:
                del trace.ops[found.op_index + 1 :]
            failing = Failing(trace, pair, lockstep, found.signature)
            results = [WAYS[way](failing, budget) for way in ways]
            yield Row(drill.name, found.signature, len(trace.ops), results)
        finally:
            lockstep.close()


def as_markdown(rows: Sequence[Row], budget: float) -> str:
    """One line per way with medians and 95th percentiles, then one per trace."""
    ways = [one.way for one in rows[0].results]
    lines = [
        f"# Shrinking {len(rows)} traces, {budget:g} s each",
        "",
        "| way | ops: median | p95 | most | tokens: median | seconds: median | p95 | "
        "traces tried: median | 1-minimal |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for number, way in enumerate(ways):
        results = [row.results[number] for row in rows]
        ops = [one.ops for one in results]
        seconds = [one.seconds for one in results]
        minimal = sum(one.is_minimal for one in results)
        lines.append(
            f"| {way} | {median(ops):g} | {p95(ops):g} | {max(ops)} "
            f"| {median(one.tokens for one in results):g} "
            f"| {median(seconds):.1f} | {p95(seconds):.1f} "
            f"| {median(one.trials for one in results):g} | {minimal} of {len(results)} |"
        )
    lines += [
        "",
        "A cell holds ops, seconds and traces tried; `*` marks what is not 1-minimal.",
        "",
        f"| drill | ops before | {' | '.join(ways)} |",
        f"|---|---|{'---|' * len(ways)}",
    ]
    for row in rows:
        cells = [
            f"{one.ops}{'' if one.is_minimal else '*'}, {one.seconds:.1f} s, {one.trials}"
            for one in row.results
        ]
        lines.append(f"| {row.drill} | {row.ops_before} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def p95(values: Sequence[float]) -> float:
    """The 95th percentile: the smallest value that at least 95 in a hundred do not exceed."""
    ordered = sorted(values)
    return ordered[-(-95 * len(ordered) // 100) - 1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
