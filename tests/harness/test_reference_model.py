"""The reference model is silent on sound cores, and where it can't know; its settings."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.spoilt_cores import (
    SETTINGS,
    answers,
    judge,
    side,
    sound,
)
from treedrift.harness.config import Config
from treedrift.harness.lockstep import LocalClient, Lockstep
from treedrift.harness.observation import decode
from treedrift.harness.opening import SMALL_POOL, replay_settings
from treedrift.harness.ops import (
    AnyOp,
    CoreEnd,
    CoreInsert,
    CoreMatch,
    Evict,
    Lock,
    Namespace,
    Reset,
    SetFlag,
    Unlock,
)
from treedrift.harness.side import Settings
from treedrift.models.profiles import PROFILES
from treedrift.models.swarm import generate_case

CASES = 30
FOUR = CoreInsert([1, 2, 3, 4])


# --- Sound cores --------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROFILES)
def test_sound_cores_are_never_accused(name: str) -> None:
    one = side(sound)
    followed = 0
    for seed in range(CASES):
        config, trace = generate_case(seed, PROFILES[name], hostile=seed % 3 == 0)
        assert one.open(config, Settings(tree_every=64)) is None
        for batch in (one.run(trace), one.finish()):
            for data in batch.observations:
                assert decode(data).findings == [], f"seed {seed}"
        assert one.model is not None
        followed += not one.model.is_lost
    # A hostile case may end where nobody can know what the core holds.
    assert followed >= CASES - 2


SOUND: dict[str, tuple[Config, list[AnyOp]]] = {
    "a key cut by its limit": (Config(page_size=2), [FOUR, CoreMatch([1, 2, 3, 4], limit=3)]),
    "pairs": (Config(bigram=True, page_size=2), [CoreInsert([1, 2, 3, 4, 5]), CoreMatch([1, 2])]),
    "no value": (Config(), [CoreInsert([1, 2, 3], value="none"), Reset(), CoreMatch([1])]),
    "an empty key": (Config(page_size=4), [CoreInsert([1, 2]), CoreMatch([1, 2])]),
    "a declined insert": (
        Config(),
        [CoreInsert([1, 2], rotation_base=1), CoreInsert([1, 2, 3], rotation_base=2)],
    ),
    "namespaces": (
        Config(),
        [CoreInsert([1, 2], Namespace("a")), CoreMatch([1, 2], Namespace(None, "a")), FOUR],
    ),
    "slots without a window": (Config(), [FOUR, CoreInsert([1, 2, 3, 4], swa_evicted=2)]),
    "a shared prefix": (Config(), [FOUR, CoreInsert([1, 2, 3, 4, 5], owned=2)]),
    "a refused insert": (Config(), [FOUR, CoreInsert([1, 2, 9], value="short"), CoreMatch([1])]),
    "no priority": (Config(), [CoreInsert([1, 2], priority=None), CoreMatch([1, 2])]),
    "a receipt released twice": (
        Config(),
        [FOUR, Lock("live:0"), Lock("live:0"), Unlock(0), Unlock(0, receipt="released")],
    ),
    "an abandoned insert": (
        Config(linker=True),
        [
            FOUR,
            SetFlag("linker", 1),
            CoreInsert([1, 2, 9], suspend=True),
            CoreMatch([1]),
            CoreEnd(),
        ],
    ),
    "a locked split": (Config(), [FOUR, Lock("live:0"), CoreMatch([1, 2]), Evict(9), Unlock(0)]),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_core_is_not_accused_of(name: str) -> None:
    config, trace = SOUND[name]
    assert judge(sound, [*trace, CoreInsert([7, 8, 9, 10]), CoreMatch([7, 8])], config) == []


def test_two_cores_that_are_broken_alike_are_found() -> None:
    short = answers("match_prefix", full_kv_hit_length=lambda result: 3)
    clients = {name: LocalClient(name, side(short)) for name in ("a", "b")}
    trace = [FOUR, CoreMatch([1, 2, 3]), CoreMatch([1, 2])]
    (found,) = Lockstep(clients, [("a", "b")]).run(Config(), trace, SETTINGS).divergences
    assert (found.kind, found.op_index, found.side) == ("oracle", 2, None)
    assert found.where == "reference_model: full_kv_hit_length of a match is 3, must be 2"
    assert found.signature == "oracle:core_match:reference_model"


# --- When it does not judge ---------------------------------------------------------------


def test_a_model_that_found_something_waits_for_a_reset() -> None:
    short = answers("match_prefix", device_prefix_len=lambda result: 0)
    trace = [FOUR, CoreMatch([1]), CoreMatch([1, 2]), Reset(), FOUR, CoreMatch([1, 2])]
    assert judge(short, trace) == [
        "device_prefix_len of a match is 0, must be 1",
        "device_prefix_len of a match is 0, must be 2",
    ]


def test_a_call_that_broke_off_half_way_is_not_judged() -> None:
    def fail(core: Any) -> None:
        def begin(params: Any) -> Any:
            raise ZeroDivisionError

        core.begin_insert = begin

    assert judge(fail, [FOUR, CoreMatch([1])]) == []


def test_a_side_can_do_without_the_model() -> None:
    one = side(answers("match_prefix", full_kv_hit_length=lambda result: 9))
    assert one.open(Config(), Settings(model=False)) is None
    assert one.run([FOUR, CoreMatch([1])]).alarms == []


@pytest.mark.parametrize(("slots", "is_on"), [(SMALL_POOL, True), (SMALL_POOL + 1, False)])
def test_a_replay_of_a_large_pool_goes_without_the_model(slots: int, is_on: bool) -> None:
    assert replay_settings([("python", "rust")], Config(capacity=slots)).model is is_on
