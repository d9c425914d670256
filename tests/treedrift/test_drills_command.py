"""`treedrift drills` prints a kill table, and its exit code says whether enough was caught."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from treedrift import drills_command
from treedrift.harness.trace import read_trace
from treedrift.models.drills import CANARY, DRILLS, Drill

HARMLESS = Drill(
    name="harmless",
    about="Nothing is wrong.",
    rule="INS-1",
    stands_for="nothing",
    mutate=lambda core: None,
)
FAST = ("leaked-slots", "moved-child")


@pytest.fixture
def harmless(monkeypatch: pytest.MonkeyPatch) -> str:
    """A drill that nobody can catch."""
    monkeypatch.setitem(DRILLS, HARMLESS.name, HARMLESS)
    return HARMLESS.name


def test_the_table_names_what_caught_each_drill(command: Any) -> None:
    ended = command("drills", *FAST, "--shrink", "0")
    assert ended.code == 0
    # The slowest stands first, and which of the two that is depends on the machine.
    lines = {line.split()[0]: line for line in ended.out.splitlines() if line.startswith(FAST)}
    leaked, moved = lines["leaked-slots"], lines["moved-child"]
    assert "INS-62  yes" in leaked
    assert "begin_insert.result.actions.length" in leaked
    assert moved.startswith("moved-child   NODE-7  yes")
    assert "caught 2 of 2 (100.0%)" in ended.out
    assert "after shrinking" not in ended.out


def test_what_was_missed_stands_first_and_then_what_took_longest(
    command: Any, harmless: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drills_command, "ROWS_MAX", 1)
    arguments = ("leaked-slots", harmless, "--budget", "1s", "--shrink", "0")
    lines = command("drills", *arguments).out.splitlines()
    assert lines[1].startswith(harmless)
    assert lines[2] == "1 quicker drill left out; --all prints every one"
    every = command("drills", *arguments, "--all").out.splitlines()
    assert [line.split()[0] for line in every[1:3]] == [harmless, "leaked-slots"]


def test_the_object_holds_every_measurement(command: Any, place: Path) -> None:
    ended = command("drills", "crossed-values", "--shrink", "20s", "--out", "kept", "--json")
    report = ended.json
    assert ended.code == 0
    assert report["canary"]["caught"] is True
    (row,) = report["drills"]
    assert (row["name"], row["rule"], row["caught"]) == ("crossed-values", "SPLIT-5", True)
    assert row["is_minimal"] is row["kept"] is True
    assert 0 < row["size"] < row["ops_before"]
    summary = report["summary"]
    assert (summary["drills"], summary["caught"], summary["caught_share"]) == (1, 1, 1.0)
    assert summary["size_median"] == summary["size_p95"] == row["size"]
    trace = read_trace(place / row["file"])
    assert len(trace.ops) == row["size"]
    assert trace.header.signature == row["signature"]


def test_the_shrunk_trace_replays(command: Any, place: Path) -> None:
    command("drills", "leaked-slots", "--shrink", "5s", "--out", "kept")
    replay = command("replay", "kept/leaked-slots.jsonl", "--pair", "python,drill:leaked-slots")
    assert replay.code == 1
    assert "1 kind of divergence" in replay.out


def test_a_drill_that_changes_nothing_is_missed(command: Any, harmless: str) -> None:
    ended = command("drills", harmless, "leaked-slots", "--budget", "2s", "--shrink", "0")
    assert ended.code == 1
    assert "caught 1 of 2 (50.0%)" in ended.out
    assert f"{harmless}: missed" in ended.err


def test_nothing_counts_when_the_canary_is_missed(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DRILLS, CANARY, HARMLESS)
    monkeypatch.setitem(DRILLS, HARMLESS.name, HARMLESS)
    monkeypatch.setattr("treedrift.models.drills.canary.SECONDS_MAX", 0.1)
    ended = command("drills", "moved-child", "--shrink", "0", "--json")
    assert (ended.code, ended.json["canary"]["caught"]) == (1, False)
    assert ended.json["summary"]["caught_share"] == 1.0


def test_ctrl_c_prints_what_is_there(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    true_hunt = drills_command.hunt

    def hunt(drill: Drill, *rest: Any) -> Any:
        if drill.name == "moved-child":
            raise KeyboardInterrupt
        return true_hunt(drill, *rest)

    monkeypatch.setattr(drills_command, "hunt", hunt)
    ended = command("drills", *FAST, "--shrink", "0", "--json")
    assert ended.code == 130
    assert ended.json["interrupted"] is True
    assert [row["name"] for row in ended.json["drills"]] == ["leaked-slots"]


def test_hunts_in_several_processes_find_the_same(command: Any) -> None:
    ended = command("drills", *FAST, "--shrink", "0", "--jobs", "2", "--json")
    alone = command("drills", *FAST, "--shrink", "0", "--json")
    found, expected = (
        [(row["name"], row["by"], row["ops"]) for row in one.json["drills"]]
        for one in (ended, alone)
    )
    assert found == expected


def test_the_list_says_what_each_drill_does(command: Any) -> None:
    ended = command("drills", "--list")
    lines = ended.out.splitlines()
    assert len(lines) == len(DRILLS)
    assert next(line for line in lines if line.startswith(CANARY)).endswith(DRILLS[CANARY].about)
    assert [row["name"] for row in command("drills", "--list", "--json").json["drills"]] == [
        *DRILLS
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("leaked-slot",), "did you mean leaked-slots?"),
        (("--budget", "soon"), "--budget 'soon'"),
        (("--shrink", "-1"), "--shrink"),
        (("--out", "file"), "--out file"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(
    command: Any, place: Path, arguments: tuple[str, ...], said: str
) -> None:
    (place / "file").touch()
    ended = command("drills", *arguments)
    assert ended.code == 2
    assert said in ended.err
