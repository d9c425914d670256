"""Device walks: their steps, what they offered, and what a cache evicted of it.

INVARIANT: `_walks` is what a replay of the ops told so far has open (`harness/walking.py`).
"""

from __future__ import annotations

from treedrift.backends.contract import ComponentType, EvictionResult, NodeId

from .. import ops
from ..references import Walk
from .call import Call
from .locks import NAMES
from .sheet import Sheet

FULL = ComponentType.FULL


class Walks:
    """Tells of evictions."""

    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet
        self._walks: dict[ComponentType, Walk] = {}
        self._undropped: NodeId | None = None

    @property
    def is_open(self) -> bool:
        """Whether any walk is."""
        return bool(self._walks)

    def forget(self) -> None:
        """The tree was emptied: no walk is open."""
        self._walks.clear()
        self._undropped = None

    def start(self, call: Call) -> None:
        """`evict_device_start`."""
        component, count = call.arguments["component_type"], call.arguments["request_cnt"]
        if component in self._walks or component not in self._sheet.components:
            self._sheet.leave_out("evict_device_start of a walk that is open, or of no component")
        elif self._sheet.write(ops.WalkStart(count, NAMES[component])):
            self._walks[component] = Walk(count)

    def step(self, call: Call) -> None:
        """`evict_device_next_node`; its running total is told where a replay has another."""
        component, tracker = call.arguments["component_type"], call.arguments["tracker"]
        walk = self._walks.get(component)
        self._note_backup()
        if walk is None:
            self._sheet.leave_out("evict_device_next_node of a walk that was not told")
            return
        done = tracker.get(component, 0)
        op = ops.WalkNext(NAMES[component], None if done == walk.total else done)
        if self._sheet.write(op):
            walk.offered = call.result.node_id
            self._count(call.result)

    def end(self, call: Call) -> None:
        """`evict_device_end`."""
        component = call.arguments["component_type"]
        self._note_backup()
        if self._walks.pop(component, None) is not None:
            self._sheet.write(ops.WalkEnd(NAMES[component]))

    def meet_lock(self) -> None:
        """A replay ends the walks of windows and states before it takes a lock (SWA-E4)."""
        for component in [kind for kind in self._walks if kind is not FULL]:
            self._sheet.leave_out("a lock during a walk")
            del self._walks[component]

    def evict_leaf(self, call: Call, is_write_back: bool) -> None:
        """`evict_device_leaf`; the drop of a leaf that asks for a backup goes with it (CTL-28)."""
        node = call.arguments["node_id"]
        if node != self._offered():
            self._sheet.leave_out("evict_device_leaf of a node that no walk offered last")
        elif call.arguments["is_write_back"] != is_write_back:
            self._sheet.leave_out("evict_device_leaf in another mode than the core's")
        elif self._sheet.write(ops.EvictLeaf()):
            self._count(call.result)
            self._undropped = node if call.result.backup_kv is not None else None
            self._forget_offer(node)

    def drop(self, call: Call) -> None:
        """`drop_subtree_no_host`."""
        node = call.arguments["node_id"]
        if node == self._undropped:
            self._undropped = None
        elif node != self._offered():
            self._sheet.leave_out("drop_subtree_no_host of a node that no walk offered last")
            return
        elif not self._sheet.write(ops.DropSubtree()):
            return
        self._count(call.result)
        self._forget_offer(node)

    def _note_backup(self) -> None:
        if self._undropped is not None:
            self._sheet.leave_out("the backup of an evicted leaf")
            self._undropped = None

    def _offered(self) -> NodeId | None:
        offered = [walk.offered for walk in self._walks.values() if walk.offered is not None]
        return offered[-1] if offered else None

    def _forget_offer(self, node: NodeId) -> None:
        for walk in self._walks.values():
            if walk.offered == node:
                walk.offered = None

    def _count(self, result: EvictionResult) -> None:
        for component, walk in self._walks.items():
            walk.total += result.tracker.get(component, 0)
