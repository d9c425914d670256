"""Several processes find what one finds, even when a candidate ends the process that tries it."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from tests.harness.spoilt_pair import WRONG_ORDER
from treedrift.harness.compare import Divergence
from treedrift.harness.config import Config
from treedrift.harness.lockstep import Pair
from treedrift.harness.minimize import minimize
from treedrift.harness.minimize.draft import Draft, changed
from treedrift.harness.minimize.parallel import DEAD_PROCESS, Together
from treedrift.harness.minimize.trial import Memo
from treedrift.harness.ops import AnyOp, CoreInsert, Evict
from treedrift.harness.side import HarnessError
from treedrift.harness.trace import Trace, dump_trace, new_trace

ENTRY_POINTS = "[treedrift.backends]\ndying = tests.harness.minimize.dying_cores:dying\n"

STEPS: list[AnyOp] = [CoreInsert([1, 2]), Evict(2)]


@pytest.fixture
def dying_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    """A pair whose second core ends its process now and then."""
    info = tmp_path / "dying-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dying\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "python", "dying"


def failing() -> Trace:
    return new_trace(Config(capacity=8, rows=2, row_length=4), STEPS)


def test_two_processes_give_the_same_result_as_one() -> None:
    pair = ("python", "drill:wrong-free-order")
    alone = minimize(failing(), pair, budget_seconds=600.0)
    ahead = minimize(failing(), pair, budget_seconds=600.0, jobs=2)
    assert dump_trace(alone.trace) == dump_trace(ahead.trace)
    assert alone.is_minimal
    assert ahead.is_minimal
    assert (alone.trials, alone.tried, alone.slipped) == (ahead.trials, ahead.tried, ahead.slipped)
    assert multiprocessing.active_children() == []


def test_a_candidate_that_ends_its_process_fails_and_those_after_it_are_tried(
    dying_pair: Pair,
) -> None:
    base = Draft(failing().header.config, STEPS)
    kept = Divergence(
        pair=dying_pair,
        kind="difference",
        op_index=1,
        op_kind="evict",
        where="",
        signature=WRONG_ORDER,
    )
    candidates = [changed(base, {1: Evict(1)}), changed(base, {0: CoreInsert([1, 1])})]
    memo = Memo()
    with Together(dying_pair, kept, 1, memo) as ahead:
        deadly, harmless = ahead.stream(base, iter(candidates), float("inf"))
        (again,) = ahead.stream(base, iter(candidates[:1]), float("inf"))
    assert [trial.outcome.slip for trial in deadly.trials] == [DEAD_PROCESS]
    assert deadly.reached is None
    assert harmless.reached == candidates[1].draft
    assert again == deadly
    assert memo.outcomes[candidates[0].draft.digest()].slip == DEAD_PROCESS


def test_processes_that_cannot_start_are_no_result(
    dying_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = Draft(failing().header.config, STEPS)
    kept = Divergence(
        pair=dying_pair, kind="difference", op_index=1, op_kind="evict", where="", signature="x"
    )
    monkeypatch.setenv("TREEDRIFT_DIES_AT_IMPORT", "1")
    candidates = iter([changed(base, {1: Evict(1)})])
    with (
        Together(dying_pair, kept, 1, Memo()) as ahead,
        pytest.raises(HarnessError, match="--jobs 1"),
    ):
        list(ahead.stream(base, candidates, float("inf")))
