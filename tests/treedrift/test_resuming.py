"""A run that was interrupted or killed goes on and ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.treedrift.conftest import Command
from treedrift.harness.campaign import Budget, Start
from treedrift.harness.compare import Divergence
from treedrift.harness.events import Checkpoint, Event, Found, Progress, Sample
from treedrift.harness.tally import Tally
from treedrift.jobs import run_plan
from treedrift.reports.stream import StreamError, read_events
from treedrift.run_log import RunLog
from treedrift.running import Plan
from treedrift.standing import Standing

PAIR = ("python", "leaky")
BUDGET = ("--ops", "6000", "--shrink", "0")
WAIT_SECONDS_MAX = 120


def started(own_process: dict[str, Any], *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "treedrift", "fuzz", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **own_process,
    )


def told_by(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=WAIT_SECONDS_MAX)
    assert process.returncode == 1, err
    told: dict[str, Any] = json.loads(out)
    return told


def gist(told: dict[str, Any]) -> Any:
    """What must not depend on whether a run was cut in two."""
    kinds = sorted((one["signature"], one["count"]) for one in told["divergences"])
    return told["ops"], told["cases"], kinds, told["statistics"]["ops"]


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill -9"])
def test_a_cut_run_goes_on_and_tells_what_an_uncut_one_tells(
    own_process: dict[str, Any], place: Path, end: signal.Signals, jobs: int
) -> None:
    fuzz = ("--pair", ",".join(PAIR), *BUDGET, "--jobs", str(jobs), "--json")
    whole = told_by(started(own_process, *fuzz, "--out", "whole"))
    cut = started(own_process, *fuzz, "--out", "cut")
    assert cut.stderr is not None
    assert any(line.startswith("found ") for line in cut.stderr), "it found nothing"
    os.killpg(cut.pid, end)
    cut.communicate(timeout=WAIT_SECONDS_MAX)
    before = read_events(place / "cut" / "events.jsonl")
    saved = [str(event.divergence.file) for event in before if isinstance(event, Found)]
    assert saved
    assert all((place / file).is_file() for file in saved)
    resumed = told_by(started(own_process, "--resume", "cut", "--json"))
    assert gist(resumed) == gist(whole)


def test_a_run_that_is_done_has_nothing_left_to_run(command: Command) -> None:
    first = command("fuzz", "--ops", "300", "--pair", "python,twin", "--json").json
    again = command("fuzz", "--resume", "build/run", "--json")
    assert again.code == 0
    assert again.json["ops"] == first["ops"]


def test_a_larger_budget_makes_a_run_longer(command: Command) -> None:
    first = command("fuzz", "--ops", "300", "--pair", "python,twin", "--json").json
    again = command("fuzz", "--resume", "build/run", "--ops", "900", "--json").json
    assert first["ops"] < 900 <= again["ops"]


def test_a_folder_without_a_run_is_refused(command: Command, place: Path) -> None:
    (place / "empty").mkdir()
    ended = command("fuzz", "--resume", "empty")
    assert ended.code == 2
    assert "empty" in ended.err
    assert "Traceback" not in ended.err


def test_an_earlier_run_is_put_aside(command: Command, place: Path) -> None:
    for seed in ("1", "2", "3"):
        command("fuzz", "--ops", "100", "--seed", seed, "--pair", "python,twin", "--out", "runs/a")
    assert sorted(path.name for path in (place / "runs").iterdir()) == ["a", "a.1", "a.2"]


# --- Where a run stands -------------------------------------------------------------------


def found(case: int, job: int = 0) -> Found:
    divergence = Divergence(
        pair=PAIR, kind="crash", op_index=None, op_kind="x", where="y", signature="a"
    )
    return Found(divergence, True, 5, job, case)


def checkpoint(job: int, next_case: int, ops: int, seconds: float = 1.0) -> Checkpoint:
    return Checkpoint(job=job, next_case=next_case, tally=Tally(op_count=ops), seconds=seconds)


def test_a_job_goes_on_at_its_last_checkpoint_and_knows_the_kinds_of_all() -> None:
    events: list[Event] = [checkpoint(0, 3, 10), found(4, job=1), checkpoint(0, 7, 30, 2.0)]
    standing = Standing.of(events)
    start = standing.start_of(0)
    assert (start.next_case, start.tally.op_count, start.seconds) == (7, 30, 2.0)
    assert start.kinds == [(PAIR, "a")]
    assert standing.start_of(1).next_case == 0


def test_jobs_that_go_on_count_from_what_was_told_before(place: Path) -> None:
    plan = Plan(pairs=(("python", "rust"),), budget=Budget(ops=40), jobs=2)
    before = Tally(op_count=10, cases=2)
    starts = [Start(job=job, next_case=2, tally=before, kinds=[(PAIR, "a")]) for job in range(2)]
    heard: list[Event] = []
    assert not run_plan(plan, heard.append, starts)
    told = [event for event in heard if isinstance(event, Progress)]
    assert min(event.op_count for event in told) >= 20
    assert {event.findings for event in told} == {1}


def test_replays_before_a_campaign_spend_none_of_its_budget() -> None:
    standing = Standing.of([checkpoint(-1, 3, 1000)])
    assert not standing.is_spent(Budget(ops=10))
    assert not Standing().is_spent(Budget(ops=0))
    standing.take(checkpoint(0, 1, 10))
    assert standing.is_spent(Budget(ops=10))
    assert standing.tally().op_count == 1010


def test_replays_take_their_time_before_jobs_that_run_side_by_side() -> None:
    standing = Standing.of([checkpoint(-1, 1, 1, 2.0), checkpoint(-2, 1, 1, 3.0)])
    assert standing.seconds() == 5.0
    standing.take(checkpoint(0, 1, 1, 10.0))
    standing.take(checkpoint(1, 1, 1, 8.0))
    assert standing.seconds() == 15.0


def test_samples_of_the_tally_come_now_and_then() -> None:
    log = RunLog(None)
    for seconds in range(12):
        log.tell(checkpoint(0, seconds, seconds * 10, float(seconds)))
    samples = [event for event in log.events if isinstance(event, Sample)]
    assert [(one.seconds, one.tally.op_count) for one in samples] == [(0, 0), (5, 50), (10, 100)]


def test_a_run_whose_folder_was_moved_is_explained_from_there(
    command: Command, place: Path
) -> None:
    fuzz = ("fuzz", "--ops", "200", "--pair", "python,leaky", "--shrink", "2s", "--json")
    first = command(*fuzz, "--out", "run").json
    stream = place / "run" / "events.jsonl"
    late = (b'{"type":"judged"', b'{"type":"explained"', b'{"type":"finished"')
    lines = stream.read_bytes().splitlines(keepends=True)
    stream.write_bytes(b"".join(line for line in lines if not line.startswith(late)))
    (place / "run").rename(place / "moved")
    again = command("fuzz", "--resume", "moved", "--json")
    assert again.code == 1
    assert [one["rule"] for one in again.json["divergences"]] == [
        one["rule"] for one in first["divergences"]
    ]


# --- Two runs at a time -------------------------------------------------------------------


def test_a_run_that_lasts_is_neither_put_aside_nor_resumed(place: Path) -> None:
    folder = place / "run"
    with RunLog.fresh(folder) as log:
        for begin in (RunLog.fresh, RunLog.resumed):
            with pytest.raises(StreamError, match="another run is writing to it"):
                begin(folder)
        log.tell(checkpoint(0, 1, 10))
    assert read_events(folder / "events.jsonl") == log.events
    assert [path.name for path in place.iterdir()] == ["run"]
    RunLog.resumed(folder).close()
