"""The drills: each is a fault of its own, named in the open, and spoils one core alone."""

from __future__ import annotations

import gc
import re
from pathlib import Path

import msgspec
import pytest

from treedrift.backends.contract import CacheInitParams
from treedrift.backends.python_core import PythonTreeCore
from treedrift.backends.registry import UnknownBackendError, local_backend
from treedrift.harness.config import Config
from treedrift.harness.lockstep import LocalClient, Lockstep
from treedrift.harness.ops import (
    AnyOp,
    Ask,
    CoreInsert,
    DrainEvents,
    Misuse,
    Namespace,
)
from treedrift.harness.side import LocalSide, Settings
from treedrift.models.drills import CANARY, DRILLS
from treedrift.models.drills.catalog import THEMES
from treedrift.models.drills.hunt import hunt
from treedrift.models.keys import LORA_IDS
from treedrift.models.profiles import profile_named
from treedrift.models.swarm import generate_case

PAGE = Path(__file__).parents[3] / "docs" / "drills.md"

DRILLS_MIN = 300

GROUPS = {
    "SWA": "MUISLEABQP",
    "MAM": "MIPSLERAC",
}
"""Groups of rules about windows and states; each has a drill."""

GROUP_MIN = 23
"""Drills of windows, and of states."""

RULE = re.compile(
    r"(KEY|NODE|MATCH|INS|SPLIT|EVT|ORD|PATH|POL|LEAF|EVD|EVH|LOCK|SIZE|FLAT|CHK|RST|CMP|FULL|LNK|STO"
    r"|HIC|INV02|BND|LRU|CTL)-\d+|SWA-[A-Z]\d+|MAM-[A-Z]\d+"
)

CONFIGS = [
    Config(policy=policy, bigram=bigram, events=True, linker=True, policy_config=parameters)
    for policy, bigram, parameters in (
        ("lru", False, {}),
        ("lfu", True, {}),
        ("slru", False, {"protected_threshold": 2}),
        ("tlru", True, {"threshold": 4, "next_prompt_estimate": 2}),
    )
]

HYBRID = Config(
    components=("full", "swa", "aux_swa", "mamba"),
    window=3,
    aux_window=2,
    state_cap=2,
    state_buffer="double",
)
"""A tree with something for every drill of windows and states."""


def test_there_are_many_drills_and_no_two_share_a_name() -> None:
    names = [drill.name for theme in THEMES for drill in theme.drill.drills]
    assert len(names) == len(set(names)) == len(DRILLS) >= DRILLS_MIN
    assert CANARY in DRILLS


def test_every_drill_says_what_it_is() -> None:
    for drill in DRILLS.values():
        assert RULE.fullmatch(drill.rule), drill
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", drill.name), drill
        assert re.fullmatch(r"[A-Z][^.\n]*\.", drill.about), f"{drill.name}: one sentence, one line"
        assert drill.stands_for, drill
        assert drill.case is None or re.fullmatch(r"BUG-\d\d", drill.case), drill


@pytest.mark.parametrize("chapter", GROUPS)
def test_every_group_of_rules_has_a_drill(chapter: str) -> None:
    rules = [drill.rule for drill in DRILLS.values() if drill.rule.startswith(chapter)]
    assert len(rules) >= GROUP_MIN
    assert set(GROUPS[chapter]) <= {rule.removeprefix(f"{chapter}-")[0] for rule in rules}


def test_every_profile_is_known() -> None:
    for drill in DRILLS.values():
        assert profile_named(drill.profile).name == drill.profile


def test_a_drill_of_windows_or_states_leaves_full_alone() -> None:
    """In a tree of Full alone there is nothing for it to spoil."""
    for name in ("match-needs-a-unit-more", "state-of-an-ancestor-will-do", "two-at-a-time"):
        catch = hunt(msgspec.structs.replace(DRILLS[name], profile="full"), 0.3, 1)
        assert not catch.caught, name


def test_the_page_on_drills_maps_every_case() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (BUG-\d\d) \|[^|]*\|([^|]*)\|", page, flags=re.M)
    documented = {case: re.findall(r"`([a-z-]+)`", cell) for case, cell in rows}
    for case, names in documented.items():
        assert names == [drill.name for drill in DRILLS.values() if drill.case == case], case
    assert {drill.case for drill in DRILLS.values()} - {None} <= documented.keys()


def test_no_two_drills_say_the_same() -> None:
    assert len({drill.about for drill in DRILLS.values()}) == len(DRILLS)


def test_no_drill_touches_another_core() -> None:
    """All drills are built and run beside a pair of sound cores, which must stay sound."""
    for number, drill in enumerate(DRILLS.values()):
        config = CONFIGS[number % len(CONFIGS)] if drill.profile == "full" else HYBRID
        backend = local_backend(f"drill:{drill.name}")
        spoilt = LocalSide(backend.create, backend.inspect)
        assert spoilt.open(config, Settings()) is None, drill.name
    gc.collect()
    sound = {name: LocalClient(name, LocalSide(PythonTreeCore)) for name in ("one", "rust")}
    sound["rust"] = LocalClient("rust", LocalSide(local_backend("rust").create))
    lockstep = Lockstep(sound, [("one", "rust")])
    for seed in range(4):
        config, ops = generate_case(seed, profile_named("full"), seed % 2 == 0)
        assert lockstep.run(config, ops, Settings()).divergences == []


def test_a_spoilt_core_passes_for_a_python_core() -> None:
    for name in DRILLS:
        core = local_backend(f"drill:{name}").create(CacheInitParams(is_eagle=True))
        assert isinstance(core, PythonTreeCore)


def test_a_spoilt_core_is_inspected_like_a_sound_one() -> None:
    backend = local_backend(f"drill:{CANARY}")
    assert backend.inspect is not None
    assert len(backend.inspect(backend.create(CacheInitParams())).nodes) == 1


@pytest.mark.parametrize(
    ("name", "config", "steps"),
    [
        ("node-claimed-twice", Config(), [Misuse("mark_external_linker_offload_pending")]),
        ("transfers-not-checked", Config(), [Ask("sanity", ["live:0"])]),
        (
            "adapter-by-the-whole-namespace",
            Config(events=True, dynamo_events=True, lora_names={LORA_IDS[0]: "one"}),
            [CoreInsert([1], Namespace("t" + LORA_IDS[0])), DrainEvents()],
        ),
    ],
)
def test_rules_about_rare_calls_are_driven(name: str, config: Config, steps: list[AnyOp]) -> None:
    backend = local_backend(f"drill:{name}")
    cores = {"sound": PythonTreeCore, name: backend.create}
    clients = {core: LocalClient(core, LocalSide(create)) for core, create in cores.items()}
    lockstep = Lockstep(clients, [("sound", name)])
    (found,) = lockstep.run(config, [CoreInsert([1, 2]), *steps], Settings()).divergences
    assert found.op_index == len(steps)


def test_a_name_that_is_no_drill_gets_the_closest_one() -> None:
    with pytest.raises(UnknownBackendError, match="did you mean drill:leaked-slots"):
        local_backend("drill:leaked-slot")
