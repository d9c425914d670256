"""All pools of one side, and the one place where a freed slot is poisoned."""

from __future__ import annotations

import torch

from .allocator import FREE, Journal, PagedAllocator, TokenAllocator, make_allocator
from .kv import KvBuffers
from .rows import RequestTable


class Pools:
    """Allocator, request table and KV buffers of one side.

    The allocator reports to this object, whoever frees: it poisons what was freed and passes the
    report on to `journal`, which may be set at any time.
    """

    def __init__(
        self,
        allocator: TokenAllocator | PagedAllocator,
        table: RequestTable,
        kv: KvBuffers,
        journal: Journal | None = None,
    ) -> None:
        self.allocator = allocator
        self.table = table
        self.kv = kv
        self.journal = journal
        allocator.journal = self._note

    def clear(self) -> None:
        """Everything free and poisoned; row contents and generations stay (POOL-10, POOL-47)."""
        self.allocator.clear()
        self.table.clear()
        self.kv.clear()

    def _note(self, kind: str, slots: torch.Tensor) -> None:
        if kind == FREE:
            self.kv.poison(slots)
        if self.journal is not None:
            self.journal(kind, slots)


def make_pools(
    capacity: int,
    rows: int,
    row_length: int,
    page_size: int = 1,
    need_sort: bool = False,
    device: torch.device | str = "cpu",
    journal: Journal | None = None,
) -> Pools:
    """Pools of a size: `capacity` slots, `rows` requests of at most `row_length` tokens."""
    return Pools(
        make_allocator(capacity, page_size, need_sort, device),
        RequestTable(rows, row_length, device),
        KvBuffers(capacity, page_size, device),
        journal,
    )
