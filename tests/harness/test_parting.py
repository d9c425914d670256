"""What lies at the place where two observations part, for every kind of place."""

from __future__ import annotations

from typing import Any

import pytest

from treedrift.harness.compare import Divergence
from treedrift.harness.observation import Finding, Observation
from treedrift.harness.parting import ROWS_MAX, Parting, find_parting, handles_of, touched_by

RECEIPT = ["DecLockRefParams", 3, [], [[1, 4]], []]
MATCH = ["MatchResult", 2, 5, 5, 6, 0, 0, None, 0, None, None, 2, [], 6, None]


def observed(**fields: Any) -> Observation:
    known: dict[str, Any] = {
        "outcome": None,
        "calls": [
            ["dec_lock_ref", [3, list(RECEIPT)], ["ok", ["DecLockRefResult", None]]],
            [
                "match_prefix",
                [["MatchPrefixParams", ["key", None, None, False, [1]], False, None]],
                ["ok", list(MATCH)],
            ],
        ],
        "pool": [["allocate", [1, 2]], ["free", [1]]],
        "sizes": [4, 0, 0, 60, 0],
        "tree": {
            "nodes": [[3, False, False, False, [1, 2], [], None, [], None]],
            "paths": [[["TreePathNodeInfo", 3, 0, 0, 2, 2, 0]]],
            "values": [1, 2],
        },
    }
    return Observation(**known | fields)


def part(where: str, right: Observation, left: Observation | None = None) -> Parting:
    found = Divergence(
        pair=("python", "rust"), kind="difference", op_index=0, op_kind="ask", where=where
    )
    return find_parting(found, left or observed(), right)


def differing(parting: Parting) -> dict[str, tuple[str, str]]:
    return {row.field: (row.left, row.right) for row in parting.rows if row.differs}


def calls_with(index: int, place: int, new: Any) -> Observation:
    """Calls of which one has another method (0), arguments (1) or end (2)."""
    seen = observed()
    seen.calls[index][place] = new
    return seen


def test_arguments_that_differ_are_rows_and_equal_ones_are_not() -> None:
    other = calls_with(0, 1, [3, ["DecLockRefParams", 4, [], [[1, 9]], []]])
    found = part("calls[0].dec_lock_ref.params.node_id", other)
    assert differing(found) == {
        "params.node_id": ("3", "4"),
        "params.component_lock_uuids.swa": ("4", "9"),
    }
    assert [row.field for row in found.rows] == list(differing(found))
    assert found.handles == {3, 4}


def test_an_answer_is_shown_with_the_fields_that_are_alike() -> None:
    answer = [*MATCH[:2], 7, *MATCH[3:]]
    found = part("calls[1].match_prefix.result.last_device_node", calls_with(1, 2, ["ok", answer]))
    assert differing(found) == {"result.last_device_node": ("5", "7")}
    assert "result.best_match_node" in [row.field for row in found.rows]
    assert found.handles == {5, 6, 7}
    assert (found.call_index, found.call) == (1, "match_prefix(params=MatchPrefixParams(key=[1]))")


def test_an_error_stands_beside_the_answer_of_the_other_side() -> None:
    error = calls_with(0, 2, ["error", "UnknownNodeError", 3])
    found = part("calls[0].dec_lock_ref.ok|UnknownNodeError", error)
    assert differing(found) == {"answer": ("DecLockRefResult()", "raises UnknownNodeError(3)")}


def test_two_different_calls_are_shown_as_they_are() -> None:
    found = part("calls[0].method", calls_with(0, 0, "dec_host_lock_ref"))
    ((left, right),) = differing(found).values()
    assert left.startswith("dec_lock_ref(")
    assert right.startswith("dec_host_lock_ref(")


@pytest.mark.parametrize("is_left_longer", [True, False])
def test_a_call_that_one_side_makes_alone_stands_on_that_side(is_left_longer: bool) -> None:
    shorter = observed()
    del shorter.calls[1]
    left, right = (observed(), shorter) if is_left_longer else (shorter, observed())
    told = differing(part("calls.match_prefix", right, left))
    assert told["calls"] == (("2", "1") if is_left_longer else ("1", "2"))
    side = told["calls[1]"][0 if is_left_longer else 1]
    assert side.startswith("match_prefix(")
    assert "-" in told["calls[1]"]


@pytest.mark.parametrize(
    ("where", "other", "told"),
    [
        (
            "outcome.ok|ContractError",
            observed(outcome="ContractError"),
            ("outcome", "ok", "ContractError"),
        ),
        ("sizes.free", observed(sizes=[4, 0, 0, 59, 0]), ("free", "60", "59")),
        (
            "pool[1][1][0]",
            observed(pool=[["allocate", [1, 2]], ["free", [2]]]),
            ("pool[1]", "free [1]", "free [2]"),
        ),
        ("pool.length", observed(pool=[["allocate", [1, 2]]]), ("pool[1]", "free [1]", "-")),
        (
            "tree.node.device_value",
            observed(tree={"nodes": [[3, False, False, False, [1, 9], [], None, [], None]]}),
            ("device_value", "[1, 2]", "[1, 9]"),
        ),
        (
            "tree.paths[0][0].num_children",
            observed(tree={"paths": [[["TreePathNodeInfo", 3, 0, 0, 2, 2, 1]]]}),
            ("num_children", "0", "1"),
        ),
        ("tree.values[1]", observed(tree={"values": [1, 3]}), ("values", "[1, 2]", "[1, 3]")),
    ],
)
def test_what_is_seen_between_ops_is_a_row(
    where: str, other: Observation, told: tuple[str, str, str]
) -> None:
    found = part(where, other)
    assert differing(found) == {told[0]: told[1:]}
    assert found.call is None


def test_findings_stand_in_the_column_of_their_side() -> None:
    shared, alone = Finding("conservation", "lost"), Finding("sanity_check", "bad")
    found = Divergence(
        pair=("python", "rust"),
        kind="oracle",
        op_index=0,
        op_kind="ask",
        where="conservation: lost",
    )
    parting = find_parting(found, observed(findings=[shared]), observed(findings=[shared, alone]))
    assert [(row.field, row.left, row.right) for row in parting.rows] == [
        ("conservation", "lost", "lost"),
        ("sanity_check", "-", "bad"),
    ]


def test_a_side_that_ended_early_is_told_apart() -> None:
    found = Divergence(
        pair=("python", "rust"), kind="crash", op_index=0, op_kind="batch", where="one side stopped"
    )
    assert differing(find_parting(found, observed(), None)) == {
        "side": ("went on", "one side stopped")
    }


def test_a_place_that_nobody_knows_shows_the_values_of_the_divergence() -> None:
    found = Divergence(
        pair=("python", "rust"),
        kind="difference",
        op_index=0,
        op_kind="ask",
        where="weather",
        left="sun",
        right="rain",
    )
    assert differing(find_parting(found, observed(), observed())) == {"value": ("sun", "rain")}


def test_of_a_long_table_the_rows_that_differ_are_kept() -> None:
    pools: list[list[Any]] = [[["free", [number]] for number in range(200)] for _ in range(2)]
    pools[1][150] = ["free", [999]]
    found = part("pool[150][1][0]", observed(pool=pools[1]), observed(pool=pools[0]))
    assert len(found.rows) == ROWS_MAX
    assert differing(found) == {"pool[150]": ("free [150]", "free [999]")}


def test_handles_are_found_by_the_names_of_fields_and_parameters() -> None:
    assert set(handles_of(MATCH)) == {5, 6}
    assert list(handles_of(["BackupKV", [3, 1]])) == [3, 1]
    assert list(handles_of([1, 2, 3])) == []
    assert list(handles_of(["unknown", "-1"], "node_id")) == []


def test_calls_touch_what_they_name_answer_and_complain_about() -> None:
    calls = [
        ["is_root", [4], ["ok", False]],
        ["match_full_device_prefix", [["key", None, None, False, [1]]], ["ok", [1, 7, 2]]],
        ["root_node_handle", [None], ["ok", 0]],
        ["mark_write_through_pending", [[8, 9], 2], ["ok", [9, 8]]],
        ["is_backuped", [["unknown", "-1"]], ["error", "UnknownNodeError", 5]],
        ["get_hash_values", [4], ["ok", ["ab"]]],
    ]
    assert touched_by(calls) == [4, 7, 0, 8, 9, 2, 5]
