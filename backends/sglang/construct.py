"""Build a released core on its own, without SGLang's cache (PLUG-2 to PLUG-4)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ..contract import CacheInitParams, ComponentType, TreeCoreError, UnsupportedError
from .call import translated
from .release import Release
from .values import Values

_COMPONENT_CLASSES = {ComponentType.FULL: "FullComponent"}


def build_core(flavour: str, params: CacheInitParams, release: Release, values: Values) -> Any:
    """A released core of `flavour` ("python" or "rust").

    Raises the contract's errors for parameters that the release refuses, and `UnsupportedError`
    for a component whose stubs this plug doesn't have.
    """
    for component in params.tree_components:
        if component not in _COMPONENT_CLASSES:
            raise UnsupportedError(f"no released core with component {component!r} is plugged in")
    given = values.param_in(params)
    core_class = release.core_class(flavour)
    try:
        if flavour == "rust":
            return core_class(given)
        return core_class(given, _components(given, params, release, values))
    except TreeCoreError:
        raise
    except Exception as error:
        known = translated(error, "__init__", release.type("ComponentType"))
        if known is error:
            raise
        raise known from error


def _components(
    given: Any, params: CacheInitParams, release: Release, values: Values
) -> dict[Any, Any]:
    """Component objects for the Python core, in the given order (PLUG-2, PLUG-3)."""
    cache = SimpleNamespace(
        enable_session_radix_cache=params.enable_session_radix_cache,
        token_to_kv_pool_allocator=params.token_to_kv_pool_allocator,
    )
    return {
        values.component_in(component): release.type(_COMPONENT_CLASSES[component])(cache, given)
        for component in params.tree_components
    }
