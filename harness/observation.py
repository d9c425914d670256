"""What one op showed on one side, and what the whole side looks like between two ops.

An observation is plain data in msgpack, so two sides are compared byte by byte, and only a
difference is ever decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import torch

from ..backends.contract import ComponentType, NodeId, SanityCheckError, TreeCore
from ..backends.inspection import TreeSnapshot
from ..backends.pools import Pools
from .canonical import Names, Plain, pack, tensor, value

if TYPE_CHECKING:
    from .cache import Cache

FULL = ComponentType.FULL


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


def sizes(core: TreeCore, pools: Pools, requests: int) -> list[int]:
    """Counters of a side after an op, in the order of `compare.SIZE_NAMES`."""
    return [
        core.component_evictable_size(FULL),
        core.component_protected_size(FULL),
        int(core.has_ongoing_insert()),
        pools.allocator.available_size(),
        requests,
    ]


def free_list(pools: Pools) -> list[int]:
    """Every free page of a pool in hand-out order, those that wait to be sorted last."""
    return pools.allocator.free_list() + pools.allocator.staged_list()


def tree(
    core: TreeCore,
    cache: Cache,
    names: Names,
    live: list[NodeId],
    ordered: bool,
    whole_pool: bool,
) -> Plain:
    """The whole state of a side through the contract alone.

    `live` are the handles that ops know; with the ancestors that their paths tell of, these are
    all nodes, since every leaf was told when it was inserted.
    """
    paths = core.collect_path_info(live)
    known = dict.fromkeys([*live, *(info.node_id for path in paths for info in path)])
    nodes = [_node(core, names, node) for node in known]
    flat = core.all_values_flatten()
    return {
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


def _node(core: TreeCore, names: Names, node: NodeId) -> list[Plain]:
    is_root = core.is_root(node)
    device = None if is_root else core.get_component_device_value(node, FULL)
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
