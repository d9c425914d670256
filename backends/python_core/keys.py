"""How a core stores and compares keys: packed tokens, page slots, the first difference.

Tokens are kept as the bytes of native 64-bit integers, so that spans are compared and hashed by
the interpreter's own block operations and never token by token. It hides the difference between
plain and bigram trees: a span of `n` units occupies `n` tokens, or `n + 1` in a bigram tree,
because its last pair needs a closing token (KEY-8).
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from operator import index
from typing import TYPE_CHECKING, NamedTuple

from ..contract import ContractError, InvalidArgumentError, RadixKey
from .arguments import optional_text

if TYPE_CHECKING:
    from .node import Node

TOKEN_BYTES = 8

Namespace = tuple[str | None, str | None]
"""`(extra_key, cache_salt)`; a key without either has the namespace None instead."""

# The byte of a packed token that carries its sign.
_SIGN_BYTE = 7 if memoryview(array("q", [1])).tobytes()[0] == 1 else 0


class PackedKey(NamedTuple):
    """A key as an operation uses it: whole pages only (KEY-21). `length` counts units."""

    tokens: bytes
    length: int
    namespace: Namespace | None


def namespace_of(key: RadixKey) -> Namespace | None:
    """The namespace of a caller's key; `TypeError` if it is not text (KEY-3, BND-25)."""
    extra_key = optional_text(key.extra_key, "extra_key")
    # An empty salt is no salt.
    cache_salt = optional_text(key.cache_salt, "cache_salt") or None
    return None if extra_key is None and cache_salt is None else (extra_key, cache_salt)


class KeyLayout:
    """Converts between units and packed tokens for one page size and kind of tree."""

    __slots__ = ("_closing_bytes", "_page_stride", "is_bigram", "page_bytes", "page_size")

    def __init__(self, page_size: int, is_bigram: bool) -> None:
        """`page_size` is in units and positive."""
        self.page_size = page_size
        self.is_bigram = is_bigram
        self._closing_bytes = TOKEN_BYTES if is_bigram else 0
        self._page_stride = page_size * TOKEN_BYTES
        self.page_bytes = self._page_stride + self._closing_bytes

    def pack(self, key: RadixKey) -> PackedKey:
        """Read the caller's key, which is neither kept nor changed (KEY-21, KEY-24).

        Its own bigram flag is ignored (BND-26). Raises `ContractError` for tokens that are not an
        `array('q')`, `TypeError` for a namespace that is not text, `InvalidArgumentError` for a
        negative limit.
        """
        namespace = namespace_of(key)
        units = self.units(key)
        length = units - units % self.page_size
        return PackedKey(self._packed(key.token_ids, length), length, namespace)

    def units(self, key: RadixKey) -> int:
        """How many units the caller's key has, before it is cut to whole pages.

        Raises what `pack` raises for bad tokens or a bad limit.
        """
        count = self.token_count(key)
        return max(0, count - 1) if self.is_bigram else count

    def token_count(self, key: RadixKey) -> int:
        """How many raw tokens the caller's key has within its limit."""
        tokens = key.token_ids
        if not isinstance(tokens, array) or tokens.typecode != "q":
            raise ContractError("a key's token_ids must be an array('q')")
        count = len(tokens)
        if key.limit is not None:
            limit = index(key.limit)
            if limit < 0:
                raise InvalidArgumentError(f"a key's limit must not be negative, got {limit}")
            count = min(count, limit)
        return count

    def _packed(self, tokens: array[int], length: int) -> bytes:
        if length == 0:
            return b""
        count = length + 1 if self.is_bigram else length
        return (tokens if count == len(tokens) else memoryview(tokens)[:count]).tobytes()

    def span(self, tokens: bytes, start: int, stop: int) -> bytes:
        """The packed tokens of the units `[start, stop)`, for `start < stop`."""
        return tokens[start * TOKEN_BYTES : stop * TOKEN_BYTES + self._closing_bytes]

    def slot(self, tokens: bytes, position: int, namespace: Namespace | None) -> Hashable:
        """The child slot of the page at `position`: its tokens and namespace (KEY-13)."""
        start = position * TOKEN_BYTES
        page = tokens[start : start + self.page_bytes]
        return page if namespace is None else (namespace, page)

    def matched_units(self, node: Node, key: PackedKey, position: int) -> int:
        """Units of `node` that `key` continues with at `position`, in whole pages (KEY-11).

        The caller has found `node` by its slot, so that at least the first page is equal.
        """
        request = key.tokens
        start = position * TOKEN_BYTES
        if request.startswith(node.key, start):
            return node.length
        rest = key.length - position
        # INVARIANT: the first `low` pages are equal and the first `high` pages are not.
        low = 1
        high = (node.length if node.length <= rest else rest + self.page_size) // self.page_size
        while high - low > 1:
            middle = (low + high) // 2
            equal_bytes = low * self._page_stride
            probe = node.key[equal_bytes : middle * self._page_stride + self._closing_bytes]
            if request.startswith(probe, start + equal_bytes):
                low = middle
            else:
                high = middle
        return low * self.page_size


def unpack(tokens: bytes) -> array[int]:
    """The tokens as a fresh `array('q')`."""
    unpacked = array("q")
    unpacked.frombytes(tokens)
    return unpacked


def has_negative_token(tokens: bytes) -> bool:
    """Whether any packed token is negative, and so can't be hashed (KEY-34)."""
    return not tokens[_SIGN_BYTE::TOKEN_BYTES].isascii()
