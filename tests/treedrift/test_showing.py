"""`treedrift show`: where two cores part on a trace, or that they agree on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.treedrift.conftest import Command
from treedrift.harness.config import Config
from treedrift.harness.explain import OPS_KEPT
from treedrift.harness.explanation import Explanation
from treedrift.harness.ops import AnyOp, CoreInsert, Evict, Misuse, Touch
from treedrift.harness.trace import new_trace, write_trace

LEAK: list[AnyOp] = [CoreInsert([1, 2, 3]), CoreInsert([1, 2, 3]), Evict(9)]
"""The second insert frees its slots, which a leaky core forgets."""

KIND = "difference:core_insert:calls[].begin_insert.result.actions.length"


def save(path: Path, trace_ops: list[AnyOp], config: Config | None = None, **header: Any) -> None:
    write_trace(path, new_trace(config or Config(), trace_ops, **header))


def test_both_sides_are_shown_where_they_part(command: Command, place: Path) -> None:
    save(place / "leak.jsonl", LEAK, pair=("python", "leaky"), note="a leak")
    ended = command("show", "leak.jsonl")
    assert ended.code == 1
    lines = ended.out.splitlines()
    assert lines[0] == "leak.jsonl: 3 ops"
    assert lines[1] == "python against leaky: they part at op 1, core_insert"
    assert any(line.startswith("rule   INS-31: ") for line in lines)
    assert any(line.startswith("wrong  leaky: ") for line in lines)
    assert "note   a leak" in lines
    assert ">* 1 core_insert(tokens=[1, 2, 3]) #0" in lines
    (row,) = [line for line in lines if line.startswith("!  result.actions[0]")]
    assert row.split("FreeDeviceKV(")[1].endswith(" -")
    assert [line.split("  #")[0].rstrip() for line in lines[-3:]] == [
        "  treedrift shrink leak.jsonl",
        "  treedrift repro leak.jsonl",
        "  treedrift replay leak.jsonl",
    ]


def test_the_ops_after_the_divergence_are_not_shown(command: Command, place: Path) -> None:
    save(place / "leak.jsonl", LEAK, pair=("python", "leaky"))
    assert "evict(" not in command("show", "leak.jsonl").out


def test_the_object_of_json_holds_the_whole_explanation(command: Command, place: Path) -> None:
    save(place / "leak.jsonl", LEAK, pair=("python", "leaky"))
    ended = command("show", "leak.jsonl", "--json")
    assert ended.code == 1
    told = ended.json
    assert (told["file"], told["ops"], told["refused"]) == ("leak.jsonl", 3, None)
    assert set(told["explanation"]) == set(Explanation.__struct_fields__)
    assert told["explanation"]["signature"] == KIND
    assert told["explanation"]["rule"] == "INS-31"
    assert [one["name"] for one in told["commands"]] == ["shrink", "repro", "replay"]


def test_a_shrunk_trace_is_not_to_be_shrunk_again(command: Command, place: Path) -> None:
    save(place / "leak.min.jsonl", LEAK, pair=("python", "leaky"))
    commands = command("show", "leak.min.jsonl", "--json").json["commands"]
    assert [one["name"] for one in commands] == ["repro", "replay"]


def test_only_a_pair_that_the_trace_does_not_name_is_in_the_commands(
    command: Command, place: Path
) -> None:
    save(place / "leak.jsonl", LEAK, pair=("python", "leaky"))
    commands = command("show", "leak.jsonl", "--pair", "leaky,python", "--json").json["commands"]
    assert {one["line"].partition(".jsonl")[2] for one in commands} == {" --pair leaky,python"}


def test_what_a_run_has_found_can_be_kept_once_it_is_decided(command: Command, place: Path) -> None:
    found = {"pair": ("python", "leaky"), "expect": "diverges", "signature": KIND}
    save(place / "leak.jsonl", LEAK, **found)
    last = command("show", "leak.jsonl").out.splitlines()[-1]
    keep = "treedrift corpus add leak.jsonl --to regressions"
    assert last == f"  {keep}  # once it is repaired, keep it so"
    assert "corpus add" not in command("show", "leak.jsonl", "--pair", "python,twin").out
    save(place / "sound.jsonl", LEAK, **found | {"pair": ("python", "twin")})
    agreed = command("show", "sound.jsonl").out.splitlines()
    assert agreed[-1] == "  treedrift corpus add sound.jsonl --to regressions"


def test_an_agreeing_trace_is_printed_and_said_to_agree(command: Command, place: Path) -> None:
    save(place / "leak.jsonl", LEAK, Config(page_size=2), note="a leak")
    ended = command("show", "leak.jsonl", "--pair", "python,twin")
    assert ended.code == 0
    assert ended.out.splitlines() == [
        "leak.jsonl: 3 ops",
        "  note    a leak",
        "  config  page_size=2",
        "      0 core_insert(tokens=[1, 2, 3])",
        "      1 core_insert(tokens=[1, 2, 3])",
        "      2 evict(count=9)",
        "python and twin agree on it",
    ]
    assert (
        command("show", "leak.jsonl", "--pair", "python,twin", "--json").json["explanation"] is None
    )


def test_of_a_long_agreeing_trace_the_last_ops_are_printed(command: Command, place: Path) -> None:
    save(place / "long.jsonl", [Touch([1])] * (OPS_KEPT + 25))
    lines = command("show", "long.jsonl", "--pair", "python,twin").out.splitlines()
    assert "    ... 25 ops before" in lines
    assert sum("touch(" in line for line in lines) == OPS_KEPT


def test_a_configuration_that_both_refuse_is_named(command: Command, place: Path) -> None:
    save(place / "refused.jsonl", LEAK, Config(policy="nonsense"))
    ended = command("show", "refused.jsonl", "--pair", "python,twin")
    assert ended.code == 0
    last = ended.out.splitlines()[-1]
    assert last == "both refuse its configuration: InvalidArgumentError"


def test_another_kind_than_the_saved_one_is_announced(command: Command, place: Path) -> None:
    save(place / "leak.jsonl", LEAK, pair=("python", "leaky"), signature="difference:evict:x")
    lines = command("show", "leak.jsonl").out.splitlines()
    assert lines[1] == "no longer of the kind that it was saved for: difference:evict:x"
    save(place / "same.jsonl", LEAK, pair=("python", "leaky"), signature=KIND)
    assert "no longer" not in command("show", "same.jsonl").out


def test_a_trace_that_breaks_the_protocol_is_shown_with_a_warning(
    command: Command, place: Path
) -> None:
    save(place / "bad.jsonl", [Misuse("node_by_id")])
    ended = command("show", "bad.jsonl", "--pair", "python,twin")
    assert "breaks the protocol" in ended.err
    assert "breaks the protocol" not in command("show", "bad.jsonl", "--pair", "python,rust").err


def test_a_core_that_cant_be_inspected_is_shown_too(command: Command, place: Path) -> None:
    save(place / "leak.jsonl", LEAK)
    ended = command("show", "leak.jsonl", "--pair", "bare,leaky")
    assert ended.code == 1
    assert "units 0 to 2" in ended.out


def test_a_missing_file_and_an_unknown_core_are_errors_of_the_user(
    command: Command, place: Path
) -> None:
    missing = command("show", "nowhere.jsonl")
    assert (missing.code, missing.out) == (2, "")
    assert "can't be read" in missing.err
    save(place / "leak.jsonl", LEAK)
    assert command("show", "leak.jsonl", "--pair", "python,nobody").code == 2
