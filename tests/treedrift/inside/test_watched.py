"""Watching a core tells every outermost call, and neither the cache nor the core notices."""

from __future__ import annotations

import copy
import inspect
import threading
from array import array
from typing import Any

import pytest
import torch

from tests.treedrift.inside.contract_methods import ContractMethods
from treedrift.backends.contract import (
    CacheInitParams,
    ComponentType,
    ContractError,
    InsertParams,
    MatchPrefixParams,
    RadixKey,
)
from treedrift.backends.python_core import PythonTreeCore
from treedrift.backends.rust_core import RustTreeCore
from treedrift.harness.recorder import SETTINGS
from treedrift.harness.transcript.call import Call
from treedrift.inside.watched import CLEARED, WatchEndedError, WatchError, watch

CORES = [PythonTreeCore, RustTreeCore]
FULL, SWA, MAMBA = ComponentType.FULL, ComponentType.SWA, ComponentType.MAMBA


class Listener:
    """Keeps what it is told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Call]] = []

    def begins(self, call: Call) -> None:
        assert call.result is None
        self.told.append(("begins", call))

    def ends(self, call: Call) -> None:
        self.told.append(("ends", call))

    @property
    def calls(self) -> list[Call]:
        return [call for when, call in self.told if when == "ends"]

    @property
    def methods(self) -> list[str]:
        return [call.method for call in self.calls]


def key(*tokens: int) -> RadixKey:
    return RadixKey(array("q", tokens))


def insert(core: Any, *tokens: int) -> Any:
    value = torch.arange(1, len(tokens) + 1, dtype=torch.int64)
    return core.begin_insert(InsertParams(key=key(*tokens), value=value))


@pytest.fixture(params=CORES, ids=["python", "rust"])
def core(request: pytest.FixtureRequest) -> Any:
    return request.param(CacheInitParams(enable_kv_cache_events=True))


def watched(core: Any, listener: Any = None, strict: bool = False) -> tuple[Any, Any]:
    listener = listener or Listener()
    return watch(core, ContractMethods(), listener, strict), listener


def test_a_call_is_told_before_and_after_with_all_it_took_and_gave(core: Any) -> None:
    core, listener = watched(core)
    insert(core, 1, 2, 3)
    core.match_prefix(params=MatchPrefixParams(key(1, 2)))
    assert [when for when, _ in listener.told] == ["begins", "ends"] * 2
    first, second = listener.calls
    assert first.arguments["params"].value.tolist() == [1, 2, 3]
    assert (first.result.result.prefix_len, second.result.device_prefix_len) == (0, 2)
    assert list(second.arguments) == ["params"]
    assert second.error is None


def test_the_caller_gets_the_objects_of_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = []

    class Keeping(PythonTreeCore):
        def match_prefix(self, params: MatchPrefixParams) -> Any:
            answers.append(super().match_prefix(params))
            return answers[-1]

    core, listener = watched(Keeping(CacheInitParams()))
    assert core.match_prefix(MatchPrefixParams(key(1))) is answers[0]
    assert listener.calls[0].result is not answers[0]


def test_an_error_of_the_core_is_told_and_raised_as_it_is() -> None:
    error = ContractError("no")

    class Refusing(PythonTreeCore):
        def inc_full_pin(self, node_id: int) -> None:
            raise error

    core, listener = watched(Refusing(CacheInitParams()))
    with pytest.raises(ContractError) as caught:
        core.inc_full_pin(1)
    assert caught.value is error
    (call,) = listener.calls
    assert type(call.error) is ContractError
    assert call.error is not error
    assert call.error.__traceback__ is None


def test_what_a_core_calls_on_itself_is_not_told(core: Any) -> None:
    core, listener = watched(core)
    core.evictable_size()
    core.take_events()
    assert listener.methods == ["evictable_size", "take_events"]


def test_what_a_watcher_calls_on_the_core_is_not_told(core: Any) -> None:
    class Asking(Listener):
        def ends(self, call: Call) -> None:
            super().ends(call)
            core.total_size()

    _, listener = watched(core, Asking())
    core.evictable_size()
    assert listener.methods == ["evictable_size"]


def test_a_call_of_another_thread_waits_until_one_is_told(core: Any) -> None:
    class Interrupted(Listener):
        """While a read is being told, another thread inserts."""

        other = threading.Thread(target=lambda: insert(core, 1, 2))

        def ends(self, call: Call) -> None:
            super().ends(call)
            if call.method == "total_size":
                self.other.start()
                self.other.join(0.05)

    _, listener = watched(core, Interrupted())
    assert core.total_size() == (0, 0)
    listener.other.join()
    assert listener.methods == ["total_size", "begin_insert"]
    assert core.evictable_size() == 2


def test_properties_settings_and_clearings_are_told(core: Any) -> None:
    core, listener = watched(core)
    assert core.empty_match_result.device_prefix_len == 0
    core.enable_storage = False
    core.kv_events.record_all_cleared()
    assert listener.methods == ["empty_match_result", "enable_storage =", CLEARED]
    assert listener.calls[1].arguments == {"value": False}
    assert [type(event).__name__ for event in core.take_events()] == ["AllBlocksCleared"]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_reads_as_it_was_set(core: Any, name: str) -> None:
    plain = type(core)(CacheInitParams())
    watched(core)
    for one in (core, plain):
        try:
            setattr(one, name, 0)
        except Exception as error:
            one.told = type(error)  # Some settings need a tier that the core lacks.
    assert getattr(core, "told", None) is getattr(plain, "told", None)
    assert getattr(core, name) == getattr(plain, name)


def test_a_fixed_attribute_that_changes_ends_the_watching() -> None:
    class Open(PythonTreeCore):
        """A released core takes such an assignment."""

        page_size: Any = 1

    core, told = Open(CacheInitParams()), []
    watch(core, ContractMethods(), Listener(), on_fault=told.append)
    core.page_size = 1
    assert told == []
    core.page_size = 4
    assert ["page_size was set to 4" in str(fault) for fault in told] == [True]
    assert (core.page_size, type(core)) == (4, Open)


class Filling(PythonTreeCore):
    """A core that puts something into its caller's buffers."""

    def evict_excess_path_states(self, *args: Any, **kwargs: Any) -> None:
        kwargs["cache_actions"].append("action")


def test_buffers_are_told_as_they_were_filled() -> None:
    core, listener = watched(Filling(CacheInitParams()))
    actions: list[Any] = []
    core.evict_excess_path_states(1, {}, {}, cache_actions=actions)
    actions.clear()
    (call,) = listener.calls
    assert call.arguments == {"tail_node_id": 1}
    assert call.filled == {"device_frees": {}, "host_frees": {}, "cache_actions": ["action"]}


def test_what_buffers_held_before_a_call_is_not_told() -> None:
    class Freeing(PythonTreeCore):
        def evict_excess_path_states(self, tail_node_id: int, *buffers: Any) -> None:
            device_frees, host_frees, actions = buffers
            device_frees.setdefault(FULL, []).append("new")
            host_frees.setdefault(MAMBA, []).append("new")
            actions.append("new")

    core, listener = watched(Freeing(CacheInitParams()))
    buffers = {FULL: ["old"], SWA: ["old"]}, {}, ["old"]
    core.evict_excess_path_states(1, *buffers)
    filled = listener.calls[0].filled
    assert filled["device_frees"] == {FULL: ["new"]}
    assert filled["host_frees"] == {MAMBA: ["new"]}
    assert filled["cache_actions"] == ["new"]
    assert buffers[0] == {FULL: ["old", "new"], SWA: ["old"]}


def test_arguments_are_told_as_they_were_before_the_call() -> None:
    class Changing(PythonTreeCore):
        def match_prefix(self, params: MatchPrefixParams) -> Any:
            params.key.token_ids[0] = 9
            return super().match_prefix(params)

    core, listener = watched(Changing(CacheInitParams()))
    core.match_prefix(MatchPrefixParams(key(1)))
    assert listener.calls[0].arguments["params"].key.token_ids[0] == 1


def test_a_watched_core_looks_like_any_other(core: Any) -> None:
    kind, shown = type(core), set(dir(core))
    signature = inspect.signature(core.inc_lock_ref)
    watched(core)
    assert isinstance(core, kind)
    assert (type(core).__name__, type(core).__module__) == (kind.__name__, kind.__module__)
    assert set(dir(core)) == shown
    assert inspect.signature(core.inc_lock_ref) == signature
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        core.nothing  # noqa: B018
    core.anything = 1
    assert core.anything == 1


def test_a_copy_of_a_watched_core_is_not_watched() -> None:
    core, listener = watched(PythonTreeCore(CacheInitParams()))
    twin = copy.deepcopy(core)
    assert type(twin) is PythonTreeCore
    insert(twin, 1, 2)
    assert (core.evictable_size(), twin.evictable_size()) == (0, 2)
    assert listener.methods == ["evictable_size"]


def test_cores_are_watched_apart() -> None:
    (one, mine), (other, theirs) = (watched(PythonTreeCore(CacheInitParams())) for _ in range(2))
    one.total_size()
    assert (mine.methods, theirs.methods) == (["total_size"], [])
    other.total_size()
    assert theirs.methods == ["total_size"]


class Panic(BaseException):
    """What a native library may raise past every `except Exception`."""


class Faulty:
    """Methods and a watcher in one; `place` is what fails, with `fault`."""

    names = ContractMethods.names

    def __init__(self, place: str, fault: BaseException) -> None:
        self.place = place
        self.fault = fault

    def __getattr__(self, name: str) -> Any:
        if name == self.place:
            return self.fail
        return getattr(ContractMethods(), name, lambda *args: None)

    def fail(self, *args: Any) -> Any:
        raise self.fault


PLACES = ["arguments_out", "begins", "answer_out", "filled_out", "ends"]


def fill(core: Any) -> None:
    core.evict_excess_path_states(1, {}, {}, cache_actions=[])


@pytest.mark.parametrize("fault", [ValueError("a fault"), Panic("a fault")])
@pytest.mark.parametrize("place", PLACES)
def test_a_fault_is_told_once_and_the_core_goes_on_unwatched(
    place: str, fault: BaseException
) -> None:
    core, told = Filling(CacheInitParams()), []
    bad: Any = Faulty(place, fault)
    watch(core, bad, bad, on_fault=told.append)
    early = core.evictable_size
    fill(core)
    assert insert(core, 1, 2).result.prefix_len == 0
    assert told == [fault]
    assert type(core) is Filling
    assert early() == 2
    core.kv_events.record_all_cleared()
    core.is_write_back = False
    assert told == [fault]


@pytest.mark.parametrize("place", PLACES)
def test_a_strict_watch_raises_its_fault(place: str) -> None:
    core, told = Filling(CacheInitParams()), []
    bad: Any = Faulty(place, ValueError("a fault"))
    watch(core, bad, bad, strict=True, on_fault=told.append)
    with pytest.raises(ValueError, match="a fault"):
        fill(core)
    assert told == [bad.fault]
    assert type(core) is Filling


def test_a_fault_while_an_error_is_told_leaves_the_error() -> None:
    core, told = Filling(CacheInitParams()), []
    bad: Any = Faulty("error_out", ValueError("a fault"))
    watch(core, bad, bad, on_fault=told.append)
    with pytest.raises(KeyError):
        core.is_root(77)
    assert told == [bad.fault]


def test_a_hook_that_fails_too_reaches_nobody(caplog: pytest.LogCaptureFixture) -> None:
    core = PythonTreeCore(CacheInitParams())
    bad: Any = Faulty("begins", ValueError("a fault"))

    def fail(fault: BaseException) -> None:
        raise RuntimeError("the hook fails")

    watch(core, bad, bad, on_fault=fail)
    assert core.evictable_size() == 0
    assert "the hook fails" in caplog.text


def test_a_watcher_that_has_seen_enough_ends_the_watching_without_a_fault() -> None:
    for strict in (False, True):
        core, told = Filling(CacheInitParams()), []
        bad: Any = Faulty("ends", WatchEndedError("enough"))
        watch(core, bad, bad, strict, told.append)
        if strict:
            with pytest.raises(WatchEndedError):
                core.total_size()
        assert core.total_size() == (0, 0)
        assert (told, type(core)) == ([], Filling)


def test_an_interrupt_passes_and_ends_the_watching() -> None:
    class Interrupted(PythonTreeCore):
        def total_size(self) -> Any:
            raise KeyboardInterrupt

    core, listener = watched(Interrupted(CacheInitParams()))
    with pytest.raises(KeyboardInterrupt):
        core.total_size()
    core.evictable_size()
    assert listener.calls == []


def test_a_core_whose_class_is_fixed_is_refused_by_name() -> None:
    class Native:
        __slots__ = ("kv_events", "total_size")

    odd: Any = Native()
    odd.total_size, odd.kv_events = (lambda: 0), None
    with pytest.raises(WatchError, match=r"Native\.total_size is a member_descriptor"):
        watched(odd)


def test_a_queue_that_can_not_be_watched_leaves_the_core_as_it_was() -> None:
    core: Any = PythonTreeCore(CacheInitParams())
    core.kv_events = object()
    with pytest.raises(WatchError, match="object"):
        watched(core)
    assert type(core) is PythonTreeCore


def test_a_method_of_one_core_alone_is_refused_by_name() -> None:
    core: Any = PythonTreeCore(CacheInitParams())
    core.total_size = lambda: (0, 0)
    with pytest.raises(WatchError, match=r"methods of its own: \['total_size'\]"):
        watched(core)
