"""Semantic mutants of the Python core: what the harness must catch, and what it is measured by.

A drill is a core of its own, `drill:NAME`, so that pairs, traces and commands take it like others.
Each file holds the drills of one theme; `hunt` looks for them, `canary` is the one that no run may
miss.
"""

from .canary import run_canary
from .catalog import CANARY, DRILLS, FAMILY
from .drill import Drill

__all__ = ["CANARY", "DRILLS", "FAMILY", "Drill", "run_canary"]
