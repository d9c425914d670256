"""Every method of the contract on both released cores, in each managed environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from treedrift.backends.sglang.environments import environments
from treedrift.harness.remote import Worker, worker_command

SCENARIOS = f"{Path(__file__).with_name('released_scenarios.py')}:make_handlers"
RELEASES = [one.release for one in environments()]

pytestmark = [
    pytest.mark.released,
    pytest.mark.skipif(
        not RELEASES, reason="no released SGLang here; treedrift env add sglang==0.5.23"
    ),
]


@pytest.mark.parametrize("flavour", ["python", "rust"])
@pytest.mark.parametrize("release", RELEASES or ["none"])
def test_a_released_core_answers_every_method_in_the_contracts_types(
    release: str, flavour: str
) -> None:
    place = next(one for one in environments() if one.release == release)
    command = worker_command(
        f"sglang-{flavour}", place.interpreter, place.process_environment(), SCENARIOS
    )
    with Worker(command) as worker:
        report = json.loads(worker.request("run", flavour.encode(), seconds=120))
    assert not report["failures"], "\n".join(report["failures"].values())
    # A scenario ends at the first method that an older release doesn't have.
    assert report["missing"] or report["not called"] == []
