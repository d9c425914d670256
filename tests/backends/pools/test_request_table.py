"""The request table: which row is taken next."""

from __future__ import annotations

import pytest

from treedrift.backends.pools import PoolError, RequestTable


def test_rows_are_taken_from_the_end_and_count_generations() -> None:
    """Worked example E7."""
    table = RequestTable(4, 8)
    assert table.alloc_rows(2) == [3, 4]
    table.free_row(3)
    assert table.free_list() == [1, 2, 3]
    assert table.alloc_rows(3) == [1, 2, 3]
    assert table.generations == [0, 1, 1, 2, 1]


def test_too_few_rows_take_nothing() -> None:
    table = RequestTable(2, 8)
    assert table.alloc_row() == 2
    assert table.alloc_rows(2) is None
    assert table.alloc_rows(0) == []
    assert table.alloc_row() == 1
    assert table.alloc_row() is None


def test_a_row_that_is_not_out_cannot_be_freed() -> None:
    table = RequestTable(2, 8)
    table.alloc_row()
    for row in (0, 1, 3, -1):
        with pytest.raises(PoolError):
            table.free_row(row)
    table.free_row(2)
    with pytest.raises(PoolError, match="not allocated: 2"):
        table.free_row(2)


def test_clear_keeps_generations_and_contents() -> None:
    table = RequestTable(2, 4)
    table.alloc_row()
    table.slots[2, 0] = 9
    table.clear()
    assert table.free_list() == [1, 2]
    assert table.generations == [0, 0, 1]
    assert int(table.slots[2, 0]) == 9
