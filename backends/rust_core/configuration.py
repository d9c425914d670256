"""Construction parameters as the native core takes them (CFG-1, SWA-C1 to SWA-C3, MAM-C4).

Checks what the native types don't say by themselves. Hides which sets of components there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..contract import (
    AuxiliaryWindow,
    CacheInitParams,
    ComponentType,
    InvalidArgumentError,
    UnsupportedError,
)

_FULL, _SWA, _MAMBA = ComponentType.FULL, ComponentType.SWA, ComponentType.MAMBA
_AUXILIARY = ComponentType.AUXILIARY_SWA

_FLAGS = (
    "is_eagle",
    "enable_session_radix_cache",
    "enable_kv_cache_events",
    "dynamo_kv_event_format",
    "swa_gates_prefix_match",
)

_SETS = (
    (_FULL,),
    (_FULL, _SWA),
    (_FULL, _MAMBA),
    (_FULL, _SWA, _MAMBA),
    (_FULL, _SWA, _AUXILIARY),
    (_FULL, _SWA, _AUXILIARY, _MAMBA),
)
"""Component sets of a tree, each in its one order."""

NativeWindow = tuple[ComponentType, int, bool]
NativeStates = tuple[int, int | None]


def native_auxiliaries(params: CacheInitParams) -> tuple[list[NativeWindow], NativeStates | None]:
    """The windows in tree order, then what states need, if there are any.

    Raises `UnsupportedError` for components that this core lacks, `InvalidArgumentError`,
    `TypeError` or `OverflowError` for a bad figure.
    """
    components = tuple(params.tree_components or ())
    override = params.component_registry_override or {}
    if components not in _SETS:
        raise UnsupportedError(
            f"the Rust core has no components {components}: FULL comes first, then what there is "
            "of SWA, AUXILIARY_SWA (which needs SWA) and MAMBA, in this order"
        )
    if params.enable_session_radix_cache:
        raise UnsupportedError("the Rust core has no sessions")
    if (
        not isinstance(override, Mapping)
        or set(override) != {_AUXILIARY} & set(components)
        or not all(isinstance(window, AuxiliaryWindow) for window in override.values())
    ):
        raise UnsupportedError(
            "component_registry_override must hold an AuxiliaryWindow for AUXILIARY_SWA if that "
            "is among the components, and nothing else"
        )
    windows = []
    if _SWA in components:
        size = _size("sliding_window_size", params.sliding_window_size)
        draft = _count("draft_swa_window", params.draft_swa_window)
        windows.append((_SWA, max(size, draft), params.swa_gates_prefix_match))
    for component, window in override.items():
        size = _size("sliding_window_size", window.sliding_window_size)
        windows.append((component, size, params.swa_gates_prefix_match))
    if _MAMBA not in components:
        return windows, None
    chunk = _size("mamba_cache_chunk_size", params.mamba_cache_chunk_size)
    cap = _integer("mamba_max_states_per_path", params.mamba_max_states_per_path)
    if not -(2**63) <= cap < 2**63:
        raise OverflowError("mamba_max_states_per_path does not fit 64 signed bits")
    return windows, (chunk, None if cap < 0 else cap)


def check_flags(params: CacheInitParams) -> None:
    """Raise `TypeError` unless every flag is a real `bool` (BND-24)."""
    for name in _FLAGS:
        if not isinstance(getattr(params, name), bool):
            raise TypeError(f"{name} must be a bool")


def page_size(value: Any) -> int:
    """The page size, checked."""
    return _size("page_size", value)


def device(allocator: Any) -> torch.device:
    """The allocator's device with its index; the CPU without an allocator (KEY-50)."""
    try:
        found = torch.device(allocator.device if allocator else "cpu")
    except RuntimeError as error:
        raise InvalidArgumentError(f"unusable device: {error}") from error
    if found.type == "cuda" and found.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    if found.type not in ("cpu", "cuda") or (found.type == "cpu" and found.index is not None):
        raise InvalidArgumentError(f"the Rust core does not run on device {found}")
    return found


def _size(name: str, value: Any) -> int:
    """A positive number; to leave it out is as bad as one that is not positive."""
    if value is None:
        raise InvalidArgumentError(f"{name} must be given")
    if _integer(name, value) < 1:
        raise InvalidArgumentError(f"{name} must be at least 1")
    return _count(name, value)


def _count(name: str, value: Any) -> int:
    """A number that fits 64 unsigned bits."""
    if not 0 <= _integer(name, value) < 2**64:
        raise OverflowError(f"{name} does not fit 64 unsigned bits")
    return int(value)


def _integer(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int")
    return int(value)
