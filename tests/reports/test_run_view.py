"""A run, put together from its events."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.reports import fixed_stream
from tests.reports.fixed_stream import CRASH, EVICTION, GROUPING, PAIR
from treedrift.harness.events import Canary, Checkpoint, Event, Finished, Found, Started
from treedrift.harness.rule_texts import RULE_TEXTS
from treedrift.harness.tally import Tally
from treedrift.reports import tables
from treedrift.reports.run import Kind, RunView
from treedrift.reports.summary import summary_of


@pytest.fixture
def run() -> RunView:
    return RunView.from_events(fixed_stream.events())


def without(*kinds: type) -> list[Event]:
    return [event for event in fixed_stream.events() if not isinstance(event, kinds)]


def test_events_of_one_kind_are_one_kind(run: RunView) -> None:
    grouping, eviction, crash = run.kinds
    assert (eviction.signature, eviction.count, eviction.seconds) == (EVICTION.signature, 2, 130.0)
    assert eviction.shrunk is not None
    assert eviction.shrunk.ops_after == 4
    assert eviction.explanation == fixed_stream.EXPLANATION
    assert (eviction.rule, grouping.rule, crash.rule) == ("EVC-12", "EVT-21", None)
    assert (crash.shrunk, crash.judged, crash.explained) == (None, None, None)


def test_new_kinds_are_told_from_known_ones(run: RunView) -> None:
    assert [kind.signature for kind in run.new] == [EVICTION.signature, CRASH.signature]
    assert [kind.signature for kind in run.known] == [GROUPING.signature]
    assert run.note_of(run.known[0]) == "the Python core merges removals | the Rust core does not"
    assert [entry.known for entry in run.vanished] == ["node-9-rotation-phase"]


def test_a_kind_is_looked_at_in_its_shrunk_trace(run: RunView) -> None:
    assert [kind.file for kind in run.new] == [
        "runs/nightly/findings/eviction-7.min.jsonl",
        "runs/nightly/findings/crash-8.jsonl",
    ]


def test_the_ledger_knows_better_which_rule_decides(run: RunView) -> None:
    (grouping,) = run.known
    assert grouping.judged is not None
    grouping.judged.rule = "EVT-20"
    assert grouping.rule == "EVT-20"
    assert grouping.explanation is not None
    assert grouping.explanation.rule == "EVT-20"
    assert grouping.rule_text == grouping.explanation.rule_text == RULE_TEXTS["EVT-20"]
    grouping.explained = None
    assert grouping.rule_text == RULE_TEXTS["EVT-20"]


def test_only_a_trace_that_can_become_smaller_is_offered_for_shrinking(run: RunView) -> None:
    eviction, crash = run.new
    assert [command.name for command in eviction.commands] == ["show", "repro", "replay"]
    assert [command.name for command in crash.commands] == ["show", "shrink", "repro", "replay"]


def test_traces_of_a_folder_that_was_moved_are_named_where_they_are(tmp_path: Path) -> None:
    moved = tmp_path / "findings" / "eviction-7.min.jsonl"
    moved.parent.mkdir()
    moved.write_text("")
    run = RunView.from_events(fixed_stream.events(), tmp_path)
    assert [kind.file for kind in run.new] == [str(moved), CRASH.file]


# --- Verdicts -----------------------------------------------------------------------------


def test_the_verdict_says_what_is_new(run: RunView) -> None:
    assert run.standing == "new"
    assert run.verdict() == (
        "2 new kinds of divergence and 1 known in 200,000 ops, sglang-python@0.5.23 against "
        "sglang-rust@0.5.23. Vanished: 1 known difference."
    )


def test_the_verdict_counts_kinds_that_differ_by_their_op_as_one_fault(run: RunView) -> None:
    found = msgspec.structs.replace(EVICTION, op_kind="touch", signature="")
    run.kinds.append(Kind(first=found))
    assert run.verdict(names_pairs=False).startswith(
        "3 new kinds of divergence (they look like 2 faults) and 1 known in 200,000 ops."
    )


def test_known_kinds_alone_are_nothing_new() -> None:
    events = [
        event
        for event in fixed_stream.events()
        if not (isinstance(event, Found) and event.divergence.signature != GROUPING.signature)
    ]
    run = RunView.from_events(events)
    assert run.standing == "known"
    assert run.verdict(names_pairs=False).startswith(
        "Nothing new: 1 kind of divergence, explained by 1 known difference, in 200,000 ops."
    )


def test_a_missed_canary_outweighs_everything(run: RunView) -> None:
    run.canaries.append(Canary(drill="leaked-slots", caught=False, ops=9, seconds=1.0))
    assert run.standing == "blind"
    assert run.verdict().startswith("The canary (leaked-slots) was not caught: this run proves")


def test_an_agreeing_run_says_on_how_much() -> None:
    events = without(Found)
    events = [event for event in events if isinstance(event, Started | Finished)]
    assert RunView.from_events(events).verdict(names_pairs=False) == "No divergence in 200,000 ops."


def test_a_run_that_was_killed_keeps_what_it_had_told() -> None:
    run = RunView.from_events(without(Finished))
    assert (run.is_finished, run.tally, run.seconds) == (False, fixed_stream.tally(), 600.0)
    assert len(run.kinds) == 3
    assert run.verdict().endswith("The run was cut off; this is what it had told until then.")


def test_without_samples_a_killed_run_counts_what_its_jobs_had_finished() -> None:
    events: list[Event] = [
        Checkpoint(job=0, next_case=5, tally=Tally(op_count=50), seconds=1.0),
        Checkpoint(job=0, next_case=9, tally=Tally(op_count=90), seconds=2.0),
        Checkpoint(job=1, next_case=4, tally=Tally(op_count=40), seconds=2.5),
    ]
    run = RunView.from_events(events)
    assert (run.tally.op_count, run.seconds) == (130, 2.5)


def test_a_run_that_goes_on_after_ctrl_c_is_not_interrupted_any_more() -> None:
    first = fixed_stream.events()
    interrupted = [*first[:-1], Finished(seconds=300.0, interrupted=True, tally=Tally.empty())]
    assert RunView.from_events(interrupted).is_interrupted
    again = [*interrupted, first[0]]
    assert not RunView.from_events(again).is_finished
    finished = RunView.from_events([*again, first[-1]])
    assert (finished.is_finished, finished.is_interrupted) == (True, False)
    assert finished.tally == fixed_stream.tally()


# --- Tables and the summary ---------------------------------------------------------------


def test_the_table_over_time_has_the_start_and_the_end(run: RunView) -> None:
    table = tables.over_time(run)
    assert list(table["seconds"])[:3] == [0.0, 30.0, 60.0]
    assert table["seconds"].iloc[-1] == 600.5
    assert list(table["ops"].iloc[[0, -1]]) == [0, 200_000]
    assert table["kinds"].iloc[-1] == 3
    assert table["rate"].iloc[1] == table["ops"].iloc[1] / 30.0
    assert table["behaviours"].is_monotonic_increasing


def test_coverage_names_what_was_not_reached(run: RunView) -> None:
    table = tables.coverage(run)
    missed = table[(table["count"] == 0) & table["is_expected"]]
    assert "event.AllBlocksCleared" in set(missed["name"])
    assert "match.hit" not in set(missed["name"])
    assert {"requests", "hit_tokens"}.isdisjoint(table["name"])
    assert list(table[table["group"] == "policies"]["name"])[:3] == ["lru", "lfu", "slru"]


def test_a_run_of_nothing_has_tables_too() -> None:
    empty = RunView.from_events([])
    assert len(tables.over_time(empty)) <= 2
    assert len(tables.cores(empty)) == len(tables.kinds(empty)) == 0


def test_the_summary_tells_each_kind_as_it_was_judged(run: RunView) -> None:
    told = summary_of(run)["divergences"]
    assert [(one["status"], one["rule"], one["known"]) for one in told] == [
        ("new", "EVC-12", None),
        (None, None, None),
        ("known", "EVT-21", "evt-21-removals-across-namespaces"),
    ]
    assert told[0]["shrunk"]["ops_after"] == 4
    assert told[0]["guilty"] == PAIR[1]
    msgspec.json.encode(summary_of(run))
