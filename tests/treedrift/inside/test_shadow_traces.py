"""What a shadow saves shows the same divergence again, in a replay of the ordinary kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.treedrift.inside.shadow_runs import PAIR, Shadowing, cases, observations
from treedrift.backends.contract import CacheInitParams, UnknownNodeError
from treedrift.backends.python_core import PythonTreeCore
from treedrift.backends.registry import local_backend
from treedrift.harness.compare import Divergence, decisive
from treedrift.harness.config import Config
from treedrift.harness.opening import NEVER, open_lockstep, replay_settings
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


def is_whole(trace: Trace) -> bool:
    """Whether nothing is left out of a trace but questions and calls that were refused.

    Ops of a random case may lock nodes that no cache would.
    """
    left_out = trace.header.note.partition("not told: ")[2].split(", ")
    return all(" x ask " in what or " raised " in what for what in filter(None, left_out))


def saved(name: str, folder: Path) -> Trace:
    """The first whole trace that a shadow saves when it meets a drill."""
    drill = f"drill:{name}"
    for number, (config, ops) in enumerate(cases(DRILLS[name].profile, 60, hostile=False)):
        watched = Shadowing(
            local_backend(drill).create,
            make_reporter=lambda number=number: Reporter(("python", drill), folder / str(number)),
            make_history=lambda params, config=config: History(
                config_of(params, room_of(config)), naming=PlainNames
            ),
        )
        observations(watched, config, ops)
        if watched.statuses and watched.status.divergences:
            (file,) = watched.status.traces
            trace = read_trace(file)
            if is_whole(trace):
                return trace
    raise AssertionError(f"{drill} was not found")


def replayed(trace: Trace, **settings: Any) -> Divergence | None:
    """What a replay of a trace shows on its own pair; `settings` change the ordinary ones."""
    pair, config = trace.header.pair, trace.header.config
    assert pair is not None
    watched = msgspec.structs.replace(replay_settings([pair], config), **settings)
    return decisive(open_lockstep([pair]).run(config, trace.ops, watched).divergences)


FAULTS = [
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
    "lost-hit-count",
    "double-owner",
]


@pytest.mark.parametrize("name", FAULTS)
def test_a_saved_trace_shows_its_divergence_again(name: str, tmp_path: Path) -> None:
    trace = saved(name, tmp_path)
    header = trace.header
    assert (header.pair, header.expect) == (("python", f"drill:{name}"), "diverges")
    assert header.note.startswith("what a cache called up to call ")
    # A replay that looks at whole trees may show the fault earlier; one that does not shows it
    # where the shadow saw it.
    assert replayed(trace) is not None
    found = replayed(trace, tree_every=NEVER, watch_free_list=False, model=False)
    assert found is not None
    assert (found.signature, found.op_index) == (header.signature, len(trace.ops) - 1)


def test_a_trace_without_the_call_that_parted_expects_no_divergence(tmp_path: Path) -> None:
    def make_second(params: Any) -> Any:
        core: Any = PythonTreeCore(params)
        core.is_root = lambda node: True
        return core

    core: Any = Shadowing(
        make_second,
        make_reporter=lambda: Reporter(PAIR, tmp_path),
        make_history=lambda params: History(Config(), naming=PlainNames),
    )(CacheInitParams())
    with pytest.raises(UnknownNodeError):
        core.is_root(2**40)
    assert core.treedrift_status.divergences == 1
    assert "no op says this call, so a replay agrees" in core.treedrift_status.last
    header = read_trace(core.treedrift_status.traces[0]).header
    assert (header.expect, header.signature) == ("agrees", None)
    assert "not told: 1 x is_root, which raised UnknownNodeError" in header.note
