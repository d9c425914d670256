"""The recorder outlives its server's end, and its own end does the server no harm."""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.harness.transcript.calls import begin, match
from treedrift.harness import ops
from treedrift.harness.config import Config
from treedrift.harness.trace import Trace, read_trace
from treedrift.harness.transcript import PlainNames
from treedrift.inside.recording import Recording
from treedrift.inside.watched import WatchEndedError

ROOT = Path(__file__).parents[3]


def serve(folder: Path, body: str) -> subprocess.CompletedProcess[str]:
    """Run lines of a process that has a `recording` into a folder."""
    head = f"""
        import os, resource, signal
        from pathlib import Path
        from tests.harness.transcript.calls import begin, match
        from treedrift.harness.config import Config
        from treedrift.harness.transcript import PlainNames
        from treedrift.inside.recording import Recording
        recording = Recording(Path({str(folder)!r}), Config(), naming=PlainNames)
    """
    code = textwrap.dedent(head) + textwrap.dedent(body)
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def only(folder: Path) -> Trace:
    (path,) = folder.iterdir()
    return read_trace(path)


def test_a_killed_server_leaves_all_that_it_did(tmp_path: Path) -> None:
    body = """
        for node in range(50):
            recording.ends(match(node, node))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert serve(tmp_path, body).returncode == -9
    assert len(only(tmp_path).ops) == 50


def test_a_server_that_ends_leaves_the_insert_in_flight_too(tmp_path: Path) -> None:
    done = serve(tmp_path, "recording.ends(begin(1, 2))")
    assert done.stderr == ""
    assert only(tmp_path).ops == [ops.CoreInsert([1, 2], suspend=True, answer=0)]


def test_a_full_disk_ends_the_recording_after_a_whole_line(tmp_path: Path) -> None:
    body = """
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        for node in range(50):
            try:
                recording.ends(match(node, node))
            except Exception as error:
                print(type(error).__name__)
    """
    done = serve(tmp_path, body)
    assert set(done.stdout.split()) == {"WatchEndedError"}
    warning = "the recording in .* ends here, the server goes on: No space left on device"
    (said,) = done.stderr.splitlines()
    assert re.search(warning, said)
    assert 0 < len(only(tmp_path).ops) < 50


def test_a_folder_that_is_gone_ends_the_recording_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "traces"
    recording = Recording(folder, Config(), naming=PlainNames, bytes_max=1)
    shutil.rmtree(folder)
    folder.write_text("something else")
    with caplog.at_level(logging.WARNING, logger="treedrift"):
        for _ in range(3):
            with pytest.raises(WatchEndedError):
                recording.ends(match(1, 1))
        recording.close()
    assert len(caplog.records) == 1


def test_a_recording_that_nobody_has_any_more_is_closed(tmp_path: Path) -> None:
    recording = Recording(tmp_path, Config(), naming=PlainNames)
    recording.begins(begin(1))
    recording.ends(begin(1))
    del recording
    assert only(tmp_path).ops == [ops.CoreInsert([1], suspend=True, answer=0)]


def test_nothing_is_recorded_after_it_was_closed(tmp_path: Path) -> None:
    recording = Recording(tmp_path, Config(), naming=PlainNames)
    recording.close()
    recording.close()
    with pytest.raises(WatchEndedError):
        recording.ends(match(1, 1))
    assert only(tmp_path).ops == []
