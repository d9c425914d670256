"""The reference model: a small dictionary of prefixes says what a core must answer.

It hears every call that a side makes. From the inserts and evictions alone it knows which pages
are resident, in which slots, where nodes end, and which windows and states there are, and from the
locks which of them are held. From these follow, exactly, on the device tier: how far a key
matches, which slots a path has, what an insert takes over and frees, what may be evicted, and all
sizes.

Written from the rules as plainly as they allow: it walks from page to page where a core keeps
lists and counters. It judges no order of recency and no hit counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..backends.contract import (
    BackupKV,
    CacheAction,
    ComponentType,
    InsertParams,
    InsertResult,
    InsertStepResult,
    MambaEvictExcessPathStates,
    MatchPrefixParams,
    MatchResult,
    NodeId,
    PoolName,
    RadixKey,
    RecoverSWAWithLockedFull,
    SWARebuild,
    TreeCoreError,
)
from .insertion import AUXILIARY, Insertion, Wish, wishes_of
from .model_evictions import EvictionModel
from .model_memory import FULL, named, short
from .prefixes import MAMBA, Page

SWA = ComponentType.SWA

REFUSALS = (TreeCoreError, TypeError, OverflowError, AttributeError)
"""Errors of a call that changed nothing (BND-45)."""


class ReferenceModel(EvictionModel):
    """What one side's core must answer; see `ModelMemory` for how it is made and read."""

    def listener(self, method: str) -> Callable[..., None] | None:
        """Who hears a call of this method: told its result, then its arguments."""
        if method == "reset":
            return lambda result: self._forget()
        handler = _HANDLERS.get(method)
        if handler is None:
            return None

        def hear(*call: Any, **keywords: Any) -> None:
            if not self.is_lost:
                handler(self, *call, **keywords)

        return hear

    def failed(self, method: str, error: Exception) -> None:
        """A call raised; what it had changed by then is unknown unless it was refused."""
        if method in _CHANGING and not isinstance(error, REFUSALS):
            self.is_lost = True

    def check_sizes(self, sizes: Mapping[ComponentType, tuple[int, int]]) -> None:
        """Evictable and protected units of each component, once an op is done (SIZE-1)."""
        if self.is_lost:
            return
        known = self._prefixes
        for kind, (evictable, protected) in sizes.items():
            is_full = kind is FULL
            stored = known.resident if is_full else known.stored[kind]
            locked = known.protected if is_full else known.locked[kind]
            if evictable + protected != stored:
                self._expect(f"size of {named(kind)}", evictable + protected, stored)
            elif protected != locked and not self._unplaced:
                self._expect(f"protected size of {named(kind)}", protected, locked)

    # --- Match and paths ------------------------------------------------------------------

    def _longest(self, key: RadixKey) -> Page:
        chain = self._prefixes.longest(self._prefixes.contents(key))
        return chain[-1] if chain else self._prefixes.root

    def _match_prefix(self, result: MatchResult, params: MatchPrefixParams) -> None:
        self._quotas.clear()  # What changes the tree disturbs the walks that are open (EVD-16).
        chain = self._prefixes.longest(self._prefixes.contents(params.key))
        end = chain[-1] if chain else self._prefixes.root
        self._expect("full_kv_hit_length of a match", result.full_kv_hit_length, end.length)
        self._expect("host_hit_length of a match", result.host_hit_length, 0)
        end.is_end = (
            True  # A match splits the node in which it ends, whatever it answers (MATCH-5).
        )
        if self._kinds and self._insertion is not None and self._insertion.is_vague:
            return
        best = self._boundary(chain)
        self._expect("device_prefix_len of a match", result.device_prefix_len, best.length)
        for node in (result.last_device_node, result.best_match_node, result.last_host_node):
            self._place(node, best)
        if result.last_visited_node_id is not None:
            self._place(result.last_visited_node_id, end)
        self._check_branches(result, best.length, end.length)

    def _boundary(self, chain: list[Page]) -> Page:
        """The last end of a node that every component accepts (SWA-M2, SWA-M4, MAM-M1)."""
        best = self._prefixes.root
        runs = dict.fromkeys(self._windows, 1 << 63)
        for page in chain:
            for kind in runs:
                runs[kind] = runs[kind] + self._prefixes.page_size if kind in page.values else 0
            is_accepted = all(
                run >= self._windows[kind]
                or (kind not in page.values and not self._config.window_gates)
                for kind, run in runs.items()
            )
            has_state = not self._config.has_states or MAMBA in page.values
            if page.is_end and is_accepted and has_state:
                best = page
        return best

    def _check_branches(self, result: MatchResult, boundary: int, hit: int) -> None:
        """Where a state or a window would help, if that is beyond the boundary (SWA-M8, MAM-M8)."""
        window = hit if self._windows and hit > boundary else None
        self._expect("swa_branching_seqlen of a match", result.swa_branching_seqlen, window)
        on_grid = hit // self._config.state_grid * self._config.state_grid
        state = on_grid if self._config.has_states and on_grid > boundary else None
        self._expect("mamba_branching_seqlen of a match", result.mamba_branching_seqlen, state)

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
            self._find(f"a path has slots {short(told)}, must have {short(expected)}")

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

    def _offload(self, transfers: Any, node_id: NodeId) -> None:
        for transfer in transfers or ():
            if transfer.name == PoolName.KV:
                self._value(transfer.device_indices, node_id)

    def _flatten(self, slots: Any) -> None:
        told = slots.tolist()
        self._expect("number of slots in the tree", len(told), self._prefixes.resident)
        foreign = self._prefixes.foreign(told)
        if foreign:
            self._find(f"the tree has slots {short(foreign)}, which no prefix has")

    def _flatten_states(self, slots: Any) -> None:
        told = sorted(slots.tolist())
        if told != self._prefixes.states():
            self._find(f"the tree has states {short(told)}, must have {self._prefixes.states()}")

    def _rotation_base(self, result: int | None, node_id: NodeId) -> None:
        page = self._ends.get(node_id)
        if page is not None:
            self._expect("rotation base of a node", result, page.rotation_base)

    # --- Values ---------------------------------------------------------------------------

    def _value(self, slots: Any, node_id: NodeId, component_type: ComponentType = FULL) -> None:
        """A node's own slots: they end its path, or tell where an unknown node ends."""
        if component_type is not FULL:
            self._other_value(slots, node_id, component_type)
        if slots is None or component_type is not FULL or not len(slots):
            return
        own = slots.tolist()
        known = self._prefixes
        end = self._ends.get(node_id) or known.owner(own[-known.page_size :])
        path = known.path(end, known.root) if end is not None else None
        if end is None or path is None or path[-len(own) :] != own:
            self._find(f"a node has slots {short(own)}, which are not those of its prefix")
        else:
            self._place(node_id, end)

    def _other_value(self, slots: Any, node_id: NodeId, kind: ComponentType) -> None:
        """A node's window or state: all of it, or none."""
        end = self._ends.get(node_id)
        if end is None or not end.slots or (kind in self._windows and not end.is_end):
            return
        told = None if slots is None else slots.tolist()
        entries = [slot for page in self._node(end, kind) for slot in page.values.get(kind, ())]
        self._expect(f"value of {named(kind)}", told, entries or None)

    def _node(self, end: Page, kind: ComponentType) -> list[Page]:
        """The pages at which a component keeps its value of a node."""
        return [end] if kind is MAMBA else self._prefixes.node_of(end)

    def _store(
        self, result: None, node_id: NodeId, component_type: ComponentType, value: Any
    ) -> None:
        """A value is stored by hand, or as an action asked for (SWA-A8, MAM-I15)."""
        self._quotas.clear()
        end = self._ends.get(node_id)
        if end is None or end is self._prefixes.root:
            self.is_lost = True  # A node that nobody placed, or a misuse that was let through.
            return
        self._put(self._node(end, component_type), component_type, value.tolist())

    def _put(self, pages: list[Page], kind: ComponentType, entries: list[int]) -> None:
        width = 1 if kind is MAMBA else self._prefixes.page_size
        if any(kind in page.values for page in pages):
            self._find(f"{named(kind)} is stored at {pages[-1].length} units, where it is already")
        elif len(entries) != len(pages) * width:
            self._find(f"{named(kind)} of {len(entries)} entries is stored for {len(pages)} pages")
        else:
            for number, page in enumerate(pages):
                self._prefixes.store(page, kind, entries[number * width : (number + 1) * width])

    def _ranges(
        self,
        result: list[tuple[int, int]],
        key: RadixKey,
        start: int,
        end: int,
        component_type: ComponentType = SWA,
    ) -> None:
        """The spans of a cached key that have no window (SWA-B1)."""
        expected: list[tuple[int, int]] = []
        size = self._prefixes.page_size
        for page in self._prefixes.longest(self._prefixes.contents(key)):
            first, last = max(start, page.length - size), min(end, page.length)
            if component_type in page.values or first >= last:
                continue
            if expected and expected[-1][1] == first:
                first = expected.pop()[0]
            expected.append((first, last))
        if start < end:  # Of an empty span the released Python core tells where it would begin.
            told = [tuple(one) for one in result]
            self._expect(f"ranges without {named(component_type)}", told, expected)

    def _attach(
        self,
        result: Any,
        key: RadixKey,
        window_start: int,
        window_end: int,
        swa_values: Any,
        component_type: ComponentType = SWA,
    ) -> None:
        """Window rows are published on a span that has none; its ends cut nodes (SWA-B4)."""
        self._quotas.clear()
        chain = self._prefixes.longest(self._prefixes.contents(key))
        pages = [page for page in chain if window_start < page.length <= window_end]
        if not pages:
            return
        before = pages[0].before
        if before is not None:
            before.is_end = True
        pages[-1].is_end = True
        self._put(pages, component_type, swa_values.tolist())

    # --- Insert ---------------------------------------------------------------------------

    def _begin_insert(self, step: InsertStepResult, params: InsertParams) -> None:
        self._quotas.clear()
        self._insertion = Insertion(self._prefixes, self._config, params)
        self._resume_insert(step)

    def _resume_insert(self, step: InsertStepResult) -> None:
        insertion = self._insertion
        if insertion is None:
            self._find("an insert goes on that was never begun")
        elif not all(page.slots for page in insertion.chain):
            # What it walked over was evicted meanwhile: what it hangs the rest on is not known.
            self.is_lost = True
        else:
            self._compare_wishes(insertion, step.actions)
            if step.result is not None and not self.is_lost:
                self._insertion = None
                self._finish_insert(insertion, step.result)

    def _end_insert(self, actions: list[Any]) -> None:
        insertion, self._insertion = self._insertion, None
        if insertion is not None:
            self._compare_wishes(insertion, actions)
            self.is_lost |= insertion.is_vague and bool(self._kinds)

    def _compare_wishes(self, insertion: Insertion, actions: list[Any]) -> None:
        """Of the given slots an insert frees, adopts and rebuilds the right ones, in order."""
        for kind, told in wishes_of(actions).items():
            expected = insertion.coming(kind, len(told))
            for one, other in zip(told, expected, strict=False):
                if one != other:
                    self._find(f"an insert asks for {wish(one)}, must ask for {wish(other)}")
            if len(told) > len(expected):
                self._find(f"an insert asks for {wish(told[len(expected)])} too")
        insertion.is_vague = any(isinstance(action, BackupKV) for action in actions)
        for action in actions:
            self._place_asked(insertion, action)

    def _place_asked(self, insertion: Insertion, action: CacheAction) -> None:
        """The slots of an action that asks for a window are all of its node's."""
        match action:
            case SWARebuild(node_id=node_id, source_value=slots):
                run = slots.tolist()
            case RecoverSWAWithLockedFull(node_id=node_id, kept_full=slots):
                run = slots.tolist()
            case MambaEvictExcessPathStates(tail_node_id=node_id):
                self._place(node_id, insertion.target)
                return
            case _:
                return
        node = self._pages_of(run)
        if node is None:
            self._find(f"an insert asks for a window of {short(run)}, which no node has")
        else:
            self._place(node_id, node[-1])

    def _finish_insert(self, insertion: Insertion, result: InsertResult) -> None:
        params = insertion.params
        for missing in (insertion.coming(SWA) + insertion.coming(AUXILIARY))[:1]:
            self._find(f"an insert does not ask for {wish(missing)}")
        end, declines = insertion.end, insertion.declines
        self._expect("rotation_tail_declined", result.rotation_tail_declined, declines)
        self._expect("prefix_len of an insert", result.prefix_len, end.length)
        exists = insertion.is_empty or insertion.has_state
        self._expect("mamba_exist of an insert", result.mamba_exist, exists)
        branch = insertion.has_branch()
        self._expect("swa_branch_inserted of an insert", result.swa_branch_inserted, branch)
        if self.is_lost or declines:
            return
        self._place(result.last_device_node, insertion.target)
        if params.track_adopted_ranges and not insertion.is_empty:
            told, adopted = result.adopted_ranges, insertion.adopted()
            self._expect("adopted_ranges of an insert", told, adopted)


def wish(one: Wish) -> str:
    """A wish as a message tells it."""
    name, slot, other = one
    moved = f" from slot {other}" if other else ""
    return f"{name} of slot {slot}{moved}" if slot else name


_TELLING: dict[str, Callable[..., None]] = {
    "root_node_handle": lambda model, node, *_: model._place(node, model._prefixes.root),
    "match_prefix": ReferenceModel._match_prefix,
    "match_full_device_prefix": ReferenceModel._match_device,
    "collect_full_device_indices": ReferenceModel._path,
    "collect_path_info": ReferenceModel._path_info,
    "get_component_device_value": ReferenceModel._value,
    "build_external_linker_offload_transfers": ReferenceModel._offload,
    "all_values_flatten": ReferenceModel._flatten,
    "all_mamba_values_flatten": ReferenceModel._flatten_states,
    "swa_tombstone_ranges": ReferenceModel._ranges,
    "rotation_base_of": ReferenceModel._rotation_base,
}
"""Calls that tell what the core holds."""

_CHANGING: dict[str, Callable[..., None]] = {
    "begin_insert": ReferenceModel._begin_insert,
    "resume_insert": ReferenceModel._resume_insert,
    "end_insert": ReferenceModel._end_insert,
    "set_component_device_value": ReferenceModel._store,
    "attach_swa_window": ReferenceModel._attach,
    "inc_lock_ref": ReferenceModel._inc_lock,
    "dec_lock_ref": ReferenceModel._dec_lock,
    "dec_swa_lock_only": ReferenceModel._dec_swa,
    "dec_window_lock_only": ReferenceModel._dec_window,
    "inc_full_pin": lambda model, result, node_id: model._lock(node_id, 1),
    "dec_full_pin": lambda model, result, node_id: model._lock(node_id, -1),
    "evict_device_start": ReferenceModel._start_walk,
    "evict_device_end": ReferenceModel._end_walk,
    "evict_device_next_node": ReferenceModel._offer,
    "evict_device_leaf": ReferenceModel._evict_leaf,
    "evict_excess_path_states": ReferenceModel._cap_path,
    "drop_subtree_no_host": ReferenceModel._drop,
    "demote": ReferenceModel._give_back,
    "drive_host_eviction": ReferenceModel._give_back,
}
"""Calls that change what is resident or held."""

_HANDLERS = {**_TELLING, **_CHANGING}
