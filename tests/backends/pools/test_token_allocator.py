"""The page-size-1 allocator: hand-out order and detected misuse."""

from __future__ import annotations

import pytest
import torch

from treedrift.backends.pools import PoolError, TokenAllocator


def slots(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


def alloc(pool: TokenAllocator, count: int) -> list[int]:
    taken = pool.alloc(count)
    assert taken is not None
    return taken.tolist()


def test_slots_are_reused_first_in_first_out() -> None:
    """Worked example E1, unsorted."""
    pool = TokenAllocator(8)
    assert alloc(pool, 3) == [1, 2, 3]
    assert alloc(pool, 2) == [4, 5]
    pool.free(slots(2))
    pool.free(slots(5, 4))
    assert pool.free_list() == [6, 7, 8, 2, 5, 4]
    assert alloc(pool, 3) == [6, 7, 8]
    assert alloc(pool, 2) == [2, 5]
    assert pool.free_list() == [4]


def test_a_sorted_pool_merges_only_when_it_runs_short() -> None:
    """Worked example E1, sorted."""
    pool = TokenAllocator(8, need_sort=True)
    alloc(pool, 3)
    alloc(pool, 2)
    pool.free(slots(2))
    pool.free(slots(5, 4))
    assert (pool.free_list(), pool.staged_list()) == ([6, 7, 8], [2, 5, 4])
    assert pool.available_size() == 6
    assert alloc(pool, 3) == [6, 7, 8]
    assert alloc(pool, 2) == [2, 4]
    assert (pool.free_list(), pool.staged_list()) == ([5], [])


def test_an_allocation_beyond_what_is_available_takes_nothing() -> None:
    pool = TokenAllocator(4)
    alloc(pool, 1)
    assert pool.alloc(4) is None
    assert pool.free_list() == [2, 3, 4]
    assert pool.alloc(-1) is None
    assert alloc(pool, 0) == []


def test_a_failed_sorted_allocation_merges_what_was_staged() -> None:
    pool = TokenAllocator(3, need_sort=True)
    alloc(pool, 2)
    pool.free(slots(2, 1))
    assert pool.alloc(4) is None
    assert (pool.free_list(), pool.staged_list()) == ([1, 2, 3], [])


def test_order_survives_many_turns_of_the_ring() -> None:
    pool = TokenAllocator(7)
    expected = list(range(1, 8))
    for count in (3, 5, 2, 7, 1, 6, 4, 7, 3):
        taken = alloc(pool, count)
        assert taken == expected[:count]
        pool.free(slots(*reversed(taken)))
        expected = expected[count:] + taken[::-1]
        assert pool.free_list() == expected


def test_writing_into_an_allocation_disturbs_nothing() -> None:
    pool = TokenAllocator(4)
    taken = pool.alloc(2)
    assert taken is not None
    taken.fill_(99)
    assert pool.free_list() == [3, 4]
    pool.free(slots(1, 2))
    assert pool.free_list() == [3, 4, 1, 2]


@pytest.mark.parametrize("need_sort", [False, True])
@pytest.mark.parametrize(
    ("freed", "offenders"),
    [
        ([1, 4], [4]),
        ([0], [0]),
        ([-3, 1], [-3]),
        ([1, 9], [9]),
        ([1, 2, 1], [1]),
    ],
)
def test_a_wrong_free_names_its_slots_and_changes_nothing(
    need_sort: bool, freed: list[int], offenders: list[int]
) -> None:
    pool = TokenAllocator(8, need_sort=need_sort)
    alloc(pool, 3)
    with pytest.raises(PoolError) as caught:
        pool.free(slots(*freed))
    assert sorted(caught.value.slots) == offenders
    assert (pool.free_list(), pool.staged_list()) == ([4, 5, 6, 7, 8], [])
    assert pool.allocated_list() == [1, 2, 3]
    pool.free(slots(1, 2, 3))


@pytest.mark.parametrize("need_sort", [False, True])
def test_a_slot_freed_twice_is_detected(need_sort: bool) -> None:
    pool = TokenAllocator(8, need_sort=need_sort)
    pool.free(slots(*alloc(pool, 3)))
    with pytest.raises(PoolError, match="not allocated: 2"):
        pool.free(slots(2))


def test_only_flat_integer_tensors_can_be_freed() -> None:
    pool = TokenAllocator(8)
    alloc(pool, 3)
    with pytest.raises(PoolError, match="1-D"):
        pool.free(torch.tensor([[1]]))
    with pytest.raises(PoolError, match="float"):
        pool.free(torch.tensor([1.0]))
    with pytest.raises(TypeError):
        pool.free([1])  # type: ignore[arg-type]
    pool.free(torch.tensor([1, 2], dtype=torch.int32))
    assert pool.free_list()[-2:] == [1, 2]


def test_freeing_nothing_is_no_event() -> None:
    heard: list[str] = []
    pool = TokenAllocator(2, journal=lambda kind, _: heard.append(kind))
    pool.free(slots())
    assert heard == []


def test_clear_frees_everything_in_ascending_order() -> None:
    pool = TokenAllocator(4, need_sort=True)
    pool.free(slots(*alloc(pool, 3))[1:])
    pool.clear()
    assert (pool.free_list(), pool.staged_list(), pool.allocated_list()) == ([1, 2, 3, 4], [], [])


def test_the_journal_hears_every_slot_in_order() -> None:
    heard: list[tuple[str, list[int]]] = []
    pool = TokenAllocator(8, journal=lambda kind, indices: heard.append((kind, indices.tolist())))
    alloc(pool, 3)
    pool.free_segment(slots(3, 1), start_pos=7)
    assert heard == [("alloc", [1, 2, 3]), ("free", [3, 1])]
