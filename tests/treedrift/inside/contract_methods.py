"""Calls that don't cross into another release's types: a core of the contract is watched as is."""

from __future__ import annotations

import copy
import inspect
from array import array
from functools import cache
from typing import Any

import msgspec
import torch

from treedrift.backends.contract import (
    RadixKey,
    TreeCore,
)
from treedrift.harness.recorder import BUFFERS, PROPERTIES, recorded_methods


class ContractMethods:
    """`watched.Crossing` for cores of the contract."""

    names = (*recorded_methods(), *PROPERTIES)

    def arguments_out(
        self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        if method in PROPERTIES:
            return {}
        bound = _signature(method).bind(None, *args, **kwargs).arguments
        return {
            name: copied(value)
            for name, value in bound.items()
            if name not in BUFFERS and name != "self"
        }

    def answer_out(self, method: str, answer: Any) -> Any:
        return copied(answer)

    def filled_out(
        self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        bound = _signature(method).bind(None, *args, **kwargs).arguments
        return {name: copied(value) for name, value in bound.items() if name in BUFFERS}

    def error_out(self, method: str, error: BaseException) -> BaseException:
        return error


@cache
def _signature(method: str) -> inspect.Signature:
    return inspect.signature(vars(TreeCore)[method])


def copied(value: Any) -> Any:
    """A copy that shares nothing with the value but what can't change."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, msgspec.Struct):
        fields = {name: copied(getattr(value, name)) for name in value.__struct_fields__}
        return type(value)(**fields)
    if isinstance(value, RadixKey):
        return RadixKey(
            value.token_ids[:], value.extra_key, value.is_bigram, value.limit, value.cache_salt
        )
    if isinstance(value, array):
        return value[:]
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(copied, value))
    return copy.deepcopy(value)
