"""PythonTreeCore: the core that is read to learn what a TreeCore does.

It only puts the parts together. Start with `tree` for the shape of the tree, `match` and `insert`
for the two walks, `full`, `window` and `mamba` for what nodes hold, `eviction` for the way out.
"""

from __future__ import annotations

from .checking import CheckingCalls
from .eviction import EvictionCalls
from .host_tier import HostTierCalls
from .insert import InsertCalls
from .linker import LinkerCalls
from .locks import LockCalls
from .match import MatchCalls
from .page_names import PageNameCalls
from .spans import SpanCalls
from .values import ValueCalls


class PythonTreeCore(
    MatchCalls,
    InsertCalls,
    LockCalls,
    EvictionCalls,
    ValueCalls,
    SpanCalls,
    PageNameCalls,
    LinkerCalls,
    HostTierCalls,
    CheckingCalls,
):
    """A radix tree with full values, windows and states on the device, without a host tier."""

    def reset(self) -> None:
        """Drop every node, walk and suspended insert; keep configuration and events (RST-1)."""
        self._insert = None
        self._tree.reset()
