"""The reference model: each of its statements, silent on sound cores and broken by a spoilt one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch

from treedrift.backends.contract import (
    CacheInitParams,
    ComponentType,
    EvictDeviceLeafResult,
    FreeDeviceKV,
    FreeDeviceKVFullOnly,
    TreeCore,
)
from treedrift.backends.python_core import PythonTreeCore
from treedrift.harness.config import Config
from treedrift.harness.lockstep import LocalClient, Lockstep
from treedrift.harness.observation import decode
from treedrift.harness.opening import SMALL_POOL, replay_settings
from treedrift.harness.ops import (
    AnyOp,
    Ask,
    CoreEnd,
    CoreInsert,
    CoreMatch,
    Evict,
    EvictLeaf,
    Lock,
    Namespace,
    Pin,
    Reset,
    SetFlag,
    Unlock,
    WalkNext,
    WalkStart,
)
from treedrift.harness.side import LocalSide, Settings
from treedrift.models.profiles import PROFILES
from treedrift.models.swarm import generate_case

FULL = ComponentType.FULL
SETTINGS = Settings(tree_every=4)
CASES = 30
FOUR = CoreInsert([1, 2, 3, 4])
FORK: list[AnyOp] = [FOUR, CoreInsert([1, 2, 5, 6])]

Fault = Callable[[Any], None]


def side(fault: Fault) -> LocalSide:
    def create(params: CacheInitParams) -> TreeCore:
        core = PythonTreeCore(params)
        fault(core)
        return core

    return LocalSide(create)


def judge(fault: Fault, trace: list[AnyOp], config: Config | None = None) -> list[str]:
    """What the model says about a core, op by op and in the final drain."""
    one = side(fault)
    assert one.open(config or Config(), SETTINGS) is None
    seen = [*one.run(trace).observations, *one.finish().observations]
    found = [finding for data in seen for finding in decode(data).findings]
    return [finding.message for finding in found if finding.oracle == "reference_model"]


def sound(core: Any) -> None:
    """No fault at all."""


def after(owner: Any, name: str, then: Callable[..., Any]) -> None:
    method = getattr(owner, name)
    setattr(owner, name, lambda *args, **more: then(method(*args, **more), *args, **more))


def answers(name: str, **changes: Callable[[Any], Any]) -> Fault:
    """A core whose answers have other fields, each made from the true answer."""

    def spoil(core: Any) -> None:
        def then(result: Any, *_: Any, **__: Any) -> Any:
            fields = {field: change(result) for field, change in changes.items()}
            return msgspec.structs.replace(result, **fields)

        after(core, name, then)

    return spoil


def returns(name: str, change: Callable[[Any], Any]) -> Fault:
    """A core that answers with something made from the true answer."""
    return lambda core: after(core, name, lambda result, *_, **__: change(result))


def insert_result(**changes: Callable[[Any], Any]) -> Fault:
    """A core whose finished inserts tell other things."""

    def spoil(core: Any) -> None:
        def then(step: Any, *_: Any) -> Any:
            for field, change in changes.items():
                if step.result is not None:
                    setattr(step.result, field, change(step.result))
            return step

        after(core, "begin_insert", then)

    return spoil


def insert_actions(edit: Callable[[list[Any]], list[Any]]) -> Fault:
    """A core whose inserts ask for other actions."""

    def spoil(core: Any) -> None:
        def then(step: Any, *_: Any) -> Any:
            step.actions = edit(step.actions)
            return step

        after(core, "begin_insert", then)

    return spoil


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
    assert followed == CASES


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


# --- Broken statements --------------------------------------------------------------------


def lost_at_a_split(core: Any) -> None:
    """A split drops what hung below the page where it cut."""
    after(core._tree, "split", lambda upper, *_: (upper.children.clear(), upper)[1])


def swapped_by_a_split(core: Any) -> None:
    """A split gives the old handle to the upper part."""

    def then(upper: Any, lower: Any, *_: Any) -> Any:
        upper.id, lower.id = lower.id, upper.id
        core._tree.nodes[upper.id], core._tree.nodes[lower.id] = upper, lower
        return upper

    after(core._tree, "split", then)


def blind_to_salts(core: Any) -> None:
    """A match looks into the namespace without a salt."""
    match = core.match_prefix

    def call(params: Any) -> Any:
        other = msgspec.structs.replace(params, key=params.key[:])
        other.key.cache_salt = None
        return match(other)

    core.match_prefix = call


def offers_the_locked(core: Any) -> None:
    """A walk offers the node that was made last, whatever holds it."""

    def then(result: Any, *_: Any) -> Any:
        return msgspec.structs.replace(result, node_id=max(core._tree.nodes))

    after(core, "evict_device_next_node", then)


def evicts_the_locked(core: Any) -> None:
    """A direct eviction gives back whatever it is told."""

    def evict(node_id: int, is_write_back: bool) -> Any:
        slots = core.get_component_device_value(node_id, FULL)
        return EvictDeviceLeafResult(
            device_frees={FULL: [slots]}, tracker={FULL: slots.numel()}, unbacked_tokens=0
        )

    core.evict_device_leaf = evict


def ignored_quota(core: Any) -> None:
    """A walk goes on for ever."""
    open_walk = core._tree.full.open_walk
    core._tree.full.open_walk = lambda count: open_walk(2**40)


def nothing_to_offer(core: Any) -> None:
    """A walk never offers anything."""
    open_walk = core._tree.full.open_walk
    core._tree.full.open_walk = lambda count: open_walk(0)


def no_frees(result: Any) -> dict[Any, Any]:
    return {}


def reversed_frees(result: Any) -> dict[Any, Any]:
    return {kind: [slots.flip(0) for slots in runs] for kind, runs in result.device_frees.items()}


def other_type(actions: list[Any]) -> list[Any]:
    return [
        FreeDeviceKVFullOnly(action.indices) if isinstance(action, FreeDeviceKV) else action
        for action in actions
    ]


def foreign_slots(actions: list[Any]) -> list[Any]:
    return [FreeDeviceKV([slots.flip(0) for slots in action.indices]) for action in actions]


def path_with(**changes: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def change(paths: Any) -> Any:
        return tuple(
            tuple(
                msgspec.structs.replace(info, **{name: new(info) for name, new in changes.items()})
                for info in path
            )
            for path in paths
        )

    return change


LONGER = CoreInsert([1, 2, 3, 4, 5], track_adopted_ranges=True)
LEAF = "live:0"
WALK: list[AnyOp] = [WalkStart(9), WalkNext(), EvictLeaf()]

BROKEN: list[tuple[str, Fault, list[AnyOp], str]] = [
    (
        "a match one page short",
        answers("match_prefix", device_prefix_len=lambda result: result.device_prefix_len - 1),
        [FOUR, CoreMatch([1, 2, 3, 4])],
        "device_prefix_len of a match is 3, must be 4",
    ),
    (
        "a match longer than what was inserted",
        answers("match_prefix", device_prefix_len=lambda result: result.device_prefix_len + 1),
        [CoreMatch([1])],
        "device_prefix_len of a match is 1, must be 0",
    ),
    (
        "a hit count of another length",
        answers("match_prefix", full_kv_hit_length=lambda result: 0),
        [FOUR, CoreMatch([1])],
        "full_kv_hit_length of a match is 0, must be 1",
    ),
    (
        "a host hit without a host tier",
        answers("match_prefix", host_hit_length=lambda result: 1),
        [FOUR, CoreMatch([1])],
        "host_hit_length of a match is 1, must be 0",
    ),
    (
        "a match that names another node",
        lambda core: answers("match_prefix", last_host_node=lambda _: core.root_node_handle())(
            core
        ),
        [FOUR, CoreMatch([1, 2])],
        "the node of a prefix of 0 units is that of one of 2 units",
    ),
    (
        "a key of another namespace",
        blind_to_salts,
        [FOUR, CoreMatch([1, 2], Namespace(None, "salt"))],
        "device_prefix_len of a match is 2, must be 0",
    ),
    (
        "a page lost at a split",
        lost_at_a_split,
        [FOUR, CoreMatch([1, 2]), CoreMatch([1, 2, 3])],
        "device_prefix_len of a match is 2, must be 3",
    ),
    (
        "a handle that a split moved",
        swapped_by_a_split,
        [FOUR, CoreMatch([1, 2])],
        "the node of a prefix of 2 units is that of one of 4 units",
    ),
    (
        "a device match that stops early",
        returns("match_full_device_prefix", lambda told: (told[0] - 1, told[1], told[2])),
        [FOUR, CoreMatch([1, 2], device_only=True)],
        "matched length on the device is 1, must be 2",
    ),
    (
        "a node that ends above what it matches",
        returns("match_full_device_prefix", lambda told: (told[0], told[1], told[0] - 1)),
        [FOUR, CoreMatch([1, 2], device_only=True)],
        "a node that ends at 1 units matches 2",
    ),
    (
        "slots of a path in another order",
        returns("collect_full_device_indices", lambda slots: slots.flip(0)),
        [FOUR, CoreMatch([1, 2, 3, 4])],
        "a path has slots [4, 3, 2, 1], must have [1, 2, 3, 4]",
    ),
    (
        "a path that ends elsewhere",
        returns(
            "collect_path_info",
            path_with(path_end=lambda info: info.path_end - 1, num_children=lambda info: 1),
        ),
        [FOUR, Ask("path", [LEAF])],
        "the node of a prefix of 3 units is that of one of 4 units",
    ),
    (
        "children that are none",
        returns("collect_path_info", path_with(num_children=lambda info: 5)),
        [FOUR, Ask("path", [LEAF])],
        "num_children of a node is 5, must be 0",
    ),
    (
        "a node with slots of another one",
        returns("get_component_device_value", lambda slots: slots + 1),
        [FOUR, Ask("predicates", [LEAF])],
        "a node has slots [2, 3, 4, 5], which are not those of its prefix",
    ),
    (
        "a node of another rotation",
        returns("rotation_base_of", lambda base: 7),
        [FOUR, Ask("rotation", [LEAF])],
        "rotation base of a node is 7, must be None",
    ),
    (
        "a tree without its last slot",
        returns("all_values_flatten", lambda slots: slots[:-1]),
        [FOUR],
        "number of slots in the tree is 3, must be 4",
    ),
    (
        "a tree with a slot of nobody",
        returns("all_values_flatten", lambda slots: torch.cat([slots[:-1], slots[-1:] + 9])),
        [FOUR],
        "the tree has slots [13], which no prefix has",
    ),
    (
        "an insert that found too little",
        insert_result(prefix_len=lambda result: 0),
        FORK,
        "prefix_len of an insert is 0, must be 2",
    ),
    (
        "an insert that says it declined",
        insert_result(rotation_tail_declined=lambda result: True),
        [FOUR],
        "rotation_tail_declined is True, must be False",
    ),
    (
        "an insert that ends at the root",
        lambda core: insert_result(last_device_node=lambda _: core.root_node_handle())(core),
        [CoreMatch([1]), FOUR],
        "the node of a prefix of 4 units is that of one of 0 units",
    ),
    (
        "an insert that ends nowhere",
        insert_result(last_device_node=lambda result: None),
        [FOUR],
        "the node of a prefix of 4 units is that of nothing",
    ),
    (
        "a wrong range taken over",
        insert_result(adopted_ranges=lambda result: {FULL: [(0, 5)]}),
        [FOUR, LONGER],
        "adopted_ranges of an insert is",
    ),
    (
        "duplicates that are kept",
        insert_actions(lambda actions: []),
        FORK,
        "number of slots that an insert frees is 0, must be 2",
    ),
    (
        "duplicates of the tree",
        insert_actions(foreign_slots),
        FORK,
        "an insert frees [6, 5], must free [5, 6]",
    ),
    (
        "duplicates freed by halves",
        insert_actions(other_type),
        FORK,
        "an insert frees [5, 6] by FreeDeviceKVFullOnly",
    ),
    (
        "a lock that moves too much",
        returns("inc_lock_ref", lambda told: msgspec.structs.replace(told, delta=9)),
        [FOUR, Lock(LEAF)],
        "delta of a lock is 9, must be 4",
    ),
    (
        "a ledger that misses a unit",
        returns("component_evictable_size", lambda size: max(size - 1, 0)),
        [FOUR],
        "evictable and protected size is 3, must be 4",
    ),
    (
        "ledgers that are crossed",
        lambda core: (
            returns("component_evictable_size", lambda size: size - 1)(core),
            returns("component_protected_size", lambda size: size + 1)(core),
        ),
        [FOUR],
        "protected size is 1, must be 0",
    ),
    (
        "an offer of what is locked",
        offers_the_locked,
        [FOUR, Lock(LEAF), WalkStart(9), WalkNext()],
        "a walk offers a prefix of 4 units, resident, locked, 0 pages following",
    ),
    (
        "slots given back that are locked",
        evicts_the_locked,
        [FOUR, Pin(LEAF), EvictLeaf(LEAF)],
        "an eviction frees the last page of a prefix of 4 units, resident, locked, 0 pages",
    ),
    (
        "slots given back that others follow",
        evicts_the_locked,
        [FOUR, CoreMatch([1, 2]), EvictLeaf("live:1")],
        "an eviction frees the last page of a prefix of 2 units, resident, 1 pages following",
    ),
    (
        "slots given back in another order",
        answers("evict_device_leaf", device_frees=reversed_frees),
        [FOUR, *WALK],
        "an eviction frees the last page of a prefix of 1 units, resident, 1 pages following",
    ),
    (
        "slots given back that nobody has",
        answers("evict_device_leaf", device_frees=lambda _: {FULL: [torch.arange(50, 54)]}),
        [FOUR, *WALK],
        "an eviction frees slots [50, 51, 52, 53], which are no part of a prefix",
    ),
    (
        "slots that are not given back",
        answers("evict_device_leaf", device_frees=no_frees, tracker=lambda _: {FULL: 0}),
        [FOUR, *WALK],
        "an eviction kept a prefix of 4 units",
    ),
    (
        "a count of evictions that is wrong",
        answers("evict_device_leaf", tracker=lambda _: {FULL: 1}),
        [FOUR, *WALK],
        "tracker of an eviction is 1, must be 4",
    ),
    (
        "an offer beyond the quota",
        ignored_quota,
        [FOUR, CoreInsert([7, 8]), Evict(1)],
        "a walk for 1 units offers more after",
    ),
    (
        "a walk that ends early",
        nothing_to_offer,
        [FOUR, Evict(2)],
        "a walk ends after 0 units, although 4 can be evicted",
    ),
]


@pytest.mark.parametrize(
    ("fault", "trace", "message"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN]
)
def test_the_model_finds(fault: Fault, trace: list[AnyOp], message: str) -> None:
    assert judge(sound, trace) == []
    (told,) = judge(fault, trace)
    assert told.startswith(message)


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
