"""Fingerprints of token prefixes: what a KV slot stands for, as one number.

Position `i` of a sequence gets a 64-bit number that depends on the namespace and on every token
from 0 to `i`. It is a seed plus a running sum of tokens, each times the odd multiplier of its
position, so a longer sequence continues where a shorter one stopped.
"""

from __future__ import annotations

import hashlib
from array import array
from functools import lru_cache

import torch

NamespaceKey = tuple[str | None, str | None]
"""An extra key and a cache salt (KEY-25)."""

_SCRAMBLE_FIRST = -0x61C8864680B583EB
_SCRAMBLE_SECOND = -0x4B47D0C5A6F5C0D7
_TOKEN_START = 0x1B873593CC9E2D51
_POSITION_START = 0x2545F4914F6CDD1D

_multiplier_cache: dict[torch.device, torch.Tensor] = {}


def fingerprints(tokens: array[int], namespace: NamespaceKey) -> torch.Tensor:
    """The fingerprint of each of `tokens`; 1-D int64 on the CPU, the caller's own."""
    row = torch.empty(len(tokens), dtype=torch.int64)
    extend_fingerprints(row, tokens, namespace, 0)
    return row


def extend_fingerprints(
    row: torch.Tensor, tokens: array[int], namespace: NamespaceKey, start: int
) -> None:
    """Write the fingerprints of `tokens[start:]` to their places in `row`.

    `row` is 1-D int64, at least as long as `tokens`, and holds those of the first `start` tokens.
    """
    end = len(tokens)
    if start >= end:
        return
    before = int(row[start - 1].item()) if start else namespace_seed(namespace)
    target = row[start:end]
    # The view must not outlive the call: an array can't grow while a tensor looks into it.
    ids = torch.frombuffer(tokens, dtype=torch.int64, offset=start * tokens.itemsize)
    if not target.is_cpu:
        ids = ids.to(target.device)
    # Shifted, because a product with zero would leave no mark.
    torch.add(ids, _TOKEN_START, out=target)
    target.mul_(_multipliers(start, end, target.device)).cumsum_(0).add_(before)


SHORT = 512
"""Longest sequence, in tokens, whose fingerprints are kept for the next caller."""


def shared_fingerprints(
    tokens: array[int], namespace: NamespaceKey, device: torch.device
) -> torch.Tensor:
    """Fingerprints of a whole sequence; shared with other callers, so only to read."""
    if len(tokens) <= SHORT:
        return _short_fingerprints(tokens.tobytes(), namespace, device)
    return fingerprints(tokens, namespace).to(device)


@lru_cache(maxsize=4096)
def _short_fingerprints(data: bytes, namespace: NamespaceKey, device: torch.device) -> torch.Tensor:
    # Sides that run the same ops, and ops that repeat a key, ask for the same sequences.
    return fingerprints(array("q", data), namespace).to(device)


@lru_cache(maxsize=4096)
def namespace_seed(namespace: NamespaceKey) -> int:
    """A signed 64-bit number per namespace, the same in every process.

    An empty salt is no salt, an empty extra key is a namespace of its own (KEY-3).
    """
    extra_key, cache_salt = namespace
    digest = hashlib.blake2b(digest_size=8)
    for part in (extra_key, cache_salt or None):
        data = b"" if part is None else part.encode("utf-8", "surrogatepass")
        # The length in front keeps apart texts that run together to the same string.
        digest.update(f"{-1 if part is None else len(data)}:".encode())
        digest.update(data)
    return int.from_bytes(digest.digest(), "little", signed=True)


def _scramble(numbers: torch.Tensor) -> torch.Tensor:
    """Spread every bit of each number over the whole of it, one to one, in place."""
    numbers *= _SCRAMBLE_FIRST
    # The mask makes the shift a logical one, without which the sign bit would be lost.
    numbers ^= (numbers >> 29) & (2**35 - 1)
    numbers *= _SCRAMBLE_SECOND
    numbers ^= (numbers >> 32) & (2**32 - 1)
    return numbers


def _multipliers(start: int, end: int, device: torch.device) -> torch.Tensor:
    """The odd multipliers of the positions from `start` to `end`."""
    known = _multiplier_cache.get(device)
    if known is None or known.numel() < end:
        positions = torch.arange(max(1024, 2 * end), dtype=torch.int64, device=device)
        known = _scramble(positions + _POSITION_START) | 1
        _multiplier_cache[device] = known
    return known[start:end]
