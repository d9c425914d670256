"""A cache on the Python core, with a spy in between that writes down every call."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any, cast

import pytest

from treedrift.backends.contract import CacheInitParams, RadixKey, TreeCore
from treedrift.backends.pools import make_pools
from treedrift.backends.python_core import PythonTreeCore
from treedrift.harness.cache import Cache
from treedrift.harness.config import Config


class Spy:
    """Passes everything on to a core. `calls` are names with arguments, `faults` what to raise."""

    def __init__(self, core: Any) -> None:
        self.__dict__.update(core=core, calls=[], faults={})

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.core, name)
        if not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args))
            return value(*args, **kwargs)

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.core, name, value)

    def names(self) -> list[str]:
        """Names of the calls so far; forgets them."""
        names = [name for name, _ in self.calls]
        self.calls.clear()
        return names


class Bench:
    """A cache, its spy and what its pools reported."""

    def __init__(self, config: Config) -> None:
        self.journal: list[tuple[str, list[int]]] = []
        self.pools = make_pools(
            config.capacity,
            config.rows,
            config.row_length,
            config.page_size,
            config.need_sort,
            journal=lambda kind, slots: self.journal.append((kind, slots.tolist())),
        )
        core = PythonTreeCore(
            CacheInitParams(
                page_size=config.page_size,
                tree_components=config.component_types(),
                is_eagle=config.bigram,
                eviction_policy=config.policy,
                token_to_kv_pool_allocator=self.pools.allocator,
                enable_kv_cache_events=config.events,
            )
        )
        self.core: Any = Spy(core)
        self.cache = Cache(cast("TreeCore", self.core), config, self.pools)
        self.core.names()

    def key(self, *tokens: int, extra_key: str | None = None) -> RadixKey:
        """A key of the cache's flavour."""
        return RadixKey(array("q", tokens), extra_key, self.cache.config.bigram)

    def check(self) -> None:
        """Raise unless every slot is in one place and no oracle complained (CTL-60, CTL-62)."""
        page = self.cache.config.page_size
        tree = self.core.core.all_values_flatten().tolist()
        assert len(set(tree)) == len(tree)
        owned = [slot // page for slot in tree[::page]]
        for request in self.cache.requests:
            owned += sorted({slot // page for slot in self.cache.private_slots(request).tolist()})
        allocator = self.pools.allocator
        assert sorted(owned) == allocator.allocated_list()
        idle = allocator.free_list() + allocator.staged_list()
        assert sorted(owned + idle) == list(range(1, self.cache.config.capacity // page + 1))
        assert len(tree) == self.core.core.evictable_size() + self.core.core.protected_size()
        assert not self.core.core.has_ongoing_insert()
        assert self.cache.findings == []
        self.core.core.sanity_check([], [])


@pytest.fixture
def bench() -> Callable[..., Bench]:
    """Builds a bench from fields of a configuration."""

    def build(**fields: Any) -> Bench:
        return Bench(Config(**fields))

    return build
