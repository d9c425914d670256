"""Build released cores on their own, without SGLang's cache (PLUG-2 to PLUG-4).

What is found out about the installed release is found out once per process.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

from ..contract import CacheInitParams, ComponentType, UnsupportedError
from .call import translated
from .release import CORE_CLASSES, Release, lacking_methods
from .values import Values

_COMPONENT_CLASSES = {ComponentType.FULL: "FullComponent"}


@dataclass(frozen=True)
class Plug:
    """One flavour of core in the installed release, and how to speak to it.

    `missing` names what of the contract the release lacks, as in "BlockStored.lora_name".
    """

    flavour: str
    release: Release
    values: Values
    core_class: Any
    methods_lacking: frozenset[str]
    parameters_lacking: dict[str, set[str]]
    missing: tuple[str, ...]


@cache
def plug_in(flavour: str) -> Plug:
    """Import the installed release and look at its core of `flavour` ("python" or "rust").

    Raises `ReleaseMismatchError`, and `ValueError` for another flavour.
    """
    if flavour not in CORE_CLASSES:
        raise ValueError(f"no released core {flavour!r}; there are {sorted(CORE_CLASSES)}")
    release = Release()
    values = Values(release)
    core_class = release.core_class(flavour)
    methods, parameters = lacking_methods(core_class)
    release.note_missing("TreeCore", methods)
    for name, lacking in parameters.items():
        release.note_missing(f"TreeCore.{name}", lacking)
    missing = tuple(sorted(release.missing))
    return Plug(flavour, release, values, core_class, frozenset(methods), parameters, missing)


def build_core(plug: Plug, params: CacheInitParams) -> Any:
    """A released core.

    Raises the contract's errors for parameters that the release refuses, and `UnsupportedError`
    for a component whose stubs this plug doesn't have.
    """
    for component in params.tree_components:
        if component not in _COMPONENT_CLASSES:
            raise UnsupportedError(f"no released core with component {component!r} is plugged in")
    given = plug.values.param_in(params)
    try:
        if plug.flavour == "rust":
            return plug.core_class(given)
        return plug.core_class(given, _components(plug, given, params))
    except BaseException as error:
        known = translated(error, "__init__", plug.release.type("ComponentType"))
        if known is error:
            raise
        raise known from error


def _components(plug: Plug, given: Any, params: CacheInitParams) -> dict[Any, Any]:
    """Component objects for the Python core, in the given order (PLUG-2, PLUG-3)."""
    cache_stub = SimpleNamespace(
        enable_session_radix_cache=params.enable_session_radix_cache,
        token_to_kv_pool_allocator=params.token_to_kv_pool_allocator,
    )
    built: dict[Any, Any] = {}
    for component in params.tree_components:
        make = plug.release.type(_COMPONENT_CLASSES[component])
        built[plug.values.component_in(component)] = make(cache_stub, given)
    return built
