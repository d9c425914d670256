"""Drills of the cache: what requests do about their windows and states, and what pools forget.

They spoil the cache on top of a sound core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from .drill import Theme, after, before

drill = Theme("hybrid-requests", target="cache")


def on_requests_states(cache: Any, spoil: Callable[[Any], None]) -> None:
    """Spoil what requests do about their states; nothing in a tree without states."""
    if cache._states is not None:
        spoil(cache._states)


# --- Locks of the cache -------------------------------------------------------------------


@drill("MAM-M16", "a receipt is not replayed", "BUG-03", profile="hybrid")
def copy_pin_released_to_the_root(cache: Any) -> None:
    """The short lock around the copy of a state is released without its window's boundary."""

    def spoil(states: Any) -> None:
        unlock = cache.unlock

        def torn(held: Any) -> None:
            uuids = held.receipt.component_lock_uuids
            held.receipt.component_lock_uuids = dict.fromkeys(uuids)
            unlock(held)

        def first(*_: Any) -> None:
            cache.unlock = torn

        def then(slot: Any, *_: Any) -> Any:
            cache.unlock = unlock
            return slot

        before(states, "slot_for_copy", first)
        after(states, "slot_for_copy", then)

    on_requests_states(cache, spoil)


@drill("MAM-M16", "a lock is forgotten")
def copied_state_not_pinned(cache: Any) -> None:
    """The state that is to be copied is not locked while others are evicted."""

    def spoil(states: Any) -> None:
        def call(node_id: Any) -> Any:
            slot = states._pool.alloc(1)
            return cache.allocate_state() if slot is None else slot

        states.slot_for_copy = call

    on_requests_states(cache, spoil)


@drill("CTL-34", "a flag is not kept", profile="hybrid")
def early_release_not_noted(cache: Any) -> None:
    """A lock whose window was given up early is released as a whole later."""
    after(cache, "release_window", lambda _, held: setattr(held, "window_released", False))


@drill("MAM-R10", "a receipt is not brought up to date", profile="mamba")
def state_let_go_twice(cache: Any) -> None:
    """A lock that has let its state go is released as if it had not."""

    def spoil(states: Any) -> None:
        let_go = states._let_state_go

        def call(request: Any) -> None:
            skipped = request.lock.receipt.skipped_lock_components
            let_go(request)
            request.lock.receipt.skipped_lock_components = skipped

        states._let_state_go = call

    on_requests_states(cache, spoil)


# --- Windows of requests ------------------------------------------------------------------


@drill("SWA-Q2", "a length is left out", profile="swa")
def given_up_while_needed(cache: Any) -> None:
    """A request frees its window up to the token that comes next, which still looks at it."""
    windows = cache._windows
    give_up = windows.give_up

    def call(request: Any, reach: int) -> None:
        give_up(request, reach + max(windows._widths.values(), default=0))

    windows.give_up = call


@drill("SWA-I1", "a half-ported field", "BUG-01", profile="swa")
def given_up_and_not_told(cache: Any) -> None:
    """A request does not tell the tree what it has given up of its window."""

    def then(_: None, __: Any, params: Any, *___: Any) -> None:
        params.component_evicted_seqlens.clear()

    after(cache._windows, "describe", then)


@drill("SWA-Q1", "a half-ported change", "BUG-01", profile="swa")
def branch_never_asked_for(cache: Any) -> None:
    """A request never stores a window where others part from it."""
    cache._windows.branch = lambda request: None


@drill("SWA-Q4", "a length is left out", profile="swa")
def row_freed_as_a_whole(cache: Any) -> None:
    """A request that ends frees the window of its whole row, also what it gave up before."""

    def first(request: Any) -> None:
        for share in request.windows.values():
            share.evicted = 0

    before(cache._windows, "release", first)


@drill("MAM-R18", "a condition is forgotten", profile="hybrid")
def window_below_a_state_given_up(cache: Any) -> None:
    """A request frees the window below the state that it will leave in the tree."""
    windows = cache._windows
    give_up = windows.give_up

    def call(request: Any, reach: int) -> None:
        tracking = request.tracking
        if tracking is None:
            give_up(request, reach)
            return
        kept, tracking.last_depth = tracking.last_depth, None
        give_up(request, reach)
        tracking.last_depth = kept

    windows.give_up = call


# --- Pools --------------------------------------------------------------------------------


@drill("SWA-P3", "a table is not kept up to date", "BUG-17", profile="swa")
def freed_peers_stay_mapped(cache: Any) -> None:
    """A window slot that is freed is still the peer of its token's slot."""
    for window in cache.pools.windows.values():
        window._forget_pages = lambda full: None


@drill("SWA-A6", "a copy for a move", "BUG-17", profile="swa")
def moved_peers_stay_mapped(cache: Any) -> None:
    """Window slots that the tree's tokens take over stay the peers of the request's as well."""
    for kind, window in cache.pools.windows.items():
        driver = cache._drivers[kind]

        def move(kept: Any, incoming: Any, window: Any = window) -> None:
            window.set_mapping(kept, window.translate(incoming))

        driver._move = move


# --- States of requests -------------------------------------------------------------------


def _tracks_on_the_wrong_grid(cache: Any, *, each_step: bool) -> None:
    """Track states on the grid of chunks alone, in decodes or in prefills."""

    def spoil(states: Any) -> None:
        advance, grid = states.advance, states._grid

        def call(request: Any, start: int, end: int, **how: Any) -> None:
            states._grid = cache.config.state_chunk if how["each_step"] == each_step else grid
            advance(request, start, end, **how)
            states._grid = grid

        states.advance = call

    on_requests_states(cache, spoil)


@drill("MAM-C2", "two roundings with different grids", "BUG-15", profile="mamba")
def prefill_tracks_between_pages(cache: Any) -> None:
    """A prefilled state is not rounded down to the page at which its key ends."""
    _tracks_on_the_wrong_grid(cache, each_step=False)


@drill("MAM-C2", "two roundings with different grids", "BUG-15", profile="mamba")
def decode_tracks_between_pages(cache: Any) -> None:
    """A decoded state is not rounded down to the page at which its key ends."""
    _tracks_on_the_wrong_grid(cache, each_step=True)


@drill("MAM-R12", "a result is ignored", profile="mamba")
def refused_state_kept(cache: Any) -> None:
    """A state that the tree had no use for is never freed."""

    def spoil(states: Any) -> None:
        settle = states.settle

        def call(request: Any, offer: Any, *, is_taken: bool, is_finished: bool) -> None:
            settle(request, offer, is_taken=is_taken or not is_finished, is_finished=is_finished)

        states.settle = call

    on_requests_states(cache, spoil)


@drill("MAM-R12", "a state is not cleared", profile="mamba")
def tracked_depth_not_forgotten(cache: Any) -> None:
    """After a checkpoint a request still believes in the state that it gave away."""

    def spoil(states: Any) -> None:
        settle = states.settle

        def call(request: Any, offer: Any, **how: Any) -> None:
            tracking = request.tracking
            kept = None if tracking is None else (tracking.last_depth, tracking.prev_depth)
            settle(request, offer, **how)
            if request.tracking is not None and kept is not None:
                request.tracking.last_depth, request.tracking.prev_depth = kept

        states.settle = call

    on_requests_states(cache, spoil)


@drill("MAM-R7", "a slot has two owners", profile="mamba")
def donated_slot_kept(cache: Any) -> None:
    """A request goes on writing to the state that it gave to the tree."""

    def spoil(states: Any) -> None:
        donate = states._donate

        def call(request: Any, tracking: Any) -> Any:
            slots = tracking.slots
            entry, kept = slots.last_track, list(slots.buffer)
            offer = donate(request, tracking)
            if offer.slot is not None:
                states._pool.free(states._pool.tensor([slots.buffer[entry]]))
                slots.buffer = kept
            return offer

        states._donate = call

    on_requests_states(cache, spoil)


@drill("MAM-R6", "a copy is forgotten", profile="mamba")
def forked_state_is_empty(cache: Any) -> None:
    """A checkpoint offers a fresh slot without the state in it."""

    def spoil(states: Any) -> None:
        fork = states._fork

        def call(request: Any, tracking: Any) -> Any:
            pool = states._pool
            copy, pool.copy = pool.copy, lambda source, target: None
            try:
                return fork(request, tracking)
            finally:
                pool.copy = copy

        states._fork = call

    on_requests_states(cache, spoil)


@drill("MAM-R9", "a check is forgotten", profile="mamba")
def finished_depth_not_checked(cache: Any) -> None:
    """A finished request leaves the other entry of its buffer as the state of the last depth."""

    def spoil(states: Any) -> None:
        def then(offer: Any, _: Any, tracking: Any) -> Any:
            buffer = tracking.slots.buffer
            if offer.keep is None or len(buffer) < 2 or -1 in buffer:
                return offer
            other = 1 - offer.keep
            return msgspec.structs.replace(
                offer, slot=states._pool.tensor([buffer[other]]), keep=other
            )

        after(states, "_last_offer", then)

    on_requests_states(cache, spoil)


@drill("MAM-R13", "a condition is forgotten", profile="mamba")
def kept_entry_freed(cache: Any) -> None:
    """A request that ends frees the state that it has just given to the tree."""

    def spoil(states: Any) -> None:
        release = states._pool.release
        states._pool.release = lambda slots, keep=None: release(slots)

    on_requests_states(cache, spoil)


@drill("MAM-M18", "a copy is forgotten", profile="mamba")
def copied_state_not_read(cache: Any) -> None:
    """A request that starts from a cached state does not copy it."""

    def spoil(states: Any) -> None:
        start = states.start

        def call(request: Any) -> None:
            pool = states._pool
            copy, pool.copy = pool.copy, lambda source, target: None
            start(request)
            pool.copy = copy

        states.start = call

    on_requests_states(cache, spoil)


@drill("MAM-R8", "an owner is forgotten", profile="mamba")
def given_state_freed(cache: Any) -> None:
    """A request without a buffer that ends frees the state that the tree has taken."""

    def spoil(states: Any) -> None:
        def first(request: Any, offer: Any, *, is_taken: bool, is_finished: bool) -> None:
            if is_finished and is_taken and states._buffer == "none":
                states.give_back(offer.slot)

        before(states, "settle", first)

    on_requests_states(cache, spoil)
