"""The boundary: bad arguments are refused by type, before anything changes."""

from __future__ import annotations

import copy
import pickle
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from treedrift.backends.contract import (
    AncestorError,
    CacheInitParams,
    ComponentType,
    ContractError,
    CorePoisonedError,
    DecLockRefParams,
    InsertParams,
    InsertProtocolError,
    InvalidArgumentError,
    MatchPrefixParams,
    RadixKey,
    SanityCheckError,
    TreeCore,
    UnknownNodeError,
    UnsupportedError,
)
from treedrift.backends.rust_core import RustTreeCore
from treedrift.backends.rust_core.native import load_inspection, load_production

FULL, SWA = ComponentType.FULL, ComponentType.SWA


def key(*tokens: int) -> RadixKey:
    return RadixKey(array("q", tokens))


@pytest.fixture
def core() -> RustTreeCore:
    core = RustTreeCore(CacheInitParams())
    core.begin_insert(InsertParams(key=key(1, 2, 3), value=torch.arange(3)))
    return core


@pytest.mark.parametrize(
    "call",
    [
        lambda core: core.is_root(99),
        lambda core: core.inc_lock_ref(99),
        lambda core: core.dec_lock_ref(99, DecLockRefParams()),
        lambda core: core.evict_device_leaf(99, False),
        lambda core: core.get_component_device_value(99, SWA),
        lambda core: core.collect_path_info([core.root_node_handle(), 99]),
        lambda core: core.build_backup_spec(99),
        lambda core: core.mark_write_through_pending([99], 1),
        lambda core: core.finish_swa_state_eviction(99),
        lambda core: core.adjust_component_size(99, SWA, 1),
    ],
)
def test_an_unknown_handle_is_named_by_the_error(
    core: RustTreeCore, call: Callable[[TreeCore], Any]
) -> None:
    with pytest.raises(UnknownNodeError) as caught:
        call(core)
    assert caught.value.args == (99,)
    assert isinstance(caught.value, KeyError)


@pytest.mark.parametrize(
    ("handle", "error"),
    [
        (True, TypeError),
        ("1", TypeError),
        (1.0, TypeError),
        (-1, OverflowError),
        (2**64, OverflowError),
    ],
)
def test_a_handle_is_an_unsigned_int(
    core: RustTreeCore, handle: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        core.is_root(handle)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"value": [1, 2]}, TypeError),
        ({"value": torch.arange(1)}, InvalidArgumentError),
        ({"value": torch.zeros(2)}, InvalidArgumentError),
        ({"value": torch.zeros(2, 2, dtype=torch.int64)}, InvalidArgumentError),
        ({"value": torch.empty(2, dtype=torch.int64, device="meta")}, InvalidArgumentError),
        ({"key": RadixKey([1, 2])}, ContractError),
        ({"key": RadixKey(array("l", [1, 2]))}, ContractError),
        ({"key": RadixKey(array("Q", [1, 2]))}, ContractError),
        ({"key": RadixKey(array("q", [1, 2]), limit=-1)}, InvalidArgumentError),
        ({"key": RadixKey(array("q", [1, 2]), extra_key=3)}, TypeError),
        ({"prev_prefix_len": -1}, OverflowError),
        ({"inserted_len": 2**64}, OverflowError),
        ({"component_evicted_seqlens": {SWA: -1}}, OverflowError),
        ({"priority": 2**63}, OverflowError),
        ({"rotation_base": "1"}, TypeError),
        ({"session_id": 5}, TypeError),
        ({"track_adopted_ranges": 1}, TypeError),
    ],
)
def test_a_bad_insert_is_refused_and_changes_nothing(
    core: RustTreeCore, fields: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        core.begin_insert(InsertParams(**({"key": key(8, 9), "value": torch.arange(2)} | fields)))
    assert core.total_size() == (3, 0)
    assert not core.has_ongoing_insert()


def test_a_second_insert_is_refused_before_its_value_is_looked_at(core: RustTreeCore) -> None:
    core.enable_external_cache_linker = True
    core.write_through_threshold = 1
    core.begin_insert(InsertParams(key=key(1, 2, 3, 4), value=torch.arange(4)))
    with pytest.raises(InsertProtocolError):
        core.begin_insert(InsertParams(key=key(1), value=torch.zeros(1)))
    core.end_insert()
    with pytest.raises(InsertProtocolError):
        core.resume_insert()


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"page_size": 0}, InvalidArgumentError),
        ({"page_size": -1}, InvalidArgumentError),
        ({"page_size": True}, TypeError),
        ({"page_size": 2**64}, OverflowError),
        ({"eviction_policy": "t-lru"}, InvalidArgumentError),
        ({"eviction_policy": None}, TypeError),
        ({"eviction_policy_config": {"threshold": 1}}, TypeError),
        (
            {"eviction_policy": "slru", "eviction_policy_config": {"protected_threshold": 2.0}},
            TypeError,
        ),
        (
            {"eviction_policy": "slru", "eviction_policy_config": {"protected_threshold": 2**63}},
            OverflowError,
        ),
        ({"eviction_policy": "tlru", "eviction_policy_config": {"threshold": "1"}}, TypeError),
        (
            {
                "eviction_policy": "tlru",
                "eviction_policy_config": {"threshold": 1.0, "next_prompt_estimate": 2**127},
            },
            OverflowError,
        ),
        (
            {
                "eviction_policy": "tlru",
                "eviction_policy_config": {"threshold": 10**400, "next_prompt_estimate": 0.5},
            },
            OverflowError,
        ),
        ({"enable_kv_cache_events": 1}, TypeError),
        ({"tree_components": (FULL, ComponentType.C128)}, UnsupportedError),
        ({"tree_components": (SWA, FULL), "sliding_window_size": 2}, UnsupportedError),
        ({"enable_session_radix_cache": True}, UnsupportedError),
        ({"component_registry_override": {FULL: object}}, UnsupportedError),
    ],
)
def test_bad_configurations_are_refused(fields: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        RustTreeCore(CacheInitParams(**fields))


def test_integers_of_any_size_are_good_parameters_of_t_lru() -> None:
    for threshold, estimate in [(10**50, 0), (0, 10**50), (10**50, 10**50 - 1), (1.5, 2**100)]:
        config = {"threshold": threshold, "next_prompt_estimate": estimate}
        RustTreeCore(CacheInitParams(eviction_policy="TLRU", eviction_policy_config=config))


def test_fixed_facts_cannot_be_assigned(core: RustTreeCore) -> None:
    for name in ("page_size", "enable_hicache", "is_host_memory_buffer_only"):
        with pytest.raises(AttributeError):
            setattr(core, name, 1)
    for name in ("enable_storage", "is_write_back", "enable_external_cache_linker"):
        with pytest.raises(TypeError):
            setattr(core, name, 1)
    with pytest.raises(OverflowError):
        core.write_through_threshold = 2**63
    assert core.write_through_threshold == 256


def test_the_host_tier_is_refused_by_name(core: RustTreeCore) -> None:
    node = core.root_node_handle()
    with pytest.raises(UnsupportedError, match="host tier"):
        core.set_hicache_enabled()
    with pytest.raises(UnsupportedError, match="host tier"):
        core.finish_load_back(node)
    with pytest.raises(UnsupportedError, match="host tier"):
        core.has_swa_host_pool = True
    with pytest.raises(ContractError):
        core.demote(node)


def test_components_that_the_core_lacks_are_refused(core: RustTreeCore) -> None:
    node = core.root_node_handle()
    with pytest.raises(ContractError):
        core.evict_device_start(SWA, 1)
    with pytest.raises(ContractError):
        core.component_has_host_value_only(node, SWA)
    with pytest.raises(InvalidArgumentError):
        core.adjust_component_size(node, SWA, 1)
    with pytest.raises(InvalidArgumentError):
        core.evict_device_start(7, 1)
    assert core.component_evictable_size(SWA) == 0
    assert core.drive_host_eviction(SWA, 1).tracker == {}
    assert core.drive_host_eviction(FULL, 1).tracker == {FULL: 0}


def test_protocol_violations_are_contract_errors(core: RustTreeCore) -> None:
    node = core.match_prefix(MatchPrefixParams(key(1, 2, 3))).best_match_node
    receipt = core.inc_lock_ref(node).to_dec_params()
    with pytest.raises(ContractError):
        core.dec_lock_ref(core.root_node_handle(), receipt)
    with pytest.raises(ContractError):
        core.evict_device_leaf(node, False)
    with pytest.raises(ContractError):
        core.evict_device_leaf(node, True)
    core.dec_lock_ref(node, receipt)
    with pytest.raises(ContractError):
        core.dec_lock_ref(node, receipt)
    with pytest.raises(AncestorError):
        core.mark_external_cache_stored_path(core.root_node_handle(), node)
    core.adjust_component_size(node, FULL, 1)
    with pytest.raises(SanityCheckError, match=r"^Sanity check FAILED \(1 violations"):
        core.sanity_check([], [])


def test_the_native_core_is_sealed() -> None:
    native = RustTreeCore(CacheInitParams(), native=load_production()).native
    with pytest.raises(TypeError):
        type("Sub", (type(native),), {})
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            duplicate(native)
    with pytest.raises(AttributeError):
        native.extra = 1
    assert not hasattr(native, "__dict__")


def test_a_panic_poisons_its_core_and_no_other() -> None:
    module = load_inspection()
    if module is None:
        pytest.skip("the inspection build is not there")
    core, other = (RustTreeCore(CacheInitParams(), native=module) for _ in range(2))
    with pytest.raises(CorePoisonedError, match="asked for by a test"):
        core.native.inspect_panic()
    for call in (core.reset, core.total_size, core.take_events, core.root_node_handle):
        with pytest.raises(CorePoisonedError):
            call()
    with pytest.raises(CorePoisonedError):
        _ = core.enable_storage
    other.reset()


def test_a_production_build_shows_nothing() -> None:
    module = load_production()
    assert b"inspect_" not in Path(module.__file__).read_bytes()
    native = RustTreeCore(CacheInitParams(), native=module).native
    assert not [name for name in dir(native) if name.startswith("inspect")]
