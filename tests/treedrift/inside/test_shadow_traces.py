"""What a shadow saves shows the same divergence again, in a replay of the ordinary kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.treedrift.inside.shadow_runs import Shadowing, cases, observations
from treedrift.backends.registry import local_backend
from treedrift.harness.compare import Divergence, decisive
from treedrift.harness.config import Config
from treedrift.harness.opening import open_lockstep, replay_settings
from treedrift.harness.trace import Trace, read_trace
from treedrift.harness.transcript import Room, config_of
from treedrift.harness.transcript.history import History
from treedrift.harness.transcript.pseudonyms import PlainNames
from treedrift.inside.reporting import Reporter
from treedrift.models.drills import DRILLS


def room_of(config: Config) -> Room:
    """The pools that a case runs on."""
    has_pool = config.has_windows and not config.window_ring
    return Room(
        slots=config.capacity,
        row_length=config.row_length,
        window_slots=(config.window_capacity or config.capacity) if has_pool else None,
        states=config.states if config.has_states else None,
    )


def saved(name: str, folder: Path) -> Trace:
    """The trace that a shadow saves when it first meets a drill."""
    drill = f"drill:{name}"
    for config, ops in cases(DRILLS[name].profile, 20, hostile=False):
        watched = Shadowing(
            local_backend(drill).create,
            make_reporter=lambda: Reporter(("python", drill), folder),
            make_history=lambda params, config=config: History(
                config_of(params, room_of(config)), naming=PlainNames
            ),
        )
        observations(watched, config, ops)
        if watched.statuses and watched.status.divergences:
            (file,) = watched.status.traces
            return read_trace(file)
    raise AssertionError(f"{drill} was not found")


def replayed(trace: Trace) -> Divergence | None:
    """What an ordinary replay of a trace shows on its own pair."""
    pair, config = trace.header.pair, trace.header.config
    assert pair is not None
    result = open_lockstep([pair]).run(config, trace.ops, replay_settings([pair], config))
    return decisive(result.divergences)


SHOWN_AS_SAVED = [
    "partial-match-refused",
    "root-for-no-visit",
    "frees-merged",
    "never-suspended",
    "owned-slots-freed",
    "handle-stays-above",
    "flipped-tie-break",
    "never-evicts",
    "lock-of-the-node-alone",
    "wrong-evictable-size",
    "late-backup",
    "wrong-block-hash",
    "rebuilt-before-the-free",
    "window-locked-up-to-the-root",
    "full-hit-cut-to-the-state",
    "cap-of-one-less",
]


@pytest.mark.parametrize("name", SHOWN_AS_SAVED)
def test_a_saved_trace_shows_its_divergence_again(name: str, tmp_path: Path) -> None:
    trace = saved(name, tmp_path)
    header = trace.header
    assert (header.pair, header.expect) == (("python", f"drill:{name}"), "diverges")
    assert header.note.startswith("what a cache called up to call ")
    found = replayed(trace)
    assert found is not None
    assert found.signature == header.signature
    assert found.op_index == len(trace.ops) - 1


@pytest.mark.parametrize("name", ["lost-hit-count", "double-owner", "root-counts-as-evicted"])
def test_a_replay_that_looks_at_the_whole_tree_may_show_a_fault_earlier(
    name: str, tmp_path: Path
) -> None:
    trace = saved(name, tmp_path)
    found = replayed(trace)
    assert found is not None
    assert found.op_index is not None
    assert found.op_index < len(trace.ops) - 1
