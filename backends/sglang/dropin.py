"""A core of the contract in the place of one of SGLang's own (PLUG-1, PLUG-10).

The class that SGLang sees is made once per process: a subclass of its own interface, with one
plain function per method. Hides how arguments and answers cross; errors of the core pass through
as they are, because they derive from those that SGLang expects (BND-32).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, NoReturn

from ..contract import (
    BUFFERS,
    CacheAction,
    Frees,
    KvEvent,
    TreeCore,
    UnsupportedError,
)
from .crossing import written
from .initial import contract_params, reason_to_fall_back
from .methods import Methods, Signature, methods_of_release
from .release import REQUIRED, ReleaseMismatchError, fields_of

__all__ = ["contract_params", "drop_in", "reason_to_fall_back"]

Served = Callable[..., Any]

# What a core answers through an object of its caller, by method: parameter and field (BND-18).
_ANSWERED_THROUGH = {"commit_hicache_transfers": ("insert_result", "mamba_exist")}


def drop_in(core: TreeCore) -> Any:
    """An instance of SGLang's own core interface that serves its cache with `core`.

    `core` belongs to it from now on. Raises `ReleaseMismatchError` for a release whose interface
    the contract can't serve.
    """
    return _class_of_release()(core)


class DropInEvents:
    """The core's event queue, with events in the release's types (EVT-2 to EVT-4)."""

    def __init__(self, core: TreeCore, convert: Callable[[list[KvEvent]], list[Any]]) -> None:
        self._events = core.kv_events
        self._convert = convert
        # Fixed at construction (CFG-12).
        self.enabled = self._events.enabled

    def record_all_cleared(self) -> None:
        """Append `AllBlocksCleared`; nothing when events are off."""
        self._events.record_all_cleared()

    def take(self) -> list[Any]:
        """All queued events in order; empties the queue."""
        return self._convert(self._events.take())


@cache
def _class_of_release() -> Any:
    return drop_in_class(methods_of_release())


def drop_in_class(methods: Methods) -> Any:
    """The class of drop-ins for one release; it is made of a core of the contract."""
    if "node_id" not in fields_of(methods.release.type("DecLockRefParams")):
        # The contract's cores check whose receipt they are given back.
        raise ReleaseMismatchError("receipts of the installed sglang don't name their node")
    convert_events = methods.inward.of(list[KvEvent])

    def initialise(self: Any, core: TreeCore) -> None:
        self._core = core
        self.kv_events = DropInEvents(core, convert_events)

    members: dict[str, Any] = {
        "__init__": initialise,
        "__doc__": "A core of treedrift's contract, served to SGLang's cache.",
        "__module__": __name__,
    }
    for name in methods.interface.__abstractmethods__:
        is_property = isinstance(getattr(methods.interface, name), property)
        refuse = _refused(name, f"the contract of cores has no {name}")
        members[name] = property(refuse) if is_property else refuse
    members["root_node"] = property(
        _refused("root_node", "nodes are no objects here; ask root_node_handle")
    )
    for name in _attributes():
        members[name] = _forwarded(name)
    for name, signature in methods.signatures.items():
        members[name] = _served(methods, signature)
    members["take_events"] = lambda self: self.kv_events.take()
    empty_match = _empty_match(methods)
    if _names_slots(methods):
        members["match_prefix"] = _naming_slots(members["match_prefix"])
        empty_match = _naming_slots(empty_match)
    members["empty_match_result"] = property(empty_match)
    return type(methods.interface)("DropIn", (methods.interface,), members)


# --- Attributes -------------------------------------------------------------------------------


def _attributes() -> list[str]:
    """Attributes of a core that its cache reads and, some of them, assigns (PLUG-1)."""
    return [name for name in TreeCore.__annotations__ if name != "kv_events"]


def _forwarded(name: str) -> property:
    """An attribute that lives in the core; whether it can be assigned is the core's business."""

    def write(self: Any, value: Any) -> None:
        setattr(self._core, name, value)

    return property(attrgetter(f"_core.{name}"), write)


def _empty_match(methods: Methods) -> Served:
    convert = methods.inward.struct
    return lambda self: convert(self._core.empty_match_result)


# --- Methods ----------------------------------------------------------------------------------


def _served(methods: Methods, signature: Signature) -> Served:
    if signature.unserved:
        return _refused(signature.name, f"the release gives no {signature.unserved}")
    if signature.is_alike:
        return _served_by_place(methods, signature)
    return _served_by_name(methods, signature)


def _served_by_place(methods: Methods, signature: Signature) -> Served:
    """For a method whose parameters are the same on both sides: written out, with its signature."""
    name, answer = signature.name, methods.answers_in[signature.name]
    names: dict[str, Any] = {"answer": answer}
    taken, passed = ["self"], []
    for key, default in signature.theirs.items():
        names[f"made_{key}"] = made = methods.arguments_shared[name][key]
        names[f"default_{key}"] = default
        taken.append(key if default is REQUIRED else f"{key}=default_{key}")
        passed.append(f"{key}={key}" if made is None else f"{key}=made_{key}({key})")
    call = f"self._core.{name}({', '.join(passed)})"
    result = call if answer is None else f"answer({call})"
    return written(f"def {name}({', '.join(taken)}):\n    return {result}", names)


def _served_by_name(methods: Methods, signature: Signature) -> Served:
    """For a method with buffers to fill, or one that the release declares in another way."""
    name, answer = signature.name, methods.answers_in[signature.name]
    fills = [parameter for parameter in signature.ours if parameter in BUFFERS]
    into = {"cache_actions": methods.inward.of(list[CacheAction])}
    into["device_frees"] = into["host_frees"] = methods.inward.of(Frees)
    parameter, field = _ANSWERED_THROUGH.get(name, ("", ""))

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        theirs = signature.named(args, kwargs)
        ours = methods.arguments_for_core(name, args, kwargs)
        filled: dict[str, Any] = {
            key: [] if key == "cache_actions" else defaultdict(list) for key in fills
        }
        try:
            result = getattr(self._core, name)(**ours, **filled)
        finally:
            for key in fills:
                if key in theirs:
                    _append(theirs[key], into[key](filled[key]))
                elif filled[key]:
                    raise UnsupportedError(f"{name} of the installed sglang takes no {key}")
        if theirs.get(parameter) is not None:
            setattr(theirs[parameter], field, getattr(ours[parameter], field))
        return result if answer is None else answer(result)

    return call


def _append(buffer: Any, filled: Any) -> None:
    if isinstance(filled, list):
        buffer.extend(filled)
        return
    for component, tensors in filled.items():
        buffer.setdefault(component, []).extend(tensors)


def _refused(name: str, reason: str) -> Served:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise UnsupportedError(f"{name}: {reason}")

    return refuse


# --- Matches of older releases ----------------------------------------------------------------


def _names_slots(methods: Methods) -> bool:
    """Whether a match of this release names the slots that it found, not only how many."""
    return "device_indices" in fields_of(methods.release.type("MatchResult"))


def _naming_slots(serve: Served) -> Served:
    def match(self: Any, *args: Any) -> Any:
        result = serve(self, *args)
        core = self._core
        slots = core.collect_full_device_indices(result.last_device_node, core.root_node_handle())
        return result._replace(device_indices=slots)

    return match
