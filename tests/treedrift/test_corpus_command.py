"""`treedrift corpus` lists traces, tells what is not as expected, and keeps what it is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.treedrift.conftest import Command
from treedrift.harness.config import Config
from treedrift.harness.ops import AnyOp, CoreInsert, Evict
from treedrift.harness.trace import Known, new_trace, read_trace, write_trace

TWICE: list[AnyOp] = [CoreInsert([1, 2]), CoreInsert([1, 2])]
"""What `leaky` fails at: it forgets to give the duplicates back."""

LEAK = "difference:core_insert:calls[].begin_insert.result.actions.length"
TWINS, LEAKY = ("python", "twin"), ("python", "leaky")


def put(path: str | Path, steps: list[AnyOp] | None = None, **header: Any) -> Path:
    """Write a trace; by default one that agrees on every pair of sound cores."""
    facts = {"note": "a note", "pair": TWINS}
    target = Path(path)
    write_trace(target, new_trace(Config(), TWICE if steps is None else steps, **facts | header))
    return target


def failure(path: str | Path, **header: Any) -> Path:
    """Write a trace of a leak, as it was found."""
    return put(path, **{"pair": LEAKY, "expect": "diverges", "signature": LEAK} | header)


TWIN_LEAKS = Known(core="twin", releases=["*"], signatures=[LEAK])


def entry(path: str | Path, **header: Any) -> Path:
    """Write a trace of a leak, as the ledger knows it."""
    known = Known(core="leaky", releases=["*"], signatures=[LEAK])
    return failure(path, **{"rule": "INS-12", "known": known} | header)


def files() -> list[str]:
    return sorted(path.as_posix() for path in Path("corpora").rglob("*.jsonl"))


# --- list ---------------------------------------------------------------------------------


def test_a_list_names_what_each_trace_is_for(command: Command) -> None:
    put("corpora/seeds/one.jsonl", [CoreInsert([1])])
    entry("corpora/known/leak.jsonl")
    ended = command("corpus", "list")
    assert ended.code == 0
    assert ended.out.splitlines() == [
        "corpora/known/leak.jsonl: 2 ops, diverges on python,leaky",
        "    rule       INS-12",
        f"    signature  {LEAK}",
        "    note       a note",
        "corpora/seeds/one.jsonl: 1 ops, agrees on python,twin",
        "    note       a note",
    ]
    rows = command("corpus", "list", "corpora/known", "--json").json["traces"]
    assert [(row["file"], row["known"]["core"]) for row in rows] == [
        ("corpora/known/leak.jsonl", "leaky")
    ]


# --- verify -------------------------------------------------------------------------------


def test_a_corpus_that_shows_what_it_should_ends_well(command: Command) -> None:
    put("corpora/seeds/one.jsonl")
    entry("corpora/known/leak.jsonl")
    ended = command("corpus", "verify")
    assert ended.code == 0
    assert ended.out.splitlines() == [
        "DIVERGES     corpora/known/leak.jsonl  python,leaky  known: leak",
        "AGREES       corpora/seeds/one.jsonl  python,twin",
        "2 replayed: 1 AGREES, 1 DIVERGES; all as expected",
    ]


def test_a_regression_that_shows_again_ends_with_1_and_the_next_command(command: Command) -> None:
    put("corpora/regressions/back.jsonl", pair=LEAKY, signature=LEAK)
    ended = command("corpus", "verify")
    assert ended.code == 1
    assert ended.out.splitlines()[-3:] == [
        "corpora/regressions/back.jsonl: DIVERGES on python,leaky: what was fixed shows again",
        f"    {LEAK}",
        "    look at it: treedrift show corpora/regressions/back.jsonl",
    ]


def test_a_pair_that_is_named_is_verified_with_the_ledger_in_mind(command: Command) -> None:
    put("corpora/seeds/one.jsonl")
    arguments = ("corpus", "verify", "corpora/seeds", "--pair", "leaky,python")
    assert command(*arguments).code == 1
    entry("corpora/known/leak.jsonl")
    ended = command(*arguments, "--pair", "python,twin")
    assert ended.code == 0
    assert "corpora/seeds/one.jsonl  leaky,python  known: leak" in ended.out


def test_what_cannot_run_here_is_told_and_does_not_fail(command: Command) -> None:
    put("corpora/known/far.jsonl", pair=("python", "sglang-rust@0.5.23"))
    ended = command("corpus", "verify", "corpora/known/far.jsonl", "--corpus", "elsewhere")
    assert ended.code == 0
    assert ended.out.startswith("UNSUPPORTED  corpora/known/far.jsonl  python,sglang-rust@0.5.23")
    assert "treedrift env add" in ended.out


def test_bad_files_are_named_and_the_others_verified_all_the_same(command: Command) -> None:
    put("corpora/seeds/one.jsonl")
    Path("corpora/seeds/bad.jsonl").write_text("{}\n")
    ended = command("corpus", "verify")
    assert ended.code == 2
    assert "AGREES       corpora/seeds/one.jsonl" in ended.out
    assert ended.out.splitlines()[-1].startswith("corpora/seeds/bad.jsonl:1: field `treedrift`")


def test_the_object_of_json_holds_every_verdict(command: Command) -> None:
    put("corpora/seeds/one.jsonl")
    entry("corpora/known/leak.jsonl", pair=TWINS, known=TWIN_LEAKS)
    found = command("corpus", "verify", "--json")
    assert found.code == 1
    assert found.json["counts"] == {"AGREES": 1, "FIXED": 1}
    assert found.json["as_expected"] is False
    assert found.json["traces"][0] == {
        "file": "corpora/known/leak.jsonl",
        "pair": ["python", "twin"],
        "verdict": "FIXED",
        "expected": False,
        "runs": 3,
        "detail": "the difference has vanished",
        "known": None,
        "signature": None,
        "op_index": None,
        "promoted": None,
    }


def test_several_processes_give_the_same_verdicts(command: Command) -> None:
    for number in range(3):
        put(f"corpora/seeds/{number}.jsonl", [CoreInsert([number])])
    entry("corpora/known/leak.jsonl")
    Path("corpora/seeds/bad.jsonl").write_text("{}\n")
    alone, together = (command("corpus", "verify", "--jobs", jobs) for jobs in ("1", "2"))
    assert together.code == alone.code == 2
    assert together.out == alone.out


# --- promote ------------------------------------------------------------------------------


def fixed_entry(**header: Any) -> Path:
    """An entry about a core that no longer shows it."""
    return entry("corpora/known/leak.jsonl", **{"pair": TWINS, "known": TWIN_LEAKS} | header)


def test_a_fixed_failure_fails_with_the_hint_to_promote_it(command: Command) -> None:
    fixed_entry()
    ended = command("corpus", "verify")
    assert ended.code == 1
    hint = "treedrift corpus verify corpora/known/leak.jsonl --promote"
    assert ended.out.splitlines()[-1].endswith(hint)
    assert files() == ["corpora/known/leak.jsonl"]


def test_a_promoted_failure_becomes_a_regression_that_says_since_when(command: Command) -> None:
    before = read_trace(fixed_entry())
    ended = command("corpus", "verify", "--promote")
    assert ended.code == 0
    assert "is fixed and kept as corpora/regressions/leak.jsonl" in ended.out
    assert files() == ["corpora/regressions/leak.jsonl"]
    after = read_trace("corpora/regressions/leak.jsonl")
    assert (after.header.config, after.ops) == (before.header.config, before.ops)
    assert after.header.note == "a note; fixed: python and twin agree"
    assert (after.header.expect, after.header.known) == ("agrees", None)
    assert (after.header.signature, after.header.rule) == (LEAK, "INS-12")
    assert command("corpus", "verify").code == 0


def test_a_failure_that_is_fixed_on_two_pairs_is_promoted_once(command: Command) -> None:
    failure("found.jsonl", pair=None)
    pairs = ("--pair", "python,twin", "--pair", "twin,bare")
    assert command("corpus", "verify", "found.jsonl", *pairs, "--promote").code == 0
    assert read_trace("corpora/regressions/found.jsonl").header.pair == TWINS


def test_what_is_not_fixed_is_not_promoted(command: Command) -> None:
    entry("corpora/known/leak.jsonl")
    put("corpora/seeds/one.jsonl")
    before = files()
    assert command("corpus", "verify", "--promote").code == 0
    assert files() == before


def test_a_promotion_overwrites_nothing(command: Command) -> None:
    fixed_entry()
    other = put("corpora/regressions/leak.jsonl", [CoreInsert([5])])
    data = other.read_bytes()
    ended = command("corpus", "verify", "corpora/known", "--promote")
    assert ended.code == 2
    assert "exists with other content" in ended.err
    assert other.read_bytes() == data
    assert files() == ["corpora/known/leak.jsonl", "corpora/regressions/leak.jsonl"]


def test_a_fixed_find_outside_of_the_corpus_stays_where_it_is(command: Command) -> None:
    found = failure("build/findings/leak.min.jsonl", pair=TWINS)
    ended = command("corpus", "verify", found, "--promote")
    assert ended.code == 0
    assert found.exists()
    assert files() == ["corpora/regressions/leak.jsonl"]


# --- add ----------------------------------------------------------------------------------


def test_a_seed_is_kept_once_it_has_agreed(command: Command) -> None:
    put("found.jsonl", note="")
    ended = command("corpus", "add", "found.jsonl", "--to", "seeds", "--note", "two inserts")
    assert ended.code == 0
    assert ended.out.splitlines() == [
        "corpora/seeds/found.jsonl: AGREES on python,twin",
        "commit it: treedrift check replays it from now on",
    ]
    kept = read_trace("corpora/seeds/found.jsonl")
    assert (kept.header.note, kept.header.expect) == ("two inserts", "agrees")
    assert Path("found.jsonl").exists()


def test_a_failure_that_is_fixed_goes_to_the_regressions(command: Command) -> None:
    failure("leak.min.jsonl")
    arguments = ("corpus", "add", "leak.min.jsonl", "--to", "regressions")
    refused = command(*arguments)
    assert refused.code == 2
    assert f"diverges on python,leaky: {LEAK}" in refused.err
    assert files() == []
    assert command(*arguments, "--pair", "python,twin").code == 0
    kept = read_trace("corpora/regressions/leak.jsonl")
    assert (kept.header.pair, kept.header.signature) == (TWINS, LEAK)
    assert kept.header.expect == "agrees"


def known_arguments(*more: str) -> tuple[str, ...]:
    return ("corpus", "add", "leak.jsonl", "--to", "known", *more)


def test_a_known_difference_becomes_an_entry_of_the_ledger(command: Command) -> None:
    failure("leak.jsonl", signature=None)
    ended = command(
        *known_arguments("--rule", "INS-12", "--core", "leaky", "--needs", "core_insert")
    )
    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == [
        f"corpora/known/leak.jsonl: DIVERGES on python,leaky, {LEAK}",
        "commit it: runs call this kind known from now on",
    ]
    kept = read_trace("corpora/known/leak.jsonl").header
    assert (kept.rule, kept.signature, kept.expect) == ("INS-12", LEAK, "diverges")
    assert kept.known == Known(
        core="leaky", releases=["*"], signatures=[LEAK], needs=["core_insert"]
    )
    assert command("corpus", "verify").code == 0


def test_a_known_difference_can_be_one_of_whatever_op_shows_it(command: Command) -> None:
    failure("leak.jsonl")
    assert command(*known_arguments("--rule", "INS-12", "--core", "leaky", "--any-op")).code == 0
    kept = read_trace("corpora/known/leak.jsonl").header.known
    assert kept is not None
    assert kept.signatures == ["difference:*:calls[].begin_insert.result.actions.length"]
    assert command("corpus", "verify").code == 0


def test_a_known_difference_that_is_gone_is_not_entered(command: Command) -> None:
    failure("leak.jsonl", pair=TWINS)
    ended = command(*known_arguments("--rule", "INS-12", "--core", "twin"))
    assert ended.code == 2
    assert "agrees on python,twin, so there is no difference to know" in ended.err


def test_a_known_difference_that_shows_otherwise_is_not_entered(command: Command) -> None:
    failure("leak.jsonl", signature="difference:evict:sizes.free")
    ended = command(*known_arguments("--rule", "INS-12", "--core", "leaky"))
    assert ended.code == 2
    assert "diverges in another way than difference:evict:sizes.free" in ended.err


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--core", "leaky"), "field `rule`: missing"),
        (("--rule", "INS-12", "--core", "rust"), "add --core python or leaky"),
        (("--rule", "INS-12", "--core", "leaky", "--needs", "evict"), "the trace has no 'evict'"),
        (("--rule", "INS-12", "--core", "leaky", "--name", "../up"), "letters, digits and hyphens"),
        (("--pair", "python,twin", "--pair", "python,rust"), "kept for one pair"),
    ],
)
def test_an_entry_that_says_too_little_is_not_kept(
    command: Command, more: tuple[str, ...], says: str
) -> None:
    failure("leak.jsonl")
    ended = command(*known_arguments(*more))
    assert ended.code == 2
    assert says in ended.err
    assert files() == []


def test_a_trace_without_a_note_is_not_kept(command: Command) -> None:
    put("found.jsonl", note="")
    ended = command("corpus", "add", "found.jsonl", "--to", "seeds")
    assert ended.code == 2
    assert "say what the trace is for: --note" in ended.err


def test_what_is_kept_already_is_not_kept_twice(command: Command) -> None:
    put("found.jsonl")
    put("corpora/regressions/other.jsonl", note="another note", seed=5)
    ended = command("corpus", "add", "found.jsonl", "--to", "seeds")
    assert ended.code == 2
    assert "same configuration and ops as corpora/regressions/other.jsonl" in ended.err


def test_a_name_that_is_taken_is_refused(command: Command) -> None:
    put("found.jsonl")
    taken = put("corpora/seeds/found.jsonl", [Evict(1)])
    data = taken.read_bytes()
    ended = command("corpus", "add", "found.jsonl", "--to", "seeds")
    assert ended.code == 2
    assert "corpora/seeds/found.jsonl: exists already; choose another --name" in ended.err
    assert taken.read_bytes() == data
    assert command("corpus", "add", "found.jsonl", "--to", "seeds", "--name", "again").code == 0


def test_a_pair_that_is_not_there_keeps_nothing(command: Command) -> None:
    put("found.jsonl", pair=("python", "sglang-python@0.5.23"))
    ended = command("corpus", "add", "found.jsonl", "--to", "seeds")
    assert ended.code == 2
    assert "is UNSUPPORTED on python,sglang-python@0.5.23" in ended.err
    assert files() == []
