"""Every saved trace that should agree does, on both our cores, for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from treedrift.backends.registry import local_backend
from treedrift.harness.lockstep import LocalClient, Lockstep
from treedrift.harness.side import LocalSide, Settings
from treedrift.harness.trace import read_trace

CORPORA = Path(__file__).parents[2] / "corpora"
TRACES = sorted(
    path for name in ("seeds", "regressions") for path in (CORPORA / name).glob("*.jsonl")
)
SMALL_POOL = 4096


def client(name: str) -> LocalClient:
    backend = local_backend(name)
    return LocalClient(name, LocalSide(backend.create, backend.inspect))


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_both_our_cores_agree_on_a_saved_trace(path: Path) -> None:
    trace = read_trace(path)
    is_small = trace.header.config.capacity <= SMALL_POOL
    pair = ("python", "rust")
    lockstep = Lockstep({name: client(name) for name in pair}, [pair])
    settings = Settings(tree_every=1 if is_small else 2**62, watch_free_list=is_small)
    result = lockstep.run(trace.header.config, trace.ops, settings)
    assert [(one.signature, one.op_index) for one in result.divergences] == []
    assert result.op_count == len(trace.ops)
