"""Python cores with one thing broken each: what the lockstep and the oracles must notice.

A mutant is a function that spoils a fresh core. The ones here stand for the usual slips of a
port: an order, a unit, a forgotten line, an error of the wrong kind.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from treedrift.backends.contract import (
    CacheInitParams,
    ContractError,
    FreeDeviceKV,
    FreeDeviceKVFullOnly,
    InvalidArgumentError,
    TreeCore,
)
from treedrift.backends.python_core import PythonTreeCore
from treedrift.backends.python_core.inspection import inspect_tree
from treedrift.backends.python_core.keys import KeyLayout
from treedrift.harness.side import LocalSide

Mutation = Callable[[Any], None]


def side(*mutations: Mutation) -> LocalSide:
    """A side on a Python core with these faults, or on a sound one."""

    def create(params: CacheInitParams) -> TreeCore:
        core = PythonTreeCore(params)
        for mutate in mutations:
            mutate(core)
        return core

    return LocalSide(create, inspect_tree)


def _after(owner: Any, name: str, then: Callable[..., Any]) -> None:
    """Give a method another answer: what `then` makes of the true one and the arguments."""
    method = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        return then(method(*args, **kwargs), *args)

    setattr(owner, name, call)


# --- Order of eviction --------------------------------------------------------------------


def flipped_tie_break(core: Any) -> None:
    """LFU prefers the newer of two equally frequent leaves."""
    if core._tree.policy.name == "lfu":
        core._tree.policy.rank_of = lambda node: (node.hit_count, -node.last_access_time)


def threshold_off_by_one(core: Any) -> None:
    """SLRU protects one visit too late."""
    if core._tree.policy.name == "slru":
        rank_of = core._tree.policy.rank_of

        def rank(node: Any) -> Any:
            node.hit_count -= 1
            try:
                return rank_of(node)
            finally:
                node.hit_count += 1

        core._tree.policy.rank_of = rank


def skipped_touch(core: Any) -> None:
    """A match leaves the recency of inner nodes alone."""
    touch = core._tree.touch
    core._tree.touch = lambda node: touch(node) if not node.children else None


def forgotten_touch_of_a_split(core: Any) -> None:
    """The lower half of a split keeps its old time."""
    split = core._tree.split

    def call(lower: Any, length: int) -> Any:
        time = lower.last_access_time
        upper = split(lower, length)
        lower.last_access_time = time
        return upper

    core._tree.split = call


def lost_hit_count(core: Any) -> None:
    """The upper half of a split starts counting anew."""
    _after(core._tree, "split", lambda upper, *_: (setattr(upper, "hit_count", 0), upper)[1])


def short_history(core: Any) -> None:
    """T-LRU lengths of ancestors are not raised."""

    def extend(leaf: Any, parent: Any) -> None:
        leaf.prefix_length = leaf.history_length = parent.prefix_length + leaf.length

    core._tree._extend_history = extend


def no_cascade(core: Any) -> None:
    """A walk never offers the parent that its victim leaves without children."""
    open_walk = core._tree.full.open_walk

    def call(count: int) -> None:
        open_walk(count)
        walk = core._tree.full._walk
        full = core._tree.full
        true_next = walk.next_victim

        def next_victim(evicted: int) -> Any:
            known = {number for _, number in walk._heap}
            victim = true_next(evicted)
            while victim is not None and victim.id not in known:
                walk._last_victim = None
                victim = true_next(evicted)
            return victim

        full.next_victim = next_victim

    core._tree.full.open_walk = call


def greedy_walk(core: Any) -> None:
    """A walk goes on for one token more than was asked for."""
    open_walk = core._tree.full.open_walk
    core._tree.full.open_walk = lambda count: open_walk(count + 1)


# --- Keys, values and sizes ---------------------------------------------------------------


def off_by_one_page(core: Any) -> None:
    """A partial match ends one page early."""

    class Layout(KeyLayout):
        __slots__ = ()

        def matched_units(self, node: Any, key: Any, position: int) -> int:
            length = super().matched_units(node, key, position)
            is_cut = length < node.length and length > self.page_size
            return length - self.page_size if is_cut else length

    core._tree.layout.__class__ = Layout


def wrong_free_order(core: Any) -> None:
    """An evicted leaf gives its slots back from the end."""
    page = core.page_size

    def then(frees: Any, *_: Any) -> Any:
        return {
            kind: [value.reshape(-1, page).flip(0).flatten() for value in values]
            for kind, values in frees.items()
        }

    _after(core._tree, "delete_leaf", then)


def wrong_evictable_size(core: Any) -> None:
    """A leaf longer than one page counts one unit too much when it goes."""

    def then(value: Any, node: Any) -> Any:
        if node.length > core.page_size:
            core._tree.full.evictable -= 1
        return value

    _after(core._tree.full, "evict_device", then)


def moved_child(core: Any) -> None:
    """A split puts the new node behind its siblings."""

    def then(upper: Any, *_: Any) -> Any:
        children = upper.parent.children
        slot = next(slot for slot, child in children.items() if child is upper)
        children[slot] = children.pop(slot)
        return upper

    _after(core._tree, "split", then)


def crossed_values(core: Any) -> None:
    """A split hands the halves of the value out the wrong way round where both are equal."""

    def then(upper: Any, lower: Any, *_: Any) -> Any:
        if upper.length == lower.length:
            mine, theirs = upper.full, lower.full
            mine.device_value, theirs.device_value = theirs.device_value, mine.device_value
        return upper

    _after(core._tree, "split", then)


def reused_handle(core: Any) -> None:
    """A new node takes the handle of the last one that went."""
    tree = core._tree
    free: list[int] = []
    delete, make = tree.delete_leaf, tree._new_node

    def delete_leaf(leaf: Any) -> Any:
        free.append(leaf.id)
        return delete(leaf)

    def new_node(*args: Any) -> Any:
        node = make(*args)
        if free:
            del tree.nodes[node.id]
            node.id = free.pop()
            tree.nodes[node.id] = node
        return node

    tree.delete_leaf, tree._new_node = delete_leaf, new_node


# --- Actions and results ------------------------------------------------------------------


def _edit_actions(core: Any, edit: Callable[[list[Any]], list[Any]]) -> None:
    def then(step: Any, *_: Any) -> Any:
        step.actions = edit(step.actions)
        return step

    _after(core, "begin_insert", then)
    _after(core, "resume_insert", then)


def leaked_slots(core: Any) -> None:
    """An insert forgets the last of the slots that it should give back."""
    _edit_actions(core, lambda actions: actions[:-1])


def action_of_another_type(core: Any) -> None:
    """Duplicates are given back for the full pool alone."""

    def edit(actions: list[Any]) -> list[Any]:
        return [
            FreeDeviceKVFullOnly(action.indices) if isinstance(action, FreeDeviceKV) else action
            for action in actions
        ]

    _edit_actions(core, edit)


def ignored_rotation(core: Any) -> None:
    """An insert of a conflicting rotation base is not declined."""
    begin = core.begin_insert

    def call(params: Any) -> Any:
        params.rotation_base = None
        return begin(params)

    core.begin_insert = call


def truth_as_a_number(core: Any) -> None:
    """A predicate answers 1 and 0, which are equal to True and False and of another type."""
    _after(core, "is_root", lambda answer, *_: int(answer))


# --- Locks and refusals -------------------------------------------------------------------


def lock_not_released(core: Any) -> None:
    """Releasing a path of several nodes forgets the node below the root."""
    full = core._tree.full
    unpin = full.unpin

    def call(node: Any) -> None:
        unpin(node)
        root = core._tree.root
        if node is not root and node.parent is not root:
            while node.parent is not root:
                node = node.parent
            full.pin(node)

    full.unpin = call


def error_of_another_class(core: Any) -> None:
    """A receipt of another node is called a bad value."""
    release = core.dec_lock_ref

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return release(*args, **kwargs)
        except ContractError as error:
            raise InvalidArgumentError(str(error)) from None

    core.dec_lock_ref = call


def refusal_that_changes(core: Any) -> None:
    """A refused release has touched the node before it is refused."""
    release = core.dec_lock_ref

    def call(node: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return release(node, *args, **kwargs)
        except ContractError:
            core._tree.touch(core._tree.nodes[node])
            raise

    core.dec_lock_ref = call


# --- Events -------------------------------------------------------------------------------


def lost_event(core: Any) -> None:
    """What leaves the device is not told, unless something left just before."""
    record = core._tree.events.record_removed

    def call(node: Any) -> None:
        if node.parent is core._tree.root:
            record(node)

    core._tree.events.record_removed = call


def doubled_event(core: Any) -> None:
    """A removal is told twice."""
    record = core._tree.events.record_removed
    core._tree.events.record_removed = lambda node: (record(node), record(node))


def reversed_events(core: Any) -> None:
    """Queued events come newest first."""
    _after(core, "take_events", lambda events, *_: events[::-1])


def lost_session(core: Any) -> None:
    """Stored blocks do not name the session that they came with."""
    record = core._tree.events.record_stored
    core._tree.events.record_stored = lambda node, session, layout: record(node, None, layout)


def wrong_block_hash(core: Any) -> None:
    """The last block of a stored event has another hash than its tokens."""

    def then(events: Any, *_: Any) -> Any:
        for event in events:
            if type(event).__name__ == "BlockStored":
                event.block_hashes[-1] ^= 1
        return events

    _after(core, "take_events", then)


def unhealthy(core: Any) -> None:
    """A split leaves its upper half among the leaves, which the core's own check sees."""
    _after(core._tree, "split", lambda upper, *_: (core._tree.device_leaves.add(upper), upper)[1])


def unsorted_heap(core: Any) -> None:
    """A walk takes leaves in the order of a list that nobody made a heap of."""
    open_walk = core._tree.full.open_walk

    def call(count: int) -> None:
        open_walk(count)
        walk = core._tree.full._walk
        heapq.heapify(walk._heap)
        walk._heap.reverse()

    core._tree.full.open_walk = call
