"""The controller: drives one core and executes on the pools what it decides (CTL-10 to CTL-33).

The tree decides, the controller executes. It calls the core only through the interface and never
looks inside; it hides from its callers that matches, inserts and evictions come with actions.
"""

from __future__ import annotations

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
    MatchPrefixParams,
    MatchResult,
    NodeId,
    RadixKey,
    TreeCore,
    UpdatePendingBackupOnNodeSplit,
)
from treedrift.backends.pools import Pools

from ..config import Config
from .eviction import Evictor, Totals
from .findings import CacheError, OracleFinding
from .linker import Linker

LINKER_THRESHOLD = 1
"""The write-through threshold that attaching a linker sets (CTL-9)."""


class HeldLock(msgspec.Struct, frozen=True):
    """A device lock and the receipt that releases it (CTL-33)."""

    node_id: NodeId
    receipt: DecLockRefParams


class Controller:
    """One core and its pools.

    `findings` collects what oracles found; whoever reads them may empty the list.
    """

    def __init__(self, core: TreeCore, config: Config, pools: Pools) -> None:
        self.core = core
        self.config = config
        self.pools = pools
        self.findings: list[OracleFinding] = []
        self.linker = Linker(core, pools.kv, self.findings)
        self._components = config.component_types()
        self._evictor = Evictor(core, self._components, self.drain, self.available)
        self._insert_session: str | None = None
        self._configure()
        self.reset()

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
                for segment in indices:
                    self.pools.allocator.free_segment(segment)
            case FreeDeviceKVFullOnly(indices=indices):
                for segment in indices:
                    self.pools.allocator.free_full_segment(segment)
            case BackupKV(node_ids=node_ids):
                self._back_up(node_ids)
            case UpdatePendingBackupOnNodeSplit():
                if action.ack_id is not None:
                    self.linker.redirect(action)
                self._execute_component(action)
            case _ if isinstance(action, ComponentAction):
                self._execute_component(action)
            case _:
                raise CacheError(f"unknown action {type(action).__name__}")

    def _execute_component(self, action: ComponentAction) -> None:
        """What FULL's driver does (CTL-20). Raises `KeyError` for a component that is not there."""
        if action.component_type not in self._components:
            raise KeyError(action.component_type)
        match action:
            case FreeComponentDeviceSlot(indices=indices):
                for segment in indices:
                    self.pools.allocator.free_segment(segment)
            case UpdatePendingBackupOnNodeSplit():
                # Nothing of FULL's own follows a split.
                pass
            case _:
                raise CacheError(f"FULL has no use for {type(action).__name__}")

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
                component = next(iter(result.device_frees))
                slots = result.device_frees.pop(component)
                self._execute_component(FreeComponentDeviceSlot(slots, component))
        finally:
            # There is no host pool to take what was freed there.
            result.host_frees.clear()
            self.apply(result.cache_actions)

    def evict(self, params: EvictParams) -> Totals:
        """Evict counts of tokens; returns what was evicted per component (CTL-25)."""
        return self._evictor.evict(params)

    def evict_for_alloc(self, params: EvictParams) -> Totals:
        """Evict until an allocation is no longer short; the counts are shortfalls (CTL-26)."""
        return self._evictor.evict_for_alloc(params)

    def available(self, component: ComponentType) -> int:
        """Slots of a component that can be allocated now. Raises `KeyError` if it has no pool."""
        if component is not ComponentType.FULL:
            raise KeyError(component)
        return self.pools.allocator.available_size()

    def make_room(self, count: int) -> bool:
        """Evict the shortfall, if any; whether `count` slots are available then (POOL-66)."""
        shortfall = count - self.available(ComponentType.FULL)
        if shortfall > 0:
            self.evict_for_alloc(EvictParams(num_tokens=shortfall))
        return self.available(ComponentType.FULL) >= count

    def allocate(self, count: int) -> torch.Tensor | None:
        """`count` slots rounded up to whole pages, evicting if need be; None if it can't be."""
        page = self.config.page_size
        rounded = -(-count // page) * page
        return self.pools.allocator.alloc(rounded) if self.make_room(rounded) else None

    # --- Locks ----------------------------------------------------------------------------

    def lock(self, node_id: NodeId) -> HeldLock:
        """Lock the path to a node on the device (CTL-33)."""
        return HeldLock(node_id, self.core.inc_lock_ref(node_id).to_dec_params())

    def unlock(self, held: HeldLock) -> None:
        """Release a lock (CTL-33)."""
        self.core.dec_lock_ref(held.node_id, held.receipt)
