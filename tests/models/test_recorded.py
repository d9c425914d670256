"""Some generated cases spell their ops as recordings do, and the cores agree on them as well."""

from __future__ import annotations

from collections import Counter

import pytest

from treedrift.harness import ops
from treedrift.harness.config import Config
from treedrift.harness.lockstep import Lockstep
from treedrift.harness.opening import open_lockstep, replay_settings
from treedrift.harness.tokens import key_tokens
from treedrift.harness.trace import new_trace, validate
from treedrift.models import swarm
from treedrift.models.hypothesis_engine import cases as hypothesis_cases
from treedrift.models.profiles import PROFILES, profile_named
from treedrift.models.recorded import in_runs
from treedrift.models.swarm import generate_case

CORE_PROFILES = [name for name, profile in PROFILES.items() if "core" in profile.levels]


def answers_given(steps: list[ops.AnyOp]) -> list[int]:
    return [op.answer for op in steps if getattr(op, "answer", None) is not None]


def nodes_named(op: ops.AnyOp) -> list[str]:
    return [getattr(op, "node", ""), *getattr(op, "nodes", ())]


def is_recorded(steps: list[ops.AnyOp]) -> bool:
    spelled = any(getattr(op, "runs", ()) for op in steps)
    named = any(ref.startswith("answer:") for op in steps for ref in nodes_named(op))
    return spelled or named or bool(answers_given(steps))


def test_runs_hold_the_tokens_that_they_are_made_of() -> None:
    for tokens in ([], [5], [1, 2, 3, 7, 8, 7], [3, 3, 2**63 - 2, 2**63 - 1], [-1, 0, 1]):
        runs = in_runs(tokens)
        assert key_tokens(ops.CoreMatch([], runs=runs)).tolist() == tokens
        assert all(sum(one) != other[0] for one, other in zip(runs, runs[1:], strict=False))


@pytest.mark.parametrize("name", PROFILES)
def test_some_cases_of_every_profile_with_core_ops_are_spelled_so(name: str) -> None:
    drawn = [generate_case(seed, profile_named(name), length=120)[1] for seed in range(100)]
    share = sum(map(is_recorded, drawn)) / len(drawn)
    assert (0.08 < share < 0.35) if name in CORE_PROFILES else share == 0


@pytest.mark.parametrize("name", CORE_PROFILES)
def test_runs_answers_and_names_of_dead_ones_come_up_in_valid_traces(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swarm, "RECORDED_SHARE", 1.0)
    seen = Counter[str]()
    for seed in range(40):
        config, steps = generate_case(seed, profile_named(name), length=80)
        validate(new_trace(config, steps))
        given: set[str] = set()
        for op in steps:
            assert not ops.is_hostile(op), op
            seen["runs after tokens"] += bool(getattr(op, "runs", ()) and getattr(op, "tokens", ()))
            for ref in nodes_named(op):
                if ref.startswith("answer:"):
                    seen["given" if ref in given else "dead"] += 1
            given |= {f"answer:{number}" for number in answers_given([op])}
    assert min(seen[what] for what in ("runs after tokens", "given", "dead")) > 20


@pytest.mark.parametrize("name", ["full", "full-linker", "hybrid", "windows"])
def test_our_cores_agree_on_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swarm, "RECORDED_SHARE", 1.0)
    lockstep = open_lockstep([("python", "rust")])
    for seed in range(12):
        config, steps = generate_case(seed, profile_named(name), seed % 3 == 0, length=120)
        assert run(lockstep, config, steps) == []


def run(lockstep: Lockstep, config: Config, steps: list[ops.AnyOp]) -> list[object]:
    return [*lockstep.run(config, steps, replay_settings(lockstep.pairs, config)).divergences]


def test_locks_are_taken_of_nodes_that_were_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swarm, "RECORDED_SHARE", 1.0)
    lockstep = open_lockstep([("python", "rust")])
    taken = 0
    for seed in range(20):
        config, steps = generate_case(seed, profile_named("full-core"), length=100)
        ends = [end for end, op in enumerate(steps) if is_lock_of_answer(op)]
        for end in ends[-1:]:
            before, after = (locks_after(lockstep, config, steps[:n]) for n in (end, end + 1))
            taken += after - before
    assert taken > 3


def is_lock_of_answer(op: ops.AnyOp) -> bool:
    return isinstance(op, ops.Lock) and op.node.startswith("answer:") and not op.host


def locks_after(lockstep: Lockstep, config: Config, steps: list[ops.AnyOp]) -> int:
    """How many device locks the ops took."""
    settings = replay_settings(lockstep.pairs, config)
    figures = lockstep.run(config, steps, settings).figures["python"]
    return figures.get("lock.moved", 0) + figures.get("lock.nothing_moved", 0)


def test_cases_of_hypothesis_are_spelled_so_too() -> None:
    made = hypothesis_cases(1, "full", False)
    drawn = [next(made).ops for _ in range(25)]
    assert 0 < sum(map(is_recorded, drawn)) < 25
