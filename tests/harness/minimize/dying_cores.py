"""A core that ends its process when a walk is opened for a single token, or when it is told to."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from treedrift.backends.contract import CacheInitParams, TreeCore
from treedrift.backends.python_core import PythonTreeCore
from treedrift.backends.python_core.inspection import inspect_tree
from treedrift.models.drills.walks import wrong_free_order

if "TREEDRIFT_DIES_AT_IMPORT" in os.environ:
    os._exit(7)


def create(params: CacheInitParams) -> TreeCore:
    core: Any = PythonTreeCore(params)
    wrong_free_order(core)
    start = core.evict_device_start

    def deadly_start(component: Any, count: int) -> Any:
        if count == 1:
            os._exit(7)
        return start(component, count)

    core.evict_device_start = deadly_start
    made: TreeCore = core
    return made


dying = SimpleNamespace(create=create, inspect=inspect_tree)
