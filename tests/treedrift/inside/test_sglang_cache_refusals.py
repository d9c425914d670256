"""What our cores don't have: SGLang's Python core serves instead, or the reason is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.treedrift.inside.conftest import Inside
from tests.treedrift.inside.serving_runs import theme

pytestmark = pytest.mark.released

CORES = ("treedrift-python", "treedrift-rust")


def test_our_cores_give_way_or_say_what_they_lack(inside: Inside, tmp_path: Path) -> None:
    found, said = theme("refusals", inside, tmp_path)
    for core in CORES:
        assert found[f"{core}, nothing special"] == "DropIn"
        # Where SGLang's own Rust core gives way to its Python core, so do ours.
        assert found[f"{core}, sessions"] == "UnifiedTreeCore"
        assert found[f"{core}, foreign components"] == "UnifiedTreeCore"
        assert f"{core} gives way to SGLang's Python core: enable_session_radix_cache" in said
        assert f"{core} gives way to SGLang's Python core: component_registry_override" in said
        assert "UnsupportedError" in found[f"{core}, host tier"]
        assert "has no host tier" in found[f"{core}, host tier"]
