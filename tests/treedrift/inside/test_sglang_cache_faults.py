"""Faults planted in the shadow of SGLang's own cache: caught, kept from the server, and kept.

Each drill follows SGLang's Python core through a life. The server must see nothing of it, and the
trace that the shadow saves must show the fault again with the ordinary commands, in the project's
own environment.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.treedrift.inside.conftest import Inside
from tests.treedrift.inside.serving_runs import theme, treedrift, users_named_in
from treedrift.harness.compare import decisive
from treedrift.harness.minimize.draft import Draft
from treedrift.harness.minimize.trial import replayed
from treedrift.harness.opening import open_lockstep
from treedrift.harness.trace import Trace, read_trace

pytestmark = pytest.mark.released

BY_COMMAND = "window-slots-freed-for-full"
SHRUNK_OPS_MAX = 12


def test_a_fault_in_the_shadow_is_caught_saved_and_kept_from_the_server(
    inside: Inside, tmp_path: Path
) -> None:
    found, said = theme("faults", inside, tmp_path)
    traces = {}
    for drill, one in found.items():
        plain, shadowed = one["runs"]
        assert shadowed["seen"] == plain["seen"], drill
        status = shadowed["status"]
        assert (status["divergences"], status["faults"], status["is_on"]) == (1, 0, False), status
        assert f"drill:{drill} part at call" in said
        (traces[drill],) = map(Path, status["traces"])
    for drill, path in traces.items():
        trace = read_trace(path)
        assert trace.header.pair is not None
        assert trace.header.pair[1] == f"drill:{drill}"
        assert users_named_in(path) == [], drill
        assert shows_again(trace, drill), drill
    # The very commands that the log names, on the pair that parted in the server.
    source, small = traces[BY_COMMAND], tmp_path / "small.jsonl"
    assert f"drill:{BY_COMMAND}" in treedrift("replay", "--json", source, code=1)
    treedrift("shrink", "--time", "20s", "--out", small, source, code=0)
    assert len(read_trace(small).ops) <= SHRUNK_OPS_MAX < len(read_trace(source).ops)


def shows_again(trace: Trace, drill: str) -> bool:
    """Whether our sound core and the drill part on the trace."""
    pair = ("python", f"drill:{drill}")
    lockstep = open_lockstep([pair])
    try:
        return decisive(replayed(lockstep, pair, Draft(trace.header.config, trace.ops))) is not None
    finally:
        lockstep.close()
