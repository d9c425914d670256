"""A shadow tells what it finds in one line, counts it, and keeps a bounded number of traces."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from treedrift.harness.compare import Divergence
from treedrift.harness.config import Config
from treedrift.harness.ops import CoreInsert
from treedrift.harness.trace import new_trace, read_trace
from treedrift.inside import reporting
from treedrift.inside.reporting import METRIC, Reporter, shown

PAIR = ("sglang-python@0.5.23", "drill:lost-event")


def found(where: str = "calls[0].match_prefix.result.device_prefix_len") -> Divergence:
    return Divergence(
        pair=PAIR,
        kind="difference",
        op_index=12,
        op_kind="core_match",
        where=where,
        left=[4711],
        right=[4712],
    )


def trace() -> Any:
    return new_trace(Config(), [CoreInsert([1, 2])], pair=PAIR, expect="diverges")


def tell(folder: Path | None, files: int = 8) -> Reporter:
    reporter = Reporter(PAIR, folder, files)
    reporter.divergence(found(), trace())
    return reporter


def test_a_divergence_is_one_line_with_all_that_is_needed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reporter = tell(tmp_path)
    (record,) = caplog.records
    (saved,) = reporter.status.traces
    assert (record.name, record.levelno) == ("treedrift", logging.WARNING)
    assert record.getMessage() == (
        f"treedrift shadow: {PAIR[0]} and {PAIR[1]} part at call 12 "
        "(calls[0].match_prefix.result.device_prefix_len): "
        f"{PAIR[0]} has [4711], {PAIR[1]} [4712]. "
        f"The trace of the run is {saved}; `treedrift replay` and `treedrift shrink` take it. "
        f"The server goes on with {PAIR[0]} alone"
    )
    assert (reporter.status.divergences, reporter.status.is_on) == (1, False)
    assert Path(saved).stat().st_mode & 0o777 == 0o600


def test_a_saved_trace_is_the_trace_and_its_name_says_whose(tmp_path: Path) -> None:
    (saved,) = map(Path, tell(tmp_path / "new" / "folder").status.traces)
    assert saved.parent == tmp_path / "new" / "folder"
    assert f"-{os.getpid()}-sglang-python-0.5.23+drill-lost-event" in saved.name
    assert read_trace(saved) == trace()


def test_a_folder_gets_no_more_traces_than_it_may_hold(tmp_path: Path) -> None:
    (tmp_path / "shadow-of-yesterday.jsonl").write_text("")
    (tmp_path / "shadow-of-yesterday.min.jsonl").write_text("")
    (tmp_path / "notes.txt").write_text("")
    assert [len(tell(tmp_path, files=3).status.traces) for _ in range(4)] == [1, 1, 0, 0]
    assert f"No trace is saved: {tmp_path} holds 3 already" in tell(tmp_path, files=3).status.last
    assert len(list(tmp_path.glob("shadow-2*.jsonl"))) == 2


def test_a_folder_that_can_not_be_written_to_is_a_sentence_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    reporter = tell(tmp_path / "file")
    assert "No trace is saved: FileExistsError" in reporter.status.last
    assert (reporter.status.divergences, reporter.status.faults) == (1, 0)


def test_without_a_folder_the_log_says_how_to_get_traces() -> None:
    assert "No trace is saved: TREEDRIFT_TRACE_DIR names no folder." in tell(None).status.last


def test_a_fault_is_told_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    reporter = Reporter(PAIR)
    reporter.fault(ValueError("out of luck"))
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert "drill:lost-event failed and is off: ValueError: out of luck." in record.getMessage()
    assert (reporter.status.faults, reporter.status.is_on) == (1, False)


@pytest.mark.parametrize("method", ["take_events", "get_hash_values", "snapshot_buffer_backup"])
def test_what_tells_of_tokens_is_shown_only_if_asked_for(method: str) -> None:
    divergence = found(f"calls[0].{method}.result[0]")
    assert "4711" not in Reporter(PAIR).values_of(divergence)
    assert "4711" in Reporter(PAIR, plain=True).values_of(divergence)


def test_long_values_are_shortened_to_one_line() -> None:
    assert shown("a\n  b" * 1000).startswith("'a\\n b")
    assert len(shown("a\n  b" * 1000)) == reporting.SHOWN


class Counter:
    """What a metrics library makes."""

    def __init__(self, name: str, about: str, labels: list[str]) -> None:
        self.name, self.label_names = name, labels
        self.counted: list[str] = []

    def labels(self, value: str) -> Any:
        return SimpleNamespace(inc=lambda: self.counted.append(value))


def test_divergences_are_a_metric_where_the_library_is(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Counter] = []

    def make(*args: Any) -> Counter:
        made.append(Counter(*args))
        return made[-1]

    monkeypatch.setitem(sys.modules, "prometheus_client", SimpleNamespace(Counter=make))
    reporting._counter.cache_clear()
    for _ in range(2):
        tell(None)
    reporting._counter.cache_clear()
    (counter,) = made
    assert (counter.name, counter.label_names) == (METRIC, ["pair"])
    assert counter.counted == [",".join(PAIR)] * 2


def test_a_metric_that_fails_is_a_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", SimpleNamespace())
    reporting._counter.cache_clear()
    tell(None)
    assert f"{METRIC} can't be counted: AttributeError" in caplog.text


def test_without_the_library_nothing_is_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    reporting._counter.cache_clear()
    tell(None)
    reporting._counter.cache_clear()
    assert METRIC not in caplog.text
