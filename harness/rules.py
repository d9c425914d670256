"""The rule of the spec that decides about a divergence."""

from __future__ import annotations

from .compare import Divergence


class Rule:
    number: str
    text: str


def rule_of(divergence: Divergence) -> Rule | None:
    return None
