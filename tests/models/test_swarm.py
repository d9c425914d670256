"""The swarm engine is deterministic, keeps its promises, and reaches what it should."""

from __future__ import annotations

import re
from collections import Counter
from time import process_time
from typing import get_args

import pytest

from treedrift.backends.python_core import PythonTreeCore
from treedrift.harness import ops
from treedrift.harness.config import Config, problems
from treedrift.harness.side import LocalSide, Settings
from treedrift.harness.trace import OP_TYPES, new_trace, validate
from treedrift.models.configs import POLICIES
from treedrift.models.profiles import PROFILES, UnknownProfileError, profile_named
from treedrift.models.swarm import generate_case

FULL = profile_named("full")
Case = tuple[Config, list[ops.AnyOp]]


def cases(profile: str, hostile: bool, count: int, length: int | None = None) -> list[Case]:
    drawn = profile_named(profile)
    return [generate_case(seed, drawn, hostile, length) for seed in range(count)]


def test_the_same_seed_gives_the_same_case() -> None:
    assert generate_case(5, FULL, True, 300) == generate_case(5, FULL, True, 300)
    assert generate_case(5, FULL, True, 300) != generate_case(6, FULL, True, 300)
    assert generate_case(5, FULL, False, 300) != generate_case(5, FULL, True, 300)


def test_chance_does_not_depend_on_the_machine() -> None:
    config, steps = generate_case(2026, FULL, length=4)
    assert (config.page_size, config.policy, [ops.kind_of(op) for op in steps]) == PINNED


PINNED = (8, "slru", ["readmit", "lock", "arrive", "prefill"])


@pytest.mark.parametrize("name", PROFILES)
def test_a_peaceful_case_breaks_no_protocol(name: str) -> None:
    for config, steps in cases(name, hostile=False, count=150):
        assert problems(config) == []
        for op in steps:
            assert not ops.is_hostile(op), op
            assert min(getattr(op, "tokens", None) or [0]) >= 0, op


@pytest.mark.parametrize("hostile", [False, True])
def test_every_case_is_a_valid_trace_of_the_wanted_length(hostile: bool) -> None:
    for config, steps in cases("full", hostile, count=60, length=37):
        assert len(steps) == 37
        validate(new_trace(config, steps))


def test_hostile_cases_mix_hostile_ops_into_ordinary_ones() -> None:
    steps = [op for _, steps in cases("full", hostile=True, count=200) for op in steps]
    share = sum(map(ops.is_hostile, steps)) / len(steps)
    assert 0.03 < share < 0.3


def test_all_kinds_of_ops_and_configurations_come_up() -> None:
    drawn = cases("full", False, 300) + cases("full", True, 300)
    kinds = {ops.kind_of(op) for _, steps in drawn for op in steps}
    assert kinds == set(OP_TYPES)
    configs = [config for config, _ in drawn]
    assert {config.policy.lower() for config in configs} == set(POLICIES)
    assert {config.page_size for config in configs} == {1, 2, 3, 4, 8, 16}
    for flag in ("events", "dynamo_events", "storage", "linker", "buffer_only", "write_back"):
        assert {getattr(config, flag) for config in configs} == {False, True}, flag


def test_profiles_keep_to_their_levels() -> None:
    request_ops = get_args(ops.RequestOp)
    for _, steps in cases("full-requests", False, 80):
        assert all(isinstance(op, request_ops) for op in steps)
    for _, steps in cases("full-core", False, 80):
        assert not any(isinstance(op, (ops.Arrive, ops.Prefill)) for op in steps)
    assert all(config.events for config, _ in cases("full-events", False, 80))


def test_cases_leave_kinds_out() -> None:
    """Swarm testing: most traces lack some kinds, and all together have every one."""
    counts = Counter(
        len({ops.kind_of(op) for op in steps}) for _, steps in cases("full", False, 100, 150)
    )
    assert min(counts) < 12 < max(counts)


def test_an_unknown_profile_suggests_a_known_one() -> None:
    with pytest.raises(UnknownProfileError, match="did you mean 'full-events'"):
        profile_named("full-event")
    with pytest.raises(UnknownProfileError, match="known: full, "):
        profile_named("zzz")


def test_generation_is_fast() -> None:
    started = process_time()
    made = sum(len(steps) for _, steps in cases("full", False, 100, 300))
    # The rate is several times this on a quiet machine.
    assert made / (process_time() - started) > 30_000


def run_side(config: Config, steps: list[ops.AnyOp]) -> Counter[str]:
    side = LocalSide(PythonTreeCore, None)
    assert side.open(config, Settings(tree_every=64)) is None
    side.run(steps)
    side.finish()
    return side.recorder.behaviours


def test_generated_cases_reach_what_there_is_to_compare() -> None:
    seen = Counter[str]()
    for config, steps in cases("full", False, 60, 80):
        seen += run_side(config, steps)
    wanted = """
        match.hit match.miss match.split insert.fresh insert.overlap insert.suspended
        insert.declined evict.leaf evict.offered evict.exhausted evict.write_back drop.dropped
        drop.refused lock.moved action.BackupKV action.FreeDeviceKV action.FreeDeviceKVFullOnly
        action.UpdatePendingBackupOnNodeSplit event.BlockStored event.BlockRemoved
        error.UnknownNodeError
    """
    missing = [name for name in re.findall(r"\S+", wanted) if not seen[name]]
    assert missing == []


def test_hostile_cases_reach_every_kind_of_refusal() -> None:
    seen = Counter[str]()
    for config, steps in cases("full", True, 120, 50):
        seen += run_side(config, steps)
    for name in (
        "UnknownNodeError",
        "ContractError",
        "InvalidArgumentError",
        "InsertProtocolError",
        "AncestorError",
        "UnsupportedError",
        "OverflowError",
    ):
        assert seen[f"error.{name}"], name
