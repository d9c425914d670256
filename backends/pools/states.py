"""Slots of Mamba states, and what a request owns of them (POOL-42 to POOL-44, POOL-48).

A state stands for a whole prefix: its content is the fingerprint of the prefix's last token. The
pool hides its free list and the group of slots that is held back for an admission.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch

from .allocator import TokenAllocator
from .errors import PoolError
from .kv import KvBuffers

NO_SLOT = -1
"""The entry of a tracking buffer that holds no slot yet (POOL-48)."""

Buffer = Literal["none", "single", "double", "lazy"]
"""How a request tracks states: with no entry, one, two, or two of which one comes late."""

_ENTRIES = {"none": 0, "single": 1, "double": 2, "lazy": 2}


@dataclass(eq=False)
class RequestStates:
    """State slots of one request: its live state, and a buffer of tracked ones (MAM-R4).

    `next_track` is the entry that the next tracked state goes to, `last_track` the one that the
    last went to.
    """

    own: int
    buffer: list[int] = field(default_factory=list)
    next_track: int = 0
    last_track: int = 0

    def slots(self) -> list[int]:
        """All slots, in the order in which a release frees them (POOL-48)."""
        return [slot for slot in (self.own, *self.buffer) if slot != NO_SLOT]


class StatePool:
    """Slots 1 to `size`, first in, first out (POOL-42). Raises `PoolError` for a double free."""

    def __init__(self, size: int, device: torch.device | str = "cpu") -> None:
        self.allocator = TokenAllocator(size, device=device)
        self.kv = KvBuffers(size, 1, device)
        self.size = size
        self._group: list[int] | None = None

    def clear(self) -> None:
        """All slots free and poisoned, no group open."""
        self._group = None
        self.allocator.clear()
        self.kv.clear()

    def available_size(self) -> int:
        """Slots that can be allocated, without those of a group (POOL-43)."""
        return self.allocator.available_size()

    def free_list(self) -> list[int]:
        """Free slots in the order in which they will be handed out."""
        return self.allocator.free_list()

    def are_out(self, slots: torch.Tensor) -> torch.Tensor:
        """For each of these slots of the pool, whether it is out."""
        return self.allocator.are_out(slots)

    def alloc(self, count: int) -> torch.Tensor | None:
        """`count` slots, or None with nothing taken; single ones from an open group (POOL-43)."""
        if count == 1 and self._group:
            return self.tensor([self._one()])
        return self.allocator.alloc(count)

    def free(self, slots: torch.Tensor) -> None:
        """Give slots back, to the end of the list."""
        self.allocator.free(slots)

    def group_begin(self, count: int) -> None:
        """Hold `count` slots back for single allocations, if there are so many (POOL-43)."""
        if self._group is not None:
            raise PoolError("groups of states cannot be nested")
        slots = self.allocator.alloc(count) if count > 0 else None
        self._group = [] if slots is None else [int(slot) for slot in slots.tolist()]

    def group_end(self) -> None:
        """Free what is left of the group; nothing without one."""
        rest, self._group = self._group, None
        if rest:
            self.free(self.tensor(rest))

    # --- Requests -------------------------------------------------------------------------

    def bind(self, buffer: Buffer, own: int | None = None) -> RequestStates | None:
        """Slots for a new request, which may hold its own already (MAM-R4). None: short.

        Checked first, where a server takes a row and some slots before it fails (POOL-48).
        """
        entries = _ENTRIES[buffer]
        taken = 1 if buffer == "lazy" else entries
        needed = taken + (own is None)
        if self.available_size() < needed:
            return None
        self.group_begin(needed)
        own = self._one() if own is None else own
        slots = [self._one() for _ in range(taken)] + [NO_SLOT] * (entries - taken)
        self.group_end()
        return RequestStates(own, slots, last_track=1 if buffer == "double" else 0)

    def release(self, states: RequestStates, keep: int | None = None) -> None:
        """Free all that a request owns, its own slot first; not the entry `keep` (MAM-R13)."""
        self.free(self.tensor([states.own]))
        rest = [
            slot for entry, slot in enumerate(states.buffer) if entry != keep and slot != NO_SLOT
        ]
        if rest:
            self.free(self.tensor(rest))

    def _one(self) -> int:
        if self._group:
            return self._group.pop(0)
        slots = self.allocator.alloc(1)
        if slots is None:
            raise PoolError("no state, although one was free")
        return int(slots)

    def tensor(self, slots: list[int]) -> torch.Tensor:
        """Slots as an index tensor of this pool."""
        return torch.tensor(slots, dtype=torch.int64, device=self.allocator.device)

    # --- Contents -------------------------------------------------------------------------

    def write(self, slots: torch.Tensor, fingerprints: torch.Tensor) -> None:
        """Let states stand for prefixes, pairwise."""
        self.kv.write(slots, fingerprints)

    def read(self, slots: torch.Tensor) -> torch.Tensor:
        """What states stand for, copied."""
        return self.kv.read(slots)

    def holds(self, slots: torch.Tensor, fingerprints: torch.Tensor) -> bool:
        """Whether every state stands for its prefix."""
        return self.kv.holds(slots, fingerprints)

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copy states to other slots, pairwise (MAM-R3)."""
        self.kv.write(target, self.kv.read(source))
