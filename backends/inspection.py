"""What an inspected core shows: its whole tree as plain data, equal in shape for every core.

An inspector of one core turns its private state into a `TreeSnapshot`; the comparison reads
snapshots alone and never meets a core's own node type. Clock values are shown as dense ranks and
node ids as they are, so snapshots of two cores compare once ids are renamed. A core never imports
this module.
"""

from __future__ import annotations

import msgspec

from .contract import ComponentType, NodeId

ComponentValues = dict[ComponentType, list[int]]
"""Slot indices per component; a component without a value has no entry."""

ComponentCounts = dict[ComponentType, int]
"""One number for every component that the core was built with, zeros included."""


class NodeSnapshot(msgspec.Struct, kw_only=True):
    """One node. Lengths are in units (KEY-5), ranks are dense over all nodes and start at 0.

    Equal times share a rank; the root takes part in both ranks. `priority` of a root that no
    insert has raised is None, because its initial value differs between cores (NODE-3).
    """

    node_id: NodeId
    parent_id: NodeId | None
    child_ids: list[NodeId]
    token_ids: list[int]
    extra_key: str | None
    cache_salt: str | None
    is_bigram: bool
    priority: int | None
    hit_count: int
    access_rank: int
    creation_rank: int
    hash_values: list[str] | None
    event_hash_values: list[str] | None
    lock_ref: ComponentCounts
    host_lock_ref: ComponentCounts
    device_value: ComponentValues
    host_value: ComponentValues
    device_lock_uuid: ComponentCounts
    host_lock_uuid: ComponentCounts
    write_through_pending_id: int | None
    load_back_pending_id: int | None
    external_cache_stored: bool
    rotation_base: int | None
    prefix_length: int
    history_length: int


class TreeSnapshot(msgspec.Struct, kw_only=True):
    """A core's whole state. `nodes` are in pre-order, the root first, children in child order.

    The root shows no device value: the empty one that it counts as having is not data. Its
    `lock_ref` is 1 in every component, its `hash_values` the empty list (NODE-3). A root key holds
    no tokens and `is_bigram` is False there.
    """

    nodes: list[NodeSnapshot]
    device_leaves: list[NodeId]
    host_leaves: list[NodeId]
    lru_lists: dict[ComponentType, list[NodeId]]
    host_lru_lists: dict[ComponentType, list[NodeId]]
    evictable: ComponentCounts
    protected: ComponentCounts
    has_insert: bool
    open_walks: list[ComponentType]
    queued_events: int


def dense_ranks(times: list[float]) -> list[int]:
    """The rank of each time among the distinct ones, smallest first."""
    rank_of = {time: rank for rank, time in enumerate(sorted(set(times)))}
    return [rank_of[time] for time in times]
