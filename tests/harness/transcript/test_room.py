"""The configuration of a trace says what a core was built from, or refuses by name."""

from __future__ import annotations

from typing import Any

import pytest

from treedrift.backends.contract import (
    AuxiliaryWindow,
    CacheInitParams,
    ComponentType,
    UnsupportedError,
)
from treedrift.harness.side import core_params
from treedrift.harness.transcript import Room, config_of

FULL, SWA, MAMBA = ComponentType.FULL, ComponentType.SWA, ComponentType.MAMBA
AUXILIARY = ComponentType.AUXILIARY_SWA
ROOM = Room(slots=100, row_length=30, window_slots=50, states=8)


def test_the_parameters_of_a_core_come_back_from_its_configuration() -> None:
    params = CacheInitParams(
        page_size=4,
        tree_components=(FULL, SWA, AUXILIARY, MAMBA),
        is_eagle=True,
        eviction_policy="slru",
        eviction_policy_config={"protected_threshold": 3},
        enable_kv_cache_events=True,
        dynamo_kv_event_format=True,
        sliding_window_size=5,
        draft_swa_window=7,
        swa_gates_prefix_match=False,
        enable_mamba_extra_buffer=True,
        mamba_cache_chunk_size=8,
        mamba_max_states_per_path=2,
        component_registry_override={AUXILIARY: AuxiliaryWindow(3)},
    )
    again = core_params(config_of(params, ROOM), None, params.kv_event_lora_names)
    for field in CacheInitParams.__struct_fields__:
        assert getattr(again, field) == getattr(params, field), field


def test_a_replay_has_room_for_an_insert_beside_a_full_tree() -> None:
    params = CacheInitParams(
        page_size=4,
        tree_components=(FULL, SWA, MAMBA),
        sliding_window_size=4,
        enable_mamba_extra_buffer=True,
    )
    config = config_of(params, ROOM)
    assert (config.capacity, config.window_capacity, config.row_length) == (132, 80, 32)
    assert config.states > 8


def test_a_window_without_a_pool_is_a_ring() -> None:
    params = CacheInitParams(
        tree_components=(FULL, SWA), sliding_window_size=4, swa_gates_prefix_match=False
    )
    assert config_of(params, Room(slots=10, row_length=5)).window_ring


def test_numbers_that_json_lacks_are_spelled_out() -> None:
    given = {"threshold": float("inf"), "next_prompt_estimate": 10**40}
    params = CacheInitParams(eviction_policy="tlru", eviction_policy_config=given)
    config = config_of(params, ROOM)
    assert config.policy_config == {"threshold": "inf", "next_prompt_estimate": str(10**40)}
    assert config.policy_arguments() == given


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"enable_session_radix_cache": True}, "enable_session_radix_cache"),
        ({"tree_components": (FULL, ComponentType.C128)}, "C128"),
        ({"component_registry_override": {SWA: object()}}, "component_registry_override"),
        ({"eviction_policy_config": {"strategy": "mine"}}, "strategy is 'mine'"),
        ({"tree_components": (FULL, SWA)}, "window"),
        ({"page_size": 0}, "page_size"),
    ],
)
def test_what_a_trace_can_not_say_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedError, match=named):
        config_of(CacheInitParams(**fields), ROOM)


def test_a_tree_of_states_needs_to_know_how_many() -> None:
    params = CacheInitParams(tree_components=(FULL, MAMBA))
    with pytest.raises(UnsupportedError, match="without a pool of states"):
        config_of(params, Room(slots=10, row_length=5))
