"""Core ops that evict: device walks of every component, step by step, and what they offer.

Walks of several components may be open at once. Whatever a step frees counts for all of them, as
the running totals of a cache do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..backends.contract import ComponentType, EvictionResult, NodeId
from . import ops
from .config import COMPONENT_NAMES
from .references import Walk

if TYPE_CHECKING:
    from .execute import CoreOps

FULL = ComponentType.FULL


def walk_start(side: CoreOps, op: ops.WalkStart) -> None:
    """Open a walk of a component that has none."""
    component = COMPONENT_NAMES[op.component]
    is_fitting = component in side.components and component not in side.references.walks
    if is_fitting or op.force:
        side.core.evict_device_start(component, op.count)
        side.references.walks[component] = Walk(op.count)


def walk_next(side: CoreOps, op: ops.WalkNext) -> None:
    """One step of an open walk."""
    component = COMPONENT_NAMES[op.component]
    walk = side.references.walks.get(component)
    if walk is None and not op.force:
        return
    done = op.done if op.done is not None else (walk.total if walk else 0)
    result = side.core.evict_device_next_node(component, {component: done})
    if walk is not None:
        walk.offered = result.node_id
    _count(side, result)
    side.cache.drain(result)


def walk_end(side: CoreOps, op: ops.WalkEnd) -> None:
    """Close an open walk."""
    component = COMPONENT_NAMES[op.component]
    if component in side.references.walks or op.force:
        side.core.evict_device_end(component)
        side.references.walks.pop(component, None)


def close_walks(side: CoreOps) -> None:
    """End every open walk, as whoever opened it must before another opens one."""
    for component in list(side.references.walks):
        side.core.evict_device_end(component)
        del side.references.walks[component]


def close_auxiliary_walks(side: CoreOps) -> None:
    """End the walks that must not meet a lock between two steps (SWA-E4, MAM-E16)."""
    for component in [kind for kind in side.references.walks if kind is not FULL]:
        side.core.evict_device_end(component)
        del side.references.walks[component]


def evict_leaf(side: CoreOps, op: ops.EvictLeaf) -> None:
    """Evict what a walk offered; a leaf that asks for a backup first is dropped."""
    node = side.node(op.node)
    if node is None:
        return
    result = side.core.evict_device_leaf(node, side.core.is_write_back != op.flip_mode)
    _count(side, result)
    backup = result.backup_kv
    side.cache.drain(result)
    if backup is not None:
        _drop(side, node)
    _forget_offer(side, node)


def drop_subtree(side: CoreOps, op: ops.DropSubtree) -> None:
    """Drop a node with all below it."""
    node = side.node(op.node)
    if node is not None:
        _drop(side, node)
        _forget_offer(side, node)


def _drop(side: CoreOps, node: NodeId) -> None:
    """Without a host tier a write-back victim has nowhere to go (CTL-28)."""
    result = side.core.drop_subtree_no_host(node)
    _count(side, result)
    side.cache.drain(result)


def _count(side: CoreOps, result: EvictionResult) -> None:
    for component, walk in side.references.walks.items():
        walk.total += result.tracker.get(component, 0)


def _forget_offer(side: CoreOps, node: NodeId) -> None:
    for walk in side.references.walks.values():
        if walk.offered == node:
            walk.offered = None


def cap_path(side: CoreOps, op: ops.CapPath) -> None:
    """Evict the states of a path that are too many, and free them (CTL-22)."""
    node = side.node(op.node)
    if node is None or not side.config.has_states:
        return
    freed = EvictionResult()
    try:
        side.core.evict_excess_path_states(
            node, freed.device_frees, freed.host_frees, freed.cache_actions
        )
    finally:
        side.cache.drain(freed)


def demote(side: CoreOps, op: ops.Demote) -> None:
    """Drop the device layers of a node."""
    node = side.node(op.node)
    if node is not None:
        side.cache.drain(side.core.demote(node))


def host_evict(side: CoreOps, op: ops.HostEvict) -> None:
    """Evict from the host."""
    component = COMPONENT_NAMES[op.component]
    if component in side.components:
        side.cache.drain(side.core.drive_host_eviction(component, op.count))


def evict_lists(side: CoreOps) -> None:
    """Walk the list of every component but FULL to its end, and evict what is no leaf.

    So the whole order of each list is seen, and every node that has a value of its own inside the
    tree. Leaves are only offered: FULL's eviction takes them, with all that is left on them.
    """
    for component in reversed(side.components):
        if component is not FULL:
            _evict_list(side, component)


def _evict_list(side: CoreOps, component: ComponentType) -> None:
    side.core.evict_device_start(component, 2**62)
    # A sound walk sees every node at most once, and each has a value of its own.
    for _ in range(sum(side.references.core.total_size()) + 1):
        result = side.core.evict_device_next_node(component, {component: 0})
        is_over = result.node_id is None and not result.made_progress
        side.cache.drain(result)
        if is_over:
            break
    side.core.evict_device_end(component)
