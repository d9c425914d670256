"""The built wheel in an environment with SGLang: what it moves, registers and survives."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.treedrift.inside.conftest import Inside
from treedrift.backends.sglang import recipe
from treedrift.backends.sglang.environments import Environment

pytestmark = pytest.mark.released

NAMES = ["treedrift-python", "treedrift-rust", "treedrift-shadow", "treedrift-record"]

REGISTER = """
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.mem_cache.unified_cache.tree_core_registry import registered_tree_core_backends
print("registered:", *registered_tree_core_backends())
"""

BUILD_CORES = (
    REGISTER
    + """
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_cache.tree_core_registry import create_tree_core
for name in ("treedrift-python", "treedrift-rust"):
    core = create_tree_core(name, CacheInitParams(
        disable=False, req_to_token_pool=None, token_to_kv_pool_allocator=None, page_size=1,
        tree_components=(ComponentType.FULL,),
    ), {})
    core.reset()
    print("built:", name)
"""
)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_by(python: Path, *arguments: str) -> set[str]:
    """Distributions that pip would install or replace."""
    command = [str(python), "-m", "pip", "install", "--dry-run", "--quiet", "--report", "-"]
    done = subprocess.run(
        [*command, "--disable-pip-version-check", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {normal(one["metadata"]["name"]) for one in json.loads(done.stdout)["install"]}


OWN_TOOLS = ("typer", "rich")
"""What treedrift needs and SGLang's own metadata doesn't name."""


def stub_wheels(folder: Path, names: tuple[str, ...]) -> None:
    """Wheels without content of these packages and all that they need, as installed here."""
    todo, done = list(names), set()
    while todo:
        name = normal(todo.pop())
        if name in done:
            continue
        done.add(name)
        found = importlib.metadata.distribution(name)
        needed = [text for text in found.requires or [] if "extra ==" not in text]
        todo += [re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in needed if ";" not in text]
        stem = f"{name.replace('-', '_')}-{found.version}"
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as file:
            info = f"{stem}.dist-info"
            file.writestr(f"{info}/METADATA", found.read_text("METADATA") or "")
            file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            file.writestr(f"{info}/RECORD", "")


@pytest.mark.parametrize("absent", [(), OWN_TOOLS], ids=["all there", "without our tools"])
def test_installing_the_wheel_beside_sglang_moves_nothing(
    managed: Environment, wheel: Path, tmp_path: Path, absent: tuple[str, ...]
) -> None:
    """In a copy of the environment that has metadata alone: pip reads no more of a package."""
    (packages,) = managed.interpreter.parents[1].glob("lib/python*/site-packages")
    recipe.create_venv(str(managed.interpreter), tmp_path / "venv")
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    installed = set()
    for info in packages.glob("*.dist-info"):
        name = normal(info.name.split("-")[0])
        if name not in (*absent, "pip", "setuptools"):
            (site / info.name).symlink_to(info)
            installed.add(name)
    (tmp_path / "wheels").mkdir()
    stub_wheels(tmp_path / "wheels", OWN_TOOLS)
    links = f"--find-links={tmp_path / 'wheels'}"
    added = installed_by(tmp_path / "venv" / "bin" / "python", "--no-index", links, str(wheel))
    named = set(recipe.read_pins(managed.interpreter, managed.process_environment()))
    assert {"treedrift", *absent} <= added
    assert added & (installed | named) == set()


def test_sglang_finds_the_plugin_and_registers_its_cores(inside: Inside) -> None:
    said = inside("-c", REGISTER)
    assert f"registered: python rust {' '.join(NAMES)}" in said


def test_folders_named_like_our_rooms_do_not_break_a_server(inside: Inside, tmp_path: Path) -> None:
    for name in ("models", "backends", "harness", "reports"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('imported by mistake')\n")
    said = inside("-c", BUILD_CORES, cwd=tmp_path)
    assert f"registered: python rust {' '.join(NAMES)}" in said
    assert "built: treedrift-python" in said
    assert "built: treedrift-rust" in said


def test_a_worker_runs_this_checkout_in_an_environment_that_has_the_wheel(
    sglang_venv: Path, tmp_path: Path
) -> None:
    command = Path(sys.executable).with_name("treedrift")
    pair = f"python,sglang-python@{sglang_venv}"
    arguments = ["--pair", pair, "--ops", "300", "--seed", "1", "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [str(command), "fuzz", *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
