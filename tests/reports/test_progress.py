"""What is told while a run lasts."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from tests.reports.fixed_stream import EVICTION
from treedrift.harness.campaign import Budget
from treedrift.harness.events import Found, Progress
from treedrift.reports.progress import ProgressView, found_line


def test_a_new_kind_gets_a_line_and_a_known_one_none() -> None:
    text = StringIO()
    view = ProgressView(Console(file=text, width=200, soft_wrap=True), Budget(ops=10))
    with view.live():
        view(Found(EVICTION, is_new=True))
        view(Found(EVICTION, is_new=False))
        view(Progress(5, 1, 1.0, 1))
    told = [line for line in text.getvalue().splitlines() if line.startswith("found")]
    assert told == [found_line(EVICTION).plain]


def test_the_line_of_a_find_says_pair_op_and_what_differs() -> None:
    assert found_line(EVICTION).plain == (
        "found sglang-python@0.5.23 against sglang-rust@0.5.23: "
        "evict: evict_device_next_node answers another node_id"
    )


def test_progress_is_told_in_lines_where_none_can_be_redrawn() -> None:
    text = StringIO()
    view = ProgressView(Console(file=text, width=200), Budget(seconds=30.0))
    with view.live():
        for seconds in (1.0, 10.0, 12.0, 21.0):
            view(Progress(op_count=int(seconds) * 1000, cases=1, seconds=seconds, findings=0))
    told = [line for line in text.getvalue().splitlines() if " s  " in line]
    assert told == [
        "10 s  10,000 ops  1,000/s  0 findings",
        "21 s  21,000 ops  1,000/s  0 findings",
    ]
