"""Callers that break the protocol of windows and states: both our cores refuse them alike.

Every refusal is a typed error and leaves the whole state as it was, and a core that refused goes
on working.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch

from treedrift.backends.contract import (
    AuxiliaryWindow,
    CacheInitParams,
    ComponentType,
    ContractError,
    DecLockRefParams,
    InsertParams,
    InsertProtocolError,
    InsertResult,
    InsertStepResult,
    InvalidArgumentError,
    NodeId,
    RadixKey,
    RecoverSWAWithLockedFull,
    SWARebuild,
    TreeCore,
    UnsupportedError,
)
from treedrift.backends.inspection import TreeSnapshot
from treedrift.backends.registry import local_backend

FULL, SWA, MAMBA = ComponentType.FULL, ComponentType.SWA, ComponentType.MAMBA
AUX = ComponentType.AUXILIARY_SWA
STATE = torch.tensor([7])
BUILDABLE: dict[str, Any] = {
    "page_size": 2,
    "tree_components": (FULL, SWA, AUX, MAMBA),
    "sliding_window_size": 2,
    "component_registry_override": {AUX: AuxiliaryWindow(2)},
    "mamba_cache_chunk_size": 2,
}


class Tree:
    """A core with windows of 2 and states, in pages of 2, and what breaks its protocol."""

    def __init__(self, name: str) -> None:
        backend = local_backend(name)
        if backend.inspect is None:
            pytest.skip("the core shows its state only as an inspection build")
        self._show = backend.inspect
        self.build = backend.create
        self.core = self.build(CacheInitParams(**BUILDABLE))

    def begin(self, *tokens: int, first: int = 10, **fields: Any) -> InsertStepResult:
        """Begin an insert of consecutive slots."""
        value = torch.arange(first, first + len(tokens))
        key = RadixKey(array("q", tokens))
        params = InsertParams(key=key, value=value, mamba_value=STATE, **fields)
        return self.core.begin_insert(params)

    def insert(self, *tokens: int, **fields: Any) -> InsertResult:
        """Run an insert to its end."""
        return self.finish(self.begin(*tokens, **fields))

    def finish(self, step: InsertStepResult) -> InsertResult:
        """Do what a cache does for windows, and go on to the end."""
        while step.result is None:
            for action in step.actions:
                if isinstance(action, SWARebuild):
                    slots = action.source_value
                elif isinstance(action, RecoverSWAWithLockedFull):
                    slots = action.kept_full
                else:
                    continue
                self.core.set_component_device_value(action.node_id, action.component_type, slots)
            step = self.core.resume_insert()
        return step.result

    def leaf(self, *tokens: int, **fields: Any) -> NodeId:
        """Run an insert to its end; the node at its end."""
        node = self.insert(*tokens, **fields).last_device_node
        assert node is not None
        return node

    def lock(self, node: NodeId, *skipped: ComponentType) -> DecLockRefParams:
        """Lock a node; what releases it."""
        return self.core.inc_lock_ref(node, skipped).to_dec_params()

    def state(self) -> TreeSnapshot:
        """The whole state, after the core's own check of it."""
        self.core.sanity_check([], [])
        return self._show(self.core)

    def refuses(self, call: Callable[[], object], error: type[Exception] = ContractError) -> None:
        """Check that a call raises and changes nothing."""
        before = self.state()
        with pytest.raises(error):
            call()
        assert self.state() == before


@pytest.fixture(params=["python", "rust"])
def tree(request: pytest.FixtureRequest) -> Tree:
    return Tree(request.param)


@pytest.mark.parametrize("component", [SWA, AUX, MAMBA])
def test_a_lock_between_two_steps_stops_the_walk_there(
    tree: Tree, component: ComponentType
) -> None:
    inner = tree.leaf(1, 2)
    tree.insert(1, 2, 3, 4, prev_prefix_len=2)
    core = tree.core
    core.evict_device_start(component, 1)
    receipt = tree.lock(inner)
    for _ in range(2):
        tree.refuses(lambda: core.evict_device_next_node(component, {}))
    assert not core.evict_device_next_node(component, {component: 1}).made_progress
    core.dec_lock_ref(inner, receipt)
    assert component in core.evict_device_next_node(component, {}).device_frees
    core.evict_device_end(component)
    tree.state()


def test_a_state_that_stays_locked_holds_the_windows_on_its_node(tree: Tree) -> None:
    inner = tree.leaf(1, 2)
    tree.insert(1, 2, 3, 4, prev_prefix_len=2)
    receipt = tree.lock(inner)
    for window in (SWA, AUX):
        tree.core.dec_window_lock_only(inner, window, receipt)
        tree.core.evict_device_start(window, 1)
        tree.refuses(partial(tree.core.evict_device_next_node, window, {}))
        tree.core.evict_device_end(window)


# --- Releases -----------------------------------------------------------------------------

Release = Callable[[TreeCore, NodeId, DecLockRefParams], object]
RELEASES: dict[str, Release] = {
    "all": lambda core, node, receipt: core.dec_lock_ref(node, receipt),
    "early": lambda core, node, receipt: core.dec_swa_lock_only(node, receipt),
    "window": lambda core, node, receipt: core.dec_window_lock_only(node, SWA, receipt),
    "second window": lambda core, node, receipt: core.dec_window_lock_only(node, AUX, receipt),
}


def spoilt_receipts(tree: Tree, leaf: NodeId) -> Iterator[DecLockRefParams]:
    """Receipts of a held lock, each with something wrong in its windows."""
    for entries in ({}, {SWA: 0, AUX: 0}, {SWA: 5, AUX: 5}):
        receipt = tree.lock(leaf)
        receipt.component_lock_uuids.clear()
        receipt.component_lock_uuids.update(entries)
        yield receipt


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
def test_a_receipt_must_be_whole_and_of_its_own_node(tree: Tree, release: Release) -> None:
    leaf, other = tree.leaf(1, 2, 3, 4), tree.leaf(8, 9)
    receipt = tree.lock(leaf)
    tree.refuses(lambda: release(tree.core, other, receipt))
    receipt.node_id = other
    tree.refuses(lambda: release(tree.core, other, receipt))
    receipt.node_id = None
    tree.refuses(lambda: release(tree.core, leaf, receipt))
    for spoilt in spoilt_receipts(tree, leaf):
        tree.refuses(partial(release, tree.core, leaf, spoilt))


GONE_AFTER: dict[str, tuple[str, ...]] = {
    "all": ("all", "early", "window", "second window"),
    "early": ("all", "early", "window"),
    "window": ("all", "early", "window"),
    "second window": ("all", "second window"),
}
"""By each release of a receipt, those that can't follow it."""


@pytest.mark.parametrize("first", GONE_AFTER)
def test_what_was_released_is_not_released_again(tree: Tree, first: str) -> None:
    leaf = tree.leaf(1, 2, 3, 4)
    receipt = tree.lock(leaf)
    RELEASES[first](tree.core, leaf, receipt)
    for second in GONE_AFTER[first]:
        tree.refuses(partial(RELEASES[second], tree.core, leaf, receipt))


def test_a_host_lock_is_released_once_and_with_its_own_receipt(tree: Tree) -> None:
    core, leaf = tree.core, tree.leaf(1, 2, 3, 4)
    other = tree.leaf(8, 9)
    receipt = core.inc_host_lock_ref(leaf).to_dec_params()
    tree.refuses(lambda: core.dec_host_lock_ref(other, receipt))
    tree.refuses(lambda: core.dec_lock_ref(leaf, receipt))
    foreign: list[dict[ComponentType, int | None]] = [{}, {SWA: 5, AUX: 5}]
    for entries in foreign:
        spoilt = DecLockRefParams(leaf, (), {}, entries)
        tree.refuses(partial(core.dec_host_lock_ref, leaf, spoilt))
    core.dec_host_lock_ref(leaf, receipt)
    tree.refuses(lambda: core.dec_host_lock_ref(leaf, receipt))


# --- Inserts ------------------------------------------------------------------------------

Removal = Callable[[TreeCore, NodeId], object]
REMOVALS: dict[str, Removal] = {
    "evicted": lambda core, node: core.evict_device_leaf(node, False),
    "dropped": lambda core, node: core.drop_subtree_no_host(node),
}


@pytest.mark.parametrize("remove", REMOVALS.values(), ids=REMOVALS)
@pytest.mark.parametrize("is_walk", [True, False], ids=["in the walk", "behind the commit"])
def test_an_insert_whose_node_went_can_only_be_ended(
    tree: Tree, remove: Removal, is_walk: bool
) -> None:
    core = tree.core
    if is_walk:
        tree.insert(1, 2, component_evicted_seqlens={SWA: 2, AUX: 2})
    step = tree.begin(1, 2, 3, 4) if is_walk else tree.begin(1, 2)
    rebuilds = [each for each in step.actions if isinstance(each, SWARebuild)]
    remove(core, rebuilds[0].node_id)
    for _ in range(2):
        tree.refuses(core.resume_insert)
    tree.refuses(lambda: tree.begin(5, 6), InsertProtocolError)
    assert core.end_insert() == []
    assert tree.insert(1, 2).prefix_len == 0
    tree.state()


def test_a_window_that_was_asked_for_does_not_fit_a_node_cut_meanwhile(tree: Tree) -> None:
    tree.insert(1, 2, 3, 4, component_evicted_seqlens={SWA: 4, AUX: 4})
    step = tree.begin(1, 2, 3, 4, 5, 6, first=20)
    rebuild = next(each for each in step.actions if isinstance(each, SWARebuild))
    tree.core.attach_swa_window(RadixKey(array("q", [1, 2])), 0, 2, torch.tensor([1, 2]))
    tree.refuses(
        lambda: tree.core.set_component_device_value(rebuild.node_id, SWA, rebuild.source_value)
    )
    assert tree.finish(tree.core.resume_insert()).prefix_len == 4
    tree.state()


# --- Figures ------------------------------------------------------------------------------

SIZES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "page_size": lambda value: {"page_size": value},
    "window": lambda value: {"sliding_window_size": value},
    "second window": lambda value: {"component_registry_override": {AUX: AuxiliaryWindow(value)}},
    "chunk": lambda value: {"mamba_cache_chunk_size": value},
}
NO_SIZES: list[tuple[Any, type[Exception]]] = [
    (None, InvalidArgumentError),
    (0, InvalidArgumentError),
    (-(2**64), InvalidArgumentError),
    (2**64, OverflowError),
    (True, TypeError),
    (1.0, TypeError),
    ("1", TypeError),
]
NO_FIGURES: list[tuple[dict[str, Any], type[Exception]]] = [
    *((of(value), error) for of in SIZES.values() for value, error in NO_SIZES),
    ({"draft_swa_window": -1}, OverflowError),
    ({"draft_swa_window": 2**64}, OverflowError),
    ({"draft_swa_window": None}, TypeError),
    ({"mamba_max_states_per_path": 2**63}, OverflowError),
    ({"mamba_max_states_per_path": -(2**63) - 1}, OverflowError),
    ({"mamba_max_states_per_path": True}, TypeError),
    ({"component_registry_override": [AUX]}, UnsupportedError),
    ({"component_registry_override": {AUX: 2}}, UnsupportedError),
]


@pytest.mark.parametrize(("fields", "error"), NO_FIGURES)
def test_no_core_is_built_of_bad_figures(
    tree: Tree, fields: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        tree.build(CacheInitParams(**BUILDABLE | fields))


@pytest.mark.parametrize("of", SIZES.values(), ids=SIZES)
def test_the_largest_figures_serve(tree: Tree, of: Callable[[Any], dict[str, Any]]) -> None:
    tree.core = tree.build(CacheInitParams(**BUILDABLE | of(2**64 - 1)))
    leaf = tree.leaf(1, 2, 3, 4)
    receipt = tree.lock(leaf)
    tree.insert(1, 2, 3, 4, 5, 6, first=20, prev_prefix_len=2)
    tree.core.dec_lock_ref(leaf, receipt)
    tree.core.evict_device_start(SWA, 2**64 - 1)
    tree.core.evict_device_next_node(SWA, {})
    tree.state()


# --- Odd arguments ------------------------------------------------------------------------


def test_slots_that_the_tree_has_already_count_as_any_others(tree: Tree) -> None:
    """The second window asks what the first one did, and never compares slots."""
    tree.insert(1, 2, component_evicted_seqlens={AUX: 2})
    step = tree.begin(1, 2)
    assert [type(action).__name__ for action in step.actions] == [
        "RecoverEvictedSWA",
        "SWARebuild",
        "FreeDeviceKV",
    ]


def test_a_ledger_stays_a_number_of_64_bits(tree: Tree) -> None:
    leaf = tree.leaf(1, 2)
    for delta in (2**63 - 1, 2**63 - 1):
        tree.core.adjust_component_size(leaf, MAMBA, delta)
    with pytest.raises(InvalidArgumentError):
        tree.core.adjust_component_size(leaf, MAMBA, 1)
    assert tree.core.component_evictable_size(MAMBA) == 2**64 - 1
