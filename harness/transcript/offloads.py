"""The external linker: offloads, which a replay starts by itself wherever an insert asks for one.

The cache asks what an offload copies, locks the node, hands it to the transport, and marks the
node or gives the lock back (LKW-20). Later it tells the core how that ended, and unlocks (LKW-24).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from treedrift.backends.contract import NodeId

from .. import ops
from ..cache.linker import QUEUE_LIMIT
from .call import Call
from .sheet import Sheet

_STEPS = frozenset({"inc_lock_ref", "dec_lock_ref", "mark_external_linker_offload_pending"})
"""Calls that come between the question what an offload copies, and its start."""


@dataclass
class _Attempt:
    """An offload that the cache is about to start."""

    node: NodeId
    is_locked: bool = False


class Offloads:
    """Tells of offloads and of their ends; knows the locks that belong to them."""

    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet
        self._attempt: _Attempt | None = None
        self._pending = deque[NodeId]()
        self._landed: NodeId | None = None

    @property
    def is_starting(self) -> bool:
        """Whether the cache may be about to start one."""
        return self._attempt is not None

    def forget(self) -> None:
        """The tree was emptied: nothing is in flight."""
        self._attempt = self._landed = None
        self._pending.clear()

    def asked(self, call: Call) -> None:
        """`build_external_linker_offload_transfers`: an offload may follow."""
        if call.result is not None:
            self._attempt = _Attempt(call.arguments["node_id"])

    def hear(self, method: str) -> None:
        """Any call: one that is no part of an offload means that none starts after all."""
        attempt = self._attempt
        if attempt is not None and method not in _STEPS:
            self._attempt = None
            if attempt.is_locked:
                self._sheet.leave_out(f"an offload that {method} cut off")

    def takes_lock(self, call: Call) -> bool:
        """Whether `inc_lock_ref` is that of an offload."""
        attempt = self._attempt
        if attempt is None or attempt.is_locked or attempt.node != call.arguments["node_id"]:
            return False
        attempt.is_locked = True
        return True

    def takes_unlock(self, call: Call) -> bool:
        """Whether `dec_lock_ref` gives back what an offload locked."""
        node, attempt = call.arguments["node_id"], self._attempt
        if attempt is not None and attempt.is_locked and attempt.node == node:
            self._attempt = None
            if len(self._pending) < QUEUE_LIMIT:
                self._sheet.leave_out("an offload that the transport refused")
            return True
        if self._landed == node:
            self._landed = None
            return True
        return False

    def mark(self, call: Call, *, is_asked_for: bool) -> None:
        """`mark_external_linker_offload_pending`; an insert that asks for it tells it too."""
        node, attempt = call.arguments["node_id"], self._attempt
        self._attempt = None
        if attempt is None or attempt.node != node or not attempt.is_locked:
            self._sheet.leave_out("mark_external_linker_offload_pending without a lock before it")
        elif len(self._pending) >= QUEUE_LIMIT:
            self._sheet.leave_out(f"an offload beside {QUEUE_LIMIT} others in flight")
        elif is_asked_for:
            self._pending.append(node)
        else:
            ref = self._sheet.ref(call.method, node)
            if ref is not None and self._sheet.write(ops.Offload(ref)):
                self._pending.append(node)

    def finish(self, call: Call) -> None:
        """`finish_external_linker_offload`."""
        node = call.arguments["ack_id"]
        if not self._pending or self._pending[0] != node:
            self._sheet.leave_out("finish_external_linker_offload of one that is not the oldest")
            return
        self._pending.popleft()
        self._landed = node
        self._sheet.write(ops.LinkerAck(call.arguments["success"]))
