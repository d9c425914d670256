"""Core ops that give nodes values from outside an insert: states, and windows that were loaded.

A value is made of fresh slots whose content is computed from what the node's full slots hold, as
if it had been loaded. What the core refuses goes back to the pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from ..backends.contract import ComponentType, RadixKey
from ..backends.pools import WindowPool
from . import ops
from .config import COMPONENT_NAMES

if TYPE_CHECKING:
    from .execute import CoreOps

FULL, MAMBA = ComponentType.FULL, ComponentType.MAMBA


# --- One node -----------------------------------------------------------------------------


def store_value(side: CoreOps, op: ops.StoreValue) -> None:
    """Store a value on a node that lacks it; with `force`, on any."""
    node = side.node(op.node)
    component = COMPONENT_NAMES[op.component]
    is_auxiliary = component in side.components and component is not FULL
    if node is None or not (is_auxiliary or op.force):
        return
    full = side.core.get_component_device_value(node, FULL)
    lacks = is_auxiliary and side.core.get_component_device_value(node, component) is None
    if full is None or not lacks:
        if op.force:  # It is refused, so it needs no slots that are anybody's.
            side.core.set_component_device_value(node, component, side.padding(1 - op.short))
        return
    with _fresh_value(side, component, full) as value:
        if value is not None:
            short = value[:-1] if op.short else value
            side.core.set_component_device_value(node, component, short)


@contextmanager
def _fresh_value(
    side: CoreOps, component: ComponentType, full: torch.Tensor
) -> Iterator[torch.Tensor | None]:
    """A value for the node of these full slots, None if memory is short; freed on an error."""
    pools = side.cache.pools
    if component in pools.windows:
        with _fresh_peers(side, pools.windows[component], full) as peers:
            yield peers
        return
    state = pools.states.alloc(1) if pools.states is not None else None
    if pools.states is None or state is None:
        yield None
        return
    pools.states.write(state, pools.kv.read(full[-1:]))
    try:
        yield state
    except Exception:
        pools.states.free(state)
        raise


@contextmanager
def _fresh_peers(
    side: CoreOps, window: WindowPool, full: torch.Tensor
) -> Iterator[torch.Tensor | None]:
    """Window slots for full slots without any, mapped and filled; freed on an error."""
    if not window.attach(full):
        yield None
        return
    window.write(full, side.cache.pools.kv.read(full))
    try:
        yield window.translate(full)
    except Exception:
        window.free_mapped_peers(full)
        raise


# --- Ranges of a key ----------------------------------------------------------------------


def window_ranges(side: CoreOps, op: ops.WindowRanges) -> None:
    """Ask for the spans of a key whose window is gone."""
    component = COMPONENT_NAMES[op.component]
    if op.raw:
        key = side.key(op.tokens, op.namespace)
        end = side.units(key) if op.end is None else op.end
        side.core.swa_tombstone_ranges(key, op.start, end, component)
    elif component in side.cache.pools.windows:
        key, length = _page_key(side, op.tokens, op.namespace)
        start, end = _clipped(op.start, op.end, length)
        side.core.swa_tombstone_ranges(key, start, end, component)


def attach_window(side: CoreOps, op: ops.AttachWindow) -> None:
    """Load the window of a span of a key and publish it."""
    component = COMPONENT_NAMES[op.component]
    window = side.cache.pools.windows.get(component)
    key, length = _page_key(side, op.tokens, op.namespace)
    if window is None or op.raw:
        if op.raw:
            _attach_as_it_is(side, op, key, component)
        return
    start, end = map(side.whole_pages, _clipped(op.start, op.end, length))
    found = side.core.swa_tombstone_ranges(key, start, end, component)
    # An empty one would leave a released Python core a node without tokens (SWA-B1, SWA-X6).
    ranges = [(first, last) for first, last in found if first < last]
    if ranges:
        first, last = ranges[op.range % len(ranges)]
        with _fresh_peers(side, window, _path_slots(side, key)[first:last]) as peers:
            if peers is not None:
                side.cache.apply(side.core.attach_swa_window(key, first, last, peers, component))


def _attach_as_it_is(
    side: CoreOps, op: ops.AttachWindow, key: RadixKey, component: ComponentType
) -> None:
    """Attach a span whatever is there; only one that is really gone takes slots."""
    end = side.units(key) if op.end is None else op.end
    count = max(0, min(end - op.start, side.config.row_length))
    window = side.cache.pools.windows.get(component)
    full = _path_slots(side, key)[max(0, op.start) : max(0, end)]
    is_gone = window is not None and full.numel() == end - op.start
    if window is None or not is_gone or int(window.translate(full).count_nonzero()):
        padding = side.padding(count)
        side.cache.apply(side.core.attach_swa_window(key, op.start, end, padding, component))
        return
    with _fresh_peers(side, window, full) as peers:
        if peers is not None:
            side.cache.apply(side.core.attach_swa_window(key, op.start, end, peers, component))


def _page_key(side: CoreOps, tokens: list[int], namespace: ops.Namespace) -> tuple[RadixKey, int]:
    """A key of whole pages in the tree's own view, and its length.

    A released core wants that view here, and trips over a tail that is no page (SWA-B1, SWA-X7).
    """
    length = side.units(side.key(tokens, namespace))
    extra = 1 if side.core.is_eagle and length else 0
    return side.key(tokens[: length + extra], namespace, is_bigram=side.core.is_eagle), length


def _clipped(start: int, end: int | None, length: int) -> tuple[int, int]:
    """A span of the op as one of the key (SWA-X7)."""
    last = length if end is None else max(0, min(end, length))
    return max(0, min(start, last)), last


def _path_slots(side: CoreOps, key: RadixKey) -> torch.Tensor:
    """Full slots of the cached prefix of a key."""
    matched, node, _ = side.core.match_full_device_prefix(key)
    slots = side.core.collect_full_device_indices(node, side.core.root_node_handle())
    return slots[:matched]
