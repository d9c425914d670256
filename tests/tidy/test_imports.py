"""The forbidden imports that docs/architecture.md names are not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_imports_go_one_way_and_cores_share_nothing() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "pyproject.toml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_itself_imports_nothing() -> None:
    code = "import sys; old = set(sys.modules); import treedrift; print(set(sys.modules) - old)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "{'treedrift'}"
