"""Device eviction and its policies (EVD, POL)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.backends.python_core.conftest import FULL, NewTree
from treedrift.backends.contract import (
    BlockRemoved,
    ComponentType,
    ContractError,
    InvalidArgumentError,
    UnknownNodeError,
)


def test_a_parent_is_admitted_once_its_last_child_is_evicted(new_tree: NewTree) -> None:
    tree = new_tree(enable_kv_cache_events=True)
    first = tree.leaf([1, 2, 3, 4], 10)
    tree.insert([1, 2, 5, 6], 20)
    tree.insert([7, 8], 30)
    tree.match([1, 2, 3, 4])
    tree.core.take_events()
    release = tree.lock(first)
    assert tree.sizes() == (4, 4)
    assert tree.evict(100) == [[22, 23], [30, 31]]
    (event,) = tree.core.take_events()
    assert isinstance(event, BlockRemoved)
    assert len(event.block_hashes) == 4
    release()
    assert tree.evict(100) == [[12, 13], [10, 11]]
    assert tree.snapshot().nodes[0].child_ids == []


def test_whole_nodes_are_evicted_until_the_request_is_met(new_tree: NewTree) -> None:
    tree = new_tree()
    tree.insert([1, 2, 3], 10)
    tree.insert([4, 5], 20)
    tree.insert([6], 30)
    assert tree.evict(0) == []
    assert tree.evict(4) == [[10, 11, 12], [20, 21]]


def test_a_step_reads_the_trackers_own_component_and_frees_nothing(new_tree: NewTree) -> None:
    tree = new_tree()
    leaf = tree.leaf([1, 2, 3])
    tree.core.evict_device_start(FULL, 3)
    step = tree.core.evict_device_next_node(FULL, {ComponentType.SWA: 9})
    assert (step.node_id, step.made_progress, step.tracker) == (leaf, True, {})
    step = tree.core.evict_device_next_node(FULL, {FULL: 3})
    assert (step.node_id, step.made_progress) == (None, False)


def test_an_ignored_leaf_is_not_offered_again_in_its_walk(new_tree: NewTree) -> None:
    tree = new_tree()
    tree.insert([1])
    tree.core.evict_device_start(FULL, 5)
    assert tree.core.evict_device_next_node(FULL, {}).made_progress
    assert not tree.core.evict_device_next_node(FULL, {}).made_progress


def test_leaves_made_during_a_walk_are_not_offered(new_tree: NewTree) -> None:
    tree = new_tree()
    first, second = tree.leaf([1]), tree.leaf([2])
    last = tree.leaf([3])
    tree.core.evict_device_start(FULL, 99)
    assert tree.core.evict_device_next_node(FULL, {}).node_id == first
    for node_id in (first, second):
        tree.core.evict_device_leaf(node_id, False)
    tree.insert([4])
    assert tree.core.evict_device_next_node(FULL, {}).node_id == last
    assert not tree.core.evict_device_next_node(FULL, {}).made_progress


def test_walks_are_opened_and_closed_in_turn(new_tree: NewTree) -> None:
    tree = new_tree()
    with pytest.raises(ContractError):
        tree.core.evict_device_next_node(FULL, {})
    with pytest.raises(ContractError):
        tree.core.evict_device_end(FULL)
    tree.core.evict_device_start(FULL, 1)
    with pytest.raises(ContractError):
        tree.core.evict_device_start(FULL, 1)
    tree.core.reset()
    tree.core.evict_device_start(FULL, 1)


def test_a_deleted_leaf_reports_its_tokens_as_unbacked(new_tree: NewTree) -> None:
    tree = new_tree()
    leaf = tree.leaf([1, 2], 10)
    result = tree.core.evict_device_leaf(leaf, False)
    assert (result.tracker, result.unbacked_tokens) == ({FULL: 2}, 2)
    assert [slots.tolist() for slots in result.device_frees[FULL]] == [[10, 11]]
    with pytest.raises(UnknownNodeError):
        tree.core.evict_device_leaf(leaf, False)


def test_write_back_asks_for_a_backup_and_changes_nothing(new_tree: NewTree) -> None:
    tree = new_tree()
    leaf = tree.leaf([1, 2], 10)
    tree.core.is_write_back = True
    before = tree.snapshot()
    result = tree.core.evict_device_leaf(leaf, True)
    assert result.backup_kv is not None
    assert result.backup_kv.node_ids == [leaf]
    assert (result.tracker, result.device_frees, result.unbacked_tokens) == ({}, {}, 0)
    assert tree.snapshot() == before
    assert tree.core.drop_subtree_no_host(leaf).tracker == {FULL: 2}


def test_a_host_lock_keeps_a_subtree_from_being_dropped(new_tree: NewTree) -> None:
    tree = new_tree()
    leaf = tree.leaf([1])
    tree.core.is_write_back = True
    receipt = tree.core.inc_host_lock_ref(leaf)
    dropped = tree.core.drop_subtree_no_host(leaf)
    assert (dropped.is_dropped, dropped.tracker) == (False, {})
    tree.core.dec_host_lock_ref(leaf, receipt.to_dec_params())
    assert tree.core.drop_subtree_no_host(leaf).is_dropped


def test_only_unlocked_leaves_can_be_evicted(new_tree: NewTree) -> None:
    tree = new_tree()
    tree.insert([1])
    inner = tree.match([1]).best_match_node
    leaf = tree.leaf([1, 2])
    tree.lock(leaf)
    for node_id in (inner, leaf, tree.core.root_node_handle()):
        with pytest.raises(ContractError):
            tree.core.evict_device_leaf(node_id, False)
        with pytest.raises(ContractError):
            tree.core.drop_subtree_no_host(node_id)
        with pytest.raises(ContractError):
            tree.core.demote(node_id)


def test_a_node_with_a_backup_in_flight_is_not_dropped(new_tree: NewTree) -> None:
    tree = new_tree()
    leaf = tree.leaf([1])
    tree.core.mark_external_linker_offload_pending(leaf)
    with pytest.raises(ContractError):
        tree.core.drop_subtree_no_host(leaf)


# --- Policies -------------------------------------------------------------------------------


def test_a_split_makes_the_unmatched_half_recent(new_tree: NewTree) -> None:
    tree = new_tree()
    tree.insert([1, 2, 3, 4], 10)
    tree.insert([9], 20)
    tree.match([1, 2])
    assert tree.evict(99) == [[20], [12, 13], [10, 11]]


def test_recency_follows_the_worked_example(new_tree: NewTree) -> None:
    tree = new_tree()
    tree.insert([1, 2, 3, 4], 10)
    tree.insert([9], 20)
    tree.match([1, 2, 3, 4])
    tree.insert([8], 30)
    tree.insert([1, 2, 7], 40)
    assert tree.evict(99) == [[20], [30], [12, 13], [42], [10, 11]]


def test_split_halves_keep_the_time_of_creation(new_tree: NewTree) -> None:
    tree = new_tree(eviction_policy="FIFO")
    tree.insert([1, 2, 3, 4], 10)
    tree.insert([9], 20)
    tree.insert([1, 2, 7], 40)
    assert tree.evict(99) == [[12, 13], [20], [42], [10, 11]]


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        ("lru", [1, 2, 0]),
        ("mru", [0, 2, 1]),
        ("fifo", [0, 1, 2]),
        ("filo", [2, 1, 0]),
        ("lfu", [1, 2, 0]),
        ("priority", [2, 0, 1]),
        ("slru", [1, 2, 0]),
    ],
)
def test_each_policy_has_its_order(new_tree: NewTree, policy: str, order: list[int]) -> None:
    tree = new_tree(eviction_policy=policy)
    for slot, priority in enumerate([1, 5, 0]):
        tree.insert([slot], slot, priority=priority)
    tree.insert([0])
    assert tree.evict(99) == [[slot] for slot in order]


def test_tails_that_a_next_prompt_recomputes_anyway_go_first(new_tree: NewTree) -> None:
    config = {"threshold": 4, "next_prompt_estimate": 2}
    tree = new_tree(eviction_policy="tlru", eviction_policy_config=config)
    for length in (2, 4, 6, 8):
        tree.insert(list(range(1, length + 1)), 10)
    tree.insert([50, 51], 500)
    assert tree.evict(3) == [[16, 17], [500, 501]]
    assert tree.evict(1) == [[14, 15]]
    assert tree.evict(99) == [[12, 13], [10, 11]]


@pytest.mark.parametrize(
    ("config", "safe_first"),
    [
        ({"threshold": 10**30, "next_prompt_estimate": 10**30 - 9}, True),
        ({"threshold": 10**30, "next_prompt_estimate": 10**30}, False),
        ({"threshold": float("inf")}, False),
        ({"threshold": float("nan")}, False),
        ({"threshold": 9.0, "next_prompt_estimate": True}, True),
    ],
)
def test_tail_arithmetic_is_exact_for_integers_and_ieee_for_floats(
    new_tree: NewTree, config: dict[str, Any], safe_first: bool
) -> None:
    tree = new_tree(eviction_policy="tlru", eviction_policy_config=config)
    tree.insert(list(range(100, 112)), 100)
    tree.insert(list(range(20, 30)), 20)
    tree.insert(list(range(20, 32)), 20)
    # Exact arithmetic tells the tail behind ten tokens from the older leaf behind none.
    assert tree.evict(1) == [[30, 31] if safe_first else list(range(100, 112))]


@pytest.mark.parametrize(
    ("policy", "config", "error"),
    [
        ("t-lru", None, InvalidArgumentError),
        ("", None, InvalidArgumentError),
        (7, None, TypeError),
        ("lru", {"threshold": 1}, TypeError),
        ("lru", [1], TypeError),
        ("slru", {"protected_threshold": 2.0}, TypeError),
        ("slru", {"protected_threshold": 2**63}, OverflowError),
        ("tlru", {"threshold": "1"}, TypeError),
        ("tlru", {"threshold": 10**400, "next_prompt_estimate": 1.0}, OverflowError),
        ("tlru", {"threshold": 1.0, "next_prompt_estimate": 2**127}, OverflowError),
    ],
)
def test_bad_policies_are_refused_at_construction(
    new_tree: NewTree, policy: Any, config: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        new_tree(eviction_policy=policy, eviction_policy_config=config)
