"""Eviction policies as the native core takes them (POL-1 to POL-6, CFG-3, CFG-4).

T-LRU parameters may be integers of any size; what they add up to is worked out here, where
integers have no limit.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..contract import CacheInitParams, InvalidArgumentError

_NAMES = ("lru", "lfu", "fifo", "mru", "filo", "priority", "slru", "tlru")
_ARGUMENTS = {"slru": {"protected_threshold"}, "tlru": {"threshold", "next_prompt_estimate"}}

_LENGTH_LIMIT = 2**62
"""Beyond every length; a larger budget decides nothing else."""


class NativePolicy(msgspec.Struct, frozen=True):
    """A checked policy. `tail_budget` is `(estimate - threshold,)` or `(estimate, threshold)`."""

    name: str
    protected_threshold: int = 2
    tail_budget: tuple[int] | tuple[int | float, float] = (0,)


def native_policy(params: CacheInitParams) -> NativePolicy:
    """Check the policy and its arguments.

    Raises `InvalidArgumentError` for an unknown name, `TypeError` for an argument that the
    policy does not take or of a wrong type, `OverflowError` for one out of range.
    """
    if not isinstance(params.eviction_policy, str):
        raise TypeError("eviction_policy must be a str")
    name = params.eviction_policy.lower()
    if name not in _NAMES:
        supported = ", ".join(f"'{known}'" for known in _NAMES)
        raise InvalidArgumentError(
            f"Unknown eviction policy: {name}. Supported policies: {supported}."
        )
    arguments = params.eviction_policy_config or {}
    for argument in arguments:
        if argument not in _ARGUMENTS.get(name, ()):
            raise TypeError(f"eviction policy {name} takes no argument {argument!r}")
    if name == "slru":
        return NativePolicy(name, _threshold(arguments.get("protected_threshold", 2)))
    if name == "tlru":
        return NativePolicy(name, tail_budget=_tail_budget(arguments))
    return NativePolicy(name)


def _threshold(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError("protected_threshold must be an int")
    if not -(2**63) <= value < 2**63:
        raise OverflowError("protected_threshold does not fit 64 bits")
    return int(value)


def _tail_budget(arguments: dict[str, Any]) -> tuple[int] | tuple[int | float, float]:
    threshold = arguments.get("threshold", 0)
    estimate = arguments.get("next_prompt_estimate", 0)
    if not isinstance(threshold, (int, float)) or not isinstance(estimate, (int, float)):
        raise TypeError("T-LRU parameters must be integers or floating-point numbers")
    if isinstance(threshold, int) and isinstance(estimate, int):
        return (max(-_LENGTH_LIMIT, min(estimate - threshold, _LENGTH_LIMIT)),)
    if isinstance(estimate, int):
        if not -(2**127) <= estimate < 2**127:
            raise OverflowError("next_prompt_estimate does not fit 128 bits")
        return (int(estimate), float(threshold))
    return (float(estimate), float(threshold))
