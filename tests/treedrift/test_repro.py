"""`treedrift repro`: a test that imports treedrift alone and fails while two cores differ."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import treedrift
from tests.treedrift.conftest import Command
from treedrift.backends.registry import UnknownBackendError
from treedrift.harness.config import Config
from treedrift.harness.ops import (
    AnyOp,
    Arrive,
    CoreInsert,
    CoreMatch,
    Evict,
    Lock,
    Namespace,
    Touch,
)
from treedrift.harness.trace import Trace, TraceError, new_trace, write_trace
from treedrift.models.profiles import profile_named
from treedrift.models.swarm import generate_case
from treedrift.repro import repro_text

LEAK: list[AnyOp] = [CoreInsert([1, 2, 3]), CoreInsert([1, 2, 3]), Evict(9)]
WRITTEN = '''\
"""python and leaky should agree here; written by treedrift from leak.jsonl.

a leak

They part: core_insert: begin_insert answers more or fewer actions.

Kind: difference:core_insert:calls[].begin_insert.result.actions.length

Rule INS-31: Duplicate slots are freed from where the caller's own prefix ends, those
without a window first.

It fails while the cores differ and passes once they agree.
"""

import treedrift
from treedrift import Config, ops

PAIR = ("python", "leaky")

CONFIG = Config(capacity=32)

OPS = [
    ops.CoreInsert(tokens=[1, 2, 3]),
    ops.CoreInsert(tokens=[1, 2, 3]),
    ops.Evict(count=9),
]


def test_python_and_leaky_agree() -> None:
    treedrift.assert_agree(PAIR, CONFIG, OPS)
'''


def save(path: Path, trace_ops: list[AnyOp], **header: Any) -> None:
    write_trace(path, new_trace(Config(capacity=32), trace_ops, **header))


def test_the_written_test_is_short_and_says_what_it_is_about(command: Command, place: Path) -> None:
    save(place / "leak.jsonl", LEAK, pair=("python", "leaky"), note="a leak")
    ended = command("repro", "leak.jsonl")
    assert ended.code == 0
    assert ended.out.splitlines() == [
        "test_leak.py: 3 ops; python and leaky differ, so it fails",
        "run it with: pytest test_leak.py",
    ]
    assert (place / "test_leak.py").read_text() == WRITTEN


def test_the_written_test_fails_by_itself_while_the_cores_differ(
    command: Command, place: Path, own_process: dict[str, Any]
) -> None:
    save(place / "leak.jsonl", LEAK, pair=("python", "leaky"))
    command("repro", "leak.jsonl", "--out", "t/test_differ.py")
    command("repro", "leak.jsonl", "--pair", "python,twin", "--out", "t/test_agree.py")
    released = repro_text(new_trace(Config(), LEAK), ("python", "sglang-rust@9.9"), "x", None)
    (place / "t" / "test_missing.py").write_text(released)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", "t"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=place,
        # Other plugins would only make the test slow.
        env={**own_process["env"], "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert "1 failed, 1 passed, 1 skipped" in run.stdout, run.stdout + run.stderr
    assert "python against leaky: they part at op 1, core_insert" in run.stdout
    assert "INS-31" in run.stdout
    assert "sglang-rust@9.9: " in run.stdout


def test_a_test_of_a_long_failure_is_written_and_said_to_be_long(
    command: Command, place: Path
) -> None:
    save(place / "long.jsonl", [*[CoreMatch([5])] * 120, *LEAK], pair=("python", "leaky"))
    ended = command("repro", "long.jsonl")
    assert "it is long; a short one takes: treedrift shrink long.jsonl" in ended.out
    agreed = command("repro", "long.jsonl", "--pair", "python,twin", "--force")
    assert "it is long" not in agreed.out


def test_an_agreeing_trace_makes_a_test_that_passes(command: Command, place: Path) -> None:
    save(place / "good.jsonl", LEAK)
    ended = command("repro", "good.jsonl", "--pair", "python,twin")
    assert "python and twin agree on it today" in ended.out
    assert "They part" not in (place / "test_good.py").read_text()


def test_a_test_that_is_there_is_kept_unless_forced(command: Command, place: Path) -> None:
    save(place / "leak.jsonl", LEAK, pair=("python", "leaky"))
    (place / "test_leak.py").write_text("mine")
    ended = command("repro", "leak.jsonl")
    assert ended.code == 2
    assert "give --force" in ended.err
    assert (place / "test_leak.py").read_text() == "mine"
    assert command("repro", "leak.jsonl", "--force").code == 0
    assert (place / "test_leak.py").read_text() != "mine"


def test_a_target_that_cant_be_written_is_an_error_of_the_user(
    command: Command, place: Path
) -> None:
    save(place / "leak.jsonl", LEAK, pair=("python", "leaky"))
    ended = command("repro", "leak.jsonl", "--out", "leak.jsonl/test.py")
    assert ended.code == 2
    assert "can't be written" in ended.err


def test_the_name_of_a_finding_makes_the_name_of_a_test(command: Command, place: Path) -> None:
    save(place / "Core-insert, 3.min.jsonl", LEAK, pair=("python", "leaky"))
    command("repro", "Core-insert, 3.min.jsonl")
    assert (place / "test_core_insert_3.py").exists()


# --- The text -----------------------------------------------------------------------------


def traces() -> list[Trace]:
    """Traces of every shape: all kinds of ops, long lists, odd text, unusual configurations."""
    made = []
    for seed in range(12):
        config, steps = generate_case(seed, profile_named("full"), hostile=seed % 3 == 0)
        made.append(new_trace(config, list(steps), note='a note\nof \'two\' """lines""" \\x'))
    space = Namespace(extra_key='it\'s "x"', cache_salt="\\é\n")
    odd = [CoreInsert([1], namespace=space), Touch([2], Namespace("a", "b")), Arrive()]
    config = Config(
        policy="tlru",
        policy_config={"threshold": "nan", "next_prompt_estimate": 3},
        lora_names={"a" * 30: "b" * 30, "it's": 'a "name"'},
        write_through_threshold=1,
        dynamo_events=True,
    )
    made.append(new_trace(config, list(odd), note="long words: " + "x" * 120))
    made.append(new_trace(Config(), [CoreInsert(list(range(500))), Evict(1)]))
    long = [(10**9 * number, 200 + number) for number in range(20)]
    steps = [CoreInsert([], runs=long, answer=3), CoreMatch([7], runs=long[:9]), Lock("answer:3")]
    made.append(new_trace(Config(), steps))
    made.append(new_trace(Config(), []))
    return made


def test_a_written_test_holds_the_trace_as_it_is() -> None:
    for trace in traces():
        space: dict[str, Any] = {}
        exec(repro_text(trace, ("python", "rust"), "x.jsonl", None), space)
        assert space["CONFIG"] == trace.header.config
        assert space["OPS"] == trace.ops


def test_a_written_test_is_as_ruff_formats_it(tmp_path: Path) -> None:
    for number, trace in enumerate(traces()):
        for pair in (("python", "rust"), ("rust", "sglang-rust@0.5.23")):
            text = repro_text(trace, pair, "x.jsonl", None)
            (tmp_path / f"test_{number}_{pair[0]}.py").write_text(text)
    for width in ("88", "100"):
        arguments = ["format", "--check", "--isolated", "--line-length", width, str(tmp_path)]
        run = subprocess.run(
            [sys.executable, "-m", "ruff", *arguments], capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stdout + run.stderr


def test_no_line_of_a_written_test_is_longer_than_formatters_allow() -> None:
    runs = [(2**62 + number, 2**23) for number in range(30)]
    trace = new_trace(Config(), [CoreMatch([], runs=runs[:4]), CoreInsert([], runs=runs)])
    text = repro_text(trace, ("python", "rust"), "x.jsonl", None)
    assert max(map(len, text.splitlines())) <= 88


def test_a_written_test_imports_treedrift_and_pytest_at_most() -> None:
    for pair, expected in (
        (("python", "rust"), {"treedrift"}),
        (("python", "sglang-python@0.5.23"), {"treedrift", "pytest"}),
    ):
        text = repro_text(new_trace(Config(), LEAK), pair, "x.jsonl", None)
        assert {name.partition(".")[0] for name in imports(text)} == expected


def imports(text: str) -> set[str]:
    nodes = list(ast.walk(ast.parse(text)))
    plain = {one.name for node in nodes if isinstance(node, ast.Import) for one in node.names}
    return plain | {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}


def test_the_same_trace_gives_the_same_file(command: Command, place: Path) -> None:
    save(place / "leak.jsonl", LEAK, pair=("python", "leaky"))
    command("repro", "leak.jsonl", "--out", "one.py")
    command("repro", "leak.jsonl", "--out", "two.py")
    assert (place / "one.py").read_bytes() == (place / "two.py").read_bytes()


# --- What it needs of the package ---------------------------------------------------------


def test_the_public_names_are_those_that_the_package_lists() -> None:
    assert dir(treedrift) == sorted(treedrift.__all__)
    assert all(getattr(treedrift, name) is not None for name in treedrift.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        treedrift.nonsense  # noqa: B018 -- reading the name is what is tested


def test_agreeing_cores_pass_and_differing_ones_are_explained(command: Command) -> None:
    treedrift.assert_agree(("python", "twin"), Config(), LEAK)
    with pytest.raises(AssertionError, match="python against leaky: they part at op 1"):
        treedrift.assert_agree(("python", "leaky"), Config(), LEAK)


def test_ops_that_no_trace_can_hold_are_refused(command: Command) -> None:
    with pytest.raises(TraceError, match="tokens"):
        treedrift.assert_agree(("python", "twin"), Config(), [CoreInsert([2**70])])


def test_a_missing_core_is_a_reason_and_an_unknown_one_a_mistake(command: Command) -> None:
    assert treedrift.why_missing("python", "twin") is None
    reason = treedrift.why_missing("python", "sglang-rust@9.9")
    assert reason is not None
    assert reason.startswith("sglang-rust@9.9: ")
    absent = treedrift.why_missing("absent")
    assert absent is not None
    assert "no_such_module_anywhere" in absent
    with pytest.raises(UnknownBackendError):
        treedrift.why_missing("nobody")
