"""What the parts of a transcript write on: ops told, calls left out, names of nodes."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from treedrift.backends.contract import NodeId

from .. import ops
from ..config import Config
from .labels import Labels
from .pseudonyms import Naming


class Interruption(Protocol):
    """What must be told before something else is."""

    def interrupt(self) -> None:
        """Something is about to be written."""


class Sheet:
    """The ops that a call became, and everything that tells how to spell the next one.

    `untold` counts what can't be told, by its name. `waiting` is an insert that is told as one op
    when it ends, unless something is written before.
    """

    def __init__(self, config: Config, naming: Naming) -> None:
        self.config = config
        self.components = config.component_types()
        self.naming = naming
        self.labels = Labels()
        self.untold = Counter[str]()
        self.waiting: Interruption | None = None
        self._ops: list[ops.AnyOp] = []
        self._last: ops.AnyOp | None = None

    def write(self, op: ops.AnyOp) -> bool:
        """Tell an op, unless it would break the protocol. Whether it was told."""
        if self.waiting is not None:
            self.waiting.interrupt()
        if ops.is_hostile(op):
            self.leave_out(f"{ops.kind_of(op)} out of protocol")
            return False
        # What is asked over and over need not be told as often.
        if not (isinstance(op, ops.Ask) and op == self._last):
            self._ops.append(op)
            self._last = op
        return True

    def leave_out(self, what: str) -> None:
        """Count what can't be told."""
        self.untold[what] += 1

    def ref(self, method: str, node: NodeId) -> ops.NodeRef | None:
        """How an op names a node; None, and counted, if nothing told so far has answered it."""
        found = self.labels.ref(node)
        if found is None:
            self.leave_out(f"{method} of a node that no match or insert answered")
        return found

    def take(self) -> list[ops.AnyOp]:
        """What was told since this was last asked."""
        taken, self._ops = self._ops, []
        return taken
