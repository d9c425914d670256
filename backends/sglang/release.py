"""The value types of whatever SGLang is installed, found by looking rather than by version.

Runs inside an environment that has SGLang. Says which fields and methods of the contract the
release lacks (`missing`); hides where the release keeps its types. It must never read a core's
private state.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..contract import TreeCore, TreeCoreError

_PACKAGE = "sglang.srt.mem_cache"
_TYPE_MODULES = (
    f"{_PACKAGE}.unified_cache.unified_tree_core_interface",
    f"{_PACKAGE}.unified_cache.cache_action",
    f"{_PACKAGE}.unified_cache.component_type",
    f"{_PACKAGE}.unified_cache.components",
    f"{_PACKAGE}.unified_cache.unified_tree_core",
    f"{_PACKAGE}.base_prefix_cache",
    f"{_PACKAGE}.hicache_storage",
    f"{_PACKAGE}.radix_cache",
    f"{_PACKAGE}.cache_init_params",
    "sglang.srt.disaggregation.kv_events",
)
CORE_CLASSES = {
    "python": (f"{_PACKAGE}.unified_cache.unified_tree_core", "UnifiedTreeCore"),
    "rust": (f"{_PACKAGE}.rust_tree_core.adapter", "RustUnifiedTreeCore"),
}
"""Module and class of the two released cores (PLUG-2, PLUG-4)."""

REQUIRED = object()
"""Stands for the default of a field that has none."""


class ReleaseMismatchError(TreeCoreError):
    """The installed SGLang has something that the contract has no place for, or lacks a type."""


class Release:
    """The types of the installed release by name, and what of the contract it lacks."""

    def __init__(self) -> None:
        self._modules = [_import(name) for name in _TYPE_MODULES]
        self.missing: set[str] = set()

    def type(self, name: str) -> Any:
        """The release's class of this name; `ReleaseMismatchError` if there is none."""
        found = self.find(name)
        if found is None:
            raise ReleaseMismatchError(f"the installed sglang has no type named {name}")
        return found

    def find(self, name: str) -> Any:
        """The release's class of this name, or None."""
        for module in self._modules:
            found = getattr(module, name, None)
            if isinstance(found, type):
                return found
        return None

    def core_class(self, flavour: str) -> Any:
        """The class of a released core; `ReleaseMismatchError` if it can't be imported."""
        module, name = CORE_CLASSES[flavour]
        return getattr(_import(module), name)

    def note_missing(self, owner: str, names: set[str]) -> None:
        """Record fields, parameters or methods of the contract that the release lacks."""
        self.missing.update(f"{owner}.{name}" for name in names)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ReleaseMismatchError(f"the installed sglang can't import {name}: {error}") from error


def fields_of(cls: Any) -> dict[str, Any]:
    """Field names of a dataclass, msgspec struct or named tuple, each with a default maker.

    The value is `REQUIRED`, or a callable that gives the default. Of a class with slots, the
    fields are what its constructor takes.
    """
    if dataclasses.is_dataclass(cls):
        return {field.name: _dataclass_default(field) for field in dataclasses.fields(cls)}
    if hasattr(cls, "__struct_fields__"):
        names, defaults = cls.__struct_fields__, cls.__struct_defaults__
        required = len(names) - len(defaults)
        found = dict.fromkeys(names[:required], REQUIRED)
        found |= {
            name: _struct_default(default)
            for name, default in zip(names[required:], defaults, strict=True)
        }
        return found
    if hasattr(cls, "_fields"):
        given = cls._field_defaults
        return {name: _always(given[name]) if name in given else REQUIRED for name in cls._fields}
    if hasattr(cls, "__slots__"):
        taken = inspect.signature(cls).parameters.items()
        return {name: _parameter_default(parameter) for name, parameter in taken}
    raise ReleaseMismatchError(f"{cls.__name__} of the installed sglang has no visible fields")


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


def _dataclass_default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return _always(field.default)
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory
    return REQUIRED


def _parameter_default(parameter: inspect.Parameter) -> Any:
    is_required = parameter.default is inspect.Parameter.empty
    return REQUIRED if is_required else _always(parameter.default)


def _struct_default(default: Any) -> Any:
    # msgspec wraps default factories in an object that holds the callable as `factory`, and
    # marks a required keyword-only field that follows optional ones with a value of its own.
    if type(default).__name__ == "NODEFAULT" or repr(default) == "NODEFAULT":
        return REQUIRED
    factory = getattr(default, "factory", None)
    return factory if factory is not None else _always(default)


def lacking_methods(core_class: Any) -> tuple[set[str], dict[str, set[str]]]:
    """Methods of the contract that a released core lacks, and parameters that others lack.

    A method that demands something the contract doesn't give is another method: it lacks too.
    """
    methods: set[str] = set()
    parameters: dict[str, set[str]] = {}
    for name, ours in vars(TreeCore).items():
        if name.startswith("_") or not inspect.isfunction(ours):
            continue
        theirs = getattr(core_class, name, None)
        if theirs is None:
            methods.add(name)
            continue
        mine = set(inspect.signature(ours).parameters)
        found = inspect.signature(theirs).parameters
        demanded = {
            key
            for key, parameter in found.items()
            if parameter.default is inspect.Parameter.empty
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        }
        if demanded - mine:
            methods.add(name)
            continue
        if lacking := mine - set(found):
            parameters[name] = lacking
    return methods, parameters
