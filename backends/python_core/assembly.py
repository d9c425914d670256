"""Which components a core is built with, from its construction parameters (CFG, SWA-C, MAM-C)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import lcm
from typing import TYPE_CHECKING, Any

from ..contract import (
    AuxiliaryWindow,
    CacheInitParams,
    ComponentType,
    UnsupportedError,
)
from . import arguments
from .auxiliary import AuxiliaryComponent
from .mamba import MambaComponent
from .window_insert import IndependentWindowComponent, WindowComponent

if TYPE_CHECKING:
    from .tree import Tree

AuxiliaryMaker = Callable[["Tree", int], AuxiliaryComponent]
"""Makes a component of a tree, given its place among the auxiliary ones."""

_SUPPORTED = frozenset(
    (
        (),
        (ComponentType.SWA,),
        (ComponentType.MAMBA,),
        (ComponentType.SWA, ComponentType.MAMBA),
        (ComponentType.SWA, ComponentType.AUXILIARY_SWA),
        (ComponentType.SWA, ComponentType.AUXILIARY_SWA, ComponentType.MAMBA),
    )
)
"""What may follow FULL, in its one order (SWA-C1, SWA-C8)."""


def auxiliary_makers(params: CacheInitParams, page_size: int) -> list[AuxiliaryMaker]:
    """One maker for each component after FULL, in component order.

    Raises `UnsupportedError` for a set of components that this core has not, and `TypeError`,
    `OverflowError` or `InvalidArgumentError` for bad figures of one that it has.
    """
    components = tuple(params.tree_components or ())
    auxiliary = components[1:]
    if components[:1] != (ComponentType.FULL,) or auxiliary not in _SUPPORTED:
        raise UnsupportedError(
            f"no core has the components {components}: FULL comes first, then what there is of "
            "SWA, AUXILIARY_SWA (which needs SWA) and MAMBA, in this order"
        )
    overrides = params.component_registry_override or {}
    expected = {ComponentType.AUXILIARY_SWA} & set(auxiliary)
    if not isinstance(overrides, Mapping) or set(overrides) != expected:
        names = [component.name for component in expected]
        raise UnsupportedError(f"component_registry_override must name {names}, got {overrides!r}")
    gates_match = arguments.flag(params.swa_gates_prefix_match, "swa_gates_prefix_match")
    makers: dict[ComponentType, Callable[[], AuxiliaryMaker]] = {
        ComponentType.SWA: lambda: _window(params, gates_match),
        ComponentType.AUXILIARY_SWA: lambda: _independent_window(
            overrides[ComponentType.AUXILIARY_SWA], gates_match
        ),
        ComponentType.MAMBA: lambda: _mamba(params, page_size),
    }
    return [makers[component]() for component in auxiliary]


def _window(params: CacheInitParams, gates_match: bool) -> AuxiliaryMaker:
    length = arguments.size(params.sliding_window_size, "sliding_window_size")
    draft_length = arguments.integer(params.draft_swa_window, "draft_swa_window")
    draft_length = arguments.unsigned(draft_length, "draft_swa_window")
    return partial(
        WindowComponent,
        component_type=ComponentType.SWA,
        length=max(length, draft_length),
        gates_match=gates_match,
    )


def _independent_window(override: Any, gates_match: bool) -> AuxiliaryMaker:
    if not isinstance(override, AuxiliaryWindow):
        raise UnsupportedError(f"the second window must be an AuxiliaryWindow, not {override!r}")
    return partial(
        IndependentWindowComponent,
        component_type=ComponentType.AUXILIARY_SWA,
        length=arguments.size(override.sliding_window_size, "the second sliding_window_size"),
        gates_match=gates_match,
    )


def _mamba(params: CacheInitParams, page_size: int) -> AuxiliaryMaker:
    chunk_size = arguments.size(params.mamba_cache_chunk_size, "mamba_cache_chunk_size")
    states_max = arguments.integer(params.mamba_max_states_per_path, "mamba_max_states_per_path")
    states_max = arguments.signed(states_max, "mamba_max_states_per_path")
    return partial(MambaComponent, grid=lcm(chunk_size, page_size), states_max=states_max)
