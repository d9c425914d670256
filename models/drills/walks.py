"""Drills of device walks and of the eviction of one leaf."""

from __future__ import annotations

import heapq
from typing import Any

from .drill import Theme, after, on_walk

drill = Theme()


@drill("EVD-12", "a forgotten line")
def no_cascade(core: Any) -> None:
    """A walk never offers the parent that its victim leaves without children."""
    full = core._tree.full

    def spoil(walk: Any) -> None:
        true_next = walk.next_victim

        def next_victim(evicted: int) -> Any:
            known = {number for _, number in walk._heap}
            victim = true_next(evicted)
            while victim is not None and victim.id not in known:
                walk._last_victim = None
                victim = true_next(evicted)
            return victim

        full.next_victim = next_victim

    on_walk(core, spoil)


@drill("EVD-13", "off by one: `>` for `>=`")
def greedy_walk(core: Any) -> None:
    """A walk goes on for one token more than was asked for."""
    open_walk = core._tree.full.open_walk
    core._tree.full.open_walk = lambda count: open_walk(count + 1)


@drill("EVD-13", "an argument is ignored")
def never_evicts(core: Any) -> None:
    """A walk never offers anything."""
    open_walk = core._tree.full.open_walk
    core._tree.full.open_walk = lambda count: open_walk(0)


@drill("EVD-11", "an invariant of a library is not kept")
def unsorted_heap(core: Any) -> None:
    """A walk takes leaves in the order of a list that nobody made a heap of."""

    def spoil(walk: Any) -> None:
        heapq.heapify(walk._heap)
        walk._heap.reverse()

    on_walk(core, spoil)


@drill("POL-21", "a cached value is refreshed")
def ranks_taken_anew(core: Any) -> None:
    """A walk ranks its candidates again at every step."""

    def then(walk: Any) -> None:
        def next_victim(walk: Any, evicted: int) -> Any:
            nodes = [core._tree.nodes.get(number) for _, number in walk._heap]
            rank_of = core._tree.policy.rank_of
            walk._heap[:] = [(rank_of(node), node.id) for node in nodes if node is not None]
            heapq.heapify(walk._heap)
            return kind.next_victim(walk, evicted)

        kind = type(walk)
        walk.__class__ = type("Walk", (kind,), {"__slots__": (), "next_victim": next_victim})

    on_walk(core, then)


@drill("EVD-16", "a snapshot becomes a live view")
def walk_sees_new_leaves(core: Any) -> None:
    """Leaves that appear while a walk is open are offered by it."""
    add_leaf = core._tree.add_leaf

    def call(*args: Any) -> Any:
        leaf = add_leaf(*args)
        walk = core._tree.full._walk
        if walk is not None:
            heapq.heappush(walk._heap, (core._tree.policy.rank_of(leaf), leaf.id))
        return leaf

    core._tree.add_leaf = call


@drill("EVD-9", "a candidate is peeked at and not taken")
def offered_again(core: Any) -> None:
    """A leaf that the caller did not evict is offered by the same walk once more."""
    full = core._tree.full

    def spoil(walk: Any) -> None:
        true_next = walk.next_victim
        offered: set[Any] = set()

        def next_victim(evicted: int) -> Any:
            last = walk._last_victim
            if last in core._tree.device_leaves and last not in offered:
                # Once only: a caller that can't evict it would never come to an end.
                offered.add(last)
                heapq.heappush(walk._heap, (core._tree.policy.rank_of(last), last.id))
            return true_next(evicted)

        full.next_victim = next_victim

    on_walk(core, spoil)


@drill("EVD-13", "`break` for `continue`")
def walk_ends_at_a_lost_candidate(core: Any) -> None:
    """A candidate that is no leaf any more ends the walk instead of being passed over."""
    full = core._tree.full

    def spoil(walk: Any) -> None:
        true_next = walk.next_victim

        def next_victim(evicted: int) -> Any:
            if walk._heap:
                first = core._tree.nodes.get(walk._heap[0][1])
                if first not in core._tree.device_leaves:
                    walk._heap.clear()
            return true_next(evicted)

        full.next_victim = next_victim

    on_walk(core, spoil)


@drill("EVD-4", "a count is kept on the wrong side", "BUG-27")
def walk_counts_itself(core: Any) -> None:
    """A walk stops by what it has offered and not by what the caller says it has evicted."""
    full = core._tree.full

    def spoil(walk: Any) -> None:
        true_next = walk.next_victim
        offered = 0

        def next_victim(evicted: int) -> Any:
            nonlocal offered
            victim = true_next(offered)
            offered += victim.length if victim is not None else 0
            return victim

        full.next_victim = next_victim

    on_walk(core, spoil)


@drill("EVD-7", "a half-ported field", "BUG-01")
def no_progress_told(core: Any) -> None:
    """A step that offers a leaf does not say that it made progress."""

    def then(result: Any, *_: Any) -> Any:
        result.made_progress = False
        return result

    after(core, "evict_device_next_node", then)


# --- One leaf -----------------------------------------------------------------------------


@drill("INV02-5", "a loop runs the other way")
def wrong_free_order(core: Any) -> None:
    """An evicted leaf gives its slots back from the end."""
    page = core.page_size

    def then(frees: Any, *_: Any) -> Any:
        return {
            kind: [value.reshape(-1, page).flip(0).flatten() for value in values]
            for kind, values in frees.items()
        }

    after(core._tree, "delete_leaf", then)


@drill("INV02-5", "off by one")
def leak_on_evict(core: Any) -> None:
    """An eviction frees one slot less than the leaf had."""
    after(
        core._tree,
        "delete_leaf",
        lambda frees, *_: {kind: [value[1:] for value in all_] for kind, all_ in frees.items()},
    )


@drill("EVD-22", "a unit is mixed up")
def eviction_counted_in_pages(core: Any) -> None:
    """The eviction of a leaf counts pages and not tokens."""

    def then(counts: Any, *_: Any) -> Any:
        return {kind: count // core.page_size for kind, count in counts.items()}

    after(core, "_evicted_counts", then)


@drill("EVD-18", "a half-ported field", "BUG-01")
def unbacked_tokens_forgotten(core: Any) -> None:
    """The eviction of a leaf without a copy does not say how many tokens are lost."""

    def then(result: Any, *_: Any) -> Any:
        result.unbacked_tokens = 0
        return result

    after(core, "evict_device_leaf", then)


@drill("EVD-20", "a branch is forgotten", "BUG-13")
def no_backup_asked_for(core: Any) -> None:
    """Under write-back a leaf goes at once, and nobody is asked to copy it."""
    evict = core.evict_device_leaf

    def call(node_id: Any, is_write_back: Any) -> Any:
        result = evict(node_id, is_write_back)
        if result.backup_kv is not None:
            result.backup_kv = None
            node = core._node(node_id)
            result.device_frees = core._tree.delete_leaf(node)
            result.tracker = core._evicted_counts(node)
        return result

    core.evict_device_leaf = call


@drill("EVD-33", "a half-ported field", "BUG-23")
def drop_not_told(core: Any) -> None:
    """A subtree that was dropped is reported as still there."""

    def then(result: Any, *_: Any) -> Any:
        result.is_dropped = False
        return result

    after(core, "drop_subtree_no_host", then)


@drill("LEAF-5", "a forgotten line")
def parent_not_refreshed(core: Any) -> None:
    """A node that loses its last child never becomes a leaf."""

    def then(frees: Any, leaf: Any) -> Any:
        core._tree.device_leaves.discard(leaf.parent)
        return frees

    after(core._tree, "delete_leaf", then)


@drill("LEAF-1", "a set holds one too many")
def unhealthy(core: Any) -> None:
    """A split leaves its upper half among the leaves, which the core's own check sees."""

    def then(upper: Any, *_: Any) -> Any:
        core._tree.device_leaves.add(upper)
        return upper

    after(core._tree, "split", then)


@drill("EVH-6", "an entry of zero is left out", "BUG-27")
def uncounted_host_eviction(core: Any) -> None:
    """A host eviction that frees nothing has no entry for its component."""

    def then(result: Any, *_: Any) -> Any:
        result.tracker.clear()
        return result

    after(core, "drive_host_eviction", then)


@drill("EVH-12", "a request is taken for its result", "BUG-27")
def overstated_host_eviction(core: Any) -> None:
    """A host eviction says that it freed all it was asked for."""

    def then(result: Any, component: Any, count: int) -> Any:
        result.tracker = dict.fromkeys(result.tracker, count)
        return result

    after(core, "drive_host_eviction", then)
