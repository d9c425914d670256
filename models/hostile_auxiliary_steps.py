"""Steps that break the protocols of windows and Mamba states: only our own cores answer alike.

They lock under a walk, give a window up twice or alone, pass lengths, states and values that fit
nothing, and go on with an insert after the tree has changed.
"""

from __future__ import annotations

from collections.abc import Callable

from treedrift.harness import ops

from . import core_steps as core
from .case import LIVE, MAX_I64, Case
from .hostile_steps import RECEIPTS, wild_node

ALL: tuple[ops.ComponentName, ...] = ("full", "swa", "aux_swa", "mamba")


def lock_in_walk(case: Case) -> None:
    """A node is locked between two steps of a walk (SWA-E4, MAM-E16)."""
    chance, out = case.chance, case.ops
    component = chance.pick(case.auxiliary)
    out.append(ops.WalkStart(case.config.capacity, component))
    for _ in range(chance.between(1, 3)):
        if chance.flip(0.5):
            out += (ops.WalkNext(component), ops.EvictLeaf())
        out.append(ops.Lock(chance.pick(LIVE), force=True))
        case.locks += 1
    out += (ops.WalkNext(component), ops.EvictLeaf())
    if chance.flip(0.5):
        core.unlock(case)
        out.append(ops.WalkNext(component))
    if chance.flip(0.7):
        out.append(ops.WalkEnd(component))


def window_receipts(case: Case) -> None:
    """A window is given up twice, by a foreign or torn receipt, or where there is none."""
    chance = case.chance
    if chance.flip(0.5):
        case.ops.append(ops.Lock(chance.pick(LIVE)))
        case.locks += 1
    lock = chance.below(6)
    for _ in range(chance.between(1, 3)):
        window = chance.pick((None, *ALL)) if chance.flip(0.5) else None
        receipt: ops.ReceiptKind = "own" if chance.flip(0.3) else chance.pick(RECEIPTS)
        case.ops.append(ops.ReleaseWindow(lock, window, receipt, force=chance.flip(0.6)))
    if chance.flip(0.4):
        case.ops.append(ops.ReleaseWindow(lock, force=True))
    if chance.flip(0.3):
        case.ops.append(ops.Unlock(lock, skip_swa=chance.flip(0.5)))


def stranded(case: Case) -> None:
    """A state stays locked while its window is not, and the window is to go (MAM-L14)."""
    chance, out = case.chance, case.ops
    node = chance.pick(LIVE)
    if chance.flip(0.5):
        out.append(ops.Lock(node, [chance.pick(case.windows)]))
    else:
        lock = chance.below(max(case.locks, 1))
        out += (ops.Lock(node), ops.ReleaseWindow(lock, chance.pick(case.windows)))
    case.locks += 1
    window = chance.pick(case.windows)
    out.append(ops.WalkStart(case.config.capacity, window))
    for _ in range(chance.between(2, 8)):
        out += (ops.WalkNext(window), ops.EvictLeaf())
    if chance.flip(0.6):
        out.append(ops.WalkEnd(window))
    if chance.flip(0.6):
        core.unlock(case)


def without_full(case: Case) -> None:
    """A window is locked over tokens that are not, and given up: it goes at once (SWA-L14)."""
    if "aux_swa" in case.windows:
        return  # Full must not change below the second window.
    newest = -1
    # A lock of the state would keep the node, too.
    skip: list[ops.ComponentName] = ["full", "mamba"]
    for _ in range(case.chance.between(1, 3)):
        case.ops += (
            ops.CoreInsert(case.keys.base() + case.keys.some(case.page + 1), case.namespace()),
            ops.Lock(case.chance.pick(LIVE), skip, force=True),
        )
        if case.chance.flip(0.2):
            core.match(case)
        case.ops += (ops.ReleaseWindow(newest), ops.Unlock(newest))


def lengths(case: Case) -> None:
    """An evicted length or a branch that is no whole page, negative or far too large."""
    tokens, pick = case.keys.key(), case.chance.pick
    within = case.chance.below(len(tokens) + 2)
    evicted = pick((within, within, -1, MAX_I64, MAX_I64 + 1))
    case.ops.append(
        ops.CoreInsert(
            tokens,
            case.namespace(),
            raw_evicted=evicted,
            branch=pick((None, None, -1, MAX_I64)),
        )
    )


def spans(case: Case) -> None:
    """Ranges and windows between any two positions, whatever is there."""
    tokens, chance = case.keys.key(), case.chance
    ends = (0, -1, chance.below(len(tokens) + 2), case.keys.near_boundary(len(tokens)), MAX_I64)
    start = chance.pick(ends[2:4] if chance.flip(0.8) else ends)
    end = chance.pick(ends)
    component = chance.pick(ALL) if chance.flip(0.2) else chance.pick(case.windows)
    namespace = case.namespace()
    if chance.flip(0.4):
        case.ops.append(ops.WindowRanges(tokens, start, end, namespace, component, raw=True))
    else:
        case.ops.append(ops.AttachWindow(tokens, 0, start, end, namespace, component, raw=True))


def values(case: Case) -> None:
    """A value for a node that has one, for the root, or of another length."""
    chance = case.chance
    node = wild_node(case) if chance.flip(0.3) else case.node()
    component = chance.pick(ALL) if chance.flip(0.4) else chance.pick(case.auxiliary)
    short = chance.flip(0.4)
    force = not short or chance.flip(0.5)
    case.ops.append(ops.StoreValue(node, component, force, short))


def changed(case: Case) -> None:
    """An insert waits, the tree changes under it, and it goes on."""
    chance, out = case.chance, case.ops
    base, namespace = case.keys.base(), case.namespace()
    evicted = case.gone(len(base), 0.5)
    out.append(ops.CoreInsert(base, namespace, suspend=True, **evicted))
    for _ in range(chance.between(1, 3)):
        node = chance.pick(LIVE)
        changes: tuple[ops.AnyOp, ...] = (
            ops.CoreMatch(base[: case.keys.near_boundary(len(base))], namespace),
            ops.EvictLeaf(node),
            ops.DropSubtree(node),
            ops.StoreValue(node, chance.pick(case.auxiliary), force=True),
            ops.Lock(node, force=True),
        )
        out.append(chance.pick(changes))
    out += [ops.CoreResume(force=True)] * chance.between(1, 2)
    if chance.flip(0.5):
        out.append(ops.CoreEnd())


def states(case: Case) -> None:
    """An insert without a Mamba state, or with two (MAM-I5)."""
    kind: ops.StateKind = "none" if case.chance.flip(0.5) else "two"
    case.ops.append(ops.CoreInsert(case.keys.key(), case.namespace(), state=kind))


def caps(case: Case) -> None:
    """The cap of the path to a node that is not there."""
    case.ops.append(ops.CapPath(wild_node(case)))


HOSTILE_AUXILIARY_STEPS: dict[str, tuple[float, Callable[[Case], None]]] = {
    "hostile_lock_in_walk": (1.5, lock_in_walk),
    "hostile_store": (1.5, values),
    "hostile_changes": (1.0, changed),
}
"""Hostile steps of trees with windows or states, with their usual weights."""

HOSTILE_WINDOW_STEPS: dict[str, tuple[float, Callable[[Case], None]]] = {
    "hostile_window_receipts": (2.0, window_receipts),
    "hostile_stranded": (1.0, stranded),
    "hostile_without_full": (0.7, without_full),
    "hostile_lengths": (1.5, lengths),
    "hostile_spans": (1.5, spans),
}
"""Hostile steps of trees with windows."""

HOSTILE_STATE_STEPS: dict[str, tuple[float, Callable[[Case], None]]] = {
    "hostile_states": (1.0, states),
    "hostile_caps": (0.7, caps),
}
"""Hostile steps of trees with Mamba states."""
