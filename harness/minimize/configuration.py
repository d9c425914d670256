"""The pass over the configuration: defaults, fewer components, smaller pools, single settings.

A page size can't go down alone: tokens and pools are taken down in step with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from ..config import TREE_ORDERS, Config, problems
from ..opening import SMALL_POOL
from .base import Base
from .draft import (
    BUFFERS,
    SIZES,
    Candidate,
    Draft,
    changed,
    cost_of,
    replaced,
    simpler_numbers,
    sizes_of,
)
from .keys import scaled
from .runs import runs_of

_DEFAULTS = Config()

SMALL_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 40, 48, 64, 96, 128, 256)
"""Sizes of pools to try, smallest first."""

FLAGS = tuple(
    field for field in Config.__struct_fields__ if isinstance(getattr(_DEFAULTS, field), bool)
)

OF_WINDOWS = tuple(field for field in Config.__struct_fields__ if "window" in field)
OF_STATES = tuple(field for field in Config.__struct_fields__ if field.startswith("state"))
"""Settings that a tree without windows, or without states, has no use for."""


def configuration(base: Base) -> Iterator[Candidate]:
    """Every simpler configuration that is one idea away."""
    for one in _all(base.draft):
        if not problems(one.draft.config):
            yield one


def rows(base: Base) -> Iterator[Candidate]:
    """No room for requests, which takes the longest to make and which core ops have no use for."""
    yield changed(base.draft, {}, replace(base.draft.config, rows=1, row_length=1))


def _all(draft: Draft) -> Iterator[Candidate]:
    yield from _groups(draft)
    yield from _components(draft)
    yield from _pages(draft)
    yield from _fields(draft)
    yield from _sizes(draft)


def _groups(draft: Draft) -> Iterator[Candidate]:
    """Several settings at once."""
    config = draft.config
    sizes = {field: getattr(config, field) for field in (*SIZES, "page_size")}
    yield changed(draft, {}, _DEFAULTS)
    yield changed(draft, {}, _with_components(replace(_DEFAULTS, **sizes), _DEFAULTS.components))
    needed = {field: getattr(config, field) for field in ("components", "window", "aux_window")}
    yield changed(draft, {}, replace(_DEFAULTS, **sizes, **needed))
    flags = {field: getattr(_DEFAULTS, field) for field in FLAGS}
    yield changed(draft, {}, replace(config, **flags, lora_names={}))
    policy = {"policy": config.policy, "policy_config": config.policy_config}
    yield changed(draft, {}, replace(_DEFAULTS, **sizes, **policy, **needed))


def _components(draft: Draft) -> Iterator[Candidate]:
    """Fewer components, without the settings that only the lost ones have a use for."""
    for names in sorted(TREE_ORDERS, key=lambda names: (len(names), names)):
        if set(names) < set(draft.config.components):
            yield changed(draft, {}, _with_components(draft.config, names))


def _with_components(config: Config, names: tuple[str, ...]) -> Config:
    lost: list[str] = []
    lost += OF_WINDOWS if "swa" not in names else ()
    lost += OF_STATES if "mamba" not in names else ()
    lost += () if "aux_swa" in names else ("aux_window",)
    plain = {field: getattr(_DEFAULTS, field) for field in lost}
    return replace(config, components=names, **plain)


def _pages(draft: Draft) -> Iterator[Candidate]:
    page = draft.config.page_size
    for other in (1, 2, 4, 8):
        if other < page:
            if page % other == 0:
                yield scaled(draft, page // other, other)
            yield changed(draft, {}, replace(draft.config, page_size=other))


def _fields(draft: Draft) -> Iterator[Candidate]:
    config = draft.config
    for field in Config.__struct_fields__:
        value, default = getattr(config, field), getattr(_DEFAULTS, field)
        if field in SIZES or field in ("page_size", "components") or value == default:
            continue
        if field == "policy":
            yield changed(draft, {}, replace(config, policy=default, policy_config={}))
        if field == "bigram":
            yield _single_tokens(draft)
        if field == "window_ring":
            yield changed(draft, {}, replace(config, window_ring=False, window_gates=True))
        yield changed(draft, {}, replace(config, **{field: default}))
        for simpler in _simpler(field, value):
            yield changed(draft, {}, replace(config, **{field: simpler}))


def _single_tokens(draft: Draft) -> Candidate:
    """Without pairs: a key of pairs has one unit less than tokens."""
    new = {}
    for number, op in enumerate(draft.ops):
        tokens, runs = getattr(op, "tokens", None), runs_of(op)
        if runs:
            (first, count), rest = runs[-1], runs[:-1]
            new[number] = replaced(op, runs=[*rest, (first, count - 1)] if count > 1 else rest)
        elif tokens:
            new[number] = replaced(op, tokens=tokens[:-1])
    return changed(draft, new, replace(draft.config, bigram=False))


def _simpler(field: str, value: Any) -> Iterator[Any]:
    if field == "state_buffer":
        yield from BUFFERS[: BUFFERS.index(value)]
    elif isinstance(value, str):
        if value != value.lower():
            yield value.lower()
    elif type(value) is int:
        yield from simpler_numbers(value)
    elif isinstance(value, dict):
        for name, item in value.items():
            rest = {other: kept for other, kept in value.items() if other != name}
            yield rest
            if field == "lora_names":
                continue
            numbers = simpler_numbers(item) if type(item) is int else (0, 1, 2, 3, 4)
            for simpler in numbers:
                if cost_of(simpler) < cost_of(item):
                    yield {**value, name: simpler}


def _sizes(draft: Draft) -> Iterator[Candidate]:
    for field in sizes_of(draft.config):
        value = getattr(draft.config, field)
        larger = () if value is None else _less(value)
        for smaller in dict.fromkeys((*SMALL_SIZES, SMALL_POOL + 1, *larger)):
            if 0 < smaller < (value or draft.config.capacity):
                yield changed(draft, {}, replace(draft.config, **{field: smaller}))


def _less(value: int) -> Iterator[int]:
    """A half, three quarters, seven eighths and so on of a size, and one less."""
    part = value // 2
    while part:
        yield value - part
        part //= 2
