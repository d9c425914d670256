"""Managed environments: one virtual environment per released SGLang, in a cache folder.

They live in `$TREEDRIFT_HOME/envs` (by default `~/.cache/treedrift/envs`), several releases side
by side. An environment counts once a marker file says that it was checked; what lies there
without one is unfinished. Stdlib only; runs in the project's own interpreter.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from . import recipe
from .recipe import InstallError, Progress

MARKER = "treedrift-environment.json"
FREE_BYTES_MIN = 8 * 10**9
"""What an installation needs: 6 GB installed, and wheels on their way."""

_REQUIREMENT = re.compile(r"sglang\s*==\s*([0-9][0-9A-Za-z.+!-]*)")
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!-]*")

__all__ = [
    "BrokenEnvironmentError",
    "DiskSpaceError",
    "Environment",
    "EnvironmentsError",
    "InstallError",
    "MissingEnvironmentError",
    "RequirementError",
    "add",
    "environments",
    "remove",
    "resolve",
]


class EnvironmentsError(Exception):
    """Base of the errors here; each message says what to do."""


class MissingEnvironmentError(EnvironmentsError):
    """There is no such environment or interpreter."""


class RequirementError(EnvironmentsError):
    """Not a requirement that names one release."""


class DiskSpaceError(EnvironmentsError):
    """Too little room for an environment."""


class BrokenEnvironmentError(EnvironmentsError):
    """A folder lies where the environment should, and the cores can't be imported from it."""


@dataclass(frozen=True)
class Environment:
    """An interpreter with a released SGLang. `release` is empty for one that isn't managed.

    `date` is when the environment was checked, in ISO format.
    """

    name: str
    interpreter: Path
    release: str = ""
    torch: str = ""
    python: str = ""
    date: str = ""

    def process_environment(self) -> dict[str, str]:
        """Environment variables for a process of this environment.

        Its own tools come first in the path, nothing leads back to the caller's packages, and
        torch builds extensions in a folder of its own: its lock would serialise all workers.
        """
        given = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
        }
        tools = self.interpreter.parent
        given["PATH"] = os.pathsep.join([str(tools), given.get("PATH", os.defpath)])
        given["PYTHONNOUSERSITE"] = "1"
        given["TORCH_EXTENSIONS_DIR"] = str(self._extensions())
        return given

    def _extensions(self) -> Path:
        if self.release:
            return self.interpreter.parent.parent / "torch_extensions"
        digest = hashlib.sha256(str(self.interpreter).encode()).hexdigest()[:16]
        return home() / "torch_extensions" / digest


def home() -> Path:
    """Where everything that treedrift keeps between runs lies."""
    given = os.environ.get("TREEDRIFT_HOME")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "treedrift"


def environments() -> list[Environment]:
    """The managed environments that are complete, oldest release first."""
    folder = _folder()
    if not folder.is_dir():
        return []
    found = [_marked(path) for path in sorted(folder.iterdir())]
    return sorted((one for one in found if one is not None), key=_age)


def resolve(selector: str | None = None) -> Environment:
    """The environment that `0.5.23`, `sglang-0.5.23` or a path of an interpreter stands for.

    None stands for the newest managed one. Raises `MissingEnvironmentError`.
    """
    known = environments()
    if selector is None:
        if not known:
            raise MissingEnvironmentError(
                "no environment with a released SGLang; make one: treedrift env add sglang==VERSION"
            )
        return known[-1]
    if os.sep in selector or selector.startswith("~"):
        return _by_path(selector)
    for one in known:
        if selector in (one.name, one.release):
            return one
    version = selector.removeprefix("sglang-")
    names = ", ".join(one.release for one in known) or "none"
    todo = f"; make it: treedrift env add sglang=={version}" if _VERSION.fullmatch(version) else ""
    raise MissingEnvironmentError(f"no environment {selector!r} (there are: {names}){todo}")


def add(requirement: str, progress: Progress = lambda step: None, python: str = "") -> Environment:
    """Install and check a release, given as `sglang==VERSION`; nothing if it is there.

    A complete virtual environment of the same name that nobody marked is checked and taken over.
    An installation that fails or is interrupted leaves nothing. `python` is the interpreter to
    build on: by default a Python 3.11, for which the compiled core is published.

    Raises `RequirementError`, `DiskSpaceError`, `InstallError` or `BrokenEnvironmentError`.
    """
    match = _REQUIREMENT.fullmatch(requirement.strip())
    if match is None:
        raise RequirementError(f"{requirement!r} names no release; write sglang==VERSION")
    version = match[1]
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"sglang-{version}"
    with _lock(target, progress):
        existing = _marked(target)
        if existing is not None:
            progress(f"{target.name} is there already")
            return existing
        if target.exists():
            return _adopt(target, version, progress)
        return _build(target, version, python or _default_python(), progress)


def remove(selector: str) -> str:
    """Delete a managed environment, also an unfinished one; returns its name.

    Raises `MissingEnvironmentError`.
    """
    name = selector if selector.startswith("sglang-") else f"sglang-{selector}"
    target = _folder() / name
    if os.sep in selector or not target.is_dir():
        known = ", ".join(one.name for one in environments()) or "none"
        raise MissingEnvironmentError(f"no environment {selector!r} to remove (there are: {known})")
    with _lock(target, lambda step: None):
        _discard(target)
    return name


# --- Building -----------------------------------------------------------------------------


def _build(target: Path, version: str, python: str, progress: Progress) -> Environment:
    building = target.with_name(f".building-{target.name}")
    _discard(building)
    free = shutil.disk_usage(target.parent).free
    if free < FREE_BYTES_MIN:
        raise DiskSpaceError(
            f"{target.parent} has {free / 1e9:.1f} GB free, an environment needs "
            f"{FREE_BYTES_MIN / 1e9:.0f}; remove one (treedrift env remove) or set TREEDRIFT_HOME"
        )
    try:
        progress(f"making a virtual environment with {python}")
        recipe.create_venv(python, building)
        under_way = Environment(target.name, _interpreter(building), version)
        given = under_way.process_environment()
        progress(f"installing sglang=={version}")
        recipe.install_release(under_way.interpreter, version, given)
        recipe.install_needs(under_way.interpreter, given, progress)
        building.rename(target)
        # Checked where it will stay: the hash extension that the check builds knows its folder.
        return _check_and_mark(target, version, progress)
    except BaseException:
        _discard(building)
        _discard(target)
        raise


def _adopt(target: Path, version: str, progress: Progress) -> Environment:
    progress(f"{target.name} was never marked as complete; checking it")
    interpreter = _interpreter(target)
    if not interpreter.exists():
        raise BrokenEnvironmentError(
            f"{target} holds no virtual environment; treedrift env remove {target.name}"
        )
    found = Environment(target.name, interpreter, version)
    try:
        recipe.install_needs(interpreter, found.process_environment(), progress)
        return _check_and_mark(target, version, progress)
    except InstallError as error:
        raise BrokenEnvironmentError(
            f"{target} can't be used; treedrift env remove {target.name}, then add it\n{error}"
        ) from error


def _check_and_mark(target: Path, version: str, progress: Progress) -> Environment:
    found = Environment(target.name, _interpreter(target), version)
    report = recipe.check(found.interpreter, found.process_environment(), progress)
    if report["release"] != version:
        raise InstallError(f"{target.name} holds sglang {report['release']}")
    date = datetime.now(UTC).isoformat(timespec="seconds")
    complete = Environment(target.name, found.interpreter, date=date, **report)
    record = {key: value for key, value in asdict(complete).items() if key not in _DERIVED}
    # Written aside first, so that a marker is either whole or not there.
    aside = target / f".{MARKER}"
    aside.write_text(json.dumps(record, indent=2) + "\n")
    aside.rename(target / MARKER)
    progress(f"{target.name} is complete")
    return complete


_DERIVED = ("name", "interpreter")


def _default_python() -> str:
    if sys.version_info[:2] == (3, 11):
        return sys.executable
    return shutil.which("python3.11") or sys.executable


# --- Folders ------------------------------------------------------------------------------


def _folder() -> Path:
    return home() / "envs"


def _interpreter(folder: Path) -> Path:
    return folder / "bin" / "python"


def _marked(path: Path) -> Environment | None:
    """The environment in a folder, if it is complete."""
    try:
        record = json.loads((path / MARKER).read_text())
        found = Environment(path.name, _interpreter(path), **record)
    except (OSError, ValueError, TypeError):
        return None
    return found if found.interpreter.exists() else None


def _by_path(selector: str) -> Environment:
    path = Path(selector).expanduser().absolute()
    if not path.is_file() or not os.access(path, os.X_OK):
        raise MissingEnvironmentError(f"{selector} is no interpreter that can be run")
    for one in environments():
        if one.interpreter == path:
            return one
    return Environment(selector, path)


def _age(one: Environment) -> list[tuple[int, int, str]]:
    """Orders releases: a candidate comes before its release, a post-release after it."""
    parts: list[tuple[int, int, str]] = []
    for part in re.findall(r"\d+|[a-z]+", one.release.lower()):
        if part.isdigit():
            parts.append((2, int(part), ""))
        else:
            parts.append((1, 1, part) if part == "post" else (0, 0, part))
    return [*parts, (1, 0, "")]


def _discard(folder: Path) -> None:
    """Delete a folder so that an interruption can't leave half of it under its own name."""
    if not folder.exists():
        return
    doomed = folder.with_name(f".removing-{folder.name.lstrip('.')}-{os.getpid()}")
    folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


@contextlib.contextmanager
def _lock(target: Path, progress: Progress) -> Iterator[None]:
    """One process at a time may change an environment."""
    path = target.with_name(f".lock-{target.name}")
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"waiting for another process that works on {target.name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
