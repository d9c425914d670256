"""An ordered list of indices in one preallocated tensor, which grows and shrinks at both ends.

It hides the wrap-around. A call costs as much as the indices it moves, never as much as the list.
"""

from __future__ import annotations

import torch


class Ring:
    """At most `capacity` int64 indices, head first. The caller sees to it that they fit."""

    def __init__(self, capacity: int, device: torch.device) -> None:
        self._cells = torch.empty(max(capacity, 1), dtype=torch.int64, device=device)
        self._head = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def replace(self, indices: torch.Tensor) -> None:
        """Hold exactly `indices`, in their order."""
        self._head, self._count = 0, len(indices)
        self._cells[: self._count] = indices

    def take(self, count: int) -> torch.Tensor:
        """Remove the first `count` indices (there must be that many) and return a copy of them."""
        taken = self._read(self._head, count)
        self._head = (self._head + count) % len(self._cells)
        self._count -= count
        return taken

    def push_back(self, indices: torch.Tensor) -> None:
        """Add `indices` behind the tail, in their order."""
        self._write((self._head + self._count) % len(self._cells), indices)
        self._count += len(indices)

    def push_front(self, indices: torch.Tensor) -> None:
        """Add `indices` before the head, so that the first of them is the next to be taken."""
        self._head = (self._head - len(indices)) % len(self._cells)
        self._write(self._head, indices)
        self._count += len(indices)

    def copy(self) -> torch.Tensor:
        """All indices, head first."""
        return self._read(self._head, self._count)

    def _read(self, start: int, count: int) -> torch.Tensor:
        room = len(self._cells) - start
        if count <= room:
            return self._cells[start : start + count].clone()
        return torch.cat([self._cells[start:], self._cells[: count - room]])

    def _write(self, start: int, indices: torch.Tensor) -> None:
        room = len(self._cells) - start
        if len(indices) <= room:
            self._cells[start : start + len(indices)] = indices
        else:
            self._cells[start:] = indices[:room]
            self._cells[: len(indices) - room] = indices[room:]
