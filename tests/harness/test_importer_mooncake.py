"""Request logs become request ops, and a bad log is refused before any op."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from treedrift.harness import ops, tokens
from treedrift.harness.importers.mooncake import ImportOptions, import_mooncake, read_log
from treedrift.harness.trace import TraceError, new_trace, read_trace, validate

SEEDS = Path(__file__).parents[2] / "corpora" / "seeds"
LOG = SEEDS / "mooncake-conversation-40.log"


def entry(**changes: object) -> str:
    fields = {"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [4, 9]}
    return json.dumps(fields | changes)


def written(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_request_arrives_is_prefilled_in_chunks_decodes_and_finishes(tmp_path: Path) -> None:
    options = ImportOptions(chunk=256, decode_steps=2, page_size=8)
    config, steps = import_mooncake(written(tmp_path, entry()), options)
    assert (config.row_length, config.page_size) == (603, 8)
    assert list(steps) == [
        ops.Arrive(blocks=[0, 1], length=600),
        ops.Prefill(0, 256),
        ops.Prefill(0, 256),
        ops.Prefill(0),
        ops.Decode(0, invent=2),
        ops.Decode(0, invent=1),
        ops.Finish(0),
    ]


def test_a_hybrid_tree_has_a_window_states_and_early_releases(tmp_path: Path) -> None:
    options = ImportOptions(components=("full", "swa", "mamba"), window=32, states=8)
    config, steps = import_mooncake(written(tmp_path, entry()), options)
    assert (config.components, config.window, config.states) == (options.components, 32, 8)
    # Pages of several tokens need a buffer to track states in (MAM-C5).
    assert (config.page_size, config.state_buffer) == (16, "double")
    assert ops.EarlyRelease(0) in list(steps)


def test_components_that_make_no_tree_are_refused(tmp_path: Path) -> None:
    options = ImportOptions(components=("full", "mamba", "swa"))
    with pytest.raises(ValueError, match="components must be one of"):
        import_mooncake(written(tmp_path, entry()), options)


def test_as_many_requests_as_asked_run_at_a_time() -> None:
    _, steps = import_mooncake(LOG, ImportOptions(concurrency=3, chunk=1024))
    live, most, kinds = 0, 0, Counter[str]()
    for op in steps:
        kinds[ops.kind_of(op)] += 1
        live += isinstance(op, ops.Arrive) - isinstance(op, ops.Finish)
        most = max(most, live)
        if isinstance(op, (ops.Prefill, ops.Decode, ops.Finish)):
            assert op.request <= live
    assert (live, most, kinds["arrive"], kinds["finish"]) == (0, 3, 40, 40)


def test_every_output_token_of_the_log_is_decoded() -> None:
    _, steps = import_mooncake(LOG, ImportOptions())
    wanted = sum(request.output_length for request in read_log(LOG))
    assert sum(op.invent for op in steps if isinstance(op, ops.Decode)) == wanted


def test_the_excerpt_and_its_trace_are_the_same() -> None:
    saved = read_trace(SEEDS / "mooncake-conversation-40.jsonl")
    config, steps = import_mooncake(LOG, ImportOptions(capacity=2**17, events=True))
    assert (saved.header.config, saved.ops) == (config, list(steps))


def test_the_hybrid_trace_is_that_of_the_excerpt() -> None:
    saved = read_trace(SEEDS / "mooncake-conversation-40-hybrid.jsonl")
    options = ImportOptions(capacity=2**17, components=("full", "swa", "mamba"), states=64)
    config, steps = import_mooncake(LOG, options)
    assert (saved.header.config, saved.ops) == (config, list(steps))


def test_a_limit_takes_the_first_requests() -> None:
    config, steps = import_mooncake(LOG, ImportOptions(limit=2))
    made = new_trace(config, steps)
    validate(made)
    assert sum(isinstance(op, ops.Arrive) for op in made.ops) == 2


@pytest.mark.parametrize("name", ["limit", "page_size", "capacity", "concurrency", "chunk"])
def test_options_must_be_positive(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        import_mooncake(LOG, msgspec.convert({name: 0}, ImportOptions))


@pytest.mark.parametrize(
    ("line", "field", "says"),
    [
        ("not json", None, "not JSON"),
        ("[1]", None, "expected object, got array"),
        (json.dumps({"prompt": "hello"}), "input_length", "missing"),
        (entry(input_length="600"), "input_length", "expected int, got str"),
        (entry(input_length=0, hash_ids=[]), "input_length", "at least 1"),
        (entry(output_length=-1), "output_length", "at least 0"),
        (entry(hash_ids=[4]), "hash_ids", "1 ids for 600 tokens; expected 2"),
        (entry(hash_ids=[4, "x"]), "hash_ids[1]", "expected int"),
    ],
)
def test_a_bad_log_names_line_and_field(
    tmp_path: Path, line: str, field: str | None, says: str
) -> None:
    path = written(tmp_path, entry(), line, entry())
    with pytest.raises(TraceError) as caught:
        import_mooncake(path, ImportOptions())
    error = caught.value
    assert (error.file, error.line, error.field) == (str(path), 2, field)
    assert says in str(error)


def test_a_log_that_was_cut_or_is_empty_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(entry() + '\n{"timestamp": 5, "inp', encoding="utf-8")
    with pytest.raises(TraceError, match=r"log.jsonl:2: the file ends inside this line"):
        read_log(path)
    path.write_text("\n", encoding="utf-8")
    with pytest.raises(TraceError, match="no requests in the log"):
        read_log(path)
    with pytest.raises(TraceError, match="can't be read"):
        read_log(tmp_path / "none")


def test_a_block_stands_for_the_same_tokens_wherever_it_comes() -> None:
    prompt = tokens.expand(ops.Arrive(tokens=[7], blocks=[3, 1], length=700))
    assert len(prompt) == 700
    assert prompt[0] == 7
    assert prompt[1:513].tolist() == list(range(3 * 512, 4 * 512))
    assert prompt[513:].tolist() == list(range(512, 512 + 187))


def test_an_expanded_prompt_belongs_to_the_caller() -> None:
    op = ops.Arrive(blocks=[0])
    tokens.expand(op)[0] = 99
    assert tokens.expand(op)[0] == 0


def test_invented_tokens_are_unique_and_come_in_any_pieces() -> None:
    whole = tokens.invent(3, 0, 9000)
    pieces = tokens.invent(3, 0, 4000) + tokens.invent(3, 4000, 5000)
    assert whole == pieces
    others = set(tokens.invent(2, 0, 9000)) | set(tokens.invent(4, 0, 9000))
    assert len(set(whole)) == 9000
    assert not others & set(whole)
    assert min(whole) >= tokens.INVENTED_BASE
