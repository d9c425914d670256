"""`treedrift corpus`: lists saved traces, verifies that they show what they should, adds new ones.

Hides how files are spread over processes and how verdicts are laid out.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import torch
import typer

from .backends.registry import BackendName
from .backends.sglang.environments import MissingEnvironmentError
from .harness.corpus import CORPUS_FOLDER, Verdict, Verifier, find_traces, pair_of
from .harness.exit_codes import ExitCode
from .harness.keeping import Facts, keep, promote
from .harness.ledger import Ledger
from .harness.lockstep import Pair
from .harness.trace import TraceError, read_trace
from .options import JsonOption, PairOption, UsageError, err, out, parse_pairs
from .reports.commands import is_named_in

app = typer.Typer(no_args_is_help=True, help="List, verify and add saved traces.")

CorpusOption = Annotated[Path, typer.Option("--corpus", help="Folder of the three shelves.")]


class ShelfName(str, Enum):
    """Where a trace can be kept."""

    SEEDS = "seeds"
    REGRESSIONS = "regressions"
    KNOWN = "known"


AFTERWARDS = {
    ShelfName.SEEDS: "commit it: treedrift check replays it from now on",
    ShelfName.REGRESSIONS: "commit it: treedrift check replays it from now on",
    ShelfName.KNOWN: "commit it: runs call this kind known from now on",
}
"""What a kept trace is good for, by its shelf."""


# --- list ---------------------------------------------------------------------------------


@app.command("list")
def list_traces(
    folder: Annotated[Path, typer.Argument(help="A folder of traces, or one.")] = CORPUS_FOLDER,
    json_: JsonOption = False,
) -> None:
    """List saved traces: pair, what a replay must show, rule, signature and note."""
    rows = [_facts_of(path) for path in find_traces([folder])]
    if json_:
        sys.stdout.write(json.dumps({"traces": rows}) + "\n")
        return
    for row in rows:
        pair = ",".join(row["pair"])
        _print(f"{row['file']}: {row['ops']} ops, {row['expect']} on {pair}")
        for name in ("rule", "signature", "note"):
            if row[name]:
                _print(f"    {name:9}  {row[name]}")


def _facts_of(path: Path) -> dict[str, Any]:
    trace = read_trace(path)
    header = trace.header
    return {
        "file": str(path),
        "ops": len(trace.ops),
        "pair": list(pair_of(trace)),
        "expect": header.expect,
        "rule": header.rule,
        "signature": header.signature,
        "known": msgspec.to_builtins(header.known),
        "note": header.note,
    }


def _print(line: str, style: str = "") -> None:
    out.print(line, style=style, highlight=False)


# --- verify -------------------------------------------------------------------------------


class Row(msgspec.Struct):
    """The verdict on one file and pair; `promoted` is where a fixed failure went."""

    file: str
    pair: Pair | None
    verdict: Verdict
    promoted: str | None = None


Item = tuple[Path, Pair | None]
"""A file and the pair to replay it on; None for one that can't be read."""


@app.command()
def verify(
    paths: Annotated[list[Path] | None, typer.Argument(help="Traces, or folders of them.")] = None,
    pair: PairOption = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes to run in.")] = 1,
    json_: JsonOption = False,
    promote_: Annotated[
        bool, typer.Option("--promote", help="Move failures that are fixed to the regressions.")
    ] = False,
    corpus: CorpusOption = CORPUS_FOLDER,
) -> None:
    """Replay saved traces several times each and tell what is not as expected.

    Each runs on the pair that it was saved for, or on every --pair.
    """
    chosen = parse_pairs(pair) if pair else None
    ledger = Ledger.read(corpus / "known")
    files = find_traces(paths or [corpus])
    items = [item for path in files for item in _items(path, chosen)]
    err.print(f"replaying {len(items)} traces", highlight=False)
    rows = list(_verify(items, ledger, jobs))
    if promote_:
        _promote(rows, corpus)
    if json_:
        sys.stdout.write(json.dumps(_as_json(rows), default=str) + "\n")
    else:
        _print_rows(rows)
    raise typer.Exit(_exit_code(rows))


def _promote(rows: list[Row], corpus: Path) -> None:
    """Keep what is fixed as a regression; a file that is fixed on several pairs, for the first."""
    kept: dict[str, str] = {}
    for row in rows:
        if row.verdict.kind == "FIXED" and row.pair is not None:
            if row.file not in kept:
                kept[row.file] = str(promote(Path(row.file), row.pair, corpus))
            row.promoted = kept[row.file]


def _items(path: Path, chosen: tuple[Pair, ...] | None) -> list[Item]:
    """The replays of a file."""
    try:
        trace = read_trace(path)
    except TraceError:
        return [(path, None)]
    return [(path, pair) for pair in chosen or (pair_of(trace),)]


def _verify(items: list[Item], ledger: Ledger, jobs: int) -> Iterator[Row]:
    """The verdicts, in the order of the files."""
    if jobs == 1:
        verdicts = _verdicts(items, ledger)
    else:
        verdicts = _verdicts_in_processes(items, ledger, jobs)
    for path, pair in items:
        yield Row(str(path), pair, verdicts[path, pair])


def _verdicts(items: list[Item], ledger: Ledger) -> dict[Item, Verdict]:
    torch.set_num_threads(1)  # The tensors are small.
    verifier = Verifier(ledger)
    try:
        far = [item for item in items if item[1] is not None and not _is_local(item[1])]
        for _, pair in far:
            assert pair is not None, "those without a pair are left out"
            verifier.prepare(pair)
        # While workers get ready, the traces that need none are replayed.
        in_order = [*(item for item in items if item not in far), *far]
        return {(path, pair): verifier.verdict_on_file(path, pair) for path, pair in in_order}
    finally:
        verifier.close()


def _is_local(pair: Pair) -> bool:
    """Whether a pair needs no worker, which takes its time to start."""
    try:
        return all(BackendName(*name.split("@", 1)).place() is None for name in pair)
    except MissingEnvironmentError:
        return True  # It will not be started.


def _verdicts_in_processes(items: list[Item], ledger: Ledger, jobs: int) -> dict[Item, Verdict]:
    """All verdicts; a pair with workers stays in one process, which starts them once."""
    shares = [items[number::jobs] for number in range(jobs)]
    far = {pair for _, pair in items if pair is not None and not _is_local(pair)}
    local = [[item for item in share if item[1] not in far] for share in shares]
    together = [[item for item in items if item[1] == pair] for pair in sorted(far)]
    context = multiprocessing.get_context("spawn")
    found: dict[Item, Verdict] = {}
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_end_quietly) as pool:
        parts = [share for share in (*together, *local) if share]
        for part in pool.map(_verdicts, parts, [ledger] * len(parts)):
            found |= part
    return found


def _end_quietly() -> None:
    """Ctrl-C reaches every process of a terminal; the first one says what there is to say."""
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(ExitCode.INTERRUPTED))


def _as_json(rows: list[Row]) -> dict[str, Any]:
    counts = Counter(row.verdict.kind for row in rows)
    plain = []
    for row in rows:
        found = row.verdict
        fields: dict[str, Any] = {"file": row.file, "pair": row.pair, "verdict": found.kind}
        fields |= {name: getattr(found, name) for name in ("expected", "runs", "detail", "known")}
        divergence = found.divergence
        fields["signature"] = None if divergence is None else divergence.signature
        fields["op_index"] = None if divergence is None else divergence.op_index
        plain.append(fields | {"promoted": row.promoted})
    return {"traces": plain, "counts": counts, "as_expected": not _unexpected(rows)}


def _unexpected(rows: list[Row]) -> list[Row]:
    return [row for row in rows if not row.verdict.expected and row.promoted is None]


def _print_rows(rows: list[Row]) -> None:
    for row in rows:
        found = row.verdict
        pair = "" if row.pair is None else f"  {','.join(row.pair)}"
        reason = found.detail or (f"known: {found.known}" if found.known else "")
        detail = f"  {reason}" if reason and found.expected else ""
        style = "" if found.expected else "red"
        _print(f"{found.kind:11}  {row.file}{pair}{detail}", style)
    counts = Counter(row.verdict.kind for row in rows)
    said = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    wrong = _unexpected(rows)
    as_expected = f"{len(wrong)} not as expected" if wrong else "all as expected"
    _print(f"{len(rows)} replayed: {said}; {as_expected}", "red" if wrong else "green")
    for row in rows:
        if row.promoted is not None:
            _print(f"{row.file} is fixed and kept as {row.promoted}")
    for row in wrong:
        _print_trouble(row)


def _print_trouble(row: Row) -> None:
    """What is wrong with one trace, and the command that goes on from there."""
    found = row.verdict
    _print("")
    if row.pair is None:
        _print(found.detail)
        return
    pair = ",".join(row.pair)
    _print(f"{row.file}: {found.kind} on {pair}: {found.detail}")
    if found.divergence is not None:
        _print(f"    {found.divergence.signature}")
    named = "" if is_named_in(row.file, row.pair) else f" --pair {pair}"
    if found.kind == "FIXED":
        _print(f"    keep it: treedrift corpus verify {row.file}{named} --promote")
    else:
        _print(f"    look at it: treedrift show {row.file}{named}")


def _exit_code(rows: list[Row]) -> int:
    wrong = _unexpected(rows)
    if any(row.verdict.kind != "ERROR" for row in wrong):
        return ExitCode.DIVERGENCE
    if any(row.pair is None for row in wrong):
        return ExitCode.USAGE
    return ExitCode.HARNESS if wrong else ExitCode.AGREED


# --- add ----------------------------------------------------------------------------------


@app.command()
def add(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A trace.")],
    to: Annotated[ShelfName, typer.Option("--to", help="Where it belongs.")],
    pair: PairOption = None,
    name: Annotated[str | None, typer.Option(help="Its name, without .jsonl.")] = None,
    rule: Annotated[str | None, typer.Option(help="The rule that decides, as in EVT-21.")] = None,
    note: Annotated[str | None, typer.Option(help="What it is for.")] = None,
    core: Annotated[str | None, typer.Option(help="known: whose difference it is.")] = None,
    release: Annotated[
        list[str] | None, typer.Option(help="known: a release in which it holds. Repeatable.")
    ] = None,
    needs: Annotated[
        list[str] | None, typer.Option(help="known: an op that it takes. Repeatable.")
    ] = None,
    any_op: Annotated[
        bool, typer.Option("--any-op", help="known: whatever op shows the same call and field.")
    ] = False,
    corpus: CorpusOption = CORPUS_FOLDER,
) -> None:
    """Copy a trace into the corpus, once replays have shown that it belongs there.

    Seeds and regressions must agree; a known difference must diverge as it says.
    """
    if pair is not None and len(pair) > 1:
        raise UsageError("--pair: a trace is kept for one pair")
    chosen = parse_pairs(pair)[0] if pair else pair_of(read_trace(path))
    if name is not None and not name.replace("-", "").isalnum():
        raise UsageError(f"--name {name!r}: use letters, digits and hyphens")
    facts = Facts(
        name=name,
        rule=rule,
        note=note,
        core=core,
        releases=release or [],
        needs=needs or [],
        any_op=any_op,
    )
    kept = keep(path, chosen, corpus, to.value, facts)
    said = f"{kept.verdict.kind} on {','.join(chosen)}"
    if kept.verdict.divergence is not None:
        said += f", {kept.verdict.divergence.signature}"
    _print(f"{kept.file}: {said}")
    _print(AFTERWARDS[to])
