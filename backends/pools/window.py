"""The window side of a hybrid pool: window slots, and which full slot each belongs to.

Tree and rows speak of full slots only; this pool knows their window peers (POOL-28 to POOL-40). It
hides the mapping between them. Unlike the pools of a server it refuses to free a peer that is not
there, and to lose one (POOL-12, POOL-34): that raises `PoolError` and changes nothing.
"""

from __future__ import annotations

import torch

from .allocator import PagedAllocator, TokenAllocator
from .errors import PoolError
from .kv import KvBuffers

ENDLESS = 2**62
"""Slots that a ring says it has: it never runs short of them."""


class WindowPool:
    """Window slots of one sliding-window component, beside `full_size` full slots.

    `mapping` has an entry per full slot, 0 for no peer, and a last one that maps -1 to -1
    (POOL-28). A ring (`is_ring`) has no slots of its own: it maps nothing and frees nothing
    (POOL-40).
    """

    def __init__(
        self, allocator: TokenAllocator | PagedAllocator, full_size: int, is_ring: bool = False
    ) -> None:
        page = allocator.page_size
        self.allocator = allocator
        self.is_ring = is_ring
        self.kv = KvBuffers(allocator.size, page, allocator.device)
        entries = (full_size + page + 1,)
        self.mapping = torch.empty(entries, dtype=torch.int64, device=allocator.device)
        self._page_size = page
        # One row per whole page of full slots; the page of padding is row 0.
        pages = full_size // page + 1
        self._by_page = self.mapping[: pages * page].view(pages, page)
        self.clear()

    def clear(self) -> None:
        """All slots free and poisoned, nothing mapped (POOL-39)."""
        self.allocator.clear()
        self.kv.clear()
        self.mapping.fill_(0)
        self.mapping[-1] = -1

    def available_size(self) -> int:
        """Window slots that can be allocated; no limit in a ring."""
        return ENDLESS if self.is_ring else self.allocator.available_size()

    def free_list(self) -> list[int]:
        """Units in the order in which they will be handed out."""
        return self.allocator.free_list()

    def staged_list(self) -> list[int]:
        """Units that wait to be merged into the free list."""
        return self.allocator.staged_list()

    # --- The mapping ----------------------------------------------------------------------

    def translate(self, full: torch.Tensor) -> torch.Tensor:
        """Peers of full slots, 0 where there is none; a copy."""
        return self.mapping.index_select(0, full)

    def set_mapping(self, full: torch.Tensor, window: torch.Tensor) -> None:
        """Map full slots to window slots, pairwise (POOL-39)."""
        if full.numel() != window.numel():
            raise PoolError(f"{full.numel()} full slots mapped to {window.numel()} window slots")
        if not self.is_ring:
            self.mapping.index_copy_(0, full, window.to(torch.int64))

    def clear_mapping(self, full: torch.Tensor) -> None:
        """Forget the peers of full slots, which some other owner has now (POOL-39)."""
        self.mapping.index_fill_(0, full, 0)

    # --- Allocation -----------------------------------------------------------------------

    def attach(self, full: torch.Tensor) -> bool:
        """Give each of these full slots a peer (POOL-30, POOL-31). False: short, nothing taken.

        Within a page, a slot and its peer have the same offset. Raises `PoolError` for a full slot
        that has a peer already, which would be lost.
        """
        if self.is_ring or full.numel() == 0:
            return True
        present = self.translate(full)
        if int(present.count_nonzero()):
            raise PoolError("full slots with a window peer", full[present != 0].tolist())
        peers = self._take_slots(full) if self._page_size == 1 else self._take_pages(full)
        if peers is None:
            return False
        self.mapping.index_copy_(0, full, peers)
        return True

    def _take_slots(self, full: torch.Tensor) -> torch.Tensor | None:
        return self.allocator.alloc(full.numel())

    def _take_pages(self, full: torch.Tensor) -> torch.Tensor | None:
        """Peers in the pages of slots before them, where there are some, else in new pages."""
        page = self._page_size
        places, known = self._open_pages(full)
        fresh = known == 0
        slots = self.allocator.alloc(int(fresh.sum()) * page)
        if slots is None:
            return None
        known.masked_scatter_(fresh, slots[::page])
        return known.index_select(0, places) + full.remainder(page)

    def _open_pages(self, full: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """For each full slot which of its pages it is in; the window page of each, 0 for none."""
        pages = self._pages_of(full)
        full_pages, places = torch.unique_consecutive(pages, return_inverse=True)
        peers = self._by_page.index_select(0, full_pages).amax(1)
        return places, self._pages_of(peers) * self._page_size

    def _pages_of(self, slots: torch.Tensor) -> torch.Tensor:
        return slots.div(self._page_size, rounding_mode="floor")

    # --- Frees ----------------------------------------------------------------------------

    def free_peers(self, full: torch.Tensor) -> None:
        """Free the peers of a run of a row, in its order, and forget them (POOL-35)."""
        if self.is_ring or full.numel() == 0:
            return
        peers = self.translate(full)
        if int(peers.min()) <= 0:
            raise PoolError("full slots without a window peer freed", full[peers <= 0].tolist())
        self.allocator.free_segment(peers)
        self._forget_pages(full)

    def free_mapped_peers(self, full: torch.Tensor) -> None:
        """Free what peers these full slots have, of whole pages, and forget them (POOL-34)."""
        if self.is_ring or full.numel() == 0:
            return
        if self._page_size == 1:
            peers = self.translate(full)
        else:
            pages = torch.unique(self._pages_of(full))
            peers = self._by_page.index_select(0, pages).view(-1)
        self.allocator.free(peers[peers > 0])
        self._forget_pages(full)

    def _forget_pages(self, full: torch.Tensor) -> None:
        if self._page_size == 1:
            self.clear_mapping(full)
        else:
            self._by_page.index_fill_(0, self._pages_of(full), 0)

    # --- Contents -------------------------------------------------------------------------

    def write(self, full: torch.Tensor, fingerprints: torch.Tensor) -> None:
        """Fill the peers of those full slots that have one."""
        peers = self.translate(full)
        if full.numel() and int(peers.min()) <= 0:
            mapped = peers > 0
            peers, fingerprints = peers[mapped], fingerprints[mapped]
        self.kv.write(peers, fingerprints)

    def holds(self, full: torch.Tensor, fingerprints: torch.Tensor) -> bool:
        """Whether every full slot has a peer that holds its fingerprint; a ring holds all."""
        return self.is_ring or self.kv.holds(self.translate(full), fingerprints)
