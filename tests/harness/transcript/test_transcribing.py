"""A replay of a transcript makes a core do what the recorded one did."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from tests.harness.transcript.tapping import (
    Comparable,
    TappedSide,
    run_tapped,
    transcribed,
)
from treedrift.harness import ops
from treedrift.harness.config import Config
from treedrift.harness.lockstep import Pair
from treedrift.harness.opening import open_lockstep, replay_settings
from treedrift.harness.transcript import PlainNames, Pseudonyms
from treedrift.harness.transcript.part import NamingKind
from treedrift.models.profiles import profile_named
from treedrift.models.swarm import generate_case

LENGTH = 80
REQUESTS = ("full-requests", "hybrid-requests")
CALLS = ("full", "full-events", "full-linker", "swa", "mamba", "hybrid", "windows")
SEEDS = 5
PAIR: Pair = ("python", "rust")


def case_of(seed: int, profile: str, **fixed: object) -> tuple[Config, list[ops.AnyOp]]:
    """A case without names of adapters, which a transcript does not tell."""
    config, steps = generate_case(seed, profile_named(profile), length=LENGTH)
    steps = [op for op in steps if not isinstance(op, ops.NameAdapter)]
    return msgspec.structs.replace(config, lora_names={}, **fixed), steps


def tapped(seed: int, profile: str, **fixed: object) -> TappedSide:
    """The first case from a seed on that a core takes, after its run."""
    while (side := run_tapped(*case_of(seed, profile, **fixed))) is None:
        seed += 1000
    return side


def changes(untold: Counter[str]) -> list[str]:
    """What was left out, questions and refused calls aside."""
    return [
        what
        for what in untold
        if not (
            what.startswith(("ask ", "collect_full_device_indices up to"))
            or ", which raised " in what
            or what == "adjust_component_size"  # The op that does so undoes it.
        )
    ]


def expect_the_same(side: TappedSide, naming: NamingKind) -> bool:
    """Replay a transcript and compare; False where a change of the tree could not be told."""
    trace, untold = transcribed(side, naming)
    assert not any(map(ops.is_hostile, trace.ops))
    again = run_tapped(trace.header.config, trace.ops)
    if changes(untold):
        return False
    assert again is not None
    with_tokens = naming is PlainNames
    before = Comparable(with_tokens=with_tokens).answers(side.tap.heard)
    after = Comparable(with_tokens=with_tokens).answers(again.tap.heard)
    assert after == before
    assert sizes(again) == sizes(side)
    return True


def sizes(side: TappedSide) -> list[object]:
    core = side.tap.core
    found: list[object] = [core.total_size()]
    for component in side.components:
        found.append(core.component_evictable_size(component))
        found.append(core.component_protected_size(component))
    return found


@pytest.mark.parametrize("naming", [Pseudonyms, PlainNames])
@pytest.mark.parametrize("profile", REQUESTS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_requests_make_a_cache_do_is_told_whole(
    seed: int, profile: str, naming: NamingKind
) -> None:
    assert expect_the_same(tapped(seed, profile), naming)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_requests_with_a_linker_are_told_whole(seed: int) -> None:
    side = tapped(seed, "hybrid-requests", linker=True, events=True)
    assert expect_the_same(side, Pseudonyms)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_keys_of_pairs_are_told_whole(seed: int) -> None:
    assert expect_the_same(tapped(seed, "full-requests", bigram=True), PlainNames)


@pytest.mark.parametrize("profile", CALLS)
def test_direct_calls_are_told_as_far_as_answers_name_their_nodes(profile: str) -> None:
    told = [expect_the_same(tapped(seed, profile), Pseudonyms) for seed in range(SEEDS)]
    assert any(told)


@pytest.mark.parametrize("profile", [*REQUESTS, "full-linker", "hybrid"])
def test_two_cores_agree_on_a_transcript(profile: str) -> None:
    lockstep = open_lockstep([PAIR])
    for seed in range(3):
        trace, _ = transcribed(tapped(seed, profile))
        settings = replay_settings([PAIR], trace.header.config)
        assert not lockstep.run(trace.header.config, trace.ops, settings).divergences
    lockstep.close()


def test_a_transcript_of_one_core_is_that_of_another() -> None:
    for seed in range(4):
        config, steps = case_of(seed, "hybrid-requests")
        sides = [run_tapped(config, steps, name) for name in PAIR]
        told = [transcribed(side)[0].ops for side in sides if side is not None]
        assert len(told) != 1
        assert told[:1] == told[1:]
