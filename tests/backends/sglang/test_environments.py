"""Managed environments: what counts as one, and what a failed installation leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from treedrift.backends.sglang import environments as envs
from treedrift.backends.sglang import recipe
from treedrift.backends.sglang.environments import (
    BrokenEnvironmentError,
    DiskSpaceError,
    InstallError,
    MissingEnvironmentError,
    RequirementError,
)

REPORT = {"torch": "2.0.0", "python": "3.11.0"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of environments, with an installer that only makes an interpreter's file."""
    monkeypatch.setenv("TREEDRIFT_HOME", str(tmp_path))
    monkeypatch.setattr(envs, "FREE_BYTES_MIN", 0)
    monkeypatch.setattr(recipe, "create_venv", lambda python, path: make_interpreter(path))
    monkeypatch.setattr(recipe, "install_release", lambda interpreter, version, given: None)
    monkeypatch.setattr(recipe, "install_needs", lambda interpreter, given, progress: None)
    monkeypatch.setattr(recipe, "check", lambda interpreter, given, progress: report(interpreter))
    return tmp_path / "envs"


def make_interpreter(path: Path) -> None:
    (path / "bin").mkdir(parents=True)
    (path / "bin" / "python").touch(mode=0o755)


def report(interpreter: Path) -> dict[str, str]:
    return {**REPORT, "release": interpreter.parent.parent.name.removeprefix("sglang-")}


def failing(error: BaseException) -> Callable[..., dict[str, str]]:
    def fail(*given: object) -> dict[str, str]:
        raise error

    return fail


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith(".lock-"))


def test_an_added_release_is_listed_and_found_by_every_name() -> None:
    added = envs.add("sglang==0.5.23")
    assert envs.environments() == [added]
    assert (added.release, added.torch, added.python) == ("0.5.23", "2.0.0", "3.11.0")
    for selector in (None, "0.5.23", "sglang-0.5.23", str(added.interpreter)):
        assert envs.resolve(selector) == added


def test_the_newest_release_is_the_default() -> None:
    for version in ("0.5.9", "0.5.23", "0.5.24rc1", "0.5.23.post1", "0.5.19"):
        envs.add(f"sglang=={version}")
    releases = [one.release for one in envs.environments()]
    assert releases == ["0.5.9", "0.5.19", "0.5.23", "0.5.23.post1", "0.5.24rc1"]
    envs.add("sglang==0.5.24")
    assert envs.resolve().release == "0.5.24"


def test_adding_twice_installs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = envs.add("sglang==0.5.23")
    monkeypatch.setattr(recipe, "create_venv", failing(AssertionError("installed again")))
    steps: list[str] = []
    assert envs.add(" sglang == 0.5.23 ", steps.append) == first
    assert steps == ["sglang-0.5.23 is there already"]


@pytest.mark.parametrize("step", ["create_venv", "install_release", "install_needs", "check"])
@pytest.mark.parametrize("error", [InstallError("no network"), KeyboardInterrupt()])
def test_an_installation_that_fails_leaves_nothing(
    step: str, error: BaseException, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe, step, failing(error))
    with pytest.raises(type(error)):
        envs.add("sglang==0.5.23")
    assert visible(folder) == []


def test_what_a_killed_installation_left_is_swept_by_the_next_one(folder: Path) -> None:
    make_interpreter(folder / ".building-sglang-0.5.23")
    assert envs.environments() == []
    envs.add("sglang==0.5.23")
    assert visible(folder) == ["sglang-0.5.23"]


def test_a_folder_without_a_marker_is_no_environment(folder: Path) -> None:
    make_interpreter(folder / "sglang-0.5.23")
    assert envs.environments() == []
    with pytest.raises(MissingEnvironmentError, match=r"treedrift env add sglang==0\.5\.23"):
        envs.resolve("0.5.23")


def test_a_complete_folder_without_a_marker_is_taken_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_interpreter(folder / "sglang-0.5.23")
    monkeypatch.setattr(recipe, "create_venv", failing(AssertionError("installed again")))
    assert envs.add("sglang==0.5.23") == envs.resolve("0.5.23")


def test_a_folder_that_cannot_be_used_is_left_for_its_owner(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_interpreter(folder / "sglang-0.5.23")
    monkeypatch.setattr(recipe, "check", failing(InstallError("no module named torch")))
    with pytest.raises(BrokenEnvironmentError, match="no module named torch"):
        envs.add("sglang==0.5.23")
    assert visible(folder) == ["sglang-0.5.23"]
    assert envs.remove("0.5.23") == "sglang-0.5.23"
    assert visible(folder) == []


def test_an_environment_that_holds_another_release_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_interpreter(folder / "sglang-0.5.22")
    other = {**REPORT, "release": "0.5.23"}
    monkeypatch.setattr(recipe, "check", lambda interpreter, given, progress: other)
    with pytest.raises(BrokenEnvironmentError, match=r"holds sglang 0\.5\.23"):
        envs.add("sglang==0.5.22")


@pytest.mark.parametrize("text", ["sglang", "sglang>=0.5", "torch==2.0", "sglang==../evil", ""])
def test_a_requirement_that_names_no_release_is_refused(text: str) -> None:
    with pytest.raises(RequirementError, match="sglang==VERSION"):
        envs.add(text)


def test_a_full_disk_is_told_before_anything_is_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(envs, "FREE_BYTES_MIN", 2**70)
    with pytest.raises(DiskSpaceError, match="TREEDRIFT_HOME"):
        envs.add("sglang==0.5.23")
    assert visible(folder) == []


@pytest.mark.parametrize("selector", ["0.5.23", "nothing", "../envs", "/no/such/python"])
def test_what_is_missing_is_named(selector: str) -> None:
    with pytest.raises(MissingEnvironmentError, match=selector.replace(".", r"\.")):
        envs.resolve(selector)
    with pytest.raises(MissingEnvironmentError):
        envs.remove(selector)


def test_an_interpreter_of_ones_own_is_an_environment(tmp_path: Path) -> None:
    make_interpreter(tmp_path / "mine")
    found = envs.resolve(str(tmp_path / "mine" / "bin" / "python"))
    assert (found.release, found.interpreter) == ("", tmp_path / "mine" / "bin" / "python")


def test_a_damaged_marker_is_no_marker(folder: Path) -> None:
    added = envs.add("sglang==0.5.23")
    marker = folder / added.name / envs.MARKER
    record = json.loads(marker.read_text())
    for text in ("{", "[]", json.dumps({**record, "colour": "red"})):
        marker.write_text(text)
        assert envs.environments() == []


def test_each_environment_has_its_own_tools_and_extension_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    first, second = envs.add("sglang==0.5.22"), envs.add("sglang==0.5.23")
    given = [one.process_environment() for one in (first, second)]
    assert given[0]["TORCH_EXTENSIONS_DIR"] != given[1]["TORCH_EXTENSIONS_DIR"]
    assert given[0]["PATH"].startswith(str(first.interpreter.parent))
    assert "PYTHONPATH" not in given[0]
    make_interpreter(tmp_path / "mine")
    own = envs.resolve(str(tmp_path / "mine" / "bin" / "python")).process_environment()
    assert own["TORCH_EXTENSIONS_DIR"].startswith(str(tmp_path))
