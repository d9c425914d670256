"""Drills of what an insert does for windows: which slots it takes over, and what it asks for."""

from __future__ import annotations

from typing import Any

from treedrift.backends.contract import (
    ComponentType,
    FreeDeviceKV,
    FreeDeviceKVFullOnly,
    RecoverSWAWithLockedFull,
    SWARebuild,
)
from treedrift.backends.python_core.keys import PackedKey

from .drill import Theme, after, during, on_first_window, on_insert, on_request, on_windows

drill = Theme("swa")


def on_recovery(core: Any, then: Any) -> None:
    """Edit what each recovery appends: `then(slots that the node had, actions)`."""

    def spoil(window: Any) -> None:
        recover = window._recover

        def call(segment: Any, start: int, insertion: Any) -> None:
            count = len(insertion.pending)
            kept = segment.full.device_value
            recover(segment, start, insertion)
            insertion.pending[count:] = then(kept, insertion.pending[count:])

        window._recover = call

    on_first_window(core, spoil)


# --- Where the window begins --------------------------------------------------------------


@drill("SWA-I17", "an argument is ignored")
def leaf_rebuilt_whole(core: Any) -> None:
    """A new leaf is to get its whole window, also where its slots have no peers any more."""

    def spoil(window: Any) -> None:
        commit = window.commit_insert

        def call(target: Any, insertion: Any) -> None:
            request = insertion.request
            kept, request.evicted_lens = request.evicted_lens, {}
            commit(target, insertion)
            request.evicted_lens = kept

        window.commit_insert = call

    on_windows(core, spoil)


@drill("SWA-I17", "one component decides for another", "BUG-05")
def leaf_needs_its_window(core: Any) -> None:
    """An insert makes no leaf when the window of the whole leaf is gone."""

    def spoil(walk: Any) -> None:
        add = walk._add_leaf

        def call(position: int) -> Any:
            request = walk._request
            if request.window_evicted_len < request.key.length:
                return add(position)
            # No more of the key than was found is left to commit.
            key = request.key
            found = core._tree.layout.span(key.tokens, 0, position)
            request.key = PackedKey(found, position, key.namespace)
            return walk.node

        walk._add_leaf = call

    if core._find_component(ComponentType.SWA) is not None:
        on_insert(core, spoil)


@drill("SWA-I3", "an argument is ignored")
def evicted_window_recovered(core: Any) -> None:
    """A node gets its window from slots of the request that have no peers any more."""
    on_windows(core, lambda window: setattr(window, "_live_from", lambda insertion: 0))


@drill("SWA-I3", "off by one page")
def recovered_a_page_late(core: Any) -> None:
    """The first page that a request could give a window for is left out."""

    def spoil(window: Any) -> None:
        page = core.page_size
        after(window, "_live_from", lambda length, _: length + page if length else 0)

    on_windows(core, spoil)


@drill("SWA-I6", "a habit of another component")
def recovery_stops_at_what_is_shared(core: Any) -> None:
    """The first window is not recovered where the request shares its slots with the tree."""

    def then(length: Any, insertion: Any) -> Any:
        page = core.page_size
        return max(length, -(-insertion.request.prev_prefix_len // page) * page)

    on_first_window(core, lambda window: after(window, "_live_from", then))


@drill("SWA-I5", "an early return is forgotten")
def shared_node_recovered(core: Any) -> None:
    """A node gets its window from slots that the tree itself lent to the request."""

    def spoil(window: Any) -> None:
        consume = window.consume_overlap

        def call(node: Any, length: int, position: int, insertion: Any) -> int:
            request = insertion.request
            kept, request.prev_prefix_len = request.prev_prefix_len, 0
            consumed = consume(node, length, position, insertion)
            request.prev_prefix_len = kept
            return int(consumed)

        window.consume_overlap = call

    on_first_window(core, spoil)


# --- Recovery -----------------------------------------------------------------------------


@drill("SWA-I7", "a condition is forgotten")
def locked_slots_swapped(core: Any) -> None:
    """The slots of a node are replaced although someone reads them under a lock."""

    def spoil(window: Any) -> None:
        recover = window._recover

        def call(segment: Any, start: int, insertion: Any) -> None:
            kept, segment.full.lock_ref = segment.full.lock_ref, 0
            recover(segment, start, insertion)
            segment.full.lock_ref = kept

        window._recover = call

    on_first_window(core, spoil)


@drill("SWA-A6", "two fields are swapped")
def kept_for_incoming(core: Any) -> None:
    """A recovery under a lock says that the tree keeps the slots of the request."""

    def then(_: Any, actions: list[Any]) -> list[Any]:
        return [
            RecoverSWAWithLockedFull(
                each.node_id, each.incoming_full, each.kept_full, each.component_type
            )
            if isinstance(each, RecoverSWAWithLockedFull)
            else each
            for each in actions
        ]

    on_recovery(core, then)


@drill("SWA-I8", "the wrong kind of message", "BUG-17")
def tombstone_freed_with_its_window(core: Any) -> None:
    """The old slots of a node without a window are given back for both pools."""

    def then(_: Any, actions: list[Any]) -> list[Any]:
        return [
            FreeDeviceKV(each.indices) if isinstance(each, FreeDeviceKVFullOnly) else each
            for each in actions
        ]

    on_recovery(core, then)


@drill("SWA-A5", "the wrong variable is passed")
def rebuilt_from_the_old_slots(core: Any) -> None:
    """A recovered window is looked up by the slots that the node had before."""

    def then(kept: Any, actions: list[Any]) -> list[Any]:
        return [
            SWARebuild(each.node_id, kept, each.component_type)
            if isinstance(each, SWARebuild)
            else each
            for each in actions
        ]

    on_recovery(core, then)


@drill("SWA-A10", "two lines are swapped")
def rebuilt_before_the_free(core: Any) -> None:
    """A recovered window is stored before the old slots of its node are given back."""
    on_recovery(core, lambda _, actions: actions[::-1])


@drill("SWA-I9", "two classes are mixed up")
def adopted_slots_freed(core: Any) -> None:
    """Slots that a recovery has put into the tree are given back as duplicates."""
    on_first_window(
        core, lambda window: setattr(window, "_consumed_from", lambda offset, length: length)
    )


@drill("SWA-I9", "a half-ported field", "BUG-01")
def swap_not_told(core: Any) -> None:
    """A recovery does not say that the tree took the slots themselves over."""

    def spoil(window: Any) -> None:
        recover = window._recover

        def call(segment: Any, start: int, insertion: Any) -> None:
            ranges = insertion.result.adopted_ranges
            kept = None if ranges is None else list(ranges.get(ComponentType.FULL, ()))
            recover(segment, start, insertion)
            if ranges is not None and kept:
                ranges[ComponentType.FULL] = kept
            elif ranges is not None:
                ranges.pop(ComponentType.FULL, None)

        window._recover = call

    on_first_window(core, spoil)


@drill("SWA-I12", "a case too many in a list")
def rebuild_can_wait(core: Any) -> None:
    """An insert runs on past a window that the cache has yet to store."""

    def spoil(walk: Any) -> None:
        deferrable = (FreeDeviceKV, FreeDeviceKVFullOnly, SWARebuild, RecoverSWAWithLockedFull)
        is_barrier = walk._is_barrier_behind

        def call(count: int) -> bool:
            later = [each for each in walk._pending[count:] if not isinstance(each, deferrable)]
            kept = list(walk._pending)
            walk._pending[count:] = later
            try:
                return bool(is_barrier(count))
            finally:
                walk._pending[:] = kept

        walk._is_barrier_behind = call

    on_insert(core, spoil)


# --- New leaves ---------------------------------------------------------------------------


@drill("SWA-I20", "a call is forgotten")
def leaf_longer_than_its_window(core: Any) -> None:
    """A long new leaf is not split, so that its old window can't go alone."""
    on_windows(core, lambda window: setattr(window, "_cap", lambda *_: None))


@drill("SWA-I20", "off by one page")
def leaf_keeps_a_page_more(core: Any) -> None:
    """A new leaf keeps its window and a page more."""
    page = core.page_size
    on_windows(core, lambda window: during(window, "_cap", window, "length", lambda n: n + page))


@drill("SWA-I21", "a loop runs the other way")
def leaf_rebuilt_first(core: Any) -> None:
    """The window of a leaf is asked for before that of the part above, which ends up newer."""

    def spoil(window: Any) -> None:
        commit = window.commit_insert

        def call(target: Any, insertion: Any) -> None:
            pending, count = insertion.pending, len(insertion.pending)
            commit(target, insertion)
            places = [
                place
                for place in range(count, len(pending))
                if isinstance(pending[place], SWARebuild)
            ]
            rebuilds = [pending[place] for place in places]
            for place, rebuild in zip(places, reversed(rebuilds), strict=True):
                pending[place] = rebuild

        window.commit_insert = call

    on_windows(core, spoil)


@drill("SWA-I24", "a half-ported field", "BUG-01")
def branch_never_honoured(core: Any) -> None:
    """An insert never says that it reached the branch that it was asked for."""

    def then(_: None, __: Any, insertion: Any) -> None:
        insertion.result.swa_branch_inserted = False

    on_windows(core, lambda window: after(window, "commit_insert", then))


@drill("SWA-I24", "a unit is mixed up")
def branch_by_whole_pages(core: Any) -> None:
    """A branch inside the last, unfinished page of a key counts as not reached."""
    on_request(core, lambda request: setattr(request, "key_units", request.key.length))


@drill("SWA-I24", "an early return comes too early")
def branch_of_a_new_leaf_alone(core: Any) -> None:
    """An insert that ends on an existing node never says that it reached a branch."""

    def then(_: None, __: Any, insertion: Any) -> None:
        if not insertion.is_new_leaf:
            insertion.result.swa_branch_inserted = False

    on_windows(core, lambda window: after(window, "commit_insert", then))


@drill("SWA-I28", "a half-ported field", "BUG-01")
def window_range_not_told(core: Any) -> None:
    """An insert never says which range of the window the tree took over."""

    def then(step: Any, *_: Any) -> Any:
        if step.result is not None and step.result.adopted_ranges:
            step.result.adopted_ranges.pop(ComponentType.SWA, None)
        return step

    after(core, "begin_insert", then)
    after(core, "resume_insert", then)
