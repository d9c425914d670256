"""RadixKey: the token sequence that a core is asked about (KEY-1 to KEY-14)."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Unit = int | tuple[int, int]
"""One radix position: a token, or a pair of neighbouring tokens in a bigram key."""


class RadixKey:
    """Tokens plus the namespace they live in.

    `token_ids` is an `array('q')`; `limit` caps the raw tokens as if the array had been cut.
    `len()` counts units: tokens, or overlapping pairs when `is_bigram` (KEY-5).
    """

    __slots__ = ("cache_salt", "extra_key", "is_bigram", "limit", "token_ids")

    def __init__(
        self,
        token_ids: array[int],
        extra_key: str | None = None,
        is_bigram: bool = False,
        limit: int | None = None,
        cache_salt: str | None = None,
    ) -> None:
        self.token_ids = token_ids
        self.extra_key = extra_key
        self.is_bigram = is_bigram
        self.limit = limit
        # An empty salt is no salt, an empty extra key is a namespace of its own (KEY-3).
        self.cache_salt = cache_salt or None

    def _raw_len(self) -> int:
        count = len(self.token_ids)
        return count if self.limit is None else min(self.limit, count)

    def __len__(self) -> int:
        raw = self._raw_len()
        return max(0, raw - 1) if self.is_bigram and raw >= 0 else raw

    def __iter__(self) -> Iterator[Unit]:
        raw = self.raw_token_ids()
        return zip(raw, raw[1:], strict=False) if self.is_bigram else iter(raw)

    def __getitem__(self, index: int | slice) -> RadixKey:
        count = len(self)
        if isinstance(index, slice):
            start, stop, step = index.indices(count)
            if step != 1:
                raise ValueError(f"a RadixKey slice must have step 1, got {step}")
            stop = max(start, stop)
        else:
            start = index + count if index < 0 else index
            if not 0 <= start < count:
                raise IndexError(f"unit {index} is outside a key of {count} units")
            stop = start + 1
        # A bigram slice keeps the token that closes its last pair, an empty one keeps none (KEY-8).
        end = stop + 1 if self.is_bigram and stop > start else stop
        return self._like(self.token_ids[start:end])

    def _like(self, token_ids: array[int]) -> RadixKey:
        return RadixKey(token_ids, self.extra_key, self.is_bigram, None, self.cache_salt)

    def raw_token_ids(self) -> array[int]:
        """The capped tokens: the array itself when nothing is capped, else a copy (KEY-7)."""
        raw = self._raw_len()
        return self.token_ids if raw == len(self.token_ids) else self.token_ids[:raw]

    def page_aligned(self, page_size: int) -> RadixKey:
        """This key cut to whole pages; the same object for page size 1 (KEY-9)."""
        if page_size == 1:
            return self
        return self[: len(self) // page_size * page_size]

    def maybe_to_bigram_view(
        self, is_eagle: bool, value: torch.Tensor | None = None
    ) -> tuple[RadixKey, torch.Tensor | None]:
        """Turn this key into pairs in place if the tree holds pairs, and cut `value` (KEY-10)."""
        if is_eagle and not self.is_bigram:
            self.is_bigram = True
            if value is not None:
                value = value[: len(self)]
        return self, value

    def match(self, other: RadixKey, page_size: int = 1) -> int:
        """Units that this key and `other` share from their starts, in whole pages (KEY-11)."""
        return self.match_at(other, 0, page_size)

    def match_at(self, other: RadixKey, offset: int, page_size: int = 1) -> int:
        """Units of this key that equal those of `other` from `offset`, in whole pages (KEY-11).

        Raises `ValueError` for another namespace or kind of unit and `IndexError` for a bad
        offset (KEY-12).
        """
        for name in ("extra_key", "cache_salt", "is_bigram"):
            if getattr(self, name) != getattr(other, name):
                raise ValueError(
                    f"keys differ in {name}: {getattr(self, name)!r} and {getattr(other, name)!r}"
                )
        if not 0 <= offset <= len(other):
            raise IndexError(f"offset {offset} is outside a key of {len(other)} units")
        if type(self.token_ids) is not type(other.token_ids):
            raise AssertionError("keys hold their tokens in different types")
        mine, theirs = self.raw_token_ids(), other.raw_token_ids()[offset:]
        common = _common_prefix(mine, theirs)
        if self.is_bigram:
            common = min(max(0, common - 1), len(self), len(other) - offset)
        return common // page_size * page_size

    def child_key(self, page_size: int) -> Hashable:
        """`child_key_at(0, page_size)`."""
        return self.child_key_at(0, page_size)

    def child_key_at(self, offset: int, page_size: int) -> Hashable:
        """A hashable value for the page at `offset` within its namespace (KEY-13)."""
        if offset < 0 or offset + page_size > len(self):
            raise IndexError(
                f"no page of {page_size} units at {offset} in a key of {len(self)} units"
            )
        units = tuple(self[offset : offset + page_size])
        page = units[0] if page_size == 1 else units
        if self.cache_salt is not None:
            return ((self.extra_key, self.cache_salt), page)
        return page if self.extra_key is None else (self.extra_key, page)

    def __repr__(self) -> str:
        raw = self.raw_token_ids()
        shown = ", ".join(str(token) for token in raw[:10]) + ("..." if len(raw) > 10 else "")
        return (
            f"RadixKey(extra_key={self.extra_key!r}, cache_salt={self.cache_salt!r}, "
            f"token_ids=[{shown}], is_bigram={self.is_bigram})"
        )


def _common_prefix(left: array[int], right: array[int]) -> int:
    """Length of the longest common prefix, found by halving: each probe is one fast comparison."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low
