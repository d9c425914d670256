"""Recorded values as text: names, cuts, and differences that a cut must not hide."""

from __future__ import annotations

from typing import Any

import pytest

from treedrift.harness.describe import (
    CALL_CHARACTERS,
    describe,
    describe_both,
    describe_call,
    describe_op,
    rows_of,
)
from treedrift.harness.ops import (
    AnyOp,
    Arrive,
    CoreInsert,
    CoreMatch,
    Evict,
    Lock,
    Namespace,
    Reset,
)

HASH = "ab" * 32


@pytest.mark.parametrize(
    ("plain", "text"),
    [
        (None, "None"),
        ([], "[]"),
        ([1, 2], "[1, 2]"),
        (list(range(15)), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ... 3 more]"),
        (["long", 500, 77], "[500 items]"),
        (["long", 500], "[500 items]"),
        (["key", None, None, False, [1]], "[1]"),
        (["key", "x", "s", True, [1, 2]], "pairs of [1, 2] in 'x' salt 's'"),
        (["key", 3, ["long", 90]], "key of [90 items], limit 3"),
        (["tensor", "torch.int32", [2], [1, 2]], "int32[2] [1, 2]"),
        (["unknown", "-1"], "no handle (-1)"),
        (HASH, "abababababab..."),
        (["FreeDeviceKV", [[1, 2]]], "FreeDeviceKV(indices=[[1, 2]])"),
        (
            ["FreeComponentDeviceSlot", [[1]], 1],
            "FreeComponentDeviceSlot(indices=[[1]], component_type=swa)",
        ),
        (
            ["DecLockRefParams", 0, [], [[1, 4]], []],
            "DecLockRefParams(node_id=0, component_lock_uuids={swa: 4})",
        ),
        (["DecLockRefResult", None], "DecLockRefResult()"),
    ],
)
def test_a_plain_value_reads_as_what_it_stands_for(plain: Any, text: str) -> None:
    assert describe(plain) == text


def test_long_lists_are_cut_around_the_place_where_they_part() -> None:
    left = list(range(100))
    right = [*left[:50], 999, *left[51:]]
    assert describe_both(left, right) == (
        "[... 47 before, 47, 48, 49, 50, 51, 52, 53, ... 46 more]",
        "[... 47 before, 47, 48, 49, 999, 51, 52, 53, ... 46 more]",
    )


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (["long", 500, 1], ["long", 500, 2]),
        (1, "1"),
        (HASH, HASH[:-1] + "c"),
        (list(range(100)), list(range(101))),
        ([1, True], [1, 1]),
    ],
)
def test_what_differs_never_reads_alike(left: Any, right: Any) -> None:
    ours, theirs = describe_both(left, right)
    assert ours != theirs


def test_a_call_reads_with_its_parameters_and_its_answer() -> None:
    asked = ["evict_device_leaf", [3, False], ["ok", ["DecLockRefResult", None]]]
    assert describe_call(asked) == (
        "evict_device_leaf(node_id=3, is_write_back=False) -> DecLockRefResult()"
    )
    assert describe_call(["is_root", [3], ["error", "UnknownNodeError", 3]]) == (
        "is_root(node_id=3) -> raises UnknownNodeError(3)"
    )
    assert describe_call(["is_root", [3], ["error", "ContractError", None]]).endswith(
        "raises ContractError"
    )
    assert describe_call(["is_root", [3], ["unreadable", "str"]]).endswith("can't be read (str)")
    assert describe_call(["is_root", [3]]) == "is_root(node_id=3)"
    assert (
        describe_call(["is_write_back =", [True], ["ok", None]]) == "is_write_back = True -> None"
    )
    named = ["swa_tombstone_ranges", [["key", None, None, False, [1]], 0, 1, ["component_type", 1]]]
    assert describe_call(named).endswith("start=0, end=1, component_type=swa)")


def test_a_long_call_is_cut() -> None:
    text = describe_call(["is_root", [3], ["ok", "x" * 1000]])
    assert len(text) == CALL_CHARACTERS + 3
    assert text.endswith("...")


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (Reset(), "reset()"),
        (Evict(0), "evict(count=0)"),
        (CoreMatch([], runs=[(4, 3)]), "core_match(tokens=[4..6])"),
        (
            CoreInsert([1, 2], runs=[(100, 1024), (-7, 1)], answer=0),
            "core_insert(tokens=[1, 2, 100..1123, -7], answer=0)",
        ),
        (Lock("live:3", ["swa"]), "lock(node=live:3, skip=[swa])"),
        (Arrive(), "arrive()"),
        (
            CoreInsert([1, 2], Namespace("x", "s"), priority=None),
            "core_insert(tokens=[1, 2], namespace='x' salt 's', priority=None)",
        ),
    ],
)
def test_an_op_reads_with_the_operands_that_are_not_as_usual(op: AnyOp, text: str) -> None:
    assert describe_op(op) == text


def test_rows_leave_out_what_both_sides_leave_empty() -> None:
    left = ["DecLockRefParams", 0, [], [[1, 4]], []]
    right = ["DecLockRefParams", 0, [], [], []]
    rows = rows_of(left, right, "params")
    assert [(row.field, row.left, row.right, row.differs) for row in rows] == [
        ("params.node_id", "0", "0", False),
        ("params.component_lock_uuids.swa", "4", "None", True),
    ]


def test_lists_of_records_are_rows_by_place() -> None:
    left = [["BackupKV", [1]], ["FreeDeviceKV", [[1]]], ["BackupKV", [2]]]
    right = [["BackupKV", [3]], ["BackupKV", [2]]]
    rows = rows_of(left, right, "actions")
    assert [(row.field, row.left, row.right) for row in rows] == [
        ("actions[0] BackupKV.node_ids", "[1]", "[3]"),
        ("actions[1]", "FreeDeviceKV(indices=[[1]])", "BackupKV(node_ids=[2])"),
        ("actions[2]", "BackupKV(node_ids=[2])", "-"),
    ]
    assert all(row.differs for row in rows)
