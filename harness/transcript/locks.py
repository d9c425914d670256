"""Locks and pins: which place in the lists of a replay the receipt of a call has.

INVARIANT: `locks`, `host_locks` and `pins` hold, in the same order, what a replay of the ops told
so far holds (`harness/locking.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import get_args

from treedrift.backends.contract import (
    ComponentType,
    DecLockRefParams,
    IncLockRefResult,
    NodeId,
)

from .. import ops
from ..config import COMPONENT_NAMES
from ..references import HeldLock
from .call import Call
from .sheet import Sheet

SWA, MAMBA = ComponentType.SWA, ComponentType.MAMBA
NAMES = {COMPONENT_NAMES[name]: name for name in get_args(ops.ComponentName)}
"""Components as ops spell them."""


class Locks:
    """Tells of locks, their early and final releases, and pins."""

    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet
        self._locks: list[HeldLock] = []
        self._host_locks: list[HeldLock] = []
        self._pins: list[NodeId] = []

    def forget(self) -> None:
        """The tree was emptied: receipts and pins are dead."""
        for held in (self._locks, self._host_locks, self._pins):
            held.clear()

    # --- Taking ---------------------------------------------------------------------------

    def lock(self, call: Call) -> None:
        """`inc_lock_ref`."""
        skip = call.arguments.get("skip_lock_components", ())
        self._take(call, self._locks, ops.Lock("", skip=_spelled(skip)))

    def host_lock(self, call: Call) -> None:
        """`inc_host_lock_ref`."""
        self._take(call, self._host_locks, ops.Lock("", host=True))

    def _take(self, call: Call, held: list[HeldLock], op: ops.Lock) -> None:
        node = call.arguments["node_id"]
        ref = self._sheet.ref(call.method, node)
        if ref is None:
            return
        op.node = ref
        if self._sheet.write(op):
            held.append(HeldLock(node, call.result))
            self._sheet.labels.hold(node)

    # --- Releasing ------------------------------------------------------------------------

    def unlock(self, call: Call) -> None:
        """`dec_lock_ref`: of all that is left of a receipt, or of its state alone (MAM-L11)."""
        node, params = call.arguments["node_id"], call.arguments["params"]
        wanted = set(self._sheet.components).difference(params.skipped_lock_components)
        if call.arguments.get("skip_swa", False) and SWA in self._sheet.components:
            wanted -= {SWA, MAMBA}

        def strangeness(held: HeldLock) -> int:
            left = self._left(held)
            return (left != wanted) + (not left >= wanted)

        place = self._place(self._locks, call, strangeness)
        if place is None:
            return
        left = self._left(self._locks[place])
        if left == wanted:
            self._sheet.write(ops.Unlock(place))
            self._drop(self._locks, place)
        elif wanted == {MAMBA} and MAMBA in left:
            self._release_state(node, place, params)
        else:
            self._sheet.leave_out("dec_lock_ref of a part of a lock")

    def _left(self, held: HeldLock) -> set[ComponentType]:
        """What is still held of a receipt."""
        return {kind for kind in self._sheet.components if held.holds(kind)}

    def _release_state(self, node: NodeId, place: int, params: DecLockRefParams) -> None:
        """No op releases the state alone, so the rest is locked anew before all is released."""
        before = self._locks[place].receipt
        skip = (*before.skipped_lock_components, MAMBA)
        ref = self._sheet.ref("dec_lock_ref", node)
        if ref is None or not self._sheet.write(ops.Lock(ref, skip=_spelled(skip))):
            return
        rest = IncLockRefResult(before.delta, node, skip, params.component_lock_uuids)
        self._locks.append(HeldLock(node, rest))
        self._sheet.labels.hold(node)
        self._sheet.write(ops.Unlock(place))
        self._drop(self._locks, place)

    def host_unlock(self, call: Call) -> None:
        """`dec_host_lock_ref`."""
        place = self._place(self._host_locks, call, lambda held: 0)
        if place is not None:
            self._sheet.write(ops.Unlock(place, host=True))
            self._drop(self._host_locks, place)

    def release_window(self, call: Call) -> None:
        """`dec_swa_lock_only`, and `dec_window_lock_only` of one window."""
        if SWA not in self._sheet.components:
            return
        component = call.arguments.get("component_type")
        released = SWA if component is None else component

        def has_window(held: HeldLock) -> bool:
            is_marked = held.receipt.component_lock_uuids.get(released) is not None
            return is_marked and held.holds(released)

        def strangeness(held: HeldLock) -> int:
            skipped = held.receipt.skipped_lock_components
            is_other = set(skipped) != set(call.arguments["params"].skipped_lock_components)
            return is_other + 2 * (not has_window(held))

        place = self._place(self._locks, call, strangeness)
        if place is None:
            return
        held = self._locks[place]
        if not has_window(held):
            self._sheet.leave_out(f"{call.method} of a receipt without a window")
            return
        window = None if component is None else NAMES[component]
        if self._sheet.write(ops.ReleaseWindow(place, window=window)):
            if component is None:
                held.is_swa_released = True
            else:
                held.released_windows.add(component)

    def _place(
        self, locks: list[HeldLock], call: Call, strangeness: Callable[[HeldLock], int]
    ) -> int | None:
        """Where a receipt is held: among equal ones, the least strange for this call.

        None, and counted, if it was not told.
        """
        node, params = call.arguments["node_id"], call.arguments["params"]
        found = [
            place
            for place, held in enumerate(locks)
            if held.node == node
            and held.receipt.component_lock_uuids == params.component_lock_uuids
            and held.receipt.component_host_lock_uuids == params.component_host_lock_uuids
        ]
        if not found:
            self._sheet.leave_out(f"{call.method} of a receipt that was not told")
            return None
        return min(found, key=lambda place: strangeness(locks[place]))

    def _drop(self, locks: list[HeldLock], place: int) -> None:
        self._sheet.labels.release(locks.pop(place).node)

    # --- Pins -----------------------------------------------------------------------------

    def pin(self, call: Call) -> None:
        """`inc_full_pin`."""
        node = call.arguments["node_id"]
        ref = self._sheet.ref(call.method, node)
        if ref is not None and self._sheet.write(ops.Pin(ref)):
            self._pins.append(node)
            self._sheet.labels.hold(node)

    def unpin(self, call: Call) -> None:
        """`dec_full_pin`."""
        node = call.arguments["node_id"]
        if node not in self._pins:
            self._sheet.leave_out("dec_full_pin of a pin that was not told")
            return
        place = self._pins.index(node)
        self._sheet.write(ops.Pin(release=place))
        self._sheet.labels.release(self._pins.pop(place))


def _spelled(components: Iterable[ComponentType]) -> list[ops.ComponentName]:
    return [NAMES[kind] for kind in components if kind in NAMES]
