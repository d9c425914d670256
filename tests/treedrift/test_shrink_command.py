"""`treedrift shrink`: what it writes, what it says, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.treedrift.conftest import Command
from treedrift import shrink_command
from treedrift.harness.config import Config
from treedrift.harness.ops import AnyOp, CoreInsert, CoreMatch, Evict, Misuse
from treedrift.harness.trace import new_trace, read_trace, write_trace

DRILL = ("python", "drill:wrong-free-order")
STEPS: list[AnyOp] = [CoreInsert([3]), CoreInsert([1, 2]), CoreMatch([3]), Evict(4)]


def saved(path: Path, steps: list[AnyOp] = STEPS, **header: object) -> Path:
    write_trace(path, new_trace(Config(capacity=8), steps, **header))
    return path


def test_a_shrunk_trace_is_written_beside_the_first_and_its_size_is_told(
    command: Command, place: Path
) -> None:
    ended = command("shrink", saved(place / "found.jsonl", pair=DRILL))
    target = place / "found.min.jsonl"
    assert ended.code == 0
    assert f"{target}: 4 ops became 2" in ended.out
    assert "1-minimal: none of its neighbours keeps that (" in ended.out
    assert f"see it: treedrift show {target}" in ended.out
    trace = read_trace(target)
    assert trace.ops == [CoreInsert([1, 1]), Evict(1)]
    assert f"kept: {trace.header.signature}" in ended.out
    assert sorted(path.name for path in place.glob("*.progress")) == []


def test_the_pair_and_the_file_can_be_named(command: Command, place: Path) -> None:
    source = saved(place / "found.jsonl")
    ended = command(
        "shrink", source, "--pair", ",".join(DRILL), "--out", place / "deep/small.jsonl"
    )
    assert ended.code == 0
    assert read_trace(place / "deep/small.jsonl").header.pair == DRILL


def test_cores_that_agree_leave_nothing_to_shrink_and_nothing_is_written(
    command: Command, place: Path
) -> None:
    ended = command("shrink", saved(place / "same.jsonl"), "--pair", "python,drill:doubled-event")
    assert ended.code == 0
    assert "the cores agree, so there is nothing to shrink" in ended.out
    assert not (place / "same.min.jsonl").exists()


def test_when_time_runs_out_the_same_command_goes_on(command: Command, place: Path) -> None:
    source = saved(place / "found.jsonl", pair=DRILL)
    ended = command("shrink", source, "--time", "0")
    assert ended.code == 0
    assert "time ran out: the same command goes on from here" in ended.out
    assert (place / "found.min.jsonl.progress").exists()
    again = command("shrink", source)
    assert "going on after 0 trials" in again.err
    assert "1-minimal" in again.out


def test_another_kind_than_the_header_names_is_told(command: Command, place: Path) -> None:
    source = saved(place / "found.jsonl", pair=DRILL, signature="difference:reset:outcome")
    ended = command("shrink", source)
    assert ended.code == 0
    assert "difference:reset:outcome does not show; difference:evict:" in ended.err


def test_ctrl_c_says_where_what_was_tried_is_kept(
    command: Command, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shrink_command, "minimize", interrupted)
    ended = command("shrink", saved(place / "found.jsonl", pair=DRILL))
    assert ended.code == 130
    assert f"what was tried is kept in {place / 'found.min.jsonl.progress'}" in ended.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.jsonl"], "missing.jsonl: can't be read"),
        (["wild.jsonl", "--pair", "python,sglang-rust@0.5.23"], "breaks the protocol"),
        (["wild.jsonl", "--pair", "python,rust", "--pair", "rust,python"], "for one pair"),
        (["wild.jsonl", "--time", "soon"], "--time 'soon'"),
        (["wild.jsonl", "--out", "wild.jsonl/small.jsonl"], "no folder that can be written to"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(
    command: Command, place: Path, arguments: list[str], said: str
) -> None:
    saved(place / "wild.jsonl", [Misuse("demote")])
    ended = command("shrink", *arguments)
    assert ended.code == 2
    assert said in ended.err
