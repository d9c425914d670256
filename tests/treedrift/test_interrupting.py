"""Ctrl-C in a running campaign: what was found is kept and told."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WAIT_SECONDS_MAX = 120


def start(own_process: dict[str, Any], pair: str, jobs: int, **env: str) -> subprocess.Popen[str]:
    own_process["env"] |= env
    arguments = ["fuzz", "--pair", pair, "--time", "10m", "--jobs", str(jobs), "--json"]
    return subprocess.Popen(
        [sys.executable, "-m", "treedrift", *arguments, "--out", "found"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **own_process,
    )


def press_ctrl_c(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Interrupt the whole group of processes, as a terminal does; returns what it says then."""
    os.killpg(process.pid, signal.SIGINT)
    return process.communicate(timeout=WAIT_SECONDS_MAX)


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_ends_an_agreeing_campaign_with_130_and_its_statistics(
    own_process: dict[str, Any], place: Path, jobs: int
) -> None:
    pipe = place / "under-way"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    process = start(own_process, "python,twin", jobs, SPOILT_CORES_CREATED=str(pipe))
    select.select([reader], [], [], WAIT_SECONDS_MAX)
    out, err = press_ctrl_c(process)
    os.close(reader)
    assert process.returncode == 130, err
    told = json.loads(out)
    assert told["interrupted"] is True
    assert told["ops"] > 0
    assert told["divergences"] == []
    assert "Traceback" not in err


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_keeps_what_was_found(own_process: dict[str, Any], place: Path, jobs: int) -> None:
    process = start(own_process, "python,leaky", jobs)
    assert process.stderr is not None
    assert any(line.startswith("found ") for line in process.stderr), "it found nothing"
    out, err = press_ctrl_c(process)
    assert process.returncode == 1, err
    told = json.loads(out)
    assert told["interrupted"] is True
    assert told["divergences"]
    for found in told["divergences"]:
        assert (place / found["file"]).is_file()
    assert "Traceback" not in err
