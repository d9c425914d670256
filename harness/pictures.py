"""Pictures of trees: what a side showed of its whole tree, as nodes that a report can lay out.

The inspector's snapshot is drawn where there is one, else what the contract shows. Two pictures
are made together, because a fact is worth showing where it is not the usual one or where the two
sides differ in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ..backends.contract import ComponentType
from .describe import describe, describe_list, describe_namespace
from .explanation import TreeNode
from .observation import Observation

FULL = int(ComponentType.FULL)

OTHERS = {
    int(ComponentType.SWA): "window",
    int(ComponentType.AUXILIARY_SWA): "second window",
    int(ComponentType.MAMBA): "state",
}
"""What a node has of the components besides FULL, as pictures name it."""

ALWAYS_HIDDEN = frozenset(
    {"recency", "created", "depth", "history", *(f"{name} order" for name in OTHERS.values())}
)
"""Facts that every node has and that are shown only where the sides differ in them."""


class Drawn(msgspec.Struct, kw_only=True):
    """A node before it is known which of its facts are worth showing.

    `facts` maps the name of a fact to its text, usual values left out unless they are in
    `ALWAYS_HIDDEN`.
    """

    handle: int | None
    parent: int | None
    depth: int
    label: str
    slots: str = ""
    facts: dict[str, str] = {}
    is_root: bool = False


Picture = list[Drawn]


def draw(seen: Observation, inspected: bool) -> Picture | None:
    """The tree that an observation shows, root first, in pre-order; None if it shows none."""
    if inspected:
        return None if seen.snapshot is None else _from_snapshot(seen.snapshot)
    return None if seen.tree is None else _from_contract(seen.tree)


def empty() -> Picture:
    """The tree before the first op."""
    return [Drawn(handle=None, parent=None, depth=0, label="root", is_root=True)]


def nodes_of(
    picture: Picture | None, other: Picture | None, concerned: Iterable[int]
) -> list[TreeNode] | None:
    """A picture as nodes of a report, with the facts that are unusual or that `other` lacks."""
    if picture is None:
        return None
    named = set(concerned)
    there = {node.handle: node.facts for node in other or []}
    return [
        TreeNode(
            handle=node.handle,
            parent=node.parent,
            depth=node.depth,
            label=node.label,
            slots=node.slots,
            facts=[
                text
                for name, text in node.facts.items()
                if name not in ALWAYS_HIDDEN
                or (node.handle in there and there[node.handle].get(name) != text)
            ],
            is_concerned=node.handle in named,
        )
        for node in picture
    ]


def differing(left: Picture | None, right: Picture | None) -> set[int]:
    """Handles of the nodes that two pictures show differently, recency and ages aside."""
    if left is None or right is None:
        return set()
    ours, theirs = ({node.handle: _shown(node) for node in tree} for tree in (left, right))
    return {
        handle
        for handle in {*ours, *theirs}
        if handle is not None and ours.get(handle) != theirs.get(handle)
    }


def _shown(node: Drawn) -> Any:
    facts = {name: text for name, text in node.facts.items() if name not in ALWAYS_HIDDEN}
    return node.parent, node.label, node.slots, facts


def roots(pictures: Iterable[Picture | None]) -> set[int]:
    """The numbers by which the sides know their roots."""
    return {
        node.handle
        for picture in pictures
        for node in picture or []
        if node.is_root and node.handle is not None
    }


# --- From the inspector's snapshot --------------------------------------------------------


def _from_snapshot(snapshot: dict[str, Any]) -> Picture:
    leaves = {"leaf": set(snapshot["device_leaves"]), "host leaf": set(snapshot["host_leaves"])}
    depths: dict[int, int] = {}
    picture = []
    for node in snapshot["nodes"]:
        handle, parent = node["node_id"], node["parent_id"]
        depths[handle] = 0 if parent is None else depths.get(parent, 0) + 1
        is_root = parent is None
        facts = _component_facts(node, is_root) | _orders(snapshot["lru_lists"], handle)
        facts |= _snapshot_facts(node, is_root)
        facts |= {name: name for name, listed in leaves.items() if handle in listed}
        picture.append(
            Drawn(
                handle=handle,
                parent=parent,
                depth=depths[handle],
                label="root" if is_root else describe_list(node["token_ids"]),
                slots=describe(node["device_value"].get(FULL, [])) if not is_root else "",
                facts=facts,
                is_root=is_root,
            )
        )
    return picture


def _snapshot_facts(node: dict[str, Any], is_root: bool) -> dict[str, str]:
    """Everything about a node that is not as usual, by name."""
    usual = 1 if is_root else 0
    namespace = describe_namespace(node["extra_key"], node["cache_salt"])
    host = node["host_value"].get(FULL)
    hashes, events = node["hash_values"], node["event_hash_values"]
    locked, host_locked = (node[name].get(FULL, 0) for name in ("lock_ref", "host_lock_ref"))
    candidates = {
        "namespace": (bool(namespace), f"in {namespace}"),
        "bigram": (node["is_bigram"], "pairs"),
        "evicted": (not is_root and not node["device_value"].get(FULL), "evicted"),
        "locked": (locked != usual, f"locked {locked}"),
        "host lock": (host_locked != 0, f"host lock {host_locked}"),
        "hits": (node["hit_count"] != 0, f"hits {node['hit_count']}"),
        "priority": (node["priority"] not in (0, None), f"priority {node['priority']}"),
        "host": (bool(host), f"host {describe(host)}"),
        "pending": _optional("pending", node["write_through_pending_id"]),
        "loading": _optional("loading", node["load_back_pending_id"]),
        "stored": (node["external_cache_stored"], "stored"),
        "rotation": _optional("rotation", node["rotation_base"]),
        "hash": (bool(hashes), f"hash {_last_hash(hashes)}"),
        "event hash": (bool(events), f"event hash {_last_hash(events)}"),
        "recency": (True, f"recency {node['access_rank']}"),
        "created": (True, f"created {node['creation_rank']}"),
        "depth": (True, f"depth {node['prefix_length']}"),
        "history": (True, f"history {node['history_length']}"),
    }
    return {name: text for name, (is_unusual, text) in candidates.items() if is_unusual}


def _component_facts(node: dict[str, Any], is_root: bool) -> dict[str, str]:
    """What other components have on a node and lock there; of a window also that it is gone."""
    facts: dict[str, str] = {}
    for kind, name in OTHERS.items():
        if kind not in node["lock_ref"]:
            continue  # The tree was built without it.
        value, locks = node["device_value"].get(kind), node["lock_ref"][kind]
        facts |= {} if is_root else _value_fact(name, value)
        if locks != int(is_root):
            facts[f"{name} lock"] = f"{name} locked {locks}"
    return facts


def _value_fact(name: str, value: Any) -> dict[str, str]:
    if not value:
        return {name: f"no {name}"} if name != "state" else {}
    return {name: f"{name} {describe(value[0] if name == 'state' else value)}"}


def _orders(lists: dict[int, list[int]], handle: int) -> dict[str, str]:
    """Where a node stands in the list of each component, the most recent one first."""
    return {
        f"{name} order": f"{name} order {lists[kind].index(handle) + 1}"
        for kind, name in OTHERS.items()
        if handle in lists.get(kind, ())
    }


def _optional(name: str, value: int | None) -> tuple[bool, str]:
    return value is not None, f"{name} {value}"


def _last_hash(hashes: list[str] | None) -> str:
    return hashes[-1][:8] if hashes else ""


# --- From what the contract shows ---------------------------------------------------------


def _from_contract(tree: dict[str, Any]) -> Picture | None:
    paths = tree["paths"]
    if ["long"] in (paths[:1], *(path[:1] for path in paths)):
        return None  # So many nodes that only a digest of their paths was kept.
    known = {node[0]: node for node in tree["nodes"]}
    windows = [kind for kind in OTHERS if kind in tree.get("window_free", ())]
    root = next((handle for handle, node in known.items() if node[1]), None)
    info_of: dict[int, list[Any]] = {info[1]: info for path in paths for info in path}
    if root is None:
        tops = [info[2] for path in paths for info in path[:1]]
        root = tops[0] if tops else None
    children: dict[int | None, list[int]] = {}
    for handle, info in info_of.items():
        children.setdefault(info[2], []).append(handle)
    picture = [Drawn(handle=root, parent=None, depth=0, label="root", is_root=True)]
    waiting = [(handle, 1) for handle in reversed(children.get(root, []))]
    while waiting:
        handle, depth = waiting.pop()
        picture.append(_contract_node(info_of[handle], known.get(handle), depth, windows))
        waiting += [(child, depth + 1) for child in reversed(children.get(handle, []))]
    return picture


def _contract_node(
    info: list[Any], node: list[Any] | None, depth: int, windows: list[int]
) -> Drawn:
    _, handle, parent, start, end, _, _ = info
    facts: dict[str, str] = {}
    slots = ""
    if node is not None:
        _, _, is_backed, is_evicted, device, _, last_hash, _, rotation, *others = node
        slots = describe(device) if device else ""
        candidates = {
            "host": (is_backed, "on host"),
            "evicted": (is_evicted, "evicted"),
            "hash": (bool(last_hash), f"hash {(last_hash or '')[:8]}"),
            "rotation": _optional("rotation", rotation),
        }
        for (kind, name), value in zip(OTHERS.items(), others, strict=False):
            facts |= _value_fact(name, value) if value or kind in windows else {}
        facts |= {name: text for name, (is_unusual, text) in candidates.items() if is_unusual}
    label = f"units {start} to {end - 1}"
    return Drawn(handle=handle, parent=parent, depth=depth, label=label, slots=slots, facts=facts)
