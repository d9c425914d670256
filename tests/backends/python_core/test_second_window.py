"""A second, independent window beside the first (SWA-C8, SWA-I14, SWA-I18, SWA-I22)."""

from __future__ import annotations

import pytest

from tests.backends.python_core.conftest import AUX, FULL, SWA, Driver, NewTree
from treedrift.backends.contract import AuxiliaryWindow


@pytest.fixture
def tree(new_tree: NewTree) -> Driver:
    """A window of 4 and a second one of 2."""
    return new_tree(
        tree_components=(FULL, SWA, AUX),
        sliding_window_size=4,
        component_registry_override={AUX: AuxiliaryWindow(2)},
    )


def test_a_leaf_that_both_windows_split_is_rebuilt_piece_by_piece(tree: Driver) -> None:
    """Example W13, with the waiting actions cut as SWA-I22 asks for."""
    actions, result = tree.insert(
        [*range(1, 9)],
        1,
        component_evicted_seqlens={SWA: 2, AUX: 5},
        track_adopted_ranges=True,
    )
    assert actions == [
        ("rebuild", 3, [3, 4]),
        ("rebuild", 4, [5]),
        ("rebuild", 5, [6]),
        ("rebuild", 1, [7, 8]),
        ("rebuild aux", 5, [6]),
        ("rebuild aux", 1, [7, 8]),
    ]
    assert result.adopted_ranges == {FULL: [(0, 8)], SWA: [(2, 8)], AUX: [(5, 8)]}
    assert [tree.value(node, AUX) for node in (2, 3, 4, 5)] == [None, None, None, [1006]]
    assert (tree.sizes(SWA), tree.sizes(AUX)) == ((6, 0), (3, 0))


def test_the_second_window_moves_rows_to_the_slots_that_stay(tree: Driver) -> None:
    tree.insert([1, 2, 3, 4], 1, component_evicted_seqlens={AUX: 4})
    actions, result = tree.insert([1, 2, 3, 4], 11, prev_prefix_len=1, track_adopted_ranges=True)
    assert actions == [
        ("move aux", [2, 3, 4], [12, 13, 14]),
        ("rebuild aux", 1, [2, 3, 4]),
        ("free", [12, 13, 14]),
    ]
    assert result.adopted_ranges == {AUX: [(1, 4)]}
    assert tree.value(1, AUX) == [1002, 1003, 1004]


def test_swapped_slots_bring_both_windows_along(tree: Driver) -> None:
    tree.insert([1, 2, 3, 4], 1, component_evicted_seqlens={SWA: 4, AUX: 4})
    actions, _ = tree.insert([1, 2, 3, 4], 11, component_evicted_seqlens={SWA: 1, AUX: 2})
    assert actions == [
        ("free full only", [2, 3, 4]),
        ("rebuild", 3, [12]),
        ("rebuild", 1, [13, 14]),
        ("rebuild aux", 1, [13, 14]),
        ("free full only", [11]),
    ]
    assert [tree.value(node, FULL) for node in (2, 3, 1)] == [[1], [12], [13, 14]]


def test_under_a_lock_the_second_window_moves_before_the_slots_are_freed(tree: Driver) -> None:
    leaf = tree.leaf([1, 2, 3, 4], 1, component_evicted_seqlens={SWA: 4, AUX: 4})
    unlock = tree.lock(leaf)
    actions, _ = tree.insert([1, 2, 3, 4], 11, component_evicted_seqlens={AUX: 2})
    assert actions == [
        ("recover", 2, [1, 2], [11, 12]),
        ("move aux", [3, 4], [13, 14]),
        ("recover", 1, [3, 4], [13, 14]),
        ("rebuild aux", 1, [3, 4]),
    ]
    assert (tree.sizes(SWA), tree.sizes(AUX)) == ((0, 4), (0, 2))
    unlock()


def test_slots_stay_where_the_second_window_hangs_on_them(tree: Driver) -> None:
    tree.insert([1, 2], 1, component_evicted_seqlens={SWA: 2})
    actions, result = tree.insert([1, 2], 11, track_adopted_ranges=True)
    assert actions == [("recover", 1, [1, 2], [11, 12])]
    assert result.adopted_ranges == {SWA: [(0, 2)]}
    assert (tree.value(1, FULL), tree.value(1, AUX)) == ([1, 2], [1001, 1002])


def test_a_window_takes_the_other_along_unless_that_is_locked(tree: Driver) -> None:
    for length in (4, 8):
        tree.insert([*range(length)], 10, prev_prefix_len=length - 4)
    assert tree.steps(AUX, 1) == [{"AUXILIARY_SWA": [[10, 11]], "SWA": [[10, 11]]}]
    receipt = tree.core.inc_lock_ref(1).to_dec_params()
    assert receipt.component_lock_uuids.keys() == {SWA, AUX}
    assert tree.core.dec_window_lock_only(1, SWA, receipt).device_frees == {}
    assert (tree.sizes(SWA), tree.sizes(AUX)) == ((6, 0), (4, 2))
    assert tree.steps(SWA, 2)[0] == {"SWA": [[12, 13]]}


def test_an_early_release_leaves_the_second_window_locked(tree: Driver) -> None:
    leaf = tree.leaf([1, 2])
    receipt = tree.core.inc_lock_ref(leaf).to_dec_params()
    tree.core.dec_swa_lock_only(leaf, receipt)
    assert (tree.sizes(SWA), tree.sizes(AUX)) == ((2, 0), (0, 2))
    tree.core.dec_lock_ref(leaf, receipt, skip_swa=True)
    assert (tree.sizes(SWA), tree.sizes(AUX)) == ((2, 0), (2, 0))


def test_a_match_needs_both_windows(tree: Driver) -> None:
    tree.insert([1, 2, 3, 4], 1, component_evicted_seqlens={AUX: 3})
    assert tree.match([1, 2, 3]).device_prefix_len == 0
    assert tree.match([1, 2, 3, 4]).device_prefix_len == 0
    tree.insert([1, 2, 3, 4], 11, component_evicted_seqlens={AUX: 2}, prev_prefix_len=2)
    assert tree.match([1, 2, 3, 4]).device_prefix_len == 4
