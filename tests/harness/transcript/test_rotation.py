"""Trace files on disk: each one a trace at every moment, few of them, and none too large."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.harness.transcript.calls import begin, end, lock, match, resume
from treedrift.harness import ops
from treedrift.harness.config import Config
from treedrift.harness.trace import Trace, read_trace
from treedrift.harness.transcript import Call, PlainNames, Pseudonyms, RotatingTraces

SIZE = 6000
"""Where a file is followed by another: some thirty ops after its header."""


def traces(folder: Path, **settings: Any) -> RotatingTraces:
    return RotatingTraces(folder, Config(), naming=PlainNames, **settings)


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def only(folder: Path) -> Trace:
    (path,) = files(folder)
    return read_trace(path)


def test_a_file_is_a_trace_after_every_call(tmp_path: Path) -> None:
    writing = traces(tmp_path, source="a test")
    assert only(tmp_path).ops == []
    for count, node in enumerate(range(70, 80), 1):
        writing.add(match(node, node))
        assert len(only(tmp_path).ops) == count
    assert only(tmp_path).header.source == "a test"


def test_the_header_says_at_once_what_could_not_be_told(tmp_path: Path) -> None:
    writing = traces(tmp_path, note="n")
    writing.add(match(70, 1))
    writing.add(Call("demote", {"node_id": 70}))
    trace = only(tmp_path)
    assert trace.header.note == "n; not told: 1 x demote"
    assert trace.ops == [ops.CoreMatch([1], answer=0)]


def test_a_header_that_is_too_long_without_its_note_ends_the_recording(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too long"):
        traces(tmp_path, note="n", source="s" * 5000)
    assert list(tmp_path.iterdir()) == []


def test_a_note_that_is_too_long_is_cut(tmp_path: Path) -> None:
    writing = traces(tmp_path, note="é" * 4000)
    writing.add(match(70, 1))
    trace = only(tmp_path)
    assert trace.header.note.endswith("...")
    assert len(trace.ops) == 1


def test_files_follow_each_other_and_the_oldest_go(tmp_path: Path) -> None:
    writing = traces(tmp_path, bytes_max=SIZE, files_max=3)
    for node in range(500):
        writing.add(match(node, node))
    writing.close()
    found = files(tmp_path)
    numbers = [int(path.stem.rpartition("-")[2]) for path in found]
    assert numbers == list(range(numbers[-1] - 2, numbers[-1] + 1))
    assert all(path.stat().st_size < SIZE + 200 for path in found)


def test_a_file_that_follows_begins_with_an_empty_tree_and_says_so(tmp_path: Path) -> None:
    writing = traces(tmp_path, bytes_max=SIZE)
    writing.add(Call("write_through_threshold =", {"value": 2}))
    for node in range(100):
        writing.add(match(node, node))
    first, second, *_ = map(read_trace, files(tmp_path))
    assert first.header.note == ""
    before = len(first.ops)
    assert second.header.note == f"{before} calls came before it and left a tree that it lacks"
    assert second.ops[0] == ops.SetFlag("write_through_threshold", 2)
    assert second.ops[1] == ops.CoreMatch([before - 1], answer=0)


def test_no_insert_is_torn_between_two_files(tmp_path: Path) -> None:
    writing = traces(tmp_path, bytes_max=SIZE)
    for node in range(100):
        for call in (begin(node), match(1, 1), resume(node), end()):
            writing.add(call)
    told = [read_trace(path) for path in files(tmp_path)]
    assert len(told) > 2
    assert all("not told" not in trace.header.note for trace in told)


def test_full_pseudonyms_begin_another_file(tmp_path: Path) -> None:
    writing = RotatingTraces(tmp_path, Config(), naming=lambda: Pseudonyms(bytes_max=4000))
    for node in range(3):
        writing.add(match(node, *range(1000 * node, 1000 * node + 600)))
    assert len(files(tmp_path)) == 3


def test_closing_writes_an_insert_that_is_in_flight(tmp_path: Path) -> None:
    writing = traces(tmp_path)
    writing.add(begin(1, 2))
    assert only(tmp_path).ops == []
    writing.close()
    assert only(tmp_path).ops == [ops.CoreInsert([1, 2], suspend=True, answer=0)]


@pytest.mark.parametrize("room", [0, 100])
def test_a_full_disk_leaves_no_file_without_a_header(
    tmp_path: Path, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:room]))
    with pytest.raises(OSError, match="No space left"):
        traces(tmp_path)
    assert files(tmp_path) == []


def test_every_group_has_names_of_its_own(tmp_path: Path) -> None:
    for _ in range(3):
        traces(tmp_path).close()
    assert len({path.name for path in files(tmp_path)}) == 3


def test_files_are_private(tmp_path: Path) -> None:
    traces(tmp_path).close()
    assert files(tmp_path)[0].stat().st_mode & 0o077 == 0


def test_a_folder_is_made_if_it_is_not_there(tmp_path: Path) -> None:
    traces(tmp_path / "a" / "b").add(lock(7))
    assert len(files(tmp_path / "a" / "b")) == 1


def test_a_folder_that_can_not_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(OSError, match="taken"):
        traces(tmp_path / "taken")
