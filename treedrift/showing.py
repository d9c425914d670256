"""`treedrift show`: what a trace holds, and where and why the sides of a pair part on it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from .harness import ops
from .harness.corpus import pair_of
from .harness.describe import describe_op
from .harness.exit_codes import ExitCode
from .harness.explain import OPS_KEPT, explain, unusual
from .harness.explanation import Explanation
from .harness.lockstep import Pair
from .harness.opening import allows_hostile, open_lockstep, replay_settings
from .harness.trace import Trace, read_trace
from .options import JsonOption, PairOption, err, out, parse_pairs
from .reports.commands import MINIMAL, Command, keeping_commands, next_commands
from .reports.explained import print_explanation, written
from .reports.words import plural


class Shown(msgspec.Struct, kw_only=True):
    """What was shown: the object of `--json`.

    `explanation` is None where the sides agree; `refused` is then the error with which both
    refuse the configuration, or None.
    """

    file: str
    pair: Pair
    note: str
    ops: int
    refused: str | None = None
    explanation: Explanation | None = None
    commands: list[Command] = []


def show(
    path: Annotated[Path, typer.Argument(help="A trace.")],
    pair: PairOption = None,
    json_: JsonOption = False,
) -> None:
    """Explain where the two sides of a trace part: values, trees, the rule, the ops before."""
    trace = read_trace(path)
    chosen = parse_pairs(pair)[0] if pair else pair_of(trace)
    if any(map(ops.is_hostile, trace.ops)) and not allows_hostile([chosen]):
        err.print(f"{path} breaks the protocol, which only our cores answer alike", style="yellow")
    shown = _replay(path, trace, chosen)
    if json_:
        sys.stdout.write(msgspec.json.encode(shown).decode() + "\n")
    else:
        _print(trace, shown)
    agreed = shown.explanation is None
    raise typer.Exit(ExitCode.AGREED if agreed else ExitCode.DIVERGENCE)


def _replay(path: Path, trace: Trace, pair: Pair) -> Shown:
    shown = Shown(file=str(path), pair=pair, note=trace.header.note, ops=len(trace.ops))
    lockstep = open_lockstep([pair])
    try:
        shown.explanation = explain(trace, lockstep, pair)
        if shown.explanation is None:
            config = trace.header.config
            shown.refused = lockstep.run(config, [], replay_settings([pair], config)).refused
        else:
            shown.commands = _commands(path, trace, pair, shown.explanation.rule)
    finally:
        lockstep.close()
    return shown


def _commands(path: Path, trace: Trace, pair: Pair, rule: str | None) -> list[Command]:
    """What goes on from a trace on which the sides part."""
    named = None if trace.header.pair == pair else pair
    is_minimal = path.name.endswith(MINIMAL) or len(trace.ops) <= 1
    following = next_commands(str(path), named, is_minimal=is_minimal)
    found = [command for command in following if command.name != "show"]
    if trace.header.known is None and trace.header.expect == "diverges":
        found += keeping_commands(str(path), named, pair, rule)
    return found


def _print(trace: Trace, shown: Shown) -> None:
    out.print(f"{shown.file}: {plural(shown.ops, 'op')}", style="bold", highlight=False)
    if shown.explanation is None:
        _print_agreement(trace, shown)
        return
    wanted = trace.header.signature
    if wanted is not None and wanted != shown.explanation.signature:
        out.print(f"no longer of the kind that it was saved for: {wanted}", style="yellow")
    print_explanation(out, shown.explanation, shown.commands)


def _print_agreement(trace: Trace, shown: Shown) -> None:
    if note := written(shown.note):
        out.print(f"  note    {note}", highlight=False)
    changed = ", ".join(f"{name}={value}" for name, value in unusual(trace.header.config).items())
    out.print(f"  config  {changed or 'the default one'}", highlight=False)
    first = max(0, len(trace.ops) - OPS_KEPT)
    if first:
        out.print(f"    ... {plural(first, 'op')} before", style="dim")
    for index, op in enumerate(trace.ops[first:], first):
        out.print(f"  {index:5} {describe_op(op)}", highlight=False)
    if shown.refused is not None:
        out.print(f"both refuse its configuration: {shown.refused}", style="green")
    else:
        out.print(f"{' and '.join(shown.pair)} agree on it", style="green")
    if trace.header.expect == "diverges" and trace.header.pair == shown.pair:
        keep = keeping_commands(shown.file, None, (), None)[0]
        out.print("they parted when it was saved; if that is repaired, keep it so:")
        out.print(f"  {keep.line}", highlight=False)
