"""Bad input gets one clear message that says what to do; nothing is run or overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.treedrift.conftest import Command, Ended
from treedrift.harness.config import Config
from treedrift.harness.ops import CoreInsert
from treedrift.harness.trace import dump_trace, new_trace

HEADER = '{"treedrift": "trace", "version": 2}\n'
TRACES = {
    "truncated": (HEADER + '{"op": "core_insert", "tok', ":2: the file ends inside this line"),
    "foreign": ('{"timestamp": 1, "hash_ids": [1]}\n', "this is a request log; import it"),
    "not JSON": ("tokens: 1 2 3\n", ":1: not JSON"),
    "empty": ("", "the file is empty"),
    "of the future": (
        '{"treedrift": "trace", "version": 99}\n',
        ":1: field `version`: is 99, and this treedrift reads up to 4; use a newer treedrift",
    ),
    "with an unknown op": (HEADER + '{"op": "core_inset"}\n', ":2: field `op`: unknown op"),
    "with a negative page size": (
        '{"treedrift": "trace", "version": 2, "config": {"page_size": -4}}\n',
        ":1: field `config.page_size`: must be a positive number, got -4",
    ),
}


def assert_one_message(ended: Ended, code: int = 2) -> str:
    assert ended.code == code, ended.err
    assert "Traceback" not in ended.err
    assert ended.out == ""
    lines = [line for line in ended.err.splitlines() if not line.startswith("seed ")]
    assert len(lines) == 1, ended.err
    assert lines[0].startswith("treedrift: ")
    return lines[0]


@pytest.mark.parametrize("verb", ["replay", "show"])
@pytest.mark.parametrize("kind", TRACES)
def test_a_bad_trace_is_named_with_file_line_and_field(
    command: Command, place: Path, verb: str, kind: str
) -> None:
    text, message = TRACES[kind]
    (place / "bad.jsonl").write_text(text)
    said = assert_one_message(command(verb, "bad.jsonl", "--pair", "python,twin"))
    assert said.startswith("treedrift: bad.jsonl")
    assert message in said
    assert [one.name for one in place.iterdir()] == ["bad.jsonl"]
    assert (place / "bad.jsonl").read_text() == text


def test_one_bad_trace_of_a_folder_stops_all_before_any_runs(command: Command, place: Path) -> None:
    (place / "a.jsonl").write_bytes(dump_trace(new_trace(Config(), [CoreInsert([1])])))
    (place / "b.jsonl").write_text("{}\n")
    ended = command("replay", place, "--pair", "python,twin", "--json")
    assert "b.jsonl:1" in assert_one_message(ended)


@pytest.mark.parametrize("verb", ["replay", "show"])
def test_a_missing_trace_is_named(command: Command, verb: str) -> None:
    ended = command(verb, "nowhere.jsonl", "--pair", "python,twin")
    assert "nowhere.jsonl: can't be read" in assert_one_message(ended)


def test_a_folder_without_traces_is_named(command: Command, place: Path) -> None:
    assert "no traces here" in assert_one_message(command("replay", place))


def test_an_unknown_core_is_named_with_the_closest_one(command: Command) -> None:
    ended = command("fuzz", "--ops", "1", "--pair", "python,twim")
    assert "no core 'twim'; did you mean twin?" in assert_one_message(ended)


@pytest.mark.parametrize("verb", ["fuzz", "check"])
def test_an_unknown_profile_is_named_with_the_closest_one(command: Command, verb: str) -> None:
    ended = command(verb, "--time", "1s", "--pair", "python,twin", "--profile", "fulll")
    assert "unknown profile 'fulll'; did you mean 'full'?" in assert_one_message(ended)


@pytest.mark.parametrize("pair", ["python", "python,", "python,python", "a,b,c", ""])
def test_a_pair_that_is_no_pair_is_refused(command: Command, pair: str) -> None:
    ended = command("fuzz", "--ops", "1", "--pair", pair)
    assert "name two different cores, as in python,rust" in assert_one_message(ended)


@pytest.mark.parametrize("time", ["soon", "-5", "5 days", "1h30m", "", "nan"])
def test_a_time_that_is_no_time_is_refused(command: Command, time: str) -> None:
    ended = command("fuzz", "--time", time, "--pair", "python,twin")
    assert "as in 10m" in assert_one_message(ended)


def test_a_campaign_without_an_end_is_refused(command: Command) -> None:
    assert "--ops or --time" in assert_one_message(command("fuzz", "--pair", "python,twin"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("fuzz", "--ops", "0"),
        ("fuzz", "--ops", "many"),
        ("fuzz", "--jobs", "0", "--ops", "1"),
        ("fuzz", "--engine", "magic", "--ops", "1"),
        ("fuzz", "--no-such-option"),
        ("no-such-command",),
        ("replay",),
    ],
)
def test_a_bad_command_line_ends_with_2(command: Command, arguments: tuple[str, ...]) -> None:
    ended = command(*arguments)
    assert ended.code == 2
    assert ended.err
    assert "Traceback" not in ended.err


def test_a_folder_that_cannot_be_written_to_is_refused_before_anything_runs(
    command: Command, place: Path
) -> None:
    (place / "file").write_text("keep me")
    ended = command("fuzz", "--ops", "100", "--pair", "python,leaky", "--out", "file/found")
    assert "--out file/found" in assert_one_message(ended)
    assert (place / "file").read_text() == "keep me"


LOG = '{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}\n'


def test_an_import_overwrites_nothing_unless_forced(command: Command, place: Path) -> None:
    (place / "log.jsonl").write_text(LOG)
    (place / "trace.jsonl").write_text("mine")
    refused = command("import", "log.jsonl", "--out", "trace.jsonl")
    assert "trace.jsonl: exists with other content" in assert_one_message(refused)
    assert (place / "trace.jsonl").read_text() == "mine"
    assert command("import", "log.jsonl", "--out", "trace.jsonl", "--force").code == 0
    assert (place / "trace.jsonl").read_text().startswith('{"treedrift"')


def test_an_import_of_what_is_no_log_writes_nothing(command: Command, place: Path) -> None:
    (place / "log.jsonl").write_text('{"timestamp": 0}\n')
    said = assert_one_message(command("import", "log.jsonl", "--out", "trace.jsonl"))
    assert "log.jsonl:1" in said
    assert not (place / "trace.jsonl").exists()


def test_an_import_into_a_place_that_is_no_folder_says_so(command: Command, place: Path) -> None:
    (place / "log.jsonl").write_text(LOG)
    (place / "file").write_text("keep me")
    said = assert_one_message(command("import", "log.jsonl", "--out", "file/trace.jsonl"))
    assert "file/trace.jsonl: can't be written" in said


def test_an_import_of_a_missing_log_says_so(command: Command) -> None:
    said = assert_one_message(command("import", "log.jsonl", "--out", "trace.jsonl"))
    assert "log.jsonl: can't be read" in said
