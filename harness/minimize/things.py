"""What operands can name, and the numbers under which ops keep the nodes that they answer.

A position moves when other ops are removed, a number does not: an op that names the answer of an
op that is gone can only go too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from .. import ops

Thing = tuple[Any, ...]
"""Something that an operand can name: its kind, the op that made it, and which one of those."""

Place = tuple[str, int]
"""An operand: its field, and the position in it if it is a list."""

Path = bytes
"""A node's namespace and the units from the root to its end, digested."""


class Reference(msgspec.Struct):
    """What an operand met: the thing, and for a node its path from the root."""

    thing: Thing
    path: Path | None = None


class Answers:
    """Which op answers under which number, as far as a trace has come."""

    def __init__(self) -> None:
        self._things: dict[int, Thing] = {}

    def note(self, op: ops.AnyOp, number: int) -> None:
        """Note what op `number` answers, or that it makes all answers forgotten."""
        if isinstance(op, ops.Reset):
            self._things.clear()
        elif isinstance(op, (ops.CoreMatch, ops.CoreInsert)) and op.answer is not None:
            self._things[op.answer] = ("answer", number, op.answer)

    def named(self, ref: ops.NodeRef) -> Thing | None:
        """The answer that a reference names, if it is one that was given."""
        kind, _, number = ref.partition(":")
        return self._things.get(int(number)) if kind == "answer" else None

    def spelled(self, thing: Thing) -> ops.NodeRef | None:
        """How an answer is named; None if another one has its number, or it was never given."""
        return f"answer:{thing[2]}" if self._things.get(thing[2]) == thing else None


def node_refs(op: Any) -> Iterator[tuple[Place, ops.NodeRef]]:
    """Every node reference of an op, and where it stands."""
    for field in ("node", "until"):
        ref = getattr(op, field, None)
        if ref is not None:
            yield (field, 0), ref
    for index, ref in enumerate(getattr(op, "nodes", ())):
        yield ("nodes", index), ref
