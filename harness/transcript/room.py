"""The configuration of a trace that is made of a server's calls.

Hides how much more room a replay needs than the server has: it gives every insert fresh slots for
its whole key, and must never evict because of that.
"""

from __future__ import annotations

from typing import Any

import msgspec

from treedrift.backends.contract import (
    AuxiliaryWindow,
    CacheInitParams,
    ComponentType,
    UnsupportedError,
)

from ..config import COMPONENT_NAMES, Config, PolicyValue, problems

SPARE_STATES = 2
"""States beside a full tree: the one that an insert brings, and one to spare."""

_NAMES = {component: name for name, component in COMPONENT_NAMES.items()}
_INT_BITS_MAX = 63


class Room(msgspec.Struct, kw_only=True, frozen=True):
    """How much a server's pools hold; None for a pool that it does not have.

    `slots` and `window_slots` count tokens, `states` Mamba states. `row_length` is the longest
    request in tokens. Without `window_slots` the window is a ring of every request's own (POOL-40).
    """

    slots: int
    row_length: int
    window_slots: int | None = None
    states: int | None = None


def config_of(params: CacheInitParams, room: Room) -> Config:
    """The configuration of a trace of such a core on such pools.

    Names of adapters are no part of it: they are texts of the server. Raises `UnsupportedError`
    that names what a trace can't say.
    """
    if params.enable_session_radix_cache:
        raise UnsupportedError("a trace can't say enable_session_radix_cache")
    page = max(1, params.page_size)
    config = Config(
        components=_components(params),
        page_size=params.page_size,
        bigram=params.is_eagle,
        policy=params.eviction_policy,
        policy_config=_policy_config(params),
        capacity=_pages(room.slots + room.row_length, page),
        rows=1,
        row_length=_pages(room.row_length, page),
        events=params.enable_kv_cache_events,
        dynamo_events=params.dynamo_kv_event_format,
        **_windows(params, room, page),
        **_states(params, room),
    )
    found = problems(config)
    if found:
        raise UnsupportedError(f"a trace can't say these parameters: {'; '.join(found)}")
    return config


def _pages(count: int, page: int) -> int:
    return -(-count // page) * page


def _components(params: CacheInitParams) -> tuple[str, ...]:
    unknown = [kind.name for kind in params.tree_components if kind not in _NAMES]
    if unknown:
        raise UnsupportedError(f"a trace can't say the components {', '.join(unknown)}")
    override = params.component_registry_override or {}
    for kind, given in override.items():
        if kind is not ComponentType.AUXILIARY_SWA or not isinstance(given, AuxiliaryWindow):
            raise UnsupportedError(f"a trace can't say component_registry_override of {kind!r}")
    return tuple(_NAMES[kind] for kind in params.tree_components)


def _policy_config(params: CacheInitParams) -> dict[str, PolicyValue]:
    found: dict[str, PolicyValue] = {}
    for name, value in (params.eviction_policy_config or {}).items():
        if not isinstance(value, bool | int | float):
            raise UnsupportedError(
                f"a trace can't say eviction_policy_config: {name} is {value!r}, no number"
            )
        # What JSON can't hold is spelled as text.
        is_wide = isinstance(value, int) and value.bit_length() > _INT_BITS_MAX
        is_odd = isinstance(value, float) and value - value != 0
        found[name] = str(value) if is_wide or is_odd else value
    return found


def _windows(params: CacheInitParams, room: Room, page: int) -> dict[str, Any]:
    if ComponentType.SWA not in params.tree_components:
        return {}
    gates = params.swa_gates_prefix_match
    if room.window_slots is None and gates:
        raise UnsupportedError("a trace can't say a window without slots that gates matches")
    found: dict[str, Any] = {
        "window": params.sliding_window_size,
        "draft_window": params.draft_swa_window,
        "window_gates": gates,
    }
    if room.window_slots is None:
        found["window_ring"] = True
    else:
        found["window_capacity"] = _pages(room.window_slots + room.row_length, page)
    second = (params.component_registry_override or {}).get(ComponentType.AUXILIARY_SWA)
    if second is not None:
        found["aux_window"] = second.sliding_window_size
    return found


def _states(params: CacheInitParams, room: Room) -> dict[str, Any]:
    if ComponentType.MAMBA not in params.tree_components:
        return {}
    if room.states is None:
        raise UnsupportedError("a trace can't say a tree of states without a pool of states")
    return {
        "states": room.states + SPARE_STATES,
        "state_chunk": params.mamba_cache_chunk_size or 1,
        "state_cap": params.mamba_max_states_per_path,
        "state_buffer": "single" if params.enable_mamba_extra_buffer else "none",
    }
