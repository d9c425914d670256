"""Device eviction: the walk that frees slots up to a count or a target (CTL-25 to CTL-28).

It hides the order of core calls in a walk. It frees nothing itself: every step's result goes to
the controller's drain before the next call (CTL-31).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from treedrift.backends.contract import ComponentType, EvictionResult, TreeCore

from .findings import CacheError

Totals = dict[ComponentType, int]
"""Tokens (states for MAMBA) per configured component."""


class Evictor:
    """Drives one core's device walks.

    `drain` executes a step result, `available` says how many slots of a component are free now.
    """

    def __init__(
        self,
        core: TreeCore,
        components: Sequence[ComponentType],
        drain: Callable[[EvictionResult], None],
        available: Callable[[ComponentType], int],
    ) -> None:
        self._core = core
        self._components = tuple(components)
        self._drain = drain
        self._available = available

    def evict(self, requests: Totals) -> Totals:
        """Evict the requested counts; returns what was evicted (CTL-25)."""
        totals: Totals = dict.fromkeys(self._components, 0)
        for component in self._components:
            quota = requests.get(component, 0)
            if totals[component] < quota:
                self._walk(component, quota, totals, _never)
        return totals

    def evict_for_alloc(self, requests: Totals) -> Totals:
        """Evict until each requested shortfall is met; returns what was evicted (CTL-26)."""
        totals: Totals = dict.fromkeys(self._components, 0)
        # Every target is fixed before anything is evicted, because one walk frees for another.
        targets = {
            component: self._available(component) + requests[component]
            for component in self._components
            if requests.get(component, 0) > 0
        }
        for component, target in targets.items():
            reached = partial(self._reached, component, target)
            quota = requests[component]
            if component is ComponentType.FULL:
                # FULL runs to its target, however many tokens that takes.
                quota = max(quota, totals[component] + self._core.full_evictable_size())
            elif totals[component] >= quota:
                continue
            if not reached():
                self._walk(component, quota, totals, reached)
        return totals

    def _reached(self, component: ComponentType, target: int) -> bool:
        return self._available(component) >= target

    def _walk(
        self, component: ComponentType, quota: int, totals: Totals, stop: Callable[[], bool]
    ) -> None:
        self._core.evict_device_start(component, quota)
        try:
            while self._step(component, totals) and not stop():
                pass
        finally:
            self._core.evict_device_end(component)

    def _step(self, component: ComponentType, totals: Totals) -> bool:
        """One step of a walk; False when the walk has nothing more to give (CTL-27)."""
        result = self._core.evict_device_next_node(component, dict(totals))
        if result.mamba_backup_node_id is not None or result.swa_backup_node_id is not None:
            raise CacheError("a walk asks for a backup, but there is no host tier to take it")
        self._finish_step(result, totals)
        if result.node_id is not None:
            self._evict_leaf(result.node_id, totals)
        return result.node_id is not None or result.made_progress

    def _evict_leaf(self, node_id: int, totals: Totals) -> None:
        """Evict what a walk offered (CTL-28).

        A write-back leaf asks for a backup first. There is no host tier to take it, so nothing is
        ever written and the leaf is dropped with all below it.
        """
        result = self._core.evict_device_leaf(node_id, self._core.is_write_back)
        self._finish_step(result, totals)
        if result.backup_kv is not None:
            self._finish_step(self._core.drop_subtree_no_host(node_id), totals)

    def _finish_step(self, result: EvictionResult, totals: Totals) -> None:
        tracker = dict(result.tracker)
        self._drain(result)
        for component, count in tracker.items():
            totals[component] = totals.get(component, 0) + count


def _never() -> bool:
    return False
