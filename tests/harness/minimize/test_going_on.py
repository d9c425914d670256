"""A search that is interrupted goes on from its checkpoint and ends as if nothing had been."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness import mutants
from tests.harness.minimize.failing_traces import found_by_chance
from tests.harness.spoilt_pair import CONFIG, PAIR, STEPS, spoilt_pair
from treedrift.harness.lockstep import Lockstep, Session
from treedrift.harness.minimize import Minimized, minimize, minimizer
from treedrift.harness.minimize.minimizer import LOOKS
from treedrift.harness.trace import Trace, TraceError, dump_trace, new_trace
from treedrift.models.drills.splits import moved_child

FAULT = moved_child


class Counting(Lockstep):
    """A lockstep that counts its cases and is interrupted at the start of one."""

    def __init__(self, inner: Lockstep, interrupted_at: int | None = None) -> None:
        super().__init__(inner.clients, inner.pairs)
        self.cases = 0
        self.interrupted_at = interrupted_at

    def session(self, *arguments: Any) -> Session:
        self.cases += 1
        if self.cases == self.interrupted_at:
            raise KeyboardInterrupt
        return super().session(*arguments)


def shrunk(trace: Trace, lockstep: Lockstep, checkpoint: Path | None, **options: Any) -> Minimized:
    options = {"budget_seconds": 600.0, **options}
    return minimize(trace, PAIR, lockstep=lockstep, checkpoint=checkpoint, **options)


def test_an_interrupted_search_goes_on_and_ends_with_the_same_result(tmp_path: Path) -> None:
    trace, file = found_by_chance(FAULT), tmp_path / "kept" / "checkpoint.json"
    whole = Counting(spoilt_pair(FAULT))
    expected = shrunk(trace, whole, None)
    half = whole.cases // 2
    with pytest.raises(KeyboardInterrupt):
        shrunk(trace, Counting(spoilt_pair(FAULT), half), file)
    rest, said = Counting(spoilt_pair(FAULT)), list[str]()
    result = shrunk(trace, rest, file, tell=said.append)
    assert said[0].startswith(f"{file}: going on after ")
    assert rest.cases == whole.cases - (half - 1 - LOOKS)
    assert dump_trace(result.trace) == dump_trace(expected.trace)
    assert (result.trials, result.tried, result.slipped) == (
        expected.trials,
        expected.tried,
        expected.slipped,
    )


def test_a_finished_search_is_told_again_without_trying_anything(tmp_path: Path) -> None:
    trace, file = found_by_chance(FAULT), tmp_path / "checkpoint.json"
    first = shrunk(trace, spoilt_pair(FAULT), file)
    again = Counting(spoilt_pair(FAULT))
    second = shrunk(trace, again, file)
    assert again.cases == LOOKS + 1
    assert second.trace == first.trace
    assert second.is_minimal


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\x00", b'{"input": 3}'])
def test_a_file_that_is_no_checkpoint_is_said_so_and_started_anew(
    tmp_path: Path, content: bytes
) -> None:
    file, said = tmp_path / "checkpoint.json", list[str]()
    file.write_bytes(content)
    trace = new_trace(CONFIG, STEPS)
    lockstep = spoilt_pair(mutants.wrong_free_order)
    result = shrunk(trace, lockstep, file, tell=said.append)
    assert said[0].startswith(f"{file} can't be read and is started anew: ")
    assert result.is_minimal
    assert shrunk(trace, lockstep, file).trace == result.trace


def test_the_checkpoint_of_another_trace_is_not_used(tmp_path: Path) -> None:
    file, said = tmp_path / "checkpoint.json", list[str]()
    lockstep = spoilt_pair(mutants.wrong_free_order)
    shrunk(new_trace(CONFIG, STEPS), lockstep, file)
    counting = Counting(lockstep)
    shrunk(new_trace(CONFIG, [*STEPS, *STEPS]), counting, file, tell=said.append)
    assert said[0] == f"{file} belongs to another trace, pair, kind or code and is started anew"
    assert counting.cases > LOOKS + 1


def test_what_was_tried_before_the_code_changed_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, said = tmp_path / "checkpoint.json", list[str]()
    lockstep, trace = spoilt_pair(mutants.wrong_free_order), new_trace(CONFIG, STEPS)
    shrunk(trace, lockstep, file)
    monkeypatch.setattr(minimizer, "_code_stamp", lambda: 1)
    shrunk(trace, lockstep, file, tell=said.append)
    assert "started anew" in said[0]


def test_a_checkpoint_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(TraceError, match="can't be written"):
        shrunk(
            new_trace(CONFIG, STEPS), spoilt_pair(mutants.wrong_free_order), blocked / "checkpoint"
        )
