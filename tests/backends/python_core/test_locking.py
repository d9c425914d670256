"""Locks, receipts and ledgers (LOCK, SIZE)."""

from __future__ import annotations

import pytest

from tests.backends.python_core.conftest import FULL, NewTree
from treedrift.backends.contract import (
    ComponentType,
    ContractError,
    DecLockRefParams,
    InvalidArgumentError,
)

SWA = ComponentType.SWA


def test_a_lock_moves_its_path_to_the_protected_side_once(new_tree: NewTree) -> None:
    tree = new_tree()
    leaf = tree.leaf([1, 2, 3, 4])
    assert tree.core.inc_lock_ref(leaf).delta == 4
    second = tree.core.inc_lock_ref(leaf)
    assert (second.delta, second.node_id, second.component_lock_uuids) == (0, leaf, {})
    assert tree.sizes() == (0, 4)
    for _ in range(2):
        tree.core.dec_lock_ref(leaf, second.to_dec_params())
    assert tree.sizes() == (4, 0)


def test_locking_the_root_changes_nothing(new_tree: NewTree) -> None:
    tree = new_tree()
    root = tree.core.root_node_handle()
    before = tree.snapshot()
    receipt = tree.core.inc_lock_ref(root)
    assert receipt.delta == 0
    tree.core.dec_lock_ref(root, receipt.to_dec_params())
    assert tree.snapshot() == before


def test_a_receipt_stays_valid_over_a_split(new_tree: NewTree) -> None:
    tree = new_tree()
    leaf = tree.leaf([1, 2, 3, 4])
    release = tree.lock(leaf)
    tree.match([1, 2])
    assert [node.lock_ref[FULL] for node in tree.snapshot().nodes] == [1, 1, 1]
    release()
    assert tree.sizes() == (4, 0)


def test_a_skipped_component_is_neither_locked_nor_released(new_tree: NewTree) -> None:
    tree = new_tree()
    leaf = tree.leaf([1])
    receipt = tree.core.inc_lock_ref(leaf, (SWA, FULL))
    assert (receipt.delta, receipt.skipped_lock_components) == (None, (SWA, FULL))
    tree.core.dec_lock_ref(leaf, receipt.to_dec_params())
    assert tree.sizes() == (1, 0)


def test_a_refused_release_leaves_every_lock_in_place(new_tree: NewTree) -> None:
    tree = new_tree()
    tree.insert([1])
    upper = tree.match([1]).best_match_node
    leaf = tree.leaf([1, 2])
    receipt = tree.core.inc_lock_ref(upper)
    before = tree.snapshot()
    for params in (
        receipt.to_dec_params(),
        DecLockRefParams(),
        # The leaf itself is not locked, although its parent is.
        DecLockRefParams(node_id=leaf),
    ):
        with pytest.raises(ContractError):
            tree.core.dec_lock_ref(leaf, params)
    with pytest.raises(ContractError):
        tree.core.dec_full_pin(leaf)
    assert tree.snapshot() == before


def test_a_pin_locks_without_a_receipt(new_tree: NewTree) -> None:
    tree = new_tree()
    leaf = tree.leaf([1])
    tree.core.inc_full_pin(leaf)
    assert tree.sizes() == (0, 1)
    tree.core.dec_full_pin(leaf)
    assert tree.sizes() == (1, 0)


def test_there_is_no_window_to_release_early(new_tree: NewTree) -> None:
    tree = new_tree()
    leaf = tree.leaf([1])
    params = tree.core.inc_lock_ref(leaf).to_dec_params()
    result = tree.core.dec_swa_lock_only(leaf, params)
    assert (result.device_frees, result.tracker) == ({}, {})
    with pytest.raises(ContractError):
        tree.core.dec_swa_lock_only(leaf, DecLockRefParams())
    with pytest.raises(ContractError):
        tree.core.dec_window_lock_only(leaf, SWA, params)
    tree.core.dec_lock_ref(leaf, params, skip_swa=True)
    assert tree.sizes() == (1, 0)


def test_a_host_lock_without_a_host_copy_takes_nothing(new_tree: NewTree) -> None:
    tree = new_tree()
    leaf = tree.leaf([1])
    before = tree.snapshot()
    receipt = tree.core.inc_host_lock_ref(leaf)
    assert receipt.component_host_lock_uuids == {}
    tree.core.dec_host_lock_ref(leaf, receipt.to_dec_params())
    assert tree.snapshot() == before


def test_a_split_extends_a_host_lock_to_both_halves(new_tree: NewTree) -> None:
    tree = new_tree()
    tree.core.is_write_back = True
    leaf = tree.leaf([1, 2])
    first = tree.core.inc_host_lock_ref(leaf)
    upper = tree.match([1]).best_match_node
    second = tree.core.inc_host_lock_ref(leaf)
    assert first.component_host_lock_uuids != second.component_host_lock_uuids
    counts = {node.node_id: node.host_lock_ref[FULL] for node in tree.snapshot().nodes}
    assert (counts[upper], counts[leaf]) == (1, 2)
    tree.core.dec_host_lock_ref(leaf, first.to_dec_params())
    tree.core.dec_host_lock_ref(leaf, second.to_dec_params())
    assert {node.host_lock_ref[FULL] for node in tree.snapshot().nodes} == {0}
    for receipt in (first, second):
        with pytest.raises(ContractError):
            tree.core.dec_host_lock_ref(leaf, receipt.to_dec_params())


def test_a_host_receipt_with_an_unknown_boundary_is_refused(new_tree: NewTree) -> None:
    tree = new_tree()
    tree.core.is_write_back = True
    leaf = tree.leaf([1])
    tree.core.inc_host_lock_ref(leaf)
    before = tree.snapshot()
    for uuid in (None, 1):
        params = DecLockRefParams(node_id=leaf, component_host_lock_uuids={FULL: uuid})
        with pytest.raises(ContractError):
            tree.core.dec_host_lock_ref(leaf, params)
    assert tree.snapshot() == before


def test_a_size_is_corrected_on_the_side_of_its_node(new_tree: NewTree) -> None:
    tree = new_tree()
    leaf = tree.leaf([1, 2])
    tree.core.adjust_component_size(leaf, FULL, -2)
    assert tree.sizes() == (0, 0)
    for delta in (-1, 2**63 - 1):
        tree.core.adjust_component_size(tree.core.root_node_handle(), FULL, delta)
    for component, delta in ((FULL, -1), (SWA, 0)):
        with pytest.raises(InvalidArgumentError):
            tree.core.adjust_component_size(leaf, component, delta)
    tree.core.adjust_component_size(leaf, FULL, 2)
    tree.lock(leaf)
    tree.core.adjust_component_size(leaf, FULL, 1)
    assert tree.sizes() == (0, 3)


def test_components_that_the_core_lacks_have_no_size(new_tree: NewTree) -> None:
    tree = new_tree()
    tree.insert([1])
    assert (tree.core.swa_evictable_size(), tree.core.mamba_protected_size()) == (0, 0)
    assert tree.core.all_mamba_values_flatten().tolist() == []
