"""What the benchmark of SGLang's cache does outside SGLang: requests, digests, times, rows."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
import torch

from benchmarks.serving.contestants import entered
from benchmarks.serving.ledger import Clock, Tally
from benchmarks.serving.log import asks_of
from benchmarks.serving.overhead import DifferentRunsError, rows_of
from benchmarks.serving.running import Report
from benchmarks.serving.scheduler import Figures
from benchmarks.serving.setting import Setting
from treedrift.harness.importers.mooncake import LogEntry

FIRST = 10**12


def report(core: str, core_s: float, digest: str = "same") -> Report:
    return Report(
        core=core,
        core_class="",
        setting=Setting(),
        figures=Figures(finished=100),
        hits="",
        evictions={},
        evicted_slots=0,
        frees={},
        free={},
        left={},
        digest=digest,
        wall_s=2 * core_s,
        cache_s=core_s,
        core_s=core_s,
        core_calls=1,
    )


def test_ratios_compare_runs_of_the_same_round() -> None:
    slow, fast = (4.0, 40.0), (2.0, 20.0)
    reports = [
        report(core, seconds)
        for round_ in zip(slow, fast, strict=True)
        for core, seconds in zip(("sglang-rust", "treedrift-rust"), round_, strict=True)
    ]
    rows = {row.name: row for row in rows_of(reports)}
    ratio = rows["core: treedrift-rust / sglang-rust"]
    assert (ratio.ratio, ratio.spread) == (2.0, (2.0, 2.0))
    assert (ratio.figure, ratio.unit) == (110.0, "ms/request")
    assert "core: treedrift-rust / sglang-python" not in rows


def test_runs_that_differ_are_not_compared() -> None:
    with pytest.raises(DifferentRunsError, match="treedrift-rust and sglang-rust served"):
        rows_of([report("sglang-rust", 1.0), report("treedrift-rust", 1.0, "another")])


def test_a_contestants_variables_last_as_long_as_its_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TREEDRIFT_SHADOW_MODE", "strict")
    monkeypatch.delenv("TREEDRIFT_TRACE_DIR", raising=False)
    before = dict(os.environ)
    with entered("shadow:sglang-python,drill:lost-event") as backend:
        assert backend == "treedrift-shadow"
        assert os.environ["TREEDRIFT_SHADOW_FIRST"] == "sglang-python"
        assert os.environ["TREEDRIFT_SHADOW_SECOND"] == "drill:lost-event"
        assert os.environ["TREEDRIFT_SHADOW_MODE"] == "strict"
        folder = Path(os.environ["TREEDRIFT_TRACE_DIR"])
        assert folder.is_dir()
    assert dict(os.environ) == before
    assert not folder.exists()
    with entered("record:treedrift-rust") as backend:
        assert (backend, os.environ["TREEDRIFT_RECORD_CORE"]) == (
            "treedrift-record",
            "treedrift-rust",
        )
    with entered("sglang-rust") as backend:
        assert backend == "rust"
    with entered("chosen") as backend:
        assert backend is None


def test_a_logs_requests_share_the_tokens_of_their_blocks() -> None:
    entries = [
        LogEntry(input_length=700, output_length=50, hash_ids=[3, 4]),
        LogEntry(input_length=900, output_length=2, hash_ids=[3, 9]),
    ]
    first, second = asks_of(entries, FIRST, 8)
    assert (len(first.prompt), len(second.prompt)) == (700, 900)
    assert first.prompt[:512] == second.prompt[:512]
    assert first.prompt[512] != second.prompt[512]
    assert min(first.prompt) >= FIRST
    assert (first.output, second.output) == (8, 2)


def test_a_digest_tells_values_and_their_order() -> None:
    def digest(*notes: tuple[str, list[int]]) -> str:
        tally = Tally()
        for what, slots in notes:
            tally.add(what, (torch.tensor(slots),))
        return tally.hex()

    assert digest(("free", [1, 2])) == digest(("free", [1, 2]))
    different = {
        digest(("free", [1, 2])),
        digest(("free", [2, 1])),
        digest(("free", [1]), ("free", [2])),
        digest(("held", [1, 2])),
    }
    assert len(different) == 4


def test_a_clock_counts_outermost_calls_alone() -> None:
    clock = Clock()

    def inner() -> int:
        return 1

    timed_inner = clock.timed(inner)
    outer = clock.timed(lambda: timed_inner() + timed_inner())
    assert outer() == 2
    assert clock.calls == 1
    assert timed_inner() == 1
    assert clock.calls == 2
    assert clock.total > 0


def test_a_setting_survives_its_way_to_the_other_environment() -> None:
    setting = Setting(components=("full", "swa"), policy_config={"protected_threshold": 3})
    assert msgspec.json.decode(msgspec.json.encode(setting), type=Setting) == setting
