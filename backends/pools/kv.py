"""KV buffers whose contents say which token prefix they belong to.

A real pool holds keys and values per layer; this one holds one number per slot, the fingerprint of
the prefix that ends there, which covers its last token too. So a read shows whether a slot still is
what its reader takes it for. Slots are reached by `index_select` and its like, which cost a fifth
of what subscripts do.
"""

from __future__ import annotations

import torch

POISON = -0x2152411021524111
"""Content of a slot that nobody has written since it was last free."""


class KvBuffers:
    """An int64 buffer of `capacity + page_size` slots (POOL-55)."""

    def __init__(
        self, capacity: int, page_size: int = 1, device: torch.device | str = "cpu"
    ) -> None:
        size = (capacity + page_size,)
        self.cells = torch.full(size, POISON, dtype=torch.int64, device=device)

    def write(self, slots: torch.Tensor, fingerprints: torch.Tensor) -> None:
        """Fill slots, pairwise."""
        self.cells.index_copy_(0, slots, fingerprints)

    def holds(self, slots: torch.Tensor, fingerprints: torch.Tensor) -> bool:
        """Whether every slot holds its fingerprint."""
        return torch.equal(self.cells.index_select(0, slots), fingerprints)

    def read(self, slots: torch.Tensor) -> torch.Tensor:
        """Fingerprints in slots, copied."""
        return self.cells.index_select(0, slots)

    def poison(self, slots: torch.Tensor) -> None:
        """Make slots unreadable, so that whoever still reads them shows."""
        self.cells.index_fill_(0, slots, POISON)

    def clear(self) -> None:
        """Poison everything."""
        self.cells.fill_(POISON)
