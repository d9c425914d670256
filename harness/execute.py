"""Runs core ops on one side, and keeps what they hold in protocol.

Request ops are the cache's own methods. A core op calls the core (through its recording proxy)
and then does with the answer what a cache would: it applies actions, frees what was handed back,
and returns the slots that nobody took. Larger families of ops have files of their own.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..backends.contract import (
    ComponentType,
    MatchPrefixParams,
    MatchResult,
    NodeId,
    RadixKey,
    TreeCore,
)
from ..backends.pools import shared_fingerprints
from . import locking, ops, values, walking
from .asking import ask
from .cache import Cache, OracleFinding
from .config import COMPONENT_NAMES, Config
from .inserting import Inserts
from .misuse import misuse
from .references import References
from .tokens import key_tokens

SWA, MAMBA = ComponentType.SWA, ComponentType.MAMBA


class CoreOps:
    """The core-level half of the op language on one side."""

    def __init__(
        self,
        core: TreeCore,
        cache: Cache,
        config: Config,
        references: References,
        watches_whole_tree: bool = True,
    ) -> None:
        """`watches_whole_tree`: an insert shows all slots of the tree, not its own path alone."""
        self.core = core
        self.cache = cache
        self.config = config
        self.components = config.component_types()
        self.references = references
        self.inserts = Inserts(self, watches_whole_tree)

    def run(self, op: ops.Op) -> None:
        """Execute one core op; errors of the core propagate."""
        HANDLERS[type(op)](self, op)

    @property
    def is_inserting(self) -> bool:
        """Whether an insert is suspended."""
        return self.inserts.suspended is not None

    def forget(self) -> None:
        """The tree was emptied: nothing is suspended, held or walked any more."""
        self.inserts.suspended = None
        self.references.forget_tree()

    # --- What ops are made of -------------------------------------------------------------

    def node(self, ref: ops.NodeRef) -> NodeId | None:
        """The handle behind a reference."""
        return self.references.node(ref, [request.lock.node_id for request in self.cache.requests])

    def key(
        self,
        tokens: Iterable[int],
        namespace: ops.Namespace,
        limit: int | None = None,
        is_bigram: bool = False,
    ) -> RadixKey:
        """A fresh key; cores may keep what they are given (PLUG-9)."""
        return RadixKey(
            array("q", tokens), namespace.extra_key, is_bigram, limit, namespace.cache_salt
        )

    def units(self, key: RadixKey) -> int:
        """Length of a key as this tree sees it: in units, cut to whole pages (KEY-20, KEY-21)."""
        raw = (
            len(key.token_ids) if key.limit is None else max(0, min(key.limit, len(key.token_ids)))
        )
        return self.whole_pages(max(0, raw - 1) if self.core.is_eagle else raw)

    def whole_pages(self, length: int) -> int:
        """A length cut to whole pages, since pools free nothing smaller; a bad one as it is."""
        page = self.config.page_size
        return length if length < 0 else length // page * page

    def content(self, tokens: Iterable[int], namespace: ops.Namespace, length: int) -> torch.Tensor:
        """What the slots of a key's first units hold."""
        space = (namespace.extra_key, namespace.cache_salt)
        device = self.cache.pools.kv.cells.device
        return shared_fingerprints(array("q", tokens), space, device)[:length]

    def padding(self, count: int) -> torch.Tensor:
        """Slots that are nobody's, for a value that the core refuses."""
        return torch.zeros(count, dtype=torch.int64, device=self.cache.pools.kv.cells.device)

    # --- Match ----------------------------------------------------------------------------

    def match(self, op: ops.CoreMatch) -> None:
        """Look a key up, and check what is found."""
        tokens = key_tokens(op)
        key = self.key(tokens, op.namespace, op.limit)
        if op.device_only:
            _, node, _ = self.core.match_full_device_prefix(key)
            self.references.remember(op.answer, node)
            return
        result = self.core.match_prefix(MatchPrefixParams(key))
        self.references.remember(op.answer, result.last_device_node)
        self.cache.apply(result.cache_actions)
        if result.device_prefix_len:
            self._check_content(tokens, op.namespace, result)

    def _check_content(
        self, tokens: array[int], namespace: ops.Namespace, result: MatchResult
    ) -> None:
        """What a match returns must be computed from the tokens that were matched."""
        pools, length = self.cache.pools, result.device_prefix_len
        root = self.core.root_node_handle()
        slots = self.core.collect_full_device_indices(result.last_device_node, root)
        expected = self.content(tokens, namespace, length)
        if not pools.kv.holds(slots, expected):
            self._tell(f"a match of {length} units returns KV of another prefix")
        for kind, window in pools.windows.items():
            # Without gates a match may end where the window is gone (SWA-M4).
            last = max(0, length - self._window_of(kind)) if self.config.window_gates else length
            if not window.holds(slots[last:], expected[last:]):
                self._tell(f"a match of {length} units has no window of its prefix")
        if pools.states is not None:
            state = self.core.get_component_device_value(result.last_device_node, MAMBA)
            if state is None or not pools.states.holds(state, expected[-1:]):
                self._tell(f"a match of {length} units has no state of its prefix")

    def _window_of(self, component: ComponentType) -> int:
        return self.config.retain_window if component is SWA else self.config.aux_window or 0

    def _tell(self, message: str) -> None:
        self.cache.findings.append(OracleFinding("kv_content", message))

    # --- Ledgers, linker and settings -----------------------------------------------------

    def adjust_size(self, op: ops.AdjustSize) -> None:
        """Move a ledger and back again."""
        node, component = self.node(op.node), COMPONENT_NAMES[op.component]
        if node is not None and component in self.components:
            self.core.adjust_component_size(node, component, op.delta)
            self.core.adjust_component_size(node, component, -op.delta)

    def offload(self, op: ops.Offload) -> None:
        """Start an offload, which locks its node."""
        node = self.node(op.node)
        if node is not None:
            walking.close_auxiliary_walks(self)
            self.cache.linker.offload([node], None)

    def mark_stored(self, op: ops.MarkStored) -> None:
        """Tell the core of a path that the external store holds."""
        node, until = self.node(op.node), self.node(op.until)
        if node is not None and until is not None:
            self.core.mark_external_cache_stored_path(node, until)

    def set_flag(self, op: ops.SetFlag) -> None:
        """Change a setting."""
        if op.flag == "buffer_only":
            self.core.set_host_memory_buffer_only()
        elif op.flag == "storage":
            self.core.enable_storage = bool(op.value)
        elif op.flag == "linker":
            self.core.enable_external_cache_linker = bool(op.value)
        elif op.flag == "write_back":
            # A host lock that is released in another mode than it was taken in may stay counted
            # (LOCK-26), and so may one that outlived its node (SWA-L22). No cache changes the
            # mode while one is left: under write-back nothing above it could be dropped.
            if not (self.references.host_locks or self.references.has_lost_host_lock):
                self.core.is_write_back = bool(op.value)
        else:
            self.core.write_through_threshold = op.value


Handler = Callable[[CoreOps, Any], object]

HANDLERS: dict[type[ops.Op], Handler] = {
    ops.CoreMatch: lambda side, op: side.match(op),
    ops.CoreInsert: lambda side, op: side.inserts.insert(op),
    ops.CoreResume: lambda side, op: side.inserts.resume(op),
    ops.CoreEnd: lambda side, op: side.inserts.close(),
    ops.Lock: locking.lock,
    ops.ReleaseWindow: locking.release_window,
    ops.Unlock: locking.unlock,
    ops.Pin: locking.pin,
    ops.WalkStart: walking.walk_start,
    ops.WalkNext: walking.walk_next,
    ops.WalkEnd: walking.walk_end,
    ops.EvictLeaf: walking.evict_leaf,
    ops.DropSubtree: walking.drop_subtree,
    ops.CapPath: walking.cap_path,
    ops.StoreValue: values.store_value,
    ops.WindowRanges: values.window_ranges,
    ops.AttachWindow: values.attach_window,
    ops.Demote: walking.demote,
    ops.HostEvict: walking.host_evict,
    ops.Ask: ask,
    ops.Backfill: lambda side, op: side.core.backfill_missing_hash_values(),
    ops.AdjustSize: lambda side, op: side.adjust_size(op),
    ops.Offload: lambda side, op: side.offload(op),
    ops.MarkStored: lambda side, op: side.mark_stored(op),
    ops.SetFlag: lambda side, op: side.set_flag(op),
    ops.Misuse: misuse,
}
"""What runs each core op."""
