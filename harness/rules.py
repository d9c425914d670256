"""The rule of the spec that decides about a divergence, told by where the sides part.

`rule_patterns` is read from top to bottom, the most specific first; what the rules say is in
`rule_texts`. A rule says what is right; it does not say which side is wrong.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

import msgspec

from .compare import STRUCTS, Divergence
from .rule_pattern import Pattern
from .rule_patterns import PATTERNS
from .rule_texts import RULE_TEXTS


class Rule(msgspec.Struct, frozen=True):
    """A rule's number, such as `INS-12`, and what it says in one sentence.

    The text is None for a rule that `rule_texts` leaves out.
    """

    number: str
    text: str | None


def rule_of(divergence: Divergence) -> Rule | None:
    """The rule that decides about a divergence; None if none is known."""
    found = pattern_of(divergence)
    return None if found is None else rule_numbered(found.rule)


def rule_numbered(number: str) -> Rule:
    """The rule of this number, which need not be one of those told here."""
    return Rule(number, RULE_TEXTS.get(number))


def pattern_of(divergence: Divergence) -> Pattern | None:
    """The first pattern that fits a divergence."""
    words = words_of(divergence.left, divergence.right) | component_of(divergence.where)
    return _first(place_of(divergence), divergence.op_kind, frozenset(words))


@lru_cache(maxsize=4096)
def _first(place: str, op_kind: str, words: frozenset[str]) -> Pattern | None:
    fitting = (
        one
        for one in PATTERNS
        if (one.about is None or one.about in words)
        and fnmatchcase(op_kind, one.op)
        and fnmatchcase(place, one.place)
    )
    return next(fitting, None)


def place_of(divergence: Divergence) -> str:
    """Where the sides part, as patterns spell it.

    A call's place is `call.METHOD...` without numbers, a call that one side alone makes is
    `extra.METHOD`, two different calls are `method`; a finding is `oracle.NAME: MESSAGE`. Other
    places stay as they are, without numbers.
    """
    where = divergence.where
    if divergence.kind == "oracle":
        return f"oracle.{where}"
    if divergence.kind != "difference":
        return f"{divergence.kind}.{where}"
    if re.fullmatch(r"calls\[\d+\]\.method", where):
        return "method"
    place = re.sub(r"\[\d+\]", "", re.sub(r"^calls\[\d+\]\.", "call.", where))
    place = re.sub(r"^(call\.\w+)\(\w+\)", r"\1", place)
    return re.sub(r"^calls\.", "extra.", place)


def component_of(where: str) -> set[str]:
    """The component that a call is about, as a word; none for FULL."""
    named = re.match(r"calls\[\d+\]\.\w+\((\w+)\)", where)
    return {named[1]} if named is not None else set()


def words_of(left: Any, right: Any) -> set[str]:
    """What sets two values apart: see `Pattern.about`."""
    ours, theirs = _kinds(left), _kinds(right)
    words = {kind for kind in {*ours, *theirs} if ours.count(kind) != theirs.count(kind)}
    if (left is None) != (right is None):
        words.add("None")
    if isinstance(left, list) and isinstance(right, list) and len(left) != len(right):
        words.add("length")
    return words


def _kinds(item: Any) -> list[str]:
    if isinstance(item, str):
        return [item] if item in STRUCTS else []
    if not isinstance(item, list):
        return []
    if item and isinstance(item[0], str) and item[0] in STRUCTS:
        return [item[0]]
    return [kind for one in item for kind in _kinds(one)]
