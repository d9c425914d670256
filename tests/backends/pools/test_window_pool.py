"""Window peers of full slots: mapping, order of reuse, refusals."""

from __future__ import annotations

import pytest
import torch

from treedrift.backends.contract import ComponentType
from treedrift.backends.pools import ENDLESS, PoolError, Pools, WindowPool, make_pools

SWA = ComponentType.SWA


def ids(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


def hybrid(
    full: int, window: int, page: int = 1, need_sort: bool = False, ring: bool = False
) -> tuple[Pools, WindowPool]:
    sides = {SWA: window}
    pools = make_pools(full, 2, 16, page, need_sort, windows=sides, window_ring=ring)
    return pools, pools.windows[SWA]


def take(pools: Pools, count: int) -> torch.Tensor:
    slots = pools.allocator.alloc(count)
    assert slots is not None
    return slots


def test_both_sides_give_slots_and_the_mapping_pairs_them() -> None:
    """Worked example E5, without its group."""
    pools, window = hybrid(6, 4)
    assert window.attach(take(pools, 2))
    assert window.mapping.tolist() == [0, 1, 2, 0, 0, 0, 0, -1]
    window.free_peers(ids(1))
    third = take(pools, 1)
    assert window.attach(third)
    assert window.translate(ids(1, 2, 3)).tolist() == [0, 2, 3]
    assert int(window.mapping[-1]) == -1
    peers = window.translate(third)
    window.clear_mapping(third)
    window.set_mapping(ids(1), peers)
    pools.allocator.free(third)
    assert window.mapping.tolist() == [0, 3, 2, 0, 0, 0, 0, -1]
    assert (pools.allocator.free_list(), window.free_list()) == ([4, 5, 6, 3], [4, 1])
    window.free_peers(ids(1))
    assert window.free_list() == [4, 1, 3]


def test_a_peer_has_the_offset_of_its_slot_in_the_page() -> None:
    pools, window = hybrid(16, 12, 4)
    take(pools, 4)
    full = take(pools, 8)
    assert window.attach(full[:3])
    assert window.attach(full[3:6])
    assert window.translate(full).tolist() == [4, 5, 6, 7, 8, 9, 0, 0]
    window.free_peers(full[:6])
    assert window.free_list() == [1, 2, 3]
    assert int(window.mapping[:-1].count_nonzero()) == 0


def test_frees_of_runs_keep_their_order_and_others_are_sorted() -> None:
    pools, window = hybrid(16, 16, 2)
    first, second = take(pools, 4), take(pools, 4)
    window.attach(torch.cat([second, first]))
    assert window.translate(second).tolist() == [2, 3, 4, 5]
    run = torch.cat([second[2:], first[:2]])
    window.free_peers(run)
    assert window.free_list()[:2] == [2, 3]
    window.attach(run)
    window.free_mapped_peers(torch.cat([first, second[:1]]))
    assert window.free_list()[:3] == [1, 3, 4]
    window.free_mapped_peers(first)
    assert window.translate(second).tolist() == [0, 0, 4, 5]


def test_a_shortage_takes_nothing() -> None:
    pools, window = hybrid(8, 3)
    full = take(pools, 4)
    assert not window.attach(full)
    assert window.available_size() == 3
    assert int(window.mapping[:-1].count_nonzero()) == 0
    paged, side = hybrid(8, 2, 2)
    assert not side.attach(take(paged, 4))
    assert side.available_size() == 2


def test_what_would_lose_or_repeat_a_peer_is_refused() -> None:
    pools, window = hybrid(8, 8)
    full = take(pools, 4)
    window.attach(full[:2])
    before = (window.mapping.tolist(), window.free_list())
    with pytest.raises(PoolError, match="without a window peer") as caught:
        window.free_peers(full[1:3])
    assert caught.value.slots == [3]
    with pytest.raises(PoolError, match="with a window peer"):
        window.attach(full[1:])
    with pytest.raises(PoolError, match="2 full slots"):
        window.set_mapping(full[:2], full[:1])
    assert (window.mapping.tolist(), window.free_list()) == before
    window.free_mapped_peers(full)
    assert window.available_size() == 8


def test_a_stale_entry_frees_a_slot_twice_and_shows() -> None:
    pools, window = hybrid(8, 8)
    full = take(pools, 1)
    window.attach(full)
    peer = window.translate(full)
    window.free_peers(full)
    window.set_mapping(full, peer)
    with pytest.raises(PoolError, match="not allocated"):
        window.free_peers(full)


def test_contents_follow_the_mapping_and_a_free_poisons_them() -> None:
    pools, window = hybrid(8, 8)
    full = take(pools, 3)
    window.attach(full[1:])
    window.write(full, ids(10, 20, 30))
    assert window.holds(full[1:], ids(20, 30))
    assert not window.holds(full, ids(10, 20, 30))
    window.free_peers(full[2:])
    assert window.holds(full[1:2], ids(20))
    assert not window.holds(full[1:], ids(20, 30))


def test_a_ring_maps_and_frees_nothing() -> None:
    pools, window = hybrid(8, 2, ring=True)
    full = take(pools, 8)
    assert window.attach(full)
    window.set_mapping(full, full)
    window.free_peers(full)
    window.free_mapped_peers(full)
    assert window.translate(full).tolist() == [0] * 8
    assert window.holds(full, full)
    assert window.available_size() == ENDLESS


def test_the_journal_names_the_side_and_a_clear_restores_it() -> None:
    pools, window = hybrid(4, 4, 2)
    lines: list[tuple[str, list[int]]] = []
    pools.journal = lambda kind, slots: lines.append((kind, slots.tolist()))
    full = take(pools, 2)
    window.attach(full)
    window.free_peers(full)
    pools.allocator.free(full)
    assert lines == [
        ("alloc", [2, 3]),
        ("swa:alloc", [2, 3]),
        ("swa:free", [2, 3]),
        ("free", [2, 3]),
    ]
    window.attach(take(pools, 2))
    pools.clear()
    assert (window.free_list(), window.staged_list()) == ([1, 2], [])
    assert window.mapping.tolist() == [0] * 6 + [-1]


def test_released_window_pages_wait_where_pools_are_sorted() -> None:
    pools, window = hybrid(4, 4, need_sort=True)
    full = take(pools, 3)
    window.attach(full)
    window.free_peers(full[:2])
    assert (window.free_list(), window.staged_list()) == ([4], [1, 2])
    assert window.available_size() == 3
