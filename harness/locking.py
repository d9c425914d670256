"""Core ops on locks: they take receipts, keep them, give windows up early and release what is left.

Hostile ops misuse receipts. A release that a core must refuse can still succeed where somebody
else holds the same lock; whoever that is must not lose it, so such a call is left out or what it
took is given back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..backends.contract import ComponentType, DecLockRefParams
from . import ops
from .config import COMPONENT_NAMES
from .references import HeldLock
from .walking import close_auxiliary_walks

if TYPE_CHECKING:
    from .execute import CoreOps

FULL, SWA, MAMBA = ComponentType.FULL, ComponentType.SWA, ComponentType.MAMBA

NO_MARK = 1
"""A lock boundary id that no core ever issues (SWA-D11)."""


def lock(side: CoreOps, op: ops.Lock) -> None:
    """Take a lock and keep its receipt."""
    node = side.node(op.node)
    if node is None:
        return
    if op.host:
        side.references.host_locks.append(HeldLock(node, side.core.inc_host_lock_ref(node)))
        return
    if not op.force:
        close_auxiliary_walks(side)
    skip = [COMPONENT_NAMES[name] for name in op.skip]
    side.references.locks.append(HeldLock(node, side.core.inc_lock_ref(node, skip)))


def release(side: CoreOps, held: HeldLock) -> None:
    """Release what is left of a device lock."""
    side.core.dec_lock_ref(held.node, held.params(), held.is_swa_released)


# --- Releases -----------------------------------------------------------------------------


def unlock(side: CoreOps, op: ops.Unlock) -> None:
    """Release a receipt, or misuse one."""
    held = side.references.host_locks if op.host else side.references.locks
    if op.window is not None:
        release_window(side, ops.ReleaseWindow(op.lock, op.window, op.receipt, force=True))
    elif op.receipt == "released":
        _unlock_again(side, op)
    elif not held:
        return
    elif op.receipt != "own":
        _unlock_falsely(side, held[op.lock % len(held)], op)
    elif op.host:
        one = held.pop(op.lock % len(held))
        if not side.references.is_live(one.node):
            # Its node was evicted meanwhile, and windows above it stay locked (SWA-L22).
            side.references.has_lost_host_lock = True
        side.core.dec_host_lock_ref(one.node, one.receipt.to_dec_params())
    else:
        _unlock_own(side, held.pop(op.lock % len(held)), op.skip_swa)


def _unlock_own(side: CoreOps, held: HeldLock, skip_swa: bool) -> None:
    """Release a lock; what `skip_swa` leaves behind, although it was held, is released after it.

    A receipt can be released in parts (MAM-L11), but no window may stay locked below FULL's lock
    for long (SWA-V5).
    """
    left = [kind for kind in (SWA, MAMBA) if held.holds(kind) and kind in side.components]
    side.core.dec_lock_ref(held.node, held.params(), skip_swa or held.is_swa_released)
    side.references.released.append(held)
    if skip_swa and side.config.has_windows and left:
        rest = held.params()
        skipped = {*rest.skipped_lock_components, *side.components}.difference(left)
        rest.skipped_lock_components = tuple(sorted(skipped))
        side.core.dec_lock_ref(held.node, rest)


def _unlock_again(side: CoreOps, op: ops.Unlock) -> None:
    """Release a receipt twice. That can succeed by taking another holder's lock (LOCK-12)."""
    released = side.references.released
    if not released:
        return
    held = released[op.lock % len(released)]
    params = held.params()
    others = [kind for kind in side.components if kind is not FULL]
    if any(_is_held(side, kind) for kind in others):
        params.skipped_lock_components += tuple(others)  # Only FULL's can be given back.
    side.core.dec_lock_ref(held.node, params, op.skip_swa or held.is_swa_released)
    if FULL not in held.receipt.skipped_lock_components:
        side.core.inc_full_pin(held.node)  # Give the lock back to whoever lost it.


def _is_held(side: CoreOps, component: ComponentType) -> bool:
    """Whether anybody may hold a lock of a component."""
    if side.cache.requests or side.cache.linker.pending:
        return True
    return any(held.holds(component) for held in side.references.locks)


def _unlock_falsely(side: CoreOps, held: HeldLock, op: ops.Unlock) -> None:
    """Release a receipt that names no node, or another node's."""
    params = held.params()
    if op.receipt == "stripped":
        params.node_id = None
    node = side.core.root_node_handle() if op.receipt == "foreign" else held.node
    if node == params.node_id:
        return
    if op.host:
        side.core.dec_host_lock_ref(node, params)
    else:
        side.core.dec_lock_ref(node, params, op.skip_swa)


# --- Windows ------------------------------------------------------------------------------


def release_window(side: CoreOps, op: ops.ReleaseWindow) -> None:
    """Give the window of a receipt up early, or misuse the receipt."""
    references = side.references
    locks = references.released if op.receipt == "released" else references.locks
    if not locks:
        return
    held = locks[op.lock % len(locks)]
    component = SWA if op.window is None else COMPONENT_NAMES[op.window]
    params = held.receipt.to_dec_params()
    if op.receipt == "stripped":
        params.component_lock_uuids = {}
    elif op.receipt == "foreign":
        params.component_lock_uuids = {component: NO_MARK}
    elif not _may_release(side, held, component, op):
        return
    _release_window(side, held, component, op.window is None, params)


def _may_release(
    side: CoreOps, held: HeldLock, component: ComponentType, op: ops.ReleaseWindow
) -> bool:
    """Whether a window is there to be released (SWA-L17), or its release can rob nobody."""
    if op.receipt == "own" and held.holds(component):
        is_marked = held.receipt.component_lock_uuids.get(component) is not None
        is_there = component in side.components and side.references.is_live(held.node)
        return op.force or (is_marked and is_there)
    if op.receipt == "own" and not op.force:
        return False
    parts = (component, MAMBA) if op.window is None else (component,)
    return not any(_is_held(side, part) for part in parts)


def _release_window(
    side: CoreOps,
    held: HeldLock,
    component: ComponentType,
    with_state: bool,
    params: DecLockRefParams,
) -> None:
    if with_state:
        result = side.core.dec_swa_lock_only(held.node, params)
        held.is_swa_released = side.config.has_windows
    else:
        result = side.core.dec_window_lock_only(held.node, component, params)
        held.released_windows.add(component)
    side.cache.drain(result)


# --- Pins ---------------------------------------------------------------------------------


def pin(side: CoreOps, op: ops.Pin) -> None:
    """Pin a node, or release a pin."""
    pins = side.references.pins
    if op.force:
        node = side.node(op.node)
        # A forced release could take a lock that somebody holds.
        is_robbery = node is not None and side.references.is_live(node)
        if node is not None and not (is_robbery and side.core.protected_size() > 0):
            side.core.dec_full_pin(node)
    elif op.release is not None:
        if pins:
            side.core.dec_full_pin(pins.pop(op.release % len(pins)))
    else:
        node = side.node(op.node)
        if node is not None:
            side.core.inc_full_pin(node)
            pins.append(node)
