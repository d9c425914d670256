"""The `shrink` command: makes a saved failure as small as it can, and says how small that is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from .harness import ops
from .harness.corpus import pair_of
from .harness.exit_codes import ExitCode
from .harness.lockstep import Pair
from .harness.minimize import Minimized, minimize
from .harness.opening import allows_hostile
from .harness.trace import Trace, read_trace, write_trace
from .options import (
    JobsOption,
    PairOption,
    UsageError,
    check_folder,
    err,
    out,
    parse_pairs,
    parse_seconds,
)

SHRINK_SECONDS = 30.0


def shrink(
    path: Annotated[Path, typer.Argument(help="A trace on which two cores diverge.")],
    pair: PairOption = None,
    time: Annotated[str | None, typer.Option(help="How long at most, as in 30s.")] = None,
    jobs: JobsOption = 1,
    output: Annotated[
        Path | None, typer.Option("--out", "-o", help="The trace to write; FILE.min.jsonl if none.")
    ] = None,
) -> None:
    """Make a failing trace as small as possible; the same difference still shows."""
    trace = read_trace(path)
    chosen = _pair(path, trace, pair)
    seconds = parse_seconds(time)
    target = output or path.with_name(f"{path.name.removesuffix('.jsonl')}.min.jsonl")
    check_folder(target.parent)
    progress = target.with_name(f"{target.name}.progress")
    try:
        result = minimize(
            trace,
            chosen,
            signature=trace.header.signature,
            budget_seconds=SHRINK_SECONDS if seconds is None else seconds,
            jobs=jobs,
            checkpoint=progress,
            tell=lambda line: err.print(line, highlight=False),
        )
    except KeyboardInterrupt:
        err.print(f"what was tried is kept in {progress}: the same command goes on from there")
        raise
    raise typer.Exit(_report(result, path, target, progress))


def _pair(path: Path, trace: Trace, pairs: list[str] | None) -> Pair:
    """The pair to shrink for: the one given, else the one that the trace was saved for."""
    chosen = parse_pairs(pairs or [",".join(pair_of(trace))])
    if len(chosen) > 1:
        raise UsageError("--pair: a trace is shrunk for one pair")
    if any(map(ops.is_hostile, trace.ops)) and not allows_hostile(chosen):
        raise UsageError(
            f"{path}: breaks the protocol, which only our cores answer alike; "
            "name a pair of them with --pair"
        )
    return chosen[0]


def _report(result: Minimized, path: Path, target: Path, progress: Path) -> int:
    """Write and print what came out; the exit code."""
    if result.verdict == "AGREES":
        progress.unlink(missing_ok=True)
        out.print(f"{path}: the cores agree, so there is nothing to shrink")
        return ExitCode.AGREED
    if result.verdict == "FLAKY":
        out.print(f"{path}: replays differ from one another, so the trace is left as it is")
        return ExitCode.DIVERGENCE
    write_trace(target, result.trace, overwrite=True)
    out.print(f"{target}: {result.ops_before} ops became {len(result.trace.ops)}", highlight=False)
    out.print(f"kept: {result.signature}", highlight=False)
    out.print(f"{result.trials} traces tried in {result.seconds:.1f} s", highlight=False)
    if result.is_minimal:
        progress.unlink(missing_ok=True)
        tried = ", ".join(f"{name} {count}" for name, count in result.tried.items())
        out.print(f"1-minimal: none of its neighbours keeps that ({tried})", highlight=False)
    else:
        out.print("time ran out: the same command goes on from here, with --time for longer")
    for kind, count in sorted(result.slipped.items(), key=lambda item: -item[1]):
        out.print(f"{count} traces failed in another way: {kind}", highlight=False)
    for other in result.slipped_traces:
        name = re.sub(r"[^A-Za-z0-9]+", "-", str(other.header.signature)).strip("-")[:80]
        beside = target.with_name(f"{target.name.removesuffix('.jsonl')}.other-{name}.jsonl")
        write_trace(beside, other, overwrite=True)
        out.print(f"{beside}: the simplest of those", highlight=False)
    out.print(f"see it: treedrift show {target}", highlight=False)
    return ExitCode.AGREED
