"""A proxy around a core that writes every call down as plain data.

The cache and the core ops call the core through it, so one place sees each argument, each field
of each result, each action and each error, at the moment the core answers: before the cache
drains a result or a later call changes it. It also adds up the time spent in the core.
"""

from __future__ import annotations

import inspect
import types
from collections import Counter
from collections.abc import Callable
from functools import cache
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol, Union, get_args, get_origin, get_type_hints

from ..backends import contract
from ..backends.contract import CorePoisonedError, TreeCore
from .behaviours import WATCHED
from .canonical import (
    HANDLE_FIELDS,
    HANDLE_LIST_FIELDS,
    Encoder,
    Names,
    Plain,
    argument,
    value,
    whole,
)

if TYPE_CHECKING:
    from .transcript.call import Call

UNRECORDED = frozenset({"__init__", "pretty_print"})
"""What the proxy passes through: the text that is printed is not part of the contract (CHK-22)."""

PROPERTIES = frozenset({"empty_match_result"})

BUFFERS = contract.BUFFERS
"""Parameters that the core fills; they are recorded after the call."""

SETTINGS = (
    "enable_storage",
    "enable_external_cache_linker",
    "write_through_threshold",
    "is_write_back",
    "has_swa_host_pool",
)
"""Attributes that a cache assigns (PLUG-1)."""


def recorded_methods() -> list[str]:
    """Names of all methods whose calls are written down."""
    names = [name for name, item in vars(TreeCore).items() if callable(item)]
    return [name for name in names if name not in UNRECORDED and not name.startswith("_")]


_RECORDED = frozenset(recorded_methods())


def _handle_result(names: Names, item: Any) -> Plain:
    return names.handle(item)


def _device_prefix_result(names: Names, item: Any) -> Plain:
    matched, node, pinned = item
    return [matched, names.handle(node), pinned]


def _handles_result(names: Names, item: Any) -> Plain:
    return [names.handle(node) for node in item]


def _sorted_indices(names: Names, item: Any) -> Plain:
    return value(names, item.sort().values)


def _sorted_rows(names: Names, item: Any) -> Plain:
    columns = (item.slot_indices, item.positions, item.prev_slot_indices)
    return sorted(zip(*[column.tolist() for column in columns], strict=True))


_UNORDERED: dict[str, Encoder] = {
    "all_values_flatten": _sorted_indices,
    "all_mamba_values_flatten": _sorted_indices,
    "walk_for_kv_canary": _sorted_rows,
}
"""Results that come in an arbitrary order from the released Rust core (BND-41)."""


def _events(names: Names, item: Any) -> Plain:
    """Events are never cut short: how they are grouped is compared apart from what they say."""
    return [whole(names, event) for event in item]


_RESULTS: dict[str, Encoder] = {
    "take_events": _events,
    "root_node_handle": _handle_result,
    "match_full_device_prefix": _device_prefix_result,
    "mark_write_through_pending": _handles_result,
}
"""Methods whose result holds handles outside a struct."""


def _asked_list(names: Names, item: Any) -> Plain:
    return [names.asked(one) for one in item]


def _transfers(names: Names, item: Any) -> Plain:
    return [[operation, names.asked(node)] for operation, node in item]


def _argument_encoder(name: str) -> Encoder:
    if name in HANDLE_FIELDS:
        return Names.asked
    if name in HANDLE_LIST_FIELDS:
        return _asked_list
    if name in ("ongoing_write_through", "ongoing_load_back"):
        return _transfers
    if name in BUFFERS:
        return lambda names, item: None
    return argument


class UnreadableAnswerError(Exception):
    """A core answered with something that the contract does not allow."""


class Hearer(Protocol):
    """Who hears calls with their own arguments and results, before anyone drains these."""

    def listener(self, method: str) -> Callable[..., None] | None:
        """What is called with the result and the arguments of each call; None for no interest."""

    def failed(self, method: str, error: Exception) -> None:
        """A call raised."""


class Recorder:
    """The recording proxy. It answers to every name of `TreeCore`; cast it to that type.

    `calls` holds one entry per call since it was last emptied: method, arguments, and either
    `["ok", result]`, `["error", class, handle or None]` or `["unreadable", class]`, after which
    `UnreadableAnswerError` is raised. With `ordered` False, results whose
    order some core leaves open are sorted first. `hearer` is told of every call as it is made.
    """

    def __init__(self, core: TreeCore, ordered: bool = True, hearer: Hearer | None = None) -> None:
        object.__setattr__(self, "core", core)
        object.__setattr__(self, "names", Names())
        object.__setattr__(self, "calls", [])
        object.__setattr__(self, "last_error", None)
        object.__setattr__(self, "clock", [0])
        object.__setattr__(self, "behaviours", Counter())
        object.__setattr__(self, "probe", None)
        object.__setattr__(self, "_hearer", hearer)
        object.__setattr__(self, "changed_by_refusal", [])
        results = _RESULTS if ordered else _RESULTS | _UNORDERED
        object.__setattr__(self, "_results", results)
        read_empty = self._wrap("empty_match_result", self._read_empty_match, value)
        object.__setattr__(self, "_read_empty", read_empty)

    core: TreeCore
    names: Names
    calls: list[Plain]
    last_error: BaseException | None
    clock: list[int]
    behaviours: Counter[str]
    probe: Callable[[], Any] | None
    changed_by_refusal: list[str]
    _hearer: Hearer | None
    _results: dict[str, Encoder]

    def watch_refusals(self, probe: Callable[[], Any] | None) -> None:
        """Compare what `probe` returns before and after every refused call (BND-45); None stops.

        Methods that changed something although they raised are added to `changed_by_refusal`.
        """
        object.__setattr__(self, "probe", probe)

    @property
    def core_ns(self) -> int:
        """Nanoseconds in the core; a plug that converts values counts its own core's time apart."""
        own = getattr(self.core, "core_ns", None)
        return self.clock[0] if own is None else int(own)

    def _read_empty_match(self) -> Any:
        return self.core.empty_match_result

    def __getattr__(self, name: str) -> Any:
        if name in PROPERTIES:
            return self._read_empty()
        if name not in _RECORDED:
            return getattr(self.core, name)
        # Wrapped when it is first called: a case calls a few of the many methods.
        wrapped = self._wrap(name, getattr(self.core, name), self._results.get(name, value))
        object.__setattr__(self, name, wrapped)
        return wrapped

    def __setattr__(self, name: str, new: Any) -> None:
        if name not in SETTINGS:
            raise AttributeError(f"a cache does not assign {name}")
        entry: list[Plain] = [f"{name} =", [new]]
        self.calls.append(entry)
        try:
            setattr(self.core, name, new)
        except Exception as error:
            entry.append(self._error(error))
            raise
        entry.append(["ok", None])

    def _error(self, error: Exception) -> Plain:
        object.__setattr__(self, "last_error", error)
        self.behaviours[f"error.{type(error).__name__}"] += 1
        return error_entry(self.names, error)

    def _wrap(
        self, name: str, method: Callable[..., Any], encode_result: Encoder
    ) -> Callable[..., Any]:
        names, calls, clock = self.names, self.calls, self.clock
        by_name = _argument_encoders(name)
        encoders = list(by_name.values())
        watch = WATCHED.get(name)
        hearer = self._hearer
        hear = hearer.listener(name) if hearer is not None else None
        answers = _answer_types(name)
        buffers = [place for place, asked in enumerate(by_name) if asked in BUFFERS]

        def call(*positional: Any, **keywords: Any) -> Any:
            try:
                arguments = [
                    encoder(names, item)
                    for encoder, item in zip(encoders, positional, strict=False)
                ]
            except Exception:
                # A misuse passes what no encoder is made for; its type is all there is to tell.
                arguments = [type(item).__name__ for item in positional]
            for parameter, item in keywords.items():
                arguments.append([parameter, by_name[parameter](names, item)])
            entry: list[Plain] = [name, arguments]
            calls.append(entry)
            before = self.probe() if self.probe is not None else None
            started = perf_counter_ns()
            try:
                result = method(*positional, **keywords)
            except Exception as error:
                clock[0] += perf_counter_ns() - started
                entry.append(self._error(error))
                self._check_refusal(name, before, error)
                if hearer is not None:
                    hearer.failed(name, error)
                raise
            clock[0] += perf_counter_ns() - started
            try:
                if not isinstance(result, answers):
                    raise TypeError(f"{name} must not return {type(result).__name__}")
                if watch is not None:
                    watch(self.behaviours, result, names.is_new)
                plain = encode_result(names, result)
                if hear is not None:
                    hear(result, *positional, **keywords)
            except Exception as error:
                entry.append(["unreadable", type(result).__name__])
                raise UnreadableAnswerError(f"{name} returned no answer: {error!r}") from error
            entry.append(["ok", plain])
            if buffers:
                filled = [positional[place] for place in buffers if place < len(positional)]
                filled += [keywords[asked] for asked in keywords if asked in BUFFERS]
                entry.append([value(names, item) for item in filled])
            return result

        return call

    def _check_refusal(self, name: str, before: Any, error: Exception) -> None:
        if before is None or self.probe is None or isinstance(error, CorePoisonedError):
            return
        if self.probe() != before:
            self.changed_by_refusal.append(name)


def arguments_of(names: Names, call: Call) -> Plain:
    """The arguments of a watched call, as an entry of `Recorder.calls` holds them.

    They stand at their places; one that the call leaves out is None.
    """
    given = call.arguments
    encoders = _argument_encoders(call.method)
    if not encoders:
        return list(given.values())
    return [encoder(names, given.get(parameter)) for parameter, encoder in encoders.items()]


def ending_of(names: Names, call: Call, ordered: bool = True) -> list[Plain]:
    """How a watched call ended: what an entry of `Recorder.calls` holds after the arguments."""
    method = call.method
    if call.error is not None:
        return [error_entry(names, call.error)]
    if method not in _RECORDED and method not in PROPERTIES:
        return [["ok", None]]  # An assignment, or the clearing of the event queue.
    results = _RESULTS if ordered else _RESULTS | _UNORDERED
    try:
        if not isinstance(call.result, _answer_types(method)):
            raise TypeError(f"{method} must not return {type(call.result).__name__}")
        ending: list[Plain] = [["ok", results.get(method, value)(names, call.result)]]
        if call.filled:
            filled = [name for name in parameters_of(method) if name in BUFFERS]
            ending.append([value(names, call.filled.get(name)) for name in filled])
    except Exception:
        return [["unreadable", type(call.result).__name__]]
    return ending


def error_entry(names: Names, error: BaseException) -> Plain:
    """How a call that raised ended: the error's class, and the handle that it is about."""
    detail = names.asked(error.args[0]) if isinstance(error, KeyError) and error.args else None
    return ["error", type(error).__name__, detail]


@cache
def _argument_encoders(name: str) -> dict[str, Encoder]:
    return {parameter: _argument_encoder(parameter) for parameter in parameters_of(name)}


@cache
def parameters_of(name: str) -> list[str]:
    """Parameter names of a method of the contract, in order."""
    item = vars(TreeCore).get(name)
    if item is None or isinstance(item, property):
        return []
    return [parameter for parameter in inspect.signature(item).parameters if parameter != "self"]


@cache
def _answer_types(name: str) -> tuple[type, ...]:
    """Classes of which a method's result must be, as the contract declares it.

    Lists and tuples are recorded alike, so either may stand for the other.
    """
    item = vars(TreeCore)[name]
    function = item.fget if isinstance(item, property) else item
    declared = get_type_hints(function)["return"]
    is_union = get_origin(declared) in (Union, types.UnionType)
    kinds = [get_origin(one) or one for one in (get_args(declared) if is_union else (declared,))]
    if Any in kinds or kinds == [types.NoneType]:
        return (object,)  # Nobody reads an answer that should be None; it is compared like others.
    if list in kinds or tuple in kinds:
        kinds += [list, tuple]
    return tuple(dict.fromkeys(kinds))
