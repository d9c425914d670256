"""Inserts: frees, barriers, hit counts, rotation bases (INS)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.backends.python_core.conftest import FULL, Driver, NewTree, key, plain
from treedrift.backends.contract import (
    ComponentType,
    ContractError,
    InsertParams,
    InsertProtocolError,
    InvalidArgumentError,
    KvEventLoraNames,
)


def test_duplicates_are_freed_node_by_node_from_the_known_prefix_on(new_tree: NewTree) -> None:
    tree = new_tree()
    tree.insert([1, 2, 3, 4], 10)
    actions, result = tree.insert([1, 2, 7, 8], 20)
    assert (actions, result.prefix_len) == ([("free", [20, 21])], 2)
    actions, result = tree.insert([1, 2, 7, 8], 30, prev_prefix_len=1)
    assert actions == [("free", [31]), ("free", [32, 33])]
    assert result.prefix_len == 4


def test_slots_without_window_peers_are_freed_apart(new_tree: NewTree) -> None:
    tree = new_tree()
    tree.insert([1, 2, 3, 4], 10)
    evicted = {ComponentType.SWA: 2}
    actions, _ = tree.insert([1, 2, 3, 4, 5], 20, component_evicted_seqlens=evicted)
    assert actions == [("free full only", [20, 21]), ("free", [22, 23])]
    evicted = {ComponentType.SWA: 3}
    actions, _ = tree.insert(
        [1, 2, 3, 4, 5, 6], 30, prev_prefix_len=1, component_evicted_seqlens=evicted
    )
    assert actions == [("free full only", [31, 32]), ("free", [33]), ("free", [34])]


def test_an_empty_key_finishes_at_the_root(new_tree: NewTree) -> None:
    tree = new_tree(page_size=2)
    actions, result = tree.insert([9], track_adopted_ranges=True, priority=7)
    assert actions == []
    assert (result.prefix_len, result.mamba_exist, result.adopted_ranges) == (0, True, None)
    assert result.last_device_node == tree.core.root_node_handle()
    assert tree.snapshot().nodes[0].priority == 7


def test_every_index_is_adopted_freed_or_kept_by_the_caller(new_tree: NewTree) -> None:
    tree = new_tree()
    tree.insert([1, 2, 3], 10)
    actions, result = tree.insert([1, 2, 3, 4, 5], 20, prev_prefix_len=1, track_adopted_ranges=True)
    assert actions == [("free", [21, 22])]
    assert result.adopted_ranges == {FULL: [(3, 5)]}
    assert tree.core.all_values_flatten().tolist() == [10, 11, 12, 23, 24]


def test_a_missing_value_stands_for_the_tokens(new_tree: NewTree) -> None:
    tree = new_tree(is_eagle=True)
    tree.core.begin_insert(InsertParams(key=key([5, 6, 7])))
    assert tree.core.all_values_flatten().tolist() == [5, 6]


def test_the_tree_keeps_a_copy_of_the_value(new_tree: NewTree) -> None:
    tree = new_tree()
    value = torch.tensor([10, 11, 12])
    tree.core.begin_insert(InsertParams(key=key([1, 2]), value=value))
    value.fill_(0)
    assert tree.core.all_values_flatten().tolist() == [10, 11]


# --- Barriers -------------------------------------------------------------------------------


def linked(new_tree: NewTree, threshold: int = 1, **params: Any) -> Driver:
    """A tree whose hit counts ask for backups."""
    tree = new_tree(**params)
    tree.core.enable_external_cache_linker = True
    tree.core.write_through_threshold = threshold
    return tree


def test_a_backup_of_a_walked_node_suspends_the_insert(new_tree: NewTree) -> None:
    tree = linked(new_tree)
    first = tree.leaf([1, 2, 3], 10)
    actions, result = tree.begin([1, 2, 4], 20)
    upper = tree.core.collect_path_info([first])[0][0].node_id
    assert actions == [("free", [20, 21]), ("backup", [upper])]
    assert result is None
    assert tree.core.has_ongoing_insert()
    with pytest.raises(InsertProtocolError, match="concurrent"):
        tree.begin([])
    assert tree.match([1, 2, 3]).device_prefix_len == 3
    actions, result = tree.resume()
    assert result is not None
    assert actions == [("backup", [upper, result.last_device_node])]
    assert not tree.core.has_ongoing_insert()


def test_ending_a_suspended_insert_leaves_the_rest_out(new_tree: NewTree) -> None:
    tree = linked(new_tree)
    tree.insert([1, 2], 10)
    tree.begin([1, 2, 3], 20)
    assert tree.core.end_insert() == []
    with pytest.raises(InsertProtocolError, match="no in-flight"):
        tree.resume()
    assert tree.core.total_size() == (2, 0)


def test_an_insert_can_not_go_on_from_a_node_that_is_gone(new_tree: NewTree) -> None:
    tree = linked(new_tree)
    leaf = tree.leaf([1, 2], 10)
    tree.begin([1, 2, 3], 20)
    tree.core.evict_device_leaf(leaf, False)
    with pytest.raises(ContractError):
        tree.resume()
    assert tree.core.has_ongoing_insert()
    assert tree.core.end_insert() == []


def test_the_updates_of_splits_wait_for_the_next_barrier(new_tree: NewTree) -> None:
    tree = new_tree()
    leaf = tree.leaf([1, 2, 3], 10)
    tree.core.mark_external_linker_offload_pending(leaf)
    actions, result = tree.begin([1, 2, 9], 20)
    assert result is not None
    upper = tree.core.collect_path_info([leaf])[0][0].node_id
    assert actions == [("split", leaf, leaf, upper, leaf), ("free", [20, 21])]


def test_buffer_only_mode_announces_every_split(new_tree: NewTree) -> None:
    tree = new_tree()
    leaf = tree.leaf([1, 2])
    tree.core.set_host_memory_buffer_only()
    result = tree.match([1])
    assert [plain(action) for action in result.cache_actions] == [
        ("split", None, leaf, result.best_match_node, leaf)
    ]


def test_hits_trigger_at_the_threshold_and_splits_inherit_them(new_tree: NewTree) -> None:
    tree = linked(new_tree, threshold=3)
    tree.insert([1, 2, 3, 4], 10)
    actions, _ = tree.insert([1, 2, 3, 4], 10)
    assert actions == [("free", [10, 11, 12, 13])]
    actions, _ = tree.insert([1, 2, 9], 20)
    upper = tree.match([1, 2]).best_match_node
    assert actions == [("free", [20, 21]), ("backup", [upper])]
    actions, result = tree.insert([1, 2, 3, 4], 30)
    assert actions == [
        ("free", [30, 31]),
        ("backup", [upper]),
        ("free", [32, 33]),
        ("backup", [upper, result.last_device_node]),
    ]


@pytest.mark.parametrize(("inserted_len", "hits"), [(0, (2, 1)), (2, (1, 1)), (3, (1, 0))])
def test_only_spans_beyond_the_inserted_length_count(
    new_tree: NewTree, inserted_len: int, hits: tuple[int, int]
) -> None:
    tree = new_tree()
    tree.insert([1, 2])
    tree.insert([1, 2, 3], inserted_len=inserted_len)
    assert tuple(node.hit_count for node in tree.snapshot().nodes[1:]) == hits


def test_write_back_counts_no_hits(new_tree: NewTree) -> None:
    tree = linked(new_tree)
    tree.core.is_write_back = True
    tree.insert([1])
    assert tree.insert([1])[0] == [("free", [0])]
    assert tree.snapshot().nodes[1].hit_count == 0


# --- Rotation bases -------------------------------------------------------------------------


def test_a_conflicting_rotation_base_is_declined_without_a_change(new_tree: NewTree) -> None:
    tree = new_tree()
    leaf = tree.leaf([1, 2, 3, 4], 10, rotation_base=1)
    before = [node.token_ids for node in tree.snapshot().nodes]
    actions, result = tree.insert([1, 2, 9], 20, rotation_base=2, track_adopted_ranges=True)
    assert actions == []
    assert (result.rotation_tail_declined, result.prefix_len, result.last_device_node) == (
        True,
        2,
        leaf,
    )
    assert result.adopted_ranges == {}
    assert [node.token_ids for node in tree.snapshot().nodes] == before


def test_a_leaf_without_a_base_may_hang_below_one_with_a_base(new_tree: NewTree) -> None:
    tree = new_tree()
    tree.insert([1, 2], rotation_base=1)
    grafted = tree.leaf([1, 2, 9])
    assert tree.core.rotation_base_of(grafted) is None
    _, result = tree.insert([1, 2, 9, 7], rotation_base=1)
    assert (result.rotation_tail_declined, result.prefix_len) == (True, 3)
    _, result = tree.insert([1, 2, 8], rotation_base=1)
    assert not result.rotation_tail_declined


def test_the_rotation_phase_counts_the_pages_above(new_tree: NewTree) -> None:
    tree = new_tree(page_size=2)
    leaf = tree.leaf([1, 2, 3, 4, 5, 6], rotation_base=3)
    assert tree.core.rotation_phase_of(leaf) == 3
    upper = tree.match([1, 2, 3, 4]).best_match_node
    assert (tree.core.rotation_phase_of(upper), tree.core.rotation_phase_of(leaf)) == (3, 5)


# --- Errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("switch", ["enable_storage", "enable_external_cache_linker"])
def test_a_negative_token_is_refused_where_it_would_be_hashed(
    new_tree: NewTree, switch: str
) -> None:
    tree = new_tree()
    tree.insert([1, -2])
    assert tree.match([1, -2]).device_prefix_len == 2
    setattr(tree.core, switch, True)
    before = tree.snapshot()
    with pytest.raises(InvalidArgumentError):
        tree.begin([1, -2, 3])
    with pytest.raises(InvalidArgumentError):
        tree.core.backfill_missing_hash_values()
    assert tree.snapshot() == before


class BrokenNames(KvEventLoraNames):
    """A table of names that fails once, after some answers."""

    def __init__(self, good_answers: int) -> None:
        super().__init__()
        self.good_answers = good_answers

    def get(self, extra_key: str | None) -> str | None:
        self.good_answers -= 1
        if self.good_answers == -1:
            raise LookupError(extra_key)
        return None


def test_a_name_that_can_not_be_looked_up_stops_an_insert_before_it_changes_anything(
    new_tree: NewTree,
) -> None:
    tree = new_tree(enable_kv_cache_events=True, kv_event_lora_names=BrokenNames(0))
    with pytest.raises(LookupError):
        tree.begin([1])
    assert not tree.core.has_ongoing_insert()
    assert tree.core.total_size() == (0, 0)


def test_an_insert_broken_by_a_foreign_error_can_only_be_ended(new_tree: NewTree) -> None:
    tree = new_tree(enable_kv_cache_events=True, kv_event_lora_names=BrokenNames(1))
    with pytest.raises(LookupError):
        tree.begin([1])
    assert tree.core.has_ongoing_insert()
    with pytest.raises(InsertProtocolError):
        tree.resume()
    assert tree.core.end_insert() == []
    tree.core.sanity_check([], [])
