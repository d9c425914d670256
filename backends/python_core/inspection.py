"""Shows a Python core's whole state as plain data. The core never imports this module."""

from __future__ import annotations

from ..contract import ComponentType
from ..inspection import NodeSnapshot, TreeSnapshot, dense_ranks
from .core import PythonTreeCore
from .keys import unpack
from .node import Node
from .tree import ROOT_PRIORITY, Tree

_FULL = ComponentType.FULL


def inspect_tree(core: PythonTreeCore) -> TreeSnapshot:
    """The state as it is now; changes nothing."""
    tree = core._tree
    nodes = [tree.root, *tree.pre_order()]
    access_ranks = dense_ranks([node.last_access_time for node in nodes])
    creation_ranks = dense_ranks([node.creation_time for node in nodes])
    return TreeSnapshot(
        nodes=[
            _inspect_node(tree, node, access, creation)
            for node, access, creation in zip(nodes, access_ranks, creation_ranks, strict=True)
        ],
        device_leaves=sorted(node.id for node in tree.device_leaves),
        host_leaves=[],
        lru_lists={_FULL: []}
        | {each.component_type: [node.id for node in each.recency] for each in tree.auxiliary},
        host_lru_lists={each.component_type: [] for each in tree.components},
        evictable={each.component_type: each.evictable for each in tree.components},
        protected={each.component_type: each.protected for each in tree.components},
        has_insert=core.has_ongoing_insert(),
        open_walks=[each.component_type for each in tree.components if each.has_open_walk],
        queued_events=len(tree.events),
    )


def _inspect_node(tree: Tree, node: Node, access_rank: int, creation_rank: int) -> NodeSnapshot:
    records = {each.component_type: each.data(node) for each in tree.components}
    is_raised = node is not tree.root or node.priority > ROOT_PRIORITY
    extra_key, cache_salt = node.namespace or (None, None)
    return NodeSnapshot(
        node_id=node.id,
        parent_id=None if node.parent is None else node.parent.id,
        child_ids=[child.id for child in node.children.values()],
        token_ids=unpack(node.key).tolist(),
        extra_key=extra_key,
        cache_salt=cache_salt,
        is_bigram=tree.layout.is_bigram and node is not tree.root,
        priority=node.priority if is_raised else None,
        hit_count=node.hit_count,
        access_rank=access_rank,
        creation_rank=creation_rank,
        hash_values=_copy(node.hashes),
        event_hash_values=_copy(node.event_hashes),
        lock_ref={component: data.lock_ref for component, data in records.items()},
        host_lock_ref={component: data.host_lock_ref for component, data in records.items()},
        device_value={
            component: data.device_value.tolist()
            for component, data in records.items()
            if data.device_value is not None
        },
        host_value={},
        device_lock_uuid={
            component: data.lock_uuid
            for component, data in records.items()
            if data.lock_uuid is not None
        },
        host_lock_uuid={
            component: data.host_lock_uuid
            for component, data in records.items()
            if data.host_lock_uuid is not None
        },
        write_through_pending_id=node.write_through_pending_id,
        load_back_pending_id=None,
        external_cache_stored=node.external_cache_stored,
        rotation_base=node.rotation_base,
        prefix_length=node.prefix_length,
        history_length=node.history_length,
    )


def _copy(hashes: list[str] | None) -> list[str] | None:
    return None if hashes is None else list(hashes)
