"""How an environment with a released SGLang is installed and checked (stdlib only).

The released cores run on the CPU with a small part of what a server needs. Everything that the
wheel pins is taken at its pin, read from the wheel's own metadata, so nothing here depends on a
version. Hides pip.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

Progress = Callable[[str], None]
"""Told of each step, as a short sentence without a full stop."""

TORCH_FAMILY = ("torch", "torchvision", "transformers")
NEEDED_AT_IMPORT = (
    "orjson",
    "psutil",
    "pybase64",
    "requests",
    "triton",
    "packaging",
    "pillow",
    "starlette",
    "msgspec",
    "pydantic",
    "pyzmq",
    "tqdm",
    "ipython",
    "aiohttp",
    "dill",
    "apache-tvm-ffi",
    "sentencepiece",
    "compressed-tensors",
    "gguf",
    "loguru",
)
# The Python core builds its hash functions with torch's extension loader, which needs ninja.
NEEDED_TO_HASH = ("ninja",)

ADDITIONS_MAX = 12
OUTPUT_LINES_MAX = 15

_READ_PINS = """
import importlib.metadata, json, re
from pip._vendor.packaging.requirements import Requirement
found = {}
for text in importlib.metadata.distribution("sglang").requires or []:
    requirement = Requirement(text)
    if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        found[name] = f"{requirement.name}{requirement.specifier}"
print(json.dumps(found))
"""

_CHECK = """
import importlib.metadata, json, platform, sys
report = {"python": platform.python_version(), "missing": None, "flavours": {}}
try:
    import torch
    report["torch"] = torch.__version__
    report["release"] = importlib.metadata.version("sglang")
    from sglang.srt.mem_cache.unified_cache import unified_tree_core
    from sglang.srt.mem_cache.utils import get_hash_str
    try:
        get_hash_str([1, 2], None, page_size=1)
        report["flavours"]["python"] = None
    except Exception as error:
        report["flavours"]["python"] = f"it can't hash: {error.__cause__ or error}"
    try:
        from sglang.srt.mem_cache.cache_init_params import CacheInitParams
        from sglang.srt.mem_cache.rust_tree_core.adapter import RustUnifiedTreeCore
        from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
        RustUnifiedTreeCore(CacheInitParams(
            disable=False, req_to_token_pool=None, token_to_kv_pool_allocator=None, page_size=1,
            tree_components=(ComponentType.FULL,),
        ))
        report["flavours"]["rust"] = None
    except ModuleNotFoundError:
        raise
    except Exception as error:
        report["flavours"]["rust"] = f"it can't be built: {error}"
except ModuleNotFoundError as error:
    report["missing"] = error.name
print("\\n" + json.dumps(report))
"""


class InstallError(Exception):
    """Installing or checking an environment failed; the message ends with what the tool said."""


def create_venv(python: str, folder: Path) -> None:
    """Make an empty virtual environment."""
    _run([python, "-m", "venv", str(folder)], os.environ, "make a virtual environment")


def install_release(interpreter: Path, version: str, environment: Mapping[str, str]) -> None:
    """Install the release without anything that it depends on."""
    _pip(interpreter, ["--no-deps", f"sglang=={version}"], environment)


def install_needs(interpreter: Path, environment: Mapping[str, str], progress: Progress) -> None:
    """Install the torch that the wheel pins, and what importing the cores needs.

    Does nothing to what is there already, unless it contradicts a pin of torch's family.
    """
    pins = read_pins(interpreter, environment)
    if "==" not in pins.get("torch", ""):
        raise InstallError("the metadata of this sglang pins no torch")
    family = [pins.get(name, name) for name in TORCH_FAMILY]
    progress(f"installing {' '.join(family)} (some 5 GB)")
    wanted = [*family, *(pins.get(name, name) for name in NEEDED_AT_IMPORT), *NEEDED_TO_HASH]
    _pip(interpreter, wanted, environment)


def read_pins(interpreter: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Requirements of the installed sglang that hold here, by normalised name."""
    output = _run([str(interpreter), "-c", _READ_PINS], environment, "read sglang's metadata")
    pins: dict[str, str] = json.loads(output)
    return pins


def check(interpreter: Path, environment: Mapping[str, str], progress: Progress) -> dict[str, str]:
    """Import both cores, adding packages that the release names and the recipe doesn't.

    Returns the versions of "release", "torch" and "python". Raises `InstallError` if a core can't
    be used.
    """
    for _ in range(ADDITIONS_MAX):
        progress("importing the released cores")
        output = _run([str(interpreter), "-c", _CHECK], environment, "import the released cores")
        report = json.loads(output.splitlines()[-1])
        missing = report["missing"]
        if missing is None:
            return _usable(report)
        name = missing.partition(".")[0].replace("_", "-").lower()
        pins = read_pins(interpreter, environment)
        if name not in pins:
            raise InstallError(f"importing the cores needs {missing!r}, which sglang doesn't name")
        progress(f"installing {pins[name]}, which this release imports as well")
        _pip(interpreter, [pins[name]], environment)
    raise InstallError(f"importing the cores still fails after {ADDITIONS_MAX} more packages")


def _usable(report: dict[str, dict[str, str | None]]) -> dict[str, str]:
    broken = {name: why for name, why in report["flavours"].items() if why is not None}
    if broken:
        raise InstallError("; ".join(f"the {name} core: {why}" for name, why in broken.items()))
    return {name: str(report[name]) for name in ("release", "torch", "python")}


def _pip(interpreter: Path, wanted: list[str], environment: Mapping[str, str]) -> None:
    command = [str(interpreter), "-m", "pip", "install", "--no-input", "--quiet", *wanted]
    quiet = {**environment, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    _run(command, quiet, f"install {wanted[-1] if len(wanted) < 3 else 'the packages'}")


def _run(command: list[str], environment: Mapping[str, str], purpose: str) -> str:
    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise InstallError(f"can't {purpose}: {error}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-OUTPUT_LINES_MAX:]
        raise InstallError("\n".join([f"can't {purpose}: exit code {done.returncode}", *said]))
    return done.stdout
