"""Rules that break the protocol, for examples in which both cores must refuse alike.

They are the hostile steps of the swarm, one rule each, and those that misuse what an earlier rule
handed out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from treedrift.harness import ops

from ..hostile_auxiliary_steps import (
    HOSTILE_AUXILIARY_STEPS,
    HOSTILE_STATE_STEPS,
    HOSTILE_WINDOW_STEPS,
)
from ..hostile_steps import HOSTILE_STEPS
from .base import HANDLES, Handle, made_by, on
from .core_rules import LOCKS, RECEIPTS, CoreRules, Serial

_STEPS = HOSTILE_STEPS | HOSTILE_AUXILIARY_STEPS | HOSTILE_WINDOW_STEPS | HOSTILE_STATE_STEPS


def _rule_of(name: str) -> Callable[..., Any]:
    """The rule of one hostile step; Hypothesis tells rules apart by the function's name."""
    _, step = _STEPS[name]

    def breaks(machine: CoreRules, steps: list[ops.AnyOp]) -> None:
        machine.run(*steps)

    breaks.__name__ = name
    breaks.__qualname__ = f"HostileRules.{name}"
    breaks.__doc__ = step.__doc__
    return on(name)(rule(steps=made_by(step))(breaks))


class HostileRules(CoreRules):
    """Misused values, numbers, receipts, handles, walks and inserts."""

    hostile_value = _rule_of("hostile_value")
    hostile_numbers = _rule_of("hostile_numbers")
    hostile_insert = _rule_of("hostile_insert")
    hostile_receipts = _rule_of("hostile_receipts")
    hostile_pins = _rule_of("hostile_pins")
    hostile_walks = _rule_of("hostile_walks")
    hostile_victims = _rule_of("hostile_victims")
    hostile_handles = _rule_of("hostile_handles")
    hostile_misuse = _rule_of("hostile_misuse")
    hostile_lock_in_walk = _rule_of("hostile_lock_in_walk")
    hostile_store = _rule_of("hostile_store")
    hostile_changes = _rule_of("hostile_changes")
    hostile_window_receipts = _rule_of("hostile_window_receipts")
    hostile_stranded = _rule_of("hostile_stranded")
    hostile_without_full = _rule_of("hostile_without_full")
    hostile_lengths = _rule_of("hostile_lengths")
    hostile_spans = _rule_of("hostile_spans")
    hostile_states = _rule_of("hostile_states")
    hostile_caps = _rule_of("hostile_caps")

    @on("hostile_receipts")
    @rule(receipt=RECEIPTS)
    def release_again(self, receipt: Serial) -> None:
        """A receipt is used a second time (LOCK-12)."""
        place = self._released.index(receipt) if receipt in self._released else 0
        self.run(ops.Unlock(place, receipt="released"))

    @on("hostile_window_receipts")
    @rule(lock=LOCKS, window=st.sampled_from((None, "swa", "aux_swa")))
    def release_window_again(self, lock: Serial, window: ops.ComponentName | None) -> None:
        """A window is given up whether it is there or not (SWA-L17)."""
        self.run(ops.ReleaseWindow(self.place("lock", lock), window, force=True))

    @on("hostile_victims")
    @rule(node=HANDLES, drop=st.booleans())
    def evict_any(self, node: Handle, drop: bool) -> None:
        """A node that no walk has offered is evicted or dropped."""
        ref = self.ref(node)
        self.run(ops.DropSubtree(ref) if drop else ops.EvictLeaf(ref))
