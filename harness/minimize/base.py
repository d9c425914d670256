"""The draft that a pass starts from, with what its references refer to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

from .draft import Candidate, Draft
from .links import Links, follow


class Base:
    """A draft and, once somebody asks, its links."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft

    @cached_property
    def links(self) -> Links | None:
        """What the draft's references refer to; None where that can't be found out."""
        return follow(self.draft)


Pass = Callable[[Base], Iterator[Candidate]]
"""Candidates that are simpler than a draft in one way, in an order that the search keeps."""
