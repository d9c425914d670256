"""What the commands say: the object of --json, replaying what was found, the cores."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.treedrift.conftest import Command
from treedrift.harness.config import Config
from treedrift.harness.ops import AnyOp, CoreInsert, Evict, Misuse, Reset, Touch
from treedrift.harness.trace import new_trace, read_trace, write_trace
from treedrift.reports.summary import POLICIES

KEYS = {
    "canaries",
    "ledger",
    "verdict",
    "ops",
    "cases",
    "refused_cases",
    "seconds",
    "interrupted",
    "pairs",
    "divergences",
    "statistics",
}
DIVERGENCE_KEYS = {
    "group",
    "guilty",
    "headline",
    "known",
    "rows",
    "rule",
    "rule_text",
    "shrunk",
    "status",
    "verdict",
    "kind",
    "signature",
    "pair",
    "side",
    "op",
    "op_index",
    "where",
    "left",
    "right",
    "count",
    "file",
}
LEAK = [CoreInsert([1, 2, 3]), CoreInsert([1, 2, 3, 4]), Evict(2)]
LEAK_SIGNATURE = "difference:core_insert:calls[].begin_insert.result.actions.length"


def save(path: Path, trace_ops: list[AnyOp], **header: Any) -> Path:
    write_trace(path, new_trace(Config(), trace_ops, **header))
    return path


# --- --json -------------------------------------------------------------------------------


def test_a_campaign_prints_exactly_one_object(command: Command) -> None:
    told = command("fuzz", "--ops", "300", "--pair", "python,twin", "--json").json
    assert set(told) == KEYS
    assert told["ops"] >= 300
    assert told["pairs"] == [["python", "twin"]]
    assert told["divergences"] == []
    assert set(told["statistics"]["policies"]) == set(POLICIES)
    assert sum(told["statistics"]["ops"].values()) == told["ops"]
    assert set(told["statistics"]["core_seconds"]) == {"python", "twin"}


def test_a_diverging_campaign_prints_kind_and_file(command: Command, place: Path) -> None:
    ended = command("fuzz", "--ops", "300", "--pair", "python,leaky", "--json")
    assert ended.code == 1
    found = ended.json["divergences"]
    assert found
    for one in found:
        assert set(one) == DIVERGENCE_KEYS
        assert one["pair"] == ["python", "leaky"]
        assert one["count"] >= 1
        assert (place / one["file"]).is_file()


def test_a_red_run_ends_with_the_next_step_and_the_report(command: Command) -> None:
    ended = command("fuzz", "--ops", "300", "--pair", "python,leaky", "--shrink", "1s")
    assert "shrinking and explaining" in ended.err
    lines = ended.out.splitlines()
    assert lines[lines.index("next") + 1].startswith("  treedrift show build/run/findings/")
    assert "--pair" not in lines[lines.index("next") + 1]
    assert lines[-1] == "report: build/run/report.html, beside it junit.xml and summary.md"


def test_nothing_but_the_object_comes_on_standard_output(own_process: dict[str, Any]) -> None:
    arguments = ["fuzz", "--ops", "50", "--json", "--pair", "python,twin", "--jobs", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "treedrift", *arguments],
        capture_output=True,
        check=False,
        **own_process,
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == KEYS
    assert done.stdout.count("\n") == 1


def test_check_prints_one_object_that_counts_the_saved_traces_too(
    command: Command, place: Path
) -> None:
    folder = place / "corpora" / "seeds"
    folder.mkdir(parents=True)
    save(folder / "leak.jsonl", list(LEAK))
    ended = command("check", "--pair", "python,leaky", "--time", "0.1", "--jobs", "1", "--json")
    assert ended.code == 1
    assert "corpora/seeds/leak.jsonl" in [one["file"] for one in ended.json["divergences"]]


def test_check_says_that_the_saved_traces_agree(command: Command, place: Path) -> None:
    folder = place / "corpora" / "regressions"
    folder.mkdir(parents=True)
    save(folder / "leak.jsonl", list(LEAK))
    ended = command("check", "--pair", "python,twin", "--time", "0.1", "--jobs", "1")
    assert ended.code == 0
    assert ended.out.startswith("1 saved traces agree\n")


# --- A divergence, saved and replayed -----------------------------------------------------


def test_a_saved_trace_that_shows_two_kinds_is_shrunk_for_each(
    command: Command, place: Path
) -> None:
    save(place / "corpora" / "seeds" / "leak.jsonl", LEAK)
    pairs = ("--pair", "python,leaky", "--pair", "twin,leaky")
    told = command("check", "--time", "0", "--shrink", "2s", *pairs, "--json").json
    files = {one["shrunk"]["file"]: one["pair"] for one in told["divergences"]}
    assert len(files) == len(told["divergences"])
    for file, pair in files.items():
        assert list(read_trace(file).header.pair or ()) == pair


def test_a_saved_divergence_replays_with_the_same_signature(command: Command, place: Path) -> None:
    found = command("fuzz", "--ops", "300", "--pair", "python,leaky", "--json").json["divergences"]
    for one in found:
        again = command("replay", one["file"], "--json")
        assert again.code == 1
        (repeated,) = again.json["divergences"]
        assert repeated["signature"] == one["signature"]
        assert repeated["file"] == one["file"]


def test_a_saved_divergence_says_where_it_comes_from(command: Command) -> None:
    told = command("fuzz", "--ops", "1", "--seed", "7", "--pair", "python,leaky", "--json").json
    (one,) = told["divergences"]
    header = read_trace(one["file"]).header
    assert header.pair == ("python", "leaky")
    assert header.seed == 7 * 1_000_003
    assert header.expect == "diverges"
    assert one["where"] in header.note


def test_a_saved_divergence_agrees_on_sound_cores(command: Command, place: Path) -> None:
    save(place / "leak.jsonl", list(LEAK), pair=("python", "leaky"))
    assert command("replay", "leak.jsonl").code == 1
    assert command("replay", "leak.jsonl", "--pair", "python,twin").code == 0


def test_a_replay_of_a_folder_replays_every_trace(command: Command, place: Path) -> None:
    (place / "in").mkdir()
    save(place / "in" / "a.jsonl", list(LEAK))
    save(place / "in" / "b.jsonl", [CoreInsert([1])])
    told = command("replay", "in", "--pair", "python,twin", "--json").json
    assert (told["cases"], told["ops"]) == (2, 4)


def test_a_small_trace_is_watched_closely_also_beside_a_large_one(
    command: Command, place: Path
) -> None:
    split = [*[CoreInsert([1, 2, 3])] * 3, *[CoreInsert([1, 2, 4])] * 3, Reset()]
    save(place / "traces" / "small.jsonl", split)
    write_trace(place / "traces" / "large.jsonl", new_trace(Config(capacity=2**13), split))
    told = command("replay", "traces", "--pair", "python,drill:lost-hit-count", "--json").json
    (found,) = told["divergences"]
    assert (found["file"], found["op_index"]) == ("traces/small.jsonl", 3)


def test_a_hostile_trace_is_skipped_for_cores_that_need_not_answer_it(
    command: Command, place: Path
) -> None:
    save(place / "bad.jsonl", [Misuse("node_by_id")])
    save(place / "good.jsonl", [Touch([1, 2])])
    ended = command("replay", "bad.jsonl", "good.jsonl", "--pair", "python,twin")
    assert ended.code == 0
    assert "bad.jsonl: skipped, it breaks the protocol" in ended.err


def test_a_replay_that_skips_everything_has_not_agreed(command: Command, place: Path) -> None:
    save(place / "bad.jsonl", [Misuse("node_by_id")])
    ended = command("replay", "bad.jsonl", "--pair", "python,twin")
    assert ended.code == 2
    assert "no trace was replayed" in ended.err


# --- Cores of other packages --------------------------------------------------------------


def test_cores_of_other_packages_are_listed(command: Command) -> None:
    told = {one["name"]: one for one in command("backends", "--json").json["backends"]}
    assert told["python"]["available"]
    assert told["twin"]["inspect"]
    assert told["bare"]["available"]
    assert not told["bare"]["inspect"]
    assert not told["hollow"]["available"]
    assert "no create(params)" in told["hollow"]["why"]
    assert "no_such_module_anywhere" in told["absent"]["why"]


def test_an_unusable_core_hides_no_other_in_the_list(command: Command) -> None:
    lines = command("backends").out.splitlines()
    assert any(line.startswith("twin ") and "available" in line for line in lines)
    assert any(line.startswith("absent ") and "missing" in line for line in lines)


def test_the_same_seed_tells_the_same_again(command: Command) -> None:
    arguments = ("fuzz", "--ops", "300", "--seed", "5", "--pair", "python,twin", "--json")
    first, second = command(*arguments).json, command(*arguments).json
    for told in (first, second):
        del told["seconds"], told["statistics"]["core_seconds"], told["statistics"]["side_seconds"]
        del told["canaries"][0]["seconds"]
    assert first == second


def test_two_jobs_run_the_cases_of_one(command: Command) -> None:
    from treedrift import running

    plan = running.Plan(pairs=(("python", "twin"),), jobs=2)
    alone = running.Plan(pairs=(("python", "twin"),), jobs=1)
    both = [running.cases_of(plan, job) for job in (0, 1)]
    one = running.cases_of(alone, 0)
    for number in range(6):
        assert next(one).seed == next(both[number % 2]).seed


@pytest.mark.parametrize("engine", ["swarm", "hypothesis"])
def test_shards_and_their_jobs_share_the_cases_of_a_seed_out(command: Command, engine: str) -> None:
    from treedrift import running

    def seeds(count: int, job: int = 0, **parts: Any) -> list[int | None]:
        plan = running.Plan(pairs=(("python", "twin"),), engine=engine, **parts)
        return [case.seed for case in islice(running.cases_of(plan, job), count)]

    alone = seeds(400)
    shared = [seeds(100, job, jobs=2, shard=(part, 2)) for part in (1, 2) for job in (0, 1)]
    assert sorted(seed for part in shared for seed in part) == sorted(alone)


@pytest.mark.parametrize("shard", ["0/2", "3/2", "two", "1/0"])
def test_a_shard_that_is_none_is_refused(command: Command, shard: str) -> None:
    ended = command("fuzz", "--ops", "9", "--shard", shard)
    assert ended.code == 2
    assert "--shard" in ended.err


@pytest.mark.parametrize("engine", ["swarm", "hypothesis"])
def test_a_job_goes_on_with_the_cases_it_would_have_had(command: Command, engine: str) -> None:
    from treedrift import running

    plan = running.Plan(pairs=(("python", "twin"),), engine=engine, jobs=2)
    whole, rest = running.cases_of(plan, 1), running.cases_of(plan, 1, first=3)
    expected = [next(whole) for _ in range(5)][3:]
    assert [next(rest) for _ in range(2)] == expected
    assert [case.number for case in expected] == [3, 4]


def test_hypothesis_makes_the_cases_of_a_campaign(command: Command) -> None:
    ended = command(
        "fuzz", "--engine", "hypothesis", "--ops", "300", "--pair", "python,leaky", "--json"
    )
    assert ended.code == 1
    assert all("begin_insert" in one["where"] for one in ended.json["divergences"])


@pytest.mark.parametrize("arguments", [("--help",), ("fuzz", "--help"), ("env", "--help")])
def test_help_ends_with_0(command: Command, arguments: tuple[str, ...]) -> None:
    ended = command(*arguments)
    assert ended.code == 0
    assert "Usage" in ended.out
