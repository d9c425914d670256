"""An external store behind SGLang's cache linker, that holds nothing but names of pages.

It answers as a transport would (spec: LKW): a length can be restored if every pool has what it
needs there. Copies are never made; completions come when the test says so.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

KV, WINDOW, STATE = "kv", "swa", "mamba"
POOLS = {"full": KV, "swa": WINDOW, "mamba": STATE}


class Store:
    """Names of stored pages by pool, and offloads on their way.

    Every `refuse_every`-th offload fails after it was accepted; none if 0.
    """

    def __init__(self, components: tuple[str, ...], refuse_every: int) -> None:
        self.layer_done_counter = SimpleNamespace()
        self.refuse_every = refuse_every
        self.pools = {POOLS[each]: object() for each in components}
        self.stored: dict[str, set[str]] = {name: set() for name in self.pools}
        self.under_way: list[tuple[bool, list[tuple[str, list[str]]]]] = []
        self.ready = 0
        self.offloads = 0
        self.loads = 0
        self.queued: set[str] = set()

    def lookup(self, rid: str, transfers: list[Any]) -> list[int]:
        keys = {str(each.name): list(each.keys) for each in transfers}
        pages = keys[KV]
        found = []
        for count in range(1, len(pages) + 1):
            if pages[count - 1] not in self.stored[KV]:
                break
            if self._has_tail(keys, pages[:count]):
                found.append(count)
        return found

    def _has_tail(self, keys: dict[str, list[str]], pages: list[str]) -> bool:
        """Whether the window and the state that end these pages are stored."""
        tails = {WINDOW: len(keys.get(WINDOW, ())), STATE: 1 if STATE in keys else 0}
        return all(
            self.stored[name].issuperset(pages[-tail:]) for name, tail in tails.items() if tail
        )

    def load(self, rid: str, transfers: list[Any]) -> bool:
        self.queued.add(rid)
        self.loads += 1
        return True

    def start_layer_wise_loading(self) -> int:
        self.queued.clear()
        return self.loads

    def finish_layer_wise_loading(self, counter_index: int) -> bool:
        return True

    def cancel_queued_load(self, rid: str) -> bool:
        known = rid in self.queued
        self.queued.discard(rid)
        return known

    def offload(self, transfers: list[Any], session_id: str | None = None) -> bool:
        self.offloads += 1
        lands = not self.refuse_every or self.offloads % self.refuse_every != 0
        told = [(str(each.name), list(each.keys or ())) for each in transfers]
        self.under_way.append((lands, told))
        return True

    def complete(self, count: int) -> None:
        """Let the oldest `count` offloads land."""
        self.ready = min(len(self.under_way), self.ready + count)

    def num_completed_offloads(self) -> int:
        return self.ready

    def pop_completed_offload(self) -> bool:
        lands, told = self.under_way.pop(0)
        self.ready -= 1
        if lands:
            for name, keys in told:
                self.stored[name].update(keys)
        return lands

    def reset(self) -> None:
        self.under_way.clear()
        self.queued.clear()
        self.ready = 0

    def close(self) -> None:
        self.reset()


def new_store(components: tuple[str, ...], refuse_every: int = 0) -> Any:
    """A `Store` of SGLang's own kind, to be attached with `init_cache_linker`."""
    from sglang.srt.mem_cache.unified_cache.unified_cache_linker import UnifiedCacheLinker

    return type("Linker", (Store, UnifiedCacheLinker), {})(components, refuse_every)
