"""One side: the same case gives the same bytes, and what a side looks at changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness import mutants
from treedrift.backends.contract import CorePoisonedError
from treedrift.harness import observation
from treedrift.harness.config import Config
from treedrift.harness.observation import Observation
from treedrift.harness.ops import (
    AnyOp,
    Arrive,
    Ask,
    CoreInsert,
    CoreMatch,
    CoreResume,
    Decode,
    Evict,
    EvictLeaf,
    Finish,
    LinkerAck,
    Lock,
    Offload,
    Pin,
    Prefill,
    Reset,
    Unlock,
    WalkEnd,
    WalkNext,
    WalkStart,
)
from treedrift.harness.side import Batch, HarnessError, LocalSide, Settings
from treedrift.models.profiles import profile_named
from treedrift.models.swarm import generate_case

WATCHED = Settings(tree_every=1, inspect=True)


def run_all(side: LocalSide, config: Config, trace: list[AnyOp]) -> list[bytes]:
    """Everything that a side shows of a case."""
    assert side.open(config, WATCHED) is None
    return side.run(trace).observations + side.finish().observations


def other_handles(core: Any) -> None:
    """Handles that are far from those of a usual core, and grow in other steps."""
    make = core._tree._new_node

    def new_node(*args: Any) -> Any:
        core._tree._next_node_id += 1000
        return make(*args)

    core._tree._new_node = new_node


@pytest.mark.parametrize("seed", [0, 3, 6, 11])
def test_the_same_case_shows_the_same_bytes_every_time(seed: int) -> None:
    config, trace = generate_case(seed, profile_named("full"), hostile=seed % 3 == 0)
    once = run_all(mutants.side(), config, trace)
    side = mutants.side()
    assert run_all(side, config, trace) == once
    assert run_all(side, config, trace) == once, "a side that is opened again starts anew"


@pytest.mark.parametrize("seed", [1, 2, 7])
def test_cores_that_number_their_handles_differently_show_the_same_bytes(seed: int) -> None:
    config, trace = generate_case(seed, profile_named("full"))
    assert run_all(mutants.side(other_handles), config, trace) == run_all(
        mutants.side(), config, trace
    )


def methods(seen: Observation) -> list[Any]:
    """Which calls an op made, and how each of them ended."""
    return [(method, end[0], end[1] if end[0] == "error" else "") for method, _, end in seen.calls]


@pytest.mark.parametrize("seed", [1, 5])
def test_looking_at_the_tree_changes_nothing_that_ops_do(seed: int) -> None:
    """Only the numbers of handles may differ: a look meets some of them earlier."""
    config, trace = generate_case(seed, profile_named("full"))
    calls = []
    for every in (1, 5, 10**6):
        side = mutants.side()
        side.open(config, Settings(tree_every=every, inspect=True))
        seen = map(observation.decode, side.run(trace).observations)
        calls.append([(methods(one), one.pool, one.sizes) for one in seen])
    assert calls[0] == calls[1] == calls[2]


def test_a_batch_is_the_same_as_its_parts() -> None:
    config, trace = generate_case(4, profile_named("full"))
    whole, parts = mutants.side(), mutants.side()
    whole.open(config, WATCHED)
    parts.open(config, WATCHED)
    pieces = [parts.run([op]).observations for op in trace]
    assert whole.run(trace).observations == [one for piece in pieces for one in piece]


# --- Ops ----------------------------------------------------------------------------------

EMPTY_HANDED: list[AnyOp] = [
    Prefill(3),
    Decode(0, [1]),
    Finish(0),
    Unlock(0),
    Pin(release=2),
    WalkNext(),
    WalkEnd(),
    EvictLeaf(),
    CoreResume(),
    Lock("stale:0"),
    Lock("request:0"),
]


@pytest.mark.parametrize("op", EMPTY_HANDED, ids=[str(op) for op in EMPTY_HANDED])
def test_an_op_that_finds_nothing_does_nothing(op: AnyOp) -> None:
    (seen,) = observe(Config(), [op])
    assert seen.outcome is None
    assert seen.pool == []
    assert seen.sizes[0] == 0


def observe(config: Config, trace: list[AnyOp], *faults: mutants.Mutation) -> list[Observation]:
    side = mutants.side(*faults)
    assert side.open(config, WATCHED) is None
    return [observation.decode(data) for data in side.run(trace).observations]


def test_a_request_op_ends_an_open_walk_as_a_cache_would() -> None:
    seen = observe(Config(), [CoreInsert([1, 2]), WalkStart(1), Evict(1)])
    methods = [call[0] for call in seen[2].calls]
    assert methods[0] == "evict_device_end"


def test_an_op_that_may_not_run_during_an_insert_lets_it_end_first() -> None:
    config = Config(linker=True, write_through_threshold=2)
    trace: list[AnyOp] = [CoreInsert([1, 2, 3, 4]), CoreInsert([1, 2], suspend=True), Evict(0)]
    seen = observe(config, trace)
    assert seen[1].sizes[2] == 1, "the insert is suspended"
    assert "end_insert" in [call[0] for call in seen[2].calls]
    assert seen[2].sizes[2] == 0


def test_references_wrap_around_what_exists() -> None:
    seen = observe(Config(), [CoreInsert([1]), Lock("live:0"), Lock("live:7"), Lock("live:8")])
    assert all(one.outcome is None for one in seen)
    assert seen[1].calls[0][0] == "inc_lock_ref"


def test_a_sanity_question_is_about_transfers_in_flight_and_about_unlocked_nodes() -> None:
    ask = Ask("sanity", ["live:0"])
    seen = observe(Config(linker=True), [CoreInsert([1]), Offload("live:0"), ask, LinkerAck(), ask])
    asked = [[call[1:3] for call in seen[at].calls if call[0] == "sanity_check"] for at in (2, 4)]
    transfer = [[0, 0]]
    refused = ["error", "SanityCheckError", None]
    assert asked[0] == [[[transfer, []], ["ok", None]], [[[], transfer], ["ok", None]]]
    assert asked[1] == [[[[], []], ["ok", None]], [[[], transfer], refused]]


def test_the_drain_brings_everything_back() -> None:
    side = mutants.side()
    side.open(Config(), WATCHED)
    trace: list[AnyOp] = [
        Arrive([1, 2, 3]),
        Prefill(0),
        CoreInsert([7, 8]),
        Lock("live:0"),
        Pin("live:1"),
        WalkStart(1),
    ]
    side.run(trace)
    last = observation.decode(side.finish().observations[-1])
    assert last.findings == []
    assert last.sizes == [0, 0, 0, 64, 0]


def test_a_reset_forgets_receipts_and_requests() -> None:
    seen = observe(Config(), [Arrive([1, 2]), Prefill(0), Lock("live:0"), Reset(), Unlock(0)])
    assert seen[3].sizes == [0, 0, 0, 64, 0]
    assert seen[4].calls == []


# --- Failing ------------------------------------------------------------------------------


def poison(core: Any) -> None:
    def match(params: Any) -> Any:
        raise CorePoisonedError("it panicked before")

    core.match_prefix = match


def test_a_poisoned_core_ends_the_case_with_a_finding() -> None:
    side = mutants.side(poison)
    side.open(Config(), WATCHED)
    batch = side.run([CoreInsert([1]), CoreMatch([1]), CoreInsert([2])])
    assert len(batch.observations) == 2
    assert batch.alarms == [1]
    last = observation.decode(batch.observations[1])
    assert last.dead
    assert [found.oracle for found in last.findings] == ["crash"]
    assert side.finish().observations == []


def answer_none(method: str) -> mutants.Mutation:
    """A core one of whose methods forgets its answer."""

    def spoil(core: Any) -> None:
        setattr(core, method, lambda *arguments: None)

    return spoil


@pytest.mark.parametrize(
    ("method", "op"),
    [
        ("match_prefix", CoreMatch([1])),
        ("begin_insert", CoreInsert([1])),
        ("match_prefix", Arrive([1, 2])),
        ("inc_lock_ref", Lock("live:0")),
        ("collect_full_device_indices", CoreMatch([1])),
    ],
)
def test_an_answer_of_a_wrong_type_is_a_finding_about_the_core(method: str, op: AnyOp) -> None:
    trace: list[AnyOp] = [op] if method == "begin_insert" else [CoreInsert([1, 2]), op, Reset()]
    seen = observe(Config(), trace, answer_none(method))[-1]
    assert seen.outcome == "UnreadableAnswerError"
    assert [found.oracle for found in seen.findings] == ["unreadable"]
    assert method in seen.findings[0].message
    assert ["unreadable", "NoneType"] in [call[2] for call in seen.calls]
    assert seen.dead


def test_a_mistake_of_the_harness_is_told_as_its_own() -> None:
    side = mutants.side()
    side.open(Config(), WATCHED)

    def fail(op: Any) -> None:
        raise ZeroDivisionError

    side.core_ops.run = fail  # type: ignore[method-assign]
    with pytest.raises(HarnessError, match="core_insert, op 1"):
        side.run([CoreInsert([1])])


def test_a_batch_knows_which_of_its_observations_hold_findings() -> None:
    batch = Batch([], [])
    batch.add(Observation(None, [], [], []))
    batch.add(Observation(None, [], [], [], findings=[observation.Finding("a", "b")]))
    assert batch.alarms == [1]


def test_figures_count_ops_and_time() -> None:
    side = mutants.side()
    side.open(Config(), WATCHED)
    side.run([Arrive([1, 2, 3]), Prefill(0), Finish(0), Arrive([1, 2, 3])])
    figures = side.figures()
    assert (figures["ops"], figures["requests"], figures["prompt_tokens"]) == (4, 2, 6)
    assert figures["hit_tokens"] > 0
    assert 0 < figures["core_ns"] < figures["total_ns"]
