"""Turns the inspection build's view of a tree into the snapshot that all cores share.

Works only on a core that runs on the inspection module. Hides the native dictionary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..contract import ComponentType, TreeCore
from ..inspection import NodeSnapshot, TreeSnapshot, dense_ranks
from .adapter import RustTreeCore
from .answers import TYPES
from .native import load_inspection


def inspector() -> Callable[[TreeCore], TreeSnapshot] | None:
    """What shows the state of cores made here; None when they run on the production build."""
    return None if load_inspection() is None else inspect_tree


def inspect_tree(core: TreeCore) -> TreeSnapshot:
    """The whole state of a core. Raises `AttributeError` on a production build."""
    assert isinstance(core, RustTreeCore)
    state = core.native.inspect_tree()
    nodes = state["nodes"]
    records = {TYPES[number]: record for number, *record in state["records"]}
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
        lru_lists={component: record[2] for component, record in records.items()},
        host_lru_lists={component: [] for component in records},
        evictable={component: record[0] for component, record in records.items()},
        protected={component: record[1] for component, record in records.items()},
        has_insert=state["has_insert"],
        open_walks=[component for component, record in records.items() if record[3]],
        queued_events=state["queued_events"],
    )


def _node(node: Any, access_rank: int, creation_rank: int, is_bigram: bool) -> NodeSnapshot:
    is_root = node["parent_id"] is None
    held = {TYPES[number]: fields for number, *fields in node["components"]}
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
        lock_ref={component: fields[0] for component, fields in held.items()},
        host_lock_ref={component: fields[1] for component, fields in held.items()},
        device_value=_present(held, 4),
        host_value={},
        device_lock_uuid=_present(held, 2),
        host_lock_uuid=_present(held, 3),
        write_through_pending_id=node["write_through_pending_id"],
        load_back_pending_id=None,
        external_cache_stored=node["external_cache_stored"],
        rotation_base=node["rotation_base"],
        prefix_length=node["prefix_length"],
        history_length=node["history_length"],
    )


def _present(held: dict[ComponentType, list[Any]], place: int) -> dict[ComponentType, Any]:
    """One field of the components that have it."""
    return {
        component: fields[place] for component, fields in held.items() if fields[place] is not None
    }
