"""Which types and fields of a release stand for which of the contract, and what is told apart.

The names are the same wherever the meaning is. This is the list of all that is not, by name, for
the releases of `treedrift env`.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import cache
from typing import Any, get_type_hints

import msgspec
import torch

from .. import contract
from ..contract import ComponentType, RadixKey
from .release import Release, fields_of

Converter = Callable[[Any], Any]


class Array:
    """Stands for `array` in annotations: the real one can't be subscripted in every Python."""

    __class_getitem__: Any = classmethod(types.GenericAlias)


def _unnamed_slots(count: int) -> torch.Tensor:
    return torch.empty(count, dtype=torch.int64)


def _of_the_window(told: int | None) -> dict[ComponentType, int | None]:
    return {ComponentType.SWA: told} if told else {}


def _maybe_of_the_window(told: int | None) -> dict[ComponentType, int | None]:
    # A lock whose window has no end of its own has no number, and is still a lock of the window.
    return {ComponentType.SWA: told}


def _windows(told: dict[ComponentType, int | None]) -> int | None:
    return told.get(ComponentType.SWA)


def _windows_length(told: dict[ComponentType, int]) -> int:
    return told.get(ComponentType.SWA, 0)


_PAST_ANY_KEY = 2**31
"""An `inserted_len` that no key reaches, so that no hit is counted at all (POL-16)."""


def _inserted_before(is_chunked: bool) -> int:
    return _PAST_ANY_KEY if is_chunked else 0


def _is_chunked(inserted_len: int) -> bool:
    return inserted_len == _PAST_ANY_KEY


_UNPAIRED = {"AuxiliaryWindow", "EvictParams", "EvictionResult"}
"""Types that never cross: what a cache is asked for, and the base of others."""

LEFT_BEHIND = {("MatchPrefixParams", "req")}
"""Requests, which no copy takes along: they are the server's, and no core reads them (KEY-52)."""


def _with_its_state(req: Any) -> Any:
    """What a core reads of a request that is loaded back: the slot of its state (LDB-4)."""
    kv = getattr(req, "kv", None)
    slot = getattr(req if kv is None else kv, "mamba_pool_idx", None)
    if slot is None:
        return None
    slot = slot.clone() if isinstance(slot, torch.Tensor) else slot
    held = types.SimpleNamespace(mamba_pool_idx=slot)
    return held if kv is None else types.SimpleNamespace(kv=held)


COPIED_APART: dict[tuple[str, str], Converter] = {("build_load_back_spec", "req"): _with_its_state}
"""Arguments of which a copy takes a part alone, by method and parameter."""


INDISPENSABLE = {"CacheInitParams", "RadixKey"}
"""Types of which a release must have every field that is set.

A tree is another one without a feature that was asked for, and so is a prefix without its
namespace; a call goes without a hint.
"""

INCOMPARABLE = {"kv_event_lora_names"}
"""Fields that hold an object of their own by default, so that nobody can tell that from another."""

PUBLISHED_APART = {"mamba_cache_chunk_size", "mamba_max_states_per_path"}
"""Figures that a released server publishes apart from the parameters (CFG-5)."""

OF_THE_CACHE = {
    "CacheInitParams": frozenset(
        {
            "attn_cp_cache_group",
            "attn_cp_rank",
            "attn_cp_size",
            "attn_tp_cache_group",
            "chunked_prefill_size",
            "decoder_swa_bounded_replay",
            "disable",
            "disable_finished_insert",
            "enable_mamba_extra_buffer_lazy",
            "enable_metrics",
            "mtp_draft_device_pools",
            "mtp_draft_mamba_pools",
            "pp_cache_group",
            "pp_rank",
            "pp_size",
            "sidecar_draft_device_pools",
            "tp_cache_group",
            "tree_core_backend",
        }
    )
}
"""Fields that concern the cache around a core, and no core; by type."""

GIVEN: dict[str, dict[str, Any]] = {"CacheInitParams": {"disable": False}}
"""Values of fields that a release demands and the contract has not; by type."""

TOLD_OTHERWISE: dict[tuple[str, str], tuple[str, Converter]] = {
    ("MatchResult", "device_prefix_len"): ("device_indices", len),
    ("MatchResult", "device_indices"): ("device_prefix_len", _unnamed_slots),
    ("IncLockRefResult", "component_lock_uuids"): ("swa_uuid_for_lock", _of_the_window),
    ("IncLockRefResult", "component_host_lock_uuids"): ("swa_uuid_for_host_lock", _of_the_window),
    ("IncLockRefResult", "swa_uuid_for_lock"): ("component_lock_uuids", _windows),
    ("IncLockRefResult", "swa_uuid_for_host_lock"): ("component_host_lock_uuids", _windows),
    ("DecLockRefParams", "component_lock_uuids"): ("swa_uuid_for_lock", _maybe_of_the_window),
    ("DecLockRefParams", "component_host_lock_uuids"): (
        "swa_uuid_for_host_lock",
        _maybe_of_the_window,
    ),
    ("DecLockRefParams", "swa_uuid_for_lock"): ("component_lock_uuids", _windows),
    ("DecLockRefParams", "swa_uuid_for_host_lock"): ("component_host_lock_uuids", _windows),
    ("InsertParams", "component_evicted_seqlens"): ("swa_evicted_seqlen", _of_the_window),
    ("InsertParams", "swa_evicted_seqlen"): ("component_evicted_seqlens", _windows_length),
    ("InsertParams", "inserted_len"): ("chunked", _inserted_before),
    ("InsertParams", "chunked"): ("inserted_len", _is_chunked),
}
"""Fields that one side tells in another way: the field to read, and what to make of it.

Older releases told a match with its slots, of which the contract's result says how many, and knew
of one window only, where the contract has a map of components. Where the contract says how much of
a key was inserted before, they said whether it was a chunk, for which no hit is counted at all.
"""

_TOLD_IN_PART = {("InsertParams", "inserted_len")}
"""Fields of `TOLD_OTHERWISE` of which a release takes some values only: it lacks them still."""


def annotations_of(annotated: Any) -> dict[str, Any]:
    """The resolved annotations of a class or function of the contract."""
    return get_type_hints(annotated, localns={"array": Array})


@cache
def paired_types() -> dict[str, Any]:
    """The contract's types that a release has under the same name."""
    return {
        name: kind
        for name, kind in vars(contract).items()
        if isinstance(kind, type)
        and (kind is RadixKey or issubclass(kind, msgspec.Struct))
        and name not in _UNPAIRED
    }


def note_lacking(release: Release) -> None:
    """Note every type and field of the contract that `release` lacks."""
    for name, ours in paired_types().items():
        theirs = release.find(name)
        if theirs is None:
            release.note_missing("contract", {name})
            continue
        found = fields_of(theirs)
        told = {
            field
            for (kind, field), (source, _) in TOLD_OTHERWISE.items()
            if kind == name and source in found and (kind, field) not in _TOLD_IN_PART
        }
        lacking = set(fields_of(ours)) - set(found) - told - PUBLISHED_APART
        release.note_missing(name, lacking)
