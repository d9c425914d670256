"""What one op showed on one side, and what the whole side looks like between two ops.

An observation is plain data in msgpack, so two sides are compared byte by byte, and only a
difference is ever decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from ..backends.contract import (
    ComponentType,
    NodeId,
    SanityCheckError,
    TreeCore,
    TreePathNodeInfo,
)
from ..backends.inspection import TreeSnapshot
from ..backends.pools import Pools, StatePool, WindowPool
from .canonical import Names, Plain, pack, tensor, value

if TYPE_CHECKING:
    from .cache import Cache

Paths = tuple[tuple[TreePathNodeInfo, ...], ...]

FULL, MAMBA = ComponentType.FULL, ComponentType.MAMBA

AUXILIARIES = (ComponentType.SWA, ComponentType.AUXILIARY_SWA, MAMBA)
"""Components besides FULL, in the order in which sizes and values are told."""

PLAIN_SIZES = 5
"""Counters that every side has; three for each other component follow."""


class Finding(msgspec.Struct, array_like=True):
    """A broken invariant on one side alone: which oracle, and what it saw."""

    oracle: str
    message: str


class Observation(msgspec.Struct, array_like=True):
    """Everything that one op showed.

    `outcome` is None or the class of the error that ended the op. `calls` are the core calls it
    made (see `Recorder`), `pool` every index allocated or freed in order, `sizes` the core's and
    the pool's counters afterwards. `tree` is the whole state as the contract shows it, taken
    every few ops; `snapshot` the same as an inspector shows it, where both cores have one.
    """

    outcome: str | None
    calls: list[Plain]
    pool: list[Plain]
    sizes: list[int]
    tree: Plain = None
    snapshot: Any = None
    findings: list[Finding] = []
    dead: bool = False


_DECODER = msgspec.msgpack.Decoder(Observation)


def encode(observation: Observation) -> bytes:
    """An observation as bytes; equal observations give equal bytes."""
    return pack(observation)


def decode(data: bytes) -> Observation:
    """The observation behind the bytes."""
    return _DECODER.decode(data)


def sizes(
    core: TreeCore, pools: Pools, requests: int, components: Sequence[ComponentType]
) -> list[int]:
    """Counters of a side after an op, in the order of `compare.SIZE_NAMES`.

    A tree of FULL alone has nothing to tell of the others.
    """
    evictable, protected = core.component_evictable_size, core.component_protected_size
    told = [
        evictable(FULL),
        protected(FULL),
        int(core.has_ongoing_insert()),
        pools.allocator.available_size(),
        requests,
    ]
    for kind in AUXILIARIES if len(components) > 1 else ():
        if kind in components:
            free = pool_of(pools, kind).available_size()
            told += (evictable(kind), protected(kind), free)
        else:
            told += (0, 0, 0)
    return told


def ledgers(
    told: list[int], components: Sequence[ComponentType]
) -> dict[ComponentType, tuple[int, int]]:
    """Evictable and protected size of each component, out of `sizes`."""
    counted = {FULL: (told[0], told[1])}
    for number, kind in enumerate(AUXILIARIES):
        if kind in components:
            place = PLAIN_SIZES + 3 * number
            counted[kind] = (told[place], told[place + 1])
    return counted


def pool_of(pools: Pools, component: ComponentType) -> WindowPool | StatePool:
    """The pool of a component besides FULL. Raises `KeyError` if the tree has none of it."""
    if component is MAMBA and pools.states is not None:
        return pools.states
    return pools.windows[component]


def free_list(pools: Pools) -> list[int]:
    """Every free page of a pool in hand-out order, those that wait to be sorted last."""
    return pools.allocator.free_list() + pools.allocator.staged_list()


def known_nodes(
    core: TreeCore, live: list[NodeId], met: list[NodeId]
) -> tuple[Paths, list[NodeId]]:
    """The paths to handles that are alive, and all nodes on these paths.

    `live` are those that ops know, `met` others that an earlier look came across: a node that a
    split made is told to no op, and outlives all that were told below it.
    """
    paths = core.collect_path_info(live)
    known = dict.fromkeys([*live, *(info.node_id for path in paths for info in path)])
    rest = [node for node in met if node not in known]
    if rest:
        more = core.collect_path_info(rest)
        known |= dict.fromkeys([*rest, *(info.node_id for path in more for info in path)])
        paths += more
    return paths, list(known)


def tree(
    core: TreeCore,
    cache: Cache,
    names: Names,
    live: list[NodeId],
    known: tuple[Paths, list[NodeId]],
    ordered: bool,
    whole_pool: bool,
) -> Plain:
    """The whole state of a side through the contract alone.

    `live` are the handles that ops know, `known` what `known_nodes` found.
    """
    components = cache.config.component_types()
    paths, known_ids = known
    nodes = [_node(core, names, node, components) for node in known_ids]
    flat = core.all_values_flatten()
    more = _auxiliary(cache, whole_pool) if len(components) > 1 else {}
    return more | {
        "paths": value(names, paths),
        "nodes": nodes,
        "values": tensor(flat if ordered else flat.sort().values),
        "total": list(core.total_size()),
        "order": core.dfs_weight_order(live),
        "free": free_list(cache.pools) if whole_pool else None,
        "rows": [tensor(row) for row in _rows(cache)],
        "healthy": _healthy(core),
        "settings": _settings(core),
        "compatible": core.is_write_through_compatible(),
    }


SETTINGS = (
    "page_size",
    "is_eagle",
    "enable_hicache",
    "enable_storage",
    "enable_external_cache_linker",
    "write_through_threshold",
    "is_write_back",
    "has_swa_host_pool",
    "is_host_memory_buffer_only",
    "supports_rotation_base",
    "write_back_duplicate_reclaim_digest",
)
"""Attributes that every core carries (PLUG-1); `device` is told by its type."""


def _settings(core: TreeCore) -> list[Plain]:
    values = [int(getattr(core, name)) for name in SETTINGS]
    return [*values, str(core.device).partition(":")[0], core.kv_events.enabled]


def _rows(cache: Cache) -> list[torch.Tensor]:
    return [request.slots[: request.computed_len] for request in cache.requests]


def _auxiliary(cache: Cache, whole_pool: bool) -> dict[str, Plain]:
    """What windows and states have besides: whole free lists, and what requests own."""
    pools = cache.pools
    return {
        "window_free": {
            int(kind): pool.free_list() + pool.staged_list() if whole_pool else None
            for kind, pool in pools.windows.items()
        },
        "state_free": pools.states.free_list() if pools.states and whole_pool else None,
        "states": [cache.private_states(request) for request in cache.requests],
    }


def _node(
    core: TreeCore, names: Names, node: NodeId, components: Sequence[ComponentType]
) -> list[Plain]:
    is_root = core.is_root(node)
    device = None if is_root else core.get_component_device_value(node, FULL)
    others: list[Plain] = []
    for kind in AUXILIARIES if len(components) > 1 else ():
        is_there = kind in components and not is_root
        found = core.get_component_device_value(node, kind) if is_there else None
        others.append(value(names, found))
    return [
        names.handle(node),
        is_root,
        core.is_backuped(node),
        core.is_full_device_evicted(node),
        value(names, device),
        value(names, core.get_hash_values(node)),
        core.get_last_hash_value(node),
        value(names, core.get_prefix_hash_values(node)),
        core.rotation_base_of(node),
        *others,
    ]


def snapshot(taken: TreeSnapshot, names: Names) -> TreeSnapshot:
    """The whole state of a core as its inspector shows it, its handles renamed in place."""
    handle = names.handle
    for node in taken.nodes:
        node.node_id = handle(node.node_id)
        node.parent_id = handle(node.parent_id)
        node.child_ids = [handle(child) for child in node.child_ids]
        node.write_through_pending_id = handle(node.write_through_pending_id)
        node.load_back_pending_id = handle(node.load_back_pending_id)
        for uuids in (node.device_lock_uuid, node.host_lock_uuid):
            for kind, uuid in uuids.items():
                uuids[kind] = names.receipt(uuid)
    for lists in (taken.lru_lists, taken.host_lru_lists):
        for kind, members in lists.items():
            lists[kind] = list(map(handle, members))
    taken.device_leaves = sorted(map(handle, taken.device_leaves))
    taken.host_leaves = sorted(map(handle, taken.host_leaves))
    return taken


def _healthy(core: TreeCore) -> Any:
    """Whether the core's own check is content, and if not how many violations it counts."""
    try:
        core.sanity_check([], [])
    except SanityCheckError as error:
        return str(error).split("\n", 1)[0]
    return True
