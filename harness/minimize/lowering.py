"""Passes that tell the same with simpler ops: one call of the core in place of a request's story.

A request that arrives, computes and finishes is, for most faults, an insert of its tokens; one
that only arrives is a match. Each candidate keeps the number of ops or lowers it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import ops, tokens
from .base import Base
from .draft import Candidate, Draft, changed
from .links import RequestState


def stories(base: Base) -> Iterator[Candidate]:
    """A whole request, or the part of it up to one op, as one insert or one match."""
    links = base.links
    if links is None:
        return
    lives: dict[int, list[int]] = {}
    for number, state in links.requests.items():
        lives.setdefault(state.maker, []).append(number)
    for maker, users in sorted(lives.items(), reverse=True):
        members = sorted({maker, *users})
        if len(members) < 2:
            continue
        for place in (members[-1], maker):
            for op in _as_core_ops(links.requests[members[-1]]):
                yield _told_as(base.draft, members, place, op)
        for cut in range(len(members) - 1, 1, -1):
            for op in _as_core_ops(links.requests[members[cut - 1]]):
                yield _told_as(base.draft, members[:cut], members[cut - 1], op)


def _as_core_ops(state: RequestState) -> Iterator[ops.AnyOp]:
    computed = state.tokens[: state.computed_len]
    if computed:
        yield ops.CoreInsert(computed, state.namespace)
    if len(computed) != len(state.tokens):
        yield ops.CoreInsert(state.tokens, state.namespace)
    yield ops.CoreMatch(state.tokens, state.namespace)


def _told_as(draft: Draft, members: list[int], place: int, op: ops.AnyOp) -> Candidate:
    gone = set(members) - {place}
    origins = [number for number in range(len(draft.ops)) if number not in gone]
    rest = [op if number == place else draft.ops[number] for number in origins]
    return Candidate(Draft(draft.config, rest), origins, relinked_first=True)


def kinds(base: Base) -> Iterator[Candidate]:
    """Each op as one of a simpler kind."""
    for number in reversed(range(len(base.draft.ops))):
        op = base.draft.ops[number]
        for other in (*_simpler(op), *_of_its_request(base, number)):
            yield changed(base.draft, {number: other})


def _of_its_request(base: Base, number: int) -> Iterator[ops.AnyOp]:
    """What an op does for its request, as an insert, a match or plain pressure."""
    links = base.links
    state = None if links is None else links.requests.get(number)
    if state is not None:
        yield from _as_core_ops(state)
        yield ops.Evict(max(1, len(state.tokens)))
        yield ops.Evict(1)


def _simpler(op: Any) -> Iterator[ops.AnyOp]:
    match op:
        case ops.Arrive():
            prompt = tokens.expand(op).tolist()
            yield ops.CoreMatch(prompt, op.namespace)
            yield ops.CoreInsert(
                prompt,
                op.namespace,
                priority=op.priority,
                session_id=op.session_id,
                rotation_base=op.rotation_base,
            )
        case ops.CoreInsert():
            yield ops.CoreMatch(op.tokens, op.namespace, runs=op.runs, answer=op.answer)
        case ops.Touch():
            yield ops.CoreMatch(op.tokens, op.namespace)
        case ops.Checkpoint(request=request) | ops.Retract(request=request):
            yield ops.Abort(request)
            yield ops.Finish(request)
        case ops.Finish(request=request):
            yield ops.Abort(request)
        case ops.EvictForAlloc(count=count, window=window, states=states):
            yield ops.Evict(count, window, states)
        case ops.WalkStart(count=count, component=component):
            yield _pressure(component, count)
        case ops.WalkNext(component=component):
            yield _pressure(component, 1)
        case ops.EvictLeaf() | ops.DropSubtree():
            yield ops.Evict(1)
        case ops.AttachWindow():
            yield ops.CoreMatch(op.tokens, op.namespace)
            yield ops.WindowRanges(op.tokens, op.start, op.end, op.namespace, op.component)
        case ops.WindowRanges():
            yield ops.CoreMatch(op.tokens, op.namespace)
        case ops.EarlyRelease(request=request):
            yield ops.Abort(request)
        case ops.ReleaseWindow(lock=lock) if op.receipt == "own" and not op.force:
            yield ops.Unlock(lock)
        case ops.Pin(node=node) if op.release is None:
            yield ops.Lock(node)
        case ops.Offload(node=node):
            yield ops.Lock(node)


def _pressure(component: ops.ComponentName, count: int) -> ops.Evict:
    """An eviction of as much of one component; nothing but that of FULL for another window."""
    if component == "swa":
        return ops.Evict(0, window=count)
    return ops.Evict(0, states=count) if component == "mamba" else ops.Evict(count)
