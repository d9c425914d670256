"""Replays saved traces and says for each whether the pair agrees on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from .harness import ops
from .harness.campaign import Budget, Case, Start
from .harness.corpus import find_traces, pair_of
from .harness.events import Event, Found
from .harness.lockstep import Pair
from .harness.opening import allows_hostile, replay_settings, settings_for
from .harness.trace import Trace, read_trace
from .options import err
from .reports.progress import ProgressView
from .run_log import RunLog
from .running import run_cases


class Replayed(msgspec.Struct):
    """What a replay covered: how many traces, on which pairs, and whether Ctrl-C ended it."""

    traces: int
    pairs: tuple[Pair, ...]
    interrupted: bool = False


def replay_files(
    paths: Sequence[Path], pairs: tuple[Pair, ...] | None, log: RunLog, device: str = "cpu"
) -> Replayed:
    """Replay traces on these pairs, or each on the pair that it was saved for; `log` hears all."""
    groups: dict[tuple[Pair, ...], list[tuple[Path, Trace]]] = {}
    for path, trace in [(path, read_trace(path)) for path in find_traces(paths)]:
        chosen = pairs or (pair_of(trace),)
        if any(map(ops.is_hostile, trace.ops)):
            chosen = tuple(pair for pair in chosen if allows_hostile([pair]))
        if chosen:
            groups.setdefault(chosen, []).append((path, trace))
        else:
            err.print(f"{path}: skipped, it breaks the protocol, which only our cores answer alike")
    every = tuple(dict.fromkeys(pair for chosen in groups for pair in chosen))
    replayed = Replayed(sum(map(len, groups.values())), every)
    for number, (chosen, group) in enumerate(groups.items(), 1):
        if _replay_group(group, chosen, log, device, job=-number):
            replayed.interrupted = True
            break
    return replayed


def _replay_group(
    group: list[tuple[Path, Trace]], pairs: tuple[Pair, ...], log: RunLog, device: str, job: int
) -> bool:
    """Replay traces on the same pairs; returns whether Ctrl-C ended it.

    Jobs of replays have negative numbers, so that they don't count as cases of a campaign.
    """
    budget = Budget(ops=sum(len(trace.ops) for _, trace in group))

    def cases() -> Iterator[Case]:
        for number, (path, trace) in enumerate(group):
            config = trace.header.config
            watched = replay_settings(pairs, config, device)
            yield Case(config, trace.ops, number, str(path), number, watched)

    with ProgressView(err, budget).live() as view:

        def listen(event: Event) -> None:
            if isinstance(event, Found):
                event.divergence.file = str(group[event.case][0])
            log.tell(event)
            view(event)

        settings = settings_for(pairs, device)
        return run_cases(pairs, settings, cases(), Budget(), None, listen, Start(job=job))
