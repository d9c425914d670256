"""What SGLang's own cache does becomes a trace: it names no token, and replays on every core."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.treedrift.inside.conftest import Inside
from tests.treedrift.inside.serving_runs import theme, treedrift, users_named_in
from treedrift.harness.trace import read_trace

pytestmark = pytest.mark.released

GROUPING = "calls[0].take_events.grouping.BlockRemoved"
RELEASED = ("sglang-python", "sglang-rust")


def test_a_recorded_life_replays_on_four_cores_and_names_no_token(
    inside: Inside, tmp_path: Path
) -> None:
    found, _ = theme("recorded", inside, tmp_path)
    for one in found:
        plain, recorded = one["runs"]
        assert recorded["seen"] == plain["seen"], one["life"]
    folder = tmp_path / "records"
    files = sorted(folder.rglob("*.jsonl"))
    assert len(files) == len(found)
    for file in files:
        assert len(read_trace(file).ops) > 100
        assert users_named_in(file) == []
    pairs = ("--pair", "python,rust", "--pair", "sglang-python,sglang-rust")
    told = json.loads(treedrift("replay", "--json", *pairs, folder, code=1))
    # SGLang's own cores bundle removed blocks into events in different ways, and that is all.
    assert {one["where"] for one in told["divergences"]} == {GROUPING}
    assert {tuple(one["pair"]) for one in told["divergences"]} == {RELEASED}
