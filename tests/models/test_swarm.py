"""The swarm engine is deterministic, keeps its promises, and reaches what it should."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from time import process_time
from typing import get_args

import pytest

from treedrift.backends.python_core import PythonTreeCore
from treedrift.harness import ops
from treedrift.harness.config import Config, problems
from treedrift.harness.side import LocalSide, Settings
from treedrift.harness.trace import OP_TYPES, new_trace, validate
from treedrift.models.configs import POLICIES
from treedrift.models.profiles import (
    PROFILES,
    UnknownProfileError,
    profile_named,
    profile_of,
    profiles_named,
)
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
    sets = profile_named(name).components
    for config, steps in cases(name, hostile=False, count=150):
        assert problems(config) == []
        assert config.components in sets
        for op in steps:
            assert not ops.is_hostile(op), op
            assert min(getattr(op, "tokens", None) or [0]) >= 0, op


@pytest.mark.parametrize("profile", ["full", "hybrid", "windows"])
@pytest.mark.parametrize("hostile", [False, True])
def test_every_case_is_a_valid_trace_of_the_wanted_length(hostile: bool, profile: str) -> None:
    for config, steps in cases(profile, hostile, count=60, length=37):
        assert len(steps) == 37
        validate(new_trace(config, steps))


def test_hostile_cases_mix_hostile_ops_into_ordinary_ones() -> None:
    steps = [op for _, steps in cases("full", hostile=True, count=200) for op in steps]
    share = sum(map(ops.is_hostile, steps)) / len(steps)
    assert 0.03 < share < 0.3


AUXILIARY_KINDS = {
    "early_release",
    "release_window",
    "cap_path",
    "store_value",
    "window_ranges",
    "attach_window",
}


@pytest.mark.parametrize("profile", ["full", "hybrid"])
def test_all_kinds_of_ops_come_up(profile: str) -> None:
    drawn = cases(profile, False, 300) + cases(profile, True, 300)
    kinds = {ops.kind_of(op) for _, steps in drawn for op in steps}
    assert kinds == set(OP_TYPES) - (AUXILIARY_KINDS if profile == "full" else set())


def test_all_kinds_of_configurations_come_up() -> None:
    drawn = cases("full", False, 300) + cases("full", True, 300)
    configs = [config for config, _ in drawn]
    assert {config.policy.lower() for config in configs} == set(POLICIES)
    assert {config.page_size for config in configs} == {1, 2, 3, 4, 8, 16}
    for flag in ("events", "dynamo_events", "storage", "linker", "buffer_only", "write_back"):
        assert {getattr(config, flag) for config in configs} == {False, True}, flag


def test_all_kinds_of_windows_and_states_come_up() -> None:
    configs = [config for config, _ in cases("hybrid", False, 400) + cases("windows", False, 200)]
    beside = {(config.window or 0) - config.page_size for config in configs if config.page_size > 2}
    assert {-1, 0, 1} < beside
    assert {1, 2, 3, 4, 5} < {config.window for config in configs}
    assert any(config.draft_window > (config.window or 0) for config in configs)
    assert any(0 < config.draft_window < (config.window or 0) for config in configs)
    assert any((config.window_capacity or 999) < config.capacity for config in configs)
    assert any((config.aux_window or 0) > config.retain_window for config in configs)
    assert {config.state_cap for config in configs} == {-1, 0, 1, 2, 3}
    assert {config.state_chunk for config in configs} == {1, 2, 3, 4, 6}
    assert {config.state_buffer for config in configs} == {"none", "single", "double", "lazy"}
    for flag in ("window_gates", "window_ring", "window_replay", "state_skip_lock"):
        assert {getattr(config, flag) for config in configs} == {False, True}, flag


FIELDS: dict[type[ops.Op], tuple[str, ...]] = {
    ops.Arrive: ("cow",),
    ops.Evict: ("window", "states"),
    ops.EvictForAlloc: ("window", "states"),
    ops.CoreInsert: ("swa_evicted", "aux_evicted", "branch", "owned", "track_adopted_ranges"),
    ops.Lock: ("skip",),
    ops.ReleaseWindow: ("lock", "window"),
    ops.WalkStart: ("component",),
    ops.WalkNext: ("component",),
    ops.WalkEnd: ("component",),
    ops.HostEvict: ("component",),
    ops.AdjustSize: ("component",),
    ops.StoreValue: ("component",),
    ops.WindowRanges: ("start", "end", "component"),
    ops.AttachWindow: ("range", "start", "end", "component"),
}
HOSTILE_FIELDS: dict[type[ops.Op], tuple[str, ...]] = {
    ops.CoreInsert: ("raw_evicted", "state"),
    ops.Lock: ("force",),
    ops.ReleaseWindow: ("receipt", "force"),
    ops.Unlock: ("receipt", "skip_swa", "window"),
    ops.StoreValue: ("force", "short"),
    ops.WindowRanges: ("raw",),
    ops.AttachWindow: ("raw",),
}


@pytest.mark.parametrize("hostile", [False, True])
def test_every_field_of_windows_and_states_is_reached(hostile: bool) -> None:
    """A field counts as reached with two values, and often enough not to be luck."""
    seen: dict[str, Counter[str]] = {}
    for profile in ("swa", "mamba", "hybrid", "windows"):
        for _, steps in cases(profile, hostile, 150):
            for op in steps:
                for name in (HOSTILE_FIELDS if hostile else FIELDS).get(type(op), ()):
                    count = seen.setdefault(f"{ops.kind_of(op)}.{name}", Counter())
                    count[repr(getattr(op, name))] += 1
    table = HOSTILE_FIELDS if hostile else FIELDS
    assert len(seen) == sum(map(len, table.values()))
    rare = {name for name, count in seen.items() if len(count) < 2 or count.total() < 20}
    assert rare == set()


def test_evicted_lengths_lie_everywhere() -> None:
    """At nothing, within a key, at its end and beyond (SWA-I3, SWA-I17)."""
    places = Counter[str]()
    for _, steps in cases("swa", False, 200):
        for op in steps:
            if isinstance(op, ops.CoreInsert) and op.tokens:
                evicted, length = op.swa_evicted, len(op.tokens)
                inside = "inside" if evicted < length else "end" if evicted == length else "beyond"
                places[inside if evicted else "none"] += 1
    assert set(places) == {"none", "inside", "end", "beyond"}
    assert min(places.values()) > places.total() / 100


def test_full_trees_have_no_use_for_windows_and_states() -> None:
    """What only other trees can use is drawn only for them, so that old seeds mean the same."""
    for _, steps in cases("full", True, 100):
        for op in steps:
            assert ops.kind_of(op) not in AUXILIARY_KINDS
            assert (getattr(op, "window", None) or 0) == 0 or isinstance(op, ops.Unlock)
            assert not getattr(op, "states", 0)


def test_the_case_of_a_seed_has_one_of_several_profiles() -> None:
    both = profiles_named("full, hybrid")
    names = [profile_of(seed, both).name for seed in range(400)]
    assert names == [profile_of(seed, both).name for seed in range(400)]
    for stride in (1, 2, 3, 4, 6):  # Whatever the jobs and shards.
        part = names[::stride]
        assert 0.3 < part.count("full") / len(part) < 0.7
    assert {profile_of(seed, both[:1]).name for seed in range(9)} == {"full"}


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


def test_the_page_of_runs_lists_every_profile() -> None:
    page = (Path(__file__).parents[2] / "docs" / "runs.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", page, re.MULTILINE)
    assert rows == [(profile.name, profile.about) for profile in PROFILES.values()]


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
