"""Our pair in lockstep, with a spoilt Python core in place of the Rust one."""

from __future__ import annotations

from tests.harness import mutants
from treedrift.harness.config import Config
from treedrift.harness.lockstep import LocalClient, Lockstep, Pair
from treedrift.harness.ops import AnyOp, CoreInsert, Evict

PAIR: Pair = ("python", "rust")
CONFIG = Config(capacity=32)
STEPS: list[AnyOp] = [CoreInsert([1, 2]), Evict(2)]
"""What `mutants.wrong_free_order` fails at."""

WRONG_ORDER = "difference:evict:calls[].evict_device_leaf.result.device_frees.full[][]"
"""How it fails."""


def spoilt_pair(*mutations: mutants.Mutation) -> Lockstep:
    """Two sound sides without mutations; the second one is spoilt with them."""
    sides = (mutants.side(), mutants.side(*mutations))
    clients = {name: LocalClient(name, side) for name, side in zip(PAIR, sides, strict=True)}
    return Lockstep(clients, [PAIR])
