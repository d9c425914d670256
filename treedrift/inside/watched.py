"""Lets somebody watch every call of a cache on its core, without either noticing.

The core's class is exchanged for a subclass of its own that tells a watcher of each outermost
call: what a core calls on itself passes straight through. The cache keeps the core's own answers
and errors, the very same objects; the watcher sees copies in the contract's types, made by
`Crossing`. Hides how a call is caught, and keeps every fault of the watching from the cache.
"""

from __future__ import annotations

import functools
import inspect
import logging
import threading
import types
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from ..backends.contract import TreeCore
from ..harness.canonical import ATOMS
from ..harness.recorder import BUFFERS, PROPERTIES, SETTINGS, UNRECORDED, parameters_of
from ..harness.transcript.call import Call

CLEARED = "kv_events.record_all_cleared"
"""How a call names the one thing that a cache does on a core's event queue."""

FIXED = frozenset(TreeCore.__annotations__).difference(SETTINGS)
"""Attributes that a core alone changes: no call tells of another value from outside."""

LOG = logging.getLogger("treedrift")


class Crossing(Protocol):
    """How calls come out of a release into the contract: `backends.sglang.methods.Methods`.

    Everything that it returns is a copy. It may raise what it likes: that is a fault of the
    watching, which the cache never sees.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """The methods of the contract that it knows."""

    def arguments_out(
        self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        """Arguments by the contract's parameter names, without defaults and buffers."""

    def answer_out(self, method: str, answer: Any) -> Any:
        """What the method returned; nothing is drained."""

    def filled_out(
        self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        """What the caller's buffers hold after the call."""

    def error_out(self, method: str, error: BaseException) -> BaseException:
        """The contract's error for what the method raised, else the same error."""


class Watcher(Protocol):
    """Who is told of calls."""

    def begins(self, call: Call) -> None:
        """A call is about to be made: method and arguments are known."""

    def ends(self, call: Call) -> None:
        """The call has been made: its result, buffers and error are known too."""


class WatchError(Exception):
    """A core that can't be watched; the message says why."""


class WatchEndedError(Exception):
    """Raised by a watcher that has seen enough: no fault, and the core goes on unwatched."""


def log_fault(fault: BaseException) -> None:
    """Say in the log that the watching ended by a fault of its own."""
    LOG.error("a core is watched no longer: %r", fault, exc_info=fault)


def watch(
    core: Any,
    methods: Crossing,
    watcher: Watcher,
    strict: bool = False,
    on_fault: Callable[[BaseException], None] = log_fault,
) -> Any:
    """Tell `watcher` of every call on `core` from now on; returns the same core.

    Calls are those of the contract, assignments of settings (PLUG-1) and clearings of the event
    queue. A fault of `methods` or `watcher` is told to `on_fault` once, and the core goes on
    unwatched; with `strict` it is raised out of the call, as is a `WatchEndedError`.
    Raises `WatchError` for a core whose class can't be exchanged.
    """
    watching = _Watching(core, methods, watcher, strict, on_fault)
    watching.start()
    return core


class _Told:
    """One thing that is watched: its name, how it is done, and how it crosses.

    `fills`: whether the call fills buffers of its caller.
    """

    def __init__(
        self,
        name: str,
        original: Callable[..., Any],
        arguments_out: Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]],
        answer_out: Callable[[Any], Any],
    ) -> None:
        self.name = name
        self.original = original
        self.arguments_out = arguments_out
        self.answer_out = answer_out
        self.fills = bool(BUFFERS.intersection(parameters_of(name)))


class _Watching:
    """The state of watching one core.

    Calls of several threads, such as the reads of a meter beside the scheduler, are made and told
    one after the other. Else one that comes while another is being told would be missed.
    """

    def __init__(
        self,
        core: Any,
        methods: Crossing,
        watcher: Watcher,
        strict: bool,
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self._turn = threading.RLock()
        self._inside: int | None = None
        self._is_over = False
        self._core = core
        self._methods: Any = methods
        self._watcher: Any = watcher
        self._strict = strict
        self._on_fault = on_fault
        self._swapped: list[tuple[Any, type]] = []

    # --- Exchanging classes ---------------------------------------------------------------

    def start(self) -> None:
        """Exchange the classes of the core and of its event queue; both or none."""
        core = self._core
        own = sorted(set(self._methods.names) & set(getattr(core, "__dict__", ())))
        if own:
            raise WatchError(f"this {type(core).__name__} has methods of its own: {own}")
        events = core.kv_events
        if events is not core.kv_events:
            raise WatchError(f"{type(core).__name__} makes its kv_events anew at each look")
        try:
            self._swap(core, _core_namespace(type(core), self._methods, self))
            self._swap(events, _events_namespace(type(events), self))
        except BaseException:
            self._swap_back()
            raise

    def _swap(self, item: Any, namespace: dict[str, Any]) -> None:
        base = type(item)
        more = {
            "__slots__": (),
            "__module__": base.__module__,
            "__qualname__": base.__qualname__,
            "__doc__": base.__doc__,
            "__reduce_ex__": _reduced_as(base),
        }
        try:
            made = types.new_class(
                base.__name__, (base,), exec_body=lambda space: space.update(more | namespace)
            )
            item.__class__ = made
        except TypeError as error:
            raise WatchError(
                f"the class of a {base.__name__} can't be exchanged: {error}"
            ) from error
        self._swapped.append((item, base))

    def _swap_back(self) -> None:
        for item, base in self._swapped:
            item.__class__ = base
        self._swapped.clear()

    # --- One call -------------------------------------------------------------------------

    @property
    def is_passing(self) -> bool:
        """Whether a call of this thread is made within another, and so is not told."""
        return self._inside == threading.get_ident()

    def run(self, told: _Told, core: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make an outermost call when it is its turn, and tell of it before and after."""
        with self._turn:
            if self._is_over:
                return told.original(core, *args, **kwargs)
            self._inside = threading.get_ident()
            try:
                return self._run(told, core, args, kwargs)
            finally:
                self._inside = None

    def _run(self, told: _Told, core: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        held: dict[str, Any] = {}
        try:
            call = Call(told.name, told.arguments_out(args, kwargs))
            if told.fills:
                held = self._methods.filled_out(told.name, args, kwargs)
            self._watcher.begins(call)
        except BaseException as fault:
            self._over(fault)
            return told.original(core, *args, **kwargs)
        try:
            answer = told.original(core, *args, **kwargs)
        except BaseException as error:
            self._failed(told, call, error)
            raise
        try:
            call.result = told.answer_out(answer)
            if told.fills:
                call.filled = _added(held, self._methods.filled_out(told.name, args, kwargs))
            self._watcher.ends(call)
        except BaseException as fault:
            self._over(fault)
        return answer

    def _failed(self, told: _Told, call: Call, error: BaseException) -> None:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            self._end()  # Nobody knows how far the call came.
            return
        try:
            known = self._methods.error_out(told.name, error)
            call.error = _apart(error) if known is error else known
            self._watcher.ends(call)
        except BaseException as fault:
            self._over(fault)

    # --- The end --------------------------------------------------------------------------

    def _over(self, fault: BaseException) -> None:
        """End the watching after a fault; returns only if the caller is not to know."""
        self._end()
        if isinstance(fault, (KeyboardInterrupt, SystemExit)):
            raise fault
        if not isinstance(fault, WatchEndedError):
            try:
                self._on_fault(fault)
            except Exception as worse:
                log_fault(worse)
        if self._strict:
            raise fault

    def _end(self) -> None:
        # For ever: a caller may hold a method that it took while the core was watched.
        self._is_over = True
        self._swap_back()
        self._methods = self._watcher = None


def _apart(error: BaseException) -> BaseException:
    """An error of the same class that holds nothing of where it was raised."""
    kind = type(error)
    return kind.__new__(kind, *error.args)


def _added(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What a call appended to buffers that may have held something before (BND-20)."""
    return {name: _rest(before[name], now) for name, now in after.items()}


def _rest(before: Any, now: Any) -> Any:
    if not isinstance(now, dict):
        return now[len(before) :]
    rest = {kind: items[len(before.get(kind, ())) :] for kind, items in now.items()}
    return {kind: items for kind, items in rest.items() if items or kind not in before}


# --- Generated classes --------------------------------------------------------------------


def _core_namespace(base: type, methods: Crossing, watching: _Watching) -> dict[str, Any]:
    names = [name for name in methods.names if name not in UNRECORDED and hasattr(base, name)]
    namespace = {name: _watched_method(base, name, methods, watching) for name in names}
    for name in PROPERTIES:
        namespace[name] = _watched_property(base, name, methods, watching)
    namespace["__setattr__"] = _watched_assignments(base, watching)
    return namespace


def _told_method(name: str, original: Callable[..., Any], methods: Crossing) -> _Told:
    arguments_out = functools.partial(methods.arguments_out, name)
    return _Told(name, original, arguments_out, functools.partial(methods.answer_out, name))


def _watched_method(base: type, name: str, methods: Crossing, watching: _Watching) -> Any:
    found = inspect.getattr_static(base, name)
    if isinstance(found, property):
        return _watched_property(base, name, methods, watching)
    if not inspect.isroutine(found) or isinstance(found, (classmethod, staticmethod)):
        raise WatchError(f"{base.__name__}.{name} is a {type(found).__name__}, not a method")
    return _telling(_told_method(name, found, methods), watching)


def _telling(told: _Told, watching: _Watching) -> Any:
    original = told.original

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if watching.is_passing:
            return original(self, *args, **kwargs)
        return watching.run(told, self, args, kwargs)

    return method


def _watched_property(base: type, name: str, methods: Crossing, watching: _Watching) -> property:
    found = inspect.getattr_static(base, name, None)
    if not isinstance(found, property) or found.fget is None:
        raise WatchError(f"{base.__name__}.{name} is no property")
    told = _told_method(name, found.fget, methods)
    return property(_telling(told, watching), found.fset, found.fdel, found.__doc__)


def _watched_assignments(base: type, watching: _Watching) -> Callable[[Any, str, Any], None]:
    original: Any = base.__setattr__
    told = {name: _Told(f"{name} =", original, _assigned, _nothing) for name in SETTINGS}
    told |= {name: _Told(f"{name} =", original, _refused, _nothing) for name in FIXED}

    def assign(self: Any, name: str, value: Any) -> None:
        if name not in told or watching.is_passing or is_unchanged(self, name, value):
            original(self, name, value)
        else:
            watching.run(told[name], self, (name, value), {})

    def is_unchanged(core: Any, name: str, value: Any) -> bool:
        return name in FIXED and bool(getattr(core, name) == value)

    return assign


def _events_namespace(base: type, watching: _Watching) -> dict[str, Any]:
    original = inspect.getattr_static(base, "record_all_cleared", None)
    if not inspect.isfunction(original):
        raise WatchError(f"{base.__name__}.record_all_cleared is no method")
    told = _Told(CLEARED, original, lambda args, kwargs: {}, _nothing)
    return {"record_all_cleared": _telling(told, watching)}


def _assigned(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    name, value = args
    if type(value) not in ATOMS:
        raise TypeError(f"{name} was set to a {type(value).__name__}")
    return {"value": value}


def _refused(args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
    raise WatchError(f"{args[0]} was set to {args[1]!r} from outside: nothing else can follow that")


def _nothing(answer: Any) -> None:
    """Nobody reads what an assignment answers."""


def _reduced_as(base: type) -> Callable[[Any, Any], Any]:
    """Copies and pickles of a watched object are those of the object itself."""

    def reduce(self: Any, protocol: Any) -> Any:
        made = type(self)
        self.__class__ = base
        try:
            return self.__reduce_ex__(protocol)
        finally:
            self.__class__ = made

    return reduce
