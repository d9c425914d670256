"""Passes that remove ops: chunks, the uses of one thing, stretches, single ops and pairs of them.

All go from the end to the start: later ops hang on earlier ones. A single op takes with it what
can't be without it, because references are relinked first.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from .. import ops
from .base import Base, Pass
from .draft import Candidate, Draft, without

PAIRS_MAX = 24
"""Up to so many ops every two of them are removed together."""


def chunks(size: int) -> Pass:
    """The pass that removes runs of so many ops.

    The last op is left out: it is the one that parts the sides, and removing it rarely helps.
    """

    def run(base: Base) -> Iterator[Candidate]:
        last = len(base.draft.ops) - 1
        for end in range(last, 0, -size):
            if end >= size or last >= size:
                yield without(base.draft, set(range(max(0, end - size), end)))

    return run


def uses(base: Base) -> Iterator[Candidate]:
    """All ops that name one thing (a request, a receipt, a node), with its maker and without."""
    links = base.links
    if links is None:
        return
    users: dict[tuple[object, ...], set[int]] = {}
    for number, references in enumerate(links.references):
        for reference in references.values():
            users.setdefault(reference.thing, set()).add(number)
    for thing, named in sorted(users.items(), key=lambda item: -max(item[1])):
        maker = thing[1]
        if isinstance(maker, int) and thing[0] != "node":
            yield without(base.draft, named | {maker})
        if len(named) > 1:
            yield without(base.draft, named)


def stretches(base: Base) -> Iterator[Candidate]:
    """Walks from start to end, and inserts that are suspended with all that goes on meanwhile."""
    for start, end in reversed(list(_stretches(base.draft))):
        inside = range(start, end + 1)
        yield without(base.draft, set(inside))
        yield without(base.draft, set(inside[1:]))
        own = {number for number in inside if isinstance(base.draft.ops[number], _STRETCH_OPS)}
        yield without(base.draft, own)


_WALK_OPS = (ops.WalkStart, ops.WalkNext, ops.WalkEnd, ops.EvictLeaf, ops.DropSubtree)
_INSERT_OPS = (ops.CoreInsert, ops.CoreResume, ops.CoreEnd)
_STRETCH_OPS = (*_WALK_OPS, *_INSERT_OPS)


def _stretches(draft: Draft) -> Iterator[tuple[int, int]]:
    for start, op in enumerate(draft.ops):
        if isinstance(op, ops.WalkStart):
            family: tuple[type[ops.Op], ...] = _WALK_OPS
        elif isinstance(op, ops.CoreInsert) and op.suspend:
            family = _INSERT_OPS
        else:
            continue
        end = start
        for number in range(start + 1, len(draft.ops)):
            other = draft.ops[number]
            if isinstance(other, type(op)):
                break
            if isinstance(other, family):
                end = number
        if end > start:
            yield start, end


def singles(base: Base) -> Iterator[Candidate]:
    """Every op alone."""
    for number in reversed(range(len(base.draft.ops))):
        yield without(base.draft, {number})


def pairs(base: Base) -> Iterator[Candidate]:
    """Every two ops of a short trace."""
    count = len(base.draft.ops)
    if count <= PAIRS_MAX:
        for first, second in combinations(reversed(range(count)), 2):
            yield without(base.draft, {first, second})
