"""What SGLang builds a core with, as a core of the contract takes it (CFG-1, CFG-5, CFG-9).

Hides where a server publishes the figures that stand beside its parameters.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

from ..contract import (
    CacheInitParams,
    ComponentType,
    InvalidArgumentError,
    KvEventLoraNames,
    UnsupportedError,
)
from .methods import methods_of_release
from .release import ReleaseMismatchError

_COMPONENTS = frozenset({ComponentType.FULL, ComponentType.SWA, ComponentType.MAMBA})
_DEVICES = ("cpu", "cuda")
_RUNTIME_CONTEXT = "sglang.srt.runtime_context"


def contract_params(given: Any) -> CacheInitParams:
    """The contract's parameters for `given`, SGLang's own, of a cache that is being built.

    With states among the components, the two Mamba figures are those that the process has
    published. Raises `UnsupportedError` for what no core of the contract has, by name, and
    `InvalidArgumentError` for figures that nobody published.
    """
    reason = reason_to_fall_back(given)
    if reason is not None:
        raise UnsupportedError(f"no core of treedrift for this cache: {reason}")
    if given.tree_components is None:
        raise UnsupportedError("CacheInitParams.tree_components: a core must be told them")
    try:
        params = methods_of_release().params_out(given)
    except ReleaseMismatchError as error:
        raise UnsupportedError(f"no core of treedrift for this cache: {error}") from error
    if params.kv_event_lora_names is None:
        # Some releases have no table as long as there are no adapters.
        params.kv_event_lora_names = KvEventLoraNames()
    if ComponentType.MAMBA in params.tree_components:
        params.mamba_cache_chunk_size, params.mamba_max_states_per_path = _published_figures()
    return params


def reason_to_fall_back(given: Any) -> str | None:
    """Why a core of the contract can't serve this cache, of the reasons for which SGLang's own
    `rust` gives way to its Python core; None if there is none.
    """
    if given.enable_session_radix_cache:
        return "enable_session_radix_cache is on"
    foreign = set(given.tree_components or ()) - _COMPONENTS
    if foreign:
        return f"tree_components holds {sorted(component.name for component in foreign)}"
    override = given.component_registry_override
    if override:
        names = sorted(component.name for component in override)
        return f"component_registry_override replaces {names}"
    allocator = given.token_to_kv_pool_allocator
    device = torch.device("cpu" if allocator is None else allocator.device)
    if device.type not in _DEVICES:
        return f"the pools are on the device {device}"
    return None


def _published_figures() -> tuple[int, int]:
    """The Mamba chunk size and the cap of states per path (CFG-5)."""
    context = importlib.import_module(_RUNTIME_CONTEXT)
    try:
        chunk_size = context.mamba_cache_chunk_size()
        states = context.get_context().config_leaf("mamba_max_states_per_path")
    except ValueError as error:
        raise InvalidArgumentError(f"no Mamba figures are published: {error}") from error
    return chunk_size, states
