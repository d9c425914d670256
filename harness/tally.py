"""What a run counted: ops, cases, behaviours, and seconds by core."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from . import ops
from .lockstep import CaseResult


class Tally(msgspec.Struct):
    """What a campaign counted, in a form that tallies of several jobs add up to."""

    op_count: int = 0
    cases: int = 0
    refused: int = 0
    op_kinds: dict[str, int] = {}
    policies: dict[str, int] = {}
    behaviours: dict[str, int] = {}
    core_seconds: dict[str, float] = {}
    side_seconds: dict[str, float] = {}

    @classmethod
    def empty(cls) -> Tally:
        """A tally of nothing, with mappings of its own."""
        return cls(op_kinds={}, policies={}, behaviours={}, core_seconds={}, side_seconds={})

    def copy(self) -> Tally:
        """The same counts, in mappings of their own."""
        made = Tally.empty()
        made.add(self)
        return made

    def add(self, other: Tally) -> None:
        """Add another tally to this one."""
        self.op_count += other.op_count
        self.cases += other.cases
        self.refused += other.refused
        for name in ("op_kinds", "policies", "behaviours", "core_seconds", "side_seconds"):
            mine, theirs = getattr(self, name), getattr(other, name)
            for key, count in theirs.items():
                mine[key] = mine.get(key, 0) + count

    def count(self, policy: str, case_ops: Sequence[ops.AnyOp], result: CaseResult) -> None:
        """Take one finished case into account."""
        self.op_count += result.op_count
        self.cases += 1
        if result.refused is not None:
            self.refused += 1
            return
        kinds = Counter(ops.kind_of(op) for op in case_ops[: result.op_count])
        _add(self.op_kinds, kinds)
        _add(self.policies, {policy.lower(): 1})
        for name, figures in result.figures.items():
            _add(self.core_seconds, {name: figures.pop("core_ns", 0) / 1e9})
            _add(self.side_seconds, {name: figures.pop("total_ns", 0) / 1e9})
        for figures in list(result.figures.values())[:1]:
            figures.pop("ops", None)
            _add(self.behaviours, figures)


def _add(into: dict[str, Any], counts: Mapping[str, Any]) -> None:
    for key, count in counts.items():
        into[key] = into.get(key, 0) + count
