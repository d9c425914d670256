"""Slots of Mamba states: order, groups, what a request owns, contents."""

from __future__ import annotations

import pytest
import torch

from treedrift.backends.pools import NO_SLOT, POISON, PoolError, StatePool, make_pools
from treedrift.backends.pools.states import Buffer


def states(size: int) -> StatePool:
    pool = make_pools(4, 2, 4, states=size).states
    assert pool is not None
    return pool


def take(pool: StatePool, count: int) -> list[int]:
    slots = pool.alloc(count)
    assert slots is not None
    return slots.tolist()


def test_slots_come_back_in_the_order_in_which_they_were_freed() -> None:
    pool = states(4)
    assert take(pool, 3) == [1, 2, 3]
    pool.free(pool.tensor([3, 1]))
    assert pool.alloc(4) is None
    assert take(pool, 0) == []
    assert (pool.free_list(), pool.available_size()) == ([4, 3, 1], 3)
    assert take(pool, 2) == [4, 3]
    assert pool.are_out(pool.tensor([1, 2, 3])).tolist() == [False, True, True]
    with pytest.raises(PoolError, match="not allocated"):
        pool.free(pool.tensor([1]))


def test_a_group_serves_single_slots_and_returns_the_rest() -> None:
    pool = states(6)
    pool.group_begin(3)
    assert pool.available_size() == 3
    assert take(pool, 1) + take(pool, 2) + take(pool, 1) == [1, 4, 5, 2]
    with pytest.raises(PoolError, match="nested"):
        pool.group_begin(1)
    pool.group_end()
    pool.group_end()
    assert pool.free_list() == [6, 3]
    pool.group_begin(3)
    assert take(pool, 1) == [6]
    pool.group_end()
    pool.group_begin(1)
    pool.clear()
    assert pool.available_size() == 6


@pytest.mark.parametrize(
    ("buffer", "entries", "last"),
    [("none", [], 0), ("single", [2], 0), ("double", [2, 3], 1), ("lazy", [2, NO_SLOT], 0)],
)
def test_a_request_gets_its_own_slot_and_its_buffer(
    buffer: Buffer, entries: list[int], last: int
) -> None:
    pool = states(4)
    bound = pool.bind(buffer)
    assert bound is not None
    assert (bound.own, bound.buffer) == (1, entries)
    assert (bound.next_track, bound.last_track) == (0, last)
    assert bound.slots() == [1, *(entry for entry in entries if entry != NO_SLOT)]
    pool.release(bound)
    assert pool.free_list()[-len(bound.slots()) :] == bound.slots()


def test_a_request_that_cannot_get_all_slots_gets_none() -> None:
    pool = states(2)
    assert pool.bind("double") is None
    assert pool.available_size() == 2
    own = take(pool, 1)[0]
    bound = pool.bind("lazy", own)
    assert bound is not None
    assert bound.slots() == [1, 2]


def test_a_kept_entry_is_not_freed() -> None:
    """Worked trace MAM-T13: entry 0 goes to the tree, own slot and the other entry come back."""
    pool = states(4)
    bound = pool.bind("double")
    assert bound is not None
    pool.release(bound, keep=0)
    assert pool.free_list() == [4, 1, 3]


def test_a_state_stands_for_a_prefix_until_it_is_freed() -> None:
    pool = states(4)
    slots = pool.tensor(take(pool, 2))
    pool.write(slots[:1], torch.tensor([77]))
    pool.copy(slots[:1], slots[1:])
    assert pool.holds(slots, torch.tensor([77, 77]))
    pool.free(slots[:1])
    assert pool.read(slots).tolist() == [POISON, 77]


def test_the_journal_names_states() -> None:
    lines: list[tuple[str, list[int]]] = []
    pools = make_pools(
        4, 2, 4, states=2, journal=lambda kind, slots: lines.append((kind, slots.tolist()))
    )
    assert pools.states is not None
    slots = pools.states.alloc(1)
    assert slots is not None
    pools.states.free(slots)
    assert lines == [("mamba:alloc", [1]), ("mamba:free", [1])]
