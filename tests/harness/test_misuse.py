"""Calls that every core must refuse: none is accepted, none changes anything, all agree."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from treedrift.backends import registry
from treedrift.backends.contract import (
    CacheInitParams,
    ComponentType,
    InsertParams,
    InvalidArgumentError,
    KvEventLoraNames,
    MatchPrefixParams,
    RadixKey,
    TreeCore,
)
from treedrift.backends.python_core import PythonTreeCore
from treedrift.backends.python_core.inspection import inspect_tree
from treedrift.harness import observation
from treedrift.harness.config import Config
from treedrift.harness.misuse import MISUSES, PARAMETERS, is_misuse
from treedrift.harness.ops import AnyOp, CoreInsert, Misuse
from treedrift.harness.recorder import Recorder, parameters_of, recorded_methods
from treedrift.harness.side import LocalSide, Settings

ACCEPTED = {"buffer_backup_pool_keys", "rotation_phase_of"}
"""Calls that are good for a node that is there; they are in the table for those that are not."""

COUNT = 5
FULL, SWA, MAMBA = ComponentType.FULL, ComponentType.SWA, ComponentType.MAMBA
TREES = {(FULL,): SWA, (FULL, SWA, MAMBA): ComponentType.AUXILIARY_SWA}
"""Trees that are misused, and a component that each of them lacks."""


def core_with_a_leaf(
    create: Callable[[CacheInitParams], TreeCore], components: tuple[ComponentType, ...]
) -> tuple[Any, int]:
    core: Any = Recorder(
        create(
            CacheInitParams(
                page_size=2,
                is_eagle=MAMBA not in components,
                tree_components=components,
                sliding_window_size=3 if SWA in components else None,
                mamba_cache_chunk_size=1 if MAMBA in components else None,
                enable_mamba_extra_buffer=MAMBA in components,
            )
        )
    )
    key = RadixKey(array("q", range(COUNT)))
    step = core.begin_insert(
        InsertParams(key=key, value=torch.arange(COUNT), mamba_value=torch.tensor([1]))
    )
    while step.result is None:
        for action in step.actions:
            core.set_component_device_value(action.node_id, SWA, action.source_value)
        step = core.resume_insert()
    core.end_insert()
    return core, core.match_prefix(MatchPrefixParams(key)).last_device_node


def refusal(core: Any, name: str, node: int, lacking: ComponentType) -> str | None:
    """The class of the error that a call of the table ends with."""
    error: Exception | None = None
    try:
        MISUSES[name](core, node, lacking)
    except Exception as raised:
        error = raised
    assert error is None or error is core.last_error, f"the harness itself failed: {error!r}"
    return None if error is None else type(error).__name__


@pytest.mark.parametrize("components", TREES)
@pytest.mark.parametrize("name", sorted(set(MISUSES) - ACCEPTED))
def test_the_python_core_refuses_a_misuse_and_changes_nothing(
    name: str, components: tuple[ComponentType, ...]
) -> None:
    lacking = TREES[components]
    if is_misuse(name, lacking, components):
        core, leaf = core_with_a_leaf(PythonTreeCore, components)
        before = inspect_tree(core.core)
        assert refusal(core, name, leaf, lacking) is not None
        assert inspect_tree(core.core) == before


@pytest.mark.parametrize("components", TREES)
@pytest.mark.parametrize("node", ["leaf", "unknown", "too wide"])
def test_our_cores_refuse_every_misuse_alike(
    node: str, components: tuple[ComponentType, ...]
) -> None:
    backends = [registry.local_backend(name) for name in ("python", "rust")]
    cores = [core_with_a_leaf(backend.create, components) for backend in backends]
    lacking = TREES[components]
    shown = []
    for core, leaf in cores:
        handle = {"leaf": leaf, "unknown": 10**9, "too wide": 2**64}[node]
        names = [name for name in MISUSES if is_misuse(name, lacking, components)]
        shown.append({name: refusal(core, name, handle, lacking) for name in names})
    assert shown[0] == shown[1]


def test_a_call_that_the_tree_has_a_use_for_is_not_made() -> None:
    side = LocalSide(PythonTreeCore)
    config = Config(components=("full", "swa", "mamba"), window=2)
    assert side.open(config, Settings(tree_every=1)) is None
    methods = ("evict_device_start", "evict_excess_path_states", "has_swa_host_pool:unsupported")
    trace: list[AnyOp] = [CoreInsert([1, 2]), *map(Misuse, methods)]
    seen = [observation.decode(data) for data in side.run(trace).observations]
    assert [one.calls for one in seen[1:]] == [[], [], []]


def test_every_method_that_takes_arguments_is_misused() -> None:
    misused = {name.partition(":")[0] for name in MISUSES}
    taking = {name for name in recorded_methods() if parameters_of(name)}
    assert taking <= misused
    for method, parameters in PARAMETERS.items():
        assert len(parameters) <= len(parameters_of(method))


def test_an_unknown_misuse_does_nothing() -> None:
    side = LocalSide(PythonTreeCore)
    assert side.open(Config(), Settings()) is None
    trace: list[AnyOp] = [CoreInsert([1, 2]), Misuse("no_such_call")]
    seen = side.run(trace)
    assert len(seen.observations) == len(trace)
    assert not seen.alarms


# --- What the table can't name ------------------------------------------------------------

OUR_CORES = pytest.mark.parametrize("core_name", ["python", "rust"])


def create(core_name: str, **changes: Any) -> Any:
    return registry.local_backend(core_name).create(CacheInitParams(page_size=1, **changes))


@OUR_CORES
def test_a_fixed_setting_can_not_be_assigned(core_name: str) -> None:
    core = create(core_name)
    for name in ("page_size", "is_eagle", "enable_hicache", "supports_rotation_base"):
        with pytest.raises(AttributeError):
            setattr(core, name, True)


@OUR_CORES
@pytest.mark.parametrize("device", ["no such device", "meta", "cpu:1"])
def test_a_device_that_no_tree_can_live_on_is_refused(core_name: str, device: str) -> None:
    with pytest.raises(InvalidArgumentError):
        create(core_name, token_to_kv_pool_allocator=SimpleNamespace(device=device))


@OUR_CORES
def test_text_that_can_not_be_encoded_is_refused(core_name: str) -> None:
    core = create(core_name)
    key = RadixKey(array("q", [1]), extra_key="\ud800")
    with pytest.raises(UnicodeEncodeError):
        core.match_prefix(MatchPrefixParams(key))
    with pytest.raises(UnicodeEncodeError):
        core.begin_insert(InsertParams(key=RadixKey(array("q", [1])), session_id="\ud800"))
    assert core.total_size() == (0, 0)


@OUR_CORES
def test_any_iterable_of_handles_or_components_will_do(core_name: str) -> None:
    core = create(core_name)
    core.begin_insert(InsertParams(key=RadixKey(array("q", [1])), value=torch.tensor([5])))
    leaf = core.match_prefix(MatchPrefixParams(RadixKey(array("q", [1]), limit=2**70)))
    handle = leaf.last_device_node
    assert handle != core.root_node_handle()
    assert core.dfs_weight_order(iter([handle, handle])) == [0, 1]
    receipt = core.inc_lock_ref(handle, iter([ComponentType.FULL, True]))
    assert receipt.skipped_lock_components == (ComponentType.FULL, ComponentType.SWA)
    core.inc_full_pin(handle)
    core.sanity_check([[1, handle]], [])


@OUR_CORES
def test_a_table_of_names_that_fails_stops_an_insert_before_it_changes_anything(
    core_name: str,
) -> None:
    names = KvEventLoraNames()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KvEventLoraNames, "get", _fail)
        core = create(core_name, enable_kv_cache_events=True, kv_event_lora_names=names)
        with pytest.raises(LookupError):
            core.begin_insert(InsertParams(key=RadixKey(array("q", [1])), value=torch.tensor([5])))
    assert not core.has_ongoing_insert()
    assert core.total_size() == (0, 0)
    assert core.take_events() == []


def _fail(names: KvEventLoraNames, extra_key: str | None) -> str | None:
    raise LookupError(extra_key)
