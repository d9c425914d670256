"""Sliding windows: actions on the mapping, what requests give up, what they may still read."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import pytest
import torch

from treedrift.backends.contract import (
    ComponentType,
    EvictDeviceNextNodeResult,
    EvictionResult,
    EvictParams,
    FreeComponentHostSlot,
    FreeDeviceKV,
    FreeDeviceKVFullOnly,
    InsertParams,
    RebuildFullToSWAMapping,
    RecoverEvictedSWA,
    RecoverSWAWithLockedFull,
    SWARebuild,
)
from treedrift.backends.pools import PoolError
from treedrift.harness.cache import CacheError, Request
from treedrift.harness.ops import Namespace

FULL, SWA, AUX = ComponentType.FULL, ComponentType.SWA, ComponentType.AUXILIARY_SWA
PLAIN = Namespace()
Build = Callable[..., Any]


@pytest.fixture
def windowed(bench: Build) -> Build:
    """Builds a bench whose tree has a window of 2 tokens, if not told otherwise."""

    def build(**fields: Any) -> Any:
        return bench(**{"components": ("full", "swa"), "window": 2, "capacity": 32, **fields})

    return build


def arrive(side: Any, *prompt: int, **fields: Any) -> Request:
    request = side.cache.arrive(array("q", prompt), PLAIN, **fields)
    assert isinstance(request, Request)
    return request


def insert(side: Any, *tokens: int, evicted: int = 0, **fields: Any) -> torch.Tensor:
    """Insert tokens with fresh slots, which have a window from `evicted` on."""
    slots = side.cache.allocate(len(tokens), window_from=evicted)
    params = InsertParams(key=side.key(*tokens), value=slots, **fields)
    params.set_evicted_seqlen(SWA, evicted)
    side.cache.insert(params)
    assert isinstance(slots, torch.Tensor)
    return slots


def peers(side: Any, slots: torch.Tensor) -> list[int]:
    found = side.pools.windows[SWA].translate(slots).tolist()
    return [int(slot) for slot in found]


def sizes(side: Any, component: ComponentType) -> tuple[int, int]:
    core = side.core
    return core.component_evictable_size(component), core.component_protected_size(component)


# --- Actions ------------------------------------------------------------------------------


def test_a_capped_leaf_is_published_in_two_parts(bench: Build) -> None:
    """Worked example EX-1, on the device."""
    side = bench(components=("full", "swa", "mamba"), window=4, capacity=32)
    state = side.cache.allocate_state()
    slots = side.cache.allocate(6)
    assert slots.tolist() == [1, 2, 3, 4, 5, 6]
    params = InsertParams(key=side.key(1, 2, 3, 4, 5, 6), value=slots, mamba_value=state)
    result = side.cache.insert(params)
    calls = list(side.core.calls)
    assert side.core.names() == [
        "has_ongoing_insert",
        "begin_insert",
        "set_component_device_value",
        "set_component_device_value",
        "resume_insert",
        "end_insert",
    ]
    stored = [args for name, args in calls if name == "set_component_device_value"]
    assert [args[2].tolist() for args in stored] == [[1, 2], [3, 4, 5, 6]]
    assert stored[1][0] == result.last_device_node
    assert result.prefix_len == 0
    side.check()


def test_recovery_under_a_lock_moves_the_peers_and_frees_the_newcomers(windowed: Build) -> None:
    """Worked example W4."""
    side = windowed(window=3)
    old = insert(side, 1, 2, 3, 4, evicted=4)
    node = side.cache.match(side.key(1, 2, 3, 4)).last_visited_node_id
    held = side.cache.lock(node)
    new = insert(side, 1, 2, 3, 4, evicted=2)
    assert peers(side, old) == [0, 0, 1, 2]
    assert peers(side, new) == [0, 0, 0, 0]
    assert side.pools.allocator.are_out(new).tolist() == [False] * 4
    assert sizes(side, SWA) == (0, 2)
    side.cache.unlock(held)
    side.check()


def test_what_the_tree_has_already_goes_back_with_its_window(windowed: Build) -> None:
    side = windowed()
    insert(side, 1, 2)
    insert(side, 1, 2)
    assert side.pools.windows[SWA].free_list()[-2:] == [3, 4]
    assert side.pools.allocator.free_list()[-2:] == [3, 4]
    side.check()


def test_a_tombstone_takes_new_slots_and_its_old_ones_go_alone(windowed: Build) -> None:
    """BUG-17: the window slots of the newcomers are those that the old ones once had."""
    side = windowed(window_capacity=6)
    old = insert(side, 1, 2, 3, 4, evicted=2)
    new = insert(side, 1, 2)
    assert side.pools.allocator.are_out(old[:2]).tolist() == [False, False]
    assert peers(side, new) == [3, 4]
    assert sizes(side, FULL) == sizes(side, SWA) == (4, 0)
    found = side.cache.match(side.key(1, 2, 3, 4))
    root = side.core.root_node_handle()
    path = side.core.collect_full_device_indices(found.last_device_node, root)
    assert path.tolist() == [*new.tolist(), *old[2:].tolist()]
    side.check()


def test_a_combined_free_of_a_tombstone_is_noticed(windowed: Build) -> None:
    """BUG-17, spoilt: an old mapping entry was left standing."""
    side = windowed()
    slots = side.cache.allocate(2, window_from=2)
    with pytest.raises(PoolError, match="without a window peer"):
        side.cache.apply([FreeDeviceKV([slots])])
    window = side.pools.windows[SWA]
    window.attach(slots)
    side.cache.apply([FreeDeviceKVFullOnly([slots])])
    (finding,) = side.cache.findings
    assert finding.oracle == "window_mapping"
    assert "2 of 2 slots freed without their window have one" in finding.message


def test_a_rebuilt_node_must_have_peers(windowed: Build) -> None:
    side = windowed()
    insert(side, 1, 2, evicted=2)
    node = side.cache.match(side.key(1, 2)).last_visited_node_id
    slots = side.core.get_component_device_value(node, FULL)
    side.cache.apply([SWARebuild(node, slots)])
    assert [found.oracle for found in side.cache.findings] == ["window_mapping"]


def test_mappings_are_set_and_moved(windowed: Build) -> None:
    side = windowed()
    full = side.cache.allocate(4, window_from=4)
    window = side.pools.windows[SWA].allocator.alloc(2)
    side.cache.apply([RebuildFullToSWAMapping([full[:1], full[1:2]], [window[:1], window[1:]])])
    assert peers(side, full) == [1, 2, 0, 0]
    side.cache.apply([RecoverEvictedSWA(SWA, full[2:], full[:2])])
    assert peers(side, full) == [0, 0, 1, 2]


def test_a_window_has_no_use_for_what_is_not_its_own(windowed: Build) -> None:
    side = windowed()
    with pytest.raises(CacheError, match="SWA has no use for FreeComponentHostSlot"):
        side.cache.apply([FreeComponentHostSlot([], SWA)])
    with pytest.raises(KeyError):
        side.cache.apply([RecoverEvictedSWA(AUX, torch.empty(0), torch.empty(0))])
    with pytest.raises(KeyError):
        side.cache.available(ComponentType.MAMBA)
    with pytest.raises(KeyError):
        side.cache.allocate_state()


def test_a_second_window_loses_what_a_lock_keeps_out(bench: Build) -> None:
    components = ("full", "swa", "aux_swa")
    side = bench(components=components, window=2, aux_window=2, capacity=16)
    kept = side.cache.allocate(2, window_from={SWA: 2, AUX: 0})
    new = side.cache.allocate(2)
    side.cache.insert(
        InsertParams(key=side.key(1, 2), value=kept, component_evicted_seqlens={SWA: 2})
    )
    node = side.core.collect_path_info([side.cache.match(side.key(1, 2)).last_visited_node_id])
    side.cache.apply([RecoverSWAWithLockedFull(node[0][0].node_id, kept, new)])
    side.check()


# --- Eviction and allocation --------------------------------------------------------------


def test_one_walk_frees_for_the_next(windowed: Build) -> None:
    """Worked example EX-3: the leaf of FULL's walk takes its window along."""
    side = windowed(capacity=6, window=3)
    insert(side, 1, 2, 3)
    insert(side, 4, 5, 6)
    side.core.names()
    assert side.cache.evict_for_alloc(EvictParams(3, 3)) == {FULL: 3, SWA: 3}
    assert side.core.names().count("evict_device_start") == 1
    assert side.cache.evict(EvictParams(0, 3)) == {FULL: 3, SWA: 3}
    side.check()


def test_a_window_alone_is_evicted_from_inner_nodes(windowed: Build) -> None:
    side = windowed()
    insert(side, 1, 2)
    slots = insert(side, 1, 2, 3, 4)
    assert slots is not None
    assert side.cache.evict(EvictParams(0, 1)) == {FULL: 0, SWA: 2}
    assert sizes(side, FULL) == (4, 0)
    assert sizes(side, SWA) == (2, 0)
    side.check()


def test_an_allocation_takes_a_window_from_a_position_on(windowed: Build) -> None:
    side = windowed(page_size=2, capacity=16, window_capacity=4)
    slots = side.cache.allocate(7, window_from=5)
    assert peers(side, slots) == [0, 0, 0, 0, 2, 3, 4, 5]
    assert side.cache.allocate(2) is None
    assert side.cache.available(FULL) == 8
    assert side.cache.allocate(2, window_from={SWA: 2}) is not None


def test_a_request_that_finds_no_window_slots_is_unchanged(windowed: Build) -> None:
    side = windowed(window_capacity=4)
    request = arrive(side, 1, 2, 3, 4, 5)
    assert not side.cache.prefill(request)
    assert request.computed_len == 0
    assert side.cache.prefill(request, 4)
    side.check()


def test_a_walk_that_asks_for_a_backup_is_refused(windowed: Build) -> None:
    side = windowed()
    insert(side, 1, 2)

    def ask(*_: Any) -> Any:
        return EvictDeviceNextNodeResult(swa_backup_node_id=1, made_progress=True)

    side.core.core.evict_device_next_node = ask
    with pytest.raises(CacheError, match="no host tier"):
        side.cache.evict(EvictParams(0, 1))


# --- Requests -----------------------------------------------------------------------------


def test_a_request_gives_up_what_no_token_looks_at(windowed: Build) -> None:
    """SWA-Q2: before the insert with the key's length, while decoding with what is computed."""
    side = windowed()
    request = arrive(side, *range(1, 9))
    side.cache.prefill(request)
    assert request.windows[SWA].evicted == 8 - 1 - 2
    assert side.pools.windows[SWA].available_size() == 32 - 3
    for token in range(9, 15):
        side.cache.decode(request, array("q", [token]))
        side.check()
    assert request.windows[SWA].evicted == 13 - 1 - 2
    assert side.cache.window_owned(request, SWA).numel() == 4
    side.cache.finish(request)
    side.check()
    assert side.cache.match(side.key(*range(1, 15))).device_prefix_len == 14


def test_a_request_may_batch_what_it_gives_up(windowed: Build) -> None:
    side = windowed(window_interval=4)
    request = arrive(side, *range(1, 7))
    side.cache.prefill(request)
    assert request.windows[SWA].evicted == 0
    side.cache.decode(request, array("q", [7, 8]))
    side.cache.decode(request, array("q", [9]))
    assert request.windows[SWA].evicted == 6
    side.check()


def test_pages_are_given_up_whole(windowed: Build) -> None:
    side = windowed(page_size=2, window=3)
    request = arrive(side, *range(1, 12))
    side.cache.prefill(request)
    assert request.windows[SWA].evicted == 6
    side.check()
    side.cache.abort(request)
    side.check()


def test_a_window_is_released_early_once_and_only_below_the_root(windowed: Build) -> None:
    """CTL-34: the rest of the lock stays."""
    side = windowed()
    request = arrive(side, 1, 2, 3)
    side.core.names()
    side.cache.early_release(request)
    assert side.core.names() == []
    side.cache.prefill(request)
    side.core.names()
    side.cache.early_release(request)
    side.cache.early_release(request)
    assert side.core.names() == ["dec_swa_lock_only"]
    assert sizes(side, SWA)[1] == 0
    assert sizes(side, FULL) == (0, 3)
    side.cache.evict(EvictParams(0, 9))
    side.cache.decode(request, array("q", [4]))
    side.cache.finish(request)
    side.check()


def test_an_insert_stops_where_another_needs_a_window(windowed: Build) -> None:
    """SWA-Q1, SWA-Q3."""
    side = windowed(window=3)
    first = arrive(side, *range(1, 11))
    side.cache.prefill(first)
    side.cache.finish(first)
    second = arrive(side, 1, 2, 3, 4, 5, 50, 51, 52)
    assert (second.computed_len, second.window_branch) == (0, 5)
    side.cache.prefill(second)
    assert (second.protected_len, second.window_branch) == (5, None)
    side.check()
    side.cache.finish(second)
    third = arrive(side, 1, 2, 3, 4, 5, 60)
    assert third.computed_len == 5
    side.check()


def test_a_ring_keeps_no_window_slots(windowed: Build) -> None:
    side = windowed(window_gates=False, window_ring=True, window_capacity=2)
    request = arrive(side, *range(1, 9))
    assert side.cache.prefill(request)
    side.cache.finish(request)
    assert arrive(side, *range(1, 9)).computed_len == 7
    side.check()


def test_the_window_of_a_prompt_is_computed_anew_where_it_is_not_kept(windowed: Build) -> None:
    """SWA-M13: so many tokens are not even looked up."""
    side = windowed(window_replay=True, window_gates=False)
    request = arrive(side, *range(1, 9))
    side.cache.prefill(request)
    # Of the 6 tokens looked up, the last one has too little of a window before it (SWA-M4).
    assert arrive(side, *range(1, 9)).computed_len == 5
    assert arrive(side, 1).computed_len == 0
    side.check()


# --- Content ------------------------------------------------------------------------------


def test_a_window_of_other_content_is_noticed_on_arrival(windowed: Build) -> None:
    side = windowed()
    first = arrive(side, 1, 2, 3, 4)
    side.cache.prefill(first)
    window = side.pools.windows[SWA]
    window.write(first.slots[2:3], torch.tensor([77]))
    arrive(side, 1, 2, 3, 5)
    (finding,) = side.cache.findings
    assert finding.oracle == "window_content"
    assert "SWA window holds KV of another prefix at 2" in finding.message


@pytest.mark.parametrize(("spoil", "words"), [("remap", "do not map to"), ("drop", "has no value")])
def test_a_window_value_that_is_not_that_of_the_slots_is_noticed(
    windowed: Build, spoil: str, words: str
) -> None:
    side = windowed()
    first = arrive(side, 1, 2, 3, 4)
    side.cache.prefill(first)
    window = side.pools.windows[SWA]
    read = side.core.core.get_component_device_value
    if spoil == "remap":
        fresh = window.allocator.alloc(1)
        window.set_mapping(first.slots[3:4], fresh)
        window.write(first.slots[3:4], first.fingerprints[3:4])
    else:
        side.core.core.get_component_device_value = lambda node, kind: (
            None if kind is SWA else read(node, kind)
        )
    side.cache.decode(first, array("q", [5]))
    arrive(side, 1, 2, 3, 4, 6)
    assert {found.oracle for found in side.cache.findings} == {"window_mapping"}
    assert words in side.cache.findings[0].message


def test_a_lost_boundary_unlocks_the_window_of_another(windowed: Build) -> None:
    """BUG-03: a lock that is released without its boundary takes others' locks along."""
    side = windowed()
    insert(side, 1, 2)
    insert(side, 1, 2, 3, 4)
    upper = side.cache.lock(side.cache.match(side.key(1, 2)).last_device_node)
    assert sizes(side, SWA) == (2, 2)
    lower = side.cache.lock(side.cache.match(side.key(1, 2, 3, 4)).last_device_node)
    assert sizes(side, SWA) == (0, 4)
    side.cache.unlock(lower)
    assert sizes(side, SWA) == (2, 2)
    side.cache.evict(EvictParams(0, 4))
    assert sizes(side, FULL) == sizes(side, SWA) == (0, 2)
    side.cache.unlock(upper)
    assert sizes(side, SWA) == (2, 0)
    side.check()


def test_every_component_is_drained_in_tree_order(windowed: Build) -> None:
    side = windowed()
    slots = side.cache.allocate(3)
    side.cache.drain(EvictionResult(device_frees={SWA: [slots[:2]], FULL: [slots[:2]]}))
    assert side.journal[-2:] == [("free", [1, 2]), ("swa:free", [1, 2])]


def test_a_window_that_was_given_up_too_early_is_noticed(windowed: Build) -> None:
    side = windowed(window=3)
    request = arrive(side, *range(1, 6))
    side.cache.prefill(request, checkpoint=False)
    side.pools.windows[SWA].free_peers(request.slots[:4])
    request.windows[SWA].evicted = 4
    side.cache.decode(request, array("q", [6]))
    assert [found.oracle for found in side.cache.findings] == ["window_content"]
