"""The controller: pump, actions, eviction and draining."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import pytest
import torch

from treedrift.backends.contract import (
    AllBlocksCleared,
    BackupKV,
    ComponentType,
    EvictionResult,
    EvictParams,
    FreeComponentDeviceSlot,
    FreeDeviceKV,
    InsertParams,
    InsertResult,
    InsertStepResult,
    SWARebuild,
)
from treedrift.backends.pools import PoolError
from treedrift.harness.cache import CacheError

FULL = ComponentType.FULL


def insert(bench: Any, *tokens: int) -> Any:
    page = bench.cache.config.page_size
    slots = bench.cache.allocate(len(tokens) // page * page)
    return bench.cache.insert(InsertParams(key=bench.key(*tokens), value=slots))


def test_construction_resets_the_core_and_says_so_once(bench: Callable[..., Any]) -> None:
    """CTL-3: the first event is that everything was cleared."""
    side = bench(events=True, write_through_threshold=3)
    assert [type(event) for event in side.core.take_events()] == [AllBlocksCleared]
    assert side.core.write_through_threshold == 3


def test_attaching_a_linker_lowers_the_threshold_unless_one_was_chosen(
    bench: Callable[..., Any],
) -> None:
    assert bench(linker=True).core.write_through_threshold == 1
    assert bench(linker=True, write_through_threshold=2).core.write_through_threshold == 2


def test_an_insert_frees_what_the_tree_had(bench: Callable[..., Any]) -> None:
    """Worked example E8."""
    side = bench(capacity=8)
    insert(side, 1, 2, 3)
    result = insert(side, 1, 2, 3, 4, 5)
    assert result.prefix_len == 3
    assert side.pools.allocator.free_list() == [4, 5, 6]
    assert side.journal[-1] == ("free", [4, 5, 6])
    side.core.names()
    assert side.cache.evict(EvictParams(num_tokens=2)) == {FULL: 2}
    assert side.pools.allocator.free_list() == [4, 5, 6, 7, 8]
    assert (side.core.evictable_size(), side.core.protected_size()) == (3, 0)
    side.check()


def test_pages_go_back_in_the_order_of_the_segment(bench: Callable[..., Any]) -> None:
    """Worked example E9."""
    side = bench(capacity=16, page_size=2)
    insert(side, 1, 2, 3, 4, 5, 6, 7)
    result = insert(side, 1, 2, 3, 4, 9, 9, 8, 8)
    assert result.prefix_len == 4
    assert side.journal[-1] == ("free", [8, 9, 10, 11])
    assert side.pools.allocator.free_list() == [4, 5, 8]
    side.check()


def test_a_plain_eviction_asks_once_more_than_one_for_an_allocation(
    bench: Callable[..., Any],
) -> None:
    """Worked example EX-3."""
    for method, argument, quota, steps in (("evict", 3, 3, 2), ("evict_for_alloc", 2, 6, 1)):
        side = bench(capacity=10)
        insert(side, 1, 2, 3)
        insert(side, 4, 5, 6)
        side.core.names()
        evicted = getattr(side.cache, method)(EvictParams(num_tokens=argument))
        assert evicted == {FULL: 3}
        assert side.pools.allocator.free_list() == [7, 8, 9, 10, 1, 2, 3]
        walk = [call for call in side.core.calls if call[0].startswith("evict_device")]
        assert walk[0] == ("evict_device_start", (FULL, quota))
        assert [name for name, _ in walk].count("evict_device_next_node") == steps
        assert walk[-1] == ("evict_device_end", (FULL,))


def test_a_request_for_nothing_opens_no_walk(bench: Callable[..., Any]) -> None:
    side = bench()
    insert(side, 1, 2)
    side.core.names()
    for count in (0, -3):
        assert side.cache.evict(EvictParams(num_tokens=count, swa_num_tokens=9)) == {FULL: 0}
        assert side.cache.evict_for_alloc(EvictParams(num_tokens=count)) == {FULL: 0}
    assert "evict_device_start" not in side.core.names()


def test_a_write_back_leaf_without_a_host_tier_is_dropped(bench: Callable[..., Any]) -> None:
    side = bench(capacity=8, write_back=True)
    insert(side, 1, 2, 3)
    side.core.names()
    assert side.cache.evict(EvictParams(num_tokens=1)) == {FULL: 3}
    assert "drop_subtree_no_host" in side.core.names()
    assert side.pools.allocator.available_size() == 8
    side.check()


def test_a_failing_free_loses_its_step_and_the_next_insert_works(
    bench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Worked example EX-10 (a): two frees in the final step, the first one fails."""
    side = bench(capacity=16)
    insert(side, 1, 2, 3)
    insert(side, 1, 2, 3, 4, 5)
    slots = side.cache.allocate(5)
    free = side.pools.allocator.free_segment

    def fail_once(*_: Any) -> None:
        monkeypatch.setattr(side.pools.allocator, "free_segment", free)
        raise OSError("lost")

    monkeypatch.setattr(side.pools.allocator, "free_segment", fail_once)
    before = side.pools.allocator.available_size()
    side.core.names()
    with pytest.raises(OSError, match="lost"):
        side.cache.insert(InsertParams(key=side.key(1, 2, 3, 4, 5), value=slots))
    names = side.core.names()
    assert names[-1] == "end_insert"
    assert side.pools.allocator.available_size() == before
    assert insert(side, 1, 2, 3, 4, 6).prefix_len == 4


def test_an_error_of_the_core_still_ends_the_insert(
    bench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    side = bench()
    insert(side, 1, 2)
    side.core.names()

    def fail(_: InsertParams) -> InsertStepResult:
        raise ValueError("core")

    freed = side.cache.allocate(2)
    monkeypatch.setattr(side.core.core, "begin_insert", fail)
    monkeypatch.setattr(side.core.core, "end_insert", lambda: [FreeDeviceKV([freed])])
    with pytest.raises(ValueError, match="core"):
        side.cache.insert(InsertParams(key=side.key(1, 2, 3)))
    assert side.core.names()[-1] == "end_insert"
    assert side.journal[-1] == ("free", freed.tolist())


def test_an_insert_inside_an_insert_is_refused(
    bench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    side = bench()
    monkeypatch.setattr(side.core.core, "has_ongoing_insert", lambda: True)
    with pytest.raises(CacheError, match="re-entrant"):
        side.cache.insert(InsertParams(key=side.key(1)))
    assert "end_insert" not in side.core.names()


def test_a_result_that_carries_actions_is_refused(
    bench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    side = bench()
    result = InsertResult(prefix_len=0, cache_actions=[BackupKV([1])])
    monkeypatch.setattr(side.core.core, "begin_insert", lambda _: InsertStepResult([], result))
    with pytest.raises(CacheError, match="carries actions"):
        side.cache.insert(InsertParams(key=side.key(1)))


def test_actions_after_a_failing_one_stay_in_the_list(bench: Callable[..., Any]) -> None:
    side = bench()
    slots = side.cache.allocate(2)
    actions: list[Any] = [
        FreeDeviceKV([slots[:1]]),
        FreeDeviceKV([torch.tensor([60])]),
        FreeDeviceKV([slots[1:]]),
    ]
    last = actions[2]
    with pytest.raises(PoolError):
        side.cache.apply(actions)
    assert actions == [last]
    assert [kind for kind, _ in side.journal] == ["alloc", "free"]


def test_actions_that_no_one_can_execute_are_errors(bench: Callable[..., Any]) -> None:
    side = bench()
    with pytest.raises(KeyError):
        side.cache.apply([SWARebuild(0, torch.tensor([1]))])
    with pytest.raises(CacheError, match="FULL has no use"):
        side.cache.apply([SWARebuild(0, torch.tensor([1]), FULL)])
    with pytest.raises(CacheError, match="no tier"):
        side.cache.apply([BackupKV([0])])
    with pytest.raises(CacheError, match="unknown action int"):
        side.cache.apply([3])


def test_draining_goes_on_after_a_failing_free(bench: Callable[..., Any]) -> None:
    side = bench()
    slots = side.cache.allocate(2)
    result = EvictionResult(
        device_frees={FULL: [torch.tensor([50]), slots[:1]]},
        host_frees={FULL: [torch.tensor([1])]},
        cache_actions=[FreeComponentDeviceSlot([slots[1:]], FULL)],
    )
    with pytest.raises(PoolError):
        side.cache.drain(result)
    assert (result.device_frees, result.host_frees, result.cache_actions) == ({}, {}, [])
    assert side.journal[-1] == ("free", slots[1:].tolist())


def test_a_step_that_fails_to_free_closes_its_walk(
    bench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    side = bench(capacity=8)
    insert(side, 1, 2)
    insert(side, 5)

    def fail(*_: Any) -> None:
        raise OSError("lost")

    with monkeypatch.context() as patch:
        patch.setattr(side.pools.allocator, "free_segment", fail)
        with pytest.raises(OSError, match="lost"):
            side.cache.evict(EvictParams(num_tokens=1))
    assert side.core.names()[-1] == "evict_device_end"
    assert side.cache.evict(EvictParams(num_tokens=1)) == {FULL: 1}


def test_buffer_mode_looks_at_what_it_would_back_up(bench: Callable[..., Any]) -> None:
    side = bench(buffer_only=True)
    node = insert(side, 1, 2).last_device_node
    side.core.names()
    side.cache.apply([BackupKV([node])])
    assert side.core.names() == ["snapshot_buffer_backup"]


def test_a_match_executes_and_consumes_its_actions(bench: Callable[..., Any]) -> None:
    side = bench(buffer_only=True)
    insert(side, 1, 2, 3)
    result = side.cache.match(side.key(1, 2, 9))
    assert (result.device_prefix_len, result.cache_actions) == (2, [])


def test_an_allocation_is_whole_pages_and_evicts_for_them(bench: Callable[..., Any]) -> None:
    side = bench(capacity=8, page_size=4)
    insert(side, *range(8))
    slots = side.cache.allocate(5)
    assert slots is not None
    assert sorted(slots.tolist()) == [4, 5, 6, 7, 8, 9, 10, 11]
    assert side.cache.allocate(1) is None


def test_a_lookup_leaves_the_callers_key_alone(bench: Callable[..., Any]) -> None:
    side = bench(page_size=2)
    key = side.key(1, 2, 3)
    side.cache.touch(key)
    assert (key.token_ids, key.limit) == (array("q", [1, 2, 3]), None)
