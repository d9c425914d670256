"""References keep their meaning when other ops are removed."""

from __future__ import annotations

import pytest

from treedrift.harness import ops
from treedrift.harness.config import Config
from treedrift.harness.minimize.draft import Draft, without
from treedrift.harness.minimize.links import follow, relink
from treedrift.harness.ops import AnyOp, Arrive, CoreInsert, Finish, Lock, Pin, Prefill, Unlock

A, B, C = [1, 2, 3], [4, 5, 6], [7, 8, 9]


def left_after_removing(
    steps: list[AnyOp], *gone: int, config: Config | None = None
) -> list[AnyOp]:
    """The ops that are left, relinked."""
    draft = Draft(config or Config(), steps)
    links = follow(draft)
    assert links is not None
    made = relink(draft, without(draft, set(gone)), links)
    assert made is not None
    return made.ops


def test_the_ops_of_a_later_request_follow_it_when_an_earlier_one_is_gone() -> None:
    steps = [Arrive(A), Arrive(B), Prefill(1), Prefill(0), Finish(1), Finish(0)]
    assert left_after_removing(steps, 0) == [Arrive(B), Prefill(0), Finish(0)]


def test_a_number_counts_modulo_the_requests_that_were_there() -> None:
    steps = [Arrive(A), Arrive(B), Arrive(C), Prefill(4), Finish(3)]
    assert left_after_removing(steps) == [Arrive(A), Arrive(B), Arrive(C), Prefill(1), Finish(0)]
    assert left_after_removing(steps, 2) == [Arrive(A), Arrive(B), Prefill(1), Finish(0)]


def test_a_waiting_request_is_admitted_again_although_an_earlier_one_waits_no_more() -> None:
    steps = [Arrive(A), Arrive(B), ops.Retract(0), ops.Retract(0), ops.Readmit(1), Prefill(0)]
    assert left_after_removing(steps, 2) == [
        Arrive(A),
        Arrive(B),
        ops.Retract(1),
        ops.Readmit(0),
        Prefill(1),
    ]


def test_a_receipt_is_released_by_its_own_unlock_and_goes_with_its_lock() -> None:
    steps = [CoreInsert(A), CoreInsert(B), Lock("live:0"), Lock("live:1"), Unlock(1), Unlock(0)]
    assert left_after_removing(steps, 2) == [
        CoreInsert(A),
        CoreInsert(B),
        Lock("live:1"),
        Unlock(0),
    ]


def test_pins_are_told_apart_by_the_ops_that_made_them() -> None:
    steps = [CoreInsert(A), Pin("live:0"), Pin("live:0"), Pin(release=1), Pin(release=0)]
    assert left_after_removing(steps, 1) == [CoreInsert(A), Pin("live:0"), Pin(release=0)]
    assert left_after_removing(steps, 2) == [CoreInsert(A), Pin("live:0"), Pin(release=0)]


def test_a_node_is_found_again_by_its_path_when_another_op_makes_it() -> None:
    steps = [CoreInsert(C), CoreInsert(A), CoreInsert(A), Lock("live:1")]
    assert left_after_removing(steps, 0) == [CoreInsert(A), CoreInsert(A), Lock("live:0")]
    assert left_after_removing(steps, 0, 1) == [CoreInsert(A), Lock("live:0")]


def test_an_op_on_a_node_that_is_never_made_goes_too() -> None:
    steps = [CoreInsert(A), CoreInsert(B), Lock("live:1"), ops.Ask("path", ["live:0"])]
    assert left_after_removing(steps, 1) == [CoreInsert(A), ops.Ask("path", ["live:0"])]


def test_a_node_that_a_request_holds_is_named_by_that_request() -> None:
    steps = [Arrive(A), Prefill(0), Arrive(B), Prefill(1), Lock("request:1")]
    assert left_after_removing(steps, 0, 1) == [Arrive(B), Prefill(0), Lock("request:0")]


def test_an_ack_goes_with_its_offload() -> None:
    steps = [
        CoreInsert(A),
        CoreInsert(B),
        ops.Offload("live:0"),
        ops.Offload("live:1"),
        ops.LinkerAck(False),
        ops.LinkerAck(),
    ]
    config = Config(linker=True, write_through_threshold=9)
    assert left_after_removing(steps, 2, config=config) == [*steps[:2], steps[3], ops.LinkerAck()]


def test_what_the_candidate_has_changed_itself_is_left_alone() -> None:
    draft = Draft(Config(), [Arrive(A), Arrive(B), Prefill(0)])
    links = follow(draft)
    assert links is not None
    candidate = without(draft, {0})
    candidate.draft.ops[-1] = Prefill(5)
    made = relink(draft, candidate, links)
    assert made is not None
    assert made.ops == [Arrive(B), Prefill(5)]


@pytest.mark.parametrize("config", [Config(policy="none such"), Config(components=("full", "swa"))])
def test_a_configuration_that_our_core_refuses_can_not_be_followed(config: Config) -> None:
    assert follow(Draft(config, [CoreInsert(A)])) is None


def test_an_op_that_ends_a_suspended_insert_finds_what_the_insert_made() -> None:
    steps = [CoreInsert([1, 2, 3]), CoreInsert([1, 2, 4], suspend=True), ops.Offload("live:2")]
    config = Config(linker=True, write_through_threshold=2)
    assert left_after_removing(steps, config=config) == steps
