"""Requests: from arrival to release."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import pytest
import torch

from treedrift.backends.contract import EvictParams
from treedrift.harness.cache import CacheError, Request
from treedrift.harness.config import MAX_I64
from treedrift.harness.ops import Namespace

PLAIN = Namespace()


def tokens(*numbers: int) -> array[int]:
    return array("q", numbers)


def arrive(side: Any, *prompt: int, **fields: Any) -> Request:
    request = side.cache.arrive(tokens(*prompt), fields.pop("namespace", PLAIN), **fields)
    assert isinstance(request, Request)
    return request


def row(side: Any, request: Request) -> list[int]:
    slots = side.pools.table.slots[request.row, : request.computed_len]
    return [int(slot) for slot in slots]


def test_a_request_lives_as_the_worked_example_says(bench: Callable[..., Any]) -> None:
    """Worked example EX-11."""
    side = bench(capacity=64)
    request = arrive(side, 1, 2, 3, 4, 5, 6)
    root = request.lock.node_id
    side.core.names()
    assert side.cache.prefill(request)
    pump = ["has_ongoing_insert", "begin_insert", "end_insert"]
    path = ["root_node_handle", "collect_full_device_indices"]
    assert side.core.names() == [*pump, *path, "dec_lock_ref", "inc_lock_ref"]
    first = request.lock.node_id
    assert first != root
    assert side.cache.decode(request, tokens(7, 8))
    side.cache.finish(request)
    calls = list(side.core.calls)
    assert side.core.names() == [
        *pump,
        *pump,
        *path,
        "dec_lock_ref",
        "inc_lock_ref",
        "dec_lock_ref",
    ]
    locks = [args[0] for name, args in calls if name in ("dec_lock_ref", "inc_lock_ref")]
    assert locks[0] == first
    assert locks[1] == locks[2] != first
    prompt_insert = [args[0] for name, args in calls if name == "begin_insert"][1]
    assert prompt_insert.key.token_ids == tokens(1, 2, 3, 4, 5, 6)
    assert (prompt_insert.prev_prefix_len, prompt_insert.inserted_len) == (6, 6)
    assert prompt_insert.priority == 1
    assert side.pools.allocator.available_size() == 56
    side.check()
    side.cache.evict(EvictParams(num_tokens=100))
    assert side.pools.allocator.available_size() == 64


def test_the_last_token_of_a_prompt_is_never_taken_from_the_tree(
    bench: Callable[..., Any],
) -> None:
    side = bench()
    first = arrive(side, 1, 2, 3)
    side.cache.prefill(first)
    second = arrive(side, 1, 2, 3)
    assert (second.computed_len, second.protected_len) == (2, 2)
    assert row(side, second) == row(side, first)[:2]
    side.check()


def test_what_another_request_put_into_the_tree_first_replaces_ones_own(
    bench: Callable[..., Any],
) -> None:
    side = bench()
    first, second = arrive(side, 1, 2, 3), arrive(side, 1, 2, 3, 4)
    side.cache.prefill(first, checkpoint=False)
    side.cache.prefill(second, checkpoint=False)
    own = row(side, second)
    side.cache.checkpoint(first)
    side.cache.checkpoint(second)
    assert side.journal[-1] == ("free", own[:3])
    assert row(side, second) == row(side, first) + own[3:]
    assert side.cache.findings == []
    side.check()


def test_a_prompt_can_be_computed_in_chunks(bench: Callable[..., Any]) -> None:
    side = bench(page_size=4)
    request = arrive(side, *range(11))
    for count, computed, protected in ((3, 3, 0), (3, 6, 4), (2, 8, 8), (None, 11, 8)):
        assert side.cache.prefill(request, count)
        assert (request.computed_len, request.protected_len) == (computed, protected)
        side.check()
    assert request.is_prefilled
    slots = row(side, request)
    assert slots == list(range(slots[0], slots[0] + 11))
    side.cache.prefill(request)
    assert request.computed_len == 11


def test_a_request_decodes_only_once_it_is_prefilled(bench: Callable[..., Any]) -> None:
    side = bench()
    request = arrive(side, 1, 2, 3)
    assert side.cache.decode(request, tokens(9))
    assert request.tokens == tokens(1, 2, 3)
    side.cache.prefill(request)
    side.cache.decode(request, tokens(9))
    side.cache.decode(request, tokens(9, 9))
    assert (request.tokens, request.computed_len) == (tokens(1, 2, 3, 9, 9, 9), 6)
    side.cache.checkpoint(request)
    assert request.protected_len == 6
    side.check()


def test_a_row_takes_no_more_tokens_than_fit(bench: Callable[..., Any]) -> None:
    side = bench(row_length=4)
    assert side.cache.arrive(tokens(*range(5)), PLAIN) is None
    assert side.cache.arrive(tokens(), PLAIN) is None
    request = arrive(side, 1, 2, 3)
    side.cache.prefill(request)
    side.cache.decode(request, tokens(7, 8))
    assert request.tokens == tokens(1, 2, 3, 7)
    assert side.cache.decode(request, tokens(8))


def test_without_a_free_row_nothing_happens(bench: Callable[..., Any]) -> None:
    side = bench(rows=1)
    arrive(side, 1)
    side.core.names()
    assert side.cache.arrive(tokens(2), PLAIN) is None
    assert side.core.names() == []


@pytest.mark.parametrize("page_size", [1, 2])
def test_short_memory_leaves_a_request_as_it_was(bench: Callable[..., Any], page_size: int) -> None:
    side = bench(capacity=6, page_size=page_size)
    request = arrive(side, *range(7))
    assert not side.cache.prefill(request)
    assert (request.computed_len, request.protected_len) == (0, 0)
    assert side.cache.prefill(request, 6)
    assert not side.cache.prefill(request)
    assert request.computed_len == 6
    other = arrive(side, *range(50, 56))
    side.cache.finish(request)
    assert side.cache.prefill(other)
    assert not side.cache.decode(other, tokens(1))
    assert other.tokens == tokens(*range(50, 56))
    side.check()


def test_a_pair_tree_never_owns_the_slot_of_the_last_token(bench: Callable[..., Any]) -> None:
    side = bench(bigram=True)
    first = arrive(side, 1, 2, 3, 4)
    side.cache.prefill(first)
    assert (first.computed_len, first.protected_len) == (4, 3)
    second = arrive(side, 1, 2, 3, 4)
    assert second.computed_len == 2
    side.cache.checkpoint(second)
    assert second.protected_len == 2
    side.cache.prefill(second)
    assert second.protected_len == 3
    assert row(side, second)[:3] == row(side, first)[:3]
    side.check()
    for request in (first, second):
        side.cache.finish(request)
    side.check()
    assert side.core.evictable_size() == 3


def test_a_request_below_one_page_keeps_its_slots(bench: Callable[..., Any]) -> None:
    side = bench(page_size=4)
    request = arrive(side, 1, 2)
    side.cache.prefill(request)
    assert (request.protected_len, request.inserted_len) == (0, 0)
    side.cache.finish(request)
    assert side.pools.allocator.available_size() == 64
    side.check()


def test_a_declined_tail_stays_with_its_request(bench: Callable[..., Any]) -> None:
    side = bench()
    first = arrive(side, 1, 2, 3, rotation_base=1)
    side.cache.prefill(first)
    second = arrive(side, 1, 2, 9, 9, rotation_base=2)
    node = second.lock.node_id
    side.cache.prefill(second)
    assert (second.protected_len, second.inserted_len) == (2, 0)
    assert second.lock.node_id == node
    assert len(side.cache.private_slots(second)) == 2
    side.cache.finish(second)
    side.check()


def test_a_prompts_raised_priority_stays_in_range(bench: Callable[..., Any]) -> None:
    side = bench(policy="priority")
    request = arrive(side, 1, 2, priority=MAX_I64)
    side.cache.prefill(request)
    side.cache.decode(request, tokens(3))
    side.core.calls.clear()
    side.cache.finish(request)
    inserts = [args[0] for name, args in side.core.calls if name == "begin_insert"]
    assert [params.priority for params in inserts] == [MAX_I64, MAX_I64]


def test_an_aborted_request_leaves_only_what_it_had_checkpointed(
    bench: Callable[..., Any],
) -> None:
    side = bench()
    request = arrive(side, 1, 2, 3, 4)
    side.cache.prefill(request, 2)
    side.cache.prefill(request, checkpoint=False)
    side.cache.abort(request)
    assert side.core.evictable_size() == 2
    assert side.pools.table.available_size() == 4
    side.check()


def test_a_retracted_request_comes_back_with_all_its_tokens(bench: Callable[..., Any]) -> None:
    side = bench(rows=1)
    request = arrive(side, 1, 2, 3, priority=5, session_id="s", namespace=Namespace("a", "b"))
    side.cache.prefill(request)
    side.cache.decode(request, tokens(7))
    side.cache.retract(request)
    assert (side.cache.requests, side.cache.waiting) == ([], [request])
    other = arrive(side, 50)
    assert side.cache.readmit(request) is None
    assert side.cache.waiting == [request]
    side.cache.abort(other)
    again = side.cache.readmit(request)
    assert isinstance(again, Request)
    assert side.cache.waiting == []
    assert (again.prompt_len, again.computed_len) == (4, 3)
    assert (again.priority, again.session_id, again.namespace) == (5, "s", Namespace("a", "b"))
    side.check()


def test_namespaces_share_nothing(bench: Callable[..., Any]) -> None:
    side = bench(rows=5)
    for namespace in (PLAIN, Namespace("ab"), Namespace(None, "ab"), Namespace("a", "b")):
        request = arrive(side, 1, 2, 3, namespace=namespace)
        assert request.computed_len == 0
        side.cache.prefill(request)
    side.check()


def test_a_reset_ends_everything(bench: Callable[..., Any]) -> None:
    side = bench()
    side.cache.retract(arrive(side, 9, 9))
    request = arrive(side, 1, 2, 3)
    side.cache.prefill(request)
    side.cache.reset()
    assert (side.cache.requests, side.cache.waiting) == ([], [])
    assert side.pools.allocator.available_size() == 64
    assert side.pools.table.available_size() == 4
    side.check()
    assert arrive(side, 1, 2, 3).computed_len == 0


def test_a_core_that_hands_out_a_wrong_slot_is_found_at_admission(
    bench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    side = bench()
    request = arrive(side, 1, 2, 3, 4)
    side.cache.prefill(request)
    collect = side.core.core.collect_full_device_indices
    monkeypatch.setattr(
        side.core.core, "collect_full_device_indices", lambda *args: collect(*args).flip(0)
    )
    arrive(side, 1, 2, 3, 4)
    assert [finding.oracle for finding in side.cache.findings] == ["kv_content"]
    assert "position 0 in slot 3" in side.cache.findings[0].message


@pytest.mark.parametrize("end", ["abort", "finish", "retract"])
def test_a_slot_that_was_freed_too_early_is_found_when_its_holder_ends(
    bench: Callable[..., Any], end: str
) -> None:
    side = bench()
    request = arrive(side, 1, 2, 3)
    side.cache.prefill(request)
    side.pools.allocator.free(torch.tensor([2]))
    side.cache.checkpoint(request)
    getattr(side.cache, end)(request)
    assert "1 of 3 positions" in side.cache.findings[0].message


def test_a_slot_that_was_freed_before_the_tree_took_it_is_found_at_a_checkpoint(
    bench: Callable[..., Any],
) -> None:
    side = bench()
    request = arrive(side, 1, 2, 3)
    side.cache.prefill(request, checkpoint=False)
    side.pools.allocator.free(torch.tensor([2]))
    side.cache.checkpoint(request)
    assert "1 of 3 positions" in side.cache.findings[0].message


def test_a_slot_that_was_freed_too_early_is_found_at_a_reset(bench: Callable[..., Any]) -> None:
    side = bench()
    side.cache.prefill(arrive(side, 1, 2, 3))
    side.pools.allocator.free(torch.tensor([2]))
    side.cache.reset()
    assert "1 of 3 positions" in side.cache.findings[0].message


def test_a_path_of_the_wrong_length_is_an_error(
    bench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    side = bench()
    request = arrive(side, 1, 2, 3)
    monkeypatch.setattr(side.core.core, "collect_full_device_indices", lambda *_: torch.tensor([1]))
    with pytest.raises(CacheError, match="its path has 1"):
        side.cache.prefill(request)
