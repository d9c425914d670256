"""The shrinkers that are set beside ours are asked the same, and start from the same trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import Phase, find, settings
from hypothesis.database import InMemoryExampleDatabase, choices_to_bytes

from benchmarks.shrinkers import KEY, WAYS, Failing, Shrunk, choices_of, drafts_like
from benchmarks.shrinking import Row, as_markdown, main, p95
from tests.harness import mutants
from tests.harness.spoilt_pair import CONFIG, PAIR, STEPS, WRONG_ORDER, spoilt_pair
from treedrift.harness.minimize.draft import Draft
from treedrift.harness.ops import AnyOp, Ask, CoreInsert, Evict, Lock
from treedrift.harness.trace import new_trace

LONG: list[AnyOp] = [CoreInsert([3, 3, 3], limit=2), Lock("live:1"), Ask("path", []), *STEPS]


def test_the_choices_of_a_trace_make_hypothesis_start_from_it() -> None:
    trace, seen = Draft(CONFIG, LONG), list[Draft]()
    database = InMemoryExampleDatabase()
    database.save(KEY + b".secondary", choices_to_bytes(choices_of(trace)))

    def notes(draft: Draft) -> bool:
        seen.append(draft)
        return True

    profile = settings(database=database, phases=[Phase.reuse], deadline=None)
    find(drafts_like(trace), notes, settings=profile, database_key=KEY)
    assert seen[0] == trace


@pytest.mark.parametrize("way", sorted(WAYS))
def test_every_way_shrinks_the_trace_and_is_judged_by_every_single_removal(way: str) -> None:
    lockstep = spoilt_pair(mutants.wrong_free_order)
    trace = new_trace(CONFIG, [CoreInsert([3]), *STEPS])
    made = WAYS[way](Failing(trace, PAIR, lockstep, WRONG_ORDER), 600.0)
    assert (made.way.startswith(way), made.ops, made.is_minimal) == (True, 2, True)
    assert made.trials > 0


def test_a_result_with_an_op_too_many_is_not_minimal() -> None:
    lockstep = spoilt_pair(mutants.wrong_free_order)
    failing = Failing(new_trace(CONFIG, STEPS), PAIR, lockstep, WRONG_ORDER)
    assert failing.judged("x", Draft(CONFIG, STEPS), 0.0, 0).is_minimal
    assert not failing.judged("x", Draft(CONFIG, [Evict(0), *STEPS]), 0.0, 0).is_minimal
    assert not failing.judged("x", Draft(CONFIG, STEPS[:1]), 0.0, 0).is_minimal


def test_a_spent_budget_leaves_the_trace_as_it_was() -> None:
    lockstep = spoilt_pair(mutants.wrong_free_order)
    trace = new_trace(CONFIG, [CoreInsert([3]), *STEPS])
    for way in ("hypothesis", "picire"):
        made = WAYS[way](Failing(trace, PAIR, lockstep, WRONG_ORDER), -1.0)
        assert (made.ops, made.trials, made.is_minimal) == (3, 0, False)


def test_the_table_has_a_line_for_every_way_and_every_trace() -> None:
    made = [
        Shrunk(way=way, ops=ops, tokens=4, seconds=1.25, trials=7, is_minimal=ops < 3)
        for way, ops in (("ours", 2), ("picire", 5))
    ]
    table = as_markdown([Row("some-drill", "difference:x", 9, made)], 30.0)
    assert "| ours | 2 | 2 | 2 | 4 | 1.2 | 1.2 | 7 | 1 of 1 |" in table
    assert "| some-drill | 9 | 2, 1.2 s, 7 | 5*, 1.2 s, 7 |" in table


def test_the_95th_percentile_is_one_of_the_values() -> None:
    assert p95([3.0]) == 3.0
    assert p95([float(number) for number in range(1, 101)]) == 95.0
    assert p95([float(number) for number in range(1, 21)]) == 19.0


def test_one_command_measures_and_writes_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "deep" / "shrinking.md"
    arguments = ["--drills", "1", "--way", "ours", "--way", "picire", "--json"]
    assert main([*arguments, "--budget", "600s", "--output", str(output)]) == 0
    said = capsys.readouterr().out
    assert output.read_text().startswith("# Shrinking 1 traces, 600 s each")
    assert f"written to {output}" in said
    (row,) = json.loads(output.with_suffix(".json").read_bytes())
    assert [one["is_minimal"] for one in row["results"]] == [True, True]
