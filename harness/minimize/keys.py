"""Passes over tokens. Prefixes that ops share stay shared: they are cut in all of these at once.

The keys of a trace form a tree of their own; its segments run from one branching to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from .. import ops
from ..config import Config
from .base import Base
from .draft import Candidate, Draft, changed, replaced
from .runs import runs_of, scaled_runs

MERGES_MAX = 12
"""So many smaller values are tried in place of one token value."""


LENGTHS = (
    "count",
    "length",
    "limit",
    "owned",
    "raw_prev",
    "inserted_len",
    "done",
    "window",
    "swa_evicted",
    "aux_evicted",
    "raw_evicted",
    "branch",
    "start",
    "end",
)
"""Operands that count tokens, where they are numbers."""


class Segment(msgspec.Struct):
    """Tokens from `start` to `end` of every key of the ops `members`: the same in all of them.

    `rank` counts the segments that begin at the same place, from 0.
    """

    start: int
    end: int
    members: list[int]
    rank: int = 0


def has_key(op: ops.AnyOp) -> bool:
    """Whether the tokens of an op are a key of their own, and not a continuation of another."""
    has_tokens = bool(getattr(op, "tokens", None) or runs_of(op))
    return has_tokens and not isinstance(op, ops.Decode)


def segments(draft: Draft) -> list[Segment]:
    """The segments of all keys, parents before children."""
    found: list[Segment] = []
    _split([number for number, op in enumerate(draft.ops) if has_key(op)], 0, draft.ops, found)
    return found


def _split(members: list[int], start: int, all_ops: list[Any], found: list[Segment]) -> None:
    by_token: dict[int, list[int]] = {}
    for number in members:
        tokens = all_ops[number].tokens
        if len(tokens) > start:
            by_token.setdefault(tokens[start], []).append(number)
    for rank, group in enumerate(by_token.values()):
        keys = [all_ops[number].tokens for number in group]
        end = start + 1
        while all(len(key) > end and key[end] == keys[0][end] for key in keys):
            end += 1
        found.append(Segment(start, end, group, rank))
        _split(group, end, all_ops, found)


def shorten_segments(base: Base) -> Iterator[Candidate]:
    """A segment cut out of all keys that hold it: whole, by halves, by a page, by one."""
    page = base.draft.config.page_size
    for segment in segments(base.draft):
        for start, end in _cuts(segment.start, segment.end, page):
            yield changed(base.draft, _cut_out(base.draft, segment.members, start, end))


def _cuts(start: int, end: int, page: int) -> Iterator[tuple[int, int]]:
    """Parts of a stretch to leave out, the largest first."""
    half = (start + end) // 2
    proposals = [(start, end), (half, end), (start, half), (end - page, end), (start, start + page)]
    proposals += [(end - 1, end), (start, start + 1)]
    yield from dict.fromkeys(
        (first, last) for first, last in proposals if start <= first < last <= end
    )


def _cut_out(draft: Draft, members: Iterable[int], start: int, end: int) -> dict[int, ops.AnyOp]:
    new = {}
    for number in members:
        op: Any = draft.ops[number]
        new[number] = replaced(op, tokens=op.tokens[:start] + op.tokens[end:])
    return new


def shorten_keys(base: Base) -> Iterator[Candidate]:
    """The tokens of one op alone cut, from the end and from the start."""
    page = base.draft.config.page_size
    for number in reversed(range(len(base.draft.ops))):
        count = len(getattr(base.draft.ops[number], "tokens", ()))
        for start, end in _cuts(0, count, page):
            yield changed(base.draft, _cut_out(base.draft, [number], start, end))


def shrink_with_pool(base: Base) -> Iterator[Candidate]:
    """Fewer tokens and as many fewer slots: the same pressure with less."""
    config, page = base.draft.config, base.draft.config.page_size
    for segment in segments(base.draft):
        for start, end in _cuts(segment.start, segment.end, page):
            new = _cut_out(base.draft, segment.members, start, end)
            for saved in dict.fromkeys((end - start, (end - start) * len(segment.members))):
                if saved < config.capacity:
                    smaller = msgspec.structs.replace(config, capacity=config.capacity - saved)
                    yield changed(base.draft, new, smaller)


def take_every_second(base: Base) -> Iterator[Candidate]:
    """Half as long keys and pools: every two tokens become one, the same two the same one.

    Of a run, the first half stays.
    """
    yield scaled(base.draft, 2, base.draft.config.page_size)


def scaled(draft: Draft, ratio: int, page_size: int) -> Candidate:
    """Every `ratio` tokens as one, counts and pools divided alike, pages of `page_size`."""
    numbers: dict[tuple[int, ...], int] = {}
    new: dict[int, ops.AnyOp] = {}
    for number, op in enumerate(draft.ops):
        operands: dict[str, Any] = {}
        for field in LENGTHS:
            value = getattr(op, field, None)
            if isinstance(value, int) and value > 1:
                operands[field] = -(-value // ratio)
        tokens = getattr(op, "tokens", [])
        if tokens:
            groups = [tuple(tokens[at : at + ratio]) for at in range(0, len(tokens), ratio)]
            operands["tokens"] = [numbers.setdefault(one, len(numbers) + 1) for one in groups]
        if runs_of(op):
            operands["runs"] = scaled_runs(runs_of(op), ratio)
        if operands:
            new[number] = replaced(op, **operands)
    config = draft.config
    smaller = msgspec.structs.replace(
        config,
        page_size=page_size,
        capacity=max(1, config.capacity // ratio),
        row_length=max(1, -(-config.row_length // ratio)),
        **_scaled_windows(config, ratio),
    )
    return changed(draft, new, smaller)


def _scaled_windows(config: Config, ratio: int) -> dict[str, int]:
    """The settings that count tokens of windows and states, divided alike."""
    found = {}
    fields = ("window", "draft_window", "aux_window", "window_capacity", "state_chunk")
    for field in fields:
        value = getattr(config, field)
        if value is not None and value > 1:
            found[field] = -(-value // ratio)
    return found


# --- Values -------------------------------------------------------------------------------


def rename(base: Base) -> Iterator[Candidate]:
    """Small token values: only branchings differ; or all values numbered as they appear."""
    yield changed(base.draft, _by_branch(base.draft))
    order: dict[int, int] = {}
    for op in base.draft.ops:
        for token in getattr(op, "tokens", ()):
            order.setdefault(token, len(order) + 1)
    yield changed(base.draft, _mapped(base.draft, order))


def _by_branch(draft: Draft) -> dict[int, ops.AnyOp]:
    """Every token becomes the rank of its segment: keys part where they parted before."""
    keys: dict[int, list[int]] = {}
    for segment in segments(draft):
        for number in segment.members:
            keys.setdefault(number, []).extend([segment.rank + 1] * (segment.end - segment.start))
    return {number: replaced(draft.ops[number], tokens=key) for number, key in keys.items()}


def _mapped(draft: Draft, values: dict[int, int]) -> dict[int, ops.AnyOp]:
    new: dict[int, ops.AnyOp] = {}
    for number, op in enumerate(draft.ops):
        tokens = getattr(op, "tokens", [])
        if any(token in values for token in tokens):
            new[number] = replaced(op, tokens=[values.get(token, token) for token in tokens])
    return new


def merge(base: Base) -> Iterator[Candidate]:
    """One token value everywhere as a smaller one, the largest value first."""
    used = {token for op in base.draft.ops for token in getattr(op, "tokens", ())}
    for token in sorted(used, reverse=True):
        for smaller in range(1, min(token, MERGES_MAX + 1)):
            yield changed(base.draft, _mapped(base.draft, {token: smaller}))
        if token < 1:
            yield changed(base.draft, _mapped(base.draft, {token: 1}))


def exchange(base: Base) -> Iterator[Candidate]:
    """The tokens of one op alone changed: all the same, or those of a shorter key."""
    keys = {tuple(op.tokens): None for op in base.draft.ops if isinstance(op, _KEYED) and op.tokens}
    for number, op in enumerate(base.draft.ops):
        tokens = getattr(op, "tokens", None)
        if not tokens or runs_of(op):
            continue
        if max(tokens) > 1:
            new = replaced(op, tokens=[1] * len(tokens))
            yield changed(base.draft, {number: new})
        for key in sorted(keys, key=lambda key: (len(key), key)):
            if len(key) < len(tokens) and has_key(op):
                yield changed(base.draft, {number: replaced(op, tokens=list(key))})


_KEYED = (
    ops.Arrive,
    ops.Touch,
    ops.CoreMatch,
    ops.CoreInsert,
    ops.WindowRanges,
    ops.AttachWindow,
)
