"""Out-of-contract calls on windows and states: the typed error, and a core as it was."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from tests.backends.python_core.conftest import AUX, FULL, MAMBA, SWA, Driver, NewTree, key
from treedrift.backends.contract import (
    AuxiliaryWindow,
    CacheInitParams,
    ComponentType,
    ContractError,
    DecLockRefParams,
    InsertParams,
    InvalidArgumentError,
    TreeCore,
    UnknownNodeError,
    UnsupportedError,
)
from treedrift.backends.python_core import PythonTreeCore

STATE = torch.tensor([7])
ROWS = torch.tensor([1, 2])


def assert_refused(
    tree: Driver, call: Callable[[TreeCore], object], error: type[Exception]
) -> None:
    """Check that a call raises and changes nothing."""
    before = tree.snapshot()
    with pytest.raises(error):
        call(tree.core)
    assert tree.snapshot() == before


@pytest.fixture
def hybrid(new_tree: NewTree) -> Driver:
    """A window of 2 and states, pages of 2. Node 2 covers [0, 2), node 1 [2, 4) with a state."""
    tree = new_tree(
        page_size=2,
        tree_components=(FULL, SWA, MAMBA),
        sliding_window_size=2,
        mamba_cache_chunk_size=2,
    )
    tree.insert([1, 2, 3, 4], 10, mamba_value=STATE)
    return tree


@pytest.mark.parametrize(
    "params",
    [
        {"mamba_value": None},
        {"mamba_value": torch.tensor(7)},
        {"mamba_value": torch.tensor([7, 8])},
        {"mamba_value": torch.tensor([0.5])},
        {"component_evicted_seqlens": {SWA: 3}},
    ],
)
def test_an_insert_brings_one_state_and_whole_pages(hybrid: Driver, params: dict[str, Any]) -> None:
    arguments = {"key": key([1, 2, 3, 4]), "mamba_value": STATE, **params}
    assert_refused(
        hybrid, lambda core: core.begin_insert(InsertParams(**arguments)), InvalidArgumentError
    )


def test_an_insert_of_nothing_needs_no_state(hybrid: Driver) -> None:
    step = hybrid.core.begin_insert(InsertParams(key=key([1])))
    assert step.result is not None


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda core: core.set_component_device_value(1, FULL, ROWS), ContractError),
        (lambda core: core.set_component_device_value(0, MAMBA, STATE), ContractError),
        (lambda core: core.set_component_device_value(1, SWA, ROWS), ContractError),
        (lambda core: core.set_component_device_value(2, MAMBA, ROWS), ContractError),
        (lambda core: core.set_component_device_value(2, AUX, ROWS), ContractError),
        (lambda core: core.set_component_device_value(2, MAMBA, STATE.int()), InvalidArgumentError),
        (lambda core: core.set_component_device_value(9, MAMBA, STATE), UnknownNodeError),
        (lambda core: core.finish_swa_state_eviction(1), ContractError),
        (lambda core: core.finish_mamba_state_eviction(1), ContractError),
        (lambda core: core.evict_excess_path_states(9, {}, {}, []), UnknownNodeError),
        (lambda core: core.swa_tombstone_ranges(key([1, 2]), 2, 1), ContractError),
        (lambda core: core.swa_tombstone_ranges(key([1, 2]), 0, 3), ContractError),
        (lambda core: core.swa_tombstone_ranges(key([1, 2]), -1, 1), OverflowError),
        (lambda core: core.swa_tombstone_ranges(key([1, 2]), 0, 1, MAMBA), ContractError),
        (lambda core: core.attach_swa_window(key([1, 2]), 0, 2, ROWS, AUX), ContractError),
    ],
)
def test_calls_out_of_protocol_are_refused(
    hybrid: Driver, call: Callable[[TreeCore], object], error: type[Exception]
) -> None:
    hybrid.core.evict_device_start(MAMBA, 1)
    assert_refused(hybrid, call, error)


@pytest.mark.parametrize(
    ("start", "end", "rows"),
    [
        (2, 0, ROWS),
        (0, 2, ROWS[:1]),
        (0, 2, ROWS.int()),
        (0, 2, ROWS[None]),
        (1, 3, ROWS),
        (2, 4, ROWS),
        (4, 6, ROWS),
    ],
)
def test_rows_are_attached_only_where_all_of_a_span_lacks_them(
    hybrid: Driver, start: int, end: int, rows: torch.Tensor
) -> None:
    hybrid.steps(SWA, 2)
    tokens = key([1, 2, 3, 4, 5, 6])
    assert_refused(
        hybrid, lambda core: core.attach_swa_window(tokens, start, end, rows), ContractError
    )
    assert hybrid.core.attach_swa_window(tokens, 3, 3, ROWS[:0]) == []
    assert hybrid.core.attach_swa_window(tokens, 0, 2, ROWS) == []


SPOILT: list[Callable[[DecLockRefParams], object]] = [
    lambda receipt: receipt.component_lock_uuids.clear(),
    lambda receipt: receipt.component_lock_uuids.update({SWA: 5}),
    lambda receipt: receipt.component_lock_uuids.update({SWA: 0}),
]
RELEASES: list[Callable[..., object]] = [
    lambda core, receipt: core.dec_lock_ref(1, receipt),
    lambda core, receipt: core.dec_swa_lock_only(1, receipt),
    lambda core, receipt, component=SWA: core.dec_window_lock_only(1, component, receipt),
]


def test_a_receipt_must_fit_the_whole_path_before_any_count_changes(hybrid: Driver) -> None:
    core = hybrid.core
    good = core.inc_lock_ref(1).to_dec_params()
    skipping = core.inc_lock_ref(1, (SWA,)).to_dec_params()
    for spoil in SPOILT:
        receipt = core.inc_lock_ref(1).to_dec_params()
        spoil(receipt)
        for call in (partial(release, receipt=receipt) for release in RELEASES):
            assert_refused(hybrid, call, ContractError)
    assert_refused(hybrid, partial(RELEASES[1], receipt=skipping), ContractError)
    for component in (FULL, MAMBA, AUX):
        release = partial(RELEASES[2], receipt=good, component=component)
        assert_refused(hybrid, release, ContractError)


def test_a_walk_stops_at_a_node_that_was_locked_meanwhile(hybrid: Driver) -> None:
    hybrid.core.evict_device_start(SWA, 9)
    receipt = hybrid.core.inc_lock_ref(2).to_dec_params()
    assert_refused(hybrid, lambda core: core.evict_device_next_node(SWA, {}), ContractError)
    assert not hybrid.core.evict_device_next_node(SWA, {SWA: 9}).made_progress
    hybrid.core.dec_lock_ref(2, receipt)
    assert hybrid.core.evict_device_next_node(SWA, {}).tracker == {SWA: 2}


def test_a_window_does_not_go_under_a_locked_state(hybrid: Driver) -> None:
    receipt = hybrid.core.inc_lock_ref(1, (SWA,)).to_dec_params()
    hybrid.core.evict_device_start(SWA, 9)
    assert hybrid.core.evict_device_next_node(SWA, {}).tracker == {SWA: 2}
    assert_refused(hybrid, lambda core: core.evict_device_next_node(SWA, {}), ContractError)
    hybrid.core.dec_lock_ref(1, receipt)
    assert hybrid.core.evict_device_next_node(SWA, {}).node_id == 1


def test_an_insert_can_not_go_on_once_its_leaf_is_gone(hybrid: Driver) -> None:
    assert hybrid.begin([7, 8], 30, mamba_value=STATE)[1] is None
    hybrid.core.evict_device_leaf(3, False)
    assert_refused(hybrid, lambda core: core.resume_insert(), ContractError)
    assert hybrid.core.end_insert() == []


def test_a_host_pool_can_be_named_once_and_only_for_a_window(hybrid: Driver) -> None:
    hybrid.core.has_swa_host_pool = True
    assert_refused(hybrid, lambda core: setattr(core, "has_swa_host_pool", False), ContractError)
    assert hybrid.core.has_swa_host_pool


@pytest.mark.parametrize(
    ("components", "params", "error"),
    [
        ((FULL, SWA), {"sliding_window_size": None}, InvalidArgumentError),
        ((FULL, SWA), {"sliding_window_size": 0}, InvalidArgumentError),
        ((FULL, SWA), {"sliding_window_size": 1.5}, TypeError),
        ((FULL, SWA), {"draft_swa_window": -1}, OverflowError),
        ((FULL, SWA), {"swa_gates_prefix_match": 1}, TypeError),
        ((FULL, MAMBA), {"mamba_cache_chunk_size": None}, InvalidArgumentError),
        ((FULL, MAMBA), {"mamba_max_states_per_path": "1"}, TypeError),
        ((FULL, MAMBA, SWA), {}, UnsupportedError),
        ((FULL, AUX), {}, UnsupportedError),
        ((FULL, ComponentType.C128), {}, UnsupportedError),
        ((FULL, SWA, AUX), {}, UnsupportedError),
        ((FULL, SWA, AUX), {"component_registry_override": {AUX: object}}, UnsupportedError),
        (
            (FULL, SWA, AUX),
            {"component_registry_override": {AUX: AuxiliaryWindow(0)}},
            InvalidArgumentError,
        ),
        ((FULL, SWA), {"component_registry_override": {AUX: AuxiliaryWindow(1)}}, UnsupportedError),
    ],
)
def test_components_that_can_not_be_built_say_why(
    components: tuple[ComponentType, ...], params: dict[str, Any], error: type[Exception]
) -> None:
    given = {"sliding_window_size": 2, "mamba_cache_chunk_size": 1, **params}
    with pytest.raises(error):
        PythonTreeCore(CacheInitParams(tree_components=components, **given))
