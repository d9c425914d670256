"""pytest replays traces as tests, tells what is wrong with one, and is left alone elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from treedrift import cli
from treedrift.harness.config import Config
from treedrift.harness.ops import AnyOp, CoreInsert
from treedrift.harness.trace import Known, new_trace, write_trace

pytest_plugins = ["pytester"]

TWICE: list[AnyOp] = [CoreInsert([1, 2]), CoreInsert([1, 2])]
"""What `leaky` fails at: it forgets to give the duplicates back."""

LEAK = "difference:core_insert:calls[].begin_insert.result.actions.length"
LEAKY = ("python", "leaky")
FOREIGN = {
    "log.jsonl": '{"timestamp": 1, "hash_ids": [1]}\n',
    "events.jsonl": '{"type": "started", "versions": {"treedrift": "0.1"}}\n',
    "text.jsonl": "not JSON, and no treedrift\n",
    "empty.jsonl": "",
    "notes.log": '{"treedrift": "trace", "version": 2}\n',
}

QUICK = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
"""Plugins that each run would load anew, for nothing."""

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(
    site: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Run:
    """Run pytest here, in this process, with cores of another package plugged in."""
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "spoilt_cores", raising=False)
    monkeypatch.setenv("TREEDRIFT_HOME", str(tmp_path / "home"))
    return lambda *arguments: pytester.runpytest_inprocess(*QUICK, *arguments)


def put(path: str, **header: Any) -> None:
    write_trace(path, new_trace(Config(), TWICE, **{"pair": ("python", "twin")} | header))


def test_a_trace_that_agrees_is_a_test_that_passes(run: Run) -> None:
    put("corpora/seeds/one.jsonl")
    result = run("corpora", "-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["corpora/seeds/one.jsonl::one PASSED*"])


def test_a_trace_without_a_pair_runs_on_our_cores(run: Run) -> None:
    put("one.jsonl", pair=None)
    run().assert_outcomes(passed=1)


def test_a_trace_that_diverges_tells_where_and_what_to_type_next(run: Run) -> None:
    put("corpora/regressions/back.jsonl", pair=LEAKY, signature=LEAK)
    result = run("corpora")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*back*",
            "corpora/regressions/back.jsonl: DIVERGES on python,leaky: what was fixed shows again",
            f"  {LEAK.replace('[', '[[]')}",
            "  they part at op 1: calls[[]0].begin_insert.result.actions.length",
            "    python *",
            "    leaky *",
            "  explain it: treedrift show corpora/regressions/back.jsonl --pair python,leaky",
        ],
        consecutive=False,
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")


def known(core: str) -> dict[str, Any]:
    facts = Known(core=core, releases=["*"], signatures=[LEAK])
    return {"expect": "diverges", "signature": LEAK, "rule": "INS-12", "known": facts}


def test_a_known_difference_passes_while_it_shows(run: Run) -> None:
    put("corpora/known/leak.jsonl", pair=LEAKY, **known("leaky"))
    put("corpora/seeds/explained.jsonl", pair=LEAKY)
    run("corpora").assert_outcomes(passed=2)


def test_a_known_difference_that_has_vanished_fails_with_the_hint(run: Run) -> None:
    put("corpora/known/gone.jsonl", **known("twin"))
    result = run("corpora")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "corpora/known/gone.jsonl: FIXED on python,twin: the difference has vanished",
            "  keep it: treedrift corpus verify corpora/known/gone.jsonl *twin --promote",
        ]
    )


def test_a_missing_environment_skips_a_trace_with_the_reason(run: Run) -> None:
    put("far.jsonl", pair=("python", "sglang-rust@0.5.23"))
    result = run("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*treedrift env add sglang==0.5.23*"])


def test_what_needs_a_released_core_can_be_left_out(run: Run) -> None:
    put("far.jsonl", pair=("python", "sglang-rust@0.5.23"))
    put("near.jsonl")
    run("--strict-markers", "-m", "not released").assert_outcomes(passed=1, deselected=1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"treedrift": "trace", "version": 2}\n{"op": "nothing"}\n', "*bad.jsonl:2: field `op`*"),
        ('{"treedrift": "trace", "version": 99}\n', "*bad.jsonl:1: field `version`: is 99*"),
        ('{"treedrift": "tra', "*bad.jsonl:1: the file ends inside this line*"),
        ('\n{"treedrift": "trace", "version": 2, "pair": 3}\n', "*bad.jsonl:2: field `pair`*"),
        ('{"treedrift": "trace", "version": 2, "pair": ["rust", "x"]}\n', "*ERROR*no core 'x'*"),
    ],
)
def test_a_bad_trace_is_a_test_that_fails_with_its_line(run: Run, text: str, says: str) -> None:
    Path("bad.jsonl").write_text(text)
    put("good.jsonl")
    result = run()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines([says])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_bad_ledger_fails_with_its_line(run: Run) -> None:
    put("corpora/known/bare.jsonl", pair=LEAKY, expect="diverges")
    put("corpora/seeds/one.jsonl")
    result = run("corpora/seeds")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*bare.jsonl:1: field `known`: missing*"])


def test_other_files_are_no_tests(run: Run) -> None:
    for name, text in FOREIGN.items():
        Path(name).write_text(text)
    assert run().ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_every_named_pair_is_a_test_of_its_own(run: Run) -> None:
    put("one.jsonl")
    result = run("-v", "--treedrift-pair", "leaky,python", "--treedrift-pair", "twin,python")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*::one[[]leaky,python[]] FAILED*", "*one[[]twin,python[]] PASSED*"]
    )


@pytest.mark.parametrize(
    ("pair", "says"),
    [
        ("python", "--treedrift-pair 'python': name two different cores*"),
        ("python,pythn", "*no core 'pythn'; did you mean python?*"),
    ],
)
def test_a_bad_pair_ends_the_run_before_anything_else(run: Run, pair: str, says: str) -> None:
    put("one.jsonl")
    result = run("--treedrift-pair", pair)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{says}"])


def test_traces_are_not_collected_without_the_plugin(run: Run) -> None:
    put("one.jsonl")
    assert run("-p", "no:treedrift").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_sides_are_closed_at_the_end(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from treedrift.harness.lockstep import Lockstep

    closed: list[Lockstep] = []
    monkeypatch.setattr(Lockstep, "close", lambda self: closed.append(self))
    for number in range(3):
        put(f"{number}.jsonl")
    run().assert_outcomes(passed=3)
    assert len(closed) == 1


# --- Processes of their own ---------------------------------------------------------------


def own_pytest(own_process: dict[str, Any], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", *QUICK, *arguments]
    return subprocess.run(command, capture_output=True, timeout=300, **own_process)


def test_several_processes_replay_every_trace_once(own_process: dict[str, Any]) -> None:
    for number in range(6):
        write_trace(own_process["cwd"] / f"{number}.jsonl", new_trace(Config(), TWICE, pair=LEAKY))
    ended = own_pytest(own_process, "-n", "2")
    assert ended.returncode == 1
    assert "6 failed" in ended.stdout
    assert "explain it: treedrift show 5.jsonl --pair python,leaky" in ended.stdout


LIGHT = """
import sys

def test_nothing_of_the_project_is_loaded():
    loaded = [name for name in sys.modules if name.split(".")[0] == "treedrift"]
    assert sorted(loaded) == ["treedrift", "treedrift.pytest_plugin"]
    assert not {"torch", "msgspec", "typer", "rich", "numpy"} & set(sys.modules)
"""


def test_a_run_without_traces_loads_nothing_of_the_project(own_process: dict[str, Any]) -> None:
    (own_process["cwd"] / "test_light.py").write_text(LIGHT)
    (own_process["cwd"] / "foreign.jsonl").write_text(FOREIGN["log.jsonl"])
    ended = own_pytest(own_process)
    assert ended.returncode == 0, ended.stdout
    assert "1 passed" in ended.stdout


@pytest.mark.released
def test_a_lone_process_replays_near_traces_while_a_worker_starts(tmp_path: Path) -> None:
    write_trace(
        tmp_path / "a-far.jsonl", new_trace(Config(), TWICE, pair=("python", "sglang-python"))
    )
    write_trace(tmp_path / "b-near.jsonl", new_trace(Config(), TWICE))
    path = {"PYTHONPATH": str(Path(cli.__file__).parents[1])}
    process = {"env": {**os.environ, **path}, "cwd": tmp_path, "text": True}
    ended = own_pytest(process, "-v")
    assert "2 passed" in ended.stdout, ended.stdout
    assert ended.stdout.index("b-near PASSED") < ended.stdout.index("a-far PASSED")
