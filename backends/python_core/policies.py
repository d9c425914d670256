"""Eviction policies: who goes first (POL-1 to POL-23).

A policy turns a node into a rank; the smallest rank is evicted first. It knows nothing of leaves,
locks or tiers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..contract import InvalidArgumentError
from .arguments import signed
from .node import Node

Rank = int | tuple[int, int]
RankOf = Callable[[Node], Rank]

_ESTIMATE_MAX = 2**127 - 1


class Policy:
    """A named ranking; `tracks_history` asks the tree to keep the T-LRU lengths (POL-10)."""

    def __init__(self, name: str, rank_of: RankOf) -> None:
        """`rank_of` must give distinct ranks to nodes that can be candidates together (POL-22)."""
        self.name = name
        self.rank_of = rank_of
        self.tracks_history = name == "tlru"


def make_policy(name: Any, config: Any) -> Policy:
    """The policy of this name, in any case, with the arguments in `config` (POL-1 to POL-3).

    Raises `InvalidArgumentError` for an unknown name, `TypeError` or `OverflowError` for bad
    arguments.
    """
    if not isinstance(name, str):
        raise TypeError(f"an eviction policy's name must be a str, got {type(name).__name__}")
    if config is not None and not isinstance(config, Mapping):
        raise TypeError(f"eviction_policy_config must be a mapping, got {type(config).__name__}")
    name = name.lower()
    arguments = dict(config or {})
    if name == "slru":
        return Policy(name, _slru(**arguments))
    if name == "tlru":
        return Policy(name, _tlru(**arguments))
    if name not in _PLAIN:
        known = ", ".join(repr(known) for known in (*_PLAIN, "slru", "tlru"))
        raise InvalidArgumentError(f"unknown eviction policy {name!r}; there are {known}")
    if arguments:
        raise TypeError(f"eviction policy {name!r} takes no arguments, got {sorted(arguments)}")
    return Policy(name, _PLAIN[name])


def _lru(node: Node) -> Rank:
    return node.last_access_time


def _lfu(node: Node) -> Rank:
    return node.hit_count, node.last_access_time


def _fifo(node: Node) -> Rank:
    return node.creation_time


def _mru(node: Node) -> Rank:
    return -node.last_access_time


def _filo(node: Node) -> Rank:
    return -node.creation_time


def _priority(node: Node) -> Rank:
    return node.priority, node.last_access_time


_PLAIN: dict[str, RankOf] = {
    "lru": _lru,
    "lfu": _lfu,
    "fifo": _fifo,
    "mru": _mru,
    "filo": _filo,
    "priority": _priority,
}


def _slru(protected_threshold: Any = 2) -> RankOf:
    threshold = signed(protected_threshold, "protected_threshold")

    def rank(node: Node) -> Rank:
        return int(node.hit_count >= threshold), node.last_access_time

    return rank


def _tlru(threshold: Any = 0, next_prompt_estimate: Any = 0) -> RankOf:
    """Tail-optimised LRU: what a next prompt would have to recompute anyway goes first (POL-5)."""
    for value in (threshold, next_prompt_estimate):
        if not isinstance(value, (int, float)):
            raise TypeError(f"T-LRU parameters must be int or float, got {type(value).__name__}")
    if isinstance(next_prompt_estimate, float) and isinstance(threshold, int):
        threshold = float(threshold)
    elif isinstance(threshold, float) and isinstance(next_prompt_estimate, int):
        next_prompt_estimate = int(next_prompt_estimate)
        if not -_ESTIMATE_MAX - 1 <= next_prompt_estimate <= _ESTIMATE_MAX:
            raise OverflowError("next_prompt_estimate must fit in 128 signed bits")

    def rank(node: Node) -> Rank:
        # The order of the two steps decides the rounding when a parameter is a float (POL-6).
        budget = node.history_length + next_prompt_estimate - threshold
        # A NaN budget compares false and so makes no node tail-safe, also through `max`.
        safe = node.prefix_length - node.length >= max(budget, 0)
        return -int(safe), node.last_access_time

    return rank
