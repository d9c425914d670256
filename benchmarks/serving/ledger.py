"""Writes down what a server sees of its cache, so that two runs can be compared exactly.

Everything noted goes into one digest: answers, the slots of every allocation, the slots of every
free in the order in which their pool gets them, sizes and events. In which order a step frees into
different pools is not told: the released cores differ there, and no pool can tell. It also times
the outermost calls of the cache and of its core. Hides how calls are watched: methods of single
objects are replaced, never those of classes.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable
from time import perf_counter_ns
from typing import Any

import torch

FREES = (
    "free",
    "free_segment",
    "free_segments",
    "free_full",
    "free_full_segment",
    "free_full_segments",
    "free_page_ids",
)
"""What gives slots or pages back to one pool; one may call another, the outermost counts."""

EVICTIONS = ("evict", "evict_for_alloc")
CACHE_CALLS = (
    *EVICTIONS,
    "match_prefix",
    "insert",
    "checkpoint",
    "lock",
    "unlock",
    "release_swa_prefix_lock",
    "prefix_device_indices",
    "check_hicache_events",
    "init_load_back",
    "take_events",
    "reset",
)
"""Methods of the cache that a scheduler calls, as far as they reach the core."""


class Tally:
    """A count and a digest of things noted one after the other."""

    def __init__(self) -> None:
        self.count = 0
        self._digest = hashlib.blake2b(digest_size=16)

    def add(self, what: str, values: Iterable[Any]) -> None:
        """Note values: tensors of slots, and whatever has a faithful `repr`."""
        self.count += 1
        self._digest.update(what.encode())
        for value in values:
            if isinstance(value, torch.Tensor):
                self._digest.update(bytes(value.to(torch.int64).contiguous().numpy().data))
            else:
                self._digest.update(repr(value).encode())
            self._digest.update(b"|")

    def hex(self) -> str:
        return self._digest.hexdigest()


class Clock:
    """Time in the outermost of the calls that it wraps, in nanoseconds."""

    def __init__(self) -> None:
        self.total = 0
        self.calls = 0
        self._depth = 0

    def timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, its time added to the total."""

        def run(*args: Any, **kwargs: Any) -> Any:
            if self._depth:
                return call(*args, **kwargs)
            self._depth = 1
            started = perf_counter_ns()
            try:
                return call(*args, **kwargs)
            finally:
                self.total += perf_counter_ns() - started
                self.calls += 1
                self._depth = 0

        return run


class Ledger:
    """What one cache did.

    `keep` keeps every note as text, in `lines`, to find where two runs part. `frees` and
    `evictions` are by pool; the latter are the frees that an eviction made.
    """

    def __init__(self, cache: Any, keep: bool = False) -> None:
        self.all = Tally()
        self.hits = Tally()
        self.frees: dict[str, Tally] = {}
        self.evictions: dict[str, Tally] = {}
        self.evicted_slots = 0
        self.cache_clock = Clock()
        self.core_clock = Clock()
        self.lines: list[str] | None = [] if keep else None
        self._evicting = 0
        self._freeing = 0
        self._watch(cache)

    def note(self, what: str, *values: Any) -> None:
        """Write down what the server saw."""
        self.all.add(what, values)
        if self.lines is not None:
            told = [v.tolist() if isinstance(v, torch.Tensor) else v for v in values]
            self.lines.append(f"{what} {' '.join(map(repr, told))}")

    def hit(self, name: str, length: int) -> None:
        """Note how many tokens of an admitted request the cache had."""
        self.hits.add(name, (length,))
        self.note("hit", name, length)

    def note_frees(self) -> None:
        """Write down what every pool got back so far, in its order."""
        self.note("frees", sorted((name, each.hex()) for name, each in self.frees.items()))

    def _watch(self, cache: Any) -> None:
        core = cache.tree_core
        for name in _core_calls():
            setattr(core, name, self.core_clock.timed(getattr(core, name)))
        for name in EVICTIONS:
            setattr(cache, name, self._eviction(getattr(cache, name)))
        for name in CACHE_CALLS:
            setattr(cache, name, self.cache_clock.timed(getattr(cache, name)))
        for pool, allocator in pools_of(cache).items():
            for name in FREES:
                if hasattr(allocator, name):
                    setattr(allocator, name, self._free(pool, getattr(allocator, name)))

    def _free(self, pool: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(given: Any, **kwargs: Any) -> Any:
            if not self._freeing:
                # Several segments come as pairs of slots and their first position.
                for slots in [given] if isinstance(given, torch.Tensor) else [s for s, _ in given]:
                    self._freed(pool, slots)
            self._freeing += 1
            try:
                return call(given, **kwargs)
            finally:
                self._freeing -= 1

        return run

    def _freed(self, pool: str, slots: torch.Tensor) -> None:
        self.frees.setdefault(pool, Tally()).add("", (slots,))
        if self._evicting:
            self.evictions.setdefault(pool, Tally()).add("", (slots,))
            self.evicted_slots += slots.numel()
        if self.lines is not None:
            # Beside the digest, which has them by pool.
            self.lines.append(f"  free {pool} {slots.tolist()}")

    def _eviction(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            self._evicting += 1
            try:
                result = call(*args, **kwargs)
            finally:
                self._evicting -= 1
            self.note("evicted", *args, result)
            return result

        return run


def pools_of(cache: Any) -> dict[str, Any]:
    """The allocators that hold a cache's free slots, by component."""
    allocator = cache.token_to_kv_pool_allocator
    states = getattr(cache.req_to_token_pool, "mamba_allocator", None)
    found = {
        "full": getattr(allocator, "full_attn_allocator", allocator),
        "swa": getattr(allocator, "swa_attn_allocator", None),
        "mamba": states,
    }
    return {name: pool for name, pool in found.items() if pool is not None}


def _core_calls() -> list[str]:
    """Methods that SGLang's cache calls on a core; properties answer at once and are not timed."""
    from sglang.srt.mem_cache.unified_cache import unified_tree_core_interface

    interface = unified_tree_core_interface.UnifiedTreeCoreInterface
    return sorted(
        name
        for name, member in inspect.getmembers_static(interface)
        if not name.startswith("_") and inspect.isfunction(member)
    )
