"""Kinds that look like one fault, under one heading: the same call and field, reached by other ops.

Hides which of them leads: the one with the smallest trace that explains it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from .run import Kind
from .words import headline, listed

OPS_NAMED_MAX = 3
"""Ops named in a heading."""


class Group(msgspec.Struct, kw_only=True):
    """Kinds of one pair that the same call and field, or the same ledger entry, bring together.

    `lead` is told in full, `others` in a line each.
    """

    lead: Kind
    others: list[Kind] = []

    @property
    def kinds(self) -> list[Kind]:
        """All of them, the leading one first."""
        return [self.lead, *self.others]

    @property
    def count(self) -> int:
        """How often any of them was found."""
        return sum(kind.count for kind in self.kinds)

    @property
    def is_known(self) -> bool:
        """Whether the ledger explains them."""
        return self.lead.is_known

    @property
    def headline(self) -> str:
        """What went wrong and in which ops, in one line without values."""
        ops = list(dict.fromkeys(kind.first.op_kind for kind in self.kinds))
        return headline(self.lead.first, listed(ops, OPS_NAMED_MAX))


def groups_of(kinds: Iterable[Kind]) -> list[Group]:
    """Kinds in groups, in the order of the first kind of each."""
    gathered: dict[tuple[object, ...], list[Kind]] = {}
    for kind in kinds:
        gathered.setdefault((kind.pair, kind.is_known, kind.group), []).append(kind)
    groups = []
    for members in gathered.values():
        lead, *others = sorted(members, key=_size)
        groups.append(Group(lead=lead, others=others))
    return groups


def _size(kind: Kind) -> tuple[bool, bool, int]:
    """Small and explained first; what was not shrunk last."""
    shrunk = kind.shrunk
    return kind.explained is None, shrunk is None, 0 if shrunk is None else shrunk.ops_after
