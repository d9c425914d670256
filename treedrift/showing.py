"""Shows a trace: what it holds, and both sides at the op where they part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from .harness import observation
from .harness.compare import STRUCTS, Divergence
from .harness.exit_codes import ExitCode
from .harness.lockstep import Pair
from .harness.observation import Observation
from .harness.opening import open_lockstep, settings_for
from .harness.recorder import parameters_of
from .harness.trace import Trace, read_trace

OPS_SHOWN = 12
"""Ops before the divergence that are listed."""

WIDTH = 300


def show_trace(out: Console, path: Path, pair: Pair | None) -> int:
    """Print a trace and what a replay of it shows; returns the exit code."""
    trace = read_trace(path)
    chosen = pair or trace.header.pair or ("python", "rust")
    _print_header(out, path, trace)
    settings = settings_for([chosen], tree_every=1)
    lockstep = open_lockstep([chosen])
    try:
        result = lockstep.run(trace.header.config, trace.ops, settings)
        found = result.divergences[0] if result.divergences else None
        last = len(trace.ops) - 1 if found is None or found.op_index is None else found.op_index
        _print_ops(out, trace, last)
        if found is None:
            out.print(f"{' and '.join(chosen)} agree on it", style="green")
            return ExitCode.AGREED
        _print_divergence(out, found)
        if found.kind in ("difference", "oracle") and found.op_index is not None:
            for name in chosen:
                _print_side(out, name, _observe(lockstep, name, trace, settings, found.op_index))
        return ExitCode.DIVERGENCE
    finally:
        lockstep.close()


def _print_header(out: Console, path: Path, trace: Trace) -> None:
    header = trace.header
    out.print(f"{path}: {len(trace.ops)} ops", style="bold")
    if header.note:
        out.print(f"  {header.note}", highlight=False, markup=False)
    plain = msgspec.to_builtins(header.config)
    default = msgspec.to_builtins(type(header.config)())
    changed = {name: value for name, value in plain.items() if value != default[name]}
    out.print(f"  configuration: {changed}", highlight=False, markup=False)


def _print_ops(out: Console, trace: Trace, last: int) -> None:
    first = max(0, last - OPS_SHOWN + 1)
    if first:
        out.print(f"  ... {first} ops before", style="dim")
    for index in range(first, last + 1):
        text = msgspec.json.encode(trace.ops[index]).decode()
        out.print(f"  {index:5} {text[:WIDTH]}", highlight=False, markup=False)


def _print_divergence(out: Console, found: Divergence) -> None:
    place = "in the final drain" if found.op_index is None else f"at op {found.op_index}"
    out.print(f"they part {place} ({found.op_kind}): {found.where}", style="bold red", markup=False)
    if found.left is not None or found.right is not None:
        for name, value in zip(found.pair, (found.left, found.right), strict=True):
            out.print(f"  {name:24} {str(value)[:WIDTH]}", highlight=False, markup=False)


def _observe(
    lockstep: Any, name: str, trace: Trace, settings: Any, index: int
) -> Observation | None:
    client = lockstep.clients[name]
    if client.open(trace.header.config, settings) is not None:
        return None
    client.submit(trace.ops[: index + 1])
    batch = client.collect()
    if len(batch.observations) <= index:
        return None
    return observation.decode(batch.observations[index])


def _print_side(out: Console, name: str, seen: Observation | None) -> None:
    out.print(f"{name}:", style="bold")
    if seen is None:
        out.print("  it did not get that far")
        return
    for call in seen.calls:
        out.print(f"  {describe_call(call)[:WIDTH]}", highlight=False, markup=False)
    if seen.outcome:
        out.print(f"  the op ended with {seen.outcome}")
    for finding in seen.findings:
        out.print(f"  {finding.oracle}: {finding.message}", highlight=False, markup=False)
    out.print(f"  pool: {seen.pool}"[:WIDTH], highlight=False, markup=False)


def describe_call(call: list[Any]) -> str:
    """One recorded call as text, with parameter and field names."""
    method, arguments = call[0], call[1]
    names = parameters_of(method)
    shown = ", ".join(
        f"{names[index] if index < len(names) else index}={describe(item)}"
        for index, item in enumerate(arguments)
    )
    if len(call) < 3:
        return f"{method}({shown})"
    end = call[2]
    answer = describe(end[1]) if end[0] == "ok" else f"raises {end[1]}"
    return f"{method}({shown}) -> {answer}"


def describe(item: Any) -> str:
    """A recorded value as text; records show the fields that are not empty."""
    if isinstance(item, list):
        fields = STRUCTS.get(item[0]) if item and isinstance(item[0], str) else None
        if fields is not None and len(item) == len(fields) + 1:
            inner = ", ".join(
                f"{name}={describe(value)}"
                for name, value in zip(fields, item[1:], strict=True)
                if value not in (None, [], False)
            )
            return f"{item[0]}({inner})"
        return f"[{', '.join(map(describe, item))}]"
    return str(item)
