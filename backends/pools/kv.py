"""KV buffers whose contents say which token prefix they belong to.

A real pool holds keys and values per layer; this one holds one layer, where the K row of a slot is
the fingerprint of the prefix that ends there and the V row is the token. So a read shows whether
a slot still is what its reader takes it for. Rows are reached by `index_select` and its like, which
cost a fifth of what subscripts do.
"""

from __future__ import annotations

import torch

POISON = -0x2152411021524111
"""Content of a slot that nobody has written since it was last free."""


class KvBuffers:
    """Two int64 buffers of `capacity + page_size` rows (POOL-55)."""

    def __init__(
        self, capacity: int, page_size: int = 1, device: torch.device | str = "cpu"
    ) -> None:
        rows = capacity + page_size
        self.k = torch.full((rows,), POISON, dtype=torch.int64, device=device)
        self.v = torch.full((rows,), POISON, dtype=torch.int64, device=device)

    def write(self, slots: torch.Tensor, fingerprints: torch.Tensor, tokens: torch.Tensor) -> None:
        """Fill slots, pairwise."""
        self.k.index_copy_(0, slots, fingerprints)
        self.v.index_copy_(0, slots, tokens)

    def holds(self, slots: torch.Tensor, fingerprints: torch.Tensor) -> bool:
        """Whether every slot holds its fingerprint.

        The tokens need no look of their own: a fingerprint covers its token, and both are only
        ever written together.
        """
        return torch.equal(self.k.index_select(0, slots), fingerprints)

    def read(self, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Fingerprints and tokens of slots, copied."""
        return self.k.index_select(0, slots), self.v.index_select(0, slots)

    def poison(self, slots: torch.Tensor) -> None:
        """Make slots unreadable, so that whoever still reads them shows."""
        self.k.index_fill_(0, slots, POISON)
        self.v.index_fill_(0, slots, POISON)

    def clear(self) -> None:
        """Poison everything."""
        self.k.fill_(POISON)
        self.v.fill_(POISON)
