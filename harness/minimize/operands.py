"""Passes over operands other than tokens: each to its default, or to a smaller number.

Equal operands of several ops are changed together first, because often only that keeps them in
step; then each alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from .. import ops
from .base import Base
from .draft import Candidate, changed, cost_of, fields_of, replaced, simpler_numbers
from .things import node_refs

NAMELESS = ("tokens", "runs", "method", "flag", "about")
"""Operands that other passes lower, or that say what an op is about and have no simpler value."""

PLAIN_NAME = "a"
"""What a namespace is called when its name does not matter."""

LIVE_MAX = 6
"""So many of the oldest handles are tried in place of a reference."""


def together(base: Base) -> Iterator[Candidate]:
    """An operand that several ops have in common, changed in all of them."""
    groups: dict[tuple[str, str], list[int]] = {}
    for number, op in enumerate(base.draft.ops):
        for field, value, default in _set_operands(op):
            if value != default:
                groups.setdefault((field, repr(value)), []).append(number)
    for (field, _), members in groups.items():
        if len(members) < 2:
            continue
        first = base.draft.ops[members[0]]
        default = dict(fields_of(type(first)))[field]
        for simpler in simpler_values(getattr(first, field), default):
            new = {
                number: replaced(base.draft.ops[number], **{field: simpler}) for number in members
            }
            yield changed(base.draft, new)


def each(base: Base) -> Iterator[Candidate]:
    """Every operand of every op; all that have a default at once, then one by one."""
    for number in reversed(range(len(base.draft.ops))):
        op: Any = base.draft.ops[number]
        plain = {
            field: default
            for field, value, default in _set_operands(op)
            if default is not msgspec.NODEFAULT and value != default
        }
        if len(plain) > 1:
            yield changed(base.draft, {number: replaced(op, **plain)})
        for field, value, default in _set_operands(op):
            for simpler in simpler_values(value, default):
                yield changed(base.draft, {number: replaced(op, **{field: simpler})})


def answers(base: Base) -> Iterator[Candidate]:
    """Answers that no op names are not kept, the others numbered as they appear."""
    named = {ref for op in base.draft.ops for _, ref in node_refs(op)}
    numbers: dict[int, int] = {}
    new: dict[int, ops.AnyOp] = {}
    every: list[Any] = base.draft.ops
    for number, op in enumerate(every):
        changes: dict[str, Any] = {}
        answer = getattr(op, "answer", None)
        if answer is not None:
            is_named = f"answer:{answer}" in named
            changes["answer"] = numbers.setdefault(answer, len(numbers)) if is_named else None
        for (field, place), ref in node_refs(op):
            kind, _, old = ref.partition(":")
            if kind == "answer":
                spelled = f"answer:{numbers.setdefault(int(old), len(numbers))}"
                if field == "nodes":
                    changes.setdefault(field, list(op.nodes))[place] = spelled
                else:
                    changes[field] = spelled
        if changes:
            new[number] = replaced(op, **changes)
    if new:
        yield changed(base.draft, new)


def _set_operands(op: ops.AnyOp) -> Iterator[tuple[str, Any, Any]]:
    """Operands that are not as simple as they can be: field, value and default."""
    for field, default in fields_of(type(op)):
        value = getattr(op, field)
        if field not in NAMELESS and (value != default or cost_of(value)):
            yield field, value, default


def simpler_values(value: Any, default: Any) -> Iterator[Any]:
    """What to try in place of a value, the simplest first."""
    if default is not msgspec.NODEFAULT and value != default:
        yield default
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int):
        yield from (other for other in simpler_numbers(value) if other != default)
    elif isinstance(value, ops.Namespace):
        if value.extra_key is not None and value.cache_salt is not None:
            yield ops.Namespace(value.extra_key)
            yield ops.Namespace(None, value.cache_salt)
        yield ops.Namespace(value.extra_key and PLAIN_NAME, value.cache_salt and PLAIN_NAME)
    elif isinstance(value, list):
        yield from _simpler_lists(value)
    elif isinstance(value, str):
        yield from (other for other in _simpler_texts(value) if other != default)


def _simpler_lists(value: list[Any]) -> Iterator[list[Any]]:
    """Lists of nodes, components or blocks with one element less, or with a simpler one."""
    if len(value) > 2:
        yield value[: len(value) // 2]
    for index in reversed(range(len(value))):
        yield value[:index] + value[index + 1 :]
    for index, item in enumerate(value):
        for simpler in simpler_values(item, msgspec.NODEFAULT):
            yield [*value[:index], simpler, *value[index + 1 :]]


def _simpler_texts(value: str) -> Iterator[str]:
    """Simpler node references; of any other text there is none."""
    kind, _, number = value.partition(":")
    if kind not in ("live", "stale", "request", "offered", "bogus", "answer"):
        return
    spelled = ["root", *(f"live:{index}" for index in range(LIVE_MAX))]
    if kind == "answer":
        spelled.insert(1, "offered")
    if number and kind != "bogus":
        spelled += [f"{kind}:{other}" for other in simpler_numbers(int(number))]
    limit = cost_of(value)
    yield from dict.fromkeys(other for other in spelled if cost_of(other) < limit)
