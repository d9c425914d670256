"""Drills of splits: what the halves of a node inherit, and who is told."""

from __future__ import annotations

from typing import Any

import msgspec

from .drill import Theme, after, on_split

drill = Theme()


@drill("NODE-7", "a place in an order is not kept")
def moved_child(core: Any) -> None:
    """A split puts the new node behind its siblings."""

    def then(upper: Any, lower: Any) -> None:
        children = upper.parent.children
        slot = next(slot for slot, child in children.items() if child is upper)
        children[slot] = children.pop(slot)

    on_split(core, then)


@drill("SPLIT-5", "two arguments are swapped")
def crossed_values(core: Any) -> None:
    """A split hands the halves of the value out the wrong way round where both are equal."""

    def then(upper: Any, lower: Any) -> None:
        if upper.length == lower.length:
            mine, theirs = upper.full, lower.full
            mine.device_value, theirs.device_value = theirs.device_value, mine.device_value

    on_split(core, then)


@drill("SPLIT-5", "off by one", "BUG-25")
def double_owner(core: Any) -> None:
    """A split leaves the last unit of the upper half in the lower one too."""

    def then(upper: Any, lower: Any) -> None:
        lower.full.device_value[0] = upper.full.device_value[-1]

    on_split(core, then)


@drill("SPLIT-1", "the new half is the wrong one")
def handle_stays_above(core: Any) -> None:
    """A split gives the new handle to the lower half."""

    def then(upper: Any, lower: Any) -> None:
        upper.id, lower.id = lower.id, upper.id
        core._tree.nodes[upper.id] = upper
        core._tree.nodes[lower.id] = lower

    on_split(core, then)


@drill("SPLIT-3", "a half-ported field", "BUG-01")
def split_loses_rotation_base(core: Any) -> None:
    """The upper half of a split has no rotation base."""
    on_split(core, lambda upper, lower: setattr(upper, "rotation_base", None))


@drill("LNK-9", "a half-ported field", "BUG-01")
def split_loses_stored_mark(core: Any) -> None:
    """The upper half of a split counts as not stored externally."""
    on_split(core, lambda upper, lower: setattr(upper, "external_cache_stored", False))


@drill("LNK-5", "a half-ported field", "BUG-09")
def split_loses_pending_mark(core: Any) -> None:
    """The upper half of a split does not wait for the offload that covers it."""
    on_split(core, lambda upper, lower: setattr(upper, "write_through_pending_id", None))


@drill("SPLIT-6", "a message is not sent", "BUG-09")
def silent_split_of_a_pending_node(core: Any) -> None:
    """The split of a node with an offload in flight is not announced."""

    def then(actions: Any, upper: Any, lower: Any) -> Any:
        return [] if lower.write_through_pending_id is not None else actions

    after(core._tree, "split_action", then)


@drill("SPLIT-6", "two fields are swapped", "BUG-09")
def split_action_upside_down(core: Any) -> None:
    """The announcement of a split names the lower half as the new node."""

    def then(actions: Any, upper: Any, lower: Any) -> Any:
        return [
            msgspec.structs.replace(action, new_node_id=lower.id, new_child_node_id=upper.id)
            for action in actions
        ]

    after(core._tree, "split_action", then)


@drill("HIC-2", "a condition is forgotten")
def silent_split_in_buffer_mode(core: Any) -> None:
    """In buffer-only mode the split of a node that waits for nothing is not announced."""

    def then(actions: Any, upper: Any, lower: Any) -> Any:
        return [] if lower.write_through_pending_id is None else actions

    after(core._tree, "split_action", then)


@drill("LOCK-19", "a half-ported field", "BUG-19")
def split_drops_lock(core: Any) -> None:
    """The upper half of a locked node is not locked."""
    on_split(core, lambda upper, lower: setattr(upper.full, "lock_ref", 0))


@drill("FULL-3", "a half-ported field", "BUG-19")
def split_drops_host_lock(core: Any) -> None:
    """The upper half of a host-locked node is not host-locked."""
    on_split(core, lambda upper, lower: setattr(upper.full, "host_lock_ref", 0))


@drill("LOCK-27", "a copy for a move", "BUG-19")
def boundary_on_both_halves(core: Any) -> None:
    """The end of a host lock stays on the lower half too, so that its release stops there."""

    def then(upper: Any, lower: Any) -> None:
        lower.full.host_lock_uuid = upper.full.host_lock_uuid

    on_split(core, then)


@drill("SPLIT-4", "off by one page")
def hashes_cut_late(core: Any) -> None:
    """A split leaves the first hash of the lower half to the upper one."""

    def then(upper: Any, lower: Any) -> None:
        if lower.hashes and len(lower.hashes) > 1:
            upper.hashes.append(lower.hashes.pop(0))

    on_split(core, then)


@drill("SPLIT-4", "a half-ported field")
def event_hashes_not_cut(core: Any) -> None:
    """The lower half of a split keeps the whole list of its event hashes."""

    def then(upper: Any, lower: Any) -> None:
        if lower.event_hashes is not None:
            lower.event_hashes = upper.event_hashes + lower.event_hashes

    on_split(core, then)


@drill("SPLIT-10", "a count is taken twice")
def split_counts_again(core: Any) -> None:
    """Splitting an unlocked node adds its upper half to the evictable size."""

    def then(upper: Any, lower: Any) -> None:
        if not lower.full.lock_ref:
            core._tree.full.evictable += upper.length

    on_split(core, then)


@drill("SPLIT-11", "a message too many")
def split_told_as_stored(core: Any) -> None:
    """A split tells the upper half as if it were stored just now."""

    def then(upper: Any, lower: Any) -> None:
        core._tree.events.record_stored(upper, None, core._tree.layout)

    on_split(core, then)
