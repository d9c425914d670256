"""What the steps of a generated trace share: chance, keys, and a guess at what exists.

The generator runs no tree. It only counts what its ops may have left open, so that requests come
to an end and locks do not pile up. A wrong guess does no harm: every op is total.
"""

from __future__ import annotations

from typing import Any

from treedrift.harness.config import Config
from treedrift.harness.ops import AnyOp, ComponentName, Namespace, NodeRef

from .chance import Chance
from .keys import Keys

MAX_I64 = 2**63 - 1

LIVE = tuple(f"live:{index}" for index in range(24))
STALE = tuple(f"stale:{index}" for index in range(6))
HELD = tuple(f"request:{index}" for index in range(4))


COMPONENTS: tuple[ComponentName, ...] = ("swa", "aux_swa", "mamba")
"""Auxiliary components, those beside Full attention."""

EVICTED = {"swa": "swa_evicted", "aux_swa": "aux_evicted"}
"""Which field of an insert is the evicted length of a window."""


class Case:
    """A trace in the making; steps append to `ops`.

    `auxiliary` are the tree's components beside Full attention, `windows` those with a window.
    What is drawn for them is drawn only where they are, so that Full trees keep their cases.
    `recorded`: ops are spelled as in a recording (see `recorded`).
    """

    __slots__ = (
        "auxiliary",
        "chance",
        "config",
        "hostile",
        "keys",
        "locks",
        "ops",
        "page",
        "recorded",
        "rotating",
        "running",
        "windows",
        "with_priorities",
        "with_sessions",
    )

    rotating: bool
    with_priorities: bool
    with_sessions: bool

    def __init__(
        self, chance: Chance, config: Config, keys: Keys, hostile: bool, recorded: bool = False
    ) -> None:
        """An empty trace of this configuration, its other features drawn by chance."""
        self._begin(chance, config, keys, hostile, recorded)
        self.rotating = chance.flip(0.2)
        self.with_priorities = config.policy.lower() == "priority" or chance.flip(0.2)
        self.with_sessions = config.events and chance.flip(0.5)

    def _begin(
        self, chance: Chance, config: Config, keys: Keys, hostile: bool, recorded: bool
    ) -> None:
        self.chance = chance
        self.recorded = recorded
        self.config = config
        self.keys = keys
        self.hostile = hostile
        self.ops: list[AnyOp] = []
        self.page = config.page_size
        self.running = 0
        self.locks = 0
        named = [name for name in COMPONENTS if name in config.components]
        self.auxiliary = tuple(named)
        self.windows = tuple(name for name in named if name != "mamba")

    def node(self) -> NodeRef:
        """A node reference that is most often alive."""
        real = self.chance.real()
        if real < 0.82:
            return self.chance.pick(LIVE)
        if real < 0.90:
            return self.chance.pick(HELD)
        return "root" if real < 0.95 else self.chance.pick(STALE)

    def request(self) -> int:
        """One of the running requests."""
        return self.chance.below(max(self.running, 1))

    def namespace(self) -> Namespace:
        """A namespace of the case."""
        return self.keys.namespace()

    def priority(self) -> int:
        """Small, and now and then an extreme."""
        if not self.with_priorities:
            return 0
        real = self.chance.real()
        if real < 0.04:
            return MAX_I64 if real < 0.02 else -MAX_I64
        return int(real * 4) - 1

    def session(self) -> str | None:
        """One of three sessions or none."""
        return self.chance.pick((None, "s", "t", "")) if self.with_sessions else None

    def rotation(self) -> int | None:
        """One of three rotation bases or none."""
        return self.chance.pick((None, 0, 1, 1, 7)) if self.rotating else None

    def amount(self) -> int:
        """Tokens to evict: around one page, some pages, nothing or everything."""
        real, page = self.chance.real(), self.page
        if real < 0.5:
            return 1 + self.chance.below(2 * page)
        if real < 0.85:
            return page * (1 + self.chance.below(6))
        return 0 if real < 0.9 else self.config.capacity // 2

    def shortfalls(self) -> tuple[int, int, int]:
        """Tokens, window tokens and states to evict: of every kind that there is, or of one."""
        if not self.auxiliary:
            return self.amount(), 0, 0
        chosen = self.chance.pick(("all", "all", "full", *self.auxiliary))
        tokens = self.amount() if chosen in ("all", "full") else 0
        has_turn = chosen in ("all", *self.windows)
        window = self.amount() if self.windows and has_turn else 0
        has_turn = "mamba" in self.auxiliary and chosen in ("all", "mamba")
        return tokens, window, self.states() if has_turn else 0

    def states(self) -> int:
        """States to evict: a few, or all."""
        return self.config.states if self.chance.flip(0.1) else 1 + self.chance.below(3)

    def amount_of(self, component: ComponentName) -> int:
        """How much of one component to evict, in its own units."""
        return self.states() if component == "mamba" else self.amount()

    def answer(self) -> list[int]:
        """What a request produces: two pages at most, or enough to leave a window behind."""
        most = 2 * self.page
        if self.windows and self.chance.flip(0.4):
            most += self.config.retain_window
        return self.keys.some(most)

    def evicted(self, length: int) -> int:
        """How much of a key's window is gone: none, up to a boundary, all, or more than all."""
        real = self.chance.real()
        if real < 0.4:
            return 0
        if real < 0.8:
            return self.keys.near_boundary(length)
        return length if real < 0.93 else length + self.page * (1 + self.chance.below(2))

    def gone(self, length: int, probability: float) -> dict[str, Any]:
        """The evicted lengths of an insert, by the fields of the op; none without windows."""
        if not self.windows or not self.chance.flip(probability):
            return {}
        return {EVICTED[name]: self.evicted(length) for name in self.windows}
