"""JUnit XML and the job summary: what CI shows, and that nothing in it is taken for markup."""

from __future__ import annotations

import re

import msgspec
import pytest
from junitparser import Error, Failure, JUnitXml, Skipped

from tests.reports import fixed_stream
from tests.reports.fixed_stream import EVICTION, GROUPING, HOSTILE_TEXT
from treedrift.harness.events import Canary, Event, Finished, Found, Started
from treedrift.reports.junit import junit
from treedrift.reports.markdown import annotations_of, code, fence, summary, text
from treedrift.reports.run import Kind, RunView


@pytest.fixture
def run() -> RunView:
    return RunView.from_events(fixed_stream.events())


def agreeing() -> list[Event]:
    return [event for event in fixed_stream.events() if isinstance(event, Started | Finished)]


def results(run: RunView) -> dict[str, type | None]:
    """What every test case of the file came to, by its name."""
    tree = JUnitXml.fromstring(junit(run).encode())
    return {
        case.name: type(case.result[0]) if case.result else None for suite in tree for case in suite
    }


# --- JUnit --------------------------------------------------------------------------------


def test_new_kinds_fail_and_known_ones_are_skipped(run: RunView) -> None:
    told = results(run)
    crash = next(name for name in told if name.startswith("crash:"))
    assert told == {
        "agree": Failure,
        EVICTION.signature: Failure,
        crash: Failure,
        GROUPING.signature: Skipped,
        "known node-9-rotation-phase": Skipped,
        "lost-event is caught": None,
    }


def test_a_file_counts_its_cases(run: RunView) -> None:
    tree = JUnitXml.fromstring(junit(run).encode())
    assert (tree.tests, tree.failures, tree.skipped, tree.errors) == (6, 3, 2, 0)


def test_a_failure_says_rule_side_values_and_the_next_command(run: RunView) -> None:
    tree = JUnitXml.fromstring(junit(run).encode())
    (failure,) = next(case for case in next(iter(tree)) if case.name == EVICTION.signature).result
    assert failure.message == "evict: evict_device_next_node answers another node_id"
    lines = str(failure.text).splitlines()
    assert lines[0] == "2 times, first at op 57 (evict)"
    assert any(
        line.startswith("rule    EVC-12: Of two leaves of equal hit count") for line in lines
    )
    assert any(line.split() == ["!", "node_id", "3", "4"] for line in lines)
    show = "treedrift show runs/nightly/findings/eviction-7.min.jsonl"
    assert any(line.startswith(show) for line in lines)


def test_a_known_kind_is_skipped_with_what_the_ledger_says(run: RunView) -> None:
    assert 'message="the Python core merges removals | the Rust core does not"' in junit(run)


def test_agreement_passes_and_a_cut_run_is_an_error() -> None:
    assert results(RunView.from_events(agreeing())) == {"agree": None}
    assert results(RunView.from_events(agreeing()[:1])) == {"agree": Error}


def test_a_missed_canary_fails(run: RunView) -> None:
    run.canaries = [Canary(drill="leaked-slots", caught=False, ops=9, seconds=1.0)]
    assert results(run)["leaked-slots is caught"] is Failure


def test_characters_that_xml_lacks_are_replaced() -> None:
    found = msgspec.structs.replace(EVICTION, left="\x00\x1b[31m", signature="odd\x01")
    told = results(RunView.from_events([Found(found, is_new=True)]))
    assert "odd\ufffd" in told


# --- The job summary ----------------------------------------------------------------------


def test_the_summary_starts_with_the_verdict(run: RunView) -> None:
    first = summary(run).splitlines()[0]
    assert first.startswith("## ❌ treedrift: 2 new kinds of divergence and 1 known in 200,000 ops")


def test_an_agreeing_run_is_a_short_summary() -> None:
    told = summary(RunView.from_events(agreeing()))
    assert told.startswith("## ✅ treedrift: No divergence in 200,000 ops")
    assert "Findings" not in told


def test_every_kind_can_be_unfolded_to_its_explanation_and_commands(run: RunView) -> None:
    told = summary(run)
    assert len(re.findall("<details( open)?>", told)) == told.count("</details>") == 3
    eviction = told.split("<details open>")[1]
    assert "<summary>new: evict: evict_device_next_node answers another node_id</summary>" in (
        eviction
    )
    assert "evict tokens=2" in eviction
    assert "treedrift repro runs/nightly/findings/eviction-7.min.jsonl" in eviction


def test_kinds_with_one_call_and_field_are_told_under_one_heading(run: RunView) -> None:
    other = msgspec.structs.replace(EVICTION, op_kind="touch", signature="", file="touch.jsonl")
    run.kinds.append(Kind(first=other, count=3))
    told = summary(run)
    assert told.count("</details>") == 3
    assert "| **new** | evict, touch: evict\\_device\\_next\\_node answers another " in told
    assert "- `touch` 3 times: `touch.jsonl`" in told
    assert sum(line.startswith("::error") for line in annotations_of(run)) == 2


def outside_of_code(markdown: str) -> str:
    """Markdown without fenced blocks and inline code."""
    return re.sub(r"(`+).*?\1", "", markdown, flags=re.S)


def test_text_of_a_core_is_never_markup_in_a_summary(run: RunView) -> None:
    told = summary(run)
    assert HOSTILE_TEXT in told
    assert "<script" not in outside_of_code(told)


def test_code_holds_backticks_and_table_edges() -> None:
    assert code("a`b|c") == "``a`b\\|c``"
    assert code("`x`") == "`` `x` ``"
    assert fence("```\nx") == "````\n```\nx\n````"


def test_text_stays_text() -> None:
    assert text("a*b_<i>|[x](y)") == r"a\*b\_&lt;i&gt;\|\[x\](y)"


def test_many_kinds_stay_below_the_limit_of_a_summary() -> None:
    many = [
        Found(
            msgspec.structs.replace(
                EVICTION, signature=f"kind {number}", left="x" * 50_000, right="y" * 50_000
            ),
            is_new=True,
        )
        for number in range(200)
    ]
    told = summary(RunView.from_events(many))
    assert len(told.encode()) < 2**20
    assert "160 more are in the run's page." in told


# --- Annotations --------------------------------------------------------------------------


def test_new_vanished_and_known_are_annotated_apart(run: RunView) -> None:
    lines = annotations_of(run)
    assert [line.split(" ")[0] for line in lines] == ["::error", "::error", "::warning", "::notice"]
    assert lines[0] == (
        "::error title=treedrift%3A sglang-python@0.5.23 against sglang-rust@0.5.23::"
        "evict: evict_device_next_node answers another node_id (rule EVC-12)%0A"
        "Look: treedrift show runs/nightly/findings/eviction-7.min.jsonl"
    )


def test_an_annotation_is_one_line_whatever_it_says() -> None:
    found = msgspec.structs.replace(
        EVICTION, kind="crash", where="100%\r\n::error::x", pair=("a,b", "c:d")
    )
    (line,) = annotations_of(RunView.from_events([Found(found, is_new=True)]))
    assert line.startswith("::error title=treedrift%3A a%2Cb against c%3Ad::")
    assert "100%25%0D%0A::error::x" in line
    assert len(line.splitlines()) == 1


def test_an_agreeing_run_has_no_annotation() -> None:
    assert annotations_of(RunView.from_events(agreeing())) == []
