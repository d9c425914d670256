"""The ledger tells known from new, per pair and release, and refuses bad entries."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.harness import mutants
from tests.harness.spoilt_pair import CONFIG, PAIR, STEPS, WRONG_ORDER, spoilt_pair
from treedrift.harness import ledger as ledgers
from treedrift.harness.config import Config
from treedrift.harness.ledger import Ledger
from treedrift.harness.opening import open_lockstep
from treedrift.harness.ops import CoreInsert, DrainEvents, NameAdapter
from treedrift.harness.trace import Known, TraceError, new_trace, write_trace

KNOWN = Path(__file__).parents[2] / "corpora" / "known"
MIXED = ("python", "sglang-rust@0.5.23")
HASHES = "difference:drain_events:calls[].take_events.result[].block_hashes[]"
LATE = new_trace(Config(), [NameAdapter("a", "late"), DrainEvents()])
PLAIN = new_trace(Config(), [DrainEvents()])
RELEASED = ("sglang-python@0.5.23", "sglang-rust@0.5.23")


@pytest.fixture(scope="module")
def known() -> Ledger:
    return Ledger.read(KNOWN)


def name_of(entry: ledgers.Entry | None) -> str | None:
    return None if entry is None else entry.name


# --- The ledger of this repository --------------------------------------------------------


def test_every_saved_difference_is_an_entry_that_explains_its_own_signature(known: Ledger) -> None:
    assert [entry.name for entry in known.entries] == sorted(path.stem for path in KNOWN.iterdir())
    for entry in known.entries:
        header = entry.trace.header
        assert header.pair is not None
        assert header.signature is not None
        assert known.judge(header.pair, header.signature, entry.trace) == entry


def test_a_pair_without_the_core_is_explained_nothing(known: Ledger) -> None:
    assert known.judge(("python", "rust"), HASHES, LATE) is None
    assert known.applicable(("python", "sglang-python@0.5.23")) == []


def test_another_release_is_explained_nothing(known: Ledger) -> None:
    assert known.judge(("python", "sglang-rust@0.5.22"), HASHES, LATE) is None
    assert known.applicable(("python", "sglang-rust@0.5.22")) == []


def test_two_releases_of_the_core_are_told_apart(known: Ledger) -> None:
    pair = ("sglang-rust@0.5.22", "sglang-rust@0.5.23")
    assert name_of(known.judge(pair, HASHES, LATE)) == "evt-19-late-name"
    assert known.judge((pair[1], pair[1]), HASHES, LATE) is None


def test_the_order_of_the_sides_does_not_matter(known: Ledger) -> None:
    assert name_of(known.judge((MIXED[1], MIXED[0]), HASHES, LATE)) == "evt-19-late-name"


def test_an_entry_explains_only_traces_with_the_ops_that_it_needs(known: Ledger) -> None:
    assert name_of(known.judge(MIXED, HASHES, LATE)) == "evt-19-late-name"
    assert known.judge(MIXED, HASHES, PLAIN) is None
    assert known.judge(MIXED, HASHES, None) is None


def test_an_entry_explains_only_trees_with_its_components_and_policies(known: Ledger) -> None:
    signature = "difference:evict:calls[].evict_device_next_node.result.node_id"
    windows = Config(components=("full", "swa", "mamba"), window=4, policy="slru")
    fitting = new_trace(windows, [CoreInsert([1])])
    assert name_of(known.judge(MIXED, signature, fitting)) == "swa-x4-hits-choose-the-victim"
    for other in (Config(policy="slru"), msgspec.structs.replace(windows, policy="lru")):
        assert known.judge(MIXED, signature, new_trace(other, [CoreInsert([1])])) is None
    assert known.judge(MIXED, signature, None) is None


def test_events_of_stores_and_of_removals_are_two_differences(known: Ledger) -> None:
    grouping = "difference:drain:calls[].take_events.grouping"
    names = [
        name_of(known.judge(MIXED, f"{grouping}.{kind}", PLAIN))
        for kind in ("BlockRemoved", "BlockStored", "AllBlocksCleared")
    ]
    assert names == [
        "evt-21-removals-across-namespaces",
        "evt-21-stores-across-namespaces",
        None,
    ]


@pytest.mark.parametrize(
    "signature",
    [
        "difference:drain_events:calls[].take_events.result[].medium",
        "difference:drain_events:calls[].take_events.ok|KeyError",
        "difference:evict:calls[].take_events.result[].block_hashes[]",
        "difference:ask:calls[].rotation_phase_of.ok|KeyError",
        "oracle:drain_events:event_replay@sglang-rust@0.5.23",
        "crash:sglang-rust@0.5.23",
    ],
)
def test_what_nobody_knows_is_new(known: Ledger, signature: str) -> None:
    assert known.judge(MIXED, signature, LATE) is None


@pytest.mark.released
def test_every_known_difference_shows_on_the_released_cores(known: Ledger) -> None:
    lockstep = open_lockstep([RELEASED])
    try:
        applicable = known.applicable(RELEASED)
        assert applicable == known.entries
        assert all(ledgers.check(entry, lockstep, RELEASED) for entry in applicable)
    finally:
        lockstep.close()


# --- A ledger of one entry ----------------------------------------------------------------

LEAK = "oracle:core_insert:kv_content@leaky"


def entry_file(folder: Path, **fields: Any) -> Path:
    """An entry about a core of a plug-in; `fields` replace those of its header."""
    facts = {"core": "leaky", "releases": ["*"], "signatures": [LEAK]}
    header: dict[str, Any] = {
        "pair": ("python", "leaky"),
        "expect": "diverges",
        "signature": LEAK,
        "rule": "INS-1",
        "known": Known(**facts | fields.pop("facts", {})),
        "note": "it forgets",
    }
    path = folder / "leak.jsonl"
    write_trace(path, new_trace(Config(), [CoreInsert([1])], **header | fields))
    return path


def test_a_core_without_a_release_has_any_release_alone(tmp_path: Path) -> None:
    entry_file(tmp_path)
    (entry,) = Ledger.read(tmp_path).entries
    assert (entry.name, entry.rule, entry.note) == ("leak", "INS-1", "it forgets")
    assert entry.explains(("leaky", "rust"), LEAK)
    entry_file(tmp_path / "released", facts={"releases": ["0.5.23"]})
    (other,) = Ledger.read(tmp_path / "released").entries
    assert not other.explains(("leaky", "rust"), LEAK)


def test_the_ends_of_a_call_change_places_with_the_sides(tmp_path: Path) -> None:
    place = "difference:lock:calls[].inc_lock_ref"
    both = {"signature": f"{place}.ok|KeyError", "facts": {"signatures": [f"{place}.ok|*"]}}
    entry_file(tmp_path, **both)
    (entry,) = Ledger.read(tmp_path).entries
    assert entry.explains(("python", "leaky"), f"{place}.ok|KeyError")
    assert not entry.explains(("python", "leaky"), f"{place}.KeyError|ok")
    assert entry.explains(("leaky", "python"), f"{place}.KeyError|ok")


def test_a_guilty_side_is_named_without_its_release(tmp_path: Path) -> None:
    signature = "oracle:evict:conservation@sglang-rust"
    facts = {"core": "sglang-rust", "releases": ["0.5.*"], "signatures": [signature]}
    entry_file(tmp_path, pair=MIXED, signature=f"{signature}@0.5.23", facts=facts)
    (entry,) = Ledger.read(tmp_path).entries
    assert entry.explains(("sglang-rust@0.5.24", "rust"), f"{signature}@0.5.24")
    assert entry.explains(("sglang-rust@0.5.24", "sglang-rust@0.6.1"), f"{signature}@0.5.24")
    assert not entry.explains(("sglang-rust@0.5.24", "sglang-rust@0.6.1"), f"{signature}@0.6.1")


def test_a_folder_that_is_not_there_is_an_empty_ledger(tmp_path: Path) -> None:
    assert Ledger.read(tmp_path / "nowhere").entries == []


@pytest.mark.parametrize(
    ("fields", "field", "says"),
    [
        ({"known": None}, "known", "missing"),
        ({"rule": None}, "rule", "missing"),
        ({"pair": None}, "pair", "missing"),
        ({"expect": "agrees"}, "expect", "is 'agrees'"),
        ({"signature": None}, "signature", "missing"),
        ({"facts": {"core": "other"}}, "known.core", "'other' is no side of the pair"),
        ({"facts": {"releases": []}}, "known.releases", "empty"),
        ({"facts": {"signatures": []}}, "known.signatures", "empty"),
        ({"facts": {"signatures": ["oracle:x"]}}, "known.signatures", "none is that of the trace"),
        ({"facts": {"needs": ["evct"]}}, "known.needs", "unknown op 'evct'"),
        ({"facts": {"needs": ["evict"]}}, "known.needs", "the trace has no 'evict'"),
        ({"facts": {"components": ["swa"]}}, "known", "the trace has not what it needs"),
        ({"facts": {"policies": ["lfu"]}}, "known", "the trace has not what it needs"),
    ],
)
def test_an_entry_that_says_too_little_is_refused(
    tmp_path: Path, fields: dict[str, Any], field: str, says: str
) -> None:
    path = entry_file(tmp_path, **fields)
    expected = re.escape(f"{path}:1: field `{field}`: {says}")
    with pytest.raises(TraceError, match=expected):
        Ledger.read(tmp_path)


# --- Whether an entry still shows ---------------------------------------------------------


def test_a_difference_that_is_gone_is_told_from_one_that_shows(tmp_path: Path) -> None:
    path = tmp_path / "order.jsonl"
    header: dict[str, Any] = {
        "pair": PAIR,
        "expect": "diverges",
        "signature": WRONG_ORDER,
        "rule": "EVD-2",
        "known": Known(core="rust", releases=["*"], signatures=[WRONG_ORDER]),
    }
    write_trace(path, new_trace(CONFIG, STEPS, **header))
    (entry,) = Ledger.read(tmp_path).entries
    assert ledgers.check(entry, spoilt_pair(mutants.wrong_free_order), PAIR)
    assert not ledgers.check(entry, spoilt_pair(), PAIR)
    assert not ledgers.check(entry, spoilt_pair(mutants.wrong_evictable_size), PAIR)
