"""Page hashes and KV events (KEY-30 to KEY-44, EVT)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.backends.python_core.conftest import Driver, NewTree
from treedrift.backends.contract import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    KvEventLoraNames,
    StorageMedium,
)


def hashes(tree: Driver, node_id: int) -> list[str]:
    """The node's hashes, shortened to what the worked examples show."""
    return [page[:16] for page in tree.core.get_hash_values(node_id)]


def stored(tree: Driver) -> list[tuple[Any, ...]]:
    """The queued events: tokens and parent of stores, hash counts of removals."""
    shown: list[tuple[Any, ...]] = []
    for event in tree.core.take_events():
        match event:
            case BlockStored():
                shown.append(("stored", event.token_ids, event.parent_block_hash))
            case BlockRemoved():
                shown.append(("removed", len(event.block_hashes)))
            case AllBlocksCleared():
                shown.append(("cleared",))
    return shown


def test_hashes_are_chained_over_pages_and_cut_by_splits(new_tree: NewTree) -> None:
    tree = new_tree(page_size=2)
    tree.core.enable_storage = True
    leaf = tree.leaf([1, 2, 3, 4, 5, 6])
    chain = ["34fb5c825de7ca4a", "c57b445f90651b9a", "4a8a26efbf98ddb0"]
    assert hashes(tree, leaf) == chain
    upper = tree.match([1, 2]).best_match_node
    assert (hashes(tree, upper), hashes(tree, leaf)) == (chain[:1], chain[1:])
    assert tree.core.get_prefix_hash_values(leaf) == tree.core.get_hash_values(upper)
    assert tree.core.get_last_hash_value(leaf) == tree.core.get_hash_values(leaf)[-1]
    assert tree.core.get_last_hash_value(tree.core.root_node_handle()) is None


@pytest.mark.parametrize(
    ("extra_key", "salt", "first"),
    [
        ("x", None, "490aa6d4166a55d9"),
        (None, "s", "08c8766c7cd15330"),
        ("x", "s", "9ff984172d18875a"),
        ("", None, "a3b1ec4e1b7586e7"),
    ],
)
def test_the_namespace_starts_the_chain(
    new_tree: NewTree, extra_key: str | None, salt: str | None, first: str
) -> None:
    tree = new_tree(page_size=2)
    tree.core.enable_storage = True
    assert hashes(tree, tree.leaf([1, 2], extra_key=extra_key, salt=salt)) == [first]


def test_a_pair_page_hashes_both_tokens_of_each_pair(new_tree: NewTree) -> None:
    tree = new_tree(page_size=2, is_eagle=True)
    tree.core.enable_storage = True
    assert hashes(tree, tree.leaf([1, 2, 3])) == ["ede8ef26a097f0fd"]


def test_a_wide_token_changes_its_own_page_alone(new_tree: NewTree) -> None:
    def hashed(tokens: list[int]) -> list[str]:
        tree = new_tree()
        tree.core.enable_storage = True
        return tree.core.get_hash_values(tree.leaf(tokens))

    wide, zero = hashed([1, 2**32]), hashed([1, 0])
    assert wide[0] == zero[0]
    # Cut to 32 bits the wide token would be 0.
    assert wide[1] != zero[1]


def test_late_storage_restarts_the_chain_and_a_backfill_keeps_it(new_tree: NewTree) -> None:
    tree = new_tree()
    tree.insert([1])
    tree.core.enable_storage = True
    second = tree.leaf([1, 2])
    third = tree.leaf([1, 2, 3])
    before = tree.core.get_hash_values(second)
    assert tree.core.get_prefix_hash_values(third) == before
    assert tree.core.backfill_missing_hash_values() == 1
    assert len(tree.core.get_prefix_hash_values(third)) == 2
    assert tree.core.get_hash_values(second) == before
    assert tree.core.backfill_missing_hash_values() == 0


def test_a_snapshot_for_a_backup_outlives_a_split(new_tree: NewTree) -> None:
    tree = new_tree(page_size=2)
    tree.core.enable_storage = True
    leaf = tree.leaf([1, 2, 3, 4], extra_key="x")
    planned = tree.core.snapshot_buffer_backup(leaf, True)
    assert planned is not None
    assert (planned.parent_is_root, planned.parent_last_hash, planned.prefix_keys) == (
        True,
        None,
        [],
    )
    assert tree.core.validate_buffer_backup(leaf, 4) is not None
    tree.match([1, 2], extra_key="x")
    assert list(planned.key.token_ids) == [1, 2, 3, 4]
    assert len(planned.hash_values) == 2
    assert tree.core.validate_buffer_backup(leaf, 4) is None
    state = tree.core.validate_buffer_backup(leaf, 2)
    assert state is not None
    assert state.parent_last_hash == planned.hash_values[0]


def test_a_snapshot_is_none_where_there_is_nothing_to_back_up(new_tree: NewTree) -> None:
    tree = new_tree()
    unhashed = tree.leaf([1])
    for node_id in (unhashed, tree.core.root_node_handle(), 10**6):
        assert tree.core.snapshot_buffer_backup(node_id, False) is None
    assert tree.core.validate_buffer_backup(10**6, 1) is None


# --- Events ---------------------------------------------------------------------------------


def test_stores_merge_only_where_the_last_event_ends(new_tree: NewTree) -> None:
    tree = new_tree(enable_kv_cache_events=True)
    tree.insert([1, 2, 3, 4], 10)
    tree.match([1, 2, 9])
    tree.insert([1, 2, 7, 8], 20)
    first, second = tree.core.take_events()
    assert first == BlockStored(
        block_hashes=[
            7470307888890966271,
            -1634645291211865391,
            7325169757385981536,
            -4123756397210254169,
        ],
        parent_block_hash=None,
        token_ids=[1, 2, 3, 4],
        block_size=1,
        medium=StorageMedium.GPU,
    )
    assert second == BlockStored(
        block_hashes=[8980683014100722906, 364700091885405029],
        parent_block_hash=-1634645291211865391,
        token_ids=[7, 8],
        block_size=1,
        medium=StorageMedium.GPU,
    )
    assert tree.core.take_events() == []


def test_sessions_and_clearing_keep_events_apart(new_tree: NewTree) -> None:
    tree = new_tree(enable_kv_cache_events=True)
    tree.insert([1, 2])
    tree.insert([1, 2, 3])
    tree.insert([1, 2, 3, 4], session_id="A")
    tree.insert([1, 2, 3, 4, 5], session_id="A")
    tree.insert([9], session_id="A")
    tree.core.reset()
    tree.insert([1])
    tree.core.kv_events.record_all_cleared()
    tree.insert([1, 2])
    tree.insert([1, 2, 3])
    shown = stored(tree)
    assert [event[:2] for event in shown] == [
        ("stored", [1, 2, 3]),
        ("stored", [4, 5]),
        ("stored", [9]),
        ("stored", [1]),
        ("cleared",),
        ("stored", [2, 3]),
    ]


def test_coalescing_ignores_the_extra_key(new_tree: NewTree) -> None:
    tree = new_tree(enable_kv_cache_events=True)
    tree.insert([1, 2])
    tree.core.take_events()
    tree.insert([1, 2], extra_key="x")
    tree.insert([1, 2, 3])
    # The extra key does not enter the hashes, so the second store begins where the first ends.
    assert [event[:2] for event in stored(tree)] == [("stored", [1, 2, 3])]
    tree.evict(99)
    assert stored(tree) == [("removed", 5)]


def test_pairs_are_published_as_pairs(new_tree: NewTree) -> None:
    tree = new_tree(enable_kv_cache_events=True, page_size=2, is_eagle=True)
    tree.insert([1, 2, 3])
    (event,) = tree.core.take_events()
    assert isinstance(event, BlockStored)
    assert (event.token_ids, event.block_size) == ([(1, 2), (2, 3)], 2)
    assert event.block_hashes == [-1303529142941650691]


def test_names_count_when_the_event_is_recorded(new_tree: NewTree) -> None:
    names = KvEventLoraNames()
    tree = new_tree(enable_kv_cache_events=True, kv_event_lora_names=names)
    tree.insert([1], extra_key="x")
    names.register(SimpleNamespace(lora_id="id", extra_key="x"), "adapter")
    tree.insert([2], extra_key="x")
    unnamed, named = tree.core.take_events()
    assert isinstance(unnamed, BlockStored)
    assert isinstance(named, BlockStored)
    assert (unnamed.lora_name, named.lora_name) == (None, "adapter")
    tree.core.reset()
    tree.insert([1], extra_key="x")
    (renamed,) = tree.core.take_events()
    assert isinstance(renamed, BlockStored)
    # A named adapter's blocks are published under hashes of its own.
    assert renamed.block_hashes != unnamed.block_hashes


@pytest.mark.parametrize("dynamo", [False, True])
def test_the_salt_enters_the_hashes_and_the_extra_key_only_in_dynamo_format(
    new_tree: NewTree, dynamo: bool
) -> None:
    tree = new_tree(enable_kv_cache_events=True, dynamo_kv_event_format=dynamo)
    published = set()
    for extra_key, salt in ((None, None), ("x", None), (None, "s"), (None, "t")):
        tree.insert([1], extra_key=extra_key, salt=salt)
        (event,) = tree.core.take_events()
        assert isinstance(event, BlockStored)
        published.add(event.block_hashes[0])
    assert len(published) == (4 if dynamo else 3)


def test_nothing_is_recorded_or_hashed_when_events_are_off(new_tree: NewTree) -> None:
    tree = new_tree()
    leaf = tree.leaf([1, 2])
    tree.core.kv_events.record_all_cleared()
    assert tree.core.take_events() == []
    assert tree.core.get_hash_values(leaf) == []


def test_a_reset_keeps_queued_events(new_tree: NewTree) -> None:
    tree = new_tree(enable_kv_cache_events=True)
    tree.insert([1])
    tree.core.reset()
    assert len(tree.core.take_events()) == 1
