"""Runs core ops on one side, and keeps what they hold in protocol.

Request ops are the cache's own methods. A core op calls the core (through its recording proxy)
and then does with the answer what a cache would: it applies actions, frees what was handed back,
and returns the slots that nobody took.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import torch

from ..backends.contract import (
    ComponentType,
    DecLockRefParams,
    InsertParams,
    InsertStepResult,
    MatchPrefixParams,
    MatchResult,
    NodeId,
    RadixKey,
    TreeCore,
)
from ..backends.pools import shared_fingerprints
from . import ops
from .asking import ask
from .cache import Cache, OracleFinding
from .config import COMPONENT_NAMES, Config
from .misuse import misuse
from .references import HeldLock, References, Walk

FULL = ComponentType.FULL


class SuspendedInsert:
    """Slots that a suspended insert was given."""

    def __init__(self, fresh: torch.Tensor) -> None:
        self.fresh = fresh


class CoreOps:
    """The core-level half of the op language on one side."""

    def __init__(
        self, core: TreeCore, cache: Cache, config: Config, references: References
    ) -> None:
        self.core = core
        self.cache = cache
        self.config = config
        self.references = references
        self.suspended: SuspendedInsert | None = None
        self._handlers: dict[type[ops.Op], Callable[[Any], object]] = {
            ops.CoreMatch: self._match,
            ops.CoreInsert: self._insert,
            ops.CoreResume: self._resume,
            ops.CoreEnd: self._end,
            ops.Lock: self._lock,
            ops.Unlock: self._unlock,
            ops.Pin: self._pin,
            ops.WalkStart: self._walk_start,
            ops.WalkNext: self._walk_next,
            ops.WalkEnd: self._walk_end,
            ops.EvictLeaf: self._evict_leaf,
            ops.DropSubtree: self._drop_subtree,
            ops.Demote: self._demote,
            ops.HostEvict: self._host_evict,
            ops.Ask: lambda op: ask(self, op),
            ops.Backfill: lambda op: self.core.backfill_missing_hash_values(),
            ops.AdjustSize: self._adjust_size,
            ops.Offload: self._offload,
            ops.MarkStored: self._mark_stored,
            ops.SetFlag: self._set_flag,
            ops.Misuse: lambda op: misuse(self, op),
        }

    def run(self, op: ops.Op) -> None:
        """Execute one core op; errors of the core propagate."""
        self._handlers[type(op)](op)

    def node(self, ref: ops.NodeRef) -> NodeId | None:
        """The handle behind a reference."""
        return self.references.node(ref, [request.lock.node_id for request in self.cache.requests])

    def key(
        self, tokens: list[int], namespace: ops.Namespace, limit: int | None = None
    ) -> RadixKey:
        """A fresh key; cores may keep what they are given (PLUG-9)."""
        return RadixKey(
            array("q", tokens),
            extra_key=namespace.extra_key,
            limit=limit,
            cache_salt=namespace.cache_salt,
        )

    def units(self, key: RadixKey) -> int:
        """Length of a key as this tree sees it: in units, cut to whole pages (KEY-20, KEY-21)."""
        raw = (
            len(key.token_ids) if key.limit is None else max(0, min(key.limit, len(key.token_ids)))
        )
        count = max(0, raw - 1) if self.core.is_eagle else raw
        return count // self.config.page_size * self.config.page_size

    # --- Match and insert -----------------------------------------------------------------

    def _match(self, op: ops.CoreMatch) -> None:
        key = self.key(op.tokens, op.namespace, op.limit)
        if op.device_only:
            self.core.match_full_device_prefix(key)
            return
        result = self.core.match_prefix(MatchPrefixParams(key))
        self.cache.apply(result.cache_actions)
        if result.device_prefix_len:
            self._check_content(op, result)

    def _check_content(self, op: ops.CoreMatch, result: MatchResult) -> None:
        """What a match returns must hold the KV of the tokens that were matched."""
        root = self.core.root_node_handle()
        slots = self.core.collect_full_device_indices(result.last_device_node, root)
        expected = self._content(op.tokens, op.namespace, result.device_prefix_len)
        if not self.cache.pools.kv.holds(slots, expected):
            message = f"a match of {result.device_prefix_len} units returns KV of another prefix"
            self.cache.findings.append(OracleFinding("kv_content", message))

    def _content(self, tokens: list[int], namespace: ops.Namespace, length: int) -> torch.Tensor:
        space = (namespace.extra_key, namespace.cache_salt)
        device = self.cache.pools.kv.cells.device
        return shared_fingerprints(array("q", tokens), space, device)[:length]

    def _insert(self, op: ops.CoreInsert) -> None:
        if not op.force:
            self.settle_insert()
        key = self.key(op.tokens, op.namespace, op.limit)
        length = self.units(key)
        fresh = self._allocate(length)
        if fresh is None:
            return
        given_tokens = op.tokens
        if op.value == "none":
            # Then the tokens are the slots (INS-11), so they must be slots that we own.
            given_tokens = fresh.tolist() + [0] * (self.core.is_eagle and length > 0)
            key = self.key(given_tokens, op.namespace)
        previous, given = 0, fresh
        if op.owned > 0 and length:
            previous, given = self._share(key, fresh, op.owned)
        self.cache.pools.kv.write(fresh, self._content(given_tokens, op.namespace, length))
        params = InsertParams(
            key=key,
            value=_value_of_kind(op.value, given),
            prev_prefix_len=previous if op.raw_prev is None else self._whole_pages(op.raw_prev),
            inserted_len=op.inserted_len,
            priority=op.priority,
            session_id=op.session_id,
            rotation_base=op.rotation_base,
            track_adopted_ranges=op.track_adopted_ranges,
        )
        if op.swa_evicted:
            params.set_evicted_seqlen(ComponentType.SWA, self._whole_pages(op.swa_evicted))
        if self.suspended is not None:
            self._begin_forced(params, fresh)
            return
        self.suspended = SuspendedInsert(fresh)
        try:
            step = self.core.begin_insert(params)
            self._step(step)
        except Exception:
            self._close_insert()
            raise
        if self.suspended is not None and not op.suspend:
            self.settle_insert()

    def _whole_pages(self, length: int) -> int:
        """A length cut to whole pages, since pools free nothing smaller; a bad one as it is."""
        page = self.config.page_size
        return length if length < 0 else length // page * page

    def _begin_forced(self, params: InsertParams, fresh: torch.Tensor) -> None:
        try:
            self.core.begin_insert(params)
        finally:
            self._return_leftovers(fresh)

    def _share(self, key: RadixKey, fresh: torch.Tensor, owned: int) -> tuple[int, torch.Tensor]:
        """Let the caller own a cached prefix of its key, as a request does that was matched."""
        matched, node, _ = self.core.match_full_device_prefix(key)
        page = self.config.page_size
        shared_len = min(owned, matched) // page * page
        if not shared_len:
            return 0, fresh
        path = self.core.collect_full_device_indices(node, self.core.root_node_handle())
        return shared_len, torch.cat([path[:shared_len], fresh[shared_len:]])

    def _step(self, step: InsertStepResult) -> None:
        self.cache.apply(step.actions)
        if step.result is not None:
            self._close_insert()

    def _close_insert(self) -> None:
        suspended, self.suspended = self.suspended, None
        self.cache.apply(self.core.end_insert())
        if suspended is not None:
            self._return_leftovers(suspended.fresh)

    def _return_leftovers(self, fresh: torch.Tensor) -> None:
        """Free the given slots that neither the tree took nor an action freed."""
        allocator = self.cache.pools.allocator
        in_tree = set(self.core.all_values_flatten().tolist())
        unused = [slot not in in_tree for slot in fresh.tolist()]
        if not any(unused):
            return
        pairs = zip(fresh.tolist(), unused, allocator.are_out(fresh), strict=True)
        left = [slot for slot, is_unused, is_out in pairs if is_unused and is_out]
        if left:
            allocator.free(torch.tensor(left, dtype=torch.int64, device=fresh.device))

    def settle_insert(self) -> None:
        """Run a suspended insert to its end."""
        while self.suspended is not None:
            self._step(self.core.resume_insert())

    def _resume(self, op: ops.CoreResume) -> None:
        if self.suspended is not None:
            self._step(self.core.resume_insert())
        elif op.force:
            self.core.resume_insert()

    def _end(self, op: ops.CoreEnd) -> None:
        self._close_insert()

    def _allocate(self, length: int) -> torch.Tensor | None:
        """Slots for a key; only an allocation that must evict closes the walk that is open."""
        if self.cache.available(FULL) < length:
            self.close_walks()
        return self.cache.allocate(length)

    # --- Locks ----------------------------------------------------------------------------

    def _lock(self, op: ops.Lock) -> None:
        node = self.node(op.node)
        if node is None:
            return
        if op.host:
            self.references.host_locks.append(HeldLock(node, self.core.inc_host_lock_ref(node)))
            return
        skip = [COMPONENT_NAMES[name] for name in op.skip]
        self.references.locks.append(HeldLock(node, self.core.inc_lock_ref(node, skip)))

    def _unlock(self, op: ops.Unlock) -> None:
        held = self.references.host_locks if op.host else self.references.locks
        if op.receipt == "released":
            self._unlock_again(op)
        elif op.receipt == "own" and op.window is None:
            if held:
                lock = held.pop(op.lock % len(held))
                self._release(lock.node, lock.receipt.to_dec_params(), op)
                if not op.host:
                    self.references.released.append(lock)
        elif held:
            self._misuse_receipt(held[op.lock % len(held)], op)

    def _release(self, node: NodeId, params: DecLockRefParams, op: ops.Unlock) -> None:
        if op.host:
            self.core.dec_host_lock_ref(node, params)
        else:
            self.core.dec_lock_ref(node, params, op.skip_swa)

    def _unlock_again(self, op: ops.Unlock) -> None:
        """Release a receipt twice. That can succeed by taking another holder's lock (LOCK-12)."""
        released = self.references.released
        if not released:
            return
        lock = released[op.lock % len(released)]
        self.core.dec_lock_ref(lock.node, lock.receipt.to_dec_params(), op.skip_swa)
        if FULL not in lock.receipt.skipped_lock_components:
            self.core.inc_full_pin(lock.node)  # Give the lock back to whoever lost it.

    def _misuse_receipt(self, lock: HeldLock, op: ops.Unlock) -> None:
        params = lock.receipt.to_dec_params()
        if op.receipt == "stripped":
            params.node_id = None
        node = self.core.root_node_handle() if op.receipt == "foreign" else lock.node
        if op.window is not None:
            self.cache.drain(
                self.core.dec_window_lock_only(node, COMPONENT_NAMES[op.window], params)
            )
        elif node != params.node_id:
            self._release(node, params, op)

    def _pin(self, op: ops.Pin) -> None:
        pins = self.references.pins
        if op.force:
            node = self.node(op.node)
            if node is not None and not self._would_rob(node):
                self.core.dec_full_pin(node)
        elif op.release is not None:
            if pins:
                self.core.dec_full_pin(pins.pop(op.release % len(pins)))
        else:
            node = self.node(op.node)
            if node is not None:
                self.core.inc_full_pin(node)
                pins.append(node)

    def _would_rob(self, node: NodeId) -> bool:
        """Whether a forced release could take a lock that somebody holds."""
        return self.references.is_live(node) and self.core.protected_size() > 0

    # --- Eviction -------------------------------------------------------------------------

    def _walk_start(self, op: ops.WalkStart) -> None:
        component = COMPONENT_NAMES[op.component]
        walks = self.references.walks
        if component in walks and not op.force:
            return
        self.core.evict_device_start(component, op.count)
        walks[component] = Walk(op.count)

    def _walk_next(self, op: ops.WalkNext) -> None:
        component = COMPONENT_NAMES[op.component]
        walk = self.references.walks.get(component)
        if walk is None and not op.force:
            return
        done = op.done if op.done is not None else (walk.total if walk else 0)
        result = self.core.evict_device_next_node(component, {component: done})
        if walk is not None:
            walk.offered = result.node_id
            walk.total += result.tracker.get(component, 0)
        self.cache.drain(result)

    def _walk_end(self, op: ops.WalkEnd) -> None:
        component = COMPONENT_NAMES[op.component]
        if component in self.references.walks or op.force:
            self.core.evict_device_end(component)
            self.references.walks.pop(component, None)

    def close_walks(self) -> None:
        """End every open walk, as whoever opened it must before another opens one."""
        for component in list(self.references.walks):
            self.core.evict_device_end(component)
            del self.references.walks[component]

    def _evict_leaf(self, op: ops.EvictLeaf) -> None:
        node = self.node(op.node)
        if node is None:
            return
        result = self.core.evict_device_leaf(node, self.core.is_write_back != op.flip_mode)
        self._count(result.tracker)
        backup = result.backup_kv
        self.cache.drain(result)
        if backup is not None:
            self._drop(node)
        self._forget_offer(node)

    def _drop_subtree(self, op: ops.DropSubtree) -> None:
        node = self.node(op.node)
        if node is not None:
            self._drop(node)
            self._forget_offer(node)

    def _drop(self, node: NodeId) -> None:
        """Without a host tier a write-back victim has nowhere to go (CTL-28)."""
        result = self.core.drop_subtree_no_host(node)
        self._count(result.tracker)
        self.cache.drain(result)

    def _count(self, tracker: dict[ComponentType, int]) -> None:
        for component, walk in self.references.walks.items():
            walk.total += tracker.get(component, 0)

    def _forget_offer(self, node: NodeId) -> None:
        for walk in self.references.walks.values():
            if walk.offered == node:
                walk.offered = None

    def _demote(self, op: ops.Demote) -> None:
        node = self.node(op.node)
        if node is not None:
            self.cache.drain(self.core.demote(node))

    def _host_evict(self, op: ops.HostEvict) -> None:
        self.cache.drain(self.core.drive_host_eviction(COMPONENT_NAMES[op.component], op.count))

    # --- Ledgers, linker and settings -----------------------------------------------------

    def _adjust_size(self, op: ops.AdjustSize) -> None:
        node = self.node(op.node)
        if node is not None:
            component = COMPONENT_NAMES[op.component]
            self.core.adjust_component_size(node, component, op.delta)
            self.core.adjust_component_size(node, component, -op.delta)

    def _offload(self, op: ops.Offload) -> None:
        node = self.node(op.node)
        if node is not None:
            self.cache.linker.offload([node], None)

    def _mark_stored(self, op: ops.MarkStored) -> None:
        node, until = self.node(op.node), self.node(op.until)
        if node is not None and until is not None:
            self.core.mark_external_cache_stored_path(node, until)

    def _set_flag(self, op: ops.SetFlag) -> None:
        if op.flag == "buffer_only":
            self.core.set_host_memory_buffer_only()
        elif op.flag == "storage":
            self.core.enable_storage = bool(op.value)
        elif op.flag == "linker":
            self.core.enable_external_cache_linker = bool(op.value)
        elif op.flag == "write_back":
            # A host lock that is released in another mode than it was taken in may stay counted
            # (LOCK-26), so no cache changes the mode while one is held.
            if not self.references.host_locks:
                self.core.is_write_back = bool(op.value)
        else:
            self.core.write_through_threshold = op.value


def _value_of_kind(kind: ops.ValueKind, given: torch.Tensor) -> Any:
    """A value of an insert: the slots themselves, or one of the shapes that a core must refuse."""
    if kind == "none":
        return None
    if kind == "short":
        return given[:-1]
    if kind == "float":
        return given.to(torch.float32)
    return given if kind == "slots" else given.reshape(-1, 1)
