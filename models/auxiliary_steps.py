"""Peaceful core steps about windows and Mamba states: stories, and single calls.

Stories aim at what single calls seldom reach: values that are gone and come back whole, in part or
under a lock; locks that give their window up in any order; chains with more states than a path may
have; walks with calls between their steps.
"""

from __future__ import annotations

from treedrift.harness import ops

from . import core_steps as core
from .case import EVICTED, LIVE, Case
from .keys import Keys

# --- Both -----------------------------------------------------------------------------------


def walk(case: Case) -> None:
    """A walk of windows or states, or two at once, with calls between the steps."""
    chance, out = case.chance, case.ops
    walked = {chance.pick(case.auxiliary)}
    if chance.flip(0.2):
        walked.add(chance.pick(case.auxiliary))
    components = sorted(walked)
    for component in components:
        count = case.amount_of(component) if chance.flip(0.4) else case.config.capacity
        out.append(ops.WalkStart(count, component))
    for _ in range(chance.between(1, 8)):
        done = chance.below(4) if chance.flip(0.06) else None
        out.append(ops.WalkNext(chance.pick(components), done))
        if chance.flip(0.85):
            out.append(ops.EvictLeaf())
        if chance.flip(0.35):
            # What is split, refreshed or added must not lead a walk astray.
            chance.pick((core.match, core.match, core.insert, core.shatter, core.ask))(case)
    if chance.flip(0.1):
        # That ends the walks as well (SWA-E1, MAM-E14).
        out.append(ops.Reset())
        case.running = case.locks = 0
    out += [ops.WalkEnd(component) for component in components]


def store(case: Case) -> None:
    """A value for a node that lacks it."""
    case.ops.append(ops.StoreValue(case.node(), case.chance.pick(case.auxiliary)))


def pressed(case: Case) -> None:
    """A lock that leaves components out, pressure on those, and its release."""
    core.lock(case)
    case.ops.append(ops.Evict(*case.shortfalls()))
    if case.chance.flip(0.5):
        core.insert(case)
    core.unlock(case)


def held_split(case: Case) -> None:
    """Nodes are locked, on the device or the host, and split; then one lock is released."""
    chance, keys, is_host = case.chance, case.keys, case.chance.flip(0.4)
    base, namespace = keys.base(), case.namespace()
    case.ops.append(ops.CoreInsert(base, namespace))
    case.ops += [ops.Lock(chance.pick(LIVE), host=is_host) for _ in range(chance.between(1, 3))]
    for _ in range(chance.between(1, 2)):
        part = base[: keys.near_boundary(len(base))]
        case.ops.append(ops.CoreMatch([*part, keys.token()], namespace))
    case.ops.append(ops.Unlock(chance.below(6), is_host))
    case.locks += 1


# --- Windows --------------------------------------------------------------------------------


def recover(case: Case) -> None:
    """Keys without their window come again with it: whole, in part, in pieces, under a lock."""
    flip, keys, out = case.chance.flip, case.keys, case.ops
    base, namespace = keys.base(), case.namespace()
    _without_window(case, base, namespace)
    is_locked = flip(0.45)
    if is_locked:
        out.append(ops.Lock(case.chance.pick(LIVE)))
        case.locks += 1
    for _ in range(case.chance.between(1, 3)):
        tokens = base + keys.some(case.page) if flip(0.4) else base[: keys.near_boundary(len(base))]
        out.append(
            ops.CoreInsert(
                tokens,
                namespace,
                owned=keys.near_boundary(len(tokens)) if flip(0.4) else 0,
                track_adopted_ranges=flip(0.5),
                **case.gone(len(tokens), 0.6),
            )
        )
    if is_locked and flip(0.6):
        core.unlock(case)
    out.append(ops.CoreMatch(base, namespace))


def _without_window(case: Case, base: list[int], namespace: ops.Namespace) -> None:
    """Put a key into the tree without its window, or without a part; then perhaps shatter it."""
    length = len(base)
    evicted = case.gone(length, 0.5) or {EVICTED[name]: length for name in case.windows}
    case.ops.append(ops.CoreInsert(base, namespace, **evicted))
    for _ in range(case.chance.below(3)):
        part = base[: case.keys.near_boundary(length)]
        case.ops.append(ops.CoreMatch([*part, case.keys.token()], namespace))


def window_locks(case: Case) -> None:
    """Locks at several depths give their window up early, in any order, under pressure."""
    chance, out = case.chance, case.ops
    base, namespace = case.keys.base(), case.namespace()
    for cut in sorted(case.keys.near_boundary(len(base)) for _ in range(chance.between(1, 3))):
        out.append(ops.CoreInsert(base[:cut], namespace))
    for _ in range(chance.between(2, 3)):
        out.append(ops.Lock(chance.pick(LIVE)))
        case.locks += 1
    for _ in range(chance.between(1, 4)):
        chance.pick((release_window, release_window, core.match, core.unlock))(case)
        if chance.flip(0.5):
            out.append(ops.Evict(0, case.amount()))
    if chance.flip(0.4):
        out.append(ops.CoreInsert(base, namespace, **case.gone(len(base), 0.5)))
    for _ in range(chance.below(3)):
        core.unlock(case)


def release_window(case: Case) -> None:
    """A lock gives its window up; a lock when none should be held."""
    if not case.locks:
        core.lock(case)
        return
    # Without the first window's release a state under the second one would stay locked.
    may_part = case.windows[1:] and "mamba" not in case.auxiliary
    window = case.windows[1] if may_part and case.chance.flip(0.5) else None
    case.ops.append(ops.ReleaseWindow(case.chance.below(6), window))


def ranges(case: Case) -> None:
    """Which parts of a key lack their window."""
    tokens, namespace = case.keys.key(), case.namespace()
    if case.chance.flip(0.4):
        tokens = case.keys.some(6 * case.page)
        _without_window(case, tokens, namespace)
    start, end = _span(case.keys, len(tokens))
    whole = case.chance.flip(0.4)
    case.ops.append(
        ops.WindowRanges(
            tokens,
            0 if whole else start,
            None if whole else end,
            namespace,
            case.chance.pick(case.windows),
        )
    )


def _span(keys: Keys, length: int) -> tuple[int, int]:
    first, second = keys.near_boundary(length), keys.near_boundary(length)
    return min(first, second), max(first, second)


def attach(case: Case) -> None:
    """Windows that are missing are loaded, some or in part, and looked up."""
    chance, out = case.chance, case.ops
    # What is in the tree already keeps its window; a sequence of its own goes in without one.
    base = case.keys.base() if chance.flip(0.4) else case.keys.some(6 * case.page)
    namespace = case.namespace()
    if chance.flip(0.8):
        _without_window(case, base, namespace)
    window = chance.pick(case.windows)
    for _ in range(chance.between(1, 3)):
        start, end = (0, None) if chance.flip(0.4) else _span(case.keys, len(base))
        out.append(ops.AttachWindow(base, chance.below(3), start, end, namespace, window))
    if chance.flip(0.6):
        out.append(ops.CoreMatch(base, namespace))
    if chance.flip(0.5):
        out.append(ops.WindowRanges(base, namespace=namespace, component=window))


# --- Mamba states ---------------------------------------------------------------------------


def capped(case: Case) -> None:
    """A path with a state at every step, with forks and locks that the cap must spare."""
    flip, keys, out = case.chance.flip, case.keys, case.ops
    base, namespace, before = keys.base(), case.namespace(), 0
    step = case.page * case.chance.pick((1, 1, 2, 3))
    for end in range(step, len(base) + 1, step):
        out.append(ops.CoreInsert(base[:end], namespace, owned=before))
        before = end
        if flip(0.2):
            out.append(ops.CoreInsert(base[:end] + keys.some(case.page + 1), namespace))
        if flip(0.15):
            out.append(ops.Lock(case.chance.pick(LIVE)))
            case.locks += 1
        if flip(0.1):
            out.append(ops.CoreInsert(base[: keys.near_boundary(end)], namespace))
        if flip(0.08):
            break
    if flip(0.4):
        # States that were given up come back all at once.
        out += [ops.StoreValue(case.chance.pick(LIVE), "mamba") for _ in range(4)]
        out += [ops.CapPath(case.chance.pick(LIVE)) for _ in range(2)]
    if flip(0.5):
        cap_path(case)


def cap_path(case: Case) -> None:
    """The cap is applied to the path of any node."""
    case.ops.append(ops.CapPath(case.node()))


def refill(case: Case) -> None:
    """States go, and their keys come again: a refill, under a lock or not, and then none."""
    flip, out = case.chance.flip, case.ops
    base, namespace = case.keys.base(), case.namespace()
    cuts = [case.keys.near_boundary(len(base)) for _ in range(case.chance.between(1, 3))]
    out += [ops.CoreInsert(base[:cut], namespace) for cut in sorted(cuts)]
    if flip(0.3):
        out.append(ops.Lock(case.chance.pick(LIVE), ["mamba"] if flip(0.5) else []))
        case.locks += 1
    out.append(ops.Evict(0, 0, case.states()))
    if flip(0.4):
        out.append(ops.Lock(case.chance.pick(LIVE)))
        case.locks += 1
    for _ in range(case.chance.between(1, 3)):
        out.append(ops.CoreInsert(base[: case.chance.pick(cuts)], namespace))
    if flip(0.5):
        core.unlock(case)
    out.append(ops.CoreMatch(base, namespace))
