"""Matching: the longest cached prefix of a key (MATCH-1 to MATCH-17, PATH-1, PATH-2)."""

from __future__ import annotations

from ..contract import CacheAction, MatchPrefixParams, MatchResult, NodeId, RadixKey
from .base import CoreBase
from .keys import PackedKey
from .node import Node
from .tree import Tree


class MatchCalls(CoreBase):
    """The calls that look a key up."""

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        """Longest cached prefix; may split one node and refreshes recency (MATCH-2 to MATCH-14)."""
        key = self._tree.layout.pack(params.key)
        return _match(self._tree, key) if key.length else self.empty_match_result

    @property
    def empty_match_result(self) -> MatchResult:
        """The result for an empty key; names the current root (MATCH-1)."""
        root_id = self._tree.root.id
        return MatchResult(0, root_id, root_id, root_id)

    def match_full_device_prefix(self, key: RadixKey) -> tuple[int, NodeId, int]:
        """Matched length, deepest node, the end of that node; read-only (PATH-1, PATH-2)."""
        matched, node, end = deepest_match(self._tree, self._tree.layout.pack(key))
        return matched, node.id, end


def _match(tree: Tree, key: PackedKey) -> MatchResult:
    """Walk from the root, split the node that matches in part, refresh the accepted path."""
    validators = [component.match_validator() for component in tree.components]
    actions: list[CacheAction] = []
    visited: list[Node] = []
    accepted = position = 0
    node = tree.root
    while position < key.length:
        child = tree.child_at(node, key, position)
        if child is None:
            break
        length = tree.layout.matched_units(child, key, position)
        position += length
        is_partial = length < child.length
        if is_partial:
            upper = tree.split(child, length)
            actions = tree.split_action(upper, child)
            child = upper
        visited.append(child)
        # Every validator sees every visited node, because some of them count (MATCH-6).
        verdicts = [accepts(child) for accepts in validators]
        if all(verdicts):
            accepted = len(visited)
        if is_partial:
            break
        node = child
    path = visited[:accepted]
    if path:
        for component in tree.auxiliary:
            component.refresh_after_match(path[-1])
    _refresh_path(tree, path)
    best = path[-1].id if path else tree.root.id
    result = MatchResult(
        device_prefix_len=sum(node.length for node in path),
        last_device_node=best,
        last_host_node=best,
        best_match_node=best,
        full_kv_hit_length=position,
        cache_actions=actions,
        last_visited_node_id=visited[-1].id if visited else None,
    )
    for component in tree.auxiliary:
        result = component.finalize_match(result)
    return result


def _refresh_path(tree: Tree, path: list[Node]) -> None:
    """Stamp the root and the accepted path, deeper nodes as more recent (NODE-23)."""
    tree.touch(tree.root)
    for node in path:
        tree.touch(node)


def deepest_match(tree: Tree, key: PackedKey) -> tuple[int, Node, int]:
    """Matched length, the deepest node that matches at least in part, and that node's end.

    Changes nothing; the root and zeros if nothing matches (PATH-2, INS-16).
    """
    node, position, end = tree.root, 0, 0
    while position == end and position < key.length:
        child = tree.child_at(node, key, position)
        if child is None:
            break
        position += tree.layout.matched_units(child, key, position)
        end += child.length
        node = child
    return position, node, end
