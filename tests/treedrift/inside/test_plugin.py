"""The plugin for SGLang in processes that have no SGLang, an old one, or one with names taken."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from treedrift.inside import plugin

NAMES = ["treedrift-python", "treedrift-rust", "treedrift-shadow", "treedrift-record"]

REGISTRY = '''"""A registry like SGLang's own."""
cores = {}
def get_tree_core_factory(name):
    return cores.get(name)
def register_tree_core_backend(name, factory):
    if name in cores:
        raise ValueError(name)
    cores[name] = factory
'''


@pytest.fixture
def unified_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a package that stands for SGLang's and has no registry; gone after the test."""
    folder = tmp_path / "sglang" / "srt" / "mem_cache" / "unified_cache"
    folder.mkdir(parents=True)
    for package in [folder, *folder.parents[:3]]:
        (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "sglang"]:
        del sys.modules[name]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "treedrift")
    return caplog


def cores() -> dict[str, object]:
    registry = sys.modules["sglang.srt.mem_cache.unified_cache.tree_core_registry"]
    found: dict[str, object] = registry.cores
    return found


def test_without_sglang_nothing_is_imported_and_nothing_is_said() -> None:
    code = (
        "import sys, treedrift.inside.plugin as plugin; plugin.register();"
        "print(sorted({name.partition('.')[0] for name in sys.modules}"
        " & {'sglang', 'torch', 'numpy', 'msgspec', 'rich', 'typer'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_release_without_a_registry_is_told_in_one_line(
    unified_cache: Path, log: pytest.LogCaptureFixture
) -> None:
    plugin.register()
    assert unified_cache.is_dir()
    (message,) = log.messages
    assert message.startswith("treedrift adds no tree cores: this sglang takes none (")
    assert "tree_core_registry" in message


def test_the_names_are_registered_once_however_often_it_is_called(
    unified_cache: Path, log: pytest.LogCaptureFixture
) -> None:
    (unified_cache / "tree_core_registry.py").write_text(REGISTRY)
    plugin.register()
    plugin.register()
    assert list(cores()) == NAMES
    assert {record.levelno for record in log.records} == {logging.INFO}


def test_a_name_that_is_taken_stays_with_its_owner(
    unified_cache: Path, log: pytest.LogCaptureFixture
) -> None:
    theirs = "from json import loads\n" + REGISTRY + "cores['treedrift-rust'] = loads\n"
    (unified_cache / "tree_core_registry.py").write_text(theirs)
    plugin.register()
    assert sorted(cores()) == sorted(NAMES)
    assert getattr(cores()["treedrift-rust"], "__module__", "") == "json"
    (warning,) = [text for text in log.messages if "taken" in text or "already" in text]
    assert warning == "treedrift-rust is registered already, by json; it stays theirs"
