"""The state machine agrees on sound cores, and turns a fault into a small trace that replays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import Phase, given, settings

from treedrift.harness import ops
from treedrift.harness.config import Config
from treedrift.harness.opening import open_lockstep, replay_settings
from treedrift.harness.trace import read_trace
from treedrift.models.hypothesis_profiles import (
    VARIABLE,
    UnknownHypothesisProfileError,
    settings_named,
)
from treedrift.models.machine.base import setups
from treedrift.models.profiles import Profile
from treedrift.models.state_machine import PairDivergedError, check_pair
from treedrift.models.strategies import Operands
from treedrift.models.swarm import CORE_STEPS

ROOT = Path(__file__).parents[2]
Example = tuple[Config, list[ops.AnyOp]]


def some(examples: int, steps: int = 20) -> settings:
    return settings(settings_named("ci"), max_examples=examples, stateful_step_count=steps)


def examples_of(pair: tuple[str, str], profile: str, count: int) -> list[Example]:
    heard: list[Example] = []
    check_pair(pair, profile, some(count), listen=lambda *example: heard.append(example))
    return heard


def test_our_cores_agree_under_the_profile_of_ci(tmp_path: Path) -> None:
    heard: list[Example] = []
    check_pair(
        ("python", "rust"),
        settings=settings_named("ci"),
        folder=tmp_path,
        listen=lambda *example: heard.append(example),
    )
    assert len(heard) >= 100
    kinds = Counter(ops.kind_of(op) for _, trace in heard for op in trace)
    assert len(kinds) > 25
    keyed = [op for _, trace in heard for op in trace if isinstance(op, ops.CoreInsert)]
    assert any(op.runs for op in keyed)
    assert any(op.answer is not None for op in keyed)
    locks = [op for _, trace in heard for op in trace if isinstance(op, ops.Lock)]
    assert any(op.node.startswith("answer:") for op in locks)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("profile", ["hybrid", "windows"])
def test_our_cores_agree_on_windows_and_states(profile: str, tmp_path: Path) -> None:
    heard: list[Example] = []
    check_pair(
        ("python", "rust"),
        profile,
        some(80),
        folder=tmp_path,
        listen=lambda *example: heard.append(example),
    )
    kinds = {ops.kind_of(op) for _, trace in heard for op in trace}
    assert {"release_window", "store_value", "attach_window", "window_ranges", "cap_path"} < kinds
    walked = {op.component for _, trace in heard for op in trace if isinstance(op, ops.WalkStart)}
    assert {"full", "swa", "mamba"} <= walked


FAULTS = [
    "leaked-slots",
    "wrong-free-order",
    "doubled-event",
    "events-taken-twice",
    "truth-as-a-number",
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_ends_as_a_small_trace_that_replays(fault: str, tmp_path: Path) -> None:
    pair = ("python", f"drill:{fault}")
    with pytest.raises(PairDivergedError) as caught:
        check_pair(pair, settings=some(100, steps=8), folder=tmp_path)
    (path,) = caught.value.files
    trace = read_trace(path)
    header = trace.header
    assert (header.source, header.pair, header.expect) == ("hypothesis", pair, "diverges")
    assert len(trace.ops) <= 6
    lockstep = open_lockstep([pair])
    found = lockstep.run(header.config, trace.ops, replay_settings([pair], header.config))
    assert found.divergences[0].signature == header.signature
    for command in ("show", "shrink"):
        assert f"treedrift {command} {path}" in str(caught.value)


def test_the_profile_of_ci_gives_the_same_examples_every_time() -> None:
    first = examples_of(("python", "rust"), "full", 15)
    assert first == examples_of(("python", "rust"), "full", 15)


def test_a_profile_switches_rules_off() -> None:
    requests = examples_of(("python", "rust"), "full-requests", 20)
    made = [op for _, trace in requests for op in trace]
    assert len(made) > 100
    assert all(isinstance(op, get_args(ops.RequestOp)) for op in made)
    assert all(config.events for config, _ in examples_of(("python", "rust"), "full-events", 10))


def test_a_weight_of_zero_switches_a_rule_off() -> None:
    weights = dict.fromkeys(set(CORE_STEPS) - {"insert", "match"}, 0.0)
    still = Profile(name="still", about="no more than this", levels=("core",), weights=weights)
    shared = {"evict", "reset", "linker_ack", "drain_events"}
    seen: set[str] = set()

    @settings(some(30), phases=[Phase.generate])
    @given(setups(still, may_be_hostile=False))
    def check(setup: tuple[Operands, frozenset[str]]) -> None:
        seen.update(setup[1])

    check()
    assert {"insert", "match"} < seen <= {"insert", "match"} | shared


def test_settings_are_chosen_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert settings_named().derandomize
    monkeypatch.setenv(VARIABLE, "nightly")
    nightly = settings_named(database=tmp_path)
    assert not nightly.derandomize
    assert nightly.database is not None
    monkeypatch.setenv(VARIABLE, "daily")
    with pytest.raises(UnknownHypothesisProfileError, match=r"'daily'.* is ci or nightly"):
        settings_named()


WORKER_TESTS = """
import pytest
from pathlib import Path
from hypothesis import Phase, given, settings
from treedrift.models.hypothesis_profiles import settings_named
from treedrift.models.state_machine import check_pair

@pytest.mark.parametrize("number", range(2))
def test_pair(number):
    nightly = settings_named("nightly", database=Path("database"))
    few = settings(nightly, max_examples=60, stateful_step_count=8, phases=[Phase.generate])
    check_pair(("python", "drill:leaked-slots"), settings=few, folder=Path("found"))
"""


def test_workers_of_xdist_share_folder_and_database(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(WORKER_TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--rootdir", ".", "test_it.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert "2 failed" in done.stdout, done.stdout + done.stderr
    named = {line.split()[-1] for line in done.stdout.splitlines() if "treedrift show" in line}
    files = {str(path.relative_to(tmp_path)) for path in (tmp_path / "found").iterdir()}
    assert named == files != set()
    for file in files:
        assert read_trace(tmp_path / file).header.signature
    assert any((tmp_path / "database").iterdir())
