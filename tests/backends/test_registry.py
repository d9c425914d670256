"""Names of cores, and the cores that they stand for."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest

from treedrift.backends import registry
from treedrift.backends.contract import CacheInitParams
from treedrift.backends.registry import (
    BackendName,
    UnavailableBackendError,
    UnknownBackendError,
    list_backends,
    local_backend,
)
from treedrift.backends.sglang.environments import MissingEnvironmentError


class Plugged:
    """A core of another package, as its entry point gives it."""

    @staticmethod
    def create(params: CacheInitParams) -> Any:
        return "a core"


class Shown(Plugged):
    """The same, and it can be inspected."""

    @staticmethod
    def inspect(core: Any) -> Any:
        return "a snapshot"


class EntryPoint:
    """What the metadata of an installed package would hold."""

    value = "somewhere:plugin"

    def __init__(self, plugin: Any) -> None:
        self._plugin = plugin

    def load(self) -> Any:
        if isinstance(self._plugin, Exception):
            raise self._plugin
        return self._plugin


@pytest.fixture(autouse=True)
def no_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREEDRIFT_HOME", str(tmp_path))


def plug(monkeypatch: pytest.MonkeyPatch, **plugins: Any) -> None:
    found = {name: EntryPoint(plugin) for name, plugin in plugins.items()}
    monkeypatch.setattr(registry, "_entry_points", lambda: found)


def test_a_name_may_say_where_the_core_lives() -> None:
    assert BackendName.parse("sglang-rust@0.5.23") == BackendName("sglang-rust", "0.5.23")
    assert str(BackendName.parse(" python ")) == "python"
    assert str(BackendName.parse("python@/usr/bin/python3")) == "python@/usr/bin/python3"


def test_an_unknown_name_gives_the_closest_one_and_all() -> None:
    with pytest.raises(UnknownBackendError, match="did you mean sglang-rust") as raised:
        BackendName.parse("sglang-rst")
    assert "python, rust, sglang-python, sglang-rust" in str(raised.value)


def test_a_name_without_an_environment_after_the_at_sign_is_refused() -> None:
    with pytest.raises(UnknownBackendError, match="no environment after the @"):
        BackendName.parse("python@")


def test_a_core_of_our_own_runs_in_this_interpreter() -> None:
    assert BackendName.parse("python").place() is None


def test_a_released_core_without_an_environment_says_how_to_make_one() -> None:
    with pytest.raises(MissingEnvironmentError, match="treedrift env add"):
        BackendName.parse("sglang-python").place()


def test_the_python_core_is_built_and_inspected() -> None:
    backend = local_backend("python")
    core = backend.create(CacheInitParams())
    assert backend.inspect is not None
    assert len(backend.inspect(core).nodes) == 1


def test_a_released_core_is_not_local_without_sglang() -> None:
    with pytest.raises(UnavailableBackendError, match="has sglang"):
        local_backend("sglang-rust")


def test_a_core_of_another_package_is_found_by_its_entry_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plug(monkeypatch, mine=Plugged, shown=Shown())
    mine, shown = local_backend("mine"), local_backend("shown")
    assert (mine.create(CacheInitParams()), mine.inspect) == ("a core", None)
    assert shown.inspect is not None
    assert str(BackendName.parse("mine")) == "mine"


def test_a_built_in_core_is_not_replaced_by_an_entry_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plug(monkeypatch, python=Plugged)
    assert local_backend("python").create is not Plugged.create


def test_the_list_says_what_can_be_used_and_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    plug(monkeypatch, broken=ImportError("no numbers"), empty=object(), shown=Shown())
    found = {status.name: status for status in list_backends()}
    assert found["python"].is_available
    assert "treedrift env add" in found["sglang-rust"].why
    assert "no numbers" in found["broken"].why
    assert "create(params)" in found["empty"].why
    assert (found["shown"].is_available, found["shown"].can_inspect) == (True, True)
    assert not found["broken"].is_available


def test_entry_points_are_read_from_the_groups_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def entry_points(group: str) -> list[Any]:
        asked.append(group)
        return []

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    assert registry.known_names() == ["python", "rust", "sglang-python", "sglang-rust"]
    assert asked == ["treedrift.backends"]
