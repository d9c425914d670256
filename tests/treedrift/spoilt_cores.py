"""Cores of another package, as a user would plug them in; some are spoilt on purpose.

It stands alone: the tests copy it beside the metadata of a package that exists only there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from treedrift.backends.contract import CacheInitParams, InsertParams, InsertStepResult
from treedrift.backends.python_core import PythonTreeCore
from treedrift.backends.python_core.inspection import inspect_tree

CREATED = "SPOILT_CORES_CREATED"
"""Environment variable: a pipe that hears of it once a process has made some cores."""

_made = 0


class LeakyCore(PythonTreeCore):
    """Forgets the last action of an insert."""

    def begin_insert(self, params: InsertParams) -> InsertStepResult:
        step = super().begin_insert(params)
        step.actions = step.actions[:-1]
        return step


class Plugin:
    """What an entry point names."""

    def __init__(self, kind: type[PythonTreeCore]) -> None:
        self._kind = kind

    def create(self, params: CacheInitParams) -> PythonTreeCore:
        global _made
        _made += 1
        if CREATED in os.environ and _made == 4:
            Path(os.environ[CREATED]).write_text("under way")
        return self._kind(params)

    def inspect(self, core: Any) -> Any:
        return inspect_tree(core)


class BarePlugin:
    """A core that can't be inspected."""

    def create(self, params: CacheInitParams) -> PythonTreeCore:
        return PythonTreeCore(params)


class NoPlugin:
    """Something that is no plug at all."""


twin = Plugin(PythonTreeCore)
leaky = Plugin(LeakyCore)
bare = BarePlugin()
hollow = NoPlugin()
