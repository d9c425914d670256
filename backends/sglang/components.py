"""Component objects of the released Python core, and the server's figures (PLUG-2 to PLUG-5).

A released component is made by the cache that it serves. Here a stub of that cache, and pools that
exist in name only, are all that it gets: it reads their class and device, and a tree asks no more.
Hides which figures a released server publishes beside the parameters.
"""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch

from ..contract import CacheInitParams, ComponentType, UnsupportedError
from .release import Release
from .values import Values

_CLASSES = {
    ComponentType.FULL: "FullComponent",
    ComponentType.SWA: "SWAComponent",
    ComponentType.MAMBA: "MambaComponent",
}
_MEM_CACHE = "sglang.srt.mem_cache"


def refuse_unplugged(params: CacheInitParams) -> None:
    """Raise `UnsupportedError`, with the reason, for a tree that no released core can hold."""
    if ComponentType.AUXILIARY_SWA in params.tree_components or params.component_registry_override:
        # A subclass of the released window with another type can be registered, and emits actions
        # that name the first window, so that nobody can publish what the second one kept.
        raise UnsupportedError(
            "no second window is plugged in: the released window class names SWA in the actions "
            "of every window, and the compiled core has one window only (SWA-C8)"
        )
    for component in params.tree_components:
        if component not in _CLASSES:
            raise UnsupportedError(f"no released core with component {component!r} is plugged in")


def build_components(release: Release, values: Values, given: Any, params: CacheInitParams) -> Any:
    """Component objects for the Python core, in the given order (PLUG-2, PLUG-3).

    `given` are the released parameters; they get the pools that its components insist on.
    """
    kinds = params.tree_components
    if ComponentType.SWA in kinds:
        pool = _bare(f"{_MEM_CACHE}.allocator.swa", "SWATokenToKVPoolAllocator")
        pool.device = getattr(params.token_to_kv_pool_allocator, "device", torch.device("cpu"))
        given.token_to_kv_pool_allocator = pool
    if ComponentType.MAMBA in kinds:
        given.req_to_token_pool = _bare(f"{_MEM_CACHE}.memory_pool", "HybridReqToTokenPool")
    cache_stub = SimpleNamespace(
        enable_session_radix_cache=params.enable_session_radix_cache,
        token_to_kv_pool_allocator=given.token_to_kv_pool_allocator,
        # Read when a path gives states up, and when a node is offloaded.
        tree_components=given.tree_components,
        page_size=given.page_size,
    )
    return {
        values.component_in(kind): release.type(_CLASSES[kind])(cache_stub, given) for kind in kinds
    }


def published(params: CacheInitParams) -> AbstractContextManager[Any]:
    """While it lasts, the process's server arguments hold the Mamba figures of `params` (CFG-5).

    A core reads them once, when it is built; cores with other figures may live beside it. What
    was published before is published again afterwards.
    """
    if ComponentType.MAMBA not in params.tree_components:
        return nullcontext()
    context = _found("sglang.srt.runtime_context", "get_context")()
    override: AbstractContextManager[Any] = context.override_server_args(
        _mamba_cache_chunk_size=params.mamba_cache_chunk_size,
        mamba_max_states_per_path=params.mamba_max_states_per_path,
    )
    return override


def _bare(module: str, name: str) -> Any:
    """An instance of a released class that was never initialised: its class is all that counts."""
    return object.__new__(_found(module, name))


def _found(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UnsupportedError(f"the installed sglang has no {module}.{name}") from error
