"""Read-only questions to a core: what the `ask` op can be about."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ..backends.contract import ComponentType, NodeId, SanityCheckError, TreeCore
from . import ops

if TYPE_CHECKING:
    from .execute import CoreOps

EVERYWHERE = (ComponentType.FULL, ComponentType.SWA, ComponentType.MAMBA)
"""Components whose sizes every core tells, 0 where it has no such component (SIZE-1)."""


def ask(side: CoreOps, op: ops.Ask) -> None:
    """Put one question to the core; the recording holds the answer."""
    nodes = [node for node in map(side.node, op.nodes) if node is not None]
    if op.about in _ABOUT_TREE:
        _ABOUT_TREE[op.about](side, op)
    elif op.about in ("path", "order"):
        about_many = {"path": side.core.collect_path_info, "order": side.core.dfs_weight_order}
        about_many[op.about](nodes)
    elif op.about == "sanity":
        _sanity(side, nodes)
    elif op.about == "indices":
        if nodes:
            side.core.collect_full_device_indices(nodes[0], _ancestor(side.core, nodes, op))
    else:
        for node in nodes:
            _ABOUT_NODE[op.about](side, node, op)


def _ancestor(core: TreeCore, nodes: list[NodeId], op: ops.Ask) -> NodeId:
    """The end of a path question: an ancestor by depth, or with `flag` any node at all."""
    if op.flag and len(nodes) > 1:
        return nodes[1]
    path = core.collect_path_info([nodes[0]])[0]
    chain = [core.root_node_handle(), *[info.node_id for info in path]]
    return chain[op.number % len(chain)]


def _hashes(side: CoreOps, node: NodeId, op: ops.Ask) -> None:
    side.core.get_hash_values(node)
    side.core.get_last_hash_value(node)
    side.core.get_prefix_hash_values(node)


def _snapshot(side: CoreOps, node: NodeId, op: ops.Ask) -> None:
    side.core.snapshot_buffer_backup(node, op.flag)


def _validate(side: CoreOps, node: NodeId, op: ops.Ask) -> None:
    side.core.validate_buffer_backup(node, op.number)


def _rotation(side: CoreOps, node: NodeId, op: ops.Ask) -> None:
    side.core.rotation_base_of(node)
    side.core.rotation_phase_of(node)


def _predicates(side: CoreOps, node: NodeId, op: ops.Ask) -> None:
    side.core.is_root(node)
    side.core.is_backuped(node)
    side.core.is_full_device_evicted(node)
    for component in side.components:
        side.core.get_component_device_value(node, component)
        side.core.component_has_host_value_only(node, component)
    side.core.prefetch_anchor_info(node)
    side.core.build_storage_backup_spec(node, op.flag)


def _backup_chain(side: CoreOps, node: NodeId, op: ops.Ask) -> None:
    side.core.build_backup_kv_action(node)
    side.core.build_external_linker_offload_transfers(node)


def _sizes(side: CoreOps, op: ops.Ask) -> None:
    for component in dict.fromkeys((*EVERYWHERE, *side.components)):
        side.core.component_evictable_size(component)
        side.core.component_protected_size(component)
    for name in ("evictable", "protected"):
        for prefix in ("", "full_", "swa_", "mamba_"):
            getattr(side.core, f"{prefix}{name}_size")()
    side.core.total_size()


def _flatten(side: CoreOps, op: ops.Ask) -> None:
    side.core.all_values_flatten()
    side.core.all_mamba_values_flatten()


def _canary(side: CoreOps, op: ops.Ask) -> None:
    side.core.walk_for_kv_canary(op.flag, bool(op.number % 2))


def _sanity(side: CoreOps, nodes: list[NodeId]) -> None:
    core = side.core
    core.is_write_through_compatible()
    core.supports_fast_match_prefix()
    core.has_ongoing_insert()
    core.empty_match_result  # noqa: B018  The recording proxy writes the read down.
    # The recording tells what it says, and the invariant oracle judges it.
    in_flight = [offload.node_id for offload in side.cache.linker.pending]
    with suppress(SanityCheckError):
        core.sanity_check(list(enumerate(in_flight)), [])
    # Nothing loads these nodes: one that no lock holds must be told of (CHK-19).
    with suppress(SanityCheckError):
        core.sanity_check([], list(enumerate(nodes)))


_ABOUT_TREE: dict[str, Callable[[CoreOps, ops.Ask], None]] = {
    "canary": _canary,
    "flatten": _flatten,
    "sizes": _sizes,
}
_ABOUT_NODE: dict[str, Callable[[CoreOps, NodeId, ops.Ask], None]] = {
    "hashes": _hashes,
    "snapshot": _snapshot,
    "validate": _validate,
    "rotation": _rotation,
    "predicates": _predicates,
    "backup_chain": _backup_chain,
}
