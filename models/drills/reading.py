"""Drills of the calls that only read: paths, orders, flattened values, canary rows, snapshots."""

from __future__ import annotations

from typing import Any

import msgspec
import torch

from .drill import Theme, after

drill = Theme()


@drill("NODE-6", "an answer of another type")
def truth_as_a_number(core: Any) -> None:
    """A predicate answers 1 and 0, which are equal to True and False and of another type."""
    after(core, "is_root", lambda answer, *_: int(answer))


@drill("NODE-3", "a special case is forgotten")
def root_counts_as_evicted(core: Any) -> None:
    """The root, which holds no value, counts as evicted."""
    after(core, "is_full_device_evicted", lambda _, node_id: core.is_root(node_id))


@drill("FLAT-2", "an unordered walk")
def flattened_by_handle(core: Any) -> None:
    """All values come in the order of handles and not in that of the tree."""

    def call() -> Any:
        nodes = sorted(core._tree.pre_order(), key=lambda node: node.id)
        return core._concatenate(nodes)

    core.all_values_flatten = call


@drill("FLAT-6", "an argument is ignored")
def canary_of_locked_nodes(core: Any) -> None:
    """The canary rows of unlocked nodes hold those of locked ones, too."""
    walk = core.walk_for_kv_canary

    def call(unlocked_only: Any, swa_resident_only: Any) -> Any:
        is_flag = isinstance(unlocked_only, bool)
        return walk(False if is_flag else unlocked_only, swa_resident_only)

    core.walk_for_kv_canary = call


@drill("FLAT-5", "`continue` comes too early")
def canary_depth_of_shown_nodes(core: Any) -> None:
    """Nodes that the canary walk leaves out do not count into the depth of those below."""

    def then(rows: Any, unlocked_only: Any, *_: Any) -> Any:
        place = 0
        for node in core._tree.pre_order():
            if unlocked_only and node.full.lock_ref:
                continue
            above = [each.length for each in core._path(node) if each.full.lock_ref]
            if unlocked_only:
                rows.positions[place : place + node.length] -= sum(above)
            place += node.length
        return rows

    after(core, "walk_for_kv_canary", then)


@drill("FLAT-5", "a chain is cut")
def canary_chain_within_nodes(core: Any) -> None:
    """The first canary row of every node has no slot before it."""

    def then(rows: Any, unlocked_only: Any, *_: Any) -> Any:
        place = 0
        for node in core._tree.pre_order():
            if unlocked_only and node.full.lock_ref:
                continue
            rows.prev_slot_indices[place] = -1
            place += node.length
        return rows

    after(core, "walk_for_kv_canary", then)


@drill("PATH-10", "a unit is mixed up")
def path_counts_from_each_node(core: Any) -> None:
    """The spans of a path count from each node and not from the root."""

    def then(infos: Any, *_: Any) -> Any:
        return tuple(
            msgspec.structs.replace(info, path_start=0, path_end=info.path_end - info.path_start)
            for info in infos
        )

    after(core, "_path_info", then)


@drill("PATH-10", "a count of the wrong thing")
def children_of_the_parent(core: Any) -> None:
    """A path tells how many siblings each node has, itself included, and not how many children."""

    def then(infos: Any, *_: Any) -> Any:
        nodes = core._tree.nodes
        return tuple(
            msgspec.structs.replace(info, num_children=len(nodes[info.parent_id].children))
            for info in infos
        )

    after(core, "_path_info", then)


@drill("PATH-11", "off by one node")
def indices_of_the_upper_end(core: Any) -> None:
    """The indices of a path include those of the node up to which they were asked for."""

    def then(indices: Any, from_id: Any, until_id: Any) -> Any:
        value = core._tree.nodes[until_id].full.device_value
        return indices if value is None else torch.cat([value, indices])

    after(core, "collect_full_device_indices", then)


@drill("ORD-2", "a set for a list")
def weight_of_distinct_nodes(core: Any) -> None:
    """A node that is named twice weighs as one that is named once."""
    order = core.dfs_weight_order

    def call(node_ids: Any) -> Any:
        order(node_ids)  # It refuses what it must refuse.
        distinct = list(dict.fromkeys(node_ids))
        return [
            position
            for place in order(distinct)
            for position, node_id in enumerate(node_ids)
            if node_id == distinct[place]
        ]

    core.dfs_weight_order = call


@drill("ORD-3", "a list is built from the wrong end")
def equal_entries_newest_first(core: Any) -> None:
    """Entries that name one node come last one first."""

    def then(order: Any, node_ids: Any) -> Any:
        ids = list(node_ids)
        places = {node_id: [p for p in order if ids[p] == node_id] for node_id in ids}
        return [places[ids[position]].pop() for position in order]

    after(core, "dfs_weight_order", then)


@drill("STO-13", "two values are swapped")
def anchor_parts_swapped(core: Any) -> None:
    """The namespace of a prefetch anchor comes with its salt first."""
    after(core, "prefetch_anchor_info", lambda parts, *_: (parts[1], parts[0]))


@drill("KEY-44", "an argument is ignored")
def validates_any_length(core: Any) -> None:
    """A planned backup is still good after its node was split."""
    validate = core.validate_buffer_backup

    def call(node_id: Any, expected: Any) -> Any:
        answer = validate(node_id, expected)
        node = core._tree.nodes.get(node_id)
        return answer if answer or node is None else validate(node_id, node.length)

    core.validate_buffer_backup = call


@drill("KEY-43", "a half-ported field", "BUG-01")
def snapshot_without_prefix_keys(core: Any) -> None:
    """What a backup needs comes without the hashes above, also where they were asked for."""

    def then(snapshot: Any, *_: Any) -> Any:
        if snapshot is None:
            return None
        return msgspec.structs.replace(snapshot, prefix_keys=None)

    after(core, "snapshot_buffer_backup", then)


@drill("KEY-43", "the wrong variable is returned")
def snapshot_with_its_own_last_hash(core: Any) -> None:
    """What a backup needs names the node's own last hash as that of its parent."""

    def then(snapshot: Any, *_: Any) -> Any:
        if snapshot is None:
            return None
        return msgspec.structs.replace(snapshot, parent_last_hash=snapshot.hash_values[-1])

    after(core, "snapshot_buffer_backup", then)
