"""Chance from a seed, the same on every machine and with every version of Python.

Only `random.Random.random` is used, the one method whose results the standard library promises to
keep; choices and weights are made from it here.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Generic, TypeVar

T = TypeVar("T")


class Chance:
    """A stream of choices. `real()` is uniform in [0, 1)."""

    __slots__ = ("real",)

    def __init__(self, *seed: object) -> None:
        """The stream of these seeds, which must have a stable `repr`."""
        self.real = random.Random(repr(seed)).random

    def below(self, bound: int) -> int:
        """A number from 0 to `bound - 1`."""
        return int(self.real() * bound)

    def between(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        return low + int(self.real() * (high - low + 1))

    def pick(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[int(self.real() * len(items))]

    def flip(self, probability: float) -> bool:
        """True with that probability."""
        return self.real() < probability

    def weighted(self, items: Sequence[tuple[T, float]]) -> T:
        """One of the items, by weight. Slower than `Wheel`, for choices made once."""
        return Wheel(items).spin(self)


class Wheel(Generic[T]):
    """Items with weights, ready for many choices."""

    __slots__ = ("_bounds", "_items", "_total")

    def __init__(self, items: Sequence[tuple[T, float]]) -> None:
        """Items of weight zero are never chosen; at least one must have a weight."""
        kept = [(item, weight) for item, weight in items if weight > 0]
        self._items = [item for item, _ in kept]
        self._bounds = list(accumulate(weight for _, weight in kept))
        self._total = self._bounds[-1]

    def spin(self, chance: Chance) -> T:
        """One item, by weight."""
        # Rounding may lift the product to the total itself.
        at = bisect_right(self._bounds, chance.real() * self._total)
        return self._items[min(at, len(self._items) - 1)]
