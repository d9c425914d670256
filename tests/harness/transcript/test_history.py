"""The run so far: whole since the last reset, or as much of its end as there is room for."""

from __future__ import annotations

from tests.harness.transcript.calls import begin, lock, match
from treedrift.harness import ops
from treedrift.harness.config import Config
from treedrift.harness.transcript import Call, History, PlainNames

SPACE = 2000
"""Bytes of ops that a short history keeps."""


def history(*calls: Call, bytes_max: int = 2**20) -> History:
    made = History(Config(), bytes_max, PlainNames)
    for call in calls:
        made.add(call)
    return made


def test_a_history_is_a_trace_with_the_header_that_it_is_given() -> None:
    trace = history(match(7, 1, 2), lock(7)).trace(pair=("python", "rust"), note="found at noon")
    assert trace.ops == [ops.CoreMatch([1, 2], answer=0), ops.Lock("answer:0")]
    assert trace.header.pair == ("python", "rust")
    assert trace.header.note == "found at noon"


def test_an_insert_in_flight_is_its_last_op() -> None:
    trace = history(match(7, 1), begin(1, 2)).trace()
    assert trace.ops[-1] == ops.CoreInsert([1, 2], suspend=True, answer=1)


def test_a_reset_begins_a_history_anew_with_the_settings_of_then() -> None:
    flag = Call("write_through_threshold =", {"value": 2})
    cleared = Call("kv_events.record_all_cleared")
    trace = history(flag, match(7, 1), Call("reset"), cleared, match(8, 2)).trace()
    assert trace.ops == [
        ops.SetFlag("write_through_threshold", 2),
        ops.Reset(),
        ops.CoreMatch([2], answer=0),
    ]
    assert trace.header.note == ""


def test_the_first_reset_of_a_cache_is_not_told() -> None:
    trace = history(Call("reset"), match(7, 1)).trace()
    assert trace.ops == [ops.CoreMatch([1], answer=0)]


def test_a_history_that_is_too_long_keeps_its_end_and_says_what_is_missing() -> None:
    calls = [match(node, node) for node in range(500)]
    trace = history(*calls, bytes_max=SPACE).trace()
    kept = len(trace.ops)
    assert trace.ops[-1] == ops.CoreMatch([499], answer=kept - 1)
    assert 0 < kept < 100
    missing = f"{500 - kept} calls came before it and left a tree that it lacks"
    assert trace.header.note == missing


def test_what_could_not_be_told_is_named_in_the_note() -> None:
    trace = history(lock(7), lock(8), Call("set_hicache_enabled")).trace(note="n")
    assert trace.header.note == (
        "n; not told: 2 x inc_lock_ref of a node that no match or insert answered, "
        "1 x set_hicache_enabled"
    )
