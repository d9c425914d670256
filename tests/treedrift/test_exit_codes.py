"""Every exit code, as the command gives it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.treedrift.conftest import Command
from treedrift import cli, running
from treedrift.harness.exit_codes import ExitCode
from treedrift.harness.remote import WorkerFailure
from treedrift.harness.side import HarnessError

FUZZ = ("fuzz", "--ops", "200", "--out", "found")


def test_agreeing_cores_end_with_0(command: Command, place: Path) -> None:
    ended = command(*FUZZ, "--pair", "python,twin")
    assert ended.code == ExitCode.AGREED == 0
    assert "python against twin: no divergence" in ended.out
    assert list(place.iterdir()) == []


def test_a_divergence_ends_with_1_and_is_saved(command: Command, place: Path) -> None:
    ended = command(*FUZZ, "--pair", "python,leaky")
    assert ended.code == ExitCode.DIVERGENCE == 1
    files = list((place / "found").iterdir())
    assert files
    assert all(f"treedrift replay found/{file.name}" in ended.out for file in files)


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

    monkeypatch.setattr(running, "run_plan", fail)
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

    monkeypatch.setattr(cli, "parse_pairs", interrupt)
    monkeypatch.setattr("treedrift.backends.registry.list_backends", interrupt)
    ended = command(*arguments)
    assert ended.code == ExitCode.INTERRUPTED == 130
    assert "Traceback" not in ended.err


def test_the_documented_table_is_the_real_one() -> None:
    text = (Path(cli.__file__).parents[1] / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (.*) \|$", text, re.MULTILINE)
    assert rows == [(str(int(one)), one.name.lower(), one.meaning) for one in ExitCode]
