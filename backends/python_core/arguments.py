"""Conversions of arguments, with the errors of the boundary (BND-22 to BND-25).

Every function returns the value that it was given, in the type that the core computes with, or
raises `TypeError`, `OverflowError` or `InvalidArgumentError`. None of them reads a tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import Any

import torch

from ..contract import ComponentType, InvalidArgumentError

UNSIGNED_MAX = 2**64 - 1
SIGNED_MAX = 2**63 - 1
_INTEGER_TYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def unsigned(value: Any, name: str) -> int:
    """An integer in 0 to 2**64 - 1; `bool` and anything with `__index__` count as integers."""
    number = index(value)
    if not 0 <= number <= UNSIGNED_MAX:
        raise OverflowError(f"{name} must fit in 64 unsigned bits, got {number}")
    return number


def signed(value: Any, name: str) -> int:
    """An integer in -2**63 to 2**63 - 1; `bool` and anything with `__index__` count."""
    number = index(value)
    if not -SIGNED_MAX - 1 <= number <= SIGNED_MAX:
        raise OverflowError(f"{name} must fit in 64 signed bits, got {number}")
    return number


def optional_signed(value: Any, name: str) -> int | None:
    """`signed`, or None."""
    return None if value is None else signed(value, name)


def optional_unsigned(value: Any, name: str) -> int | None:
    """`unsigned`, or None."""
    return None if value is None else unsigned(value, name)


def integer(value: Any, name: str) -> int:
    """An `int`, no `bool`: a figure of the configuration or a handle."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    return value


def size(value: Any, name: str) -> int:
    """A positive figure that fits in 64 unsigned bits (CFG-1, SWA-C3, MAM-C4)."""
    if value is None:
        raise InvalidArgumentError(f"{name} must be given")
    number = integer(value, name)
    if number < 1:
        raise InvalidArgumentError(f"{name} must be at least 1, got {number}")
    return unsigned(number, name)


def flag(value: Any, name: str) -> bool:
    """A real `bool` (BND-24)."""
    if value is not True and value is not False:
        raise TypeError(f"{name} must be a bool, got {type(value).__name__}")
    return bool(value)


def optional_text(value: Any, name: str) -> str | None:
    """A `str` that can be encoded, or None (BND-25)."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str or None, got {type(value).__name__}")
    if not value.isascii():
        value.encode()
    return value


def handle(value: Any) -> int:
    """A node handle: an `int`, no `bool`, that fits in 64 unsigned bits (NODE-5)."""
    return unsigned(integer(value, "a node handle"), "a node handle")


def component(value: Any) -> ComponentType:
    """A component by its number; `InvalidArgumentError` for a number without one (BND-23)."""
    if isinstance(value, ComponentType):
        return value
    number = index(value)
    if not 0 <= number <= 255:
        raise OverflowError(f"a component number must fit in 8 unsigned bits, got {number}")
    try:
        return ComponentType(number)
    except ValueError:
        raise InvalidArgumentError(f"unknown component number {number}") from None


def components(values: Iterable[Any]) -> tuple[ComponentType, ...]:
    """Components in the order given."""
    return tuple(component(value) for value in values)


def counts(values: Mapping[Any, Any], name: str) -> dict[ComponentType, int]:
    """An unsigned count for each component; the caller's mapping is only read (EVD-4)."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{name} must be a mapping, got {type(values).__name__}")
    return {component(key): unsigned(value, f"an entry of {name}") for key, value in values.items()}


def tensor(value: Any, name: str) -> torch.Tensor:
    """A tensor of any shape."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")
    return value


def device_indices(value: torch.Tensor, device: torch.device, length: int) -> torch.Tensor:
    """The first `length` entries of a 1-D int64 tensor on `device` (INS-11, BND-27)."""
    if value.dtype != torch.int64:
        raise InvalidArgumentError(f"values must be int64, got {value.dtype}")
    if value.device != device:
        raise InvalidArgumentError(f"values must be on {device}, got {value.device}")
    if value.dim() != 1:
        raise InvalidArgumentError(f"values must have one dimension, got {value.dim()}")
    if len(value) < length:
        raise InvalidArgumentError(f"{len(value)} values are too few for {length} units")
    return value if len(value) == length else value[:length]


def state_slot(value: torch.Tensor | None, device: torch.device) -> torch.Tensor:
    """A 1-D integer tensor of one element on `device` (MAM-D2, MAM-I5)."""
    if value is None:
        raise InvalidArgumentError("an insert must bring a state")
    if value.dim() != 1 or len(value) != 1:
        raise InvalidArgumentError(f"a state is one slot, got the shape {tuple(value.shape)}")
    if value.dtype not in _INTEGER_TYPES or value.device != device:
        raise InvalidArgumentError(
            f"a state must be an integer on {device}, got {value.dtype} on {value.device}"
        )
    return value
