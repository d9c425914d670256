"""The referee names the side that broke an invariant when two cores differ, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.spoilt_cores import returns, side
from treedrift.backends.python_core import PythonTreeCore
from treedrift.harness.compare import Divergence, signature_of
from treedrift.harness.config import Config
from treedrift.harness.lockstep import LocalClient, Lockstep
from treedrift.harness.ops import (
    AnyOp,
    Ask,
    CoreInsert,
    CoreMatch,
    Evict,
    Lock,
    Namespace,
)
from treedrift.harness.side import LocalSide, Settings
from treedrift.models.drills import FAMILY

SETTINGS = Settings(tree_every=1)
FOUR = CoreInsert([1, 2, 3, 4])
FORK: list[AnyOp] = [FOUR, CoreInsert([1, 2, 5, 6])]
SALTED = CoreMatch([1, 2], Namespace(None, "salt"))


def part(drills: tuple[str, str], trace: list[AnyOp], config: Config) -> Divergence:
    """How two cores, each with the drill of its side or sound, part."""
    clients = {}
    for name, drill in zip(("left", "right"), drills, strict=True):
        plug = FAMILY.variant(drill) if drill else None
        create = plug.create if plug is not None else PythonTreeCore
        clients[name] = LocalClient(name, LocalSide(create))
    (found,) = Lockstep(clients, [("left", "right")]).run(config, trace, SETTINGS).divergences
    assert found.kind == "difference"
    return found


GUILTY: list[tuple[str, list[AnyOp], Config, str]] = [
    ("leaked-slots", FORK, Config(), "reference_model: an insert does not ask for"),
    ("partial-match-refused", [FOUR, CoreMatch([1, 2])], Config(), "reference_model: "),
    ("full-hit-left-at-default", [FOUR, CoreMatch([1, 2])], Config(), "reference_model: "),
    ("salt-no-part-of-the-key", [FOUR, SALTED], Config(), "kv_content: "),
    (
        "action-of-another-type",
        FORK,
        Config(),
        "reference_model: an insert asks for FreeDeviceKVFullOnly of",
    ),
    ("prefix-len-of-the-new-path", [FOUR], Config(), "reference_model: prefix_len of an insert"),
    ("last-node-above-the-leaf", [FOUR], Config(), "reference_model: the node of a prefix of 4"),
    (
        "handle-stays-above",
        [FOUR, CoreMatch([1, 2])],
        Config(),
        "reference_model: the node of a prefix of 2 units is that of one of 4 units",
    ),
    (
        "lock-of-the-node-alone",
        [*FORK, CoreMatch([1, 2, 5, 6]), Lock("live:1")],
        Config(),
        "reference_model: delta of a lock is 2, must be 4",
    ),
    ("greedy-walk", [FOUR, CoreInsert([7, 8]), Evict(4)], Config(), "reference_model: a walk for"),
    ("no-cascade", [*FORK, Evict(6)], Config(), "reference_model: a walk ends after 4 units"),
    ("wrong-free-order", [FOUR, Evict(4)], Config(), "reference_model: an eviction frees the last"),
]


@pytest.mark.parametrize(
    ("drill", "trace", "config", "verdict"), GUILTY, ids=[case[0] for case in GUILTY]
)
def test_the_spoilt_side_is_named_wherever_it_stands(
    drill: str, trace: list[AnyOp], config: Config, verdict: str
) -> None:
    for drills, guilty in (((drill, ""), "left"), (("", drill), "right")):
        found = part(drills, trace, config)
        assert found.side == guilty
        assert found.verdict is not None
        assert found.verdict.startswith(verdict), found.verdict


UNCLEAR: list[tuple[str, list[AnyOp], Config]] = [
    ("lru-by-creation", [FOUR, CoreInsert([7, 8]), CoreMatch([1, 2, 3, 4]), Evict(1)], Config()),
    ("root-for-no-visit", [FOUR, CoreMatch([7])], Config()),
    ("moved-child", [FOUR, CoreInsert([7, 8]), CoreMatch([1, 2])], Config()),
    ("frees-merged", [*FORK, CoreInsert([1, 2, 3, 4, 5])], Config()),
]


@pytest.mark.parametrize(("drill", "trace", "config"), UNCLEAR, ids=[case[0] for case in UNCLEAR])
def test_nobody_is_named_where_no_invariant_is_broken(
    drill: str, trace: list[AnyOp], config: Config
) -> None:
    found = part(("", drill), trace, config)
    assert (found.side, found.verdict) == (None, None)


def test_nobody_is_named_where_both_sides_broke_an_invariant() -> None:
    drills = ("full-hit-left-at-default", "partial-match-refused")
    found = part(drills, [FOUR, CoreMatch([1, 2])], Config())
    assert (found.side, found.verdict) == (None, None)


def test_the_verdict_is_no_part_of_the_kind() -> None:
    trace: list[AnyOp] = [FOUR, CoreMatch([1, 2])]
    kinds = {
        part(drills, trace, Config()).signature
        for drills in (("", "full-hit-left-at-default"), ("full-hit-left-at-default", ""))
    }
    assert kinds == {"difference:core_match:calls[].match_prefix.result.full_kv_hit_length"}


def test_a_finding_beside_a_soft_difference_is_told_too() -> None:
    def spoilt(phase: int | None) -> LocalSide:
        def spoil(core: Any) -> None:
            returns("rotation_base_of", lambda base: 7)(core)
            returns("rotation_phase_of", lambda _: phase)(core)

        return side(spoil)

    clients = {name: LocalClient(name, spoilt(phase)) for name, phase in (("a", None), ("b", 1))}
    trace: list[AnyOp] = [FOUR, Ask("rotation", ["live:0"]), CoreMatch([1])]
    soft, hard = Lockstep(clients, [("a", "b")]).run(Config(), trace, Settings()).divergences
    assert (soft.is_soft, soft.side, soft.verdict) == (True, None, None)
    assert (hard.kind, hard.op_index, hard.side) == ("oracle", 1, None)


def test_a_finding_without_a_difference_is_no_verdict() -> None:
    found = Divergence(
        pair=("a", "b"), kind="oracle", op_index=0, op_kind="evict", where="pool: twice", side="a"
    )
    assert found.verdict is None
    assert signature_of(found).endswith("@a")
