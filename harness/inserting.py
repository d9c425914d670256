"""Core inserts: what they are given, how far they have got, and what comes back from them.

An insert gets fresh slots: full ones, window peers of those above the evicted lengths, and one
Mamba state. It hides who owns which of them at every moment: the tree keeps what it took, actions
free what it did not want, and the rest is returned when the insert ends, however that happens.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..backends.contract import (
    ComponentType,
    InsertParams,
    InsertResult,
    InsertStepResult,
    NodeId,
    RadixKey,
)
from . import ops
from .tokens import key_tokens
from .walking import close_auxiliary_walks, close_walks

if TYPE_CHECKING:
    from .execute import CoreOps

FULL, SWA, AUXILIARY = ComponentType.FULL, ComponentType.SWA, ComponentType.AUXILIARY_SWA

Starts = dict[ComponentType, int]
"""Where the live part of each window of an insert starts: the evicted lengths."""


@dataclass
class Given:
    """Slots that an insert was given; `state` holds one Mamba slot or is None.

    `answer` is the number under which the node of its result is kept, if any.
    """

    fresh: torch.Tensor
    state: torch.Tensor | None
    answer: int | None = None


class Inserts:
    """Runs the inserts of one side, of which one may be suspended."""

    def __init__(self, side: CoreOps, watches_whole_tree: bool) -> None:
        self._side = side
        self._watches_whole_tree = watches_whole_tree
        self.suspended: Given | None = None

    # --- Ops ------------------------------------------------------------------------------

    def insert(self, op: ops.CoreInsert) -> None:
        """Begin an insert, and run it to its end unless it is to stay suspended."""
        if not op.force:
            self.settle()
        self._end_walks_before_offloads()
        tokens = key_tokens(op)
        length = self._side.units(self._side.key(tokens, op.namespace, op.limit))
        given = self._allocate(length, self._live_starts(op, length))
        if given is None:
            return
        given.answer = op.answer
        params = self._params(op, tokens, given, length)
        if not self._watches_whole_tree:
            self._name_root()
        if self.suspended is not None:
            self._begin_forced(params, given)
            return
        self.suspended = given
        try:
            self._step(self._side.core.begin_insert(params))
        except Exception:
            self.close()
            raise
        if not op.suspend:
            self.settle()

    def resume(self, op: ops.CoreResume) -> None:
        """Go on by one step."""
        if self.suspended is not None:
            self._end_walks_before_offloads()
            self._step(self._side.core.resume_insert())
        elif op.force:
            self._side.core.resume_insert()

    def settle(self) -> None:
        """Run a suspended insert to its end; one that can't go on is abandoned."""
        if self.suspended is not None:
            self._end_walks_before_offloads()
        while self.suspended is not None:
            try:
                self._step(self._side.core.resume_insert())
            except Exception:
                self.close()
                raise

    def close(self, result: InsertResult | None = None) -> None:
        """End the insert in flight, and return what of its slots nobody took."""
        given, self.suspended = self.suspended, None
        self._side.cache.apply(self._side.core.end_insert())
        if given is not None:
            if result is not None:
                self._side.references.remember(given.answer, result.last_device_node)
            self._return_leftovers(given, result)

    def _step(self, step: InsertStepResult) -> None:
        self._side.cache.apply(step.actions)
        if step.result is not None:
            self.close(step.result)

    def _begin_forced(self, params: InsertParams, given: Given) -> None:
        try:
            self._side.core.begin_insert(params)
        finally:
            self._return_leftovers(given, None)

    def _name_root(self) -> None:
        """Number the root before the answer can, so that an answer shows whether it is the root."""
        references = self._side.references
        with references.names.looking():
            references.names.handle(references.core.root_node_handle())

    def _end_walks_before_offloads(self) -> None:
        """An offload locks its node, which the walks of windows and states must not meet."""
        if self._side.core.enable_external_cache_linker:
            close_auxiliary_walks(self._side)

    # --- What an insert is given ----------------------------------------------------------

    def _live_starts(self, op: ops.CoreInsert, length: int) -> Starts:
        """For each window of the tree, from where on a fresh slot gets a peer."""
        evicted = {SWA: op.swa_evicted, AUXILIARY: op.aux_evicted}
        raw = op.raw_evicted
        return {
            kind: self._side.whole_pages(
                max(0, min(evicted.get(kind, 0) if raw is None else raw, length))
            )
            for kind in self._side.cache.pools.windows
        }

    def _allocate(self, length: int, starts: Starts) -> Given | None:
        """Slots for a key; only an allocation that must evict closes the walks that are open."""
        cache, pools = self._side.cache, self._side.cache.pools
        needed = {FULL: length} | {kind: length - start for kind, start in starts.items()}
        if pools.states is not None:
            needed[ComponentType.MAMBA] = 1
        if any(cache.available(kind) < count for kind, count in needed.items()):
            close_walks(self._side)
        fresh = cache.allocate(length, starts)
        if fresh is None:
            return None
        state = None
        if pools.states is not None:
            state = cache.allocate_state()
            if state is None:
                self._free(fresh)
                return None
        return Given(fresh, state)

    def _params(
        self, op: ops.CoreInsert, tokens: array[int], given: Given, length: int
    ) -> InsertParams:
        side, fresh = self._side, given.fresh
        key = side.key(tokens, op.namespace, op.limit)
        if op.value == "none":
            # Then the tokens are the slots (INS-11), so they must be slots that we own.
            slots = fresh.tolist() + [0] * (side.core.is_eagle and length > 0)
            tokens = array("q", slots)
            key = side.key(tokens, op.namespace)
        previous, values = 0, fresh
        if op.owned > 0 and length and op.raw_prev is None:
            previous, values = self._share(key, fresh, op.owned)
        self._write(given, side.content(tokens, op.namespace, length))
        params = InsertParams(
            key=key,
            value=_value_of_kind(op.value, values),
            mamba_value=_state_of_kind(op.state, given.state),
            prev_prefix_len=previous if op.raw_prev is None else side.whole_pages(op.raw_prev),
            inserted_len=op.inserted_len,
            priority=op.priority,
            session_id=op.session_id,
            rotation_base=op.rotation_base,
            track_adopted_ranges=op.track_adopted_ranges,
            swa_branching_seqlen=op.branch if side.config.has_windows else None,
        )
        self._set_evicted(params, op)
        return params

    def _set_evicted(self, params: InsertParams, op: ops.CoreInsert) -> None:
        """Say the evicted lengths. A tree without windows reads the one of SWA too (INS-31)."""
        evicted = {SWA: self._side.whole_pages(op.swa_evicted)}
        if AUXILIARY in self._side.components:
            evicted[AUXILIARY] = self._side.whole_pages(op.aux_evicted)
        if op.raw_evicted is not None and self._side.config.has_windows:
            evicted = dict.fromkeys(evicted, op.raw_evicted)
        for kind, length in evicted.items():
            if length:
                params.set_evicted_seqlen(kind, length)

    def _share(self, key: RadixKey, fresh: torch.Tensor, owned: int) -> tuple[int, torch.Tensor]:
        """Let the caller own a cached prefix of its key, as a request does that was matched.

        A request owns whole nodes. Where this one ends inside a node, a window that is recovered
        takes slots from the start of the node on (SWA-I6), so those must not be the tree's own.
        """
        core = self._side.core
        matched, node, _ = core.match_full_device_prefix(key)
        shared = self._side.whole_pages(min(owned, matched))
        if not shared:
            return 0, fresh
        end = shared
        if self._side.config.has_windows:
            path = core.collect_path_info([node])[0]
            end = max((one.path_end for one in path if one.path_end <= shared), default=0)
        slots = core.collect_full_device_indices(node, core.root_node_handle())
        return shared, torch.cat([slots[:end], fresh[end:]])

    def _write(self, given: Given, content: torch.Tensor) -> None:
        """Compute what the slots hold: the KV of every token, and the state after the last one."""
        pools = self._side.cache.pools
        pools.kv.write(given.fresh, content)
        for window in pools.windows.values():
            window.write(given.fresh, content)
        if pools.states is not None and given.state is not None and content.numel():
            pools.states.write(given.state, content[-1:])

    # --- What comes back ------------------------------------------------------------------

    def _return_leftovers(self, given: Given, result: InsertResult | None) -> None:
        """Free the given slots that neither the tree took nor an action freed."""
        end = None if result is None else result.last_device_node
        self._return_slots(given.fresh, end)
        self._return_stray_peers(given.fresh, end)
        if given.state is not None:
            self._return_state(given.state, result)

    def _return_slots(self, fresh: torch.Tensor, end: NodeId | None) -> None:
        unused = fresh[~self._are_taken(fresh, end)]
        left = unused[self._side.cache.pools.allocator.are_out(unused)]
        if left.numel():
            self._free(left)

    def _are_taken(self, fresh: torch.Tensor, end: NodeId | None) -> torch.Tensor:
        """Which of an insert's slots the tree has; `end` is the node of its result.

        A slot stays at its position, on the path of the insert's key (INS-41). So after an insert
        that has a result the path can be asked, and not the whole tree, which may be large.
        """
        core = self._side.core
        if end is None or self._watches_whole_tree:
            return torch.isin(fresh, core.all_values_flatten())
        path = core.collect_full_device_indices(end, self._side.references.core.root_node_handle())
        taken = torch.zeros_like(fresh, dtype=torch.bool)
        count = min(path.numel(), fresh.numel())
        taken[:count] = path[:count] == fresh[:count]
        return taken

    def _return_stray_peers(self, fresh: torch.Tensor, end: NodeId | None) -> None:
        """Free second-window peers of slots that the tree took for the sake of the first window.

        Only a caller that owns a part of a node makes them: the second window leaves out what the
        caller owns, and the first does not (SWA-I6, SWA-I14).
        """
        core = self._side.references.core
        window = self._side.cache.pools.windows.get(AUXILIARY)
        if window is None:
            return
        for node in self._side.references.live() if end is None else [end]:
            for one in core.collect_path_info([node])[0]:
                full = core.get_component_device_value(one.node_id, FULL)
                value = core.get_component_device_value(one.node_id, AUXILIARY)
                if full is not None and value is None:
                    window.free_mapped_peers(full[torch.isin(full, fresh)])

    def _free(self, slots: torch.Tensor) -> None:
        """Free full slots, their window peers first."""
        pools = self._side.cache.pools
        for window in pools.windows.values():
            window.free_mapped_peers(slots)
        pools.allocator.free(slots)

    def _return_state(self, state: torch.Tensor, result: InsertResult | None) -> None:
        """Free a state that the insert has not taken: it says so (MAM-V8), or it never ended."""
        states = self._side.cache.pools.states
        if states is None:
            return
        if result is not None:
            is_left = result.mamba_exist or result.rotation_tail_declined
        else:
            in_tree = self._side.core.all_mamba_values_flatten().tolist()
            is_left = bool(states.are_out(state)[0]) and state.tolist()[0] not in in_tree
        if is_left:
            states.free(state)


def _value_of_kind(kind: ops.ValueKind, given: torch.Tensor) -> Any:
    """A value of an insert: the slots themselves, or one of the shapes that a core must refuse."""
    if kind == "none":
        return None
    if kind == "short":
        return given[:-1]
    if kind == "float":
        return given.to(torch.float32)
    return given if kind == "slots" else given.reshape(-1, 1)


def _state_of_kind(kind: ops.StateKind, state: torch.Tensor | None) -> torch.Tensor | None:
    """The state of an insert: the slot itself, or what a core with states must refuse (MAM-I5)."""
    if state is None or kind == "none":
        return None
    return state if kind == "fresh" else state.repeat(2)
