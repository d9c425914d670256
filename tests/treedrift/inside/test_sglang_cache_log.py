"""A real request log through SGLang's own cache, by the command that measures it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.treedrift.inside.conftest import ROOT, Inside
from tests.treedrift.inside.serving_runs import beside

pytestmark = pytest.mark.released

LOG = ROOT / "corpora" / "seeds" / "mooncake-conversation-40.log"
CORES = (
    "sglang-python",
    "sglang-rust",
    "treedrift-python",
    "treedrift-rust",
    "shadow:sglang-python,treedrift-rust",
    "chosen",
)


@pytest.mark.parametrize("components", ["full", "full,swa,mamba"])
def test_a_request_log_is_served_alike_by_all_cores(
    inside: Inside, tmp_path: Path, components: str
) -> None:
    # The longest of the requests takes most of the pool, so that others are evicted for it.
    program = ["-m", "benchmarks.serving", "--log", LOG, "--slots", "131072"]
    said = inside(
        *("-W", "ignore", *program, "--components", components, "--core", *CORES),
        variables={
            **beside(tmp_path),
            "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND": "treedrift-rust",
            "TREEDRIFT_SHADOW_MODE": "strict",
        },
        cwd=tmp_path,
    )
    reports = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert [report["core"] for report in reports] == list(CORES)
    for report in reports:
        assert seen(report) == seen(reports[0]), report["core"]
    # One variable is all that a server needs.
    assert reports[-1]["core_class"] == reports[3]["core_class"]
    assert reports[-1]["core_class"].startswith("treedrift.")
    first = reports[0]
    assert first["figures"]["finished"] == 40
    assert first["figures"]["hit_tokens"] > 0
    assert first["evictions"]["full"]["count"] > 0
    assert set(first["left"].values()) == {0}


def seen(report: dict[str, Any]) -> dict[str, Any]:
    """What a server sees, without the core's name and the times."""
    mine = ("core", "core_class", "setting")
    return {
        name: value
        for name, value in report.items()
        if name not in mine and not name.endswith("_s")
    }
