"""Makes values of the contract's types, and looks into those of any type.

It also runs inside the environment of a release, where torch and msgspec are all there is.
"""

from __future__ import annotations

import dataclasses
import random
import types
from array import array
from collections.abc import Iterator
from enum import Enum
from typing import Any, Union, get_args, get_origin

import torch

from treedrift.backends.contract import RadixKey
from treedrift.backends.sglang.pairing import Array, annotations_of, paired_types


def make(kind: Any, chance: random.Random) -> Any:
    """A value that the contract annotates with `kind`; fields hold more than their defaults."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return make(chance.choice(inner), chance)
    if kind is types.NoneType:
        return None
    if origin is tuple:
        kinds = [inner[0]] * 2 if inner[-1] is Ellipsis else inner
        return tuple(make(one, chance) for one in kinds)
    if origin is dict:
        return {make(inner[0], chance): make(inner[1], chance) for _ in range(2)}
    if origin is Array:
        return array("q", [chance.randrange(1000) for _ in range(5)])
    if origin is not None:
        return [make(inner[0], chance) for _ in range(2)]
    return _make_plain(kind, chance)


def _make_plain(kind: Any, chance: random.Random) -> Any:
    if kind in paired_types().values():
        return make_struct(kind, chance)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return chance.choice(list(kind))
    if kind is torch.Tensor:
        return torch.tensor([chance.randrange(1, 1000) for _ in range(3)])
    if kind is bool:
        return chance.random() < 0.5
    if kind is int:
        return chance.randrange(1, 10**6)
    return f"text {chance.randrange(10**6)}"


def make_struct(kind: Any, chance: random.Random) -> Any:
    """A value of one of the contract's own types."""
    annotated = annotations_of(kind.__init__ if kind is RadixKey else kind)
    return kind(**{name: make(one, chance) for name, one in annotated.items() if name != "return"})


def fields(value: Any) -> dict[str, Any] | None:
    """The fields of a struct, dataclass or named tuple by name; None for anything else."""
    if hasattr(value, "__struct_fields__"):
        names = value.__struct_fields__
    elif dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    elif hasattr(value, "_fields"):
        names = value._fields
    elif type(value).__name__ == "RadixKey":
        names = type(value).__slots__
    else:
        return None
    return {name: getattr(value, name) for name in names}


def plain(value: Any) -> Any:
    """The value as lists and maps of plain data, each struct with the name of its type."""
    found = fields(value)
    if found is not None:
        return [type(value).__name__, {name: plain(item) for name, item in sorted(found.items())}]
    if isinstance(value, dict):
        return [[plain(key), plain(item)] for key, item in value.items()]
    if isinstance(value, (torch.Tensor, array)):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.value if isinstance(value, Enum) else value


def parts(value: Any) -> Iterator[Any]:
    """The value and all that is in it."""
    yield value
    found = fields(value)
    inner: list[Any] = []
    if found is not None:
        inner = list(found.values())
    elif isinstance(value, dict):
        inner = [*value, *value.values()]
    elif isinstance(value, (list, tuple)):
        inner = list(value)
    for item in inner:
        yield from parts(item)
