"""Mooncake request logs, turned into what a server does with their requests.

A log has one request a line: `timestamp`, `input_length`, `output_length` and `hash_ids`, one id
per block of 512 prompt tokens. There are no tokens in it; `harness/tokens.py` makes them up. The
order of the log is kept and its clock is not: a new request comes as soon as a row is free.

Hides how requests overlap: each chunk of a prefill lets all that are running decode a step, as
the batches of a server do.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from .. import ops
from ..config import Config, problems
from ..ops import BLOCK_TOKENS, AnyOp
from ..tokens import INVENTED_BASE, INVENTED_STRIDE
from ..trace import TraceError, complaint, read_error

MAX_BLOCKS = INVENTED_BASE // BLOCK_TOKENS
"""Distinct blocks that have tokens below the invented ones."""

MAX_REQUESTS = (2**32 - INVENTED_BASE) // INVENTED_STRIDE
"""Requests whose invented tokens stay below 2**32, where hashes change their form (KEY-31)."""

STATE_CHUNK = 64
"""Tokens between two states that a model can give (MAM-C1)."""

DRAIN_EVERY = 32
"""Requests between two looks at the KV events."""


class ImportOptions(msgspec.Struct, kw_only=True, frozen=True):
    """How a log is run.

    `limit` requests are taken (all when None). `concurrency` of them run at a time. `chunk` tokens
    are prefilled at once (whole prompts when None). An output comes in `decode_steps` parts.
    `components` are those of the tree; `window` tokens and `states` slots are for trees that have
    them.
    """

    limit: int | None = None
    page_size: int = 16
    capacity: int = 2**20
    concurrency: int = 4
    chunk: int | None = 8192
    decode_steps: int = 4
    policy: str = "lru"
    events: bool = False
    components: tuple[str, ...] = ("full",)
    window: int = 1024
    states: int = 1024


class LogEntry(msgspec.Struct):
    """One request of a log."""

    input_length: int
    output_length: int
    hash_ids: list[int]
    timestamp: float = 0


class _Running(msgspec.Struct):
    """A request that decodes: output tokens still to come, and how many at a step."""

    left: int
    step: int


_DECODER = msgspec.json.Decoder(LogEntry)


def import_mooncake(path: str | Path, options: ImportOptions) -> tuple[Config, Iterator[AnyOp]]:
    """The configuration and the ops of a log.

    Raises `TraceError` for a bad log and `ValueError` for bad options, before any op.
    """
    numbers = ("limit", "page_size", "capacity", "concurrency", "chunk", "decode_steps")
    for name in (*numbers, "window", "states"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    entries = read_log(path, options.limit)
    longest = max(entry.input_length + entry.output_length for entry in entries)
    config = Config(
        page_size=options.page_size,
        policy=options.policy,
        capacity=max(options.capacity // options.page_size, 1) * options.page_size,
        rows=options.concurrency,
        row_length=longest,
        events=options.events,
        **_components(options),
    )
    wrong = problems(config)
    if wrong:
        raise ValueError("; ".join(wrong))
    return config, _serve(entries, options)


def _components(options: ImportOptions) -> dict[str, Any]:
    """What the configuration says of windows and states, as a server would run them."""
    said: dict[str, Any] = {"components": options.components}
    if "swa" in options.components:
        # A server frees out of the window once for many decoded tokens (SWA-C9).
        said.update(window=options.window, window_interval=128)
    if "mamba" in options.components:
        # Requests overlap, so each has two entries to track states in (MAM-C6).
        said.update(states=options.states, state_chunk=STATE_CHUNK, state_buffer="double")
    return said


def read_log(path: str | Path, limit: int | None = None) -> list[LogEntry]:
    """The first `limit` requests of a log. Raises `TraceError`.

    Blocks are numbered in order of appearance, so that any ids will do.
    """
    name = str(path)
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise read_error(name, error) from error
    entries: list[LogEntry] = []
    numbers: dict[int, int] = {}
    last = data.count(b"\n") + 1
    for number, line in enumerate(data.split(b"\n"), 1):
        if limit is not None and len(entries) >= limit:
            break
        if line.strip():
            entry = _read_entry(line, name, number, number == last)
            entry.hash_ids = [numbers.setdefault(block, len(numbers)) for block in entry.hash_ids]
            entries.append(entry)
    if not entries:
        raise TraceError(name, None, None, "no requests in the log", "a log has one JSON a line")
    if len(numbers) > MAX_BLOCKS or len(entries) > MAX_REQUESTS:
        size = f"{len(entries)} requests with {len(numbers)} blocks are too many"
        most = f"take at most {MAX_REQUESTS} requests and {MAX_BLOCKS} blocks with a limit"
        raise TraceError(name, None, None, size, most)
    return entries


def _read_entry(line: bytes, name: str, number: int, is_last: bool) -> LogEntry:
    try:
        entry = _DECODER.decode(line)
    except msgspec.ValidationError as error:
        field, problem = complaint(error)
        advice = "a request has input_length, output_length and hash_ids"
        raise TraceError(name, number, field or None, problem, advice) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        problem = "the file ends inside this line" if is_last else f"not JSON ({error})"
        advice = "it was cut; delete the line" if is_last else "a log has one JSON object a line"
        raise TraceError(name, number, None, problem, advice) from None
    blocks = -(-entry.input_length // BLOCK_TOKENS)
    for field, low in (("input_length", 1), ("output_length", 0)):
        if getattr(entry, field) < low:
            problem = f"is {getattr(entry, field)}"
            raise TraceError(name, number, field, problem, f"it must be at least {low}")
    if len(entry.hash_ids) != blocks:
        problem = f"{len(entry.hash_ids)} ids for {entry.input_length} tokens"
        advice = f"expected {blocks}, one a block of {BLOCK_TOKENS}"
        raise TraceError(name, number, "hash_ids", problem, advice)
    return entry


def _serve(entries: list[LogEntry], options: ImportOptions) -> Iterator[AnyOp]:
    """The ops of a server that runs the requests in order."""
    running: list[_Running] = []
    for number, entry in enumerate(entries, 1):
        while len(running) >= options.concurrency:
            yield from _decode_step(running)
        yield ops.Arrive(blocks=entry.hash_ids, length=entry.input_length)
        # Requests are referred to by their places in the order of arrival.
        yield from _prefill(entry, options, running)
        if "swa" in options.components:
            # What was prefilled is read no more beyond the window of the last token.
            yield ops.EarlyRelease(len(running))
        step = -(-entry.output_length // options.decode_steps)
        running.append(_Running(entry.output_length, max(step, 1)))
        if options.events and number % DRAIN_EVERY == 0:
            yield ops.DrainEvents()
    while running:
        yield from _decode_step(running)
    if options.events:
        yield ops.DrainEvents()


def _prefill(entry: LogEntry, options: ImportOptions, running: list[_Running]) -> Iterator[AnyOp]:
    chunk = options.chunk or entry.input_length
    for start in range(0, entry.input_length, chunk):
        is_last = start + chunk >= entry.input_length
        # What is cached already is not computed, so the last chunk takes whatever is left.
        yield ops.Prefill(len(running), None if is_last else chunk)
        yield from _decode_step(running)


def _decode_step(running: list[_Running]) -> Iterator[AnyOp]:
    """One step of every running request; those that are done leave."""
    at = 0
    while at < len(running):
        request = running[at]
        if request.left > 0:
            count = min(request.step, request.left)
            request.left -= count
            yield ops.Decode(at, invent=count)
        if request.left > 0:
            at += 1
        else:
            yield ops.Finish(at)
            del running[at]
