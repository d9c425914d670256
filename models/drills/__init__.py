"""Semantic mutants of the Python core: what the harness must catch, and what it is measured by.

A drill is a core of its own, `drill:NAME`, so that pairs, traces and commands take it like others.
"""

from __future__ import annotations

from ...backends.registry import Plugin


class _Family:
    """All drills, as the entry point `drill` of `treedrift.backends` names them."""

    def variants(self) -> list[str]:
        """Names of all drills."""
        return []

    def variant(self, name: str) -> Plugin:
        """The core of one drill."""
        raise KeyError(name)


FAMILY = _Family()
