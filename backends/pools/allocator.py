"""Device slot allocators: which slot is handed out next, exactly (POOL-6 to POOL-27).

They hide how the free list is kept. Unlike the pools of a server they detect a free of what is
not allocated (POOL-12): it raises `PoolError` and changes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch

from .errors import PoolError
from .ring import Ring

Journal = Callable[[str, torch.Tensor], None]
"""Told `alloc` or `free` and the slots concerned, in the order of the call.

The tensor may change after the report; whoever keeps it copies it.
"""

ALLOC = "alloc"
FREE = "free"

_FREE_MARK = 0
_USED_MARK = 1
_FEW = 32
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class Allocator(ABC):
    """What both allocators share: a free list of units, staged units, and who is out.

    A unit is a slot (page size 1) or a page. Unit 0 is never handed out (POOL-1). `capacity` is
    in slots; a part of it that fills no page is unusable (POOL-19).
    """

    def __init__(
        self,
        capacity: int,
        page_size: int,
        need_sort: bool,
        device: torch.device | str = "cpu",
        journal: Journal | None = None,
    ) -> None:
        self.size = capacity
        self.page_size = page_size
        self.need_sort = need_sort
        self.device = torch.device(device)
        self.journal = journal
        self._units = capacity // page_size
        self._free_units = Ring(self._units, self.device)
        # Positive while a unit is out. A release writes its position in the call, negated, so
        # that a unit that is named twice in one call shows without sorting.
        self._marks = torch.empty(self._units + 1, dtype=torch.int32, device=self.device)
        self.clear()

    def clear(self) -> None:
        """All units free, in ascending order, nothing staged (POOL-10)."""
        ascending = torch.arange(1, self._units + 1, dtype=torch.int64, device=self.device)
        self._free_units.replace(ascending)
        self._staged: list[torch.Tensor] = []
        self._staged_count = 0
        self._marks.fill_(_FREE_MARK)

    def available_size(self) -> int:
        """Slots that can be allocated: free and staged (POOL-6)."""
        return (len(self._free_units) + self._staged_count) * self.page_size

    def free_list(self) -> list[int]:
        """Units in the order in which they will be handed out; staged ones are not among them."""
        units: list[int] = self._free_units.copy().tolist()
        return units

    def staged_list(self) -> list[int]:
        """Units that wait to be merged into the free list (`need_sort`), in order of release."""
        return [unit for batch in self._staged for unit in batch.tolist()]

    def allocated_list(self) -> list[int]:
        """Units that are out, ascending."""
        return [int(unit) for unit in (self._marks == _USED_MARK).nonzero().flatten().tolist()]

    def are_out(self, slots: torch.Tensor) -> torch.Tensor:
        """For each of these slots of the pool, whether its unit is out, as booleans."""
        units = slots if self.page_size == 1 else self._pages_of(slots)
        return self._marks.index_select(0, units) == _USED_MARK

    def _pages_of(self, slots: torch.Tensor) -> torch.Tensor:
        return slots.div(self.page_size, rounding_mode="floor")

    @abstractmethod
    def alloc(self, count: int) -> torch.Tensor | None:
        """`count` slots, 1-D int64, or None with nothing taken (POOL-7)."""

    @abstractmethod
    def free(self, indices: torch.Tensor) -> None:
        """Give slots back. Raises `PoolError` for slots that are not out."""

    @abstractmethod
    def free_segment(self, indices: torch.Tensor, start_pos: int = 0) -> None:
        """Give a run of a row back, which starts at row position `start_pos` (POOL-13)."""

    def free_full_segment(self, indices: torch.Tensor, start_pos: int = 0) -> None:
        """`free_segment`: there is no window side (POOL-13)."""
        self.free_segment(indices, start_pos)

    def _merge(self) -> None:
        """Bring free and staged units into ascending order, if any are staged (POOL-14)."""
        if self._staged:
            everything = torch.cat([self._free_units.copy(), *self._staged])
            self._free_units.replace(everything.sort().values)
            self._staged, self._staged_count = [], 0

    def _take(self, count: int) -> torch.Tensor:
        units = self._free_units.take(count)
        self._marks.index_fill_(0, units, _USED_MARK)
        return units

    def _release(self, units: torch.Tensor) -> None:
        """Check units and put them back. Raises `PoolError` before anything has changed."""
        if self._are_few_and_out(units):
            self._marks.index_fill_(0, units, _FREE_MARK)
        else:
            self._mark_released(units)
        if self.need_sort:
            self._staged.append(units)
            self._staged_count += units.numel()
        else:
            self._put_back(units)

    def _are_few_and_out(self, units: torch.Tensor) -> bool:
        """Whether the units are few and each is out and named once; a quick way to the usual case.

        Whatever it turns down is checked again by tensor operations, which name the fault.
        """
        if units.numel() > _FEW:
            return False
        numbers = units.tolist()
        if not (min(numbers) >= 1 and max(numbers) <= self._units):
            return False
        marks = self._marks.index_select(0, units).tolist()
        return marks.count(_USED_MARK) == len(marks) == len(set(numbers))

    def _mark_released(self, units: torch.Tensor) -> None:
        self._check_out(units)
        order = torch.arange(0, -units.numel(), -1, dtype=torch.int32, device=self.device)
        self._marks.index_copy_(0, units, order)
        found = self._marks.index_select(0, units)
        if not torch.equal(found, order):
            self._marks.index_fill_(0, units, _USED_MARK)
            raise PoolError("slots freed twice in one call", self._slots_of(units[found != order]))

    def _check_out(self, units: torch.Tensor) -> None:
        low, high = torch.aminmax(units)
        if int(low) < 1 or int(high) > self._units:
            outside = units[(units < 1) | (units > self._units)]
            raise PoolError("slots outside the pool freed", self._slots_of(outside))
        marks = self._marks.index_select(0, units)
        if int(marks.min()) != _USED_MARK:
            idle = units[marks != _USED_MARK]
            raise PoolError("slots freed that are not allocated", self._slots_of(idle))

    @abstractmethod
    def _put_back(self, units: torch.Tensor) -> None:
        """Add released units to the free list, where a later allocation finds them."""

    def _slots_of(self, units: torch.Tensor) -> list[int]:
        return [int(unit) * self.page_size for unit in units.tolist()]

    def _indices(self, indices: torch.Tensor) -> torch.Tensor:
        """Freed indices as int64 on this device. Raises `PoolError` for another shape or dtype."""
        if not isinstance(indices, torch.Tensor):
            raise TypeError(f"slots must be a tensor, got {type(indices).__name__}")
        if indices.dim() != 1 or indices.dtype not in _INTEGERS:
            shape = tuple(indices.shape)
            raise PoolError(f"slots must be 1-D integers, got shape {shape}, {indices.dtype}")
        return indices.to(device=self.device, dtype=torch.int64)

    def _note(self, kind: str, indices: torch.Tensor) -> None:
        if self.journal is not None:
            self.journal(kind, indices)


class TokenAllocator(Allocator):
    """Slots one by one: first in, first out, or sorted when it must (POOL-14, POOL-15)."""

    def __init__(
        self,
        capacity: int,
        need_sort: bool = False,
        device: torch.device | str = "cpu",
        journal: Journal | None = None,
    ) -> None:
        super().__init__(capacity, 1, need_sort, device, journal)

    def alloc(self, count: int) -> torch.Tensor | None:
        """The first `count` slots of the free list (POOL-14)."""
        if count > len(self._free_units):
            self._merge()
        if not 0 <= count <= len(self._free_units):
            return None
        slots = self._take(count)
        self._note(ALLOC, slots)
        return slots

    def free(self, indices: torch.Tensor) -> None:
        """Append slots in their order, to the free or to the staged list (POOL-15)."""
        slots = self._indices(indices)
        if slots.numel():
            # A copy, because the caller may write into its tensor while ours is staged.
            slots = slots.clone()
            self._release(slots)
            self._note(FREE, slots)

    def free_segment(self, indices: torch.Tensor, start_pos: int = 0) -> None:
        """`free`: every position starts a page (POOL-13)."""
        self.free(indices)

    def _put_back(self, units: torch.Tensor) -> None:
        self._free_units.push_back(units)


class PagedAllocator(Allocator):
    """Whole pages: last in, first out, or sorted when it must (POOL-19 to POOL-27)."""

    def __init__(
        self,
        capacity: int,
        page_size: int,
        need_sort: bool = False,
        device: torch.device | str = "cpu",
        journal: Journal | None = None,
    ) -> None:
        super().__init__(capacity, page_size, need_sort, device, journal)
        # The slots of every page, a row each: to look them up is one step, to compute them four.
        slots = torch.arange((self._units + 1) * page_size, dtype=torch.int64, device=self.device)
        self._slots_by_page = slots.view(-1, page_size)

    def alloc(self, count: int) -> torch.Tensor | None:
        """The slots of `count // page_size` pages, in list order (POOL-19)."""
        pages = count // self.page_size
        if pages > len(self._free_units):
            self._merge()
        if not 0 <= pages <= len(self._free_units):
            return None
        slots = self._expand(self._take(pages))
        self._note(ALLOC, slots)
        return slots

    def alloc_extend(
        self, prefix_lens: Sequence[int], seq_lens: Sequence[int], last_locs: Sequence[int]
    ) -> torch.Tensor | None:
        """Slots for positions `prefix .. seq - 1` of each request, in batch order (POOL-25).

        `last_locs` holds the slot of the last prefix position, -1 for no prefix. None with nothing
        taken when pages are short.
        """
        extents = list(zip(prefix_lens, seq_lens, last_locs, strict=True))
        # The bound that decides whether to merge is coarser than the true need (POOL-26).
        tokens = sum(seq_lens) - sum(prefix_lens)
        if tokens // self.page_size + len(extents) + 1 > len(self._free_units):
            self._merge()
        needs = [self.pages_between(prefix, seq) for prefix, seq, _ in extents]
        if sum(needs) > len(self._free_units):
            return None
        pages = self._take(sum(needs))
        parts = []
        for (prefix, seq, last), need in zip(extents, needs, strict=True):
            parts.append(self._extend_one(prefix, seq, last, pages[:need]))
            pages = pages[need:]
        slots = parts[0] if len(parts) == 1 else torch.cat(parts) if parts else pages
        self._note(ALLOC, slots)
        return slots

    def alloc_decode(
        self, seq_lens: Sequence[int], last_locs: Sequence[int]
    ) -> torch.Tensor | None:
        """The slot of each request's newest token; `seq_lens` count that token (POOL-27)."""
        if len(seq_lens) > len(self._free_units):
            self._merge()
        opens_page = [seq % self.page_size == 1 for seq in seq_lens]
        if sum(opens_page) > len(self._free_units):
            return None
        pages = iter(self._take(sum(opens_page)).tolist())
        found = [
            next(pages) * self.page_size if opens else last + 1
            for opens, last in zip(opens_page, last_locs, strict=True)
        ]
        slots = torch.tensor(found, dtype=torch.int64, device=self.device)
        self._note(ALLOC, slots)
        return slots

    def pages_between(self, prefix_len: int, seq_len: int) -> int:
        """New pages that growing from `prefix_len` to `seq_len` tokens takes (POOL-25)."""
        return -(-seq_len // self.page_size) - -(-prefix_len // self.page_size)

    def free(self, indices: torch.Tensor) -> None:
        """Free the pages of these slots, each once, ascending (POOL-20)."""
        slots = self._indices(indices)
        if slots.numel():
            self._release(torch.unique(self._pages_of(slots)))
            self._note(FREE, slots)

    def free_segment(self, indices: torch.Tensor, start_pos: int = 0) -> None:
        """Free the pages of a run of a row, in row order; the last one whole (POOL-13, POOL-21).

        Raises `PoolError` for a start inside a page and for slots that fill no pages one by one.
        """
        if start_pos % self.page_size:
            raise PoolError(f"a segment must start at a page, got position {start_pos}")
        slots = self._indices(indices)
        count = slots.numel()
        if count == 0:
            return
        pages = self._pages_of(slots[:: self.page_size])
        run = self._run_of(pages)
        if run.numel() != count:
            run = run[:count]
        if not torch.equal(run, slots):
            raise PoolError("a freed segment is no run of pages", slots[run != slots].tolist())
        self._release(pages)
        self._note(FREE, slots)

    def _extend_one(self, prefix: int, seq: int, last: int, pages: torch.Tensor) -> torch.Tensor:
        in_open_page = min(-prefix % self.page_size, seq - prefix)
        slots = self._expand(pages)[: seq - prefix - in_open_page]
        if not in_open_page:
            return slots
        head = torch.arange(last + 1, last + 1 + in_open_page, device=self.device)
        return torch.cat([head, slots])

    def _expand(self, pages: torch.Tensor) -> torch.Tensor:
        """The slots of pages, page after page."""
        return self._slots_by_page.index_select(0, pages).view(-1)

    def _run_of(self, pages: torch.Tensor) -> torch.Tensor:
        """The slots that these pages would have, whether the pool has such pages or not."""
        low, high = torch.aminmax(pages)
        if int(low) >= 0 and int(high) <= self._units:
            return self._expand(pages)
        offsets = torch.arange(self.page_size, dtype=torch.int64, device=self.device)
        return (pages.unsqueeze(1) * self.page_size + offsets).flatten()

    def _put_back(self, units: torch.Tensor) -> None:
        self._free_units.push_front(units)


def make_allocator(
    capacity: int,
    page_size: int = 1,
    need_sort: bool = False,
    device: torch.device | str = "cpu",
    journal: Journal | None = None,
) -> TokenAllocator | PagedAllocator:
    """The allocator for a page size (POOL-2)."""
    if page_size == 1:
        return TokenAllocator(capacity, need_sort, device, journal)
    return PagedAllocator(capacity, page_size, need_sort, device, journal)
