"""The request table: which slot holds which position of which request (POOL-45 to POOL-47)."""

from __future__ import annotations

import torch

from .errors import PoolError


class RequestTable:
    """Rows of `row_length` slots, numbered from 1; row 0 is never handed out (POOL-1).

    `generations[row]` counts how often the row was handed out and never decreases.
    """

    def __init__(self, rows: int, row_length: int, device: torch.device | str = "cpu") -> None:
        self.size = rows
        self.row_length = row_length
        self.slots = torch.zeros((rows + 1, row_length), dtype=torch.int64, device=device)
        self.generations = [0] * (rows + 1)
        self._free = list(range(1, rows + 1))

    def available_size(self) -> int:
        """Rows that can be taken."""
        return len(self._free)

    def free_list(self) -> list[int]:
        """Free rows; the last ones are taken first."""
        return list(self._free)

    def alloc_rows(self, count: int) -> list[int] | None:
        """The last `count` free rows in list order, or None with nothing taken (POOL-46)."""
        start = len(self._free) - count
        if count < 0 or start < 0:
            return None
        rows = self._free[start:]
        del self._free[start:]
        for row in rows:
            self.generations[row] += 1
        return rows

    def alloc_row(self) -> int | None:
        """One row, or None."""
        rows = self.alloc_rows(1)
        return None if rows is None else rows[0]

    def free_row(self, row: int) -> None:
        """Give a row back, to the end of the list. Raises `PoolError` for a row that is not out."""
        if not 1 <= row <= self.size or row in self._free:
            raise PoolError("a row freed that is not allocated", [row])
        self._free.append(row)

    def clear(self) -> None:
        """All rows free again; contents and generations stay (POOL-47)."""
        self._free = list(range(1, self.size + 1))
