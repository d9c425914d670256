"""The reference model: a small dictionary of prefixes says what a core must answer.

It hears every call that a side makes. From the inserts and evictions alone it knows which pages
are resident, in which slots, and from the locks which of them are held. From these follow, exactly,
on the device tier of a Full tree: how far a key matches, which slots a path has, what an insert
takes over and frees, what may be evicted, and all sizes. A handle stands for the prefix that ends
where its node ends, which no split changes (SPLIT-1); one that no answer has placed is not judged.

The model stops at its first finding, and where it can no longer know what the core holds, until
the next reset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..backends.contract import (
    ComponentType,
    DecLockRefParams,
    EvictionResult,
    FreeDeviceKV,
    FreeDeviceKVFullOnly,
    InsertParams,
    InsertResult,
    InsertStepResult,
    MatchPrefixParams,
    MatchResult,
    NodeId,
    PoolName,
    RadixKey,
    TreeCoreError,
)
from .config import Config
from .observation import Finding
from .prefixes import Insertion, Page, Prefixes

FULL = ComponentType.FULL

REFUSALS = (TreeCoreError, TypeError, OverflowError, AttributeError)
"""Errors of a call that changed nothing (BND-45)."""

SHOWN_MAX = 8
"""Slots that a message spells out."""


class ReferenceModel:
    """What one side's core must answer. `findings` are for whoever reads them to empty.

    `root_node_handle` asks the core itself. `is_lost`: nothing is judged until the next reset.
    """

    def __init__(self, config: Config, root_node_handle: Callable[[], NodeId]) -> None:
        self._config = config
        self._root_node_handle = root_node_handle
        self.findings: list[Finding] = []
        self._forget()

    def _forget(self) -> None:
        self._prefixes = Prefixes(self._config)
        self._root_node = self._root_node_handle()
        self._ends: dict[NodeId, Page] = {self._root_node: self._prefixes.root}
        self._unplaced: Counter[NodeId] = Counter()
        self._insertion: Insertion | None = None
        self._quota: int | None = None
        self._offered: NodeId | None = None
        self.is_lost = False

    def listener(self, method: str) -> Callable[..., None] | None:
        """Who hears a call of this method: told its result, then its arguments."""
        if method == "reset":
            return lambda result: self._forget()
        handler = _HANDLERS.get(method)
        return partial(self._hear, handler) if handler is not None else None

    def _hear(self, handler: Callable[..., None], *call: Any, **keywords: Any) -> None:
        if not self.is_lost:
            handler(self, *call, **keywords)

    def failed(self, method: str, error: Exception) -> None:
        """A call raised; what it had changed by then is unknown unless it was refused."""
        if method in _CHANGING and not isinstance(error, REFUSALS):
            self.is_lost = True

    def _find(self, message: str) -> None:
        if not self.is_lost:
            self.findings.append(Finding("reference_model", message))
            self.is_lost = True

    def _expect(self, what: str, told: Any, expected: Any) -> None:
        if told != expected:
            self._find(f"{what} is {told}, must be {expected}")

    def check_sizes(self, evictable: int, protected: int) -> None:
        """Both ledgers, once an op is done (SIZE-1)."""
        if self.is_lost:
            return
        known = self._prefixes
        self._expect("evictable and protected size", evictable + protected, known.resident)
        if not self._unplaced:
            self._expect("protected size", protected, known.protected)

    # --- Match and paths ------------------------------------------------------------------

    def _longest(self, key: RadixKey) -> Page:
        chain = self._prefixes.longest(self._prefixes.contents(key))
        return chain[-1] if chain else self._prefixes.root

    def _place(self, node: NodeId | None, end: Page) -> None:
        """A handle was told for a prefix; it stands for that one as long as it lives (NODE-4)."""
        known = self._ends.setdefault(node, end) if node is not None else None
        if known is not end or (end is self._prefixes.root and node != self._root_node):
            other = "nothing" if known is None else f"one of {known.length} units"
            self._find(f"the node of a prefix of {end.length} units is that of {other}")
        elif node is not None and node in self._unplaced:
            self._prefixes.guard(end, self._unplaced.pop(node))

    def _match_prefix(self, result: MatchResult, params: MatchPrefixParams) -> None:
        self._quota = None  # What changes the tree disturbs the walk that is open (EVD-16).
        end = self._longest(params.key)
        self._expect("device_prefix_len of a match", result.device_prefix_len, end.length)
        self._expect("full_kv_hit_length of a match", result.full_kv_hit_length, end.length)
        self._expect("host_hit_length of a match", result.host_hit_length, 0)
        for node in (result.last_device_node, result.best_match_node, result.last_host_node):
            self._place(node, end)

    def _match_device(self, result: tuple[int, NodeId, int], key: RadixKey) -> None:
        matched, node, pinned = result
        end = self._longest(key)
        self._expect("matched length on the device", matched, end.length)
        if pinned == matched:
            self._place(node, end)
        elif pinned < matched:
            self._find(f"a node that ends at {pinned} units matches {matched}")

    def _path(self, slots: Any, from_node_id: NodeId, until_node_id: NodeId) -> None:
        end, start = self._ends.get(from_node_id), self._ends.get(until_node_id)
        if end is None or start is None:
            return
        told, expected = slots.tolist(), self._prefixes.path(end, start)
        if expected is not None and told != expected:
            self._find(f"a path has slots {_short(told)}, must have {_short(expected)}")

    def _path_info(self, result: Sequence[Sequence[Any]], end_node_ids: Sequence[NodeId]) -> None:
        for path in result:
            page = self._ends.get(path[-1].node_id) if path else None
            for info in reversed(path if page is not None else ()):
                while page is not None and page.length > info.path_end:
                    page = page.before
                if page is None:
                    break
                self._expect("path_end of a node", info.path_end, page.length)
                self._expect("num_children of a node", info.num_children, page.followers)
                self._place(info.node_id, page)

    def _value(self, slots: Any, node_id: NodeId, component_type: ComponentType = FULL) -> None:
        """A node's own slots: they end its path, or tell where an unknown node ends."""
        if slots is None or component_type is not FULL or not len(slots):
            return
        own = slots.tolist()
        known = self._prefixes
        end = self._ends.get(node_id) or known.owner(own[-known.page_size :])
        path = known.path(end, known.root) if end is not None else None
        if end is None or path is None or path[-len(own) :] != own:
            self._find(f"a node has slots {_short(own)}, which are not those of its prefix")
        else:
            self._place(node_id, end)

    def _offload(self, transfers: Any, node_id: NodeId) -> None:
        for transfer in transfers or ():
            if transfer.name == PoolName.KV:
                self._value(transfer.device_indices, node_id)

    def _flatten(self, slots: Any) -> None:
        told = slots.tolist()
        self._expect("number of slots in the tree", len(told), self._prefixes.resident)
        foreign = self._prefixes.foreign(told)
        if foreign:
            self._find(f"the tree has slots {_short(foreign)}, which no prefix has")

    def _rotation_base(self, result: int | None, node_id: NodeId) -> None:
        page = self._ends.get(node_id)
        if page is not None:
            self._expect("rotation base of a node", result, page.rotation_base)

    # --- Insert ---------------------------------------------------------------------------

    def _begin_insert(self, step: InsertStepResult, params: InsertParams) -> None:
        self._quota = None
        self._insertion = Insertion(self._prefixes, params)
        self._resume_insert(step)

    def _resume_insert(self, step: InsertStepResult) -> None:
        insertion = self._insertion
        if insertion is None:
            self._find("an insert goes on that was never begun")
        elif not all(page.slots for page in insertion.chain):
            # What it walked over was evicted meanwhile: what it hangs the rest on is not known.
            self.is_lost = True
        else:
            self._free_duplicates(insertion, step.actions)
            if step.result is not None:
                self._insertion = None
                self._finish_insert(insertion, step.result)

    def _end_insert(self, actions: list[Any]) -> None:
        insertion, self._insertion = self._insertion, None
        if insertion is not None:
            self._free_duplicates(insertion, actions)

    def _free_duplicates(self, insertion: Insertion, actions: list[Any]) -> None:
        """Of the given slots an insert frees what is resident and not owned, in order (INS-31)."""
        windowless = insertion.params.get_evicted_seqlen(ComponentType.SWA)
        for action in actions:
            if not isinstance(action, (FreeDeviceKV, FreeDeviceKVFullOnly)):
                continue
            freed = [slot for indices in action.indices for slot in indices.tolist()]
            start = insertion.params.prev_prefix_len + insertion.freed
            end = start + len(freed)
            insertion.freed += len(freed)
            expected = insertion.values[start : min(end, insertion.end.length)]
            is_full_only = isinstance(action, FreeDeviceKVFullOnly)
            if freed and not (end <= windowless if is_full_only else start >= windowless):
                self._find(f"an insert frees {_short(freed)} by {type(action).__name__}")
            if freed != expected:
                self._find(f"an insert frees {_short(freed)}, must free {_short(expected)}")

    def _finish_insert(self, insertion: Insertion, result: InsertResult) -> None:
        params, end, known = insertion.params, insertion.end, self._prefixes
        base = params.rotation_base
        declines = base is not None and end is not known.root and end.rotation_base != base
        self._expect("rotation_tail_declined", result.rotation_tail_declined, declines)
        self._expect("prefix_len of an insert", result.prefix_len, end.length)
        is_empty = end is known.root and not insertion.rest
        self._expect("mamba_exist of an insert", result.mamba_exist, is_empty)
        duplicates = 0 if declines else max(0, end.length - params.prev_prefix_len)
        self._expect("number of slots that an insert frees", insertion.freed, duplicates)
        if self.is_lost or declines:
            return
        leaf = known.add(end, insertion.rest, insertion.values[end.length :], base)
        self._place(result.last_device_node, leaf)
        if params.track_adopted_ranges and not is_empty:
            adopted = {FULL: [(end.length, leaf.length)]} if insertion.rest else {}
            self._expect("adopted_ranges of an insert", result.adopted_ranges, adopted)

    # --- Locks ----------------------------------------------------------------------------

    def _lock(self, node_id: NodeId, change: int) -> int | None:
        """Locks of a node come or go; the units that became protected, None where unknown."""
        self._quota = None
        known, end = self._prefixes, self._ends.get(node_id)
        if end is None:
            self._unplaced[node_id] += change
            if not self._unplaced[node_id]:
                del self._unplaced[node_id]
            return None
        if not end.slots and end is not known.root:
            self._find(f"a lock of a prefix of {end.length} units that was given back")
        before = known.protected
        known.guard(end, change)
        return None if self._unplaced else known.protected - before

    def _inc_lock(
        self, result: Any, node_id: NodeId, skip_lock_components: Sequence[ComponentType] = ()
    ) -> None:
        is_skipped = FULL in skip_lock_components
        moved = None if is_skipped else self._lock(node_id, 1)
        if is_skipped or moved is not None:
            self._expect("delta of a lock", result.delta, moved)

    def _dec_lock(
        self, result: Any, node_id: NodeId, params: DecLockRefParams, skip_swa: bool = False
    ) -> None:
        if FULL not in params.skipped_lock_components:
            self._lock(node_id, -1)

    # --- Eviction -------------------------------------------------------------------------

    def _start_walk(self, result: None, component_type: ComponentType, request_cnt: int) -> None:
        self._quota, self._offered = request_cnt, None

    def _end_walk(self, result: None, component_type: ComponentType) -> None:
        self._quota = None

    def _offer(self, result: Any, component_type: ComponentType, tracker: Any) -> None:
        """A walk offers what can be evicted, up to its quota, and all of it if left in peace."""
        page = self._ends.get(result.node_id)
        if page is not None and (page.is_kept or not page.slots):
            self._find(f"a walk offers a prefix of {page}")
        if self._offered is not None:
            self._quota = None  # An offer that is not taken is not made again (EVD-9).
        evicted, left = tracker.get(FULL, 0), self._prefixes.resident - self._prefixes.protected
        if self._quota is None:
            pass
        elif result.node_id is not None and evicted >= self._quota:
            self._find(f"a walk for {self._quota} units offers more after {evicted}")
        elif result.node_id is None and evicted < self._quota and left and not self._unplaced:
            self._find(f"a walk ends after {evicted} units, although {left} can be evicted")
        self._offered = result.node_id
        self._expect("made_progress", result.made_progress, result.node_id is not None)
        self._give_back(result)

    def _evict_leaf(self, result: Any, node_id: NodeId, is_write_back: bool) -> None:
        asks, count = result.backup_kv is not None, result.tracker.get(FULL, 0)
        self._evicted(result, node_id, not asks)
        self._expect("whether an eviction asks for a backup", asks, is_write_back)
        self._expect("unbacked_tokens of an eviction", result.unbacked_tokens, count)

    def _drop(self, result: Any, node_id: NodeId) -> None:
        self._evicted(result, node_id, result.is_dropped)

    def _evicted(self, result: EvictionResult, node_id: NodeId, is_gone: bool) -> None:
        self._give_back(result)
        page = self._ends.get(node_id)
        if page is not None and bool(page.slots) == is_gone:
            answer = "kept" if is_gone else "gave back"
            self._find(f"an eviction {answer} a prefix of {page.length} units")
        if node_id != self._offered:
            self._quota = None
        elif is_gone:
            self._offered = None

    def _give_back(self, result: EvictionResult, *arguments: Any) -> None:
        """What an eviction frees is resident, and neither held nor followed by other pages."""
        runs = [slots.tolist() for slots in result.device_frees.get(FULL, ())]
        self._expect("tracker of an eviction", result.tracker.get(FULL, 0), sum(map(len, runs)))
        for run in runs:
            self._give_run_back(run)

    def _give_run_back(self, run: list[int]) -> None:
        size, following = self._prefixes.page_size, None
        for end in range(len(run), 0, -size):
            page = self._prefixes.owner(run[max(end - size, 0) : end])
            if page is None or (following is not None and following.before is not page):
                self._find(f"an eviction frees slots {_short(run)}, which are no part of a prefix")
            elif page.is_kept:
                self._find(f"an eviction frees the last page of a prefix of {page}")
            if page is None or self.is_lost:
                return
            self._prefixes.remove(page)
            following = page


def _short(slots: list[int]) -> str:
    """Slots as a message shows them: the first few, and how many there are."""
    return str(slots) if len(slots) <= SHOWN_MAX else f"{slots[:SHOWN_MAX]} of {len(slots)}"


_TELLING: dict[str, Callable[..., None]] = {
    "root_node_handle": lambda model, node, *_: model._place(node, model._prefixes.root),
    "match_prefix": ReferenceModel._match_prefix,
    "match_full_device_prefix": ReferenceModel._match_device,
    "collect_full_device_indices": ReferenceModel._path,
    "collect_path_info": ReferenceModel._path_info,
    "get_component_device_value": ReferenceModel._value,
    "build_external_linker_offload_transfers": ReferenceModel._offload,
    "all_values_flatten": ReferenceModel._flatten,
    "rotation_base_of": ReferenceModel._rotation_base,
}
"""Calls that tell what the core holds."""

_CHANGING: dict[str, Callable[..., None]] = {
    "begin_insert": ReferenceModel._begin_insert,
    "resume_insert": ReferenceModel._resume_insert,
    "end_insert": ReferenceModel._end_insert,
    "inc_lock_ref": ReferenceModel._inc_lock,
    "dec_lock_ref": ReferenceModel._dec_lock,
    "inc_full_pin": lambda model, result, node_id: model._lock(node_id, 1),
    "dec_full_pin": lambda model, result, node_id: model._lock(node_id, -1),
    "evict_device_start": ReferenceModel._start_walk,
    "evict_device_end": ReferenceModel._end_walk,
    "evict_device_next_node": ReferenceModel._offer,
    "evict_device_leaf": ReferenceModel._evict_leaf,
    "drop_subtree_no_host": ReferenceModel._drop,
    "demote": ReferenceModel._give_back,
    "drive_host_eviction": ReferenceModel._give_back,
    "dec_swa_lock_only": ReferenceModel._give_back,
    "dec_window_lock_only": ReferenceModel._give_back,
}
"""Calls that change what is resident or held."""

_HANDLERS = {**_TELLING, **_CHANGING}
