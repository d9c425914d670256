"""A sliding window: what inserts publish, where matches end, what locks hold (SWA)."""

from __future__ import annotations

import torch

from tests.backends.python_core.conftest import FULL, MAMBA, SWA, Driver, NewTree, key
from treedrift.backends.contract import PoolHitPolicy, PoolName


def window_tree(new_tree: NewTree, window: int, **params: object) -> Driver:
    """FULL and a window."""
    return new_tree(tree_components=(FULL, SWA), sliding_window_size=window, **params)


# --- Inserts ------------------------------------------------------------------------------


def test_a_new_leaf_is_clipped_at_the_evicted_length_and_capped_at_the_window(
    new_tree: NewTree,
) -> None:
    """Example W1."""
    tree = window_tree(new_tree, 3)
    actions, result = tree.insert([*range(1, 9)], 1, component_evicted_seqlens={SWA: 4})
    assert actions == [("rebuild", 3, [5]), ("rebuild", 1, [6, 7, 8])]
    assert (result.prefix_len, result.last_device_node) == (0, 1)
    assert [tree.value(node, SWA) for node in (2, 3, 1)] == [None, [1005], [1006, 1007, 1008]]
    assert tree.order(SWA) == [1, 3]
    for length in (4, 5, 6):
        found = tree.match([*range(1, length + 1)])
        assert (found.device_prefix_len, found.swa_branching_seqlen) == (0, length)
        assert found.full_kv_hit_length == length
    for length in (7, 8):
        found = tree.match([*range(1, length + 1)])
        assert (found.device_prefix_len, found.swa_branching_seqlen) == (length, None)
    assert tree.order(SWA) == [1, 5, 4, 3]


def test_a_lost_window_is_filled_by_swapping_the_slots(new_tree: NewTree) -> None:
    """Example W2."""
    tree = window_tree(new_tree, 3)
    assert tree.insert([*range(1, 7)], 1, component_evicted_seqlens={SWA: 6})[0] == []
    actions, result = tree.insert(
        [*range(1, 9)],
        7,
        prev_prefix_len=2,
        component_evicted_seqlens={SWA: 4},
        track_adopted_ranges=True,
    )
    assert actions == [
        ("free full only", [5, 6]),
        ("rebuild", 1, [11, 12]),
        ("free full only", [9, 10]),
        ("rebuild", 3, [13, 14]),
    ]
    assert (result.prefix_len, result.last_device_node) == (6, 3)
    assert result.adopted_ranges == {FULL: [(4, 8)], SWA: [(4, 8)]}
    assert tree.value(1, FULL) == [11, 12]
    assert (tree.sizes(), tree.sizes(SWA)) == ((8, 0), (4, 0))


def test_a_lost_window_under_a_lock_is_moved_to_the_slots_that_stay(new_tree: NewTree) -> None:
    """Example W3."""
    tree = window_tree(new_tree, 2)
    leaf = tree.leaf([*range(1, 7)], 1)
    receipt = tree.core.inc_lock_ref(leaf).to_dec_params()
    assert tree.core.dec_swa_lock_only(leaf, receipt).device_frees == {}
    assert tree.steps(SWA, 6) == [{"SWA": [[1, 2, 3, 4]]}, {"SWA": [[5, 6]]}]
    actions, result = tree.insert(
        [*range(1, 8)], 7, component_evicted_seqlens={SWA: 3}, track_adopted_ranges=True
    )
    assert actions == [
        ("recover", 2, [4], [10]),
        ("free full only", [7, 8, 9]),
        ("recover", 1, [5, 6], [11, 12]),
        ("rebuild", 4, [13]),
    ]
    assert result.prefix_len == 6
    assert result.adopted_ranges == {FULL: [(6, 7)], SWA: [(3, 7)]}
    assert [tree.value(node, SWA) for node in (3, 2, 1)] == [None, [1010], [1011, 1012]]
    assert (tree.sizes(), tree.sizes(SWA)) == ((1, 6), (4, 0))
    tree.core.dec_lock_ref(leaf, receipt, skip_swa=True)
    assert tree.sizes() == (7, 0)


def test_a_branch_is_reached_by_the_length_before_it_is_cut_to_pages(new_tree: NewTree) -> None:
    tree = window_tree(new_tree, 2, page_size=2)
    reached = [
        tree.insert([1, 2, 3], swa_branching_seqlen=length)[1].swa_branch_inserted
        for length in (None, 3, 4)
    ]
    assert reached == [False, True, False]


def test_a_capped_leaf_counts_its_hit_by_what_is_left_of_it(new_tree: NewTree) -> None:
    """The reference compares with the length after the split (DIV01-1)."""
    for inserted_len, hits in ((1, 1), (2, 0), (5, 0)):
        tree = window_tree(new_tree, 2)
        leaf = tree.leaf([*range(8)], inserted_len=inserted_len)
        assert {node.node_id: node.hit_count for node in tree.snapshot().nodes}[leaf] == hits


# --- Matches ------------------------------------------------------------------------------


def test_ungated_matches_end_on_tombstones_but_not_below_a_short_value(new_tree: NewTree) -> None:
    """Example W10."""
    for gates, expected in ((True, [0, 0, 0, 7]), (False, [2, 4, 4, 7])):
        tree = window_tree(new_tree, 3, swa_gates_prefix_match=gates)
        tree.insert([1, 2, 3, 4], 1, component_evicted_seqlens={SWA: 4})
        tree.insert([1, 2, 3, 4, 5], 1, component_evicted_seqlens={SWA: 4})
        tree.insert([*range(1, 8)], 1, component_evicted_seqlens={SWA: 4}, prev_prefix_len=5)
        found = [tree.match([*range(1, end)]).device_prefix_len for end in (3, 5, 6, 8)]
        assert found == expected


def test_the_longer_of_two_windows_counts(new_tree: NewTree) -> None:
    tree = window_tree(new_tree, 2, draft_swa_window=5)
    tree.insert([*range(8)])
    assert [len(tree.value(node, SWA) or ()) for node in tree.order(SWA)] == [5, 3]


def test_pages_round_the_window_up(new_tree: NewTree) -> None:
    """Example W12."""
    tree = window_tree(new_tree, 3, page_size=2)
    tokens = [*range(1, 12)]
    actions, _ = tree.insert(tokens, 1, component_evicted_seqlens={SWA: 2})
    assert actions == [("rebuild", 3, [3, 4, 5, 6]), ("rebuild", 1, [7, 8, 9, 10])]
    found = tree.match(tokens[:5])
    assert (found.device_prefix_len, found.swa_branching_seqlen) == (0, 4)
    assert tree.order(SWA) == [1, 3, 4]
    receipt = tree.core.inc_lock_ref(1).to_dec_params()
    assert tree.sizes(SWA) == (4, 4)
    assert len(tree.steps(SWA, 3)) == 2
    tree.core.dec_swa_lock_only(1, receipt)
    assert tree.steps(SWA, 9) == [{"SWA": [[7, 8, 9, 10]]}]
    assert tree.core.swa_tombstone_ranges(key(tokens), 0, 10) == [(0, 10)]
    assert tree.core.swa_tombstone_ranges(key(tokens), 3, 9) == [(3, 9)]
    actions, result = tree.insert(
        tokens,
        21,
        prev_prefix_len=4,
        component_evicted_seqlens={SWA: 6},
        track_adopted_ranges=True,
    )
    assert actions == [
        ("free full only", [25, 26]),
        ("recover", 1, [7, 8, 9, 10], [27, 28, 29, 30]),
    ]
    assert result.adopted_ranges == {SWA: [(6, 10)]}


# --- Locks --------------------------------------------------------------------------------


def test_a_lock_covers_tombstones_and_protects_what_they_get_later(new_tree: NewTree) -> None:
    """Example W4."""
    tree = window_tree(new_tree, 3)
    leaf = tree.leaf([1, 2, 3, 4], 1, component_evicted_seqlens={SWA: 4})
    receipt = tree.core.inc_lock_ref(leaf)
    assert receipt.component_lock_uuids[SWA] is not None
    assert tree.sizes(SWA) == (0, 0)
    actions, _ = tree.insert([1, 2, 3, 4], 5, component_evicted_seqlens={SWA: 2})
    assert actions == [("recover", 1, [3, 4], [7, 8]), ("free full only", [5, 6])]
    uuids = {node.node_id: node.device_lock_uuid for node in tree.snapshot().nodes}
    assert (uuids[2], uuids[1]) == (receipt.component_lock_uuids, {})
    assert tree.sizes(SWA) == (0, 2)
    tree.core.dec_lock_ref(leaf, receipt.to_dec_params())
    assert tree.sizes(SWA) == (2, 0)


def test_a_boundary_moves_to_the_upper_half_of_a_split(new_tree: NewTree) -> None:
    """Example W5."""
    tree = window_tree(new_tree, 4)
    leaf = tree.leaf([1, 2, 3, 4], 1)
    first = tree.core.inc_lock_ref(leaf)
    tree.match([1, 2, 3])
    again, above = tree.core.inc_lock_ref(leaf), tree.core.inc_lock_ref(2)
    assert again.component_lock_uuids == first.component_lock_uuids
    assert above.component_lock_uuids == {SWA: None}
    for receipt in (first, above, again):
        counts = {node.node_id: node.lock_ref[SWA] for node in tree.snapshot().nodes}
        assert counts[2] > counts[leaf] or receipt is again
        tree.core.dec_lock_ref(receipt.node_id or 0, receipt.to_dec_params())
    assert tree.sizes(SWA) == (4, 0)
    assert tree.snapshot().nodes[1].device_lock_uuid == first.component_lock_uuids


def test_an_early_release_gives_a_leaf_up_only_if_full_was_not_locked(new_tree: NewTree) -> None:
    tree = window_tree(new_tree, 2)
    leaf = tree.leaf([1, 2, 3, 4], 1)
    receipt = tree.core.inc_lock_ref(leaf, (FULL,)).to_dec_params()
    freed = tree.core.dec_window_lock_only(leaf, SWA, receipt)
    assert [slots.tolist() for slots in freed.device_frees[SWA]] == [[3, 4]]
    assert (freed.tracker, tree.sizes(SWA)) == ({}, (2, 0))
    tree.core.dec_lock_ref(leaf, receipt, skip_swa=True)


def test_a_host_lock_has_a_window_and_a_boundary_too(new_tree: NewTree) -> None:
    tree = window_tree(new_tree, 2)
    leaf = tree.leaf([1, 2, 3, 4], 1)
    receipt = tree.core.inc_host_lock_ref(leaf)
    assert receipt.component_host_lock_uuids[SWA] is not None
    assert [node.host_lock_ref[SWA] for node in tree.snapshot().nodes] == [0, 0, 1]
    tree.match([1, 2, 3])
    assert [node.host_lock_ref[SWA] for node in tree.snapshot().nodes] == [0, 0, 1, 1]
    tree.core.dec_host_lock_ref(leaf, receipt.to_dec_params())
    assert {node.host_lock_ref[SWA] for node in tree.snapshot().nodes} == {0}


# --- Eviction -----------------------------------------------------------------------------


def test_inner_nodes_lose_the_window_alone_and_leaves_go_whole(new_tree: NewTree) -> None:
    """Example X10 of the eviction chapter."""
    tree = window_tree(new_tree, 2)
    leaf = tree.leaf([*range(6)], 10)
    assert tree.steps(SWA, 2) == [{"SWA": [[10, 11, 12, 13]]}]
    tree.core.evict_device_start(SWA, 2)
    assert tree.core.evict_device_next_node(SWA, {}).node_id == leaf
    result = tree.core.evict_device_leaf(leaf, False)
    assert result.tracker == {FULL: 2, SWA: 2}
    result = tree.core.evict_device_leaf(2, False)
    assert (result.tracker, set(result.device_frees)) == ({FULL: 4, SWA: 0}, {FULL})


def test_a_walk_whose_node_is_gone_starts_again_at_the_old_end(new_tree: NewTree) -> None:
    tree = window_tree(new_tree, 2)
    first, second = tree.leaf([1, 2], 10), tree.leaf([3, 4], 20)
    tree.core.evict_device_start(SWA, 9)
    tree.core.evict_device_leaf(first, False)
    third = tree.leaf([5, 6], 30)
    found = [tree.core.evict_device_next_node(SWA, {}).node_id for _ in range(3)]
    assert found == [second, third, None]


def test_a_walk_past_the_recent_end_stays_over(new_tree: NewTree) -> None:
    tree = window_tree(new_tree, 2)
    tree.insert([1, 2])
    tree.core.evict_device_start(SWA, 9)
    assert tree.core.evict_device_next_node(SWA, {}).made_progress
    tree.insert([3, 4])
    assert not tree.core.evict_device_next_node(SWA, {}).made_progress


# --- Spans and offloads -------------------------------------------------------------------


def test_loaded_rows_are_published_on_the_middle_of_a_tombstone(new_tree: NewTree) -> None:
    """Example W9."""
    tree = window_tree(new_tree, 3)
    tree.core.set_host_memory_buffer_only()
    tokens = [*range(6)]
    leaf = tree.leaf(tokens, component_evicted_seqlens={SWA: 6})
    rows = torch.tensor([7, 8])
    actions = tree.core.attach_swa_window(key(tokens), 2, 4, rows)
    assert len(actions) == 2
    assert (tree.value(3, SWA), tree.order(SWA)) == ([7, 8], [3])
    rows[0] = 9
    assert tree.value(3, SWA) == [7, 8]
    assert tree.core.swa_tombstone_ranges(key(tokens), 0, 6) == [(0, 2), (4, 6)]
    assert tree.core.swa_tombstone_ranges(key([*tokens, 9]), 1, 5) == [(1, 2), (4, 5)]
    empty_spans = [tree.core.swa_tombstone_ranges(key(tokens), at, at) for at in (0, 1, 2, 3)]
    assert empty_spans == [[], [(1, 1)], [], []]
    assert tree.core.buffer_backup_pool_keys(leaf, ["a"]) == {SWA: {PoolName.SWA: []}}


def test_an_offload_names_the_window_rows_after_the_slots(new_tree: NewTree) -> None:
    tree = window_tree(new_tree, 2, page_size=2)
    tree.core.enable_storage = True
    leaf = tree.leaf([1, 2, 3, 4], 10)
    transfers = tree.core.build_external_linker_offload_transfers(leaf)
    assert transfers is not None
    assert [transfer.name for transfer in transfers] == [PoolName.KV, PoolName.SWA]
    assert transfers[1].device_indices is not None
    assert transfers[1].device_indices.tolist() == [1012, 1013]
    assert transfers[1].keys == tree.core.get_hash_values(leaf)[-1:]
    assert transfers[1].hit_policy == PoolHitPolicy.TRAILING_PAGES
    tree.steps(SWA, 2)
    (transfer,) = tree.core.build_external_linker_offload_transfers(2) or ()
    assert transfer.name == PoolName.KV


def test_canary_rows_can_be_those_of_the_window(new_tree: NewTree) -> None:
    tree = window_tree(new_tree, 2)
    leaf = tree.leaf([*range(4)], 10, component_evicted_seqlens={SWA: 2})
    rows = tree.core.walk_for_kv_canary(False, True)
    assert rows.slot_indices.tolist() == [12, 13]
    assert (rows.positions.tolist(), rows.prev_slot_indices.tolist()) == ([2, 3], [11, 12])
    tree.core.inc_lock_ref(leaf, (SWA,))
    assert len(tree.core.walk_for_kv_canary(True, True).positions) == 2
    assert len(tree.core.walk_for_kv_canary(True, False).positions) == 0


def test_a_state_goes_with_the_window_that_it_needs(new_tree: NewTree) -> None:
    """Example T12 of the Mamba chapter."""
    tree = new_tree(
        tree_components=(FULL, SWA, MAMBA), sliding_window_size=2, mamba_cache_chunk_size=1
    )
    for length in (2, 4, 6):
        state = torch.tensor([900 + length])
        tree.insert([*range(length)], 100, prev_prefix_len=length - 2, mamba_value=state)
    assert tree.steps(MAMBA, 1) == [{"MAMBA": [[902]]}]
    assert tree.steps(SWA, 4) == [
        {"SWA": [[100, 101]]},
        {"SWA": [[102, 103]], "MAMBA": [[904]]},
    ]
    assert tree.steps(MAMBA, 1) == [3]
    assert (tree.sizes(SWA), tree.sizes(MAMBA), tree.sizes()) == ((0, 0), (0, 0), (4, 0))


def test_a_span_of_pairs_is_checked_against_the_raw_tokens(new_tree: NewTree) -> None:
    tree = window_tree(new_tree, 2, is_eagle=True)
    tree.insert([1, 2, 3], component_evicted_seqlens={SWA: 2})
    assert tree.core.swa_tombstone_ranges(key([1, 2, 3]), 0, 3) == [(0, 2)]
