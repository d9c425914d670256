"""The command in this process or in one of its own, with cores of another package plugged in."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from treedrift import cli

ENTRY_POINTS = """[treedrift.backends]
twin = spoilt_cores:twin
leaky = spoilt_cores:leaky
bare = spoilt_cores:bare
hollow = spoilt_cores:hollow
absent = no_such_module_anywhere:core
"""


class Ended:
    """How the command ended, and what it said."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self) -> Any:
        """The one object on standard output."""
        (line,) = self.out.splitlines()
        return json.loads(line)


Command = Callable[..., Ended]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with an installed package that brings cores."""
    folder = tmp_path / "site"
    info = folder / "spoilt_cores-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: spoilt-cores\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    shutil.copy(Path(__file__).with_name("spoilt_cores.py"), folder)
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder without managed environments."""
    folder = tmp_path / "place"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TREEDRIFT_HOME", str(tmp_path / "home"))
    return folder


@pytest.fixture
def command(
    site: Path,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Command:
    """Run the command here."""
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "spoilt_cores", raising=False)

    def run(*arguments: str | Path) -> Ended:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Ended(ended.value.code, said.out, said.err)

    return run


@pytest.fixture
def own_process(site: Path, place: Path) -> dict[str, Any]:
    """Arguments of `subprocess.Popen` for the command in a process of its own."""
    path = os.pathsep.join([str(site), str(Path(cli.__file__).parents[1])])
    return {
        "env": {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        "cwd": place,
        "text": True,
        "start_new_session": True,
        # A run in the background may have been started with Ctrl-C ignored, which is inherited.
        "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    }
