"""Turns the inspection build's view of a tree into the snapshot that all cores share.

Works only on a core that runs on the inspection module. Hides the native dictionary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..contract import ComponentType, TreeCore
from ..inspection import NodeSnapshot, TreeSnapshot, dense_ranks
from .adapter import RustTreeCore
from .native import load_inspection

_FULL = ComponentType.FULL


def inspector() -> Callable[[TreeCore], TreeSnapshot] | None:
    """What shows the state of cores made here; None when they run on the production build."""
    return None if load_inspection() is None else inspect_tree


def inspect_tree(core: TreeCore) -> TreeSnapshot:
    """The whole state of a core. Raises `AttributeError` on a production build."""
    assert isinstance(core, RustTreeCore)
    state = core.native.inspect_tree()
    nodes = state["nodes"]
    access_ranks = dense_ranks([node["access_time"] for node in nodes])
    creation_ranks = dense_ranks([node["creation_time"] for node in nodes])
    return TreeSnapshot(
        nodes=[
            _node(node, access_rank, creation_rank, core.is_eagle)
            for node, access_rank, creation_rank in zip(
                nodes, access_ranks, creation_ranks, strict=True
            )
        ],
        device_leaves=state["device_leaves"],
        host_leaves=[],
        lru_lists={_FULL: []},
        host_lru_lists={_FULL: []},
        evictable={_FULL: state["evictable"]},
        protected={_FULL: state["protected"]},
        has_insert=state["has_insert"],
        open_walks=[_FULL] if state["has_walk"] else [],
        queued_events=state["queued_events"],
    )


def _node(node: Any, access_rank: int, creation_rank: int, is_bigram: bool) -> NodeSnapshot:
    is_root = node["parent_id"] is None
    value, mark = node["device_value"], node["host_lock_uuid"]
    return NodeSnapshot(
        node_id=node["node_id"],
        parent_id=node["parent_id"],
        child_ids=node["child_ids"],
        token_ids=node["token_ids"],
        extra_key=node["extra_key"],
        cache_salt=node["cache_salt"],
        is_bigram=is_bigram and not is_root,
        priority=node["priority"],
        hit_count=node["hit_count"],
        access_rank=access_rank,
        creation_rank=creation_rank,
        hash_values=node["hash_values"],
        event_hash_values=node["event_hash_values"],
        lock_ref={_FULL: node["lock_ref"]},
        host_lock_ref={_FULL: node["host_lock_ref"]},
        device_value={} if value is None else {_FULL: value},
        host_value={},
        device_lock_uuid={},
        host_lock_uuid={} if mark is None else {_FULL: mark},
        write_through_pending_id=node["write_through_pending_id"],
        load_back_pending_id=None,
        external_cache_stored=node["external_cache_stored"],
        rotation_base=node["rotation_base"],
        prefix_length=node["prefix_length"],
        history_length=node["history_length"],
    )
