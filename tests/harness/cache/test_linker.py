"""The offload side of the external linker."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

from treedrift.backends.contract import EvictParams, InsertParams
from treedrift.harness.cache.linker import QUEUE_LIMIT
from treedrift.harness.ops import Namespace


def insert(bench: Any, *tokens: int, session_id: str | None = None) -> int:
    params = InsertParams(
        key=bench.key(*tokens), value=bench.cache.allocate(len(tokens)), session_id=session_id
    )
    node = bench.cache.insert(params).last_device_node
    assert isinstance(node, int)
    return node


def names(bench: Any) -> list[str]:
    return [name for name in bench.core.names() if "linker" in name or "lock_ref" in name]


def test_an_offload_is_built_locked_and_marked_in_this_order(bench: Callable[..., Any]) -> None:
    side = bench(linker=True)
    node = insert(side, 1, 2, 3, session_id="s1")
    assert names(side) == [
        "build_external_linker_offload_transfers",
        "inc_lock_ref",
        "mark_external_linker_offload_pending",
    ]
    (pending,) = side.cache.linker.pending
    assert (pending.node_id, pending.publish, pending.session_id) == (node, [node], "s1")
    assert side.core.protected_size() == 3
    assert side.cache.linker.ack(True)
    assert names(side) == ["finish_external_linker_offload", "dec_lock_ref"]
    assert not side.cache.linker.ack(True)
    side.check()


def test_a_split_offload_publishes_both_parts(bench: Callable[..., Any]) -> None:
    """Worked example EX-8 for a FULL tree."""
    side = bench(linker=True)
    lower = insert(side, 1, 2, 3, 4)
    insert(side, 1, 2, 3, 9)
    first, second = side.cache.linker.pending
    upper = first.publish[0]
    assert first.publish == [upper, lower]
    assert first.node_id == lower
    assert second.publish == [second.node_id]
    side.core.calls.clear()
    assert side.cache.linker.ack(False)
    finish = next(args for name, args in side.core.calls if name.startswith("finish"))
    assert finish == ([upper, lower], lower, False)
    side.core.calls.clear()
    insert(side, 1, 2, 3, 4)
    offered = [args[0] for name, args in side.core.calls if name.startswith("build_external")]
    assert offered == [upper, lower]
    assert len(side.cache.linker.pending) == 3
    while side.cache.linker.ack(True):
        pass
    side.core.calls.clear()
    insert(side, 1, 2, 3, 4)
    assert names(side) == []
    side.check()
    assert side.core.protected_size() == 0


def test_a_full_transport_refuses_and_is_asked_again_later(bench: Callable[..., Any]) -> None:
    side = bench(linker=True, capacity=64)
    for token in range(QUEUE_LIMIT):
        insert(side, 100 + token)
    side.core.calls.clear()
    refused = insert(side, 7, 8)
    assert names(side) == [
        "build_external_linker_offload_transfers",
        "inc_lock_ref",
        "dec_lock_ref",
    ]
    assert side.cache.linker.ack(True)
    insert(side, 7, 8)
    assert side.cache.linker.pending[-1].node_id == refused
    side.check()


def test_an_offload_in_flight_keeps_its_slots(bench: Callable[..., Any]) -> None:
    side = bench(linker=True, capacity=8)
    insert(side, 1, 2, 3)
    side.cache.evict(EvictParams(num_tokens=8))
    assert side.pools.allocator.available_size() == 5
    side.cache.linker.ack(True)
    assert side.cache.findings == []
    side.cache.evict(EvictParams(num_tokens=8))
    assert side.pools.allocator.available_size() == 8


def test_slots_that_change_before_an_offload_lands_are_found(bench: Callable[..., Any]) -> None:
    side = bench(linker=True)
    insert(side, 1, 2, 3)
    side.pools.kv.cells[2] = 99
    side.cache.linker.ack(True)
    assert [finding.oracle for finding in side.cache.findings] == ["kv_content"]


def test_a_reset_fails_and_unlocks_what_is_in_flight(bench: Callable[..., Any]) -> None:
    side = bench(linker=True)
    insert(side, 1)
    insert(side, 2)
    side.core.calls.clear()
    side.cache.reset()
    calls = [name for name, _ in side.core.calls]
    finish = ["finish_external_linker_offload", "dec_lock_ref"]
    assert calls[:5] == [*finish, *finish, "reset"]
    assert side.cache.linker.pending == []
    side.check()


def test_a_request_offloads_what_it_checkpoints(bench: Callable[..., Any]) -> None:
    side = bench(linker=True)
    request = side.cache.arrive(array("q", [1, 2, 3]), Namespace(), session_id="s")
    side.cache.prefill(request)
    assert [offload.session_id for offload in side.cache.linker.pending] == ["s"]
