"""Tokens that ops do not spell out: runs of keys, and blocks and outputs of request logs.

Request logs hold no tokens: every block id and every output gets tokens made up. The same block id
stands for the same tokens in every run, and no two block ids share one. Output that is invented
belongs to one request alone, so that no other request can match it.
"""

from __future__ import annotations

import ctypes
from array import array

import torch

from .ops import BLOCK_TOKENS, Arrive, CoreInsert, CoreMatch

INVENTED_BASE = 2**31
"""The first invented token; request logs stay below it up to block 2**22."""

INVENTED_STRIDE = 4096
"""Invented tokens that lie next to each other for one request."""

_FAR = 2**40
"""How far apart the strides of one request lie. More than all requests' strides together."""


_IN_BLOCK = torch.arange(BLOCK_TOKENS)


def key_tokens(op: CoreMatch | CoreInsert) -> array[int]:
    """The whole key of a core op, in tokens, its limit aside: a copy that the caller owns."""
    tokens = array("q", op.tokens)
    for first, count in op.runs:
        if count > 0:
            _append(tokens, torch.arange(count).add_(first))
    return tokens


def key_length(op: CoreMatch | CoreInsert) -> int:
    """How many tokens `key_tokens` gives, without making them."""
    return len(op.tokens) + sum(max(count, 0) for _, count in op.runs)


def _append(tokens: array[int], made: torch.Tensor) -> None:
    """Append an int64 tensor's elements without making Python numbers of them."""
    tokens.frombytes((ctypes.c_char * (8 * made.numel())).from_address(made.data_ptr()))


def expand(op: Arrive) -> array[int]:
    """The prompt of a request, in tokens: a copy that the caller owns."""
    tokens = array("q", op.tokens)
    if op.blocks:
        starts = torch.tensor(op.blocks, dtype=torch.int64) * BLOCK_TOKENS
        _append(tokens, (starts.unsqueeze(1) + _IN_BLOCK).flatten())
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
