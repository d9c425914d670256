"""The pass over the configuration: defaults, several at once and one by one; smaller pools.

A page size can't go down alone: tokens and pools are taken down in step with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from ..config import Config
from .base import Base
from .draft import SIZES, Candidate, Draft, changed, cost_of, replaced, simpler_numbers
from .keys import scaled

_DEFAULTS = Config()

SMALL_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 40, 48, 64, 96, 128, 256)
"""Sizes of pools to try, smallest first."""

FLAGS = tuple(
    field for field in Config.__struct_fields__ if isinstance(getattr(_DEFAULTS, field), bool)
)


def configuration(base: Base) -> Iterator[Candidate]:
    """Every simpler configuration that is one idea away."""
    yield from _groups(base.draft)
    yield from _pages(base.draft)
    yield from _fields(base.draft)
    yield from _sizes(base.draft)


def _groups(draft: Draft) -> Iterator[Candidate]:
    """Several settings at once."""
    sizes = {field: getattr(draft.config, field) for field in (*SIZES, "page_size")}
    yield changed(draft, {}, _DEFAULTS)
    yield changed(draft, {}, replace(_DEFAULTS, **sizes))
    flags = dict.fromkeys(FLAGS, False)
    yield changed(draft, {}, replace(draft.config, **flags, lora_names={}))
    policy = {"policy": draft.config.policy, "policy_config": draft.config.policy_config}
    yield changed(draft, {}, replace(_DEFAULTS, **sizes, **policy))


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
        if field in SIZES or field == "page_size" or value == default:
            continue
        if field == "policy":
            yield changed(draft, {}, replace(config, policy=default, policy_config={}))
        if field == "bigram":
            yield _single_tokens(draft)
        yield changed(draft, {}, replace(config, **{field: default}))
        for simpler in _simpler(field, value):
            yield changed(draft, {}, replace(config, **{field: simpler}))


def _single_tokens(draft: Draft) -> Candidate:
    """Without pairs: a key of pairs has one unit less than tokens."""
    new = {}
    for number, op in enumerate(draft.ops):
        tokens = getattr(op, "tokens", None)
        if tokens:
            new[number] = replaced(op, tokens=tokens[:-1])
    return changed(draft, new, replace(draft.config, bigram=False))


def _simpler(field: str, value: Any) -> Iterator[Any]:
    if isinstance(value, str):
        if value != value.lower():
            yield value.lower()
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
    for field in SIZES:
        value = getattr(draft.config, field)
        for smaller in dict.fromkeys((*SMALL_SIZES, value // 2, value - 1)):
            if 0 < smaller < value:
                yield changed(draft, {}, replace(draft.config, **{field: smaller}))
