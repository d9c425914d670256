"""Replays saved traces and says for each whether the pair agrees on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from . import running
from .harness import ops
from .harness.campaign import Budget, Case
from .harness.lockstep import Pair
from .harness.opening import NEVER, SMALL_POOL, allows_hostile, settings_for
from .harness.tally import Tally
from .harness.trace import Trace, TraceError, read_trace
from .options import err
from .reports.terminal import ProgressView


def find_traces(paths: Sequence[Path]) -> list[Path]:
    """The traces that paths name; those of a folder in order of their names."""
    found = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.rglob("*.jsonl"))
            if not inside:
                raise TraceError(str(path), None, None, "no traces here", "they end in .jsonl")
            found += inside
        else:
            found.append(path)
    return found


class Replayed(msgspec.Struct):
    """What a replay gave: how many traces ran, on which pairs, and what they showed."""

    traces: int
    pairs: tuple[Pair, ...]
    outcome: running.Outcome


def replay_files(
    paths: Sequence[Path], pairs: tuple[Pair, ...] | None, device: str = "cpu"
) -> Replayed:
    """Replay traces on these pairs, or each on the pair that it was saved for."""
    groups: dict[tuple[Pair, ...], list[tuple[Path, Trace]]] = {}
    for path, trace in [(path, read_trace(path)) for path in find_traces(paths)]:
        chosen = pairs or ((trace.header.pair,) if trace.header.pair else (("python", "rust"),))
        if any(map(ops.is_hostile, trace.ops)):
            chosen = tuple(pair for pair in chosen if allows_hostile([pair]))
        if chosen:
            groups.setdefault(chosen, []).append((path, trace))
        else:
            err.print(f"{path}: skipped, it breaks the protocol, which only our cores answer alike")
    outcomes = [_replay_group(group, chosen, device) for chosen, group in groups.items()]
    every = tuple(dict.fromkeys(pair for chosen in groups for pair in chosen))
    return Replayed(sum(map(len, groups.values())), every, join(outcomes))


def _replay_group(
    group: list[tuple[Path, Trace]], pairs: tuple[Pair, ...], device: str
) -> running.Outcome:
    small = all(trace.header.config.capacity <= SMALL_POOL for _, trace in group)
    settings = settings_for(pairs, device, tree_every=1 if small else NEVER, watch_free_list=small)
    budget = Budget(ops=sum(len(trace.ops) for _, trace in group))
    by_case: dict[int, Path] = {}

    def cases() -> Iterator[Case]:
        for number, (path, trace) in enumerate(group):
            by_case[number] = path
            yield Case(trace.header.config, trace.ops, number, str(path))

    with ProgressView(err, budget).live() as view:

        def listen(event: Any) -> None:
            divergence = getattr(event, "divergence", None)
            if divergence is not None:
                divergence.file = str(by_case[event.seed])
            view(event)

        return running.run_cases(pairs, settings, cases(), Budget(), None, listen)


def join(outcomes: Sequence[running.Outcome]) -> running.Outcome:
    """Several outcomes as one."""
    first = running.Outcome(tally=Tally.empty(), seconds=0.0, divergences=[], occurrences=[])
    for other in outcomes:
        first.tally.add(other.tally)
        first.seconds += other.seconds
        first.divergences += other.divergences
        first.occurrences += other.occurrences
        first.interrupted = first.interrupted or other.interrupted
    return first
