"""An environment with a released SGLang and the built wheel, and code that runs in it.

The environment is a thin virtual environment before the managed one, whose packages it sees
through a path file: SGLang takes no second 6 GB, and the managed environment stays as it is. It is
kept in build/ and made anew for another wheel or another release.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from treedrift.backends.sglang.environments import Environment, environments

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "build"
SECONDS_MAX = 600


class Inside(Protocol):
    """How tests run code in the environment."""

    def __call__(
        self,
        *arguments: str | Path,
        cwd: Path | None = None,
        variables: dict[str, str] | None = None,
        fails: bool = False,
    ) -> str:
        """Run the interpreter with these arguments; what it printed, errors and log included.

        `variables` are set in addition. It must succeed, or fail if `fails`.
        """


@pytest.fixture(scope="session")
def managed() -> Environment:
    """The newest managed environment; tests that need one are skipped without it."""
    found = environments()
    if not found:
        pytest.skip("no environment with a released SGLang; treedrift env add sglang==VERSION")
    return found[-1]


@pytest.fixture(scope="session")
def wheel() -> Path:
    """The wheel of this working tree, built now."""
    with _lock("wheels"):
        folder = BUILD / "wheels"
        maturin = str(Path(sys.executable).with_name("maturin"))
        run([maturin, "build", "--release", "--quiet", "--out", str(folder)])
        return max(folder.glob("*.whl"), key=lambda path: path.stat().st_mtime)


@pytest.fixture(scope="session")
def sglang_venv(managed: Environment, wheel: Path) -> Path:
    """The interpreter of an environment with SGLang in which the wheel is installed."""
    folder = BUILD / "sglang-venv"
    interpreter = folder / "bin" / "python"
    (behind,) = managed.interpreter.parents[1].glob("lib/python*/site-packages")
    installed = folder / "installed"
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    pip = [str(interpreter), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    with _lock("sglang-venv"):
        links = list(folder.glob("lib/python*/site-packages/behind.pth"))
        if [link.read_text() for link in links] != [f"{behind}\n"]:
            shutil.rmtree(folder, ignore_errors=True)
            run([str(managed.interpreter), "-m", "venv", str(folder)])
            (packages,) = folder.glob("lib/python*/site-packages")
            (packages / "behind.pth").write_text(f"{behind}\n")
        if not installed.exists() or installed.read_text() != digest:
            run([*pip, "uninstall", "--yes", "treedrift"])
            run([*pip, "install", str(wheel)])
            installed.write_text(digest)
    return interpreter


@pytest.fixture(scope="session")
def inside(
    sglang_venv: Path, managed: Environment, tmp_path_factory: pytest.TempPathFactory
) -> Inside:
    """Run code in the environment, by default from an empty folder."""
    empty = tmp_path_factory.mktemp("server")
    given = {
        # Python's own tools come first, and extensions that the release builds lie where they are.
        **managed.process_environment(),
        "PATH": os.pathsep.join([str(sglang_venv.parent), managed.process_environment()["PATH"]]),
        "OMP_NUM_THREADS": "1",
    }

    def ran(
        *arguments: str | Path,
        cwd: Path | None = None,
        variables: dict[str, str] | None = None,
        fails: bool = False,
    ) -> str:
        command = [str(sglang_venv), *map(str, arguments)]
        environment = {**given, **(variables or {})}
        return run(command, cwd=cwd or empty, environment=environment, fails=fails)

    return ran


def run(
    command: list[str],
    cwd: Path = ROOT,
    environment: dict[str, str] | None = None,
    fails: bool = False,
) -> str:
    """What a command printed; it must succeed, or fail if `fails`."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert (done.returncode != 0) == fails, f"{command[:4]}: {done.returncode}\n{done.stdout}"
    return done.stdout


@contextlib.contextmanager
def _lock(name: str) -> Iterator[None]:
    """One process at a time makes what lies in build/ under this name."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
