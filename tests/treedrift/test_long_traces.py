"""The commands on a trace as a server records it: many ops, keys of thousands of tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness.recorded_traces import RECORDED, prompt_of, recorded
from tests.treedrift.conftest import Command
from treedrift.harness.ops import AnyOp, CoreInsert, CoreMatch
from treedrift.harness.trace import new_trace, read_trace, write_trace

REQUESTS = 60
PAIR = ("python", "drill:limit-ignored")
KIND = "difference:core_match:calls[].match_prefix.result.device_prefix_len"
FAILING = [*recorded(REQUESTS), CoreMatch([], limit=1000, runs=prompt_of(REQUESTS - 1))]

COLUMNS = 320
"""No line of a terminal's output is longer, whatever a key holds."""


def save(path: Path, steps: list[AnyOp], **header: Any) -> None:
    write_trace(path, new_trace(RECORDED, steps, **header))


@pytest.fixture
def failing(place: Path) -> str:
    save(place / "failing.jsonl", FAILING, pair=PAIR, expect="diverges", signature=KIND)
    return "failing.jsonl"


def test_a_replay_runs_to_the_end_and_says_how_long_it_was(command: Command, place: Path) -> None:
    save(place / "long.jsonl", recorded(REQUESTS))
    ended = command("replay", "long.jsonl", "--pair", "python,rust", "--pair", "python,twin")
    assert ended.code == 0
    assert f"{len(FAILING) - 1} ops in 1 case" in ended.out + ended.err


def test_an_explanation_is_short_and_shows_keys_as_runs(command: Command, failing: str) -> None:
    ended = command("show", failing)
    assert ended.code == 1
    lines = ended.out.splitlines()
    assert f"python against drill:limit-ignored: they part at op {len(FAILING) - 1}" in lines[1]
    assert len(lines) < 90
    assert max(map(len, lines)) < COLUMNS
    start = 10_000 + (REQUESTS - 1) // 2 * 3000
    assert f"core_match(tokens=[1..600, {start}..{start + 2999}], limit=1000)" in ended.out


def test_it_shrinks_and_becomes_a_test_that_can_be_read(
    command: Command, place: Path, failing: str
) -> None:
    assert "it is long" in command("repro", failing).out
    ended = command("shrink", failing, "--time", "600s")
    assert ended.code == 0
    assert f"failing.min.jsonl: {len(FAILING)} ops became 2" in ended.out
    shrunk = read_trace(place / "failing.min.jsonl")
    assert shrunk.ops == [CoreInsert([1]), CoreMatch([1], limit=0)]
    assert shrunk.header.signature == KIND
    assert "it is long" not in command("repro", "failing.min.jsonl", "--force").out
    assert len((place / "test_failing.py").read_text().splitlines()) < 40


def test_it_is_kept_in_the_corpus_once_the_cores_agree(command: Command, failing: str) -> None:
    arguments = ("--to", "regressions", "--corpus", "kept", "--note", "a late limit")
    ended = command("corpus", "add", failing, *arguments, "--pair", "python,rust")
    assert ended.code == 0, ended.err
    assert "failing.jsonl: AGREES on python,rust" in ended.out
    assert read_trace("kept/regressions/failing.jsonl").ops == FAILING
