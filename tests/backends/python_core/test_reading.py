"""Paths, orders, flattening, the linker's marks, checks (PATH, ORD, FLAT, LNK, CHK, RST)."""

from __future__ import annotations

import pytest
import torch

from tests.backends.python_core.conftest import FULL, NewTree, key
from treedrift.backends.contract import (
    AncestorError,
    CacheInitParams,
    ContractError,
    InsertParams,
    MatchPrefixParams,
    PoolName,
    SanityCheckError,
    TreePathNodeInfo,
)
from treedrift.backends.python_core import PythonTreeCore


def test_shared_subtrees_come_first_and_parents_after_children(new_tree: NewTree) -> None:
    tree = new_tree()
    nodes: dict[tuple[int, ...], int] = {(): tree.core.root_node_handle()}
    for tokens in ((1, 2, 3), (1, 2, 4), (7,), (8, 1), (8, 2)):
        nodes[tokens] = tree.leaf(list(tokens))
    for tokens in ((1, 2), (8,)):
        nodes[tokens] = tree.match(list(tokens)).best_match_node
    requests = [(7,), (1, 2), (1, 2, 4), (1, 2, 3), (1, 2, 4), (8, 1), (8, 2), (8,), (), (7,)]
    order = tree.core.dfs_weight_order([nodes[tokens] for tokens in requests])
    assert order == [2, 4, 3, 1, 5, 6, 7, 0, 9, 8]
    assert tree.core.dfs_weight_order([]) == []


def test_a_path_names_spans_and_children(new_tree: NewTree) -> None:
    tree = new_tree(page_size=2)
    first = tree.leaf([1, 2, 3, 4], 10)
    tree.insert([1, 2, 3, 5], 20)
    root = tree.core.root_node_handle()
    upper = tree.match([1, 2]).best_match_node
    assert tree.core.collect_path_info([root, first]) == (
        (),
        (
            TreePathNodeInfo(upper, root, 0, 2, 2, 2),
            TreePathNodeInfo(first, upper, 2, 4, 2, 0),
        ),
    )


def test_indices_of_a_path_are_collected_below_an_ancestor(new_tree: NewTree) -> None:
    tree = new_tree()
    leaf = tree.leaf([1, 2, 3, 4], 10)
    upper = tree.match([1, 2]).best_match_node
    other = tree.leaf([9])
    root = tree.core.root_node_handle()
    assert tree.core.collect_full_device_indices(leaf, root).tolist() == [10, 11, 12, 13]
    assert tree.core.collect_full_device_indices(leaf, upper).tolist() == [12, 13]
    assert tree.core.collect_full_device_indices(leaf, leaf).dtype == torch.int64
    for until in (other, leaf):
        with pytest.raises(ContractError):
            tree.core.collect_full_device_indices(upper, until)


def test_canary_rows_chain_every_slot_to_the_one_before(new_tree: NewTree) -> None:
    tree = new_tree()
    first = tree.leaf([1, 2, 3, 4], 10)
    tree.insert([1, 2, 5, 6], 20)
    tree.insert([7, 8], 30)
    rows = tree.core.walk_for_kv_canary(False, False)
    assert rows.slot_indices.tolist() == [10, 11, 12, 13, 22, 23, 30, 31]
    assert rows.positions.tolist() == [0, 1, 2, 3, 2, 3, 0, 1]
    assert rows.prev_slot_indices.tolist() == [-1, 10, 11, 12, 11, 22, -1, 30]
    tree.lock(first)
    rows = tree.core.walk_for_kv_canary(True, True)
    assert rows.slot_indices.tolist() == [22, 23, 30, 31]
    assert rows.prev_slot_indices.tolist() == [11, 22, -1, 30]


def test_an_empty_tree_flattens_to_empty_integer_tensors(new_tree: NewTree) -> None:
    tree = new_tree()
    rows = tree.core.walk_for_kv_canary(False, False)
    for values in (tree.core.all_values_flatten(), rows.slot_indices, rows.positions):
        assert (values.dtype, values.tolist()) == (torch.int64, [])


# --- The linker's marks ---------------------------------------------------------------------


def test_an_offload_goes_from_hashed_to_pending_to_stored(new_tree: NewTree) -> None:
    tree = new_tree()
    unhashed = tree.leaf([5])
    tree.core.enable_external_cache_linker = True
    leaf = tree.leaf([1, 2], 10)
    assert tree.core.build_external_linker_offload_transfers(unhashed) == []
    transfers = tree.core.build_external_linker_offload_transfers(leaf)
    assert transfers is not None
    (transfer,) = transfers
    assert transfer.device_indices is not None
    assert (transfer.name, transfer.device_indices.tolist()) == (PoolName.KV, [10, 11])
    assert transfer.keys == tree.core.get_hash_values(leaf)
    tree.core.mark_external_linker_offload_pending(leaf)
    assert tree.core.build_external_linker_offload_transfers(leaf) is None
    with pytest.raises(ContractError):
        tree.core.mark_external_linker_offload_pending(leaf)
    with pytest.raises(ContractError):
        tree.core.finish_external_linker_offload([leaf, unhashed], leaf, True)
    tree.core.finish_external_linker_offload([leaf, leaf], leaf, False)
    assert tree.core.build_external_linker_offload_transfers(leaf) is not None
    tree.core.mark_external_linker_offload_pending(leaf)
    tree.core.finish_external_linker_offload([leaf], leaf, True)
    assert tree.core.build_external_linker_offload_transfers(leaf) is None


def test_a_stored_path_ends_the_backup_chain(new_tree: NewTree) -> None:
    tree = new_tree()
    nodes = [tree.leaf(list(range(length))) for length in (1, 2, 3, 4)]
    root = tree.core.root_node_handle()
    assert tree.core.build_backup_kv_action(nodes[3]).node_ids == nodes
    tree.core.mark_external_cache_stored_path(nodes[1], nodes[0])
    assert tree.core.build_backup_kv_action(nodes[3]).node_ids == nodes[2:]
    assert tree.core.build_backup_kv_action(nodes[1]).node_ids == nodes[:2]
    assert tree.core.build_backup_kv_action(root).node_ids == [root]
    with pytest.raises(AncestorError):
        tree.core.mark_external_cache_stored_path(nodes[0], nodes[1])
    assert not tree.snapshot().nodes[1].external_cache_stored


def test_a_pending_ancestor_ends_the_chain_only_with_the_linker(new_tree: NewTree) -> None:
    tree = new_tree()
    upper, leaf = tree.leaf([1]), tree.leaf([1, 2])
    tree.core.mark_external_linker_offload_pending(upper)
    assert tree.core.build_backup_kv_action(leaf).node_ids == [upper, leaf]
    tree.core.enable_external_cache_linker = True
    assert tree.core.build_backup_kv_action(leaf).node_ids == [leaf]


def test_both_halves_of_a_split_stay_pending(new_tree: NewTree) -> None:
    tree = new_tree()
    leaf = tree.leaf([1, 2])
    tree.core.mark_external_linker_offload_pending(leaf)
    upper = tree.match([1]).best_match_node
    tree.core.finish_external_linker_offload([upper, leaf], leaf, True)
    assert [node.external_cache_stored for node in tree.snapshot().nodes[1:]] == [True, True]


# --- Reset, checks, depth -------------------------------------------------------------------


def test_a_reset_keeps_the_configuration_and_no_handle(new_tree: NewTree) -> None:
    tree = new_tree()
    tree.core.enable_external_cache_linker = True
    tree.core.write_through_threshold = 1
    leaf, root = tree.leaf([1]), tree.core.root_node_handle()
    tree.begin([1, 2])
    tree.core.reset()
    assert not tree.core.has_ongoing_insert()
    assert tree.core.write_through_threshold == 1
    assert tree.core.empty_match_result.best_match_node == tree.core.root_node_handle() != root
    for stale in (leaf, root):
        with pytest.raises(KeyError) as caught:
            tree.core.is_root(stale)
        assert caught.value.args == (stale,)


def test_transfers_in_flight_must_name_live_locked_nodes(new_tree: NewTree) -> None:
    tree = new_tree()
    leaf = tree.leaf([1])
    with pytest.raises(SanityCheckError) as caught:
        tree.core.sanity_check([(7, leaf)], [(7, 10**6)])
    assert str(caught.value).startswith("Sanity check FAILED (2 violations across 2 nodes):\n")
    tree.lock(leaf)
    tree.core.sanity_check([(7, leaf)], [(7, leaf)])


def test_the_sanity_check_sees_a_corrected_ledger(new_tree: NewTree) -> None:
    tree = new_tree()
    leaf = tree.leaf([1])
    tree.core.adjust_component_size(leaf, FULL, 5)
    with pytest.raises(SanityCheckError):
        tree.core.sanity_check([], [])


def test_printing_shows_one_line_per_node(
    new_tree: NewTree, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = new_tree()
    tree.insert([1])
    tree.insert([1, 2])
    tree.core.pretty_print()
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_no_call_recurses_on_a_deep_tree() -> None:
    core = PythonTreeCore(CacheInitParams(eviction_policy="tlru"))
    depth = 3000
    tokens = list(range(depth))
    core.begin_insert(InsertParams(key=key(tokens)))
    for length in range(depth - 1, 0, -1):
        core.match_prefix(MatchPrefixParams(key(tokens[:length])))
    result = core.match_prefix(MatchPrefixParams(key(tokens)))
    leaf = result.best_match_node
    assert result.device_prefix_len == depth
    assert core.inc_lock_ref(leaf).delta == depth
    assert len(core.all_values_flatten()) == depth
    assert core.walk_for_kv_canary(False, False).positions.tolist() == tokens
    assert core.dfs_weight_order([leaf]) == [0]
    assert len(core.collect_path_info([leaf])[0]) == depth
    assert core.backfill_missing_hash_values() == depth
    core.sanity_check([], [])
