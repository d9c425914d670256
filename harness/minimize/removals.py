"""Passes that remove ops: all but a few, chunks, whole kinds, the uses of one thing, single ops.

The first keep few ops and then more: of a long trace, only what is short is tried quickly. All
others go from the end to the start: later ops hang on earlier ones. A single op takes with it what
can't be without it, because references are relinked first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any

from .. import ops
from .base import Base, Pass
from .draft import Candidate, Draft, without
from .keys import has_key
from .runs import shared_length

LAST_KEPT = 8
"""So many of the last ops stay beside those that are kept for their keys."""

PAIRS_MAX = 24
"""Up to so many ops every two of them are removed together."""


def few(base: Base) -> Iterator[Candidate]:
    """A few ops with what they name, then twice as many and so on.

    They are the last ones; the last ones with the first ones, which made what is oldest; the last
    ones with those whose keys share most with the last key of all.
    """
    count = len(base.draft.ops)
    nearest = _nearest(base.draft.ops)
    kept = 1
    while kept < count:
        last = range(count - min(kept, LAST_KEPT), count)
        yield _only(base, range(count - kept, count))
        yield _only(base, [*range(kept), *last])
        if kept <= len(nearest):
            yield _only(base, [*nearest[:kept], *last])
        kept *= 2


def _nearest(steps: list[ops.AnyOp]) -> list[int]:
    """The ops with a key of the last key's namespace, those that share most of it first."""
    keyed = [number for number, op in enumerate(steps) if has_key(op)]
    if not keyed:
        return []
    last: Any = steps[keyed.pop()]
    near = {
        number: shared_length(op, last)
        for number in keyed
        if getattr(op := steps[number], "namespace", None) == last.namespace
    }
    return sorted(near, key=lambda number: (-near[number], -number))


def _only(base: Base, kept: Iterable[int]) -> Candidate:
    """The draft with some of its ops alone, and with those that made what they name."""
    links = base.links
    needed, asked = set(), list(kept)
    while asked:
        number = asked.pop()
        if number not in needed:
            needed.add(number)
            if links is not None:
                makers = (one.thing[1] for one in links.references[number].values())
                asked += [maker for maker in makers if isinstance(maker, int)]
    return without(base.draft, set(range(len(base.draft.ops))) - needed)


def of_a_kind(base: Base) -> Iterator[Candidate]:
    """All ops of one kind, the most frequent first; the last op of the trace stays."""
    steps = base.draft.ops
    for kind, count in Counter(map(ops.kind_of, steps[:-1])).most_common():
        if count > 1:
            of_it = {number for number, op in enumerate(steps[:-1]) if ops.kind_of(op) == kind}
            yield without(base.draft, of_it)


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
