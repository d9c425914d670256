"""Traces are read, checked and written; a bad file gets one message with file, line and field."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import pickle
import re
from pathlib import Path

import jsonschema
import msgspec
import pytest

from treedrift.harness import ops, schema, trace
from treedrift.harness.config import Config
from treedrift.harness.trace import TraceError
from treedrift.models.profiles import profile_named
from treedrift.models.swarm import generate_case

ROOT = Path(__file__).parents[2]
SEEDS = ROOT / "corpora" / "seeds"
FROZEN = {version: SEEDS / f"frozen-v{version}.jsonl" for version in (1, 2, 3, 4)}
NEWEST = FROZEN[trace.FORMAT_VERSION]
HEADER = b'{"treedrift": "trace", "version": 4}\n'


def sample() -> trace.Trace:
    steps: list[ops.AnyOp] = [
        ops.CoreInsert([1, 2], priority=None),
        ops.Lock("live:0"),
        ops.Evict(2),
    ]
    return trace.new_trace(Config(page_size=2), steps, note="a note", pair=("python", "rust"))


def test_a_written_trace_reads_back_equal(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "one.jsonl"
    trace.write_trace(path, sample())
    assert trace.read_trace(path) == sample()
    assert [entry.name for entry in path.parent.iterdir()] == ["one.jsonl"]


def test_ops_of_another_process_are_written_like_our_own() -> None:
    steps: list[ops.AnyOp] = [ops.CoreInsert([1]), ops.Arrive([1]), ops.Pin(), ops.Misuse("x")]
    strange = pickle.loads(pickle.dumps(steps))
    ours, theirs = (trace.dump_trace(trace.new_trace(Config(), kind)) for kind in (steps, strange))
    assert theirs == ours
    assert b"slots" not in theirs
    assert b"namespace" not in theirs


def test_an_existing_file_is_replaced_only_when_told(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    trace.write_trace(path, sample())
    trace.write_trace(path, sample())
    other = trace.new_trace(Config(), [])
    with pytest.raises(TraceError, match="exists with other content"):
        trace.write_trace(path, other)
    assert trace.read_trace(path) == sample()
    trace.write_trace(path, other, overwrite=True)
    assert trace.read_trace(path) == other


def test_a_trace_that_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    bad = trace.new_trace(Config(page_size=0), [])
    with pytest.raises(TraceError, match=r"config\.page_size"):
        trace.write_trace(tmp_path / "bad.jsonl", bad)
    assert not list(tmp_path.iterdir())


def test_blank_lines_and_a_missing_last_line_break_are_allowed() -> None:
    read = trace.parse_trace(b"\n" + HEADER + b'\r\n\n{"op": "reset"}', "x")
    assert read.ops == [ops.Reset()]


OLD = [path for version, path in FROZEN.items() if version < trace.FORMAT_VERSION]
CURRENT = [path for path in sorted(SEEDS.glob("*.jsonl")) if path not in OLD]


@pytest.mark.parametrize("path", CURRENT, ids=lambda path: path.stem)
def test_every_seed_reads_and_writes_the_same_bytes(path: Path) -> None:
    read = trace.read_trace(path)
    assert trace.dump_trace(read) == path.read_bytes()
    assert read.header.note


@pytest.mark.parametrize(
    ("data", "line", "field", "says"),
    [
        (b"", None, None, "the file is empty"),
        (b" \n\n", None, None, "the file is empty"),
        (gzip.compress(HEADER, mtime=0), 1, None, "compressed"),
        (HEADER + b"\0\0", 2, None, "binary"),
        (HEADER + b"\xff\xfe", 2, None, "not UTF-8"),
        (b'{"treedrift": "tra', 1, None, "ends inside this line"),
        (b"hello\n", 1, None, "not JSON"),
        (b"[1]\n", 1, None, "not a header"),
        (b"{}\n", 1, "treedrift", "missing"),
        (b'{"op": "reset"}\n', 1, "treedrift", "starts with an op"),
        (b'{"timestamp": 0, "hash_ids": [1]}\n', 1, "treedrift", "request log"),
        (b'{"treedrift": "corpus"}\n', 1, "treedrift", "is 'corpus'"),
        (b'{"treedrift": "trace"}\n', 1, "version", "missing"),
        (b'{"treedrift": "trace", "version": true}\n', 1, "version", "is True"),
        (b'{"treedrift": "trace", "version": 0}\n', 1, "version", "up to 4"),
        (b'{"treedrift": "trace", "version": 5}\n', 1, "version", "use a newer treedrift"),
    ],
)
def test_what_is_no_trace_is_refused(
    data: bytes, line: int | None, field: str | None, says: str
) -> None:
    with pytest.raises(TraceError) as caught:
        trace.parse_trace(data, "bad.jsonl")
    error = caught.value
    assert (error.file, error.line, error.field) == ("bad.jsonl", line, field)
    assert says in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("fields", "field", "says"),
    [
        ({"expects": "agrees"}, "expects", "did you mean `expect`?"),
        ({"expect": "maybe"}, "expect", "known: agrees, diverges"),
        ({"pair": ["python"]}, "pair", "length 2"),
        ({"config": {"page_size": -1}}, "config.page_size", "must be a positive number, got -1"),
        ({"config": {"capacity": 0}}, "config.capacity", "must be a positive number"),
        ({"config": {"page_size": "4"}}, "config.page_size", "expected int, got str"),
        ({"config": {"pagesize": 4}}, "config.pagesize", "did you mean `page_size`?"),
        ({"config": {"components": ["full", "swa"]}}, "config.window", "must be a positive number"),
        (
            {"config": {"components": ["mamba"]}},
            "config.components",
            "must be one of: full; full, mamba",
        ),
        ({"signature": 3}, "signature", "expected str"),
        ({"known": {"core": "x", "releases": ["1"]}}, "known.signatures", "missing"),
        ({"known": {"cor": "x"}}, "known.cor", "unknown"),
        (
            {"config": {"policy_config": {"threshold": "many"}}},
            "config.policy_config.threshold",
            "not a number",
        ),
    ],
)
def test_a_bad_header_names_its_field(fields: dict[str, object], field: str, says: str) -> None:
    line = json.dumps({"treedrift": "trace", "version": 4, **fields}).encode()
    with pytest.raises(TraceError) as caught:
        trace.parse_trace(line + b"\n", "bad.jsonl")
    assert (caught.value.line, caught.value.field) == (1, field)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("op", "field", "says"),
    [
        ('{"op": "cor_match", "tokens": []}', "op", "did you mean `core_match`?"),
        ('{"op": "xyzzy"}', "op", "known: "),
        ('{"op": 3}', "op", "is 3"),
        ("{}", "op", "missing"),
        ("7", None, "not a JSON object"),
        ('{"op": "core_match"}', "tokens", "missing"),
        ('{"op": "core_match", "tokens": [1, "2"]}', "tokens[1]", "expected int, got str"),
        ('{"op": "core_match", "tokens": [9223372036854775808]}', "tokens", "out of range"),
        ('{"op": "core_match", "tokns": []}', "tokns", "did you mean `tokens`?"),
        (
            '{"op": "touch", "tokens": [], "namespace": {"salt": "a"}}',
            "namespace.salt",
            "did you mean `cache_salt`?",
        ),
        ('{"op": "lock", "node": "alive:1"}', "node", "is no node reference"),
        ('{"op": "ask", "about": "path", "nodes": ["live:x"]}', "nodes", "no node reference"),
        ('{"op": "ask", "about": "pth"}', "about", "known: path, order"),
        ('{"op": "evict", "count": 18446744073709551616}', "count", "out of range"),
        ('{"op": "arrive", "blocks": [-1]}', "blocks", "out of range"),
        ('{"op": "evict", "count": 1.5}', "count", "expected int, got float"),
        ('{"op": "core_match", "tokens": [], "runs": [[1, 0]]}', "runs", "a run of 0 tokens"),
        ('{"op": "core_match", "tokens": [], "runs": [[1]]}', "runs[0]", "length 2"),
        ('{"op": "core_match", "tokens": [], "runs": [[1, 2.5]]}', "runs[0][1]", "got float"),
        ('{"op": "core_match", "tokens": [], "runs": [["1", 2]]}', "runs[0][0]", "got str"),
        (
            '{"op": "core_match", "tokens": [], "runs": [[9223372036854775806, 3]]}',
            "runs",
            "a token is out of range",
        ),
        (
            '{"op": "core_insert", "tokens": [1], "runs": [[1, 9], [1, 16777207]]}',
            "runs",
            "the key has 16777217 tokens; a key has at most 16777216",
        ),
        ('{"op": "core_insert", "tokens": [1], "answer": -1}', "answer", "numbered 0 to 9999"),
        ('{"op": "pin", "node": "answer:"}', "node", "answer:7"),
        ('{"op": "lock", "no', None, "not JSON"),
        ('{"treedrift": "trace", "version": 4}', "treedrift", "second header"),
    ],
)
def test_a_bad_op_names_line_and_field(op: str, field: str | None, says: str) -> None:
    data = HEADER + b'{"op": "reset"}\n' + op.encode() + b"\n"
    with pytest.raises(TraceError) as caught:
        trace.parse_trace(data, "bad.jsonl")
    assert (caught.value.line, caught.value.field) == (3, field)
    assert says in str(caught.value)


def test_a_file_that_was_cut_is_told_from_one_that_is_wrong() -> None:
    with pytest.raises(TraceError, match=r"bad.jsonl:2: the file ends inside this line"):
        trace.parse_trace(HEADER + b'{"op": "core_ma', "bad.jsonl")


def test_missing_and_oversized_files_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TraceError, match=r"none.jsonl: can't be read"):
        trace.read_trace(tmp_path / "none.jsonl")
    with pytest.raises(TraceError, match="can't be read"):
        trace.read_trace(tmp_path)
    monkeypatch.setattr(trace, "MAX_TRACE_BYTES", 10)
    path = tmp_path / "large.jsonl"
    path.write_bytes(HEADER)
    with pytest.raises(TraceError, match="has 37 bytes"):
        trace.read_trace(path)


def test_validate_checks_a_trace_in_memory() -> None:
    trace.validate(sample())
    with pytest.raises(TraceError, match="<trace>:2: field `node`"):
        trace.validate(trace.new_trace(Config(), [ops.Lock("nobody")]))


def test_every_prefix_of_a_file_gives_a_trace_or_a_trace_error() -> None:
    data = trace.dump_trace(sample())
    for end in range(len(data)):
        with contextlib.suppress(TraceError):
            trace.parse_trace(data[:end], "cut.jsonl")


def test_the_published_schema_is_that_of_the_types() -> None:
    published = (ROOT / "docs" / "trace.schema.json").read_text(encoding="utf-8")
    assert published == schema.schema_text(), "run python -m treedrift.harness.schema"


def schema_validator() -> jsonschema.Draft202012Validator:
    made = schema.trace_schema()
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


def test_the_newest_frozen_example_holds_every_op_and_conforms_to_the_schema() -> None:
    validator = schema_validator()
    header, *lines = map(json.loads, NEWEST.read_text(encoding="utf-8").splitlines())
    for line in (header, *lines):
        validator.validate(line)
    assert {ops.kind_of(op) for op in trace.read_trace(NEWEST).ops} == set(trace.OP_TYPES)
    # A new field of the header belongs into the example, except what a seed can't say of itself.
    assert set(header) == set(trace.Header.__struct_fields__) - {"expect"}


@pytest.mark.parametrize("version", FROZEN)
def test_a_frozen_example_is_still_of_its_version(version: int) -> None:
    first = FROZEN[version].read_text(encoding="utf-8").splitlines()[0]
    assert json.loads(first)["version"] == version


def test_the_first_version_is_read_as_the_one_after_it() -> None:
    old, new = (trace.read_trace(FROZEN[version]) for version in (1, 2))
    assert old.header.version == trace.FORMAT_VERSION
    assert (old.header.config, old.ops) == (new.header.config, new.ops)
    written = trace.dump_trace(old)
    assert trace.parse_trace(written, "rewritten.jsonl") == old


def test_an_older_trace_may_hold_the_operands_of_newer_ones() -> None:
    lines = b'{"op": "core_match", "tokens": [], "runs": [[1, 3]], "answer": 0}\n'
    old, new = (
        trace.parse_trace(b'{"treedrift": "trace", "version": %d}\n' % version + lines, "x")
        for version in (3, 4)
    )
    assert old == new


def test_there_is_a_way_from_every_version_to_the_next() -> None:
    assert sorted(trace.MIGRATIONS) == list(range(1, trace.FORMAT_VERSION))
    assert set(FROZEN) == {*trace.MIGRATIONS, trace.FORMAT_VERSION}


@pytest.mark.parametrize(
    ("version", "field"),
    [(1, "signature"), (1, "rule"), (1, "known"), (2, "config.window"), (1, "config.states")],
)
def test_an_old_header_with_a_field_of_a_newer_version_is_refused(version: int, field: str) -> None:
    place, _, name = field.rpartition(".")
    fields = {place: {name: 4}} if place else {name: "x"}
    line = json.dumps({"treedrift": "trace", "version": version, **fields}).encode()
    newer = 3 if place else 2
    says = f'field `{field}`: unknown in version {version}; write `"version": {newer}`'
    with pytest.raises(TraceError, match=re.escape(says)):
        trace.parse_trace(line + b"\n", "bad.jsonl")


@pytest.mark.parametrize("hostile", [False, True])
def test_generated_ops_conform_to_the_schema(hostile: bool) -> None:
    validator = schema_validator()
    config, steps = generate_case(7, profile_named("full"), hostile=hostile, length=60)
    made = trace.new_trace(config, steps)
    for line in trace.dump_trace(made).splitlines():
        validator.validate(json.loads(line))


def test_the_schema_refuses_what_the_reader_refuses() -> None:
    validator = schema_validator()
    for bad in (
        {"op": "lock", "node": "alive:1"},
        {"op": "core_match", "tokens": [2**63]},
        {"op": "core_match", "tokens": [], "runs": [[1, 0]]},
        {"op": "core_match", "tokens": [], "runs": [[1, 2, 3]]},
        {"op": "core_insert", "tokens": [], "answer": -1},
        {"op": "pin", "node": "answer:-1"},
        {"op": "evict", "count": 1, "extra": 1},
        {"treedrift": "trace", "version": 3},
        {"treedrift": "trace", "version": 5},
    ):
        assert not validator.is_valid(bad), bad


def test_a_new_file_is_as_readable_as_others(tmp_path: Path) -> None:
    path, other = tmp_path / "one.jsonl", tmp_path / "other"
    trace.write_trace(path, sample())
    other.touch()
    assert os.stat(path).st_mode == os.stat(other).st_mode


def test_every_op_survives_the_way_through_json() -> None:
    for op in trace.read_trace(NEWEST).ops:
        assert msgspec.json.decode(msgspec.json.encode(op), type=type(op)) == op
