"""Every exit code, as the command gives it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.treedrift.conftest import Command
from treedrift import campaign_command, cli
from treedrift.harness.config import Config
from treedrift.harness.events import Canary
from treedrift.harness.exit_codes import ExitCode
from treedrift.harness.ops import CoreInsert
from treedrift.harness.remote import WorkerFailure
from treedrift.harness.side import HarnessError
from treedrift.harness.trace import Known, new_trace, read_trace, write_trace

FUZZ = ("fuzz", "--ops", "200", "--out", "found")


def test_agreeing_cores_end_with_0(command: Command, place: Path) -> None:
    ended = command(*FUZZ, "--pair", "python,twin")
    assert ended.code == ExitCode.AGREED == 0
    assert "python against twin: no divergence" in ended.out
    assert not list(place.glob("found/findings/*"))


def test_a_divergence_ends_with_1_and_is_saved(command: Command, place: Path) -> None:
    ended = command(*FUZZ, "--pair", "python,leaky")
    assert ended.code == ExitCode.DIVERGENCE == 1
    files = list((place / "found" / "findings").glob("*.min.jsonl"))
    assert files
    assert all(f"found/findings/{file.name}" in ended.out for file in files)
    assert "treedrift show found/findings/" in ended.out


def test_a_divergence_that_the_ledger_knows_ends_with_0(command: Command, place: Path) -> None:
    first = command(*FUZZ, "--pair", "python,leaky", "--json").json
    (place / "known").mkdir()
    for number, one in enumerate(first["divergences"]):
        trace = read_trace(one["shrunk"]["file"])
        trace.header.known = Known(core="leaky", releases=["*"], signatures=[one["signature"]])
        trace.header.rule = "INS-31"
        write_trace(place / "known" / f"leak-{number}.jsonl", trace)
    ended = command(*FUZZ, "--pair", "python,leaky", "--known", "known", "--json")
    assert ended.code == ExitCode.AGREED
    assert {one["status"] for one in ended.json["divergences"]} == {"known"}
    assert all(entry["holds"] for entry in ended.json["ledger"])


def test_a_known_difference_that_vanished_is_told_and_ends_with_0(
    command: Command, place: Path
) -> None:
    trace = new_trace(
        Config(),
        [CoreInsert([1])],
        pair=("python", "twin"),
        expect="diverges",
        signature="difference:core_insert:gone",
        rule="INS-31",
        known=Known(core="twin", releases=["*"], signatures=["difference:core_insert:gone"]),
    )
    write_trace(place / "known" / "gone.jsonl", trace)
    ended = command(*FUZZ, "--pair", "python,twin", "--known", "known")
    assert ended.code == ExitCode.AGREED
    assert "vanished: the known difference gone no longer shows" in ended.out


def test_a_find_that_cannot_be_explained_is_reported_as_it_was_found(
    command: Command, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    def fail(*_: object) -> None:
        raise HarnessError("arrive, op 3: it broke")

    monkeypatch.setattr("treedrift.triage.explain", fail)
    ended = command(*FUZZ, "--pair", "python,leaky")
    assert ended.code == ExitCode.DIVERGENCE
    assert "could not be followed up: arrive, op 3: it broke" in ended.err
    assert (place / "found" / "report.html").is_file()


def test_a_run_whose_canary_is_not_caught_ends_with_4(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    missed = Canary(drill="leaked-slots", caught=False, ops=9, seconds=0.1)
    monkeypatch.setattr("treedrift.campaign_command.run_canary", lambda: missed)
    ended = command(*FUZZ, "--pair", "python,twin")
    assert ended.code == ExitCode.HARNESS
    assert "proves nothing" in ended.out


@pytest.mark.parametrize("name", ["absent", "hollow"])
def test_a_core_that_cannot_be_loaded_leaves_an_earlier_run_alone(
    command: Command, place: Path, name: str
) -> None:
    (place / "found").mkdir()
    (place / "found" / "events.jsonl").write_text("keep me\n")
    assert command(*FUZZ, "--pair", f"python,{name}").code == ExitCode.MISSING
    assert (place / "found" / "events.jsonl").read_text() == "keep me\n"


def test_a_core_that_cannot_be_inspected_is_compared_all_the_same(command: Command) -> None:
    assert command(*FUZZ, "--pair", "bare,leaky").code == ExitCode.DIVERGENCE


@pytest.mark.parametrize("name", ["absent", "hollow"])
def test_a_core_that_cannot_be_loaded_ends_with_3(command: Command, name: str) -> None:
    ended = command(*FUZZ, "--pair", f"python,{name}")
    assert ended.code == ExitCode.MISSING == 3
    assert ended.err.splitlines()[-1].startswith(f"treedrift: {name}")
    assert "Traceback" not in ended.err


def test_a_missing_environment_ends_with_3(command: Command) -> None:
    ended = command(*FUZZ, "--pair", "python,sglang-rust@0.1.2")
    assert ended.code == ExitCode.MISSING
    assert "treedrift env add" in ended.err


@pytest.mark.parametrize(
    "error",
    [
        HarnessError("arrive, op 3: it broke"),
        WorkerFailure("crash", "it broke"),
        AssertionError("it broke"),
        RuntimeError("it broke"),
    ],
)
def test_an_error_of_the_harness_ends_with_4(
    command: Command, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(campaign_command, "run_plan", fail)
    ended = command(*FUZZ, "--pair", "python,twin")
    assert ended.code == ExitCode.HARNESS == 4
    assert "treedrift: the harness failed" in ended.err
    assert "it broke" in ended.err


@pytest.mark.parametrize("arguments", [(*FUZZ, "--pair", "python,twin"), ("backends",)])
def test_ctrl_c_ends_every_command_with_130(
    command: Command, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign_command, "parse_pairs", interrupt)
    monkeypatch.setattr("treedrift.backends.registry.list_backends", interrupt)
    ended = command(*arguments)
    assert ended.code == ExitCode.INTERRUPTED == 130
    assert "Traceback" not in ended.err


def test_the_documented_table_is_the_real_one() -> None:
    text = (Path(cli.__file__).parents[1] / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (.*) \|$", text, re.MULTILINE)
    assert rows == [(str(int(one)), one.name.lower(), one.meaning) for one in ExitCode]
