"""Calls that every core of ours must refuse, all alike: what the `misuse` op can name.

The table is made from each method's parameters: one argument at a time is bad in each way that
its kind can be bad, all others are good. So the error, the order of checks, and that nothing
changed are compared for every argument of the contract. A case that names a call which is not in
the table does nothing, so the table can grow.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ..backends.contract import (
    ComponentType,
    DecLockRefParams,
    InsertParams,
    MatchPrefixParams,
    NodeId,
    RadixKey,
)
from . import ops
from .config import COMPONENT_NAMES
from .recorder import SETTINGS, parameters_of

if TYPE_CHECKING:
    from .execute import CoreOps

Call = Callable[[Any, NodeId, ComponentType], Any]
"""A call on a core, told a node and a component that the core lacks."""

Bad = dict[str, Any]
"""Bad values by what is wrong with them."""

FULL = ComponentType.FULL


def misuse(side: CoreOps, op: ops.Misuse) -> None:
    """Make one call of the table; the recording tells how the core refused it.

    A call that this tree has a use for is no misuse, and is not made.
    """
    call = MISUSES.get(op.method)
    component = COMPONENT_NAMES[op.component]
    node = side.node(op.node)
    if call is None or node is None:
        return
    if is_misuse(op.method, component, side.components):
        call(side.core, node, component)


def is_misuse(method: str, component: ComponentType, components: tuple[ComponentType, ...]) -> bool:
    """Whether a tree of these components must refuse a call of the table."""
    if method in _OF_COMPONENT:
        return component not in components
    if method in _LACKING_ONE:
        return _LACKING_ONE[method] not in components
    return method not in _OF_STATES or ComponentType.MAMBA in components


# --- Bad values ---------------------------------------------------------------------------

_NO_NUMBER: Bad = {"float": 1.0, "text": "1", "list": [1]}
_NULL: Bad = {"none": None}
_HANDLE: Bad = {**_NO_NUMBER, "bool": True, "negative": -1, "wide": 2**64}
_UNSIGNED: Bad = {**_NO_NUMBER, **_NULL, "negative": -1, "wide": 2**64}
_OPTIONAL_SIGNED: Bad = {**_NO_NUMBER, "low": -(2**63) - 1, "wide": 2**63}
_SIGNED: Bad = {**_OPTIONAL_SIGNED, **_NULL}
_FLAG: Bad = {**_NULL, "int": 1, "text": "yes"}
_TEXT: Bad = {"int": 7, "bytes": b"a", "list": ["a"]}
_COMPONENT: Bad = {**_NO_NUMBER, **_NULL, "unknown": 9, "negative": -1, "wide": 256}
_HANDLES: Bad = {
    **_NULL,
    "int": 5,
    "text": "12",
    "bool_inside": [True],
    "float_inside": [0.5],
    "wide_inside": [2**64],
    "none_inside": [None],
}
_COMPONENTS: Bad = {
    **_NULL,
    "int": 0,
    "text": "ab",
    "unknown_inside": [9],
    "wide_inside": (256,),
    "none_inside": [None],
}
_COUNTS: Bad = {
    **_NULL,
    "list": [1],
    "int": 1,
    "unknown_key": {9: 1},
    "wide_key": {256: 1},
    "text_key": {"full": 1},
    "negative": {FULL: -1},
    "negative_elsewhere": {ComponentType.SWA: -1},
    "wide": {FULL: 2**64},
    "float": {FULL: 1.5},
    "none_inside": {FULL: None},
}
_UUIDS: Bad = {
    **_NULL,
    "list": [],
    "unknown_key": {9: 1},
    "wide": {ComponentType.SWA: 2**63},
    "text": {FULL: "1"},
}
_PAIRS: Bad = {
    **_NULL,
    "int": 1,
    "flat": [1],
    "single": [(1,)],
    "triple": [(1, 2, 3)],
    "float": [(1.5, 0)],
    "wide": [(2**63, 0)],
    "bool_handle": [(0, True)],
    "negative_handle": [(0, -1)],
}
_NO_TENSOR: Bad = {**_NULL, "list": [1], "int": 1}


# --- Parameters ---------------------------------------------------------------------------

Good = Callable[[Any, NodeId], Any]
"""A fitting argument, made anew for each call from the core and the node."""


def _tokens(core: Any) -> array[int]:
    """Enough tokens for two pages, whatever the kind of tree."""
    return array("q", range(2 * core.page_size + 1))


def _key(core: Any, node: NodeId) -> RadixKey:
    return RadixKey(_tokens(core))


def _slots(core: Any, node: NodeId) -> torch.Tensor:
    return torch.zeros(2 * core.page_size + 1, dtype=torch.int64, device=core.device)


_STATE = torch.tensor([1])
"""A fitting Mamba state, which a tree without states does not look at."""


def _fixed(value: Any) -> Good:
    return lambda core, node: value


Parameter = tuple[Good, Bad]

_NODE: Parameter = (lambda core, node: node, _HANDLE | _NULL)
_ONE_NODE: Parameter = (lambda core, node: [node], _HANDLES)
_KIND: Parameter = (_fixed(FULL), _COMPONENT)
_COUNT: Parameter = (_fixed(0), _UNSIGNED)
_IS: Parameter = (_fixed(False), _FLAG)
_ANY: Parameter = (_fixed(None), {})
_ONGOING: Parameter = (lambda core, node: [], _PAIRS)

PARAMETERS: dict[str, tuple[Parameter, ...]] = {
    "inc_lock_ref": (_NODE, (_fixed(()), _COMPONENTS)),
    "inc_host_lock_ref": (_NODE,),
    "inc_full_pin": (_NODE,),
    "dec_full_pin": (_NODE,),
    "evict_device_start": (_KIND, _COUNT),
    "evict_device_next_node": (_KIND, (lambda core, node: {}, _COUNTS)),
    "evict_device_end": (_KIND,),
    "evict_device_leaf": (_NODE, _IS),
    "demote": (_NODE,),
    "drop_subtree_no_host": (_NODE,),
    "drive_host_eviction": (_KIND, _COUNT),
    "finish_mamba_state_eviction": (_NODE,),
    "finish_swa_state_eviction": (_NODE,),
    "evict_excess_path_states": (_NODE, _ANY, _ANY, _ANY),
    "component_evictable_size": (_KIND,),
    "component_protected_size": (_KIND,),
    "adjust_component_size": (_NODE, _KIND, (_fixed(0), _SIGNED)),
    "root_node_handle": ((_fixed(None), _TEXT),),
    "node_by_id": (_NODE,),
    "is_root": (_NODE,),
    "is_backuped": (_NODE,),
    "is_full_device_evicted": (_NODE,),
    "rotation_base_of": (_NODE,),
    "rotation_phase_of": (_NODE,),
    "get_component_device_value": (_NODE, _KIND),
    "set_component_device_value": (_NODE, _KIND, (_slots, _NO_TENSOR)),
    "component_has_host_value_only": (_NODE, _KIND),
    "walk_for_kv_canary": (_IS, _IS),
    "collect_full_device_indices": (_NODE, _NODE),
    "collect_path_info": (_ONE_NODE,),
    "dfs_weight_order": (_ONE_NODE,),
    "swa_tombstone_ranges": ((_key, {}), _COUNT, _COUNT, _KIND),
    "attach_swa_window": ((_key, {}), _COUNT, _COUNT, (_slots, {}), _KIND),
    "get_last_hash_value": (_NODE,),
    "get_hash_values": (_NODE,),
    "get_prefix_hash_values": (_NODE,),
    "snapshot_buffer_backup": (_NODE, _IS),
    "validate_buffer_backup": (_NODE, _COUNT),
    "buffer_backup_pool_keys": (_NODE, (lambda core, node: [], {})),
    "build_storage_backup_spec": (_NODE, _IS),
    "prefetch_anchor_info": (_NODE,),
    "build_backup_kv_action": (_NODE,),
    "build_backup_spec": (_NODE,),
    "commit_backup": (_NODE, _ANY, _ANY),
    "mark_write_through_pending": (_ONE_NODE, _ANY),
    "finish_write_through": (_ONE_NODE, _ANY),
    "build_load_back_spec": (_NODE,),
    "commit_load_back": (_NODE, _ANY, _ANY, _ANY),
    "finish_load_back": (_NODE,),
    "build_hicache_transfers": (_KIND, _NODE, _ANY),
    "insert_host": (_NODE, (_key, {}), _ANY, _ANY),
    "build_external_linker_offload_transfers": (_NODE,),
    "mark_external_linker_offload_pending": (_NODE,),
    "finish_external_linker_offload": (_ONE_NODE, _NODE, _IS),
    "mark_external_cache_stored_path": (_NODE, _NODE),
    "sanity_check": (_ONGOING, _ONGOING),
}
"""For each method that takes plain arguments: what fits, and what does not, in order."""

_RECEIPT_FIELDS: dict[str, Bad] = {
    "node_id": _HANDLE,
    "skipped_lock_components": _COMPONENTS,
    "component_lock_uuids": _UUIDS,
    "component_host_lock_uuids": _UUIDS,
}
_KEY_FIELDS: dict[str, Bad] = {
    "token_ids": {
        **_NULL,
        "list": [1, 2],
        "bytes": b"12345678",
        "narrow": array("i", [1, 2]),
        "unsigned": array("Q", [1, 2]),
    },
    "extra_key": _TEXT,
    "cache_salt": _TEXT,
    "limit": {**_NO_NUMBER, "negative": -1, "low": -(2**70)},
}
_INSERT_FIELDS: dict[str, Bad] = {
    "key": _NULL,
    "prev_prefix_len": _UNSIGNED,
    "component_evicted_seqlens": _COUNTS,
    "inserted_len": _UNSIGNED,
    "priority": _OPTIONAL_SIGNED,
    "session_id": _TEXT,
    "track_adopted_ranges": _FLAG,
    "rotation_base": _OPTIONAL_SIGNED,
    "value": {
        "list": [1],
        "int": 1,
        "float": torch.zeros(64),
        "narrow": torch.zeros(64, dtype=torch.int32),
        "flat": torch.zeros((64, 1), dtype=torch.int64),
        "scalar": torch.tensor(1),
        "short": torch.zeros(1, dtype=torch.int64),
        "meta": torch.zeros(64, dtype=torch.int64, device="meta"),
    },
}
_SETTINGS: dict[str, Bad] = dict.fromkeys(SETTINGS, _FLAG) | {
    "write_through_threshold": _SIGNED,
    "has_swa_host_pool": {**_FLAG, "unsupported": True},
}


# --- The table ----------------------------------------------------------------------------


def _plain(method: str, place: int, bad: Any) -> Call:
    goods = [good for good, _ in PARAMETERS[method]]

    def call(core: Any, node: NodeId, component: ComponentType) -> Any:
        arguments = [good(core, node) for good in goods]
        arguments[place] = bad
        return getattr(core, method)(*arguments)

    return call


def _with_receipt(method: str, changes: dict[str, Any] | None) -> Call:
    """A release; without changes there is no receipt at all, not even a bad one."""

    def call(core: Any, node: NodeId, component: ComponentType) -> Any:
        receipt = None if changes is None else DecLockRefParams(**{"node_id": node, **changes})
        middle = (component,) if method == "dec_window_lock_only" else ()
        return getattr(core, method)(node, *middle, receipt)

    return call


def _with_key(method: str, field: str, bad: Any) -> Call:
    def call(core: Any, node: NodeId, component: ComponentType) -> Any:
        key = RadixKey(_tokens(core))
        setattr(key, field, bad)
        if method == "match_full_device_prefix":
            return core.match_full_device_prefix(key)
        if method == "match_prefix":
            return core.match_prefix(MatchPrefixParams(key))
        value = _slots(core, node)
        return core.begin_insert(InsertParams(key=key, value=value, mamba_value=_STATE))

    return call


def _with_insert(**changes: Any) -> Call:
    def call(core: Any, node: NodeId, component: ComponentType) -> Any:
        params = InsertParams(key=_key(core, node), value=_slots(core, node), mamba_value=_STATE)
        for field, bad in changes.items():
            setattr(params, field, bad)
        return core.begin_insert(params)

    return call


def _with_none(method: str, core: Any, node: NodeId, component: ComponentType) -> Any:
    return getattr(core, method)(None)


def _commit_transfers(bad: Any, core: Any, node: NodeId, component: ComponentType) -> Any:
    return core.commit_hicache_transfers(bad, None, {}, cache_actions=[])


def _assign(name: str, bad: Any) -> Call:
    return lambda core, node, component: setattr(core, name, bad)


def _bad_arguments() -> dict[str, Call]:
    table: dict[str, Call] = {}
    for method, parameters in PARAMETERS.items():
        names = parameters_of(method)
        for place, (_, bad_values) in enumerate(parameters):
            for how, bad in bad_values.items():
                table[f"{method}:{names[place]}_{how}"] = _plain(method, place, bad)
    return table


def _bad_records() -> dict[str, Call]:
    table: dict[str, Call] = {}
    for how, bad in (_HANDLE | _NULL).items():
        table[f"commit_hicache_transfers:node_id_{how}"] = partial(_commit_transfers, bad)
    for method in (
        "dec_lock_ref",
        "dec_host_lock_ref",
        "dec_swa_lock_only",
        "dec_window_lock_only",
    ):
        table[f"{method}:no_receipt"] = _with_receipt(method, None)
        for field, bad_values in _RECEIPT_FIELDS.items():
            for how, bad in bad_values.items():
                table[f"{method}:{field}_{how}"] = _with_receipt(method, {field: bad})
    for method in ("match_prefix", "match_full_device_prefix", "begin_insert"):
        table[f"{method}:none"] = partial(_with_none, method)
        for field, bad_values in _KEY_FIELDS.items():
            for how, bad in bad_values.items():
                table[f"{method}:{field}_{how}"] = _with_key(method, field, bad)
    for field, bad_values in _INSERT_FIELDS.items():
        for how, bad in bad_values.items():
            table[f"begin_insert:{field}_{how}"] = _with_insert(**{field: bad})
    for name, bad_values in _SETTINGS.items():
        for how, bad in bad_values.items():
            table[f"{name}:{how}"] = _assign(name, bad)
    return table


_LACKING: dict[str, Call] = {
    "evict_device_start": lambda core, node, kind: core.evict_device_start(kind, 1),
    "evict_device_next_node": lambda core, node, kind: core.evict_device_next_node(kind, {}),
    "evict_device_end": lambda core, node, kind: core.evict_device_end(kind),
    "finish_swa_state_eviction": lambda core, node, kind: core.finish_swa_state_eviction(node),
    "finish_mamba_state_eviction": lambda core, node, kind: core.finish_mamba_state_eviction(node),
    "evict_excess_path_states": lambda core, node, kind: core.evict_excess_path_states(
        node, {}, {}, []
    ),
    "get_component_device_value": lambda core, node, kind: core.get_component_device_value(
        node, kind
    ),
    "set_component_device_value": lambda core, node, kind: core.set_component_device_value(
        node, kind, _slots(core, node)
    ),
    "component_has_host_value_only": lambda core, node, kind: core.component_has_host_value_only(
        node, kind
    ),
    "adjust_component_size": lambda core, node, kind: core.adjust_component_size(node, kind, 1),
    "node_by_id": lambda core, node, kind: core.node_by_id(node),
    "set_hicache_enabled": lambda core, node, kind: core.set_hicache_enabled(),
    "build_backup_spec": lambda core, node, kind: core.build_backup_spec(node),
    "build_load_back_spec": lambda core, node, kind: core.build_load_back_spec(node),
    "mark_write_through_pending": lambda core, node, kind: core.mark_write_through_pending(
        [node], node
    ),
    "finish_write_through": lambda core, node, kind: core.finish_write_through([node], node),
    "finish_load_back": lambda core, node, kind: core.finish_load_back(node),
    "rotation_phase_of": lambda core, node, kind: core.rotation_phase_of(node),
    "buffer_backup_pool_keys": lambda core, node, kind: core.buffer_backup_pool_keys(node, []),
}
"""Good calls for a component or tier that the core lacks."""

_OF_COMPONENT = frozenset(
    {
        "evict_device_start",
        "evict_device_next_node",
        "evict_device_end",
        "get_component_device_value",
        "set_component_device_value",
        "component_has_host_value_only",
        "adjust_component_size",
    }
)
"""Those of them that are good for a component that is there."""

_LACKING_ONE = {
    "evict_excess_path_states": ComponentType.MAMBA,
    "has_swa_host_pool:unsupported": ComponentType.SWA,
}
"""Calls that are good where the tree has this component."""

_OF_STATES: dict[str, Call] = {
    f"begin_insert:mamba_value_{how}": _with_insert(mamba_value=bad)
    for how, bad in {
        "missing": None,
        "empty": torch.zeros(0, dtype=torch.int64),
        "pair": torch.tensor([1, 2]),
        "scalar": torch.tensor(1),
        "square": torch.ones((1, 1), dtype=torch.int64),
        "float": torch.ones(1),
        "list": [1],
        "int": 1,
    }.items()
}
"""Inserts that only a tree with states refuses: it wants one state, and one alone (MAM-I5)."""


def _claim_twice(core: Any, node: NodeId, component: ComponentType) -> None:
    """Claim a node that nobody has claimed, once more (LNK-4); afterwards it is free again."""
    core.mark_external_linker_offload_pending(node)
    try:
        core.mark_external_linker_offload_pending(node)
    finally:
        core.finish_external_linker_offload([node], node, False)


_REPEATED: dict[str, Call] = {"mark_external_linker_offload_pending": _claim_twice}
"""Good calls that another one before them has made bad."""

_SEVERAL: dict[str, Call] = {
    "begin_insert:array_and_flag": lambda core, node, kind: core.begin_insert(
        InsertParams(key=RadixKey([1]), track_adopted_ranges="yes")  # type: ignore[arg-type]
    ),
    "begin_insert:flag_and_rotation_base": _with_insert(
        track_adopted_ranges=1, rotation_base=2**63
    ),
    "begin_insert:value_and_inserted_len": _with_insert(value=[1], inserted_len=-1),
    "inc_lock_ref:node_and_components": lambda core, node, kind: core.inc_lock_ref(-1, None),
    "evict_device_leaf:node_and_flag": lambda core, node, kind: core.evict_device_leaf(-1, 1),
    "dec_lock_ref:node_and_flag": lambda core, node, kind: core.dec_lock_ref(
        -1, DecLockRefParams(), 1
    ),
    "dec_lock_ref:flag": lambda core, node, kind: core.dec_lock_ref(
        node, DecLockRefParams(node), None
    ),
}
"""Two bad arguments at once: the first one that is converted decides (INS-71)."""

MISUSES: dict[str, Call] = {
    **_LACKING,
    **_bad_arguments(),
    **_bad_records(),
    **_SEVERAL,
    **_REPEATED,
    **_OF_STATES,
}
"""Calls that `misuse` can name."""
