"""Tokens of request logs, which hold none: every block id and every output gets tokens made up.

The same block id stands for the same tokens in every run, and no two block ids share one. Output
that is invented belongs to one request alone, so that no other request can match it.
"""

from __future__ import annotations

from array import array
from functools import lru_cache

from .ops import BLOCK_TOKENS, Arrive

INVENTED_BASE = 2**31
"""The first invented token; request logs stay below it up to block 2**22."""

INVENTED_STRIDE = 4096
"""Invented tokens that lie next to each other for one request."""

_FAR = 2**40
"""How far apart the strides of one request lie. More than all requests' strides together."""


@lru_cache(maxsize=8192)
def _block(block: int) -> array[int]:
    return array("q", range(block * BLOCK_TOKENS, (block + 1) * BLOCK_TOKENS))


def expand(op: Arrive) -> array[int]:
    """The prompt of a request, in tokens: a copy that the caller owns."""
    tokens = array("q", op.tokens)
    for block in op.blocks:
        tokens.extend(_block(block))
    if op.length is not None:
        del tokens[max(op.length, 0) :]
    return tokens


def invent(serial: int, start: int, count: int) -> array[int]:
    """Tokens `start` to `start + count` of the output that request number `serial` invents."""
    tokens = array("q")
    base = INVENTED_BASE + serial * INVENTED_STRIDE
    position, end = start, start + count
    while position < end:
        stride, offset = divmod(position, INVENTED_STRIDE)
        size = min(end - position, INVENTED_STRIDE - offset)
        first = base + stride * _FAR + offset
        tokens.extend(array("q", range(first, first + size)))
        position += size
    return tokens
