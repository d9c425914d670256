"""Mamba states of requests: where they start, what they track, what they leave in the tree."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import pytest
import torch

from treedrift.backends.contract import (
    ComponentType,
    EvictParams,
    FreeComponentHostSlot,
    InvalidArgumentError,
    MambaEvictExcessPathStates,
    UnknownNodeError,
)
from treedrift.backends.pools import NO_SLOT
from treedrift.harness.cache import CacheError, Request
from treedrift.harness.ops import Namespace

FULL, SWA, MAMBA = ComponentType.FULL, ComponentType.SWA, ComponentType.MAMBA
PLAIN = Namespace()
Build = Callable[..., Any]


@pytest.fixture
def stateful(bench: Build) -> Build:
    """Builds a bench whose tree has Mamba states; 12 of them, if not told otherwise."""

    def build(**fields: Any) -> Any:
        return bench(**{"components": ("full", "mamba"), "states": 12, **fields})

    return build


def arrive(side: Any, *prompt: int, **fields: Any) -> Request:
    request = side.cache.arrive(array("q", prompt), PLAIN, **fields)
    assert isinstance(request, Request)
    return request


def cached(side: Any) -> list[int]:
    """State slots in the tree, ascending."""
    return sorted(int(slot) for slot in side.core.core.all_mamba_values_flatten().tolist())


def leave(side: Any, *prompt: int) -> None:
    """A request with this prompt comes and goes."""
    request = arrive(side, *prompt)
    assert side.cache.prefill(request)
    side.cache.finish(request)


# --- Worked trace MAM-T13 -----------------------------------------------------------------


def test_tracked_states_are_donated_and_replaced(stateful: Build) -> None:
    """MAM-T13 with two entries: what a checkpoint gives away, what comes back at the end."""
    side = stateful(state_buffer="double", state_chunk=3)
    request = arrive(side, *range(1, 9))
    assert side.cache.private_states(request) == [1, 2, 3]
    side.cache.checkpoint(request)
    assert (request.protected_len, cached(side)) == (0, [])
    side.cache.prefill(request, 4)
    assert (request.protected_len, request.computed_len) == (3, 4)
    assert (cached(side), side.cache.private_states(request)) == ([2], [1, 4, 3])
    side.cache.prefill(request, checkpoint=False)
    side.cache.finish(request)
    assert cached(side) == [2, 3]
    assert side.pools.states.free_list() == [*range(5, 13), 1, 4]
    assert side.cache.match(side.key(*range(1, 9))).device_prefix_len == 6
    side.check()


def test_a_donated_state_that_was_there_comes_back(stateful: Build) -> None:
    side = stateful(state_buffer="double", state_chunk=3)
    leave(side, 1, 2, 3, 4)
    request = arrive(side, 1, 2, 3, 4, cow=False)
    given = side.cache.private_states(request)
    side.cache.prefill(request)
    assert side.pools.states.free_list()[-1] == given[1]
    side.check()


def test_a_state_beyond_what_is_computed_is_passed_over(stateful: Build) -> None:
    """MAM-T13: the entry before it goes to the tree if its depth is known, else nothing does."""
    for known in (True, False):
        side = stateful(state_buffer="double", state_chunk=7)
        request = arrive(side, *range(1, 9))
        side.cache.prefill(request, checkpoint=False)
        tracking = request.tracking
        assert tracking is not None
        assert (tracking.last_depth, tracking.slots.last_track) == (7, 0)
        tracking.last_depth, tracking.slots.last_track = 10, 1
        tracking.prev_depth = 7 if known else None
        side.cache.finish(request)
        assert cached(side) == ([2] if known else [])
        assert side.pools.states.free_list()[-3:] == ([12, 1, 3] if known else [1, 2, 3])
        side.check()


def test_without_a_buffer_states_are_copied_and_the_own_one_is_left(stateful: Build) -> None:
    """MAM-T13 with no buffer."""
    side = stateful()
    request = arrive(side, *range(1, 7))
    side.cache.prefill(request, 4)
    assert (cached(side), side.cache.private_states(request)) == ([2], [1])
    side.cache.checkpoint(request)
    assert side.pools.states.free_list()[-1] == 3
    side.cache.prefill(request, checkpoint=False)
    side.cache.finish(request)
    assert cached(side) == [1, 2]
    side.check()


def test_a_lazy_request_lets_its_own_prefix_state_go(stateful: Build) -> None:
    """MAM-T13, lazy: three slots, of which the tree has one that only this request locks."""
    side = stateful(states=3, state_buffer="lazy", state_chunk=2)
    leave(side, 1, 2, 9)
    assert len(cached(side)) == 1
    request = arrive(side, 1, 2, 3, 4)
    assert request.tracking is not None
    assert request.computed_len == 2
    assert request.tracking.slots.buffer[1] == NO_SLOT
    prefix = cached(side)
    side.cache.prefill(request)
    assert request.tracking.slots.buffer == [*prefix, NO_SLOT]
    assert request.protected_len == 4
    assert side.core.component_protected_size(MAMBA) == 1
    side.check()


# --- Where a request starts ---------------------------------------------------------------


def test_a_request_starts_from_a_copy_of_the_cached_state(stateful: Build) -> None:
    """MAM-M15 to MAM-M17: the slot at once, the copy when the model runs."""
    side = stateful()
    leave(side, 1, 2, 3)
    request = arrive(side, 1, 2, 3, 4)
    assert request.tracking is not None
    assert request.tracking.source is not None
    assert request.tracking.source.tolist() == cached(side)
    own = side.pools.states.tensor([request.tracking.slots.own])
    assert not side.pools.states.holds(own, request.fingerprints[2:3])
    side.cache.prefill(request, checkpoint=False)
    assert side.pools.states.holds(own, request.fingerprints[3:4])
    side.check()


def test_a_request_may_leave_the_cached_state_alone(stateful: Build) -> None:
    side = stateful()
    leave(side, 1, 2, 3)
    request = arrive(side, 1, 2, 3, 4, cow=False)
    assert request.computed_len == 0
    assert side.core.component_protected_size(MAMBA) == 0
    side.cache.prefill(request)
    assert request.protected_len == 4
    side.check()


def test_a_state_of_another_prefix_is_noticed(stateful: Build) -> None:
    side = stateful()
    leave(side, 1, 2, 3)
    request = arrive(side, 1, 2, 3, 4)
    assert request.tracking is not None
    side.pools.states.write(request.tracking.source, torch.tensor([77]))
    side.cache.prefill(request, checkpoint=False)
    assert {found.oracle for found in side.cache.findings} == {"state_content"}
    assert "starts from the state in slot" in side.cache.findings[0].message


def test_the_cached_state_is_locked_while_another_is_evicted_for_the_copy(
    bench: Build,
) -> None:
    """MAM-M16 and BUG-03: the short lock is released as it was taken."""
    fields = {"components": ("full", "swa", "mamba"), "window": 2, "states": 3}
    side = bench(capacity=32, **fields)
    leave(side, 7, 8)
    leave(side, 1, 2)
    first = arrive(side, 1, 2, 5)
    assert side.pools.states.available_size() == 0
    sizes = side.core.component_protected_size(SWA)
    side.core.names()
    second = arrive(side, 1, 2, 6)
    calls = list(side.core.calls)
    names = side.core.names()
    assert names.index("inc_lock_ref") < names.index("evict_device_start")
    assert names.index("evict_device_end") < names.index("dec_lock_ref")
    receipt = next(args[1] for name, args in calls if name == "dec_lock_ref")
    assert receipt.component_lock_uuids[SWA] is not None
    assert side.core.component_protected_size(SWA) == sizes
    assert second.computed_len == 2
    side.cache.evict(EvictParams(0, 4))
    side.cache.abort(first)
    side.cache.abort(second)
    side.check()


@pytest.mark.parametrize(("states", "buffer"), [(1, "none"), (2, "double"), (3, "double")])
def test_a_request_without_states_to_be_had_waits(
    stateful: Build, states: int, buffer: str
) -> None:
    side = stateful(states=states, state_buffer=buffer)
    held = [side.cache.arrive(array("q", [1, 2]), PLAIN) for _ in range(2)]
    assert held[-1] is None
    assert len(side.cache.requests) == states // 3 + (states == 1)
    assert side.pools.table.available_size() == 4 - len(side.cache.requests)
    side.check()


def test_a_request_that_can_copy_but_not_track_gives_all_back(stateful: Build) -> None:
    side = stateful(states=3, state_buffer="single")
    leave(side, 1, 2)
    assert len(cached(side)) == 1
    first = arrive(side, 5, 6)
    assert first is not None
    assert side.cache.arrive(array("q", [1, 2, 3]), PLAIN) is None
    side.check()
    assert side.core.protected_size() == 0


# --- Tracking -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("buffer", "depths"),
    [("single", (6, None, 0)), ("double", (6, 4, 0)), ("lazy", (6, 4, 0))],
)
def test_decoding_tracks_on_the_grid(
    stateful: Build, buffer: str, depths: tuple[int, int | None, int]
) -> None:
    side = stateful(state_buffer=buffer, state_chunk=2)
    request = arrive(side, 1, 2, 3)
    side.cache.prefill(request, checkpoint=False)
    side.cache.decode(request, array("q", [4, 5, 6, 7]))
    tracking = request.tracking
    assert tracking is not None
    assert (tracking.last_depth, tracking.prev_depth, tracking.slots.last_track) == depths
    entry = side.pools.states.tensor([tracking.slots.buffer[tracking.slots.last_track]])
    assert side.pools.states.holds(entry, request.fingerprints[5:6])
    side.check()


def test_without_a_second_slot_a_lazy_request_writes_over_its_first(stateful: Build) -> None:
    side = stateful(states=2, state_buffer="lazy", state_chunk=2)
    request = arrive(side, 1, 2, 3)
    side.cache.prefill(request, checkpoint=False)
    side.cache.decode(request, array("q", [4, 5]))
    tracking = request.tracking
    assert tracking is not None
    assert (tracking.last_depth, tracking.prev_depth) == (4, None)
    assert tracking.slots.buffer == [2, NO_SLOT]
    side.cache.finish(request)
    assert side.cache.match(side.key(1, 2, 3, 4, 5)).device_prefix_len == 4
    side.check()


def test_a_chunk_leaves_its_state_where_others_part(stateful: Build) -> None:
    """MAM-M8: the branch before the end of the chunk, then nothing more of that chunk."""
    side = stateful(state_buffer="double", state_chunk=2)
    leave(side, 1, 2, 3, 4, 5, 6, 7, 8)
    request = arrive(side, 1, 2, 3, 4, 5, 60, 70, 80, 90)
    assert request.tracking is not None
    assert (request.computed_len, request.tracking.branch) == (0, 4)
    side.cache.prefill(request)
    assert request.protected_len == 4
    assert request.tracking.branch is None
    assert arrive(side, 1, 2, 3, 4, 61).computed_len == 4
    side.check()


@pytest.mark.parametrize("spoilt", [False, True])
def test_states_are_tracked_on_the_grid_of_pages_too(
    stateful: Build, spoilt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BUG-15: page 8, states every 2 tokens, 23 tokens; a state of 22 must not hang at 16."""
    side = stateful(capacity=64, page_size=8, state_chunk=2, state_buffer="double")
    if spoilt:
        monkeypatch.setattr(side.cache._states, "_grid", 2)
    leave(side, *range(1, 24))
    assert side.cache.match(side.key(*range(1, 24))).device_prefix_len == 16
    request = arrive(side, *range(1, 21), 50)
    side.cache.prefill(request)
    found = {finding.oracle for finding in side.cache.findings}
    assert found == ({"state_content"} if spoilt else set())


def test_decoded_states_hang_where_they_belong(stateful: Build) -> None:
    """BUG-15, decoding: a request that ends at 20 tokens leaves the state of 16."""
    side = stateful(capacity=64, page_size=8, state_chunk=4, state_buffer="double")
    request = arrive(side, *range(1, 11))
    side.cache.prefill(request)
    for token in range(11, 21):
        side.cache.decode(request, array("q", [token]))
    side.cache.finish(request)
    again = arrive(side, *range(1, 21), 50)
    assert again.computed_len == 16
    side.cache.prefill(again)
    side.check()


# --- Checkpoints --------------------------------------------------------------------------


def test_a_checkpoint_without_a_free_state_inserts_nothing(stateful: Build) -> None:
    side = stateful(states=1)
    request = arrive(side, 1, 2, 3)
    assert side.cache.prefill(request)
    assert (request.protected_len, cached(side)) == (0, [])
    side.cache.finish(request)
    assert cached(side) == [1]
    side.check()


def test_a_window_below_the_last_state_is_kept_for_it(bench: Build) -> None:
    """MAM-R18."""
    fields = {"components": ("full", "swa", "mamba"), "window": 3, "state_chunk": 8}
    side = bench(capacity=40, state_buffer="double", **fields)
    request = arrive(side, *range(1, 9))
    side.cache.prefill(request, checkpoint=False)
    for token in range(9, 16):
        side.cache.decode(request, array("q", [token]))
    assert request.windows[SWA].evicted == 5
    side.cache.finish(request)
    assert side.cache.match(side.key(*range(1, 16))).device_prefix_len == 8
    side.check()


def test_running_requests_may_leave_states_unlocked(stateful: Build) -> None:
    """MAM-L18."""
    side = stateful(state_skip_lock=True)
    request = arrive(side, 1, 2, 3)
    side.cache.prefill(request)
    assert side.core.component_protected_size(MAMBA) == 0
    side.cache.evict(EvictParams(mamba_num=1))
    assert (cached(side), side.core.protected_size()) == ([], 3)
    side.cache.finish(request)
    assert len(cached(side)) == 1
    side.check()


def test_an_early_release_copies_the_state_that_it_unlocks(bench: Build) -> None:
    fields = {"components": ("full", "swa", "mamba"), "window": 2, "states": 6}
    side = bench(capacity=32, **fields)
    leave(side, 1, 2, 3)
    request = arrive(side, 1, 2, 3, 4)
    side.cache.early_release(request)
    assert request.tracking is not None
    assert request.tracking.source is None
    assert side.core.component_protected_size(MAMBA) == 0
    side.cache.evict(EvictParams(0, 0, 9))
    side.cache.prefill(request)
    side.cache.finish(request)
    side.check()


def test_a_path_keeps_no_more_states_than_the_cap(stateful: Build) -> None:
    """MAM-P13 on the way of worked trace MAM-T3."""
    side = stateful(state_cap=1)
    request = arrive(side, *range(1, 7))
    counts = []
    for _ in range(3):
        side.cache.prefill(request, 2)
        counts.append(len(cached(side)))
    # The second checkpoint finds the state of the first under the request's lock.
    assert counts == [1, 2, 2]
    assert side.core.names().count("evict_excess_path_states") == 3
    side.cache.finish(request)
    side.check()


def test_what_a_cap_freed_is_drained_even_if_it_raises(stateful: Build) -> None:
    side = stateful(state_cap=1)
    slots = side.cache.allocate_state()

    def fail(tail: int, device: Any, host: Any, actions: Any) -> None:
        device[MAMBA] = [slots]
        raise UnknownNodeError(tail)

    side.core.core.evict_excess_path_states = fail
    with pytest.raises(UnknownNodeError):
        side.cache.apply([MambaEvictExcessPathStates(7)])
    assert side.pools.states.available_size() == 12


def test_states_are_evicted_after_tokens(stateful: Build) -> None:
    side = stateful()
    leave(side, 1, 2, 3)
    leave(side, 1, 2, 3, 4)
    assert side.cache.evict(EvictParams(0, 0, 1)) == {FULL: 0, MAMBA: 1}
    assert side.core.evictable_size() == 4
    assert side.cache.evict_for_alloc(EvictParams(mamba_num=1)) == {FULL: 1, MAMBA: 1}
    side.check()


def test_states_have_no_use_for_host_slots(stateful: Build, bench: Build) -> None:
    with pytest.raises(CacheError, match="MAMBA has no use"):
        stateful().cache.apply([FreeComponentHostSlot([], MAMBA)])
    with pytest.raises(KeyError):
        bench().cache.apply([MambaEvictExcessPathStates(1)])


@pytest.mark.parametrize("buffer", ["none", "single", "double", "lazy"])
def test_a_refused_checkpoint_leaves_no_state_without_an_owner(
    stateful: Build, buffer: str
) -> None:
    side = stateful(state_buffer=buffer, storage=True)
    request = arrive(side, 1, -1)  # A negative token can't be hashed.
    with pytest.raises(InvalidArgumentError):
        side.cache.prefill(request)
    side.cache.abort(request)
    assert (cached(side), side.pools.states.available_size()) == ([], 12)
