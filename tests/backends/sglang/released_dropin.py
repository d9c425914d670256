"""What a worker checks of the drop-in inside the environment of a released SGLang.

`make_handlers` answers `run` with the checks that failed. SGLang's own cache, on pools that are
made here as small as they can be, is served by a core of SGLang's and by ours behind the drop-in.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import random
import sys
import traceback
from array import array
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from treedrift.backends import contract
from treedrift.backends.contract import ComponentType, InvalidArgumentError, UnsupportedError
from treedrift.backends.python_core import PythonTreeCore
from treedrift.backends.rust_core import RustTreeCore
from treedrift.backends.sglang.crossing import Crossing
from treedrift.backends.sglang.dropin import contract_params, drop_in, reason_to_fall_back
from treedrift.backends.sglang.methods import methods_of_release
from treedrift.backends.sglang.pairing import OF_THE_CACHE, paired_types
from treedrift.backends.sglang.release import ReleaseMismatchError

CORES: dict[str, Any] = {"treedrift-python": PythonTreeCore, "treedrift-rust": RustTreeCore}
SETS = [["FULL"], ["FULL", "SWA"], ["FULL", "MAMBA"], ["FULL", "SWA", "MAMBA"]]
WINDOW, SLOTS, ROWS, STATES = 4, 96, 8, 12


def _neighbour(name: str) -> ModuleType:
    """A module beside this one; a worker finds this one by its path."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


crossing_values = _neighbour("values_that_cross")


# --- Values ---------------------------------------------------------------------------------------


def values_survive_both_crossings() -> None:
    release = methods_of_release().release
    chance = random.Random(7)
    for owns in (True, False):
        outward = Crossing(release, inward=False, owns=owns)
        inward = Crossing(release, inward=True, owns=owns)
        for name, kind in paired_types().items():
            if release.find(name) is not None:
                for _ in range(20):
                    _crosses_twice(crossing_values.make_struct(kind, chance), outward, inward)


def _crosses_twice(ours: Any, outward: Crossing, inward: Crossing) -> None:
    release, name, plain = methods_of_release().release, type(ours).__name__, crossing_values.plain
    # Published apart, or left behind by copies.
    kept = {"mamba_cache_chunk_size": None, "mamba_max_states_per_path": -1, "req": None}
    for field in kept.keys() & set(crossing_values.fields(ours)):
        setattr(ours, field, kept[field])
    try:
        theirs = inward.struct(ours)
    except UnsupportedError:
        if not release.missing:
            raise
        return  # Older releases lack some types and fields.
    assert type(theirs) is release.type(name), name
    _holds_nothing_of("treedrift", theirs)
    back = outward.struct(theirs)
    _holds_nothing_of("sglang", back)
    if not release.missing:
        assert plain(back) == plain(ours), f"{name}: {plain(back)} is not {plain(ours)}"
    again = inward.struct(back)
    if "device_indices" not in (crossing_values.fields(theirs) or {}):
        assert plain(again) == plain(theirs), name
    _drain(theirs)
    _drain(again)


def _holds_nothing_of(package: str, value: Any) -> None:
    found = {type(part) for part in crossing_values.parts(value)}
    assert not [kind for kind in found if kind.__module__.startswith(package)], found


def _drain(result: Any) -> None:
    for name in contract.BUFFERS:
        if isinstance(held := getattr(result, name, None), (dict, list)):
            held.clear()


# --- The class that SGLang sees -------------------------------------------------------------------


def sglang_sees_one_of_its_own() -> None:
    from sglang.srt.mem_cache.unified_cache.unified_tree_core_interface import (
        UnifiedTreeCoreInterface,
    )

    for build in CORES.values():
        served = drop_in(build(contract.CacheInitParams()))
        assert isinstance(served, UnifiedTreeCoreInterface)
        assert not type(served).__abstractmethods__
        for name in UnifiedTreeCoreInterface.__annotations__:
            assert getattr(served, name) is not None, name
        for name in methods_of_release().names:
            assert name in vars(type(served)), name


def refusals_and_errors_pass_as_they_are() -> None:
    from sglang.srt.mem_cache.unified_cache.component_type import ComponentType as Released

    for build in CORES.values():
        served = drop_in(build(contract.CacheInitParams()))
        served.write_through_threshold = 2
        served.is_write_back = True
        assert (served.write_through_threshold, served.is_write_back) == (2, True)
        error = _raised(KeyError, served.is_root, 10**6)
        assert error.args == (10**6,)
        error = _raised(NotImplementedError, served.build_backup_spec, served.root_node_handle())
        assert "host tier" in str(error)
        _raised(AssertionError, served.evict_device_end, Released.FULL)
        _raised(AttributeError, setattr, served, "page_size", 2)


def _raised(kind: type[Exception], call: Callable[..., Any], *args: Any) -> Exception:
    try:
        call(*args)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def path_states_go_into_the_callers_buffers() -> None:
    from sglang.srt.mem_cache.base_prefix_cache import InsertParams
    from sglang.srt.mem_cache.radix_cache import RadixKey
    from sglang.srt.mem_cache.unified_cache.component_type import ComponentType as Released

    components = (ComponentType.FULL, ComponentType.MAMBA)
    for build in CORES.values():
        served = drop_in(
            build(
                contract.CacheInitParams(
                    tree_components=components,
                    mamba_cache_chunk_size=64,
                    mamba_max_states_per_path=1,
                )
            )
        )
        for length in (2, 4):
            key = RadixKey(array("q", range(length)))
            step = served.begin_insert(
                InsertParams(
                    key=key, value=torch.arange(1, length + 1), mamba_value=torch.tensor([length])
                )
            )
            tails = [getattr(action, "tail_node_id", None) for action in step.actions]
            if length == 4:
                break
            served.end_insert()
        device: Any = defaultdict(list)
        host: Any = defaultdict(list)
        actions: list[Any] = []
        takes = methods_of_release().signatures["evict_excess_path_states"].theirs
        more = [actions] if "cache_actions" in takes else []
        served.evict_excess_path_states(tails[-1], device, host, *more)
        freed = {kind: [part.tolist() for part in parts] for kind, parts in device.items()}
        assert freed == {Released.MAMBA: [[2]]}, freed
        assert all(type(kind) is Released for kind in freed)
        assert served.resume_insert().result.prefix_len == 2


# --- Parameters -----------------------------------------------------------------------------------


def parameters_are_converted_or_refused_by_name() -> None:
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams
    from sglang.srt.mem_cache.unified_cache.component_type import ComponentType as Released

    def given(*components: Any, **more: Any) -> Any:
        return CacheInitParams(
            disable=False,
            req_to_token_pool=None,
            token_to_kv_pool_allocator=None,
            page_size=4,
            tree_components=components or (Released.FULL,),
            **more,
        )

    plain = given(eviction_policy="slru")
    found = contract_params(plain)
    assert (found.page_size, found.eviction_policy) == (4, "slru")
    assert found.tree_components == (ComponentType.FULL,)
    assert type(found.tree_components[0]) is ComponentType
    for name in OF_THE_CACHE["CacheInitParams"] & {
        field.name for field in dataclasses.fields(CacheInitParams)
    }:
        assert contract_params(dataclasses.replace(plain, **{name: 1})).page_size == 4
    assert reason_to_fall_back(plain) is None
    refused = {
        "enable_session_radix_cache": given(enable_session_radix_cache=True),
        "C128": given(Released.FULL, Released.C128),
        "component_registry_override": given(component_registry_override={Released.FULL: object}),
        "meta": dataclasses.replace(plain, token_to_kv_pool_allocator=_OnMeta()),
    }
    for name, one in refused.items():
        assert name in str(reason_to_fall_back(one)), name
        assert name in str(_raised(UnsupportedError, contract_params, one))
    nameless = dataclasses.replace(plain, tree_components=None)
    assert "tree_components" in str(_raised(UnsupportedError, contract_params, nameless))


class _OnMeta:
    device = "meta"


def mamba_figures_are_those_that_the_process_published() -> None:
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams
    from sglang.srt.mem_cache.unified_cache.component_type import ComponentType as Released
    from sglang.srt.runtime_context import get_context

    given = CacheInitParams(
        disable=False,
        req_to_token_pool=None,
        token_to_kv_pool_allocator=None,
        page_size=1,
        tree_components=(Released.FULL, Released.MAMBA),
    )
    _raised(InvalidArgumentError, contract_params, given)
    with get_context().override_server_args(
        _mamba_cache_chunk_size=128, mamba_max_states_per_path=5
    ):
        found = contract_params(given)
    assert (found.mamba_cache_chunk_size, found.mamba_max_states_per_path) == (128, 5)


# --- Calls ----------------------------------------------------------------------------------------


def calls_come_out_of_a_released_core_as_copies() -> None:
    from sglang.srt.mem_cache.base_prefix_cache import InsertParams, MatchPrefixParams
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams
    from sglang.srt.mem_cache.radix_cache import RadixKey
    from sglang.srt.mem_cache.rust_tree_core.adapter import RustUnifiedTreeCore
    from sglang.srt.mem_cache.unified_cache.component_type import ComponentType as Released

    methods = methods_of_release()
    core = RustUnifiedTreeCore(
        CacheInitParams(
            disable=False,
            req_to_token_pool=None,
            token_to_kv_pool_allocator=None,
            page_size=1,
            tree_components=(Released.FULL,),
        )
    )

    def call(name: str, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], Any, Any]:
        given = methods.arguments_out(name, args, kwargs)
        answer = getattr(core, name)(*args, **kwargs)
        return given, methods.answer_out(name, answer), answer

    key = RadixKey(array("q", [1, 2, 3]))
    value = torch.tensor([7, 8, 9])
    given, answer, _ = call("begin_insert", InsertParams(key=key, value=value, priority=4))
    assert list(given) == ["params"]
    assert given["params"].priority == 4
    key.token_ids[0] = 99
    value[0] = 99
    assert given["params"].key.token_ids.tolist() == [1, 2, 3]
    assert given["params"].value.tolist() == [7, 8, 9]
    assert type(answer) is contract.InsertStepResult
    call("end_insert")
    found = RadixKey(array("q", [1, 2, 3]))
    _, answer, _ = call("match_prefix", MatchPrefixParams(found, req=SimpleNamespace()))
    assert (answer.device_prefix_len, type(answer)) == (3, contract.MatchResult)
    node = answer.last_device_node
    given, receipt, theirs = call("inc_lock_ref", node, ())
    assert given == {"node_id": node}
    given, _, _ = call("dec_lock_ref", node, theirs.to_dec_params(), skip_swa=False)
    assert list(given) == ["node_id", "params"]
    assert crossing_values.plain(given["params"]) == crossing_values.plain(receipt.to_dec_params())
    call("evict_device_start", Released.FULL, 3)
    tracker = {Released.FULL: 0}
    given, step, theirs = call("evict_device_next_node", Released.FULL, tracker)
    assert given["tracker"] == {ComponentType.FULL: 0}
    _, leaf, theirs = call("evict_device_leaf", step.node_id, False)
    assert leaf.device_frees[ComponentType.FULL][0].tolist() == [7, 8, 9]
    assert theirs.device_frees[Released.FULL], "it was drained"
    theirs.device_frees.clear()
    assert leaf.device_frees
    call("evict_device_end", Released.FULL)
    wrong = methods.error_out("is_root", _raised(KeyError, core.is_root, 10**6))
    assert type(wrong) is contract.UnknownNodeError


# --- SGLang's cache -------------------------------------------------------------------------------


def our_cores_serve_sglangs_cache_like_its_own() -> None:
    from sglang.srt.mem_cache.unified_cache.tree_core_registry import register_tree_core_backend

    for name, build in CORES.items():
        register_tree_core_backend(
            name, lambda params, components, build=build: drop_in(build(contract_params(params)))
        )
    for components in SETS:
        for page in (1, 4):
            expected = _lived("python", components, page)
            for name in CORES:
                found = _lived(name, components, page)
                assert found == expected, _first_difference(name, components, page, found, expected)


def _first_difference(name: str, components: Any, page: int, found: Any, expected: Any) -> str:
    place = next(
        i
        for i, pair in enumerate(zip(found, expected, strict=False))
        if len(set(map(repr, pair))) > 1
    )
    return f"{name} {components} page {page}: {found[place]} is not {expected[place]}"


def _lived(core: str, components: list[str], page: int) -> list[Any]:
    """What a short life of SGLang's cache shows; every core lives the same one."""
    from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
    from sglang.srt.mem_cache.radix_cache import RadixKey

    cache, allocator, table = _cache(core, components, page)
    chance, shown = random.Random(5), []
    shortfall = {"num_tokens": 8}
    if "SWA" in components:
        shortfall["swa_num_tokens"] = 8
    if "MAMBA" in components:
        shortfall["mamba_num"] = 1
    for turn in range(40):
        tokens = array("q", [chance.randrange(3) for _ in range(chance.randrange(1, 6) * 2 * page)])
        found = cache.match_prefix(MatchPrefixParams(RadixKey(tokens[:])))
        nodes = dict.fromkeys((name for name in found._fields if "node" in name), 0)
        shown.append(crossing_values.plain(found._replace(**nodes)))
        slots, state = None, None
        while slots is None or ("MAMBA" in components and state is None):
            slots = _slots(allocator, len(tokens)) if slots is None else slots
            if "MAMBA" in components and state is None:
                state = table.mamba_allocator.alloc(1)
            if slots is None or ("MAMBA" in components and state is None):
                shown.append(crossing_values.plain(cache.evict(EvictParams(**shortfall))))
        added = cache.insert(InsertParams(key=RadixKey(tokens), value=slots, mamba_value=state))
        if state is not None and added.mamba_exist:
            table.mamba_allocator.free(state)
        shown.append([added.prefix_len, added.mamba_exist, cache.total_size()])
        shown.append([allocator.available_size(), cache.evictable_size(), cache.protected_size()])
        if turn % 7 == 0:
            end = cache.match_prefix(MatchPrefixParams(RadixKey(tokens[:]))).last_device_node
            receipt = cache.inc_lock_ref(end)
            shown.append(cache.protected_size())
            cache.dec_lock_ref(end, receipt.to_dec_params())
    shown.append([crossing_values.plain(event) for event in cache.take_events()])
    shown.append(crossing_values.plain(cache.evict(EvictParams(num_tokens=10**4))))
    cache.sanity_check()
    cache.reset()
    shown.append([crossing_values.plain(event) for event in cache.take_events()])
    return shown


def _slots(allocator: Any, count: int) -> Any:
    full = getattr(allocator, "full_attn_allocator", None)
    if full is None or allocator.page_size == 1:
        return allocator.alloc(count)
    window = allocator.swa_attn_allocator
    if min(full.available_size(), window.available_size()) < count:
        return None
    slots = full.alloc(count)
    allocator.set_full_to_swa_mapping(slots, window.alloc(count))
    return slots


def _cache(core: str, components: list[str], page: int) -> tuple[Any, Any, Any]:
    """SGLang's cache on CPU pools, with the pools whose sizes tell what it freed."""
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams
    from sglang.srt.mem_cache.unified_cache.component_type import ComponentType as Released
    from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

    # Needs packages of a server, and is only imported.
    parser: Any = ModuleType("sglang.srt.parser.reasoning_parser")
    parser.ReasoningParser = type("ReasoningParser", (), {})
    sys.modules.setdefault(parser.__name__, parser)
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

    arguments: Any = ServerArgs(model_path="dummy", device="cpu", page_size=page)
    arguments._mamba_cache_chunk_size = 64
    set_global_server_args_for_scheduler(arguments)
    table = _table("MAMBA" in components, page)
    allocator = _allocator(components, page, table)
    params = CacheInitParams(
        disable=False,
        req_to_token_pool=table,
        token_to_kv_pool_allocator=allocator,
        page_size=page,
        sliding_window_size=WINDOW if "SWA" in components else None,
        tree_components=tuple(Released[name] for name in components),
        enable_mamba_extra_buffer=page > 1,
        enable_kv_cache_events=True,
    )
    os.environ["SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"] = core
    return UnifiedRadixCache(params), allocator, table


def _table(has_states: bool, page: int) -> Any:
    from sglang.srt.configs.mamba_utils import Mamba2CacheParams, Mamba2StateShape
    from sglang.srt.mem_cache.memory_pool import HybridReqToTokenPool, ReqToTokenPool

    rows = {"size": ROWS, "max_context_len": 128, "device": "cpu", "enable_memory_saver": False}
    if not has_states:
        return ReqToTokenPool(**rows)
    shape = Mamba2StateShape.create(
        tp_world_size=1,
        intermediate_size=8,
        n_groups=1,
        num_heads=1,
        head_dim=8,
        state_size=4,
        conv_kernel=4,
    )
    return HybridReqToTokenPool(
        mamba_size=STATES,
        mamba_spec_state_size=ROWS,
        mamba_layer_ids=[1],
        cache_params=Mamba2CacheParams(shape=shape, layers=[1]),
        enable_mamba_extra_buffer=page > 1,
        speculative_num_draft_tokens=3,
        **rows,
    )


def _allocator(components: list[str], page: int, table: Any) -> Any:
    from sglang.srt.mem_cache import memory_pool
    from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
    from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
    from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
    from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool

    shape = {
        "size": SLOTS,
        "dtype": torch.float32,
        "device": "cpu",
        "page_size": page,
        "head_num": 1,
        "head_dim": 1,
    }
    if "SWA" in components:
        layers = {"full_attention_layer_ids": [0], "swa_attention_layer_ids": [1]}
        windows = SWAKVPool(size_swa=SLOTS, **layers, **shape)
        return SWATokenToKVPoolAllocator(SLOTS, SLOTS, page, torch.float32, "cpu", windows, False)
    shape["enable_memory_saver"] = False
    if "MAMBA" in components:
        pool = memory_pool.HybridLinearKVPool(
            full_attention_layer_ids=[0], mamba_pool=table.mamba_pool, **shape
        )
    else:
        pool = memory_pool.MHATokenToKVPool(layer_num=1, **shape)
    if page == 1:
        return TokenToKVPoolAllocator(SLOTS, torch.float32, "cpu", pool, False)
    return PagedTokenToKVPoolAllocator(SLOTS, page, torch.float32, "cpu", pool, False)


# --- Running --------------------------------------------------------------------------------------

CROSSINGS = (
    values_survive_both_crossings,
    parameters_are_converted_or_refused_by_name,
    mamba_figures_are_those_that_the_process_published,
    calls_come_out_of_a_released_core_as_copies,
)
STAND_INS = (
    sglang_sees_one_of_its_own,
    refusals_and_errors_pass_as_they_are,
    path_states_go_into_the_callers_buffers,
    our_cores_serve_sglangs_cache_like_its_own,
)


def run() -> dict[str, str]:
    """The checks that failed, with what they raised; finalizers that complained are one too.

    The oldest release is refused as a whole, and by name.
    """
    failed, complaints = {}, []
    sys.unraisablehook = lambda complaint: complaints.append(repr(complaint.exc_value))
    checks = CROSSINGS + STAND_INS
    try:
        drop_in(PythonTreeCore(contract.CacheInitParams()))
    except ReleaseMismatchError as refusal:
        if "receipts" in str(refusal):
            checks = CROSSINGS
    for check in checks:
        try:
            check()
        except Exception:
            failed[check.__name__] = traceback.format_exc()
    if complaints:
        failed["finalizers"] = "\n".join(complaints)
    return failed


def make_handlers(core_name: str) -> dict[str, Callable[[bytes], bytes]]:
    return {"run": lambda payload: json.dumps(run()).encode()}
