"""The canary: a drill that every run must catch before it says anything about other cores."""

from __future__ import annotations

from treedrift.harness.events import Canary

from .catalog import CANARY, DRILLS
from .hunt import hunt

SEED = 1

SECONDS_MAX = 30.0
"""The canary is caught in a fraction of a second; a machine that is very busy gets longer."""


def run_canary() -> Canary:
    """Hunt the canary with a fixed seed, through the lockstep that a campaign uses."""
    catch = hunt(DRILLS[CANARY], SECONDS_MAX, SEED)
    return Canary(drill=CANARY, caught=catch.caught, ops=catch.ops, seconds=catch.seconds)
