"""Matching and splitting (MATCH, SPLIT, PATH)."""

from __future__ import annotations

from tests.backends.python_core.conftest import FULL, NewTree, key
from treedrift.backends.contract import InsertParams


def test_a_match_within_a_node_splits_it_and_the_old_handle_keeps_its_end(
    new_tree: NewTree,
) -> None:
    tree = new_tree()
    leaf = tree.leaf([1, 2, 3, 4], 10)
    result = tree.match([1, 2, 9])
    upper = result.best_match_node
    assert (result.device_prefix_len, result.full_kv_hit_length) == (2, 2)
    assert result.last_device_node == result.last_host_node == result.last_visited_node_id == upper
    assert tree.match([1, 2, 3, 4, 5]).best_match_node == leaf
    infos = tree.core.collect_path_info([leaf])[0]
    assert [(info.node_id, info.path_start, info.path_end) for info in infos] == [
        (upper, 0, 2),
        (leaf, 2, 4),
    ]


def test_only_whole_pages_match(new_tree: NewTree) -> None:
    tree = new_tree(page_size=2)
    tree.insert([1, 2, 3, 4], 10)
    actions, result = tree.insert([1, 2, 3, 5], 20)
    assert actions == [("free", [20, 21])]
    assert result.prefix_len == 2
    assert tree.match([1, 3]).device_prefix_len == 0
    assert tree.match([1, 2, 3]).device_prefix_len == 2


def test_a_difference_is_found_at_every_page_of_a_long_node(new_tree: NewTree) -> None:
    for differing in range(40):
        tree = new_tree(page_size=3)
        tokens = list(range(120))
        tree.insert(tokens)
        tokens[differing * 3 + 1] = -1
        assert tree.match(tokens).device_prefix_len == differing * 3


def test_a_pair_tree_counts_pairs(new_tree: NewTree) -> None:
    tree = new_tree(is_eagle=True)
    tree.insert([1, 2, 3, 4], 10)
    assert tree.core.total_size() == (3, 0)
    assert tree.match([1, 2, 3, 9]).device_prefix_len == 2
    # The token 3 is in both halves: it closes the last pair of the upper one (KEY-8).
    assert [node.token_ids for node in tree.snapshot().nodes] == [[], [1, 2, 3], [3, 4]]
    assert tree.match([1]).device_prefix_len == 0


def test_namespaces_never_share_a_node(new_tree: NewTree) -> None:
    tree = new_tree()
    tree.insert([1, 2], 10, extra_key="a")
    tree.insert([1, 2], 20, salt="a")
    tree.insert([1, 2], 30, extra_key="")
    assert tree.match([1, 2]).device_prefix_len == 0
    assert tree.match([1, 2], extra_key="a").device_prefix_len == 2
    assert tree.match([1, 2], extra_key="a", salt="a").device_prefix_len == 0
    assert len(tree.snapshot().nodes) == 4


def test_an_empty_key_matches_the_root_and_touches_nothing(new_tree: NewTree) -> None:
    tree = new_tree(page_size=4)
    tree.insert([1, 2, 3, 4])
    before = tree.snapshot()
    result = tree.match([1, 2, 3])
    assert result.best_match_node == tree.core.root_node_handle()
    assert result.last_visited_node_id is None
    assert tree.snapshot() == before


def test_a_limit_acts_as_if_the_key_was_cut(new_tree: NewTree) -> None:
    tree = new_tree()
    limited = key([1, 2, 3, 4])
    limited.limit = 2
    tree.insert([1, 2, 3, 4])
    matched, _, end = tree.core.match_full_device_prefix(limited)
    assert (matched, end) == (2, 4)


def test_a_read_only_match_splits_nothing(new_tree: NewTree) -> None:
    tree = new_tree()
    leaf = tree.leaf([1, 2, 3, 4])
    before = tree.snapshot()
    assert tree.core.match_full_device_prefix(key([1, 2, 9])) == (2, leaf, 4)
    assert tree.core.match_full_device_prefix(key([7])) == (0, tree.core.root_node_handle(), 0)
    assert tree.snapshot() == before


def test_a_split_keeps_the_place_among_the_children(new_tree: NewTree) -> None:
    tree = new_tree()
    tree.insert([1, 2])
    second = tree.leaf([5])
    upper = tree.match([1]).best_match_node
    assert tree.snapshot().nodes[0].child_ids == [upper, second]


def test_the_matched_path_is_newer_the_deeper_it_goes(new_tree: NewTree) -> None:
    tree = new_tree()
    tree.insert([1])
    tree.insert([1, 2])
    tree.insert([9])
    tree.match([1, 2])
    ranks = {tuple(node.token_ids): node.access_rank for node in tree.snapshot().nodes}
    assert ranks == {(9,): 0, (): 1, (1,): 2, (2,): 3}


def test_callers_may_reuse_the_tokens_of_a_key(new_tree: NewTree) -> None:
    tree = new_tree()
    reused = key([1, 2])
    tree.core.begin_insert(InsertParams(key=reused))
    reused.token_ids[0] = 5
    assert tree.match([1, 2]).device_prefix_len == 2
    assert not reused.is_bigram


def test_the_halves_of_a_split_share_no_memory_with_the_old_value(new_tree: NewTree) -> None:
    tree = new_tree()
    value = tree.core.get_component_device_value(tree.leaf([1, 2], 10), FULL)
    tree.match([1])
    assert value is not None
    value.fill_(0)
    assert tree.core.all_values_flatten().tolist() == [10, 11]
