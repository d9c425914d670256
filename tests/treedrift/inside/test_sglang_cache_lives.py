"""Random lives of SGLang's own cache: what a server sees is the same whichever core serves it.

Requests come and go as SGLang's scheduler drives its cache: chunked prompts, conversations that go
on, namespaces and adapters, aborts, retractions, flushes, with every tree, page sizes 1 and 16, on
the device alone and before an external store. Hits, frees in their order, evictions, free slots,
sizes and events all go into one digest.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.treedrift.inside.conftest import Inside
from tests.treedrift.inside.serving_runs import theme

pytestmark = pytest.mark.released


def test_our_cores_serve_sglangs_cache_as_its_own_cores_do(inside: Inside, tmp_path: Path) -> None:
    found, _ = theme("drop_ins", inside, tmp_path)
    assert [told for told in map(differences, found) if told] == []
    assert_lives_were_lively(found)


def test_strict_shadows_see_no_difference_in_sglangs_cache(inside: Inside, tmp_path: Path) -> None:
    # In strict mode a difference is raised, and the life would not have ended.
    found, _ = theme("shadows", inside, tmp_path)
    assert [told for told in map(differences, found) if told] == []
    shadows = [run for one in found for run in one["runs"] if run["core"].startswith("shadow:")]
    for run in shadows:
        status = run["status"]
        assert status["is_on"], run
        assert status["compared"] == status["calls"] > 100, run
        # SGLang's own cores bundle removed blocks into events in different ways.
        assert status["soft"] == 0 or run["core"] == "shadow:sglang-rust,sglang-python", run


def differences(one: dict[str, Any]) -> str:
    """Which cores saw something else than the first in this life, and in what."""
    first, *others = one["runs"]
    told = [
        f"{run['core']} differs from {first['core']} in {what}"
        for run in others
        for what, value in first["seen"].items()
        if run["seen"][what] != value
    ]
    return f"{one['life']}: {'; '.join(told)}" if told else ""


def assert_lives_were_lively(found: list[dict[str, Any]]) -> None:
    """Something of everything must have happened, and no slot may be lost."""
    counts: Counter[str] = Counter()
    for one in found:
        first = one["runs"][0]
        counts.update(first["seen"]["figures"])
        counts["loads"] += first["loads"]
        assert first["seen"]["evictions"], one["life"]
        assert set(first["seen"]["left"].values()) == {0}, one["life"]
    assert min(counts[what] for what in ("hit_tokens", "aborted", "retracted", "loads")) > 20, (
        counts
    )
