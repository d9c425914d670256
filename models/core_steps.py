"""Steps at the core level that keep the protocol: single calls, and stories of several.

Stories aim at states that single calls seldom reach: deep chains, nodes shattered by splits, a
full pool under pressure, a walk with calls between its steps, an insert suspended at a barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from msgspec.structs import replace

from treedrift.harness import ops

from .case import LIVE, Case

QUESTIONS: tuple[ops.Question, ...] = get_args(ops.Question)


def match(case: Case) -> None:
    """A lookup, sometimes of the device alone or of a capped key."""
    tokens, real = case.keys.key(), case.chance.real()
    limit = case.keys.near_boundary(len(tokens) + 1) if real < 0.12 else None
    case.ops.append(ops.CoreMatch(tokens, case.namespace(), limit, real > 0.85))


def insert(case: Case) -> None:
    """An insert with fresh slots; now and then with every option."""
    tokens = case.keys.key()
    if case.chance.flip(0.6):
        case.ops.append(_plain(case, tokens))
    else:
        case.ops.append(_rich(case, tokens))


def _plain(case: Case, tokens: list[int]) -> ops.CoreInsert:
    return ops.CoreInsert(
        tokens,
        case.namespace(),
        priority=case.priority(),
        session_id=case.session(),
        rotation_base=case.rotation(),
        **case.gone(len(tokens), 0.5),
    )


def _rich(case: Case, tokens: list[int]) -> ops.CoreInsert:
    flip, near, length = case.chance.flip, case.keys.near_boundary, len(tokens)
    owned = near(length) if flip(0.4) else 0
    made = ops.CoreInsert(
        tokens,
        case.namespace(),
        limit=near(length + 1) if flip(0.2) else None,
        owned=owned,
        # What is freed must be whole pages, and never slots that the tree owns itself.
        raw_prev=_pages(case, near(length)) if not owned and flip(0.08) else None,
        inserted_len=near(length) if flip(0.3) else 0,
        priority=None if flip(0.05) else case.priority(),
        session_id=case.session(),
        rotation_base=case.rotation(),
        track_adopted_ranges=flip(0.4),
        swa_evicted=_pages(case, near(length)) if flip(0.15) else 0,
    )
    if case.auxiliary and flip(0.25):
        made.branch = near(length + 1)
    return replace(made, **case.gone(length, 0.7))


def _pages(case: Case, length: int) -> int:
    return length // case.page * case.page


def repeat(case: Case) -> None:
    """The same key again and again, so that hit counts tell nodes apart."""
    tokens, namespace = case.keys.key(), case.namespace()
    case.ops += [
        ops.CoreInsert(tokens, namespace, owned=len(tokens) if case.chance.flip(0.5) else 0)
        for _ in range(case.chance.between(2, 4))
    ]


def chain(case: Case) -> None:
    """A deep path, grown step by step."""
    base, namespace, before = case.keys.base(), case.namespace(), 0
    step = case.page if case.chance.flip(0.6) else case.page * 2
    shift = 1 if case.config.is_bigram else 0
    for end in range(step + shift, len(base) + 1, step):
        case.ops.append(ops.CoreInsert(base[:end], namespace, owned=before))
        before = end
        if case.chance.flip(0.08):
            break


def shatter(case: Case) -> None:
    """One long node, then lookups and inserts that end inside it, then pressure."""
    base, namespace = case.keys.base(), case.namespace()
    case.ops.append(ops.CoreInsert(base, namespace, priority=case.priority()))
    for _ in range(case.chance.between(1, 4)):
        part = base[: case.keys.near_boundary(len(base))]
        if case.chance.flip(0.6):
            case.ops.append(ops.CoreMatch([*part, case.keys.token()], namespace))
        else:
            case.ops.append(_plain(case, part + case.keys.some(case.page)))
    if case.chance.flip(0.5):
        case.ops.append(ops.Evict(*case.shortfalls()))


def burst(case: Case) -> None:
    """The pool fills up, then some of it is taken back, and what is left is looked up."""
    for _ in range(case.chance.between(3, 10)):
        case.ops.append(_plain(case, case.keys.key()))
    case.ops.append(ops.Evict(*case.shortfalls()))
    for _ in range(case.chance.between(0, 3)):
        match(case)


def walk(case: Case) -> None:
    """An eviction walk, step by step, with harmless calls between the steps."""
    real, pick, out = case.chance.real, case.chance.pick, case.ops
    out.append(ops.WalkStart(case.amount() if real() < 0.4 else case.config.capacity))
    for _ in range(case.chance.between(1, 6)):
        out.append(ops.WalkNext(done=case.chance.below(4) if real() < 0.06 else None))
        chosen = real()
        if chosen < 0.75:
            out.append(ops.EvictLeaf())
        elif chosen < 0.85:
            out.append(ops.DropSubtree())
        if real() < 0.3:
            # A lookup refreshes what the walk has ranked already.
            pick((match, match, ask, host_evict))(case)
    if case.hostile and real() < 0.4:
        # Changing the tree inside a walk is where released cores part on purpose.
        pick((insert, lock, shatter))(case)
        out += (ops.WalkNext(), ops.EvictLeaf(), ops.WalkNext())
    if real() < 0.95 or not case.hostile:
        out.append(ops.WalkEnd())


def suspend(case: Case) -> None:
    """Nodes one hit below the threshold, an insert that stops at them, and calls while it waits."""
    real, pick, out = case.chance.real, case.chance.pick, case.ops
    base, namespace = case.keys.base(), case.namespace()
    cuts = sorted({case.keys.near_boundary(len(base)) for _ in range(case.chance.between(1, 3))})
    before = 0
    for cut in cuts:
        hits = max(case.config.write_through_threshold - 1, 1)
        # The nodes above are not counted again, so each waits for its last hit.
        out += [ops.CoreInsert(base[:cut], namespace, inserted_len=before)] * min(hits, 3)
        before = cut
    if real() < 0.4:
        # What failed to be stored is asked for again.
        out += [ops.LinkerAck(False)] * case.chance.between(1, 3)
    out.append(ops.CoreInsert(base + case.keys.some(case.page), namespace, suspend=True))
    for _ in range(case.chance.below(5)):
        pick((match, resume, ask, lock, resume))(case)
    if real() < 0.35:
        out.append(ops.CoreEnd())
    elif real() < 0.6:
        out += (ops.CoreResume(), ops.CoreResume())
    if real() < 0.5:
        out.append(ops.LinkerAck(real() < 0.8))


def resume(case: Case) -> None:
    """One step of a suspended insert."""
    case.ops.append(ops.CoreResume())


def lock(case: Case) -> None:
    """A lock on any node; with many held, a release instead."""
    if case.locks >= 5:
        unlock(case)
        return
    real = case.chance.real()
    skips = skips_of(case.config.components)
    skip = case.chance.pick(skips) if real < (0.2 if case.auxiliary else 0.06) else ()
    case.ops.append(ops.Lock(case.node(), list(skip), real > 0.85))
    case.locks += 1


SKIPPED: tuple[tuple[ops.ComponentName, ...], ...] = (("full",), ("swa", "mamba"), ("mamba",))
"""What a lock may leave out. Full only where it is alone (SWA-V5, MAM-V5)."""

SKIPPED_AUXILIARY: tuple[tuple[ops.ComponentName, ...], ...] = SKIPPED[1:]
"""The same beside others. A state must not stay locked where its window goes (MAM-L14)."""

SKIPPED_OF_TWO = (*SKIPPED_AUXILIARY, ("aux_swa", "mamba"), ("swa", "aux_swa", "mamba"))
"""The same of trees with two windows."""


def skips_of(components: Sequence[str]) -> tuple[tuple[ops.ComponentName, ...], ...]:
    """What a lock may leave out in a tree of these components, besides nothing."""
    if "aux_swa" in components:
        return SKIPPED_OF_TWO
    return SKIPPED_AUXILIARY if len(components) > 1 else SKIPPED


def unlock(case: Case) -> None:
    """A release of any receipt; a lock when none should be held."""
    if not case.locks:
        lock(case)
        return
    case.ops.append(ops.Unlock(case.chance.below(6), case.chance.flip(0.2)))
    case.locks = max(case.locks - 1, 0)


def guarded(case: Case) -> None:
    """A node is locked, split and put under pressure, then released, in any order of release."""
    case.ops.append(ops.Lock(case.chance.pick(LIVE)))
    case.locks += 1
    for _ in range(case.chance.between(1, 3)):
        case.chance.pick((match, insert, shatter, lock))(case)
    case.ops.append(ops.Evict(*case.shortfalls()))
    unlock(case)
    if case.chance.flip(0.5):
        case.ops.append(ops.Evict(*case.shortfalls()))


def pin(case: Case) -> None:
    """A pin, or the release of one."""
    if case.chance.flip(0.5):
        case.ops.append(ops.Pin(case.node()))
    else:
        case.ops.append(ops.Pin(release=case.chance.below(4)))


def host_evict(case: Case) -> None:
    """Pressure on a host tier that is not there."""
    case.ops.append(ops.HostEvict(case.chance.below(4), component(case)))


def component(case: Case) -> ops.ComponentName:
    """One of the tree's components."""
    return case.chance.pick(("full", *case.auxiliary)) if case.auxiliary else "full"


def ask(case: Case) -> None:
    """A question about a few nodes."""
    nodes = [case.node() for _ in range(case.chance.between(1, 4))]
    about = case.chance.pick(QUESTIONS)
    # An end of a path that is no ancestor breaks the protocol.
    flag = case.chance.flip(0.5) and (about != "indices" or case.hostile)
    case.ops.append(ops.Ask(about, nodes, case.chance.below(4), flag))


def backfill(case: Case) -> None:
    """Hashes are filled in."""
    case.ops.append(ops.Backfill())


def adjust_size(case: Case) -> None:
    """A ledger moves up and back."""
    case.ops.append(ops.AdjustSize(case.node(), 1 + case.chance.below(4), component(case)))


def offload(case: Case) -> None:
    """A node goes to the external store."""
    case.ops.append(ops.Offload(case.chance.pick(LIVE)))
    if case.chance.flip(0.4):
        # A split or a second insert while the copy is under way.
        case.chance.pick((match, insert, shatter))(case)
    if case.chance.flip(0.6):
        case.ops.append(ops.LinkerAck(case.chance.flip(0.8)))


def mark_stored(case: Case) -> None:
    """The external store has a path already."""
    case.ops.append(ops.MarkStored(case.node()))


def set_flag(case: Case) -> None:
    """A setting changes between two ops."""
    flag = case.chance.pick(_FLAGS)
    if flag == "write_through_threshold":
        case.ops.append(ops.SetFlag(flag, case.chance.between(1, 4)))
    elif flag == "buffer_only":
        case.ops.append(ops.SetFlag(flag, 1))
    else:
        case.ops.append(ops.SetFlag(flag, case.chance.below(2)))


_FLAGS: tuple[ops.Flag, ...] = (
    "storage",
    "linker",
    "write_back",
    "write_through_threshold",
    "write_through_threshold",
    "buffer_only",
)
