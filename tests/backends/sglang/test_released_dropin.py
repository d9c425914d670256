"""The drop-in in front of a released SGLang, in each managed environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from treedrift.backends.sglang.environments import environments
from treedrift.harness.remote import Worker, worker_command

CHECKS = f"{Path(__file__).with_name('released_dropin.py')}:make_handlers"
RELEASES = [one.release for one in environments()]

pytestmark = [
    pytest.mark.released,
    pytest.mark.skipif(
        not RELEASES, reason="no released SGLang here; treedrift env add sglang==0.5.23"
    ),
]


@pytest.mark.parametrize("release", RELEASES or ["none"])
def test_our_cores_stand_in_for_those_of_a_release(release: str) -> None:
    place = next(one for one in environments() if one.release == release)
    command = worker_command("sglang-rust", place.interpreter, place.process_environment(), CHECKS)
    with Worker(command) as worker:
        failed = json.loads(worker.request("run", b"", seconds=240))
    assert not failed, "\n".join(failed.values())
