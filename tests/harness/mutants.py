"""Sides on spoilt Python cores, and the drills that tests here name as plain functions."""

from __future__ import annotations

from treedrift.backends.contract import CacheInitParams, TreeCore
from treedrift.backends.python_core import PythonTreeCore
from treedrift.backends.python_core.inspection import inspect_tree
from treedrift.harness.side import LocalSide
from treedrift.models.drills.drill import Mutation
from treedrift.models.drills.events import (
    doubled_event,
    lost_event,
    reversed_events,
    wrong_block_hash,
)
from treedrift.models.drills.inserts import leaked_slots
from treedrift.models.drills.policies import lost_hit_count
from treedrift.models.drills.refusals import refusal_that_changes
from treedrift.models.drills.sizes import wrong_evictable_size
from treedrift.models.drills.splits import crossed_values
from treedrift.models.drills.walks import unhealthy, wrong_free_order

__all__ = [
    "Mutation",
    "crossed_values",
    "doubled_event",
    "leaked_slots",
    "lost_event",
    "lost_hit_count",
    "refusal_that_changes",
    "reversed_events",
    "side",
    "unhealthy",
    "wrong_block_hash",
    "wrong_evictable_size",
    "wrong_free_order",
]


def side(*mutations: Mutation) -> LocalSide:
    """A side on a Python core with these faults, or on a sound one."""

    def create(params: CacheInitParams) -> TreeCore:
        core = PythonTreeCore(params)
        for mutate in mutations:
            mutate(core)
        return core

    return LocalSide(create, inspect_tree)
