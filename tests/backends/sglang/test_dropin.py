"""A core of the contract behind the interface of a stand-in release that differs in many places."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections import defaultdict, namedtuple
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tests.backends.sglang.stand_in_release import stand_in, stand_in_type
from treedrift.backends.contract import (
    AllBlocksCleared,
    BackupKV,
    BlockRemoved,
    CacheInitParams,
    ComponentType,
    DecLockRefParams,
    InsertResult,
    MatchPrefixParams,
    MatchResult,
    RadixKey,
    TreeCore,
    UnknownNodeError,
    UnsupportedError,
)
from treedrift.backends.python_core import PythonTreeCore
from treedrift.backends.sglang.dropin import drop_in_class
from treedrift.backends.sglang.methods import INTERFACE, Methods
from treedrift.backends.sglang.release import ReleaseMismatchError, fields_of

FULL, MAMBA = ComponentType.FULL, ComponentType.MAMBA
# Older releases have a named tuple that holds the slots instead of their number.
WITH_SLOTS = namedtuple("MatchResult", ["device_indices", *list(fields_of(MatchResult))[1:]])


class Interface(ABC):
    """Has a method and a property more, one parameter more, and two parameters less."""

    @abstractmethod
    def defragment(self, pages: int) -> None: ...

    @property
    @abstractmethod
    def temperature(self) -> float: ...

    @property
    @abstractmethod
    def empty_match_result(self) -> Any: ...

    @abstractmethod
    def match_prefix(self, params: Any) -> Any: ...

    @abstractmethod
    def dec_lock_ref(self, node_id: int, params: Any, skip_swa: bool = False, hint: int = 0) -> Any:
        """`hint` is new here."""

    @abstractmethod
    def evict_excess_path_states(
        self, tail_node_id: int, device_frees: Any, host_frees: Any
    ) -> None: ...

    @abstractmethod
    def component_evictable_size(self, component_type: Any) -> int: ...

    @abstractmethod
    def finish_load_back(self) -> None: ...

    @abstractmethod
    def commit_hicache_transfers(
        self,
        node_id: int,
        phase: Any,
        comp_xfers: Any,
        *,
        cache_actions: Any,
        insert_result: Any = None,
        pool_storage_result: Any = None,
    ) -> None: ...

    @abstractmethod
    def build_load_back_spec(self, node_id: int, req: Any = None) -> Any: ...

    @abstractmethod
    def is_root(self, node_id: int) -> bool: ...

    def take_events(self) -> list[Any]:
        return []


class Told:
    """A core that keeps what it was told; results are set beforehand."""

    def __init__(self, **results: Any) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.results = results
        self.kv_events = SimpleNamespace(
            enabled=True, record_all_cleared=lambda: None, take=lambda: [AllBlocksCleared()]
        )

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args, kwargs))
            result = self.results.get(name)
            return result(*args, **kwargs) if callable(result) else result

        return call


def methods_of(**changed: Any) -> Methods:
    return Methods(stand_in(**{INTERFACE: Interface}, **changed))


def serve(core: Any, methods: Methods | None = None) -> Any:
    return drop_in_class(methods or methods_of())(cast(TreeCore, core))


def python_core() -> PythonTreeCore:
    return PythonTreeCore(CacheInitParams(enable_kv_cache_events=True))


def key(*tokens: int) -> RadixKey:
    return RadixKey(array("q", tokens))


def test_sglang_sees_one_of_its_own_with_nothing_left_to_implement() -> None:
    served = serve(python_core())
    assert isinstance(served, Interface)
    assert not type(served).__abstractmethods__


def test_what_only_the_release_has_is_refused_by_name() -> None:
    served = serve(python_core())
    with pytest.raises(UnsupportedError, match="defragment"):
        served.defragment(3)
    with pytest.raises(NotImplementedError, match="temperature"):
        served.temperature  # noqa: B018
    with pytest.raises(NotImplementedError, match="root_node_handle"):
        served.root_node  # noqa: B018


def test_a_method_that_the_release_calls_with_too_little_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"finish_load_back: .* \['anchor_node_id'\]"):
        serve(Told()).finish_load_back()


def test_a_release_whose_receipts_name_no_node_is_refused() -> None:
    nameless = stand_in_type("DecLockRefParams", less=frozenset({"node_id"}))
    with pytest.raises(ReleaseMismatchError, match="receipts"):
        serve(python_core(), methods_of(DecLockRefParams=nameless))


def test_a_parameter_that_only_the_release_has_may_hold_its_default() -> None:
    core, methods = Told(), methods_of()
    served = serve(core, methods)
    receipt = methods.inward.struct(DecLockRefParams(4))
    served.dec_lock_ref(7, receipt, False, 0)
    served.dec_lock_ref(7, params=receipt)
    for name, args, kwargs in core.calls:
        assert (name, args, kwargs["node_id"], kwargs["params"].node_id) == (
            "dec_lock_ref",
            (),
            7,
            4,
        )
    with pytest.raises(ReleaseMismatchError, match=r"no place for dec_lock_ref\(hint=\)"):
        served.dec_lock_ref(7, receipt, False, 1)
    with pytest.raises(TypeError, match="takes 4"):
        served.dec_lock_ref(7, receipt, False, 0, 0)


def test_values_reach_the_core_in_the_contracts_types_and_come_back_in_the_releases() -> None:
    methods = methods_of()
    core = python_core()
    served = serve(core, methods)
    release = methods.release
    theirs = methods.inward.struct(MatchPrefixParams(key(1, 2)))
    assert type(served.match_prefix(theirs)) is release.type("MatchResult")
    assert type(served.empty_match_result) is release.type("MatchResult")
    assert served.component_evictable_size(release.type("ComponentType").FULL) == 0
    assert served.is_root(core.root_node_handle()) is True


def test_errors_of_the_core_pass_as_they_are() -> None:
    with pytest.raises(UnknownNodeError) as caught:
        serve(python_core()).is_root(10**6)
    assert isinstance(caught.value, KeyError)
    assert caught.value.args == (10**6,)


def test_attributes_are_the_cores() -> None:
    core = python_core()
    served = serve(core)
    served.write_through_threshold = 3
    served.enable_storage = True
    assert (core.write_through_threshold, core.enable_storage) == (3, True)
    assert (served.page_size, served.device) == (1, torch.device("cpu"))
    with pytest.raises(AttributeError):
        served.page_size = 2


def test_events_are_taken_in_the_releases_types() -> None:
    methods = methods_of()
    served = serve(python_core(), methods)
    assert served.kv_events.enabled is True
    served.kv_events.record_all_cleared()
    (event,) = served.take_events()
    assert type(event) is methods.release.type("AllBlocksCleared")
    assert served.kv_events.take() == []


def test_events_come_whole_and_in_order() -> None:
    told = [BlockRemoved([number]) for number in range(5)]
    core, methods = Told(), methods_of()
    core.kv_events.take = lambda: told
    taken = serve(core, methods).take_events()
    assert [event.block_hashes for event in taken] == [[number] for number in range(5)]


def test_sizes_are_the_cores() -> None:
    methods = methods_of()
    served = serve(Told(component_evictable_size=41), methods)
    assert served.component_evictable_size(methods.release.type("ComponentType").FULL) == 41


def filling(tail_node_id: int, device_frees: Any, host_frees: Any, cache_actions: Any) -> None:
    device_frees[MAMBA].append(torch.tensor([3]))
    host_frees[MAMBA].append(torch.tensor([4]))
    if tail_node_id == 0:
        cache_actions.append(BackupKV([1]))
    if tail_node_id < 0:
        raise UnknownNodeError(tail_node_id)


def test_buffers_of_the_caller_get_what_the_core_put_there() -> None:
    methods = methods_of()
    served = serve(Told(evict_excess_path_states=filling), methods)
    mamba = methods.release.type("ComponentType").MAMBA
    device: Any = defaultdict(list, {mamba: [torch.tensor([1])]})
    host: Any = defaultdict(list)
    served.evict_excess_path_states(5, device, host)
    assert [part.tolist() for part in device[mamba]] == [[1], [3]]
    assert [part.tolist() for part in host[mamba]] == [[4]]
    assert methods.filled_out(
        "evict_excess_path_states", (5, device), {"host_frees": host}
    ).keys() == {"device_frees", "host_frees"}


def test_buffers_are_filled_even_if_the_core_raises() -> None:
    device: Any = defaultdict(list)
    with pytest.raises(UnknownNodeError):
        serve(Told(evict_excess_path_states=filling)).evict_excess_path_states(-1, device, device)
    (tensors,) = device.values()
    assert [part.tolist() for part in tensors] == [[3], [4]]


def test_actions_for_which_the_release_has_no_buffer_are_refused_by_name() -> None:
    served = serve(Told(evict_excess_path_states=filling))
    with pytest.raises(UnsupportedError, match="takes no cache_actions"):
        served.evict_excess_path_states(0, defaultdict(list), defaultdict(list))


def test_a_result_of_the_caller_learns_what_the_core_says_through_it() -> None:
    def commit(node_id: int, insert_result: InsertResult, cache_actions: Any, **more: Any) -> None:
        insert_result.mamba_exist = True
        cache_actions.append(BackupKV([node_id]))

    methods = methods_of()
    served = serve(Told(commit_hicache_transfers=commit), methods)
    before = object()
    theirs, actions = methods.inward.struct(InsertResult(0)), [before]
    phase = methods.release.type("CacheTransferPhase").PREFETCH
    served.commit_hicache_transfers(9, phase, {}, cache_actions=actions, insert_result=theirs)
    assert theirs.mamba_exist is True
    assert actions[0] is before
    assert [type(action) for action in actions[1:]] == [methods.release.type("BackupKV")]


def test_a_match_names_its_slots_where_the_release_wants_them() -> None:
    slots = torch.tensor([8, 9])
    methods = methods_of(MatchResult=WITH_SLOTS)
    result = python_core().empty_match_result
    core = Told(match_prefix=result, collect_full_device_indices=slots, root_node_handle=0)
    theirs = methods.inward.struct(MatchPrefixParams(key(1)))
    assert serve(core, methods).match_prefix(theirs).device_indices is slots


# --- Calls as copies ------------------------------------------------------------------------------


def test_arguments_come_out_by_name_without_defaults_and_buffers() -> None:
    methods = methods_of()
    receipt = methods.inward.struct(DecLockRefParams(4))
    found = methods.arguments_out("dec_lock_ref", (7, receipt), {"skip_swa": False, "hint": 0})
    assert list(found) == ["node_id", "params"]
    assert methods.arguments_out("dec_lock_ref", (7, receipt, True), {})["skip_swa"] is True
    buffers: Any = ({}, {})
    assert methods.arguments_out("evict_excess_path_states", (3, *buffers), {}) == {
        "tail_node_id": 3
    }


def test_answers_come_out_as_copies_and_keep_what_they_hold() -> None:
    methods = methods_of()
    actions = methods.inward.struct(python_core().empty_match_result)
    found = methods.answer_out("empty_match_result", actions)
    assert methods.arguments_out("empty_match_result", (), {}) == {}
    assert found.device_prefix_len == 0
    assert found.cache_actions is not actions.cache_actions
    assert set(methods.names) >= {"match_prefix", "take_events"}
    assert "defragment" not in methods.names


def test_a_copy_of_a_load_back_takes_the_slot_of_the_request_alone() -> None:
    slot = torch.tensor(3)
    held = SimpleNamespace(kv=SimpleNamespace(mamba_pool_idx=slot), rid="r")
    copied = methods_of().arguments_out("build_load_back_spec", (1,), {"req": held})["req"]
    assert vars(copied).keys() == {"kv"}
    assert copied.kv.mamba_pool_idx.item() == 3
    assert copied.kv.mamba_pool_idx is not slot
    without = SimpleNamespace(kv=SimpleNamespace(mamba_pool_idx=None))
    assert methods_of().arguments_out("build_load_back_spec", (1,), {"req": without}) == {
        "node_id": 1
    }
