"""Drills of sliding windows on the device: matches, recency, splits, missing ranges and rows."""

from __future__ import annotations

from typing import Any

import msgspec

from .drill import Theme, after, before, during, on_split, on_windows

drill = Theme("swa")

ENDLESS = 2**62


# --- Matches ------------------------------------------------------------------------------


@drill("SWA-M2", "off by one: `>` for `>=`")
def match_needs_a_unit_more(core: Any) -> None:
    """A match is accepted only where a unit more than a window is there."""
    on_windows(
        core,
        lambda window: during(
            window, "match_validator", window, "length", lambda length: length + 1
        ),
    )


@drill("SWA-M2", "a state is not cleared")
def count_goes_on_across_a_gap(core: Any) -> None:
    """A node without its window is rejected alone, and what follows counts on as before."""

    def spoil(window: Any) -> None:
        if window._gates_match:
            window.match_validator = lambda: lambda node: window.data(node).device_value is not None

    on_windows(core, spoil)


@drill("SWA-M4", "a state is not cleared")
def open_gate_accepts_everything(core: Any) -> None:
    """Without gates a short window below a gap is accepted like the gap itself."""

    def spoil(window: Any) -> None:
        if not window._gates_match:
            window.match_validator = lambda: lambda node: True

    on_windows(core, spoil)


@drill("SWA-M4", "an argument is ignored")
def gates_stay_shut(core: Any) -> None:
    """A tombstone ends no match, although the tree was told that windows do not matter."""
    on_windows(core, lambda window: setattr(window, "_gates_match", True))


@drill("SWA-M8", "a half-ported field", "BUG-01")
def branch_left_at_default(core: Any) -> None:
    """A match never says where a window would be worth storing."""
    on_windows(core, lambda window: setattr(window, "finalize_match", lambda result: result))


@drill("SWA-M8", "off by one: `>=` for `>`")
def branch_at_the_match_itself(core: Any) -> None:
    """A match that falls short of nothing proposes its own end as a branch."""

    def then(result: Any, *_: Any) -> Any:
        length = result.device_prefix_len
        if length != result.full_kv_hit_length or not length:
            return result
        return msgspec.structs.replace(result, swa_branching_seqlen=length)

    on_windows(core, lambda window: after(window, "finalize_match", then))


# --- Recency ------------------------------------------------------------------------------


def _held_by_window(window: Any, node: Any, page: int, *, are_counted: bool = True) -> list[Any]:
    """Nodes with a window that a refresh visits, deepest first; gaps count or do not."""
    held, length = [], 0
    while node.parent is not None and length < window.length + page:
        is_held = window.data(node).device_value is not None
        if is_held:
            held.append(node)
        if is_held or are_counted:
            length += node.length
        node = node.parent
    return held


@drill("SWA-U2", "a loop without its limit")
def whole_path_refreshed(core: Any) -> None:
    """A match refreshes the windows of its whole path and not those of its end alone."""
    on_windows(core, lambda window: during(window, "_refresh", window, "length", lambda _: ENDLESS))


@drill("SWA-U2", "off by one page")
def refreshed_without_the_extra_page(core: Any) -> None:
    """A refresh reaches a window back, and not a page more."""
    page = core.page_size
    on_windows(
        core,
        lambda window: during(window, "_refresh", window, "length", lambda length: length - page),
    )


@drill("SWA-U2", "a loop runs the other way")
def window_refreshed_downwards(core: Any) -> None:
    """A refresh leaves ancestors more recent than the node that was matched."""

    def spoil(window: Any) -> None:
        refresh = window._refresh

        def call(node: Any) -> None:
            held = _held_by_window(window, node, core.page_size)
            refresh(node)
            for each in held:
                window.recency.promote(each)

        window._refresh = call

    on_windows(core, spoil)


@drill("SWA-U2", "a condition too many")
def gaps_count_for_nothing(core: Any) -> None:
    """A refresh counts only the nodes that have a window, so that it reaches too far up."""

    def spoil(window: Any) -> None:
        def call(node: Any) -> None:
            for each in reversed(_held_by_window(window, node, core.page_size, are_counted=False)):
                window.recency.promote(each)

        window._refresh = call

    on_windows(core, spoil)


@drill("SWA-U2", "a call is forgotten")
def insert_end_not_refreshed(core: Any) -> None:
    """An insert leaves the recency of the windows that it found as it was."""
    on_windows(core, lambda window: setattr(window, "refresh_after_insert", lambda target: None))


@drill("SWA-U1", "a habit of another component")
def windows_refreshed_on_the_way(core: Any) -> None:
    """An insert refreshes the window of every node that it walks over."""

    def spoil(window: Any) -> None:
        def first(node: Any, *_: Any) -> None:
            if node in window.recency:
                window.recency.promote(node)

        before(window, "consume_overlap", first)

    on_windows(core, spoil)


@drill("SWA-U4", "an insertion at the wrong end")
def stored_as_the_oldest(core: Any) -> None:
    """A window that is stored is the first to go and not the last."""

    def spoil(window: Any) -> None:
        def then(_: None, node: Any, *__: Any) -> None:
            order = list(window.recency)
            if order[-1] is not node:
                window.recency.remove(node)
                window.recency.push_behind(node, order[-1])

        after(window, "store", then)

    on_windows(core, spoil)


# --- Splits -------------------------------------------------------------------------------


@drill("SWA-S1", "a half-ported field", "BUG-19")
def split_drops_window_lock(core: Any) -> None:
    """The upper half of a split has no lock of the window that the whole node had."""
    on_split(
        core,
        lambda upper, lower: on_windows(
            core, lambda window: setattr(window.data(upper), "lock_ref", 0)
        ),
    )


@drill("SWA-S1", "a half-ported field", "BUG-19")
def split_drops_host_lock_of_a_window(core: Any) -> None:
    """The upper half of a split has no host lock of the window that the whole node had."""
    on_split(
        core,
        lambda upper, lower: on_windows(
            core, lambda window: setattr(window.data(upper), "host_lock_ref", 0)
        ),
    )


@drill("SWA-S4", "a field is moved to the wrong half")
def boundary_stays_below(core: Any) -> None:
    """The mark that ends a window's lock stays on the lower half of a split."""

    def spoil(window: Any, upper: Any, lower: Any) -> None:
        mine, theirs = window.data(upper), window.data(lower)
        mine.lock_uuid, theirs.lock_uuid = None, mine.lock_uuid

    on_split(
        core,
        lambda upper, lower: on_windows(core, lambda window: spoil(window, upper, lower)),
    )


@drill("SWA-S4", "a copy for a move", "BUG-19")
def host_boundary_of_windows_on_both(core: Any) -> None:
    """Both halves of a split carry the mark that ends a window's host lock."""

    def spoil(window: Any, upper: Any, lower: Any) -> None:
        window.data(lower).host_lock_uuid = window.data(upper).host_lock_uuid

    on_split(
        core,
        lambda upper, lower: on_windows(core, lambda window: spoil(window, upper, lower)),
    )


@drill("SWA-S5", "the wrong sibling is called")
def split_prefix_most_recent(core: Any) -> None:
    """The upper half of a split becomes the most recent window."""

    def spoil(window: Any, upper: Any) -> None:
        if upper in window.recency:
            window.recency.promote(upper)

    on_split(
        core,
        lambda upper, lower: on_windows(core, lambda window: spoil(window, upper)),
    )


# --- Missing ranges and loaded rows -------------------------------------------------------


@drill("SWA-B1", "a merge is forgotten")
def ranges_end_with_their_nodes(core: Any) -> None:
    """Two missing ranges that touch are told as two."""

    def then(ranges: Any, key: Any, start: Any, end: Any, *_: Any) -> Any:
        starts = {first for _, first, _ in core._matched(core._tree.layout.pack(key), end)}
        cut = []
        for first, last in ranges:
            borders = [first, *sorted(each for each in starts if first < each < last), last]
            cut += list(zip(borders, borders[1:], strict=False))
        return cut

    after(core, "swa_tombstone_ranges", then)


@drill("SWA-B2", "a rounding too many")
def ranges_of_whole_pages(core: Any) -> None:
    """Missing ranges are rounded up to whole pages."""
    page = core.page_size

    def then(ranges: Any, *_: Any) -> Any:
        return [(first // page * page, -(-last // page) * page) for first, last in ranges]

    after(core, "swa_tombstone_ranges", then)


@drill("SWA-B1", "a limit is forgotten")
def ranges_beyond_the_cache(core: Any) -> None:
    """What is not cached at all counts as missing its window."""

    def then(ranges: Any, key: Any, start: Any, end: Any, *_: Any) -> Any:
        matched = core._matched(core._tree.layout.pack(key), end)
        cached = max(start, sum(length for _, _, length in matched))
        return [*ranges, (cached, end)] if cached < end else ranges

    after(core, "swa_tombstone_ranges", then)


@drill("SWA-B4", "a loop runs the other way")
def rows_stored_upwards(core: Any) -> None:
    """Loaded rows are stored from the end, so that the first node is the most recent."""
    attach = core.attach_swa_window

    def call(*args: Any, **kwargs: Any) -> Any:
        stored: list[Any] = []

        def hold(window: Any) -> None:
            window.store = lambda node, value: stored.append((window, node, value))

        on_windows(core, hold)
        try:
            return attach(*args, **kwargs)
        finally:
            on_windows(core, lambda window: delattr(window, "store"))
            for window, node, value in reversed(stored):
                window.store(node, value)

    core.attach_swa_window = call


@drill("SWA-B5", "a message is not sent")
def attach_splits_in_silence(core: Any) -> None:
    """Splits that loaded rows need are not announced."""
    after(core, "attach_swa_window", lambda actions, *_: [])
