"""The strategies honour profiles, reach the whole op language, and feed the Hypothesis engine."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice
from typing import get_args

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, Verbosity, find, given, settings
from hypothesis import strategies as st

from treedrift.harness import ops
from treedrift.harness.campaign import Case
from treedrift.harness.config import Config, problems
from treedrift.harness.trace import OP_TYPES, new_trace, validate
from treedrift.models import hypothesis_engine
from treedrift.models.hypothesis_engine import MissingHypothesisError
from treedrift.models.profiles import PROFILES, Profile, UnknownProfileError, profile_named
from treedrift.models.strategies import Operands, cases, configs, operands_of
from treedrift.models.swarm import hostile_steps_of, steps_of

FULL = profile_named("full")
EVERYTHING = Profile(
    name="everything",
    about="all components there are",
    components=(("full", "swa", "aux_swa", "mamba"),),
)
Drawn = tuple[Config, list[ops.AnyOp]]

few = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=30,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def engine(profile: str, hostile: bool, count: int, seed: int = 1) -> list[Case]:
    return list(islice(hypothesis_engine.cases(seed, profile, hostile), count))


def test_the_steps_make_every_kind_of_op() -> None:
    kinds: set[str] = set()

    @settings(few, max_examples=40)
    @given(operands_of(EVERYTHING, hostile=True), st.data())
    def check(operands: Operands, data: st.DataObject) -> None:
        config = operands.config
        for _, step in (steps_of(EVERYTHING, config) | hostile_steps_of(config)).values():
            made = data.draw(operands.made_by(step))
            kinds.update(map(ops.kind_of, made))
            validate(new_trace(operands.config, made))

    check()
    assert kinds == set(OP_TYPES)


@pytest.mark.parametrize("name", PROFILES)
def test_configurations_keep_what_a_profile_pins(name: str) -> None:
    profile = profile_named(name)

    @few
    @given(configs(profile))
    def check(config: Config) -> None:
        assert problems(config) == []
        assert all(getattr(config, field) == value for field, value in profile.pins.items())
        assert config.capacity // config.page_size in profile.pages

    check()


@pytest.mark.parametrize("name", ["full", "hybrid", "windows"])
def test_peaceful_cases_break_no_protocol(name: str) -> None:
    for case in engine(name, False, 25):
        assert not any(map(ops.is_hostile, case.ops))
        validate(new_trace(case.config, case.ops))
    assert any(ops.is_hostile(op) for case in engine(name, True, 50) for op in case.ops)


def test_cases_keep_to_the_levels_and_weights_of_a_profile() -> None:
    for case in engine("full-requests", False, 20):
        assert all(isinstance(op, get_args(ops.RequestOp)) for op in case.ops)
    assert touches(FULL)
    assert not touches(msgspec.structs.replace(FULL, weights={"touch": 0.0}))


def touches(profile: Profile) -> int:
    found = []

    @settings(few, max_examples=60)
    @given(cases(profile))
    def check(case: Drawn) -> None:
        found.extend(op for op in case[1] if isinstance(op, ops.Touch))

    check()
    return len(found)


def test_the_smallest_case_is_plain() -> None:
    quiet = settings(few, phases=[Phase.generate, Phase.shrink], verbosity=Verbosity.quiet)
    config, made = find(
        cases(FULL, hostile=True),
        lambda case: any(isinstance(op, ops.CoreInsert) for op in case[1]),
        settings=quiet,
    )
    assert (config.policy, config.page_size) == ("lru", 1)
    assert len(made) <= 2, made  # One step, which may make two.


def test_the_engine_gives_the_same_cases_for_the_same_seed() -> None:
    first = engine("full", True, 25)
    assert first == engine("full", True, 25)
    assert first != engine("full", True, 25, seed=2)
    assert len({case.seed for case in first}) == 25
    assert {case.source for case in first} == {"hypothesis"}


def test_jobs_share_the_cases_out() -> None:
    size = hypothesis_engine.BATCH_CASES
    whole = engine("full", False, 2 * size)
    parts = [list(islice(hypothesis_engine.cases(1, "full", job=n, jobs=2), size)) for n in (0, 1)]
    assert parts[0] + parts[1] == whole


def test_each_batch_has_one_of_several_profiles() -> None:
    size = hypothesis_engine.BATCH_CASES
    made = engine("full,hybrid", False, 8 * size)
    sets = [{case.config.components for case in made[at : at + size]} for at in range(0, 200, size)]
    assert {frozenset(one) for one in sets} == {
        frozenset({("full",)}),
        frozenset({("full", "swa", "mamba")}),
    }


def test_an_unknown_profile_is_refused_before_anything_is_drawn() -> None:
    with pytest.raises(UnknownProfileError):
        hypothesis_engine.cases(1, "fool")


def test_without_hypothesis_the_engine_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hypothesis_engine.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingHypothesisError, match=r'pip install "treedrift\[hypothesis\]"'):
        hypothesis_engine.cases(1, "full")


def test_the_command_line_imports_no_hypothesis() -> None:
    code = (
        "import sys; import treedrift.cli, treedrift.models.hypothesis_engine; "
        "print([name for name in sys.modules if name.startswith('hypothesis')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
