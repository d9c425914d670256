"""`treedrift report`: what it writes, for whole runs and for what a killed one left."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.reports import fixed_stream
from treedrift import report_command
from treedrift.harness.events import EVENTS_FILE
from treedrift.reports.stream import StreamWriter

Command = Callable[..., Any]


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    with StreamWriter(folder / EVENTS_FILE) as writer:
        for event in fixed_stream.events():
            writer(event)
    return folder


def test_all_reports_go_into_the_runs_folder(command: Command, run_folder: Path) -> None:
    ended = command("report", run_folder)
    written = [run_folder / name for name in ("report.html", "junit.xml", "summary.md")]
    assert ended.code == 0
    assert ended.out.splitlines() == [str(path) for path in written]
    assert [path.read_text().lstrip()[:9].lower() for path in written] == [
        "<!doctype",
        "<?xml ver",
        "## ❌ tree",
    ]


def test_only_what_is_asked_for_is_written(
    command: Command, run_folder: Path, tmp_path: Path
) -> None:
    page = tmp_path / "else" / "where.html"
    ended = command("report", run_folder, "--html", page)
    assert ended.out.splitlines() == [str(page)]
    assert page.exists()
    assert not (run_folder / "junit.xml").exists()


def test_annotations_are_printed_besides(command: Command, run_folder: Path) -> None:
    lines = command("report", run_folder, "--annotations").out.splitlines()
    assert [line.split(" ")[0] for line in lines[:4]] == [
        "::error",
        "::error",
        "::warning",
        "::notice",
    ]
    assert (run_folder / "summary.md").exists()


def test_a_killed_run_is_reported_as_far_as_it_came(command: Command, run_folder: Path) -> None:
    stream = run_folder / EVENTS_FILE
    lines = stream.read_bytes().splitlines(keepends=True)
    stream.write_bytes(b"".join(lines[:20]) + lines[20][:9])
    assert command("report", run_folder).code == 0
    assert "The run was cut off" in (run_folder / "report.html").read_text()


def test_reports_can_be_made_again(command: Command, run_folder: Path) -> None:
    command("report", run_folder)
    first = (run_folder / "report.html").read_bytes()
    assert command("report", run_folder).code == 0
    assert (run_folder / "report.html").read_bytes() == first


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name the folder of a run"),
        (["nowhere"], "nowhere is no folder; give the --out folder of a fuzz or check run"),
        (["."], "has no events.jsonl; give the --out folder of a fuzz or check run"),
        (["--drills", "none.json"], "none.json: can't be read: No such file"),
    ],
)
def test_what_is_no_run_is_one_line_and_exit_code_2(
    command: Command, arguments: list[str], said: str
) -> None:
    ended = command("report", *arguments)
    assert ended.code == 2
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1


def test_damage_names_file_and_line(command: Command, run_folder: Path) -> None:
    stream = run_folder / EVENTS_FILE
    stream.write_bytes(b"nonsense\n" + stream.read_bytes())
    ended = command("report", run_folder)
    assert ended.code == 2
    assert f"{stream}:1: no event" in ended.err


def test_a_file_that_cannot_be_written_is_one_line(command: Command, run_folder: Path) -> None:
    ended = command("report", run_folder, "--html", run_folder)
    assert ended.code == 2
    assert "can't be written: Is a directory; name another file" in ended.err


def test_missing_packages_are_named_with_what_to_install(
    command: Command, run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = ("jinja2", "no_such_module_anywhere")
    monkeypatch.setattr(report_command, "NEEDED", absent)
    ended = command("report", run_folder)
    assert ended.code == 3
    assert ended.err.splitlines() == [
        'treedrift: reports need no_such_module_anywhere: pip install "treedrift[reports]"'
    ]


def test_a_campaign_ends_without_the_packages_with_its_summary_alone(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report_command, "NEEDED", ("no_such_module_anywhere",))
    assert report_command.write_all(run_folder) == [run_folder / "summary.md"]
    said = capsys.readouterr().err
    assert said.startswith("no page and no JUnit XML: reports need no_such_module_anywhere")
    assert len(said.splitlines()) == 1


def test_a_kill_table_becomes_a_page_beside_it(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "kills.json"
    canary = {"drill": "leaked-slots", "caught": True, "ops": 17, "seconds": 0.2}
    file.write_text(json.dumps({"seed": 1, "budget_seconds": 60.0, "canary": canary, "drills": []}))
    ended = command("report", "--drills", file)
    assert ended.code == 0
    assert ended.out.splitlines() == [str(tmp_path / "kills.html")]
    assert "What the harness would miss" in (tmp_path / "kills.html").read_text()
