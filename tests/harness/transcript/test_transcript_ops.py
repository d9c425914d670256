"""Which ops calls become, one family after the other, and what is left out and counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.harness.transcript.calls import (
    begin,
    end,
    lock,
    match,
    release_window,
    resume,
    unlock,
)
from treedrift.backends.contract import (
    BackupKV,
    ComponentType,
    DropSubtreeNoHostResult,
    EvictDeviceLeafResult,
    EvictDeviceNextNodeResult,
    UnknownNodeError,
)
from treedrift.harness import ops
from treedrift.harness.config import Config
from treedrift.harness.transcript import Call, PlainNames, Pseudonyms, Transcript
from treedrift.harness.transcript.labels import LABELS_MAX

PLAIN = Config()
FULL, SWA, MAMBA = ComponentType.FULL, ComponentType.SWA, ComponentType.MAMBA
HYBRID = Config(components=("full", "swa", "mamba"), window=2)
PAGED = Config(page_size=4)


def told(*calls: Call, config: Config = PLAIN) -> tuple[list[ops.AnyOp], dict[str, int]]:
    """The ops of some calls, and what was left out."""
    transcript = Transcript(config, PlainNames())
    found = [op for call in calls for op in transcript.tell(call)]
    return found + transcript.finish(), dict(transcript.untold)


def node_call(method: str, node: int, result: Any = None, **more: Any) -> Call:
    return Call(method, {"node_id": node, **more}, result)


# --- Matches and inserts ------------------------------------------------------------------


def test_a_match_is_told_with_the_number_of_its_answer() -> None:
    found, _ = told(match(70, 1, 2), match(80, 1), match(70, 1, 2))
    assert found == [
        ops.CoreMatch([1, 2], answer=0),
        ops.CoreMatch([1], answer=1),
        ops.CoreMatch([1, 2], answer=0),
    ]


def test_an_insert_is_one_op_with_all_that_it_was_given() -> None:
    params = {
        "prev_prefix_len": 1,
        "inserted_len": 2,
        "priority": 3,
        "session_id": "s",
        "rotation_base": 4,
        "track_adopted_ranges": True,
    }
    found, left_out = told(begin(1, 2, node=70, **params), end())
    assert found == [
        ops.CoreInsert(
            [1, 2],
            owned=1,
            inserted_len=2,
            priority=3,
            session_id="s",
            rotation_base=4,
            track_adopted_ranges=True,
            answer=0,
        )
    ]
    assert left_out == {}


def test_an_insert_names_no_session_of_a_user() -> None:
    transcript = Transcript(PLAIN, Pseudonyms())
    transcript.tell(begin(1, node=70, session_id="alice"))
    (op,) = transcript.tell(end())
    assert isinstance(op, ops.CoreInsert)
    assert op.session_id == "session-1"


def test_an_insert_says_what_its_windows_have_given_up() -> None:
    params = {
        "mamba_value": torch.tensor([3]),
        "component_evicted_seqlens": {SWA: 1, ComponentType.AUXILIARY_SWA: 2},
        "swa_branching_seqlen": 3,
    }
    found, _ = told(begin(1, 2, 3, 4, node=70, **params), end(), config=HYBRID)
    assert found == [ops.CoreInsert([1, 2, 3, 4], swa_evicted=1, aux_evicted=2, branch=3, answer=0)]


def test_what_an_insert_asks_for_is_not_told_beside_it() -> None:
    store = Call("set_component_device_value", {"node_id": 9, "component_type": SWA})
    found, left_out = told(begin(1), store, node_call("is_root", 9), resume(70), end())
    assert found == [ops.CoreInsert([1], answer=0)]
    assert left_out == {}


def test_an_abandoned_insert_is_told_step_by_step() -> None:
    found, _ = told(begin(1), resume(), end(), match(70, 1))
    assert found == [
        ops.CoreInsert([1], suspend=True, answer=0),
        ops.CoreResume(),
        ops.CoreEnd(),
        ops.CoreMatch([1], answer=0),
    ]


def test_an_insert_that_is_interrupted_is_told_step_by_step() -> None:
    found, _ = told(match(70, 1), begin(1), match(70, 1), resume(70), end(), lock(70))
    assert found == [
        ops.CoreMatch([1], answer=0),
        ops.CoreInsert([1], suspend=True, answer=1),
        ops.CoreMatch([1], answer=0),
        ops.CoreResume(),
        ops.Lock("answer:1"),
    ]


def test_an_insert_that_has_not_ended_is_told_at_the_end() -> None:
    found, _ = told(begin(1), resume())
    assert found == [ops.CoreInsert([1], suspend=True, answer=0), ops.CoreResume()]


@pytest.mark.parametrize(
    ("call", "config", "why"),
    [
        (begin(1, 2, node=7, prev_prefix_len=2), PAGED, "with a length that is no whole page"),
        (begin(1, node=7), HYBRID, "without one state"),
        (begin(1, node=7, value=None), PLAIN, "without a value"),
        (
            begin(1, node=7, component_evicted_seqlens={MAMBA: 1}),
            PLAIN,
            "with an evicted length of no window",
        ),
    ],
)
def test_an_insert_that_no_op_says_is_counted(call: Call, config: Config, why: str) -> None:
    found, left_out = told(call, end(), config=config)
    assert (found, left_out) == ([], {f"begin_insert {why}": 1})


# --- Locks --------------------------------------------------------------------------------


def test_a_release_names_the_place_of_its_receipt() -> None:
    first, second = lock(70), lock(80)
    found, left_out = told(match(70, 1), match(80, 2), first, second, unlock(first), unlock(second))
    assert found[2:] == [
        ops.Lock("answer:0"),
        ops.Lock("answer:1"),
        ops.Unlock(0),
        ops.Unlock(0),
    ]
    assert left_out == {}


def test_a_window_is_released_early_and_its_lock_later() -> None:
    taken = lock(70, mark=5)
    found, left_out = told(
        match(70, 1), taken, release_window(taken), unlock(taken, skip_swa=True), config=HYBRID
    )
    assert found[2:] == [ops.ReleaseWindow(0), ops.Unlock(0)]
    assert left_out == {}


def test_a_second_window_is_released_once() -> None:
    auxiliary = ComponentType.AUXILIARY_SWA
    taken = lock(70, mark=5)
    taken.result.component_lock_uuids[auxiliary] = 6
    given = {**release_window(taken).arguments, "component_type": auxiliary}
    early = Call("dec_window_lock_only", given)
    config = Config(components=("full", "swa"), window=2, aux_window=2)
    found, left_out = told(match(70, 1), taken, early, early, config=config)
    assert found[2:] == [ops.ReleaseWindow(0, window="aux_swa")]
    assert left_out == {"dec_window_lock_only of a receipt without a window": 1}


def test_a_state_that_is_released_alone_leaves_the_rest_locked() -> None:
    taken = lock(70, mark=5)
    found, left_out = told(
        match(70, 1), taken, unlock(taken, FULL, SWA), unlock(taken, MAMBA), config=HYBRID
    )
    assert found[2:] == [ops.Lock("answer:0", skip=["mamba"]), ops.Unlock(0), ops.Unlock(0)]
    assert left_out == {}


def test_another_part_of_a_lock_is_counted() -> None:
    taken = lock(70, mark=5)
    _, left_out = told(match(70, 1), taken, unlock(taken, MAMBA), config=HYBRID)
    assert left_out == {"dec_lock_ref of a part of a lock": 1}


def test_a_lock_on_a_node_that_nobody_answered_is_counted_with_its_release() -> None:
    taken = lock(70)
    found, left_out = told(taken, unlock(taken))
    assert found == []
    assert left_out == {
        "inc_lock_ref of a node that no match or insert answered": 1,
        "dec_lock_ref of a receipt that was not told": 1,
    }


def test_pins_are_released_by_their_place() -> None:
    pin, unpin = node_call("inc_full_pin", 70), node_call("dec_full_pin", 70)
    found, left_out = told(match(70, 1), pin, unpin, unpin)
    assert found[1:] == [ops.Pin("answer:0"), ops.Pin(release=0)]
    assert left_out == {"dec_full_pin of a pin that was not told": 1}


def test_the_last_that_was_taken_may_be_released_first() -> None:
    locks = [lock(70), lock(80)]
    host_locks = [Call("inc_host_lock_ref", one.arguments, one.result) for one in locks]
    host_unlock = Call("dec_host_lock_ref", unlock(host_locks[1]).arguments)
    pins = [node_call("inc_full_pin", 70), node_call("inc_full_pin", 80)]
    taken = [*locks, *host_locks, *pins]
    released = [unlock(locks[1]), host_unlock, node_call("dec_full_pin", 80)]
    found, left_out = told(match(70, 1), match(80, 2), *taken, *released)
    assert found[-3:] == [ops.Unlock(1), ops.Unlock(1, host=True), ops.Pin(release=1)]
    assert left_out == {}


def test_the_root_is_told_by_its_name() -> None:
    found, _ = told(Call("root_node_handle", {}, 1), lock(1))
    assert found == [ops.Lock("root")]


# --- Evictions ----------------------------------------------------------------------------


def walk(method: str, result: Any = None, **more: Any) -> Call:
    return Call(method, {"component_type": FULL, **more}, result)


def offer(node: int | None, done: int) -> Call:
    result = EvictDeviceNextNodeResult(node_id=node)
    return walk("evict_device_next_node", result, tracker={FULL: done, SWA: 9})


def evict(node: int, count: int, *, backup: bool = False, is_write_back: bool = False) -> Call:
    result = EvictDeviceLeafResult(
        tracker={FULL: count}, backup_kv=BackupKV([node]) if backup else None
    )
    return node_call("evict_device_leaf", node, result, is_write_back=is_write_back)


def test_a_walk_is_told_with_totals_that_a_replay_would_not_have() -> None:
    found, left_out = told(
        walk("evict_device_start", request_cnt=8),
        offer(70, 0),
        evict(70, 5),
        offer(80, 5),
        offer(None, 7),
        walk("evict_device_end"),
    )
    assert found == [
        ops.WalkStart(8),
        ops.WalkNext(),
        ops.EvictLeaf(),
        ops.WalkNext(),
        ops.WalkNext(done=7),
        ops.WalkEnd(),
    ]
    assert left_out == {}


def test_what_a_step_frees_by_itself_is_in_the_total_of_a_replay_too() -> None:
    step = offer(None, 0)
    step.result.tracker[FULL] = 3
    start = walk("evict_device_start", request_cnt=8)
    found, _ = told(start, step, offer(70, 3))
    assert found == [ops.WalkStart(8), ops.WalkNext(), ops.WalkNext()]


def test_the_drop_of_a_leaf_that_asks_for_a_backup_goes_with_it() -> None:
    drop = node_call("drop_subtree_no_host", 70, DropSubtreeNoHostResult(tracker={FULL: 2}))
    found, left_out = told(
        Call("is_write_back =", {"value": True}),
        walk("evict_device_start", request_cnt=8),
        offer(70, 0),
        evict(70, 0, backup=True, is_write_back=True),
        drop,
        offer(None, 2),
    )
    assert found[1:] == [ops.WalkStart(8), ops.WalkNext(), ops.EvictLeaf(), ops.WalkNext()]
    assert left_out == {}


def test_evicting_what_no_walk_offered_is_counted() -> None:
    _, left_out = told(evict(70, 1), node_call("drop_subtree_no_host", 70))
    assert left_out == {
        "evict_device_leaf of a node that no walk offered last": 1,
        "drop_subtree_no_host of a node that no walk offered last": 1,
    }


# --- The linker ---------------------------------------------------------------------------

ASK, MARK = "build_external_linker_offload_transfers", "mark_external_linker_offload_pending"


def land(node: int, *, success: bool) -> Call:
    given = {"node_ids": [node], "ack_id": node, "success": success}
    return Call("finish_external_linker_offload", given)


def test_an_offload_of_an_insert_is_told_by_its_end_alone() -> None:
    taken = lock(9)
    found, left_out = told(
        begin(1),
        node_call(ASK, 9, []),
        taken,
        node_call(MARK, 9),
        resume(70),
        end(),
        land(9, success=True),
        unlock(taken),
    )
    assert found == [ops.CoreInsert([1], answer=0), ops.LinkerAck()]
    assert left_out == {}


def test_an_offload_that_the_transport_refuses_is_counted() -> None:
    taken = lock(9)
    _, left_out = told(begin(1), node_call(ASK, 9, []), taken, unlock(taken), resume(70), end())
    assert left_out == {"an offload that the transport refused": 1}


def test_an_offload_beside_an_insert_is_an_op() -> None:
    found, _ = told(match(70, 1), node_call(ASK, 70, []), lock(70), node_call(MARK, 70))
    assert found[-1] == ops.Offload("answer:0")
    assert ops.Lock("answer:0") not in found


# --- Settings, resets and events ----------------------------------------------------------


def test_settings_are_told_when_they_change() -> None:
    found, left_out = told(
        Call("enable_storage =", {"value": False}),
        Call("write_through_threshold =", {"value": 2}),
        Call("write_through_threshold =", {"value": 2}),
        Call("has_swa_host_pool =", {"value": False}),
        Call("set_host_memory_buffer_only"),
    )
    assert found == [ops.SetFlag("write_through_threshold", 2), ops.SetFlag("buffer_only", 1)]
    assert left_out == {}


def test_only_a_reset_of_a_tree_that_was_used_is_told() -> None:
    cleared = Call("kv_events.record_all_cleared")
    found, left_out = told(
        Call("reset"), cleared, match(7, 1), Call("reset"), cleared, Call("take_events", {}, [])
    )
    assert found == [ops.CoreMatch([1], answer=0), ops.Reset(), ops.DrainEvents()]
    assert left_out == {}


def test_a_reset_forgets_all_that_was_held() -> None:
    taken = lock(70)
    _, left_out = told(match(70, 1), taken, Call("reset"), unlock(taken), lock(70))
    assert left_out == {
        "dec_lock_ref of a receipt that was not told": 1,
        "inc_lock_ref of a node that no match or insert answered": 1,
    }


# --- Questions and the rest ---------------------------------------------------------------


def test_reads_become_questions_and_the_same_one_is_told_once() -> None:
    root = Call("root_node_handle", {}, 1)
    indices = {"from_node_id": 70, "until_node_id": 1}
    found, left_out = told(
        root,
        match(70, 1),
        Call("collect_full_device_indices", indices),
        node_call("is_backuped", 70),
        node_call("get_component_device_value", 70, component_type=MAMBA),
        Call("collect_path_info", {"end_node_ids": [70]}),
        Call("total_size"),
    )
    assert found[1:] == [
        ops.Ask("indices", ["answer:0"]),
        ops.Ask("predicates", ["answer:0"]),
        ops.Ask("path", ["answer:0"]),
    ]
    assert left_out == {}


def test_calls_of_a_host_tier_are_counted_by_name() -> None:
    _, left_out = told(Call("set_hicache_enabled"), node_call("demote", 7), node_call("demote", 7))
    assert left_out == {"set_hicache_enabled": 1, "demote": 2}


def test_refused_calls_are_counted_with_their_error() -> None:
    refused = lock(70)
    refused.error = UnknownNodeError(70)
    found, left_out = told(refused)
    assert found == []
    assert left_out == {"inc_lock_ref, which raised UnknownNodeError": 1}


def test_numbers_of_answers_are_used_again_but_for_locked_nodes() -> None:
    transcript = Transcript(Config(), PlainNames())
    transcript.tell(match(1, 5))
    transcript.tell(lock(1))
    numbers = {
        op.answer
        for node in range(2, 3 * LABELS_MAX)
        for op in transcript.tell(match(node, 5))
        if isinstance(op, ops.CoreMatch)
    }
    assert numbers == set(range(1, LABELS_MAX + 1))
    assert transcript.tell(lock(1)) == [ops.Lock("answer:0")]
