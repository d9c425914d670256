"""Real bugs: the trace of each case shows the drills that put the bug back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from treedrift.harness.compare import decisive
from treedrift.harness.opening import open_lockstep, replay_settings
from treedrift.harness.trace import read_trace
from treedrift.models.drills import DRILLS
from treedrift.models.drills.hunt import pair_of

SEEDS = Path(__file__).parents[3] / "corpora" / "seeds"

SHOWN = {
    "branch-left-at-default": ("case-01-window-branch", r"match_prefix\.result\.swa_branching"),
    "branch-never-honoured": ("case-01-window-branch", r"swa_branch_inserted"),
    "branch-never-asked-for": ("case-01-branch-of-requests", r"begin_insert\.params"),
    "boundary-not-in-the-receipt": ("case-03-window-boundary", r"component_lock_uuids"),
    "boundary-not-looked-at": ("case-03-window-boundary", r"sizes\.swa_evictable"),
    "copy-pin-released-to-the-root": ("case-03-copy-pin", r"dec_lock_ref\.params"),
    "leaf-needs-its-window": ("case-05-window-veto", r"all_values_flatten|sizes|conservation"),
    "cold-suffix-most-recent": ("case-11-cold-window", r"lru_lists\.swa"),
    "prefill-tracks-between-pages": ("case-15-page-grid", r"state_content"),
    "decode-tracks-between-pages": ("case-15-decode-grid", r"state_content"),
    "tombstone-freed-with-its-window": ("case-17-tombstone-slots", r"actions\[\]\.type"),
    "freed-peers-stay-mapped": ("case-17-row-of-requests", r"conservation|pool"),
    "moved-peers-stay-mapped": ("case-17-locked-tombstone", r"calls\.begin_insert"),
    "split-drops-window-lock": ("case-19-locked-window-split", r"lock|healthy|sizes"),
    "split-drops-host-lock-of-a-window": ("case-19-host-locked-window-split", r"host_lock_ref"),
}
"""The trace that shows a drill, and where it shows it."""


@pytest.mark.parametrize("name", SHOWN)
def test_the_trace_of_a_case_shows_its_drill(name: str) -> None:
    seed, place = SHOWN[name]
    drill, trace = DRILLS[name], read_trace(SEEDS / f"{seed}.jsonl")
    assert drill.case == f"BUG-{seed.split('-')[1]}"
    lockstep = open_lockstep([pair_of(drill)])
    try:
        settings = replay_settings([pair_of(drill)], trace.header.config)
        found = decisive(lockstep.run(trace.header.config, trace.ops, settings).divergences)
    finally:
        lockstep.close()
    assert found is not None
    assert re.search(place, found.signature), found.signature
