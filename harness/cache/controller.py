"""The controller: drives one core and executes on the pools what it decides (CTL-10 to CTL-33).

The tree decides, the controller executes. It calls the core only through the interface and never
looks inside; it hides from its callers that matches, inserts and evictions come with actions.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import torch

from treedrift.backends.contract import (
    BackupKV,
    CacheAction,
    ComponentAction,
    ComponentType,
    DecLockRefParams,
    EvictionResult,
    EvictParams,
    FreeComponentDeviceSlot,
    FreeDeviceKV,
    FreeDeviceKVFullOnly,
    InsertParams,
    InsertResult,
    MambaEvictExcessPathStates,
    MatchPrefixParams,
    MatchResult,
    NodeId,
    RadixKey,
    TreeCore,
    UpdatePendingBackupOnNodeSplit,
)
from treedrift.backends.pools import Pools

from ..config import Config
from .drivers import Driver, FullDriver, PoolFrees, StateDriver, WindowDriver
from .eviction import Evictor, Totals
from .findings import CacheError, OracleFinding
from .linker import Linker

LINKER_THRESHOLD = 1
"""The write-through threshold that attaching a linker sets (CTL-9)."""


class HeldLock(msgspec.Struct, eq=False):
    """A device lock and the receipt that releases it (CTL-33).

    `window_released`: its window, and with it the state below, was given up early (CTL-34).
    """

    node_id: NodeId
    receipt: DecLockRefParams
    window_released: bool = False


class Controller:
    """One core and its pools.

    `findings` collects what oracles found; whoever reads them may empty the list.
    """

    def __init__(self, core: TreeCore, config: Config, pools: Pools) -> None:
        self.core = core
        self.config = config
        self.pools = pools
        self.findings: list[OracleFinding] = []
        self.linker = Linker(core, pools, self.findings)
        self._frees = PoolFrees(pools, self.findings)
        self._drivers = self._make_drivers()
        self._evictor = Evictor(core, config.component_types(), self.drain, self.available)
        self._insert_session: str | None = None
        self._configure()
        self.reset()

    def _make_drivers(self) -> dict[ComponentType, Driver]:
        pools, core = self.pools, self.core
        drivers: dict[ComponentType, Driver] = {ComponentType.FULL: FullDriver(pools.allocator)}
        for component in pools.windows:
            drivers[component] = WindowDriver(component, core, pools, self.findings)
        if pools.states is not None:
            drivers[ComponentType.MAMBA] = StateDriver(pools.states)
        return drivers

    def _configure(self) -> None:
        """Push the configuration's flags into the core (CTL-4, CTL-9)."""
        config = self.config
        self.core.write_through_threshold = config.write_through_threshold
        if config.linker:
            self.core.enable_external_cache_linker = True
            if config.write_through_threshold == Config().write_through_threshold:
                self.core.write_through_threshold = LINKER_THRESHOLD
        if config.buffer_only:
            self.core.set_host_memory_buffer_only()
        self.core.is_write_back = config.write_back
        self.core.enable_storage = config.storage

    def reset(self) -> None:
        """Empty the tree; slots and rows are the caller's to clear (CTL-6, CTL-7)."""
        self.linker.reset()
        self.core.reset()
        self.core.kv_events.record_all_cleared()

    # --- Match and insert -----------------------------------------------------------------

    def match(self, key: RadixKey) -> MatchResult:
        """Look a key up and execute what came with the answer; locks nothing (CTL-10, CTL-13)."""
        result = self.core.match_prefix(MatchPrefixParams(key))
        self.apply(result.cache_actions)
        return result

    def touch(self, key: RadixKey) -> None:
        """A lookup that only refreshes recency (CTL-14)."""
        self.match(key)

    def insert(self, params: InsertParams) -> InsertResult:
        """Run one insert to its end (CTL-16, CTL-17). Raises `CacheError` while one is suspended.

        Whatever is raised on the way, the insert is ended and what it still had to free is freed.
        """
        if self.core.has_ongoing_insert():
            raise CacheError("re-entrant insert")
        self._insert_session = params.session_id
        try:
            return self._pump(params)
        finally:
            try:
                self.apply(self.core.end_insert())
            finally:
                self._insert_session = None

    def _pump(self, params: InsertParams) -> InsertResult:
        step = self.core.begin_insert(params)
        self.apply(step.actions)
        while step.result is None:
            step = self.core.resume_insert()
            self.apply(step.actions)
        if step.result.cache_actions:
            raise CacheError("the result of an insert carries actions")
        return step.result

    # --- Actions --------------------------------------------------------------------------

    def apply(self, actions: list[CacheAction]) -> None:
        """Execute and consume actions in order (CTL-18).

        An action that raises is lost; those after it stay in the list.
        """
        while actions:
            self._execute(actions.pop(0))

    def _execute(self, action: CacheAction) -> None:
        """One action (CTL-19)."""
        match action:
            case FreeDeviceKV(indices=indices):
                self._frees.free(indices)
            case FreeDeviceKVFullOnly(indices=indices):
                self._frees.free_full_only(indices)
            case BackupKV(node_ids=node_ids):
                self._back_up(node_ids)
            case UpdatePendingBackupOnNodeSplit():
                if action.ack_id is not None:
                    self.linker.redirect(action)
                self._drivers[action.component_type].execute(action)
            case MambaEvictExcessPathStates(tail_node_id=tail):
                self._cap_path(tail)
            case _ if isinstance(action, ComponentAction):
                self._drivers[action.component_type].execute(action)
            case _:
                raise CacheError(f"unknown action {type(action).__name__}")

    def _cap_path(self, tail: NodeId) -> None:
        """Let the core drop states of a path; what it freed goes back whatever it raises (CTL-22).

        Raises `KeyError` in a tree without states.
        """
        if self.pools.states is None:
            raise KeyError(ComponentType.MAMBA)
        freed = EvictionResult()
        try:
            self.core.evict_excess_path_states(
                tail, freed.device_frees, freed.host_frees, freed.cache_actions
            )
        finally:
            self.drain(freed)

    def _back_up(self, node_ids: list[NodeId]) -> None:
        """Offload nodes; in buffer mode without a store, look at them and let them be (HCC-40)."""
        if self.core.enable_external_cache_linker:
            self.linker.offload(node_ids, self._insert_session)
        elif self.core.is_host_memory_buffer_only:
            for node_id in node_ids:
                self.core.snapshot_buffer_backup(node_id, False)
        else:
            raise CacheError("a backup was asked for, but there is no tier to take it")

    # --- Eviction and allocation ----------------------------------------------------------

    def drain(self, result: EvictionResult) -> None:
        """Execute and consume all that an eviction step freed (CTL-30).

        If one part raises, those after it are drained nevertheless.
        """
        try:
            while result.device_frees:
                # Their order in the mapping means nothing (SWA-X2), that of the pools is compared.
                component = min(result.device_frees)
                slots = result.device_frees.pop(component)
                self._drivers[component].execute(FreeComponentDeviceSlot(slots, component))
        finally:
            # There is no host pool to take what was freed there.
            result.host_frees.clear()
            self.apply(result.cache_actions)

    def evict(self, params: EvictParams) -> Totals:
        """Evict counts; returns what was evicted per component (CTL-25)."""
        return self._evictor.evict(_requests(params))

    def evict_for_alloc(self, params: EvictParams) -> Totals:
        """Evict until an allocation is no longer short; the counts are shortfalls (CTL-26)."""
        return self._evictor.evict_for_alloc(_requests(params))

    def available(self, component: ComponentType) -> int:
        """Slots of a component that can be allocated now. Raises `KeyError` if it has no pool."""
        if component is ComponentType.FULL:
            return self.pools.allocator.available_size()
        if component is ComponentType.MAMBA and self.pools.states is not None:
            return self.pools.states.available_size()
        return self.pools.windows[component].available_size()

    def make_room(self, needs: Mapping[ComponentType, int]) -> bool:
        """Evict shortfalls, if any; whether so many slots are available then (POOL-66)."""
        short = {
            component: needed - available
            for component, needed in needs.items()
            if needed > (available := self.available(component))
        }
        if not short:
            return True
        self._evictor.evict_for_alloc(short)
        return all(self.available(component) >= needed for component, needed in needs.items())

    def allocate(
        self, count: int, window_from: int | Mapping[ComponentType, int] = 0
    ) -> torch.Tensor | None:
        """`count` slots rounded up to whole pages, evicting if need be; None if it can't be.

        Every window gives peers for the slots at positions from `window_from` on, cut to a page.
        """
        page = self.config.page_size
        rounded = -(-count // page) * page
        starts = {
            component: min(rounded, _start_of(component, window_from) // page * page)
            for component in self.pools.windows
        }
        needs = {component: rounded - start for component, start in starts.items()}
        if not self.make_room({ComponentType.FULL: rounded, **needs}):
            return None
        slots = self.pools.allocator.alloc(rounded)
        if slots is not None:
            for component, start in starts.items():
                self.attach_window(component, slots[start:])
        return slots

    def attach_window(self, component: ComponentType, slots: torch.Tensor) -> None:
        """Give full slots the peers that were made room for."""
        if not self.pools.windows[component].attach(slots):
            raise CacheError(f"no {component.name} slots, although there were some")

    def allocate_state(self) -> torch.Tensor | None:
        """One Mamba state, evicting one if need be; None if it can't be (MAM-R10).

        Raises `KeyError` in a tree without states.
        """
        if self.pools.states is None:
            raise KeyError(ComponentType.MAMBA)
        self.make_room({ComponentType.MAMBA: 1})
        return self.pools.states.alloc(1)

    # --- Locks ----------------------------------------------------------------------------

    def lock(self, node_id: NodeId, skip: tuple[ComponentType, ...] = ()) -> HeldLock:
        """Lock the path to a node on the device, but for the components in `skip` (CTL-33)."""
        return HeldLock(node_id, self.core.inc_lock_ref(node_id, skip).to_dec_params())

    def unlock(self, held: HeldLock) -> None:
        """Release a lock, or what an early release has left of it (CTL-33)."""
        self.core.dec_lock_ref(held.node_id, held.receipt, held.window_released)

    def release_window(self, held: HeldLock) -> None:
        """Give up the window of a lock before the rest, once (CTL-34)."""
        if held.window_released:
            return
        self.drain(self.core.dec_swa_lock_only(held.node_id, held.receipt))
        held.window_released = True


def _requests(params: EvictParams) -> Totals:
    return {
        ComponentType.FULL: params.num_tokens,
        ComponentType.SWA: params.swa_num_tokens,
        ComponentType.MAMBA: params.mamba_num,
    }


def _start_of(component: ComponentType, start: int | Mapping[ComponentType, int]) -> int:
    return start if isinstance(start, int) else start.get(component, 0)
