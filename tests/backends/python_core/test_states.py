"""Mamba states: where they are stored, capped, locked and evicted (MAM)."""

from __future__ import annotations

import pytest
import torch

from tests.backends.python_core.conftest import FULL, MAMBA, SWA, Driver, NewTree
from treedrift.backends.contract import InsertResult, PoolHitPolicy, PoolName


class States:
    """A driver that speaks of states by their numbers."""

    def __init__(self, tree: Driver) -> None:
        self.tree = tree

    def insert(
        self, tokens: list[int], state: int
    ) -> tuple[list[tuple[object, ...]], InsertResult]:
        return self.tree.insert(tokens, 100, mamba_value=torch.tensor([state]))

    def held(self) -> dict[int, int]:
        """The state of every node that has one."""
        nodes = self.tree.snapshot().nodes
        return {
            node.node_id: node.device_value[MAMBA][0]
            for node in nodes[1:]
            if MAMBA in node.device_value
        }


def state_tree(new_tree: NewTree, cap: int = -1, chunk: int = 1, **params: object) -> States:
    """FULL and states."""
    return States(
        new_tree(
            tree_components=(FULL, MAMBA),
            mamba_cache_chunk_size=chunk,
            mamba_max_states_per_path=cap,
            **params,
        )
    )


@pytest.mark.parametrize(
    ("chunk", "page", "branching"),
    [(1, 1, 23), (4, 1, 20), (4, 2, 20), (6, 4, 12), (2, 2, 22), (3, 2, 18)],
)
def test_a_branch_is_offered_on_the_grid(
    new_tree: NewTree, chunk: int, page: int, branching: int
) -> None:
    """Example T1."""
    states = state_tree(new_tree, chunk=chunk, page_size=page)
    tokens = [*range(1, 25)]
    states.insert(tokens, 900)
    found = states.tree.match(tokens[:23])
    assert (found.device_prefix_len, found.mamba_branching_seqlen) == (0, branching)
    assert found.full_kv_hit_length == 23 - 23 % page
    found = states.tree.match(tokens)
    assert (found.device_prefix_len, found.mamba_branching_seqlen) == (24, None)


def test_only_the_end_of_an_insert_takes_a_state(new_tree: NewTree) -> None:
    """Example T2."""
    states = state_tree(new_tree)
    expected: list[tuple[list[int], int, bool, list[int]]] = [
        ([], 0, True, []),
        ([1, 2, 3, 4], 0, False, [1]),
        ([1, 2, 3, 4], 4, True, [1]),
        ([1, 2], 2, False, [2, 1]),
        ([1, 2], 2, True, [2, 1]),
        ([1, 2, 3, 4, 5, 6], 4, False, [3, 2, 1]),
        ([1, 2, 3, 9], 3, False, [5, 3, 2, 1]),
    ]
    for state, (tokens, prefix_len, exists, order) in enumerate(expected, 900):
        _, result = states.insert(tokens, state)
        assert (result.prefix_len, result.mamba_exist) == (prefix_len, exists)
        assert states.tree.order(MAMBA) == order
    assert states.held() == {1: 901, 2: 903, 3: 905, 5: 906}
    assert (states.tree.sizes(), states.tree.sizes(MAMBA)) == ((7, 0), (4, 0))
    assert states.tree.core.total_size() == (7, 4)
    assert sorted(states.tree.core.all_mamba_values_flatten().tolist()) == [901, 903, 905, 906]


def test_a_cap_thins_out_the_path_but_neither_forks_nor_the_tail(new_tree: NewTree) -> None:
    """Example T3."""
    states = state_tree(new_tree, cap=1)
    first = states.tree.begin([1, 2], 100, mamba_value=torch.tensor([900]))
    assert first == ([("cap", 1)], None)
    assert states.tree.resume()[0] == []
    actions, _ = states.insert([1, 2, 3, 4], 901)
    assert actions == [("free", [100, 101]), ("cap", 2)]
    states.insert([*range(1, 7)], 902)
    assert states.tree.capped == [[], [900], [901]]
    assert ("cap", 3) not in states.insert([*range(1, 7)], 903)[0]
    for tokens, state in (([1, 2, 3, 4], 904), ([1, 2, 9], 905), ([1, 2], 906)):
        states.insert(tokens, state)
    assert states.tree.capped[3:] == [[], [], []]
    states.insert([1, 2, 9, 8], 907)
    assert states.tree.capped[-1] == [905]
    assert states.held() == {1: 906, 2: 904, 3: 902, 5: 907}


def test_a_cap_spares_locked_states(new_tree: NewTree) -> None:
    states = state_tree(new_tree, cap=2)
    unlock = None
    for depth, state in ((2, 900), (4, 901), (6, 902), (8, 903), (10, 904)):
        states.insert([*range(depth)], state)
        unlock = unlock or states.tree.lock(1)
    assert states.tree.capped == [[], [], [901], [902], [903]]
    unlock()
    states.insert([*range(12)], 905)
    assert states.tree.capped[-1] == [900]


def test_walks_and_locks_look_at_states_alone(new_tree: NewTree) -> None:
    """Example T5."""
    states = state_tree(new_tree)
    tree = states.tree
    for depth, state in ((2, 900), (4, 901), (6, 902)):
        states.insert([*range(depth)], state)
    unlock, unlock_full = tree.lock(2), tree.lock(2, MAMBA)
    assert (tree.sizes(), tree.sizes(MAMBA)) == ((2, 4), (2, 1))
    assert tree.steps(MAMBA, 9) == [{"MAMBA": [[900]]}, 3]
    assert (tree.sizes(MAMBA), tree.order(MAMBA)) == ((0, 1), [2])
    unlock()
    assert tree.sizes(MAMBA) == (1, 0)
    assert tree.steps(MAMBA, 9) == [{"MAMBA": [[901]]}]
    assert tree.sizes() == (0, 4)
    unlock = tree.lock(2)
    assert tree.sizes(MAMBA) == (0, 0)
    states.insert([0, 1, 2, 3], 903)
    assert tree.sizes(MAMBA) == (0, 1)
    unlock()
    unlock_full()
    assert (tree.sizes(), tree.sizes(MAMBA)) == ((4, 0), (1, 0))


def test_a_match_makes_its_own_state_recent_and_none_above(new_tree: NewTree) -> None:
    states = state_tree(new_tree)
    for depth, state in ((2, 900), (4, 901), (6, 902)):
        states.insert([*range(depth)], state)
    states.tree.match([0, 1, 2, 3, 9])
    assert states.tree.order(MAMBA) == [2, 3, 1]


def test_a_state_stays_with_the_lower_half_of_a_split(new_tree: NewTree) -> None:
    states = state_tree(new_tree)
    states.insert([1, 2, 3, 4], 900)
    unlock = states.tree.lock(1)
    assert states.tree.match([1, 2]).best_match_node == 0
    assert [node.lock_ref for node in states.tree.snapshot().nodes[1:]] == [
        {FULL: 1, MAMBA: 0},
        {FULL: 1, MAMBA: 1},
    ]
    states.insert([1, 2], 901)
    assert states.tree.sizes(MAMBA) == (1, 1)
    unlock()
    assert states.tree.steps(FULL, 9) == [1, 2]


def test_an_offload_names_a_state_by_the_last_page(new_tree: NewTree) -> None:
    states = state_tree(new_tree)
    states.tree.core.enable_storage = True
    states.insert([1, 2], 900)
    transfers = states.tree.core.build_external_linker_offload_transfers(1)
    assert transfers is not None
    assert transfers[-1].name == PoolName.MAMBA
    assert transfers[-1].keys == states.tree.core.get_hash_values(1)[-1:]
    assert transfers[-1].hit_policy == PoolHitPolicy.TRAILING_PAGES


def test_a_tree_with_states_never_holds_pairs(new_tree: NewTree) -> None:
    assert not state_tree(new_tree, is_eagle=True).tree.core.is_eagle


def test_three_kinds_of_lock_come_and_go_together(new_tree: NewTree) -> None:
    """Example X9 of the eviction chapter."""
    tree = new_tree(
        tree_components=(FULL, SWA, MAMBA), sliding_window_size=2, mamba_cache_chunk_size=1
    )
    leaf = tree.leaf([1, 2, 3, 4], 10, mamba_value=torch.tensor([900]))
    kinds = (FULL, SWA, MAMBA)
    receipt = tree.core.inc_lock_ref(leaf)
    assert set(receipt.component_lock_uuids) == {SWA}
    assert [tree.sizes(kind) for kind in kinds] == [(0, 4), (2, 2), (0, 1)]
    assert tree.core.dec_swa_lock_only(leaf, receipt.to_dec_params()).device_frees == {}
    assert [tree.sizes(kind) for kind in kinds] == [(0, 4), (4, 0), (1, 0)]
    tree.core.dec_lock_ref(leaf, receipt.to_dec_params(), skip_swa=True)
    assert tree.sizes() == (4, 0)
    tree.lock(leaf)
    partial = tree.core.inc_lock_ref(leaf, (MAMBA,)).to_dec_params()
    tree.core.dec_swa_lock_only(leaf, partial)
    assert [tree.sizes(kind) for kind in kinds] == [(0, 4), (2, 2), (0, 1)]
    skipping = tree.core.inc_lock_ref(leaf, (SWA,)).to_dec_params()
    assert tree.core.dec_window_lock_only(leaf, SWA, skipping).device_frees == {}
