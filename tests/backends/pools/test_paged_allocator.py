"""The paged allocator: hand-out order, partial pages and detected misuse."""

from __future__ import annotations

import random

import pytest
import torch

from treedrift.backends.pools import PagedAllocator, PoolError


def slots(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


def numbers(tensor: torch.Tensor | None) -> list[int]:
    assert tensor is not None
    assert tensor.dtype == torch.int64
    return tensor.tolist()


def test_freed_pages_are_reused_last_in_first_out() -> None:
    """Worked example E2, unsorted."""
    pool = PagedAllocator(10, 2)
    assert pool.free_list() == [1, 2, 3, 4, 5]
    assert numbers(pool.alloc(4)) == [2, 3, 4, 5]
    assert numbers(pool.alloc(2)) == [6, 7]
    assert pool.free_list() == [4, 5]
    pool.free(slots(7))
    assert pool.free_list() == [3, 4, 5]
    pool.free(slots(5, 2, 3, 4))
    assert pool.free_list() == [1, 2, 3, 4, 5]


def test_a_sorted_pool_stages_each_free_as_a_batch() -> None:
    """Worked example E2, sorted."""
    pool = PagedAllocator(10, 2, need_sort=True)
    pool.alloc(4)
    pool.alloc(2)
    pool.free(slots(7))
    pool.free(slots(5, 2, 3, 4))
    assert (pool.free_list(), pool.staged_list()) == ([4, 5], [3, 1, 2])
    assert numbers(pool.alloc(6)) == [2, 3, 4, 5, 6, 7]
    assert pool.free_list() == [4, 5]


def test_slots_that_fill_no_page_are_unusable() -> None:
    pool = PagedAllocator(11, 4)
    assert pool.available_size() == 8
    assert numbers(pool.alloc(11)) == [4, 5, 6, 7, 8, 9, 10, 11]
    assert pool.alloc(4) is None


def test_a_count_inside_a_page_is_rounded_down() -> None:
    pool = PagedAllocator(10, 2)
    assert numbers(pool.alloc(3)) == [2, 3]
    assert numbers(pool.alloc(1)) == []


def test_extension_fills_the_open_page_first() -> None:
    """Worked example E4."""
    pool = PagedAllocator(40, 4)
    first = pool.alloc_extend([0, 5], [6, 9], [-1, 104])
    assert numbers(first) == [4, 5, 6, 7, 8, 9, 105, 106, 107, 12]
    second = pool.alloc_extend([8, 0], [14, 3], [11, -1])
    assert numbers(second) == [16, 17, 18, 19, 20, 21, 24, 25, 26]
    assert numbers(pool.alloc_decode([9, 6, 13], [11, 9, 23])) == [28, 10, 32]


def test_an_extension_inside_a_page_needs_no_page() -> None:
    pool = PagedAllocator(4, 4)
    assert numbers(pool.alloc_extend([0], [1], [-1])) == [4]
    assert pool.available_size() == 0
    assert numbers(pool.alloc_extend([1], [3], [4])) == [5, 6]
    assert numbers(pool.alloc_decode([4], [6])) == [7]
    assert pool.alloc_decode([5], [7]) is None
    assert pool.alloc_extend([4], [5], [7]) is None


def test_a_short_extension_takes_nothing() -> None:
    pool = PagedAllocator(8, 4)
    assert pool.alloc_extend([0, 0], [5, 4], [-1, -1]) is None
    assert pool.free_list() == [1, 2]


def test_an_extension_merges_at_an_upper_bound_of_its_need() -> None:
    """POOL-26: two free pages would do, but the bound is three."""
    pool = PagedAllocator(16, 4, need_sort=True)
    pool.alloc(8)
    pool.free_segment(slots(8, 9, 10, 11))
    assert (pool.free_list(), pool.staged_list()) == ([3, 4], [2])
    assert numbers(pool.alloc_extend([0], [8], [-1])) == [8, 9, 10, 11, 12, 13, 14, 15]


def test_decoding_merges_when_the_batch_exceeds_the_free_pages() -> None:
    pool = PagedAllocator(12, 4, need_sort=True)
    pool.alloc(8)
    pool.free_segment(slots(4, 5, 6, 7))
    assert numbers(pool.alloc_decode([9, 2], [11, 40])) == [4, 41]
    assert (pool.free_list(), pool.staged_list()) == ([3], [])


def test_a_segment_keeps_its_order_and_frees_its_last_page_whole() -> None:
    pool = PagedAllocator(10, 2)
    pool.alloc(10)
    pool.free_segment(slots(8, 9, 4, 5, 6), start_pos=4)
    assert pool.free_list() == [4, 2, 3]


@pytest.mark.parametrize("need_sort", [False, True])
@pytest.mark.parametrize(
    ("segment", "start", "problem"),
    [
        ([2, 3], 1, "position 1"),
        ([3, 2], 0, "run of pages"),
        ([2, 4], 0, "run of pages"),
        ([8, 9], 0, "not allocated: 8"),
        ([2, 3, 2, 3], 0, "twice"),
        ([0, 1], 0, "outside"),
        ([-2, -1], 0, "outside"),
        ([12, 13], 0, "outside"),
    ],
)
def test_a_wrong_segment_is_refused_and_changes_nothing(
    need_sort: bool, segment: list[int], start: int, problem: str
) -> None:
    pool = PagedAllocator(10, 2, need_sort=need_sort)
    pool.alloc(6)
    with pytest.raises(PoolError, match=problem):
        pool.free_segment(slots(*segment), start)
    assert (pool.free_list(), pool.staged_list()) == ([4, 5], [])
    assert pool.allocated_list() == [1, 2, 3]


@pytest.mark.parametrize("need_sort", [False, True])
def test_pages_are_out_exactly_once_whatever_happens(need_sort: bool) -> None:
    rng = random.Random(5)
    pool = PagedAllocator(60, 3, need_sort=need_sort)
    held: list[list[int]] = []
    for _ in range(300):
        if rng.random() < 0.5:
            taken = pool.alloc_extend([0], [rng.randint(1, 20)], [-1])
            if taken is not None:
                held.append(numbers(taken))
        elif held:
            run = held.pop(rng.randrange(len(held)))
            rng.choice((pool.free, pool.free_segment))(slots(*run))
        out = [slot // 3 for run in held for slot in run[::3]]
        assert sorted(out) == pool.allocated_list()
        assert sorted(out + pool.free_list() + pool.staged_list()) == list(range(1, 21))
