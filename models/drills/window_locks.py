"""Drills of locks on sliding windows: how far they reach, what ends them, what goes with them."""

from __future__ import annotations

from typing import Any

import msgspec

from treedrift.backends.contract import ComponentType, ContractError

from .drill import Theme, after, during, on_first_window, on_states, on_windows

drill = Theme("swa")

ENDLESS = 2**62


# --- How far a lock reaches ---------------------------------------------------------------


@drill("SWA-L1", "a loop without its limit")
def window_locked_up_to_the_root(core: Any) -> None:
    """A lock holds the windows of its whole path and not those of its end alone."""
    on_windows(
        core, lambda window: during(window, "_window_above", window, "length", lambda _: ENDLESS)
    )


@drill("SWA-L1", "off by one: `<=` for `<`")
def window_locked_a_unit_more(core: Any) -> None:
    """A lock goes on where the nodes so far cover exactly a window."""
    on_windows(
        core,
        lambda window: during(window, "_window_above", window, "length", lambda length: length + 1),
    )


@drill("SWA-L1", "a condition too many")
def tombstones_cover_nothing(core: Any) -> None:
    """A lock counts only the nodes that have a window, so that it reaches too far up."""

    def spoil(window: Any) -> None:
        def call(node: Any) -> tuple[list[Any], bool]:
            segment, covered = [], 0
            while node.parent is not None and covered < window.length:
                segment.append(node)
                if window.data(node).device_value is not None:
                    covered += node.length
                node = node.parent
            return segment, covered >= window.length

        window._window_above = call

    on_windows(core, spoil)


@drill("SWA-L5", "an argument is ignored")
def skipped_window_locked(core: Any) -> None:
    """A lock that should leave the window out takes it all the same."""

    def then(receipt: Any, node_id: Any, *_: Any) -> Any:
        def acquire(window: Any) -> None:
            if window.component_type in receipt.skipped_lock_components:
                window.acquire(core._node(node_id), receipt)

        on_windows(core, acquire)
        return receipt

    after(core, "inc_lock_ref", then)


@drill("SWA-L19", "a loop is forgotten", "BUG-19")
def host_lock_of_one_node_alone(core: Any) -> None:
    """A host lock of a window covers its node and none of those above."""

    def spoil(window: Any) -> None:
        def then(_: None, node: Any, __: Any) -> None:
            segment, _is_whole = window._window_above(node)
            for each in segment[1:]:
                window.data(each).host_lock_ref -= 1

        after(window, "acquire_host", then)

    on_windows(core, spoil)


# --- Where a lock ends --------------------------------------------------------------------


@drill("SWA-L2", "a cached value is made anew")
def boundary_minted_for_each_lock(core: Any) -> None:
    """Each lock that ends on a node gives it a new mark, and older receipts find theirs no more."""

    def spoil(window: Any) -> None:
        acquire = window.acquire

        def call(node: Any, receipt: Any) -> None:
            segment, is_whole = window._window_above(node)
            if is_whole:
                window.data(segment[-1]).lock_uuid = None
            acquire(node, receipt)

        window.acquire = call

    on_windows(core, spoil)


@drill("SWA-L1", "a half-ported field", "BUG-03")
def boundary_not_in_the_receipt(core: Any) -> None:
    """A receipt never says where its window ends, so that its release goes up to the root."""

    def spoil(window: Any) -> None:
        def then(_: None, __: Any, receipt: Any) -> None:
            receipt.component_lock_uuids[window.component_type] = None

        after(window, "acquire", then)

    on_windows(core, spoil)


@drill("SWA-L7", "an argument is ignored", "BUG-03")
def boundary_not_looked_at(core: Any) -> None:
    """A release goes up to the root, whatever the receipt says, and takes what others hold."""

    def spoil(window: Any) -> None:
        segment = window._segment

        def call(node: Any, uuids: Any, *, is_host: bool) -> Any:
            if window.component_type in uuids and not is_host:
                uuids = {**uuids, window.component_type: None}
            return segment(node, uuids, is_host=is_host)

        window._segment = call

    on_windows(core, spoil)


@drill("SWA-L9", "a check is forgotten", "BUG-03")
def foreign_boundary_accepted(core: Any) -> None:
    """A receipt whose mark no node carries is released up to the root."""

    def spoil(window: Any) -> None:
        segment = window._segment

        def call(node: Any, uuids: Any, *, is_host: bool) -> Any:
            try:
                return segment(node, uuids, is_host=is_host)
            except ContractError:
                if window.component_type not in uuids:
                    raise
                return segment(node, {window.component_type: None}, is_host=is_host)

        window._segment = call

    on_windows(core, spoil)


@drill("SWA-L8", "a missing entry counts as None")
def torn_receipt_accepted(core: Any) -> None:
    """A receipt without an entry for the window is released up to the root."""

    def spoil(window: Any) -> None:
        segment = window._segment

        def call(node: Any, uuids: Any, *, is_host: bool) -> Any:
            return segment(node, {window.component_type: None, **uuids}, is_host=is_host)

        window._segment = call

    on_windows(core, spoil)


# --- Early releases -----------------------------------------------------------------------


@drill("SWA-L13", "a line is forgotten")
def early_release_leaves_the_value(core: Any) -> None:
    """A window that is given up above unlocked tokens stays in the tree."""

    def spoil(window: Any) -> None:
        def call(node: Any, receipt: Any) -> list[Any]:
            window.release(node, receipt)
            return []

        window.release_early = call

    on_windows(core, spoil)


@drill("SWA-L12", "the wrong sibling is called", profile="windows")
def first_window_for_the_second(core: Any) -> None:
    """The release of one window alone always gives the first one up."""
    release = core.dec_window_lock_only

    def call(node_id: Any, component_type: Any, params: Any) -> Any:
        if component_type == ComponentType.AUXILIARY_SWA:
            component_type = ComponentType.SWA
        return release(node_id, component_type, params)

    if core._find_component(ComponentType.AUXILIARY_SWA) is not None:
        core.dec_window_lock_only = call


@drill("SWA-L10", "an argument is ignored")
def window_released_twice(core: Any) -> None:
    """The release of a lock takes the window again that was given up early."""
    release = core.dec_lock_ref

    def call(node_id: Any, params: Any, skip_swa: Any = False) -> Any:
        return release(node_id, params, skip_swa and not isinstance(skip_swa, bool))

    on_first_window(core, lambda _: setattr(core, "dec_lock_ref", call))


@drill("MAM-L12", "a half-ported change", profile="hybrid")
def late_release_takes_the_state(core: Any) -> None:
    """After an early release of the window the rest is released together with the state."""
    release = core.dec_lock_ref

    def call(node_id: Any, params: Any, skip_swa: Any = False) -> Any:
        if skip_swa is not True:
            return release(node_id, params, skip_swa)
        skipped = (*params.skipped_lock_components, ComponentType.SWA)
        return release(node_id, msgspec.structs.replace(params, skipped_lock_components=skipped))

    on_states(core, lambda _: on_first_window(core, lambda _: setattr(core, "dec_lock_ref", call)))


@drill("MAM-L13", "a loop is forgotten", profile="hybrid")
def early_release_keeps_the_state(core: Any) -> None:
    """An early release of the window leaves the state below it locked for ever."""
    release = core.dec_window_lock_only

    def call(node_id: Any, params: Any) -> Any:
        return release(node_id, ComponentType.SWA, params)

    def spoil(_: Any) -> None:
        core.dec_swa_lock_only = call

    on_states(core, lambda _: on_first_window(core, spoil))


@drill("MAM-L14", "the wrong sibling is called", profile="hybrid")
def window_alone_takes_the_state(core: Any) -> None:
    """The release of one window alone releases the state with it."""
    release = core.dec_window_lock_only

    def call(node_id: Any, component_type: Any, params: Any) -> Any:
        if component_type == ComponentType.SWA:
            return core.dec_swa_lock_only(node_id, params)
        return release(node_id, component_type, params)

    def spoil(_: Any) -> None:
        core.dec_window_lock_only = call

    on_states(core, lambda _: on_first_window(core, spoil))


# --- Values under a lock ------------------------------------------------------------------


@drill("SWA-L4", "a state of before is taken for that of now")
def window_under_a_lock_evictable(core: Any) -> None:
    """A window that appears under a lock counts as evictable."""
    on_windows(core, _stored_as_unlocked)


@drill("MAM-L3", "a state of before is taken for that of now", profile="mamba")
def state_under_a_lock_evictable(core: Any) -> None:
    """A state that appears under a lock counts as evictable."""
    on_states(core, _stored_as_unlocked)


def _stored_as_unlocked(component: Any) -> None:
    store = component.store

    def call(node: Any, value: Any) -> None:
        data = component.data(node)
        kept, data.lock_ref = data.lock_ref, 0
        store(node, value)
        data.lock_ref = kept

    component.store = call
