"""Each statement of the reference model is broken by a spoilt core, and found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch

from tests.harness.spoilt_cores import (
    Fault,
    after,
    answers,
    insert_actions,
    insert_result,
    judge,
    returns,
    sound,
)
from treedrift.backends.contract import (
    BackupKV,
    ComponentType,
    EvictDeviceLeafResult,
    FreeDeviceKV,
    FreeDeviceKVFullOnly,
)
from treedrift.harness.ops import (
    AnyOp,
    Ask,
    CoreInsert,
    CoreMatch,
    Evict,
    EvictLeaf,
    Lock,
    Namespace,
    Pin,
    WalkNext,
    WalkStart,
)

FULL = ComponentType.FULL
FOUR = CoreInsert([1, 2, 3, 4])
FORK: list[AnyOp] = [FOUR, CoreInsert([1, 2, 5, 6])]


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


def names_the_old_root(core: Any) -> None:
    """A match of nothing names the root that was there first."""
    root = core.root_node_handle()
    answers("match_prefix", last_host_node=lambda _: root)(core)


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
        "the node of a prefix of 2 units is that of one of 0 units",
    ),
    (
        "a key of another namespace",
        blind_to_salts,
        [FOUR, CoreMatch([1, 2], Namespace(None, "salt"))],
        "full_kv_hit_length of a match is 2, must be 0",
    ),
    (
        "a page lost at a split",
        lost_at_a_split,
        [FOUR, CoreMatch([1, 2]), CoreMatch([1, 2, 3])],
        "full_kv_hit_length of a match is 2, must be 3",
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
        "an insert does not ask for FreeDeviceKV of slot 5",
    ),
    (
        "duplicates of the tree",
        insert_actions(foreign_slots),
        FORK,
        "an insert asks for FreeDeviceKV of slot 6, must ask for FreeDeviceKV of slot 5",
    ),
    (
        "duplicates freed by halves",
        insert_actions(other_type),
        FORK,
        "an insert asks for FreeDeviceKVFullOnly of slot 5, must ask for FreeDeviceKV of slot 5",
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
        "size of full is 3, must be 4",
    ),
    (
        "ledgers that are crossed",
        lambda core: (
            returns("component_evictable_size", lambda size: size - 1)(core),
            returns("component_protected_size", lambda size: size + 1)(core),
        ),
        [FOUR],
        "protected size of full is 1, must be 0",
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
        "tracker of an eviction for full is 1, must be 4",
    ),
    (
        "a backup that no tier could take",
        answers("evict_device_leaf", backup_kv=lambda _: BackupKV([1])),
        [FOUR, *WALK],
        "an eviction gave back a prefix of 4 units",
    ),
    (
        "tokens that had a backup after all",
        answers("evict_device_leaf", unbacked_tokens=lambda _: 0),
        [FOUR, *WALK],
        "unbacked_tokens of an eviction is 0, must be 4",
    ),
    (
        "an offer that is no progress",
        answers("evict_device_next_node", made_progress=lambda _: False),
        [FOUR, *WALK],
        "made_progress is False, must be True",
    ),
    (
        "a state that a tree without states has",
        insert_result(mamba_exist=lambda _: True),
        [FOUR],
        "mamba_exist of an insert is True, must be False",
    ),
    (
        "a skipped lock that moves something",
        returns("inc_lock_ref", lambda told: msgspec.structs.replace(told, delta=0)),
        [FOUR, Lock(LEAF, ["full"])],
        "delta of a lock is 0, must be None",
    ),
    (
        "the root of before a reset",
        names_the_old_root,
        [CoreMatch([1])],
        "the node of a prefix of 0 units is that of one of 0 units",
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
