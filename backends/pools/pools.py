"""All pools of one side, and the one place where a freed slot is poisoned."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch

from ..contract import ComponentType
from .allocator import FREE, Journal, PagedAllocator, TokenAllocator, make_allocator
from .kv import KvBuffers
from .rows import RequestTable
from .states import StatePool
from .window import WindowPool


class Pools:
    """Allocator, request table and KV buffers of one side, its windows and its states if any.

    Every allocator reports to this object, whoever frees: it poisons what was freed and passes the
    report on to `journal`, which may be set at any time. The kinds of FULL are plain (`alloc`,
    `free`), those of other components carry their name (`swa:alloc`, `mamba:free`).
    """

    def __init__(
        self,
        allocator: TokenAllocator | PagedAllocator,
        table: RequestTable,
        kv: KvBuffers,
        journal: Journal | None = None,
        windows: Mapping[ComponentType, WindowPool] | None = None,
        states: StatePool | None = None,
    ) -> None:
        self.allocator = allocator
        self.table = table
        self.kv = kv
        self.journal = journal
        self.windows = dict(windows or {})
        self.states = states
        allocator.journal = partial(self._note, "", kv)
        for component, window in self.windows.items():
            name = "swa:" if component is ComponentType.SWA else "aux_swa:"
            window.allocator.journal = partial(self._note, name, window.kv)
        if states is not None:
            states.allocator.journal = partial(self._note, "mamba:", states.kv)

    def clear(self) -> None:
        """Everything free and poisoned; row contents and generations stay (POOL-10, POOL-47)."""
        self.allocator.clear()
        self.table.clear()
        self.kv.clear()
        for window in self.windows.values():
            window.clear()
        if self.states is not None:
            self.states.clear()

    def _note(self, prefix: str, kv: KvBuffers, kind: str, slots: torch.Tensor) -> None:
        if kind == FREE:
            kv.poison(slots)
        if self.journal is not None:
            self.journal(prefix + kind, slots)


def make_pools(
    capacity: int,
    rows: int,
    row_length: int,
    page_size: int = 1,
    need_sort: bool = False,
    device: torch.device | str = "cpu",
    journal: Journal | None = None,
    *,
    windows: Mapping[ComponentType, int] | None = None,
    window_ring: bool = False,
    states: int = 0,
) -> Pools:
    """Pools of a size: `capacity` slots, `rows` requests of at most `row_length` tokens.

    `windows` says how many window slots each sliding-window component has, `states` how many
    Mamba states there are, 0 for no pool of them.
    """

    def window(slots: int) -> WindowPool:
        side = make_allocator(slots, page_size, need_sort, device)
        return WindowPool(side, capacity, window_ring)

    return Pools(
        make_allocator(capacity, page_size, need_sort, device),
        RequestTable(rows, row_length, device),
        KvBuffers(capacity, page_size, device),
        journal,
        {component: window(slots) for component, slots in (windows or {}).items()},
        StatePool(states, device) if states else None,
    )
