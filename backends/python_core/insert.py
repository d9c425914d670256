"""Insert: a walk down the tree that frees duplicates, then a new leaf (INS-1 to INS-71).

The walk is a generator: it yields a list of actions at every barrier and returns the result, so
that the rules read top to bottom although the caller runs actions in between (INS-60).
"""

from __future__ import annotations

from collections.abc import Generator

import torch

from ..contract import (
    CacheAction,
    ComponentType,
    ContractError,
    FreeDeviceKV,
    FreeDeviceKVFullOnly,
    InsertParams,
    InsertProtocolError,
    InsertResult,
    InsertStepResult,
    InvalidArgumentError,
    UpdatePendingBackupOnNodeSplit,
)
from . import arguments
from .base import CoreBase
from .chains import backup_chain
from .insertion import Insertion, Request
from .keys import Namespace, PackedKey, has_negative_token, namespace_of, unpack
from .match import deepest_match
from .node import Node
from .tree import Tree
from .window import Window

_DEFERRABLE = (FreeDeviceKV, FreeDeviceKVFullOnly, UpdatePendingBackupOnNodeSplit)

Steps = Generator[list[CacheAction], None, InsertResult]


class InsertWalk:
    """One insert in flight. `node` is where the walk stands."""

    def __init__(self, tree: Tree, request: Request, value: torch.Tensor) -> None:
        """`value` has exactly one entry for each unit of the key and stays the caller's."""
        self._tree = tree
        self._request = request
        self._value = value
        self._result = InsertResult(0, adopted_ranges={} if request.track_adopted_ranges else None)
        self._insertion = Insertion(tree, request, value, self._result)
        self._pending = self._insertion.pending
        self.node = tree.root
        self.steps = self._run()

    @property
    def has_negative_token(self) -> bool:
        """Whether this insert can't be hashed."""
        return has_negative_token(self._request.key.tokens)

    @property
    def namespace(self) -> Namespace | None:
        """The namespace that this insert adds to."""
        return self._request.key.namespace

    def _run(self) -> Steps:
        """The whole insert. Yields at barriers, and always a list that has a barrier in it."""
        result, length = self._result, self._request.key.length
        if self._conflicting_rotation():
            return result
        position = 0
        while position < length:
            child = self._tree.child_at(self.node, self._request.key, position)
            if child is None:
                break
            deferred_count = len(self._pending)
            position = self._overlap(child, position)
            if self._is_barrier_behind(deferred_count):
                yield self.take_pending()
        result.prefix_len = position
        if position < length:
            self.node = self._add_leaf(position)
            self._insertion.is_new_leaf = True
        result.last_device_node = self.node.id
        deferred_count = len(self._pending)
        for component in self._tree.components:
            component.commit_insert(self.node, self._insertion)
        if self._is_barrier_behind(deferred_count):
            yield self.take_pending()
        self._finish(position)
        return result

    def _finish(self, position: int) -> None:
        """Refresh what the insert reached and count the new leaf's hit (INS-44, INS-54)."""
        for component in self._tree.auxiliary:
            component.refresh_after_insert(self.node)
        if self._insertion.is_new_leaf:
            # A window that split the leaf makes this end too small, as in the reference (DIV01-1).
            self._count_hit(self.node, position + self.node.length)

    def _is_barrier_behind(self, deferred_count: int) -> bool:
        """Whether an action after the first `deferred_count` can't wait for the end (INS-60)."""
        emitted = self._pending[deferred_count:]
        return any(not isinstance(action, _DEFERRABLE) for action in emitted)

    def take_pending(self) -> list[CacheAction]:
        """Actions not handed out yet, in the order in which they arose."""
        pending = self._pending.copy()
        self._pending.clear()
        return pending

    def _conflicting_rotation(self) -> bool:
        """Decline an insert whose base differs from that of the deepest match (INS-16, INS-17)."""
        base = self._request.rotation_base
        if base is None:
            return False
        matched, node, _ = deepest_match(self._tree, self._request.key)
        if node is self._tree.root or node.rotation_base == base:
            return False
        self._result.prefix_len = matched
        self._result.last_device_node = node.id
        self._result.rotation_tail_declined = True
        return True

    def _overlap(self, child: Node, position: int) -> int:
        """Walk over a node that the tree has already (INS-21 to INS-24, INS-30)."""
        tree, request = self._tree, self._request
        tree.touch(child)
        length = tree.layout.matched_units(child, request.key, position)
        if length < child.length:
            upper = tree.split(child, length)
            self._pending += tree.split_action(upper, child)
            child = upper
        child.priority = max(child.priority, request.priority)
        consumed = min(
            component.consume_overlap(child, length, position, self._insertion)
            for component in tree.components
        )
        self._free_duplicates(position, consumed)
        self.node = child
        self._count_hit(child, position + length)
        return position + length

    def _free_duplicates(self, position: int, consumed: int) -> None:
        """Give the request's slots back for units that the tree holds already (INS-31)."""
        request = self._request
        start = position + max(0, request.prev_prefix_len - position)
        stop = position + consumed
        if start >= stop:
            return
        # Below this position the window's peers of the slots are gone already.
        middle = min(max(request.window_evicted_len, start), stop)
        if start < middle:
            self._pending.append(FreeDeviceKVFullOnly([self._value[start:middle]]))
        if middle < stop:
            self._pending.append(FreeDeviceKV([self._value[middle:stop]]))

    def _add_leaf(self, position: int) -> Node:
        """Hang the unmatched rest below the current node (INS-40)."""
        tree, request = self._tree, self._request
        key = request.key
        self._result.record_adopted_range(ComponentType.FULL, position, key.length)
        rest = PackedKey(
            tree.layout.span(key.tokens, position, key.length),
            key.length - position,
            key.namespace,
        )
        return tree.add_leaf(
            self.node,
            rest,
            # The caller keeps its tensor, so the tree takes a copy (BND-29).
            self._value[position:].clone(),
            request.priority,
            request.rotation_base,
            request.session_id,
        )

    def _count_hit(self, node: Node, end: int) -> None:
        """Count a visit beyond `inserted_len` and ask for a backup at the threshold (INS-50)."""
        settings = self._tree.settings
        if settings.is_write_back or end <= self._request.inserted_len:
            return
        node.hit_count += 1
        if (
            settings.enable_external_cache_linker
            and not node.external_cache_stored
            and node.write_through_pending_id is None
            and node.hit_count >= settings.write_through_threshold
        ):
            self._pending.append(backup_chain(self._tree, node))


class InsertCalls(CoreBase):
    """The stepped insert as its caller sees it."""

    _insert: InsertWalk | None = None

    def begin_insert(self, params: InsertParams) -> InsertStepResult:
        """Start an insert and run to its first barrier or its end (INS-2, INS-10).

        Raises `InsertProtocolError` while one is suspended, `InvalidArgumentError` for a value
        that does not fit the key or a token that can't be hashed.
        """
        tree = self._tree
        request = _convert(tree, params)
        if params.value is not None:
            arguments.tensor(params.value, "value")
        if params.mamba_value is not None:
            arguments.tensor(params.mamba_value, "mamba_value")
        if self._insert is not None:
            raise InsertProtocolError("concurrent insert walks: one insert is suspended")
        if params.value is None:
            value = self._tokens_as_value(request.key)
        else:
            value = arguments.device_indices(params.value, self.device, request.key.length)
        self._check_components(request)
        if tree.hashes_inserts and has_negative_token(request.key.tokens):
            raise InvalidArgumentError("a negative token can't be hashed")
        tree.events.check_adapter_name(request.key.namespace)
        tree.touch(tree.root)
        tree.root.priority = max(tree.root.priority, request.priority)
        if request.key.length == 0:
            root_id = tree.root.id
            return InsertStepResult([], InsertResult(0, last_device_node=root_id, mamba_exist=True))
        self._insert = InsertWalk(tree, request, value)
        return self._step(self._insert)

    def resume_insert(self) -> InsertStepResult:
        """Go on after a barrier (INS-2).

        Raises `InsertProtocolError` without a suspended insert, `ContractError` if the node it
        stands on was evicted meanwhile.
        """
        walk = self._insert
        if walk is None:
            raise InsertProtocolError("no in-flight insert to resume")
        if walk.node.id not in self._tree.nodes:
            raise ContractError(
                f"the insert stands on node {walk.node.id}, which was evicted: end the insert"
            )
        if self._tree.hashes_inserts and walk.has_negative_token:
            raise InvalidArgumentError("a negative token can't be hashed")
        self._tree.events.check_adapter_name(walk.namespace)
        return self._step(walk)

    def _step(self, walk: InsertWalk) -> InsertStepResult:
        try:
            return InsertStepResult(next(walk.steps))
        except StopIteration as stop:
            if stop.value is None:
                # A foreign error ended an earlier step (INS-70): a table of names that failed
                # although it had answered before the step.
                raise InsertProtocolError("the insert failed and can only be ended") from None
            self._insert = None
            return InsertStepResult(walk.take_pending(), stop.value)

    def has_ongoing_insert(self) -> bool:
        """True exactly while an insert is suspended (INS-4)."""
        return self._insert is not None

    def end_insert(self) -> list[CacheAction]:
        """Drop the insert in flight and return actions not yet handed out (INS-5)."""
        walk, self._insert = self._insert, None
        return [] if walk is None else walk.take_pending()

    def _check_components(self, request: Request) -> None:
        """Refuse what a component could not take over later (SWA-I2, MAM-I5)."""
        for component in self._tree.auxiliary:
            evicted_len = request.evicted_lens.get(component.component_type, 0)
            if isinstance(component, Window) and evicted_len % self.page_size:
                raise InvalidArgumentError(
                    f"an evicted length of {evicted_len} units is not whole pages: round it down"
                )
        has_states = self._find_component(ComponentType.MAMBA) is not None
        if has_states and request.key.length:
            arguments.state_slot(request.mamba_value, self.device)

    def _tokens_as_value(self, key: PackedKey) -> torch.Tensor:
        """The first raw tokens themselves, one per unit (INS-11)."""
        if key.length == 0:
            return torch.empty(0, dtype=torch.int64, device=self.device)
        tokens = torch.frombuffer(unpack(key.tokens), dtype=torch.int64)
        return tokens[: key.length].to(self.device)


def _convert(tree: Tree, params: InsertParams) -> Request:
    """Check all arguments but the value: types and ranges first, then the key (INS-71)."""
    namespace_of(params.key)
    prev_prefix_len = arguments.unsigned(params.prev_prefix_len, "prev_prefix_len")
    evicted = arguments.counts(params.component_evicted_seqlens, "component_evicted_seqlens")
    return Request(
        prev_prefix_len=prev_prefix_len,
        evicted_lens=evicted,
        window_evicted_len=evicted.get(ComponentType.SWA, 0),
        window_branch_len=arguments.optional_unsigned(
            params.swa_branching_seqlen, "swa_branching_seqlen"
        ),
        mamba_value=params.mamba_value,
        inserted_len=arguments.unsigned(params.inserted_len, "inserted_len"),
        priority=arguments.optional_signed(params.priority, "priority") or 0,
        session_id=arguments.optional_text(params.session_id, "session_id"),
        track_adopted_ranges=arguments.flag(params.track_adopted_ranges, "track_adopted_ranges"),
        rotation_base=arguments.optional_signed(params.rotation_base, "rotation_base"),
        key=tree.layout.pack(params.key),
        key_units=tree.layout.units(params.key),
    )
