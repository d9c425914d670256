"""The lockstep finds each of many small faults in one of two otherwise equal cores."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.harness.mutants import side
from treedrift.harness.compare import Divergence
from treedrift.harness.config import Config
from treedrift.harness.lockstep import LocalClient, Lockstep
from treedrift.harness.ops import AnyOp, Arrive, CoreInsert, Evict
from treedrift.harness.side import LocalSide, Settings
from treedrift.models.drills import DRILLS
from treedrift.models.profiles import profile_named
from treedrift.models.swarm import generate_case

PAIR = ("sound", "spoilt")
SETTINGS = Settings(tree_every=8, inspect=True)
CASES_MAX = 60
HOSTILE_EVERY = 3


def drilled(name: str) -> LocalSide:
    """A side on the core of a drill."""
    return side(DRILLS[name].mutate)


def lockstep(left: LocalSide, right: LocalSide) -> Lockstep:
    clients = {name: LocalClient(name, one) for name, one in zip(PAIR, (left, right), strict=True)}
    return Lockstep(clients, [PAIR])


def hunt(
    left: LocalSide, right: LocalSide, always_hostile: bool = False, cases: int = CASES_MAX
) -> list[Divergence]:
    """What the first diverging case of the swarm shows; nothing if no case of the budget does."""
    pair = lockstep(left, right)
    profile = profile_named("full")
    for seed in range(cases):
        hostile = always_hostile or seed % HOSTILE_EVERY == 0
        config, trace = generate_case(seed, profile, hostile)
        result = pair.run(config, trace, SETTINGS)
        if result.divergences:
            return result.divergences
    return []


STATE = r"tree\.|snapshot\.|sizes\."
"""Where a wrong state shows first when a look at it comes before its consequence."""

ORDER = rf"evict_device_next_node\.result|{STATE}"

FAULTS: list[tuple[str, str]] = [
    ("flipped-tie-break", r"evict_device_next_node\.result\.node_id"),
    ("threshold-off-by-one", r"evict_device_next_node\.result\.node_id"),
    ("skipped-touch", ORDER),
    ("forgotten-touch-of-a-split", ORDER),
    ("lost-hit-count", ORDER),
    ("short-history", ORDER),
    ("no-cascade", r"evict_device_next_node\.result"),
    ("greedy-walk", r"evict_device_next_node\.result"),
    ("unsorted-heap", r"evict_device_next_node\.result\.node_id"),
    ("off-by-one-page", rf"match_\w+\.result|begin_insert\.result|{STATE}"),
    ("wrong-free-order", r"device_frees|pool"),
    ("wrong-evictable-size", r"sizes\.evictable|evictable_size\.result"),
    ("moved-child", rf"all_values_flatten|walk_for_kv_canary|dfs_weight_order|{STATE}"),
    ("crossed-values", rf"indices|kv_content|\.result|{STATE}"),
    ("reused-handle", rf"node|{STATE}"),
    ("leaked-slots", r"(begin|resume)_insert\.result\.actions\.length"),
    ("action-of-another-type", r"(begin|resume)_insert\.result\.actions\[\]\.type"),
    ("ignored-rotation", r"begin_insert\.result|rotation_base"),
    ("truth-as-a-number", r"is_root"),
    ("lock-not-released", rf"lock|evict_device_next_node|{STATE}"),
    ("lost-event", r"take_events|queued_events"),
    ("doubled-event", r"take_events|queued_events"),
    ("reversed-events", r"take_events\.result"),
    ("lost-session", r"take_events|queued_events"),
    ("wrong-block-hash", r"take_events\.result"),
    ("unhealthy", rf"sanity|evict_device_next_node|{STATE}"),
]


@pytest.mark.parametrize(("fault", "place"), FAULTS)
def test_a_fault_of_one_core_is_found_where_it_shows(fault: str, place: str) -> None:
    found = hunt(side(), drilled(fault))
    assert found, f"{fault} was not found in {CASES_MAX} cases"
    assert found[0].pair == PAIR
    assert re.search(place, found[0].signature), found[0].signature


HOSTILE_FAULTS: list[tuple[str, str]] = [
    ("error-of-another-class", r"dec_lock_ref\.ContractError\|InvalidArgumentError"),
    ("refusal-that-changes", r"unlock:(refusal@spoilt|snapshot)"),
]


@pytest.mark.parametrize(("fault", "place"), HOSTILE_FAULTS)
def test_hostile_cases_find_what_only_bad_calls_show(fault: str, place: str) -> None:
    found = hunt(side(), drilled(fault), always_hostile=True)
    assert found, f"{fault} was not found in {CASES_MAX} cases"
    assert re.search(place, found[0].signature), found[0].signature


def test_two_sound_cores_agree_on_every_case() -> None:
    assert hunt(side(), side(), cases=15) == []


def insert_twice() -> list[AnyOp]:
    return [CoreInsert([1, 2, 3]), CoreInsert([1, 2, 3, 4]), Evict(2)]


def test_a_divergence_names_the_op_and_both_values() -> None:
    pair = lockstep(side(), drilled("leaked-slots"))
    (found,) = pair.run(Config(), insert_twice(), SETTINGS).divergences
    assert (found.kind, found.op_index, found.op_kind) == ("difference", 1, "core_insert")
    assert found.where == "calls[0].begin_insert.result.actions.length"
    assert len(found.left) == 1
    assert found.right == []


def test_a_fault_that_only_the_drain_shows_has_no_op() -> None:
    pair = lockstep(side(), drilled("wrong-free-order"))
    (found,) = pair.run(Config(), [CoreInsert([1, 2])], SETTINGS).divergences
    assert (found.op_index, found.op_kind) == (None, "drain")


def test_one_fault_gives_one_signature_whatever_the_tokens() -> None:
    pair = lockstep(side(), drilled("leaked-slots"))
    signatures = set()
    for first in (1, 50, 2**40):
        trace = [CoreInsert([first, 2]), CoreInsert([first, 2, 3])]
        (found,) = pair.run(Config(), trace, SETTINGS).divergences
        signatures.add(found.signature)
    assert len(signatures) == 1


def test_a_pair_that_has_diverged_leaves_the_other_pairs_running() -> None:
    sides = {"a": side(), "b": side(), "c": drilled("leaked-slots")}
    clients = {name: LocalClient(name, one) for name, one in sides.items()}
    many = Lockstep(clients, [("a", "b"), ("a", "c")])
    result = many.run(Config(), insert_twice(), SETTINGS)
    assert [found.pair for found in result.divergences] == [("a", "c")]
    assert result.op_count == 3


def test_a_configuration_that_both_cores_refuse_is_no_divergence() -> None:
    pair = lockstep(side(), side())
    result = pair.run(Config(policy="no such policy"), [], SETTINGS)
    assert result.refused == "InvalidArgumentError"
    assert result.divergences == []


def test_a_configuration_that_one_core_refuses_is_a_divergence() -> None:
    def refuse(core: Any) -> None:
        raise ValueError("not today")

    pair = lockstep(side(), side(refuse))
    (found,) = pair.run(Config(), insert_twice(), SETTINGS).divergences
    assert (found.kind, found.op_kind, found.right) == ("refused", "open", "ValueError")


def test_an_unexpected_error_of_a_core_is_its_answer() -> None:
    def fail(core: Any) -> None:
        def begin(params: Any) -> Any:
            raise ZeroDivisionError

        core.begin_insert = begin

    pair = lockstep(side(), side(fail))
    (found,) = pair.run(Config(), insert_twice(), SETTINGS).divergences
    assert found.signature.endswith("begin_insert.ok|ZeroDivisionError")


READS = ["all_values_flatten", "get_hash_values", "component_evictable_size", "dfs_weight_order"]


@pytest.mark.parametrize("name", READS)
def test_a_core_that_fails_when_it_is_looked_at_is_found(name: str) -> None:
    def fail(core: Any) -> None:
        def read(*_: Any) -> Any:
            raise ZeroDivisionError("broken")

        setattr(core, name, read)

    pair = lockstep(side(), side(fail))
    result = pair.run(Config(), [Arrive([1, 2, 3]), *insert_twice()], Settings(tree_every=1))
    (found,) = result.divergences
    assert (found.kind, found.side) == ("oracle", "spoilt")
    assert "ZeroDivisionError" in found.where
