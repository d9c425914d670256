"""Follows a long trace of core calls without running it.

Where ops name nodes by the numbers of answers, all that can move are the places of receipts and
pins, and these can be counted: each lock of a node that was answered takes a receipt. That is not
quite true of a trace that was cut already, but a reference that is wrong costs one trial, and to
run a trace of thousands of ops takes as long as to try it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import ops
from .things import Answers, Place, Reference, Thing, node_refs

RUN_OPS_MAX = 256
"""Traces of up to so many ops are run to be followed."""

_UNTOLD = (ops.EarlyRelease, ops.Arrive, ops.Readmit, ops.LinkerAck)
_MOVING = ("live", "stale", "request")


def is_sketched(steps: list[ops.AnyOp]) -> bool:
    """Whether ops are followed without running them: many, and with no moving names of nodes."""
    return len(steps) > RUN_OPS_MAX and not any(map(_moves, steps))


def _moves(op: Any) -> bool:
    if isinstance(op, _UNTOLD) or hasattr(op, "request"):
        return True
    return any(ref.startswith(_MOVING) for _, ref in node_refs(op))


class Sketch:
    """What is held after each op of a trace, as far as the ops themselves tell."""

    def __init__(self) -> None:
        self._answers = Answers()
        self._held: dict[str, list[Thing]] = {"locks": [], "host_locks": [], "released": []}
        self._pins: list[Thing] = []

    def references(self, op: Any) -> Iterator[tuple[Place, Reference]]:
        """Every operand of an op that names a receipt, a pin or an answer, and which one."""
        for field, things in self._counted(op):
            number = getattr(op, field)
            if things and number is not None:
                yield (field, 0), Reference(things[number % len(things)])
        for place, ref in node_refs(op):
            thing = self._answers.named(ref)
            if thing is not None:
                yield place, Reference(thing)

    def spelled(self, op: Any, reference: Reference) -> Any | None:
        """How an op has to spell a reference now; None if there is no such thing any more."""
        if reference.thing[0] == "answer":
            return self._answers.spelled(reference.thing)
        for _, things in self._counted(op):
            if reference.thing in things:
                return things.index(reference.thing)
        return None

    def run(self, op: Any, number: int) -> None:
        """Note what op `number` takes and gives back."""
        self._answers.note(op, number)
        if isinstance(op, ops.Lock):
            if self._is_there(op.node):
                self._held["host_locks" if op.host else "locks"].append(("lock", number, 0))
        elif isinstance(op, ops.Unlock) and op.receipt == "own":
            given_back = _taken_out(self._held["host_locks" if op.host else "locks"], op.lock)
            self._held["released"] += [] if op.host else given_back
        elif isinstance(op, ops.Pin) and not op.force:
            if op.release is not None:
                _taken_out(self._pins, op.release)
            elif self._is_there(op.node):
                self._pins.append(("pin", number, 0))
        elif isinstance(op, ops.Reset):
            self._held["released"] += self._held["locks"]
            for held in (self._held["locks"], self._held["host_locks"], self._pins):
                held.clear()

    def _is_there(self, ref: ops.NodeRef) -> bool:
        return not ref.startswith("answer") or self._answers.named(ref) is not None

    def _counted(self, op: Any) -> Iterator[tuple[str, list[Thing]]]:
        if isinstance(op, ops.Pin):
            yield "release", self._pins
        elif isinstance(op, (ops.Unlock, ops.ReleaseWindow)):
            is_host = isinstance(op, ops.Unlock) and op.host
            kind = "host_locks" if is_host else "locks"
            yield "lock", self._held["released" if op.receipt == "released" else kind]


def _taken_out(held: list[Thing], number: int) -> list[Thing]:
    return [held.pop(number % len(held))] if held else []
