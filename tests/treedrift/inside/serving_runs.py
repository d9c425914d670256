"""Starts `serving_inside.py` in the environment with SGLang, and reads what it found."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.treedrift.inside.conftest import ROOT, Inside

TOKENS = (7 * 10**14, 8 * 10**14)
"""Between these lies every token of the lives whose traces are kept, and nothing else."""

NAMES = ("tenant", "adapter")
"""What namespaces and adapters of the lives are called."""

PROGRAM = Path(__file__).with_name("serving_inside.py")


def theme(name: str, inside: Inside, folder: Path) -> tuple[Any, str]:
    """What the program found for a theme, and what it printed; `folder` is where it works."""
    output = folder / f"{name}.json"
    said = inside(*("-W", "ignore", PROGRAM, name, output), variables=beside(folder), cwd=folder)
    return json.loads(output.read_text()), said


def beside(folder: Path) -> dict[str, str]:
    """Variables that put the benchmarks on the path, and not this tree's treedrift."""
    path = folder / "path"
    path.mkdir(exist_ok=True)
    link = path / "benchmarks"
    if not link.exists():
        link.symlink_to(ROOT / "benchmarks")
    return {"PYTHONPATH": str(path)}


def users_named_in(trace: Path) -> list[str]:
    """Tokens and names of the server's users that stand in a trace as they are."""
    text = trace.read_text()
    numbers = re.findall(r"\d+", text)
    tokens = [number for number in numbers if TOKENS[0] <= int(number) < TOKENS[1]]
    return tokens + [name for name in NAMES if name in text]


def treedrift(*arguments: str | Path, code: int) -> str:
    """Run treedrift here, where the project is developed; what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "treedrift", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout
