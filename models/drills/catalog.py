"""Every drill by its name, and the family of cores that they make."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from treedrift.backends.contract import CacheInitParams, TreeCore
from treedrift.backends.inspection import TreeSnapshot
from treedrift.backends.python_core import PythonTreeCore
from treedrift.backends.python_core.inspection import inspect_tree
from treedrift.backends.registry import Family, Plugin

from . import (
    auxiliary,
    events,
    hashes,
    inserts,
    linker,
    locks,
    matching,
    policies,
    reading,
    recency,
    refusals,
    requests,
    sizes,
    splits,
    states,
    walks,
    window_inserts,
    window_locks,
    windows,
)
from .drill import Drill

THEMES: tuple[ModuleType, ...] = (
    matching,
    inserts,
    splits,
    policies,
    recency,
    walks,
    locks,
    sizes,
    events,
    hashes,
    linker,
    reading,
    refusals,
    windows,
    window_inserts,
    window_locks,
    states,
    auxiliary,
    requests,
)
"""The files of drills, in the order in which they are listed."""

DRILLS: dict[str, Drill] = {drill.name: drill for theme in THEMES for drill in theme.drill.drills}
"""Every drill by its name."""

CANARY = "leaked-slots"
"""The drill that every run must catch; one that doesn't proves nothing."""


class DrillCore:
    """How a pair is given the core of one drill."""

    def __init__(self, drill: Drill) -> None:
        """A plug for the spoilt cores of `drill`."""
        self.drill = drill

    def create(self, params: CacheInitParams) -> TreeCore:
        """An empty Python core, spoilt unless the drill is one of the cache.

        Raises the contract's errors.
        """
        core = PythonTreeCore(params)
        if self.drill.target == "core":
            self.drill.mutate(core)
        return core

    def prepare_cache(self, cache: Any) -> None:
        """Spoil a new cache on top of such a core, if the drill is one of the cache."""
        if self.drill.target == "cache":
            self.drill.mutate(cache)

    def inspect(self, core: TreeCore) -> TreeSnapshot:
        """The whole state of a spoilt core, as that of a sound one is shown."""
        assert isinstance(core, PythonTreeCore)
        return inspect_tree(core)


class _Family:
    """All drills, as the entry point `drill` of `treedrift.backends` names them."""

    def variants(self) -> list[str]:
        """Names of all drills, theme by theme."""
        return list(DRILLS)

    def variant(self, name: str) -> Plugin:
        """The core of one drill. Raises `KeyError` for a name that is none."""
        return DrillCore(DRILLS[name])


FAMILY: Family = _Family()
