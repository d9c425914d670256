"""The stream of a run as a file: what a killed process leaves, and what damage looks like."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reports import fixed_stream
from treedrift.harness.events import Canary, Event, Progress
from treedrift.reports.stream import StreamError, StreamWriter, read_events

CANARY = Canary(drill="lost-event", caught=True, ops=3, seconds=0.5)


def write(path: Path, events: list[Event]) -> None:
    with StreamWriter(path) as writer:
        for event in events:
            writer(event)


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    path = tmp_path / "run" / "events.jsonl"
    write(path, [CANARY, CANARY])
    return path


def test_every_event_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, fixed_stream.events())
    told = read_events(path)
    assert [type(event) for event in told] == [type(event) for event in fixed_stream.events()]
    assert told[0] == fixed_stream.events()[0]
    assert told[-1] == fixed_stream.events()[-1]


def test_an_event_is_on_the_disk_before_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with StreamWriter(path) as writer:
        writer(CANARY)
        assert read_events(path) == [CANARY]


def test_progress_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, [Progress(1, 1, 0.1, 0), CANARY])
    assert read_events(path) == [CANARY]


def test_a_stream_goes_on_where_it_ended(stream: Path) -> None:
    write(stream, [CANARY])
    assert read_events(stream) == [CANARY] * 3


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_line_that_a_kill_has_cut_is_not_there(stream: Path, cut: int) -> None:
    stream.write_bytes(stream.read_bytes()[:-cut])
    assert read_events(stream) == [CANARY]


def test_what_follows_a_cut_line_is_a_line_of_its_own(stream: Path) -> None:
    stream.write_bytes(stream.read_bytes()[:-7])
    write(stream, [CANARY])
    assert read_events(stream) == [CANARY, CANARY]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (b"{", "no event: input data was truncated"),
        (b'{"type":"rumour"}', "no event: invalid value 'rumour'"),
        (b'{"type":"canary","drill":"x"}', "no event: object missing required field `caught`"),
        (b"\xff\xfe", "no event: "),
    ],
)
def test_other_damage_is_one_error_that_names_file_and_line(
    stream: Path, damage: bytes, problem: str
) -> None:
    first, second = stream.read_bytes().splitlines()
    stream.write_bytes(b"\n".join([first, damage, second, b""]))
    with pytest.raises(StreamError) as raised:
        read_events(stream)
    assert str(raised.value).startswith(f"{stream}:2: {problem}")
    assert "\n" not in str(raised.value)


def test_a_missing_stream_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(StreamError, match=r"events.jsonl: can't be read: No such file"):
        read_events(tmp_path / "events.jsonl")
