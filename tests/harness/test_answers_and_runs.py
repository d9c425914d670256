"""Keys in runs mean their tokens, and nodes are found again by the op that answered them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness import mutants
from treedrift.harness import observation, ops
from treedrift.harness.config import Config
from treedrift.harness.observation import Observation
from treedrift.harness.ops import (
    AnyOp,
    Ask,
    CoreEnd,
    CoreInsert,
    CoreMatch,
    CoreResume,
    Evict,
    Lock,
    MarkStored,
    Namespace,
    Offload,
    Pin,
    Reset,
)
from treedrift.harness.side import Settings
from treedrift.harness.tokens import key_length, key_tokens
from treedrift.models.profiles import profile_named
from treedrift.models.swarm import generate_case

WATCHED = Settings(tree_every=1, inspect=True)
LINKED = Config(linker=True, write_through_threshold=2)
"""A tree in which a second visit of a node suspends the insert that makes it."""


def shown(config: Config, *steps: AnyOp) -> list[bytes]:
    """Everything that a side shows of some ops and of its drain."""
    side = mutants.side()
    assert side.open(config, WATCHED) is None
    return side.run(steps).observations + side.finish().observations


def observe(config: Config, *steps: AnyOp) -> list[Observation]:
    side = mutants.side()
    assert side.open(config, WATCHED) is None
    return [observation.decode(data) for data in side.run(steps).observations]


def methods(seen: Observation) -> list[str]:
    return [call[0] for call in seen.calls]


def nodes_of(seen: list[Observation]) -> Any:
    """The handles that locks were taken on, by number."""
    return [call[1][0] for one in seen for call in one.calls if call[0] == "inc_lock_ref"]


# --- Runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "runs", "spelled"),
    [
        ([], [], []),
        ([7], [(3, 4)], [7, 3, 4, 5, 6]),
        ([], [(3, 1), (-2, 3), (3, 1)], [3, -2, -1, 0, 3]),
        ([1], [(2**63 - 2, 2)], [1, 2**63 - 2, 2**63 - 1]),
    ],
)
def test_a_key_is_its_tokens_and_then_its_runs(
    tokens: list[int], runs: list[ops.Run], spelled: list[int]
) -> None:
    op = CoreMatch(tokens, runs=runs)
    assert key_tokens(op).tolist() == spelled
    assert key_length(op) == len(spelled)


@pytest.mark.parametrize(
    "config",
    [
        Config(capacity=4096),
        Config(page_size=4, capacity=4096, events=True),
        Config(bigram=True, page_size=2, capacity=4096),
        Config(components=("full", "swa", "mamba"), window=8, capacity=4096, window_capacity=4096),
    ],
    ids=lambda config: f"{'-'.join(config.components)}, pages of {config.page_size}",
)
def test_runs_show_the_same_bytes_as_the_tokens_they_stand_for(config: Config) -> None:
    space = Namespace("a", "salt")
    written: list[AnyOp] = [
        CoreInsert([5, 6], runs=[(100, 1500), (9, 2)]),
        CoreInsert([5, 6], runs=[(100, 700), (40, 30)], owned=600, swa_evicted=64),
        CoreMatch([5, 6], runs=[(100, 1000)], limit=900),
        CoreMatch([], runs=[(5, 2), (100, 1000)], device_only=True),
        CoreInsert([], space, runs=[(1, 40)], value="none"),
        CoreInsert([1], space, runs=[(2, 40)], value="short"),
        CoreMatch([], space, runs=[(1, 41)]),
    ]
    spelled: list[AnyOp] = []
    for op in written:
        assert isinstance(op, CoreInsert | CoreMatch)
        plain = {name: getattr(op, name) for name in op.__struct_fields__ if name != "runs"}
        spelled.append(type(op)(**plain | {"tokens": key_tokens(op).tolist()}))
    assert shown(config, *written) == shown(config, *spelled)


# --- Answers ------------------------------------------------------------------------------


@pytest.mark.parametrize("device_only", [False, True])
def test_a_match_and_an_insert_keep_the_nodes_that_they_answer(device_only: bool) -> None:
    seen = observe(
        Config(),
        CoreInsert([1, 2, 3, 4], answer=3),
        CoreMatch([1, 2, 3, 4], device_only=device_only, answer=9),
        CoreInsert([7, 8], answer=2),
        Lock("answer:3"),
        Lock("answer:9"),
        Lock("answer:2"),
    )
    first, again, other = nodes_of(seen)
    assert first == again != other
    assert [one.outcome for one in seen] == [None] * 6


def test_an_answer_names_its_node_whatever_is_left_out_before_it() -> None:
    steps: list[AnyOp] = [
        CoreInsert([8, 9], answer=0),
        CoreMatch([8], answer=1),
        CoreInsert([1, 2, 3], answer=2),
        Lock("answer:2"),
    ]
    whole, part = observe(Config(), *steps), observe(Config(), *steps[2:])
    assert whole[-1].sizes[1] == part[-1].sizes[1] == 3
    # Nor does what an op keeps change what `live:N` names.
    unnamed = [CoreInsert([8, 9]), CoreMatch([8]), CoreInsert([1, 2, 3])]
    for ref in ("live:0", "live:1", "live:2"):
        counted = [observe(Config(), *kind, Lock(ref))[-1].sizes for kind in (steps[:3], unnamed)]
        assert counted[0] == counted[1]


def test_a_later_answer_of_a_number_replaces_the_one_before() -> None:
    steps = [CoreInsert([1, 2], answer=0), CoreInsert([7], answer=0), Lock("answer:0")]
    assert observe(Config(), *steps)[-1].sizes[1] == 1


@pytest.mark.parametrize(
    "before",
    [
        [],
        [CoreInsert([1, 2], answer=1)],
        [CoreInsert([1, 2], answer=0), Evict(2)],
        [CoreInsert([1, 2], answer=0), Reset()],
        [CoreInsert([1, 2], answer=0), Reset(), CoreInsert([1, 2])],
        [CoreInsert([1, 2], answer=0, value="short")],
    ],
    ids=["nothing", "another number", "evicted", "reset", "back after a reset", "refused"],
)
@pytest.mark.parametrize(
    "op", [Lock("answer:0"), Pin("answer:0"), MarkStored("answer:0"), Offload("answer:0")]
)
def test_an_answer_that_is_not_there_names_nothing(before: list[AnyOp], op: AnyOp) -> None:
    last = observe(Config(), *before, op)[-1]
    assert (last.outcome, last.calls, last.findings) == (None, [], [])


def test_a_refused_insert_leaves_the_answer_that_was_there() -> None:
    steps = [CoreInsert([1, 2], answer=0), CoreInsert([1, 2, 3], answer=0, value="short")]
    seen = observe(Config(), *steps, Lock("answer:0"))
    assert seen[1].outcome == "InvalidArgumentError"
    assert seen[2].sizes[1] == 2


@pytest.mark.parametrize(
    ("end", "locked"), [(CoreResume(), 2), (Evict(0), 2), (CoreEnd(), 0)], ids=str
)
def test_a_suspended_insert_answers_once_it_has_a_result(end: AnyOp, locked: int) -> None:
    seen = observe(
        LINKED,
        CoreInsert([1, 2, 3, 4]),
        CoreInsert([1, 2], suspend=True, answer=0),
        Lock("answer:0"),
        end,
        Lock("answer:0"),
    )
    assert [one.sizes[2] for one in seen] == [0, 1, 1, 0, 0]
    assert seen[2].calls == []
    assert methods(seen[4]) == (["inc_lock_ref"] if locked else [])


def test_no_op_is_hostile_for_naming_an_answer() -> None:
    named: list[AnyOp] = [
        Lock("answer:0"),
        Pin("answer:0"),
        Ask("path", ["answer:0"]),
        CoreInsert([1], runs=[(1, 2)], answer=0),
        CoreMatch([1], runs=[(1, 2)], answer=0),
    ]
    assert not any(map(ops.is_hostile, named))


# --- What an insert reads -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "reads_all"),
    [
        (CoreInsert([1, 2, 3]), False),
        (CoreInsert([1, 2, 3], rotation_base=5), False),
        (CoreInsert([]), False),
        (CoreInsert([1, 2, 3], value="short"), True),
    ],
    ids=["done", "declined", "empty", "refused"],
)
def test_in_a_large_pool_only_a_failed_insert_reads_the_whole_tree(
    op: AnyOp, reads_all: bool
) -> None:
    side = mutants.side()
    assert side.open(Config(), Settings(watch_free_list=False)) is None
    seen = observation.decode(side.run([CoreInsert([1, 2], rotation_base=4), op]).observations[1])
    assert ("all_values_flatten" in methods(seen)) == reads_all
    assert seen.findings == []
    side.run([Evict(8)])
    assert observation.decode(side.finish().observations[-1]).findings == []


@pytest.mark.parametrize("profile", ["full-core", "full-linker", "hybrid", "windows"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_an_insert_reads_changes_nothing_that_ops_do(seed: int, profile: str) -> None:
    config, steps = generate_case(seed, profile_named(profile), hostile=seed % 2 == 0, length=120)
    changed = []
    for watches in (True, False):
        side = mutants.side()
        assert side.open(config, Settings(tree_every=2**62, watch_free_list=watches)) is None
        seen = [observation.decode(data) for data in side.run(steps).observations]
        changed.append([(one.outcome, one.pool, one.sizes, one.findings) for one in seen])
    assert changed[0] == changed[1]


def misplace(core: Any) -> None:
    """New slots stand in the tree in reversed order."""
    begin = core.begin_insert

    def begin_insert(params: Any) -> Any:
        params.value = params.value.flip(0)
        return begin(params)

    core.begin_insert = begin_insert


def lose(core: Any) -> None:
    """The path of a node comes without its last slot."""
    collect = core.collect_full_device_indices
    core.collect_full_device_indices = lambda end, root: collect(end, root)[:-1]


@pytest.mark.parametrize("fault", [misplace, lose])
def test_in_a_large_pool_an_insert_shows_what_became_of_its_slots(fault: mutants.Mutation) -> None:
    seen = []
    for side in (mutants.side(), mutants.side(fault)):
        assert side.open(Config(), Settings(watch_free_list=False, model=False)) is None
        seen.append(observation.decode(side.run([CoreInsert([1, 2, 3, 4])]).observations[0]))
    sound, faulty = seen
    assert sound.calls[:-1] == faulty.calls[:-1]
    assert sound.calls[-1] != faulty.calls[-1]
