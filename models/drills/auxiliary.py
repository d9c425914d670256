"""Drills of what windows and states share: their walks, lists, cascades, ledgers and readers."""

from __future__ import annotations

from typing import Any

from treedrift.backends.contract import (
    ComponentType,
    EvictDeviceNextNodeResult,
    RecoverEvictedSWA,
)
from treedrift.backends.python_core.cascade import evict_inner

from .drill import (
    Theme,
    after,
    before,
    during,
    on_auxiliary,
    on_component,
    on_insert,
    on_recency,
    on_split,
    on_states,
    on_windows,
    override,
)

drill = Theme("hybrid")


# --- Walks --------------------------------------------------------------------------------


@drill("SWA-E2", "a list is walked from the wrong end")
def walk_from_the_recent_end(core: Any) -> None:
    """A walk of windows begins with the most recent one."""

    def spoil(window: Any) -> None:
        def then(*_: Any) -> None:
            unlocked = [each for each in window.recency if window.is_unlocked(each)]
            window._walk.cursor = unlocked[0] if unlocked else None

        after(window, "open_walk", then)

    on_windows(core, spoil)


@drill("SWA-E2", "a condition too many", profile="swa")
def walk_spares_locked_tokens(core: Any) -> None:
    """A walk of windows leaves out nodes whose tokens are locked, although the window is not."""
    on_windows(core, _spares_locked_tokens)


@drill("MAM-E6", "a condition too many", profile="mamba")
def walk_spares_states_of_locked_tokens(core: Any) -> None:
    """A walk of states leaves out nodes whose tokens are locked, although the state is not."""
    on_states(core, _spares_locked_tokens)


def _spares_locked_tokens(component: Any) -> None:
    after(component, "is_unlocked", lambda answer, node: answer and node.full.lock_ref == 0)


@drill("LRU-9", "a condition is forgotten")
def walk_stops_at_a_lock(core: Any) -> None:
    """A walk does not step over locked nodes."""

    def next_newer(self: Any, node: Any, _: Any) -> Any:
        return self._links[node].newer.node

    on_auxiliary(core, lambda component: on_recency(component, next_newer=next_newer))


@drill("SWA-E3", "a condition is never true")
def lost_cursor_ends_the_walk(core: Any) -> None:
    """A walk ends when the node that came next is gone."""

    def spoil(component: Any) -> None:
        def first(*_: Any) -> None:
            walk = component._walk
            if walk is not None and walk.cursor not in component.recency:
                walk.cursor = None

        before(component, "next_victim", first)

    on_auxiliary(core, spoil)


@drill("SWA-E3", "off by one: `>` for `>=`")
def walk_gives_one_too_many(core: Any) -> None:
    """A walk goes on when exactly as much was evicted as was asked for."""

    def spoil(component: Any) -> None:
        open_walk = component.open_walk
        component.open_walk = lambda count: open_walk(count + 1)

    on_auxiliary(core, spoil)


@drill("SWA-E5", "a branch is forgotten")
def leaf_loses_its_value_alone(core: Any) -> None:
    """A walk of windows or states takes their value off a leaf and leaves the leaf."""

    def then(result: Any, component_type: Any, *_: Any) -> Any:
        component = core._find_component(component_type)
        if result.node_id is None or component is core._tree.full:
            return result
        frees = evict_inner(component, core._tree.nodes[result.node_id])
        counts = {kind: sum(map(len, slots)) for kind, slots in frees.items()}
        return EvictDeviceNextNodeResult(device_frees=frees, tracker=counts, made_progress=True)

    after(core, "evict_device_next_node", then)


@drill("SWA-E6", "a condition is forgotten")
def locked_leaf_offered(core: Any) -> None:
    """A walk offers a childless node as a leaf although its tokens are locked."""
    offered: list[Any] = []

    def spoil(component: Any) -> None:
        def then(victim: Any, *_: Any) -> Any:
            leaves = core._tree.device_leaves
            if victim is not None and not victim.children and victim not in leaves:
                leaves.add(victim)
                offered.append(victim)
            return victim

        after(component, "next_victim", then)

    def finish(result: Any, *_: Any) -> Any:
        core._tree.device_leaves.difference_update(offered)
        offered.clear()
        return result

    on_auxiliary(core, spoil)
    after(core, "evict_device_next_node", finish)


@drill("MAM-E7", "a loop for a step")
def two_at_a_time(core: Any) -> None:
    """One step of a walk of states frees two of them."""
    step = core.evict_device_next_node

    def call(component_type: Any, tracker: Any) -> Any:
        result = step(component_type, tracker)
        if component_type != ComponentType.MAMBA or not result.tracker:
            return result
        other = core._find_component(component_type)
        victim = other._walk.cursor
        if victim is None or victim in core._tree.device_leaves or not other.is_unlocked(victim):
            return result
        other.next_victim(0)
        for kind, slots in evict_inner(other, victim).items():
            result.device_frees.setdefault(kind, []).extend(slots)
            result.tracker[kind] = result.tracker.get(kind, 0) + sum(map(len, slots))
        return result

    core.evict_device_next_node = call


@drill("SWA-E7", "a count is kept on the wrong side", "BUG-27")
def tombstone_not_counted(core: Any) -> None:
    """A step that takes a value off an inner node does not say how much it freed."""

    def then(result: Any, *_: Any) -> Any:
        result.tracker.clear()
        return result

    after(core, "evict_device_next_node", then)


@drill("MAM-D4", "a unit is mixed up", profile="mamba")
def states_counted_in_tokens(core: Any) -> None:
    """A state that is evicted counts as many as its node has tokens."""

    def then(result: Any, component_type: Any, *_: Any) -> Any:
        if component_type == ComponentType.MAMBA and result.tracker:
            result.tracker[component_type] = spoilt_lengths.pop()
        return result

    spoilt_lengths: list[int] = []
    on_states(
        core,
        lambda states: before(
            states, "evict_device", lambda node: spoilt_lengths.append(node.length)
        ),
    )
    after(core, "evict_device_next_node", then)


# --- What goes together -------------------------------------------------------------------


@drill("SWA-E8", "a loop is forgotten")
def window_goes_without_the_state(core: Any) -> None:
    """An inner node that loses its window keeps its state."""
    on_windows(core, lambda window: setattr(window, "taken_along", lambda node: []))


@drill("MAM-D7", "a constant of another component")
def state_takes_the_window_along(core: Any) -> None:
    """An inner node that loses its state loses its window as well."""
    on_states(
        core, lambda states: during(states, "taken_along", states, "internal_priority", lambda _: 1)
    )


@drill("SWA-E8", "a check is forgotten", profile="windows")
def locked_second_window_taken_along(core: Any) -> None:
    """An inner node that loses one window loses the other, too, although it is locked."""

    def spoil(window: Any) -> None:
        taken_along = window.taken_along

        def call(node: Any) -> Any:
            others = [each for each in core._tree.auxiliary if each.internal_priority == 1]
            kept = [each.data(node).lock_ref for each in others]
            for each in others:
                each.data(node).lock_ref = 0
            try:
                return taken_along(node)
            finally:
                for each, lock_ref in zip(others, kept, strict=True):
                    each.data(node).lock_ref = lock_ref

        window.taken_along = call

    on_windows(core, spoil)


@drill("MAM-L14", "a check is forgotten")
def locked_state_taken_along(core: Any) -> None:
    """An inner node that loses its window loses its state, too, although that is locked."""

    def spoil(window: Any) -> None:
        taken_along = window.taken_along

        def call(node: Any) -> Any:
            states = core._find_component(ComponentType.MAMBA)
            if states is None:
                return taken_along(node)
            data = states.data(node)
            kept, data.lock_ref = data.lock_ref, 0
            try:
                return taken_along(node)
            finally:
                data.lock_ref = kept

        window.taken_along = call

    on_windows(core, spoil)


@drill("SWA-E9", "a loop ends one step early", profile="swa")
def window_outlives_its_leaf(core: Any) -> None:
    """A leaf that is evicted leaves its window behind in list and ledger."""

    def spoil(window: Any) -> None:
        evict = window.evict_device
        window.evict_device = lambda node: None if node in core._tree.device_leaves else evict(node)

    on_windows(core, spoil)


@drill("SWA-E10", "the wrong indices are returned", profile="swa")
def window_slots_freed_for_full(core: Any) -> None:
    """A window that is evicted is freed by its own slots and not by the tokens' slots."""
    on_windows(core, lambda window: setattr(window, "freed_slots", lambda node, value: value))


@drill("MAM-A2", "a habit of another component", profile="mamba")
def state_freed_by_the_tokens_slots(core: Any) -> None:
    """A state that is evicted is freed by the slots of its node's tokens."""

    def freed(node: Any, value: Any) -> Any:
        return node.full.device_value

    on_states(core, lambda states: setattr(states, "freed_slots", freed))


# --- Lists and ledgers --------------------------------------------------------------------


@drill("LRU-4", "a line is forgotten")
def evicted_but_listed(core: Any) -> None:
    """A node whose window or state is evicted stays in the list."""

    def spoil(component: Any) -> None:
        def then(slots: Any, node: Any) -> Any:
            if slots is not None and node not in component.recency:
                component.recency.push(node)
            return slots

        after(component, "evict_device", then)

    on_auxiliary(core, spoil)


@drill("LRU-3", "two arguments are swapped")
def prefix_before_its_suffix(core: Any) -> None:
    """The upper half of a split becomes just more recent than the lower one."""

    def spoil(component: Any, upper: Any, lower: Any) -> None:
        if upper in component.recency and lower in component.recency:
            component.recency.remove(lower)
            component.recency.push_behind(lower, upper)

    on_split(
        core,
        lambda upper, lower: on_auxiliary(core, lambda component: spoil(component, upper, lower)),
    )


@drill("SWA-S5", "a list move too many", "BUG-11")
def cold_suffix_most_recent(core: Any) -> None:
    """A split makes its lower half the most recent one in the lists of windows and states."""

    def spoil(component: Any, upper: Any, lower: Any) -> None:
        recency = component.recency
        if lower in recency:
            recency.promote(lower)
            if upper in recency:
                recency.remove(upper)
                recency.push_behind(upper, lower)

    on_split(
        core,
        lambda upper, lower: on_auxiliary(core, lambda component: spoil(component, upper, lower)),
    )


@drill("LRU-5", "a call is forgotten")
def nothing_is_promoted(core: Any) -> None:
    """Windows and states keep their places, however often they are used."""

    def promote(self: Any, node: Any) -> None:
        assert node in self

    on_auxiliary(core, lambda component: on_recency(component, promote=promote))


@drill("RST-3", "a state is not cleared")
def reset_keeps_auxiliary_sizes(core: Any) -> None:
    """A reset leaves the sizes of windows and states as they were."""

    def spoil(component: Any) -> None:
        reset = component.reset

        def call() -> None:
            kept = component.evictable, component.protected
            reset()
            component.evictable, component.protected = kept

        component.reset = call

    on_auxiliary(core, spoil)


@drill("RST-3", "a state is not cleared")
def reset_leaves_walks_open(core: Any) -> None:
    """A reset does not close the walks of windows and states."""

    def spoil(component: Any) -> None:
        reset = component.reset

        def call() -> None:
            walk = component._walk
            reset()
            component._walk = walk

        component.reset = call

    on_auxiliary(core, spoil)


@drill("SIZE-1", "a line is forgotten")
def evicted_but_counted(core: Any) -> None:
    """A state that is evicted stays in the ledger."""

    def spoil(component: Any) -> None:
        def then(slots: Any, *_: Any) -> Any:
            if slots is not None:
                component.evictable += 1
            return slots

        after(component, "evict_device", then)

    on_states(core, spoil)


@drill("SIZE-4", "a sum is taken of the wrong set")
def total_of_windows_alone(core: Any) -> None:
    """The total size leaves the states out."""

    def then(sizes: Any) -> Any:
        states = core._find_component(ComponentType.MAMBA)
        nodes = list(core._tree.pre_order())
        count = sum(states is not None and node in states.recency for node in nodes)
        return sizes[0], sizes[1] - count

    after(core, "total_size", then)


# --- Readers ------------------------------------------------------------------------------


@drill("FLAT-3", "a list is built from the wrong end", profile="mamba")
def states_flattened_by_recency(core: Any) -> None:
    """All states come in the order of use and not in that of the tree."""

    def spoil(states: Any) -> None:
        def call() -> Any:
            return core._concatenate(states.data(node) for node in states.recency)

        core.all_mamba_values_flatten = call

    on_states(core, spoil)


@drill("FLAT-6", "an argument is ignored", profile="swa")
def canary_of_tombstones(core: Any) -> None:
    """The canary rows of nodes with a window hold those without one, too."""
    walk = core.walk_for_kv_canary

    def call(unlocked_only: Any, swa_resident_only: Any) -> Any:
        return walk(unlocked_only, swa_resident_only and not isinstance(swa_resident_only, bool))

    core.walk_for_kv_canary = call


@drill("SWA-N1", "a call is forgotten", profile="swa")
def offload_without_the_window(core: Any) -> None:
    """An offload copies no windows."""
    on_windows(core, lambda window: setattr(window, "offload", lambda node: None))


@drill("MAM-H18", "a list is read from the wrong end", profile="mamba")
def state_named_by_the_first_page(core: Any) -> None:
    """An offloaded state is named by the first page of its node and not by the last."""

    def then(transfer: Any, node: Any) -> Any:
        if transfer is not None:
            transfer.keys = node.hashes[:1]
        return transfer

    on_states(core, lambda states: after(states, "offload", then))


@drill("SWA-D9", "an argument is ignored", profile="windows")
def value_of_the_first_window(core: Any) -> None:
    """The value of the second window is that of the first."""
    get = core.get_component_device_value

    def call(node_id: Any, component_type: Any) -> Any:
        is_second = component_type == ComponentType.AUXILIARY_SWA
        return get(node_id, ComponentType.SWA if is_second else component_type)

    core.get_component_device_value = call


# --- A second window ----------------------------------------------------------------------


@drill("SWA-I14", "two classes are mixed up", profile="windows")
def second_window_keeps_the_slots(core: Any) -> None:
    """Slots that gave only the second window a value count as taken over."""
    on_component(
        core,
        ComponentType.AUXILIARY_SWA,
        lambda window: setattr(window, "_consumed_from", lambda offset, length: offset),
    )


@drill("SWA-I14", "a condition is forgotten", profile="windows")
def second_window_from_shared_slots(core: Any) -> None:
    """The second window is recovered also where the request shares its slots with the tree."""

    def spoil(window: Any) -> None:
        window._live_from = lambda insertion: insertion.request.evicted_lens.get(
            window.component_type, 0
        )

    on_component(core, ComponentType.AUXILIARY_SWA, spoil)


@drill("SWA-I22", "a list is not kept up to date", profile="windows")
def waiting_rebuild_not_cut(core: Any) -> None:
    """A split leaves a waiting action with the window of both halves."""

    def split(self: Any, lower: Any, length: int) -> Any:
        upper = self.tree.split(lower, length)
        self.pending += self.tree.split_action(upper, lower)
        return upper

    on_insert(core, lambda walk: override(walk._insertion, split=split))


@drill("SWA-I8", "a condition is forgotten", profile="windows")
def swapped_below_a_second_window(core: Any) -> None:
    """The slots of a node are replaced although the second window hangs on them."""
    on_windows(core, lambda window: setattr(window, "_is_needed_elsewhere", lambda segment: False))


@drill("SWA-A6", "a message is not sent", profile="windows")
def second_window_not_moved(core: Any) -> None:
    """A recovery of the second window does not say that its slots belong to the tree's now."""

    def then(step: Any, *_: Any) -> Any:
        step.actions = [each for each in step.actions if not isinstance(each, RecoverEvictedSWA)]
        return step

    after(core, "begin_insert", then)
    after(core, "resume_insert", then)
