"""An ordered list of indices in one preallocated tensor, which grows and shrinks at both ends.

It hides the wrap-around. A call costs as much as the indices it moves, never as much as the list.
"""

from __future__ import annotations

import torch


class Ring:
    """At most `capacity` int64 indices, head first. The caller sees to it that they fit."""

    def __init__(self, capacity: int, device: torch.device) -> None:
        self._size = max(capacity, 1)
        self._cells = torch.empty(self._size, dtype=torch.int64, device=device)
        self._head = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def replace(self, indices: torch.Tensor) -> None:
        """Hold exactly `indices`, in their order."""
        self._head, self._count = 0, indices.numel()
        self._cells[: self._count] = indices

    def take(self, count: int) -> torch.Tensor:
        """Remove the first `count` indices (there must be that many) and return a copy of them."""
        taken = self._read(self._head, count)
        self._head = (self._head + count) % self._size
        self._count -= count
        return taken

    def push_back(self, indices: torch.Tensor) -> None:
        """Add `indices` behind the tail, in their order."""
        self._write((self._head + self._count) % self._size, indices)
        self._count += indices.numel()

    def push_front(self, indices: torch.Tensor) -> None:
        """Add `indices` before the head, so that the first of them is the next to be taken."""
        count = indices.numel()
        self._head = (self._head - count) % self._size
        self._write(self._head, indices)
        self._count += count

    def copy(self) -> torch.Tensor:
        """All indices, head first."""
        return self._read(self._head, self._count)

    def _read(self, start: int, count: int) -> torch.Tensor:
        room = self._size - start
        if count <= room:
            return self._cells.narrow_copy(0, start, count)
        return torch.cat([self._cells[start:], self._cells[: count - room]])

    def _write(self, start: int, indices: torch.Tensor) -> None:
        room, count = self._size - start, indices.numel()
        if count <= room:
            self._cells[start : start + count] = indices
        else:
            self._cells[start:] = indices[:room]
            self._cells[: count - room] = indices[room:]
