"""A hunt ends at the first divergence, within its budget, with a trace that shows it again."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from treedrift.harness.opening import open_lockstep, replay_settings
from treedrift.harness.trace import Trace, dump_trace, parse_trace
from treedrift.models.drills import CANARY, DRILLS, Drill, run_canary
from treedrift.models.drills.hunt import Catch, hunt, pair_of

SECONDS = 60.0
"""Far more than the hunts here need; they end at the first catch."""

HARMLESS = Drill(
    name="harmless",
    about="Nothing is wrong.",
    rule="INS-1",
    stands_for="nothing",
    mutate=lambda core: None,
)

PLACES = {
    "unhealthy": r"sanity|evict_device_next_node|tree\.|snapshot\.",
    "split-drops-lock": r"sizes|dec_lock_ref|tree\.|snapshot\.|lock",
    "silent-split-of-a-pending-node": r"cache_actions|actions",
    "namespace-by-concatenation": r"match_prefix|begin_insert|match_full|tree\.|snapshot\.",
    "unbacked-tokens-forgotten": r"evict_device_leaf\.result\.unbacked_tokens",
    "first-hash-for-last": r"hash_value",
    "host-lock-without-host-value": r"inc_host_lock_ref\.result|host_lock",
    "branch-left-at-default": r"swa_branching_seqlen|begin_insert",
    "split-moves-state-up": r"match_prefix\.result|mamba|begin_insert\.result\.actions",
    "freed-peers-stay-mapped": r"window_mapping|conservation",
}
"""Where a drill shows first, by a comparison or an oracle."""


def replayed(trace: Trace, drill: Drill) -> list[str]:
    """What a trace shows that was saved and read again."""
    again = parse_trace(dump_trace(trace), "saved")
    lockstep = open_lockstep([pair_of(drill)])
    settings = replay_settings([pair_of(drill)], again.header.config)
    found = lockstep.run(again.header.config, again.ops, settings).divergences
    return [one.signature for one in found]


@pytest.mark.parametrize("name", PLACES)
def test_a_drill_is_caught_where_it_shows(name: str) -> None:
    catch = hunt(DRILLS[name], SECONDS, 1)
    assert catch.caught
    assert re.search(PLACES[name], catch.by or ""), catch.by
    assert catch.trace is not None
    assert catch.signature in replayed(catch.trace, DRILLS[name])
    header = catch.trace.header
    assert (header.signature, header.rule) == (catch.signature, DRILLS[name].rule)
    assert header.profile == DRILLS[name].profile
    assert (header.expect, header.pair) == ("diverges", pair_of(DRILLS[name]))


def test_a_trace_ends_where_the_cores_part() -> None:
    catch = hunt(DRILLS[CANARY], SECONDS, 1)
    assert catch.trace is not None
    shorter = Trace(catch.trace.header, catch.trace.ops[:-1])
    assert replayed(shorter, DRILLS[CANARY]) == []
    assert catch.ops == len(catch.trace.ops), "it was caught in the first case"


def test_the_same_seed_gives_the_same_catch() -> None:
    first, second = (hunt(DRILLS["moved-child"], SECONDS, 5) for _ in range(2))
    assert first.trace is not None
    assert second.trace is not None
    assert dump_trace(first.trace) == dump_trace(second.trace)


def test_what_changes_nothing_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DRILLS, HARMLESS.name, HARMLESS)
    catch = hunt(HARMLESS, 0.5, 1)
    assert (catch.caught, catch.by, catch.trace) == (False, None, None)


def test_a_hunt_ends_inside_a_case_when_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DRILLS, HARMLESS.name, HARMLESS)
    clock = itertools.count()
    monkeypatch.setattr("treedrift.models.drills.hunt.monotonic", lambda: next(clock))
    catch = hunt(HARMLESS, 20.0, 1)
    assert (catch.caught, catch.cases) == (False, 1)
    assert 0 < catch.ops < 20


def test_a_minimizer_gets_the_trace_and_its_signature() -> None:
    seen: list[Any] = []

    def minimizer(trace: Trace, pair: Any, **options: Any) -> Any:
        seen.append((trace, pair, options))
        shrunk = Trace(trace.header, trace.ops[:3])
        return Catch(drill="", caught=True, trace=shrunk, replayed="kind", seconds=2.5)

    catch = hunt(DRILLS[CANARY], SECONDS, 1, minimizer, 7.0)
    ((trace, pair, options),) = seen
    assert trace is catch.trace
    assert pair == ("python", f"drill:{CANARY}")
    assert options == {"signature": catch.signature, "budget_seconds": 7.0}
    assert (catch.size, catch.shrink_seconds, catch.replayed) == (3, 2.5, "kind")


def test_the_canary_is_caught_within_some_dozens_of_ops() -> None:
    event = run_canary()
    assert event.caught
    assert event.drill == CANARY
    assert 0 < event.ops < 60
