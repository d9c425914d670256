"""Steps that break the protocol: only our own cores must answer them alike.

They misuse receipts, handles, walks, inserts and numbers. A good core refuses each one, changes
nothing and goes on.
"""

from __future__ import annotations

from collections.abc import Callable

from treedrift.harness import ops
from treedrift.harness.misuse import MISUSES

from .case import COMPONENTS, LIVE, MAX_I64, STALE, Case
from .core_steps import component

METHODS = tuple(MISUSES)
"""Calls that a misuse can name."""

WHOLE_METHODS = tuple(name for name in METHODS if ":" not in name)
"""Those whose arguments are good, so that the node or the component decides."""

OF_ONE_METHOD = tuple(
    tuple(name for name in METHODS if name.partition(":")[0] == method)
    for method in dict.fromkeys(name.partition(":")[0] for name in METHODS)
)
"""The same by method, so that those with few calls are not lost among those with many."""

QUESTIONS: tuple[ops.Question, ...] = (
    "path",
    "order",
    "indices",
    "hashes",
    "predicates",
    "snapshot",
)
"""Questions about nodes that every core must refuse for a handle it does not know."""

BOGUS: tuple[ops.NodeRef, ...] = tuple(
    f"bogus:{number}" for number in (-1, 0, 10**9, 2**63, 2**64 - 1, 2**64, -(2**63))
)

VALUES: tuple[ops.ValueKind, ...] = ("none", "short", "float", "flat")
RECEIPTS: tuple[ops.ReceiptKind, ...] = ("released", "foreign", "stripped")
LACKING: tuple[ops.ComponentName, ...] = ("swa", "mamba")
"""What a tree of Full attention alone lacks."""


def lacking(case: Case) -> ops.ComponentName:
    """A component that the tree lacks; any where it lacks none."""
    if not case.auxiliary:
        return case.chance.pick(LACKING)
    names = tuple(name for name in COMPONENTS if name not in case.auxiliary)
    return case.chance.pick(names or COMPONENTS)


def wild_node(case: Case) -> ops.NodeRef:
    """A handle that is dead, was never alive, or is the wrong one."""
    return case.chance.pick((case.chance.pick(BOGUS), case.chance.pick(STALE), case.node()))


def value(case: Case) -> None:
    """An insert whose value is no list of slots."""
    kind = case.chance.pick(VALUES)
    case.ops.append(ops.CoreInsert(case.keys.key(), case.namespace(), value=kind))


def numbers(case: Case) -> None:
    """Lengths, priorities and bases outside their ranges."""
    tokens, pick = case.keys.key(), case.chance.pick
    choices: tuple[ops.AnyOp, ...] = (
        ops.CoreInsert(tokens, raw_prev=pick((-1, -MAX_I64))),
        ops.CoreInsert(tokens, inserted_len=-1),
        ops.CoreInsert(tokens, limit=-1),
        ops.CoreInsert(tokens, priority=pick((MAX_I64 + 1, -MAX_I64 - 1))),
        ops.CoreInsert(tokens, rotation_base=MAX_I64 + 1),
        ops.CoreInsert(tokens, swa_evicted=-1),
        ops.CoreMatch(tokens, limit=-1),
        ops.CoreMatch(tokens, limit=-1, device_only=True),
        ops.HostEvict(-1),
        ops.WalkStart(-1),
        ops.AdjustSize(case.node(), pick((-1, MAX_I64, -MAX_I64 - 1, MAX_I64 + 1))),
    )
    case.ops.append(case.chance.pick(choices))


def second_insert(case: Case) -> None:
    """An insert, or a resume, in the middle of a suspended one or of none."""
    if case.chance.flip(0.7):
        case.ops.append(ops.CoreInsert(case.keys.base(), case.namespace(), suspend=True))
    case.ops.append(
        ops.CoreInsert(case.keys.key(), force=True)
        if case.chance.flip(0.6)
        else ops.CoreResume(force=True)
    )


def receipts(case: Case) -> None:
    """A receipt that is used twice, elsewhere, in part or for a window that is not there."""
    case.ops.append(
        ops.Unlock(
            case.chance.below(6),
            case.chance.flip(0.15),
            case.chance.pick(RECEIPTS),
            case.chance.flip(0.2),
            lacking(case) if case.chance.flip(0.15) else None,
        )
    )


def pins(case: Case) -> None:
    """A pin that nobody holds is released."""
    case.ops.append(ops.Pin(wild_node(case), force=True))


def walks(case: Case) -> None:
    """Steps of walks that are not open, or open already, or of components that are not there."""
    name = lacking(case) if case.chance.flip(0.3) else component(case)
    choices: tuple[ops.AnyOp, ...] = (
        ops.WalkStart(case.amount(), name, force=True),
        ops.WalkNext(name, force=True),
        ops.WalkEnd(name, force=True),
    )
    case.ops.append(case.chance.pick(choices))


def victims(case: Case) -> None:
    """The eviction of a node that is no victim."""
    node = wild_node(case)
    choices: tuple[ops.AnyOp, ...] = (
        ops.EvictLeaf(node),
        ops.EvictLeaf(node, flip_mode=True),
        ops.DropSubtree(node),
        ops.Demote(node),
    )
    case.ops.append(case.chance.pick(choices))


def handles(case: Case) -> None:
    """Calls with handles that were never issued."""
    node, other = case.chance.pick(BOGUS), case.chance.pick(LIVE)
    about = case.chance.pick(QUESTIONS)
    choices: tuple[ops.AnyOp, ...] = (
        ops.Lock(node),
        ops.Lock(node, host=True),
        ops.Pin(node),
        ops.Ask(about, [other, node]),
        ops.Ask("indices", [other, case.chance.pick(LIVE)], flag=True),
        ops.Offload(node),
        ops.MarkStored(node),
        ops.MarkStored(other, node),
        ops.MarkStored(other, case.chance.pick(LIVE)),
        ops.AdjustSize(node, 1),
    )
    case.ops.append(case.chance.pick(choices))


def misuse(case: Case) -> None:
    """A call with a bad argument, or for a component or tier that is not there."""
    chance, node = case.chance, wild_node(case)
    names = chance.pick((WHOLE_METHODS, WHOLE_METHODS, METHODS, chance.pick(OF_ONE_METHOD)))
    if names is WHOLE_METHODS:
        # The calls are good, so most of them are about a node that is there.
        node = chance.pick((case.node(), node))
    case.ops.append(ops.Misuse(chance.pick(names), node, lacking(case)))


HOSTILE_STEPS: dict[str, tuple[float, Callable[[Case], None]]] = {
    "hostile_value": (1.0, value),
    "hostile_numbers": (2.0, numbers),
    "hostile_insert": (1.0, second_insert),
    "hostile_receipts": (1.5, receipts),
    "hostile_pins": (0.7, pins),
    "hostile_walks": (1.0, walks),
    "hostile_victims": (2.0, victims),
    "hostile_handles": (1.5, handles),
    "hostile_misuse": (4.0, misuse),
}
"""Every hostile step with its usual weight."""
