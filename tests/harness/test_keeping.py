"""A failure that is fixed in one release is kept for the others; nothing is lost on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from treedrift.backends.sglang.environments import MARKER
from treedrift.harness.config import Config
from treedrift.harness.keeping import promote
from treedrift.harness.ledger import Ledger
from treedrift.harness.ops import CoreInsert
from treedrift.harness.trace import Known, TraceError, new_trace, read_trace, write_trace

LEAK = "difference:core_insert:sizes.free"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where environments are looked for; there are none."""
    monkeypatch.setenv("TREEDRIFT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def entry(corpus: Path, *releases: str) -> Path:
    """An entry of the ledger of a corpus."""
    path = corpus / "known" / "leak.jsonl"
    known = Known(core="sglang-rust", releases=list(releases), signatures=[LEAK])
    pair = ("python", f"sglang-rust@{releases[0]}")
    facts = {"pair": pair, "expect": "diverges", "signature": LEAK, "rule": "INS-12"}
    write_trace(path, new_trace(Config(), [CoreInsert([1])], known=known, **facts))
    return path


def files(corpus: Path) -> list[str]:
    return sorted(path.relative_to(corpus).as_posix() for path in corpus.rglob("*.jsonl"))


def test_an_entry_of_one_release_moves(tmp_path: Path) -> None:
    path = entry(tmp_path, "0.5.23")
    promote(path, ("python", "sglang-rust@0.5.23"), tmp_path)
    assert files(tmp_path) == ["regressions/leak.jsonl"]


def test_an_entry_stays_for_the_releases_in_which_it_holds(tmp_path: Path) -> None:
    path = entry(tmp_path, "0.5.23", "0.5.24")
    kept = promote(path, ("python", "sglang-rust@0.5.24"), tmp_path)
    assert files(tmp_path) == ["known/leak.jsonl", "regressions/leak.jsonl"]
    (rest,) = Ledger.read(tmp_path / "known").entries
    assert rest.known.releases == ["0.5.23"]
    header = read_trace(kept).header
    assert (header.pair, header.expect, header.known) == (
        ("python", "sglang-rust@0.5.24"),
        "agrees",
        None,
    )


def test_an_entry_of_unnamed_releases_stays_until_they_are_named(tmp_path: Path) -> None:
    path = entry(tmp_path, "0.5.*")
    data = path.read_bytes()
    with pytest.raises(TraceError, match=r"leak.jsonl:1: field `known.releases`: `\*` stands for"):
        promote(path, ("python", "sglang-rust@0.5.24"), tmp_path)
    assert files(tmp_path) == ["known/leak.jsonl"]
    assert path.read_bytes() == data


@pytest.mark.parametrize("pair", [("python", "rust"), ("sglang-rust@0.5.23", "sglang-rust@0.5.2")])
def test_an_entry_stays_where_the_pair_says_nothing_about_it(
    tmp_path: Path, pair: tuple[str, str]
) -> None:
    path = entry(tmp_path, "0.5.2*")
    with pytest.raises(TraceError, match=r"has not just one side that it is about"):
        promote(path, pair, tmp_path)
    assert files(tmp_path) == ["known/leak.jsonl"]


def test_a_kept_pair_names_the_release_that_it_was_replayed_on(tmp_path: Path, home: Path) -> None:
    interpreter = home / "envs" / "sglang-0.5.30" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.touch()
    record = {"release": "0.5.30", "torch": "2.11", "python": "3.11", "date": ""}
    (interpreter.parents[1] / MARKER).write_text(json.dumps(record))
    kept = promote(entry(tmp_path, "0.5.30"), ("sglang-rust", "python"), tmp_path)
    assert read_trace(kept).header.pair == ("sglang-rust@0.5.30", "python")
    assert read_trace(kept).header.note == "fixed: sglang-rust@0.5.30 and python agree"


def test_a_promotion_can_be_repeated_after_an_interruption(tmp_path: Path) -> None:
    path = entry(tmp_path, "0.5.23")
    data = path.read_bytes()
    pair = ("python", "sglang-rust@0.5.23")
    promote(path, pair, tmp_path)
    path.write_bytes(data)
    promote(path, pair, tmp_path)
    assert files(tmp_path) == ["regressions/leak.jsonl"]
