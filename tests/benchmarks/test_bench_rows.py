"""Rows of a benchmark report: medians, ratios by round, and the file they are written to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.floor import Floor, counting
from benchmarks.measure import LOG_SETTINGS, Times, open_cores, read_log, swarm_rate
from benchmarks.report import hybrid_rows, log_rows, swarm_row, table_of
from benchmarks.rows import Row, compared_row, plain_row, write_rows
from treedrift.backends.registry import local_backend
from treedrift.harness.side import LocalSide

EXCERPT = Path(__file__).parents[2] / "corpora" / "seeds" / "mooncake-conversation-40.log"


def test_a_row_holds_medians_and_the_spread_of_its_ratios() -> None:
    row = compared_row("x", "ms", [1.0, 2.0, 4.0], [3.0, 4.0, 4.0], aim=1.5)
    assert (row.figure, row.baseline) == (2.0, 4.0)
    assert (row.ratio, row.spread, row.aim) == (2.0, (1.0, 3.0), 1.5)


def test_a_ratio_compares_figures_of_the_same_round() -> None:
    # The second round ran on a machine ten times slower, which is no difference of the cores.
    row = compared_row("x", "ms", [1.0, 10.0, 1.0], [2.0, 20.0, 2.0])
    assert (row.ratio, row.spread) == (2.0, (2.0, 2.0))


def test_a_rate_is_better_when_there_is_more_of_it() -> None:
    assert compared_row("x", "ops/s", [300.0], [100.0], more_is_better=True).ratio == 3.0


def test_a_row_without_baseline_spreads_over_its_figures() -> None:
    row = plain_row("x", "ms", [3.0, 1.0, 2.0])
    assert (row.figure, row.spread, row.baseline, row.ratio) == (2.0, (1.0, 3.0), None, None)


@pytest.mark.parametrize(
    ("figures", "baselines"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([1.0], [-1.0])]
)
def test_figures_that_can_not_be_compared_are_refused(
    figures: list[float], baselines: list[float]
) -> None:
    with pytest.raises(ValueError, match="figure"):
        compared_row("x", "ms", figures, baselines)


def test_rows_are_written_as_a_list_of_objects(tmp_path: Path) -> None:
    path = tmp_path / "new" / "bench.json"
    write_rows(path, [plain_row("a", "ms", [1.0]), compared_row("b", "ms", [1.0], [2.0])])
    first, second = json.loads(path.read_text())
    assert list(first) == list(Row.__struct_fields__)
    assert [first["name"], first["figure"], first["ratio"]] == ["a", 1.0, None]
    assert [second["baseline"], second["ratio"], second["spread"]] == [2.0, 2.0, [2.0, 2.0]]


def test_cores_are_set_against_the_released_ones_of_their_language() -> None:
    times = {
        "python": Times([1.0], [2.0]),
        "rust": Times([0.5], [2.5]),
        "sglang-python@1.2": Times([2.0], [9.0]),
        "sglang-rust@1.2": Times([1.5], [9.0]),
    }
    rows = {row.name: row for row in log_rows(16, times, [0.25])}
    assert rows["python / sglang-python, page 16"].ratio == 2.0
    assert rows["rust / sglang-rust, page 16"].ratio == 3.0
    assert rows["sglang-rust / sglang-python, page 16"].aim is None
    assert rows["memory floor / rust, page 16"].ratio == 2.0
    harness = rows["harness / both cores, page 16"]
    assert (harness.figure, harness.baseline) == (4.5, 1.5)
    assert harness.ratio == pytest.approx(1 / 3)


def test_rows_of_cores_that_are_missing_are_left_out() -> None:
    names = [row.name for row in log_rows(1, {"python": Times([1.0], [2.0])}, [])]
    assert names == ["core time python, page 1"]


def test_a_hybrid_tree_is_set_against_full_alone() -> None:
    (row,) = hybrid_rows(16, {"rust": (Times([2.0], [1.0]), Times([1.0], [1.0]))})
    assert (row.name, row.ratio) == ("rust hybrid / full, page 16", 0.5)


def test_a_missing_core_is_named_with_its_reason() -> None:
    found, missing = open_cores(["python", "no-such-core"])
    assert (list(found), list(missing)) == (["python"], ["no-such-core"])
    assert "no-such-core" in missing["no-such-core"]


def test_a_ratio_short_of_its_aim_is_marked_in_the_table() -> None:
    rows = [swarm_row(("a", "b"), [1.0]), plain_row("x", "ms", [1.0])]
    ratios = list(table_of(rows, "t").columns[4].cells)
    assert "short" in str(ratios[0])
    assert ratios[1] == ""


def test_the_floor_counts_what_a_run_compares_and_copies() -> None:
    config, ops = read_log(EXCERPT, 4, 16)
    moves: list[tuple[str, int]] = []
    side = LocalSide(counting(local_backend("python").create, moves))  # type: ignore[arg-type]
    side.open(config, LOG_SETTINGS)
    side.run(ops)
    assert {kind for kind, _ in moves} == {"compare", "copy"}
    assert all(size > 0 and size % 8 == 0 for _, size in moves)
    assert Floor().nanoseconds(moves) > 0  # type: ignore[arg-type]


def test_the_swarm_has_a_rate() -> None:
    assert swarm_rate(("python", "python"), 50) > 0
