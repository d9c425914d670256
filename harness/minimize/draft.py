"""What the minimizer works on: drafts of a trace, their order, and the candidates for a next one.

`size_of` orders drafts. A step is accepted only if it makes the size smaller, and every part of a
size is a natural number or text that bounded numbers allow finitely often, so that the search
comes to an end.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from typing import Any, get_args

import msgspec

from .. import ops
from ..config import Config, StateBuffer

KIND_RANKS = {
    "core_match": 0,
    "core_insert": 1,
    "evict": 2,
    "lock": 2,
    "unlock": 2,
    "abort": 3,
    "finish": 4,
    "touch": 4,
    "arrive": 5,
    "prefill": 6,
    "checkpoint": 6,
    "decode": 6,
    "retract": 6,
    "readmit": 6,
    "evict_for_alloc": 6,
    "early_release": 6,
    "window_ranges": 2,
    "attach_window": 4,
}
"""How simple a kind of op is: one call of the core before a step of a request's story."""

USUAL_RANK = 3
"""The rank of every other kind."""

SIZES = ("capacity", "rows", "row_length", "states", "window_capacity")
"""Fields of a configuration that say how large the pools are: simpler when smaller.

`window_capacity` may be None: as large as `capacity`.
"""

NUMBERS = (
    "write_through_threshold",
    "window",
    "draft_window",
    "aux_window",
    "window_interval",
    "state_chunk",
    "state_cap",
)
"""Other numbers of a configuration."""

BUFFERS: tuple[str, ...] = get_args(StateBuffer)
"""How requests can track states, the simplest way first."""

_ENCODE = msgspec.json.Encoder().encode
_DEFAULTS = Config()


class Draft(msgspec.Struct):
    """A configuration and ops: a trace without its header. Nobody changes its ops."""

    config: Config
    ops: list[ops.AnyOp]

    def digest(self) -> str:
        """A name for exactly this draft."""
        return blake2b(_ENCODE(self), digest_size=12).hexdigest()


class Candidate(msgspec.Struct):
    """A draft that may be the next one.

    `origins` says for each op which op of the base it was; what an op refers to can then be found
    again, although other ops are gone. `relinked_first`: whether that comes before the plain ops.
    """

    draft: Draft
    origins: list[int]
    relinked_first: bool = False

    def digest_for(self, base: Draft) -> str:
        """A name for this candidate of that base."""
        told = _ENCODE((base, self.draft, self.origins))
        return blake2b(told, digest_size=12).hexdigest()


Size = tuple[Any, ...]


def size_of(draft: Draft) -> Size:
    """How large a draft is: the smaller of two is the simpler one.

    By turns: the number of ops, how simple their kinds are, the configuration, the number of
    tokens, the operands that are not at their default, the sum of all numbers; then the shorter
    and alphabetically first text.
    """
    kinds = tokens = set_operands = magnitude = 0
    for op in draft.ops:
        kinds += KIND_RANKS.get(ops.kind_of(op), USUAL_RANK)
        for field, default in fields_of(type(op)):
            value = getattr(op, field)
            if field == "tokens":
                tokens += len(value)
                magnitude += sum(map(_token_cost, value))
            elif field == "runs":
                # Spelled out, the same tokens are simpler.
                tokens += sum(count + 1 for _, count in value)
                magnitude += sum(_token_cost(first) + count for first, count in value)
            else:
                set_operands += value != default and default is not msgspec.NODEFAULT
                magnitude += cost_of(value)
    text = _ENCODE(draft.ops)
    return (
        len(draft.ops),
        kinds,
        *config_cost(draft.config),
        tokens,
        set_operands,
        magnitude,
        len(text),
        text,
        _ENCODE(draft.config),
    )


def config_cost(config: Config) -> tuple[int, int, int, int]:
    """Settings not at their default and components, page size, sizes of pools, other numbers."""
    changed = len(config.components) - 1
    parameters = BUFFERS.index(config.state_buffer)
    for field in Config.__struct_fields__:
        value = getattr(config, field)
        if field in SIZES or field in ("page_size", "components"):
            continue
        changed += value != getattr(_DEFAULTS, field)
        parameters += cost_of(value) if isinstance(value, dict) else 0
    sizes = sum(getattr(config, field) or config.capacity for field in sizes_of(config))
    return (
        changed,
        config.page_size,
        sizes,
        parameters + sum(cost_of(getattr(config, field)) for field in NUMBERS),
    )


def sizes_of(config: Config) -> list[str]:
    """Those of `SIZES` that its tree has a pool for."""
    has_pool = {"states": config.has_states, "window_capacity": config.has_windows}
    return [field for field in SIZES if has_pool.get(field, True)]


def cost_of(value: Any) -> int:
    """How far a value is from the simplest one of its type."""
    if value is None or value is False:
        return 0
    if isinstance(value, int):
        return 2 * abs(value) + (value < 0)
    if isinstance(value, float):
        return 1 + len(repr(value))
    if isinstance(value, str):
        kind, _, number = value.partition(":")
        digits = number.removeprefix("-")
        return _REF_COSTS.get(kind, len(value)) + (int(digits) if digits.isdigit() else 0)
    if isinstance(value, dict):
        return sum(1 + len(name) + cost_of(item) for name, item in value.items())
    if isinstance(value, ops.Namespace):
        parts = (value.extra_key, value.cache_salt)
        return sum(1 + len(part) for part in parts if part is not None)
    return sum(1 + cost_of(item) for item in value)


_REF_COSTS = {
    "root": 0,
    "offered": 1,
    "live": 1,
    "request": 2,
    "stale": 3,
    "bogus": 4,
    "answer": 32,
}
"""An answer needs a number at two places, so any other name of a node is simpler."""


def _token_cost(token: int) -> int:
    """One is the simplest token: traces name their tokens 1, 2, 3."""
    return token - 1 if token > 0 else 2 - 2 * token


@cache
def fields_of(kind: type[ops.Op]) -> list[tuple[str, Any]]:
    """Names and defaults of a kind's operands; `msgspec.NODEFAULT` where one is required."""
    found = []
    for field in msgspec.structs.fields(kind):
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        found.append((field.name, default))
    return found


def replaced(op: Any, **operands: Any) -> Any:
    """The op with other operands."""
    return msgspec.structs.replace(op, **operands)


def without(draft: Draft, gone: set[int]) -> Candidate:
    """The draft with some of its ops removed; what the others refer to is looked up first."""
    origins = [index for index in range(len(draft.ops)) if index not in gone]
    rest = [draft.ops[index] for index in origins]
    return Candidate(Draft(draft.config, rest), origins, relinked_first=True)


def changed(draft: Draft, new: dict[int, ops.AnyOp], config: Config | None = None) -> Candidate:
    """The draft with some ops exchanged, and perhaps with another configuration."""
    rest = [new.get(index, op) for index, op in enumerate(draft.ops)]
    made = Draft(draft.config if config is None else config, rest)
    return Candidate(made, list(range(len(rest))))


def simpler_numbers(value: int, floor: int = 0) -> Iterator[int]:
    """Numbers to try instead of one, the simplest first."""
    seen = {value}
    for other in (floor, floor + 1, floor + 2, value // 2, value - 1, abs(value)):
        if other >= floor and other not in seen and cost_of(other) < cost_of(value):
            seen.add(other)
            yield other
