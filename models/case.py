"""What the steps of a generated trace share: chance, keys, and a guess at what exists.

The generator runs no tree. It only counts what its ops may have left open, so that requests come
to an end and locks do not pile up. A wrong guess does no harm: every op is total.
"""

from __future__ import annotations

from treedrift.harness.config import Config
from treedrift.harness.ops import AnyOp, Namespace, NodeRef

from .chance import Chance
from .keys import Keys

MAX_I64 = 2**63 - 1

LIVE = tuple(f"live:{index}" for index in range(24))
STALE = tuple(f"stale:{index}" for index in range(6))
HELD = tuple(f"request:{index}" for index in range(4))


class Case:
    """A trace in the making; steps append to `ops`."""

    __slots__ = (
        "chance",
        "config",
        "hostile",
        "keys",
        "locks",
        "ops",
        "page",
        "rotating",
        "running",
        "with_priorities",
        "with_sessions",
    )

    def __init__(self, chance: Chance, config: Config, keys: Keys, hostile: bool) -> None:
        """An empty trace of this configuration, its features drawn by chance."""
        self.chance = chance
        self.config = config
        self.keys = keys
        self.hostile = hostile
        self.ops: list[AnyOp] = []
        self.page = config.page_size
        self.running = 0
        self.locks = 0
        self.rotating = chance.flip(0.2)
        self.with_priorities = config.policy.lower() == "priority" or chance.flip(0.2)
        self.with_sessions = config.events and chance.flip(0.5)

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
