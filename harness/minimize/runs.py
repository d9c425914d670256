"""Passes over runs: stretches of consecutive tokens, with which long keys are written.

Keys that share a prefix share its runs, so a run is shortened in all keys at once, and no key is
ever spelled out before it is short. Then its tokens are spelled, for the other passes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from .. import ops
from .base import Base
from .draft import Candidate, Draft, changed, replaced

SPELLED_TOKENS_MAX = 2048
"""So many tokens in all runs together are spelled out."""

RATIOS = (4096, 1024, 256, 64, 16, 8, 4, 2)
"""By how much all runs are shortened together, the most first."""

Span = tuple[int, int]
"""Tokens from the first number up to the second one, which is left out."""


def runs_of(op: Any) -> list[ops.Run]:
    """The runs of an op; none where it has no such operand."""
    found: list[ops.Run] = getattr(op, "runs", [])
    return found


def has_runs(draft: Draft) -> bool:
    """Whether any key is written with runs."""
    return any(map(runs_of, draft.ops))


# --- Passes -------------------------------------------------------------------------------


def spell_out(base: Base) -> Iterator[Candidate]:
    """The tokens of short keys one by one, numbered as they appear; of long ones smaller runs."""
    draft = base.draft
    if not has_runs(draft):
        return
    if sum(count for op in draft.ops for _, count in runs_of(op)) <= SPELLED_TOKENS_MAX:
        order: dict[int, int] = {}
        spelled = {number: _spelled(op) for number, op in enumerate(draft.ops) if runs_of(op)}
        plain = [spelled.get(number, op) for number, op in enumerate(draft.ops)]
        for op in plain:
            for token in getattr(op, "tokens", ()):
                order.setdefault(token, len(order) + 1)
        yield changed(draft, {number: _renumbered(op, order) for number, op in enumerate(plain)})
        yield changed(draft, spelled)
    yield _moved_down(draft)


def shorten_together(base: Base) -> Iterator[Candidate]:
    """All runs shorter, to whole pages and to fewer; keys part where they parted before."""
    draft = base.draft
    if has_runs(draft):
        for ratio in RATIOS:
            for page in dict.fromkeys((draft.config.page_size, 1)):
                yield changed(draft, _each_shorter(draft, ratio, page))


def shorten(base: Base) -> Iterator[Candidate]:
    """Tokens that the same keys hold, left out of all of them: all, half, a page or one."""
    if has_runs(base.draft):
        page = base.draft.config.page_size
        for start, end in reversed(_pieces(base.draft)):
            for first, last in _cuts(start, end, page):
                yield changed(base.draft, _without(base.draft, first, last))


# --- Parts --------------------------------------------------------------------------------


def scaled_runs(runs: Iterable[ops.Run], ratio: int, page: int = 1) -> list[ops.Run]:
    """Runs with their first tokens alone, in whole pages where they were that long."""
    made = []
    for first, count in runs:
        unit = page if count > page else 1
        made.append((first, -(-count // (ratio * unit)) * unit))
    return made


def _each_shorter(draft: Draft, ratio: int, page: int) -> dict[int, ops.AnyOp]:
    return {
        number: replaced(op, runs=scaled_runs(runs_of(op), ratio, page))
        for number, op in enumerate(draft.ops)
        if runs_of(op)
    }


def _spelled(op: Any) -> Any:
    tokens = [token for first, count in op.runs for token in range(first, first + count)]
    return replaced(op, tokens=op.tokens + tokens, runs=[])


def _renumbered(op: Any, order: dict[int, int]) -> Any:
    tokens = getattr(op, "tokens", None)
    return replaced(op, tokens=[order[token] for token in tokens]) if tokens else op


def _spans(draft: Draft) -> Iterator[Span]:
    for op in draft.ops:
        for token in getattr(op, "tokens", ()):
            yield token, token + 1
        for first, count in runs_of(op):
            yield first, first + count


def _pieces(draft: Draft) -> list[Span]:
    """The tokens of all runs, cut wherever a run of any key begins or ends."""
    spans = list(_spans(draft))
    ends = sorted({end for span in spans for end in span})
    following = dict(zip(ends, ends[1:], strict=False))
    found = set()
    for op in draft.ops:
        for first, count in runs_of(op):
            start = first
            while start < first + count and (start, following[start]) not in found:
                found.add((start, following[start]))
                start = following[start]
    return sorted(found)


def _cuts(start: int, end: int, page: int) -> Iterator[Span]:
    """Parts of a stretch to leave out, the largest first; halves are whole pages."""
    half = (end - start) // 2
    half = start + (half // page * page or half)
    proposals = [(start, end), (half, end), (start + page, end), (start + 1, end)]
    proposals += [(end - page, end), (end - 1, end)]
    yield from dict.fromkeys(
        (first, last) for first, last in proposals if start <= first < last <= end
    )


def _without(draft: Draft, first: int, last: int) -> dict[int, ops.AnyOp]:
    """The ops whose runs hold some of these tokens, without these."""
    new: dict[int, ops.AnyOp] = {}
    for number, op in enumerate(draft.ops):
        if any(start < last and first < start + count for start, count in runs_of(op)):
            new[number] = replaced(op, runs=list(_cut(runs_of(op), first, last)))
    return new


def _cut(runs: Iterable[ops.Run], first: int, last: int) -> Iterator[ops.Run]:
    for start, count in runs:
        end = start + count
        gone = max(0, min(end, last) - max(start, first))
        before = min(max(first - start, 0), count)
        if gone and before and before + gone < count:
            yield start, before
            yield last, end - last
        elif gone < count:
            yield (start if before or not gone else last), count - gone


def _moved_down(draft: Draft) -> Candidate:
    """Small token values in order of appearance, and runs that then go on from one another as one.

    Spans that overlap move together, so that equal tokens stay equal.
    """
    joined: list[list[int]] = []
    for start, end in sorted(set(_spans(draft))):
        if joined and start < joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([start, end])
    owner = {start: place for place, (start, _) in enumerate(joined)}
    starts = sorted(owner)
    bases: dict[int, int] = {}
    following = 1

    def moved(token: int) -> int:
        nonlocal following
        start = starts[bisect_right(starts, token) - 1]
        if start not in bases:
            bases[start] = following
            following += joined[owner[start]][1] - start
        return bases[start] + token - start

    new: dict[int, ops.AnyOp] = {}
    for number, op in enumerate(draft.ops):
        tokens, runs = getattr(op, "tokens", None), runs_of(op)
        if tokens or runs:
            operands: dict[str, Any] = {"tokens": [moved(token) for token in tokens or ()]}
            if runs:
                operands["runs"] = _merged([(moved(first), count) for first, count in runs])
            new[number] = replaced(op, **operands)
    return changed(draft, new)


def _merged(runs: list[ops.Run]) -> list[ops.Run]:
    made: list[ops.Run] = []
    for first, count in runs:
        if made and sum(made[-1]) == first:
            made[-1] = (made[-1][0], made[-1][1] + count)
        else:
            made.append((first, count))
    return made


# --- Nearness -----------------------------------------------------------------------------


def shared_length(one: Any, other: Any) -> int:
    """How many leading tokens two keys have in common."""
    mine, theirs = _key_spans(one), _key_spans(other)
    left, right = next(mine, None), next(theirs, None)
    length = 0
    while left and right and left[0] == right[0]:
        same = min(left[1], right[1])
        length += same
        left = _rest(left, same) or next(mine, None)
        right = _rest(right, same) or next(theirs, None)
    return length


def _rest(run: ops.Run, gone: int) -> ops.Run | None:
    return (run[0] + gone, run[1] - gone) if gone < run[1] else None


def _key_spans(op: Any) -> Iterator[ops.Run]:
    for token in op.tokens:
        yield token, 1
    yield from runs_of(op)
