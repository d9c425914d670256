"""A cache on the Python core, with a spy in between that writes down every call."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any, cast

import pytest

from treedrift.backends.contract import (
    AuxiliaryWindow,
    CacheInitParams,
    ComponentType,
    RadixKey,
    TreeCore,
)
from treedrift.backends.pools import WindowPool
from treedrift.backends.python_core import PythonTreeCore
from treedrift.harness.cache import Cache, pools_for
from treedrift.harness.config import Config

AUX = ComponentType.AUXILIARY_SWA


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
        self.pools = pools_for(
            config, journal=lambda kind, slots: self.journal.append((kind, slots.tolist()))
        )
        core = PythonTreeCore(self._params(config))
        self.core: Any = Spy(core)
        self.cache = Cache(cast("TreeCore", self.core), config, self.pools)
        self.core.names()

    def _params(self, config: Config) -> CacheInitParams:
        second = {AUX: AuxiliaryWindow(config.aux_window)} if config.aux_window else None
        return CacheInitParams(
            page_size=config.page_size,
            tree_components=config.component_types(),
            is_eagle=config.bigram,
            eviction_policy=config.policy,
            token_to_kv_pool_allocator=self.pools.allocator,
            enable_kv_cache_events=config.events,
            sliding_window_size=config.window if config.has_windows else None,
            draft_swa_window=config.draft_window,
            swa_gates_prefix_match=config.window_gates,
            enable_mamba_extra_buffer=config.state_buffer != "none",
            mamba_cache_chunk_size=config.state_chunk if config.has_states else None,
            mamba_max_states_per_path=config.state_cap,
            component_registry_override=second,
        )

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
        self.check_states()
        for component, window in self.pools.windows.items():
            self.check_window(component, window)
        assert self.cache.findings == []
        self.core.core.sanity_check([], [])

    def check_states(self) -> None:
        """Raise unless every state slot is in one place."""
        states = self.pools.states
        if states is None:
            return
        owned = self.core.core.all_mamba_values_flatten().tolist()
        for request in self.cache.requests:
            owned += self.cache.private_states(request)
        assert sorted(owned + states.free_list()) == list(range(1, states.size + 1))

    def check_window(self, component: ComponentType, window: WindowPool) -> None:
        """Raise unless every window slot is in one place and mapped as it should be (POOL-63)."""
        core, page = self.core.core, self.cache.config.page_size
        mapped = window.mapping[:-1][window.mapping[:-1] != 0].tolist()
        assert len(set(mapped)) == len(mapped)
        if window.is_ring:
            assert mapped == []
            return
        assert sorted({slot // page for slot in mapped}) == window.allocator.allocated_list()
        owned = sum(
            -(-self.cache.window_owned(request, component).numel() // page) * page
            for request in self.cache.requests
        )
        sizes = core.component_evictable_size(component) + core.component_protected_size(component)
        assert sizes + owned == window.allocator.size // page * page - window.available_size()


@pytest.fixture
def bench() -> Callable[..., Bench]:
    """Builds a bench from fields of a configuration."""

    def build(**fields: Any) -> Bench:
        return Bench(Config(**fields))

    return build
