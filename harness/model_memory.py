"""What the parts of the reference model share: the pages, the handles, and the findings.

A handle stands for the prefix that ends where its node ends, which no split changes (SPLIT-1); one
that no answer has placed is not judged. The model stops at its first finding, and where it can no
longer know what the core holds, until the next reset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ..backends.contract import ComponentType, NodeId
from .config import Config
from .insertion import Insertion, window_sizes
from .observation import Finding
from .prefixes import Page, Prefixes

FULL = ComponentType.FULL

SHOWN_MAX = 8
"""Slots that a message spells out."""


class ModelMemory:
    """What is known of one side's core. `findings` are for whoever reads them to empty.

    `root_node_handle` asks the core itself. `is_lost`: nothing is judged until the next reset.
    """

    def __init__(self, config: Config, root_node_handle: Callable[[], NodeId]) -> None:
        self._config = config
        self._windows = window_sizes(config)
        self._kinds = [kind for kind in config.component_types() if kind is not FULL]
        self._root_node_handle = root_node_handle
        self.findings: list[Finding] = []
        self._forget()

    def _forget(self) -> None:
        self._prefixes = Prefixes(self._config)
        self._root_node = self._root_node_handle()
        self._ends: dict[NodeId, Page] = {self._root_node: self._prefixes.root}
        self._unplaced: Counter[NodeId] = Counter()
        self._insertion: Insertion | None = None
        self._quotas: dict[ComponentType, int] = {}
        self._offered: dict[ComponentType, NodeId] = {}
        self._has_loose_locks = False
        self.is_lost = False

    def _find(self, message: str) -> None:
        if not self.is_lost:
            self.findings.append(Finding("reference_model", message))
            self.is_lost = True

    def _expect(self, what: str, told: Any, expected: Any) -> None:
        if told != expected:
            self._find(f"{what} is {told}, must be {expected}")

    def _place(self, node: NodeId | None, end: Page) -> None:
        """A handle was told for a prefix; it stands for that one as long as it lives (NODE-4)."""
        known = self._ends.setdefault(node, end) if node is not None else None
        if known is not end or (end is self._prefixes.root and node != self._root_node):
            other = "nothing" if known is None else f"one of {known.length} units"
            self._find(f"the node of a prefix of {end.length} units is that of {other}")
        elif node is not None and node in self._unplaced:
            self._prefixes.guard(end, self._unplaced.pop(node))
        if self._kinds and not end.is_end:
            self._miss_split(end)

    def _miss_split(self, end: Page) -> None:
        """A node ends where none was cut, which the suspended insert may just have done."""
        if self._insertion is not None and self._insertion.is_vague:
            end.is_end = True
        else:
            self._find(f"a node ends at {end.length} units, where none was cut")

    def _pages_of(self, run: list[int]) -> list[Page] | None:
        """The pages of a node that has these slots; None if no node has them."""
        size = self._prefixes.page_size
        end = self._prefixes.owner(run[-size:])
        node = self._prefixes.node_of(end) if end is not None and end.is_end else []
        return node if [slot for page in node for slot in page.slots] == run else None


_NAMES = {kind: kind.name.lower() for kind in ComponentType}
_NAMES[ComponentType.AUXILIARY_SWA] = "aux_swa"


def named(kind: ComponentType) -> str:
    """A component as traces spell it."""
    return _NAMES[kind]


def short(slots: Sequence[Any]) -> str:
    """Slots as a message shows them: the first few, and how many there are."""
    shown = list(slots)
    return str(shown) if len(shown) <= SHOWN_MAX else f"{shown[:SHOWN_MAX]} of {len(shown)}"
