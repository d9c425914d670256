"""The first difference between two observations: which one it is, and what it is called."""

from __future__ import annotations

import copy
import re
from array import array
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from treedrift.backends import contract
from treedrift.backends.contract import (
    ComponentType,
    DemoteResult,
    MatchPrefixParams,
    MatchResult,
    RadixKey,
)
from treedrift.harness.canonical import Names, argument, value
from treedrift.harness.compare import (
    BY_COMPONENT,
    SIZE_NAMES,
    Difference,
    Divergence,
    compare,
    compare_calls,
    compare_decoded,
    compare_sizes,
    first_difference,
    mirrored,
    signature_of,
    without_releases,
)
from treedrift.harness.observation import Finding, Observation, encode

FULL, SWA = ComponentType.FULL, ComponentType.SWA


def match_call(length: int = 2) -> list[Any]:
    params = MatchPrefixParams(RadixKey(array("q", [1])))
    result = value(Names(), MatchResult(length, 5, 5, 5))
    return ["match_prefix", [argument(Names(), params)], ["ok", result]]


def error_call(kind: str = "ContractError", handle: Any = None) -> list[Any]:
    return ["dec_lock_ref", [3], ["error", kind, handle]]


def demote_call() -> list[Any]:
    result = value(Names(), DemoteResult(tracker={FULL: 4}))
    return ["demote", [3], ["ok", result]]


def size_call(component: ComponentType) -> list[Any]:
    return ["component_evictable_size", [int(component)], ["ok", 4]]


def node() -> list[Any]:
    return [0, True, False, False, [], [], None, [], None]


def observed() -> Observation:
    return Observation(
        outcome=None,
        calls=[match_call(), error_call(), demote_call(), size_call(SWA), size_call(FULL)],
        pool=[["allocate", [1, 2]], ["free", [1]]],
        sizes=[1, 0, 0, 63, 0],
        tree={"nodes": [node()], "values": [1], "healthy": True},
        snapshot={"nodes": [{"hit_count": 3, "lock_ref": {"0": 1}}]},
    )


Change = Callable[[Observation], object]


def set_at(path: str, new: Any) -> Change:
    """Assign to a place such as `calls.0.2.1.1` of an observation."""

    def change(seen: Observation) -> None:
        *way, last = path.split(".")
        place: Any = seen
        for step in way:
            place = step_into(place, step)
        if isinstance(place, list):
            place[int(last)] = new
        elif isinstance(place, dict):
            place[last] = new
        else:
            setattr(place, last, new)

    return change


def step_into(place: Any, step: str) -> Any:
    if isinstance(place, list):
        return place[int(step)]
    return place[step] if isinstance(place, dict) else getattr(place, step)


CHANGES: list[tuple[Change, str]] = [
    (set_at("outcome", "ContractError"), "outcome.ok|ContractError"),
    (set_at("calls.0.0", "is_root"), "calls[0].method"),
    (set_at("calls.0.1.0.1.4", [2]), "calls[0].match_prefix.params.key[4][0]"),
    (set_at("calls.0.2.1.1", 3), "calls[0].match_prefix.result.device_prefix_len"),
    (set_at("calls.0.2.1.0", "InsertResult"), "calls[0].match_prefix.result[0]"),
    (
        set_at("calls.0.2", ["error", "ContractError", None]),
        "calls[0].match_prefix.ok|ContractError",
    ),
    (
        set_at("calls.1.2.1", "UnknownNodeError"),
        "calls[1].dec_lock_ref.ContractError|UnknownNodeError",
    ),
    (set_at("calls.1.2.2", 5), "calls[1].dec_lock_ref.error.handle"),
    (lambda seen: seen.calls.append(["end_insert", [], ["ok", []]]), "calls.end_insert"),
    (lambda seen: seen.calls.pop(), "calls.component_evictable_size"),
    (lambda seen: seen.pool.reverse(), "pool[0][0]"),
    (lambda seen: seen.pool.pop(), "pool.length"),
    (set_at("sizes.0", 2), "sizes.evictable"),
    (set_at("sizes.3", 62), "sizes.free"),
    (set_at("tree.nodes.0.4", [9]), "tree.node.device_value"),
    (set_at("tree.values", [2]), "tree.values[0]"),
    (set_at("tree.healthy", "1 violation"), "tree.healthy"),
    (set_at("tree", None), "tree"),
    (set_at("snapshot.nodes.0.hit_count", 4), "snapshot.nodes[0].hit_count"),
    (set_at("snapshot.nodes.0.lock_ref.0", 2), "snapshot.nodes[0].lock_ref.full"),
    (set_at("calls.2.2.1.3", [[0, 4], [1, 2]]), "calls[2].demote.result.tracker.swa"),
    (set_at("calls.2.2.1.3", [[0, 5]]), "calls[2].demote.result.tracker.full"),
    (set_at("calls.2.2.1.3", None), "calls[2].demote.result.tracker"),
    (set_at("calls.2.2.1.3", [4]), "calls[2].demote.result.tracker[0]"),
    (set_at("calls.3.2.1", 9), "calls[3].component_evictable_size(swa).result"),
    (set_at("calls.4.2.1", 9), "calls[4].component_evictable_size.result"),
]


@pytest.mark.parametrize(("change", "where"), CHANGES, ids=[where for _, where in CHANGES])
def test_a_change_is_named_by_its_place(change: Change, where: str) -> None:
    left, right = observed(), observed()
    change(right)
    found = compare(encode(left), encode(right))
    assert found is not None
    assert found.where == where


@pytest.mark.parametrize(
    "change",
    [
        set_at("calls.0.2.1.1", 2.0),
        set_at("calls.0.2.1.7", 0),
        set_at("tree.nodes.0.1", 1),
        set_at("tree.healthy", 1),
        set_at("snapshot.nodes.0.hit_count", 3.0),
    ],
)
def test_an_equal_value_of_another_type_is_a_difference(change: Change) -> None:
    left, right = observed(), observed()
    change(right)
    assert compare(encode(left), encode(right)) is not None


def test_equal_observations_have_no_difference() -> None:
    assert compare(encode(observed()), encode(observed())) is None


def test_what_a_call_answered_comes_before_what_followed_from_it() -> None:
    left, right = observed(), observed()
    for change in (set_at("sizes.0", 9), set_at("tree", None), set_at("calls.0.2.1.1", 3)):
        change(right)
    found = compare_decoded(left, right)
    assert found is not None
    assert found.where == "calls[0].match_prefix.result.device_prefix_len"


def test_the_findings_of_a_side_are_no_difference() -> None:
    left, right = observed(), observed()
    right.findings = [Finding("conservation", "a leak")]
    assert compare(encode(left), encode(right)) is None


# --- Events -------------------------------------------------------------------------------


def stored(hashes: list[int], parent: int | None, tokens: list[int]) -> list[Any]:
    return ["BlockStored", hashes, parent, tokens, 1, None, "GPU", None, None, None]


def events(*taken: list[Any]) -> Observation:
    return Observation(None, [["take_events", [], ["ok", list(taken)]]], [], [])


def test_events_that_are_grouped_otherwise_and_say_the_same_differ_softly() -> None:
    one = events(stored([7, 8], None, [1, 2]))
    other = events(stored([7], None, [1]), stored([8], 7, [2]))
    found = compare_decoded(copy.deepcopy(one), other)
    assert found is not None
    assert found.is_soft
    assert found.where == "calls[0].take_events.grouping.BlockStored"


def test_the_kind_of_the_events_that_are_grouped_otherwise_is_told() -> None:
    same = stored([7, 8], None, [1, 2])
    one = events(same, ["BlockRemoved", [7, 8], "GPU"])
    other = events(same, ["BlockRemoved", [7], "GPU"], ["BlockRemoved", [8], "GPU"])
    found = compare_decoded(one, other)
    assert found is not None
    assert found.where == "calls[0].take_events.grouping.BlockRemoved"


def test_events_that_say_something_else_differ_hard() -> None:
    one = events(stored([7, 8], None, [1, 2]))
    other = events(stored([7], None, [1]), stored([8], 7, [3]))
    found = compare_decoded(one, other)
    assert found is not None
    assert not found.is_soft


# --- Calls and counters alone -------------------------------------------------------------


def test_calls_alone_are_compared_as_those_of_an_observation() -> None:
    one, other = observed().calls, observed().calls
    assert compare_calls(one, other) is None
    other[0] = match_call(3)
    found = compare_calls(one, other)
    assert found is not None
    assert found.where == "calls[0].match_prefix.result.device_prefix_len"


def test_a_soft_difference_of_calls_alone_makes_them_equal() -> None:
    one = events(stored([7, 8], None, [1, 2])).calls
    other = events(stored([7], None, [1]), stored([8], 7, [2])).calls
    found = compare_calls(one, other)
    assert found is not None
    assert found.is_soft
    assert one == other


def test_an_equal_answer_of_another_type_is_a_difference_of_calls() -> None:
    found = compare_calls([["is_root", [0], ["ok", True]]], [["is_root", [0], ["ok", 1]]])
    assert found is not None
    assert found.where == "calls[0].is_root.result"


def test_counters_alone_are_named() -> None:
    sizes = list(range(len(SIZE_NAMES)))
    assert compare_sizes(sizes, sizes) is None
    found = compare_sizes(sizes, [*sizes[:-1], 99])
    assert found is not None
    assert (found.where, found.left, found.right) == ("sizes.mamba_free", sizes[-1], 99)


# --- Plain values -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "where"),
    [
        (1, 2, ""),
        ([1, 2], [1, 3], "[1]"),
        ([1], [1, 2], ".length"),
        ([[1], [2]], [[1], [3]], "[1][0]"),
        ({"a": 1}, {"a": 2}, ".a"),
        ({"a": 1}, {"b": 1}, ".a"),
        (None, [], ""),
        (True, 1, ""),
        (["FreeDeviceKV", [[1]]], ["FreeDeviceKVFullOnly", [[1]]], ".type"),
        (["FreeDeviceKV", [[1]]], ["FreeDeviceKV", [[2]]], ".indices[0][0]"),
    ],
)
def test_the_first_difference_of_plain_values(left: Any, right: Any, where: str) -> None:
    found = first_difference(left, right)
    assert isinstance(found, Difference)
    assert found.where == where


@pytest.mark.parametrize("item", [None, 1, "x", [], [1, [2]], {"a": [1]}])
def test_equal_plain_values_have_none(item: Any) -> None:
    assert first_difference(item, copy.deepcopy(item)) is None


# --- Signatures ---------------------------------------------------------------------------


def divergence(kind: str, where: str, side: str | None = None) -> Divergence:
    return Divergence(
        pair=("a", "b"), kind=kind, op_index=3, op_kind="evict", where=where, side=side
    )


def test_a_signature_holds_no_position() -> None:
    found = divergence("difference", "calls[12].match_prefix.result.actions[3].type")
    assert found.signature == "difference:evict:calls[].match_prefix.result.actions[].type"


def test_a_signature_of_a_finding_holds_no_number() -> None:
    one = divergence("oracle", "conservation: pages that nobody owns: [3, 4]")
    other = divergence("oracle", "conservation: pages that nobody owns: [17]")
    assert one.signature == other.signature


def test_a_signature_names_the_guilty_side() -> None:
    assert signature_of(divergence("crash", "x", "a")).endswith("@a")
    assert signature_of(divergence("crash", "x")) != signature_of(divergence("crash", "x", "a"))


def test_who_is_guilty_of_a_difference_is_no_part_of_its_kind() -> None:
    assert divergence("difference", "sizes.free", "a") == msgspec.structs.replace(
        divergence("difference", "sizes.free"), side="a"
    )


def test_a_signature_without_releases_is_that_of_every_release() -> None:
    pair = ("python", "sglang-rust@0.5.23")
    for signature in ("oracle:insert:conservation@sglang-rust@0.5.23", "crash:sglang-rust@0.5.23"):
        assert without_releases(signature, pair) == signature.removesuffix("@0.5.23")
    two = ("sglang-rust@0.5.22", "sglang-rust@0.5.23")
    assert without_releases("crash:sglang-rust@0.5.23", two) == "crash:sglang-rust@0.5.23"


def test_a_mirrored_signature_has_its_ends_exchanged() -> None:
    signature = "difference:lock:calls[].inc_lock_ref.ok|ContractError"
    other = "difference:lock:calls[].inc_lock_ref.ContractError|ok"
    assert mirrored(signature) == other
    assert mirrored(other) == signature
    assert mirrored("difference:lock:sizes.free") == "difference:lock:sizes.free"


def test_every_mapping_of_components_is_compared_by_component() -> None:
    declared = {
        name
        for kind in vars(contract).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
        for name, hint in kind.__annotations__.items()
        if re.search(r"dict\[ComponentType|Frees|ComponentTransfers", str(hint))
    }
    assert declared == {*BY_COMPONENT, "component_registry_override"}  # It is never recorded.


def test_a_given_signature_stays() -> None:
    given = Divergence(
        pair=("a", "b"), kind="crash", op_index=0, op_kind="x", where="y", signature="mine"
    )
    assert given.signature == "mine"
