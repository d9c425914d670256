"""Drills of the eviction policies: what ranks a leaf, and the counts and lengths behind a rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .drill import Theme, after, on_insert, on_request, on_split

drill = Theme()


def _rank(core: Any, policy: str, rank_of: Callable[[Any], Any]) -> None:
    """Replace the ranking of one policy."""
    if core._tree.policy.name == policy:
        core._tree.policy.rank_of = rank_of


def _shifted_rank(core: Any, policy: str, field: str, shift: int) -> None:
    """Rank nodes of one policy as if a field of theirs were `shift` more."""
    rank_of = core._tree.policy.rank_of

    def rank(node: Any) -> Any:
        setattr(node, field, getattr(node, field) + shift)
        try:
            return rank_of(node)
        finally:
            setattr(node, field, getattr(node, field) - shift)

    _rank(core, policy, rank)


# --- Ranks --------------------------------------------------------------------------------


@drill("POL-4", "the wrong field is read")
def lru_by_creation(core: Any) -> None:
    """LRU ranks leaves by their creation and not by their last access."""
    _rank(core, "lru", lambda node: node.creation_time)


@drill("POL-4", "a sign is lost")
def flipped_tie_break(core: Any) -> None:
    """LFU prefers the newer of two equally frequent leaves."""
    _rank(core, "lfu", lambda node: (node.hit_count, -node.last_access_time))


@drill("POL-4", "two lines are swapped")
def recency_before_frequency(core: Any) -> None:
    """LFU looks at the hit count last, where times have decided already."""
    _rank(core, "lfu", lambda node: (node.last_access_time, node.hit_count))


@drill("POL-4", "the wrong field is read")
def fifo_by_access(core: Any) -> None:
    """FIFO lets every access move a leaf back in the queue."""
    _rank(core, "fifo", lambda node: node.last_access_time)


@drill("POL-4", "the wrong field is read")
def mru_by_creation(core: Any) -> None:
    """MRU ranks leaves by their creation and not by their last access."""
    _rank(core, "mru", lambda node: -node.creation_time)


@drill("POL-4", "a sign is lost")
def filo_without_sign(core: Any) -> None:
    """FILO evicts the oldest leaf first, as FIFO does."""
    _rank(core, "filo", lambda node: node.creation_time)


@drill("POL-4", "a second key of an order is forgotten")
def priority_without_recency(core: Any) -> None:
    """Leaves of equal priority go in the order of their creation."""
    _rank(core, "priority", lambda node: (node.priority, node.creation_time))


@drill("POL-4", "off by one")
def threshold_off_by_one(core: Any) -> None:
    """SLRU protects one visit too late."""
    _shifted_rank(core, "slru", "hit_count", -1)


@drill("POL-5", "off by one: `>` for `>=`")
def strict_budget(core: Any) -> None:
    """T-LRU keeps a tail whose start is exactly at the budget."""
    _shifted_rank(core, "tlru", "prefix_length", -1)


@drill("POL-5", "a sum counts a part twice")
def depth_with_own_key(core: Any) -> None:
    """T-LRU compares the budget with a node's end and not with its start."""
    rank_of = core._tree.policy.rank_of

    def rank(node: Any) -> Any:
        prefix_length = node.prefix_length
        node.prefix_length += node.length
        try:
            return rank_of(node)
        finally:
            node.prefix_length = prefix_length

    _rank(core, "tlru", rank)


# --- Hit counts ---------------------------------------------------------------------------


@drill("SPLIT-3", "a half-ported field")
def lost_hit_count(core: Any) -> None:
    """The upper half of a split starts counting anew."""
    on_split(core, lambda upper, lower: setattr(upper, "hit_count", 0))


@drill("NODE-10", "a counter is moved to another call")
def matches_count_as_hits(core: Any) -> None:
    """A match counts as a visit of the node that it ends at."""

    def then(result: Any, *_: Any) -> Any:
        core._tree.nodes[result.best_match_node].hit_count += 1
        return result

    after(core, "match_prefix", then)


@drill("INS-52", "a condition is forgotten")
def hits_under_write_back(core: Any) -> None:
    """Visits are counted under write-back too."""

    def spoil(walk: Any) -> None:
        def then(_: None, node: Any, end: int) -> None:
            if core.is_write_back and end > walk._request.inserted_len:
                node.hit_count += 1

        after(walk, "_count_hit", then)

    on_insert(core, spoil)


@drill("INS-50", "an argument is ignored")
def inserted_len_ignored(core: Any) -> None:
    """What the request inserted before is counted again."""
    on_request(core, lambda request: setattr(request, "inserted_len", 0))


@drill("INS-50", "off by one: `>=` for `>`")
def boundary_hit(core: Any) -> None:
    """A node that ends exactly where the request stood before is counted again."""

    def spoil(walk: Any) -> None:
        def then(_: None, node: Any, end: int) -> None:
            if not core.is_write_back and end == walk._request.inserted_len:
                node.hit_count += 1

        after(walk, "_count_hit", then)

    on_insert(core, spoil)


@drill("INS-54", "a forgotten line")
def uncounted_leaf(core: Any) -> None:
    """The insert that makes a leaf does not count as its first visit."""

    def spoil(walk: Any) -> None:
        count = walk._count_hit

        def call(node: Any, end: int) -> None:
            if walk._result.last_device_node is None:  # The leaf is counted after the result.
                count(node, end)

        walk._count_hit = call

    on_insert(core, spoil)


# --- Priorities ---------------------------------------------------------------------------


@drill("NODE-11", "`=` for `max`")
def priority_overwritten(core: Any) -> None:
    """An insert gives the nodes on its path its own priority, also a lower one."""

    def spoil(walk: Any) -> None:
        def then(position: int, *_: Any) -> int:
            walk.node.priority = walk._request.priority
            return position

        after(walk, "_overlap", then)

    on_insert(core, spoil)


@drill("INS-22", "two lines are swapped")
def suffix_raised_too(core: Any) -> None:
    """A node's priority is raised before it is split, so the unmatched rest gets it too."""

    def spoil(walk: Any) -> None:
        overlap = walk._overlap

        def call(child: Any, position: int) -> Any:
            child.priority = max(child.priority, walk._request.priority)
            return overlap(child, position)

        walk._overlap = call

    on_insert(core, spoil)


@drill("INS-13", "a forgotten line")
def root_priority_left(core: Any) -> None:
    """Inserts do not raise the root's priority."""

    def then(step: Any, *_: Any) -> Any:
        core._tree.root.priority = -(2**63 - 1)
        return step

    after(core, "begin_insert", then)


@drill("SPLIT-3", "a half-ported field")
def split_loses_priority(core: Any) -> None:
    """The upper half of a split has the priority of a new node."""
    on_split(core, lambda upper, lower: setattr(upper, "priority", 0))


# --- T-LRU lengths ------------------------------------------------------------------------


@drill("POL-8", "a forgotten loop")
def short_history(core: Any) -> None:
    """T-LRU lengths of ancestors are not raised."""

    def extend(leaf: Any, parent: Any) -> None:
        leaf.prefix_length = leaf.history_length = parent.prefix_length + leaf.length

    core._tree._extend_history = extend


@drill("POL-9", "a half-ported field")
def split_forgets_history(core: Any) -> None:
    """The upper half of a split knows nothing of what was below it."""
    on_split(core, lambda upper, lower: setattr(upper, "history_length", upper.prefix_length))


@drill("POL-9", "a field is copied that must be computed")
def split_copies_depth(core: Any) -> None:
    """The upper half of a split counts as deep as the lower one."""
    on_split(core, lambda upper, lower: setattr(upper, "prefix_length", lower.prefix_length))


@drill("POL-8", "a high-water mark follows the water")
def history_shrinks(core: Any) -> None:
    """An eviction lowers the T-LRU history of the parent."""

    def then(frees: Any, leaf: Any) -> Any:
        parent = leaf.parent
        below = [child.history_length for child in parent.children.values()]
        parent.history_length = max([parent.prefix_length, *below])
        return frees

    if core._tree.policy.name == "tlru":
        after(core._tree, "delete_leaf", then)
