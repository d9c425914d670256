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


def fingerprints(
    tokens: array[int] | torch.Tensor,
    namespace: NamespaceKey,
    offset: int = 0,
    before: int | None = None,
) -> torch.Tensor:
    """The fingerprint of each of `tokens`, which stand at `offset` and after; 1-D int64.

    `before` is the fingerprint of position `offset - 1`; an offset above 0 needs it.
    """
    if (offset > 0) != (before is not None):
        raise ValueError("an offset above 0 and the fingerprint before it belong together")
    ids = tokens if isinstance(tokens, torch.Tensor) else token_tensor(tokens)
    start = namespace_seed(namespace) if before is None else before
    # Shifted, because a product with zero would leave no mark.
    mixed = ids + _TOKEN_START
    multipliers = _multipliers(offset + ids.numel(), ids.device)
    mixed *= multipliers[offset:] if offset else multipliers
    return mixed.cumsum_(0).add_(start)


SHORT = 512
"""Longest sequence, in tokens, whose contents are kept for the next caller."""


def copy_tokens(tokens: array[int], start: int, target: torch.Tensor) -> None:
    """Copy the tokens from `start` on, at least one, to `target`, on whatever device it is."""
    # The view must not outlive the call: an array can't grow while a tensor looks into it.
    target.copy_(torch.frombuffer(tokens, dtype=torch.int64, offset=start * tokens.itemsize))


def contents(
    tokens: array[int], namespace: NamespaceKey, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Fingerprints and tokens of a whole sequence; shared with other callers, so only to read."""
    if len(tokens) <= SHORT:
        return _short_contents(tokens.tobytes(), namespace, device)
    ids = token_tensor(tokens).to(device)
    return fingerprints(ids, namespace), ids


@lru_cache(maxsize=4096)
def _short_contents(
    data: bytes, namespace: NamespaceKey, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    # Sides that run the same ops, and ops that repeat a key, ask for the same contents.
    ids = token_tensor(array("q", data)).to(device)
    return fingerprints(ids, namespace), ids


def token_tensor(tokens: array[int]) -> torch.Tensor:
    """Tokens as a 1-D int64 CPU tensor of its own."""
    if len(tokens) == 0:
        return torch.empty(0, dtype=torch.int64)
    # The copy matters: an array can't grow while a tensor looks into it.
    return torch.frombuffer(tokens, dtype=torch.int64).clone()


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


def _multipliers(count: int, device: torch.device) -> torch.Tensor:
    """The odd multipliers of the positions below `count`."""
    known = _multiplier_cache.get(device)
    if known is None or len(known) < count:
        positions = torch.arange(max(1024, 2 * count), dtype=torch.int64, device=device)
        known = _scramble(positions + _POSITION_START) | 1
        _multiplier_cache[device] = known
    return known[:count]
