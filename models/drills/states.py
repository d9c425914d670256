"""Drills of Mamba states: matches, commits, the cap of a path, splits and locks."""

from __future__ import annotations

from typing import Any

import msgspec
import torch

from treedrift.backends.contract import ComponentType, MambaEvictExcessPathStates

from .drill import Theme, after, before, during, on_insert, on_split, on_states

drill = Theme("mamba")


# --- Matches ------------------------------------------------------------------------------


@drill("MAM-M1", "a validator keeps what it should forget")
def state_of_an_ancestor_will_do(core: Any) -> None:
    """A match may end on any node below one with a state."""

    def spoil(states: Any) -> None:
        def make() -> Any:
            seen = False

            def accepts(node: Any) -> bool:
                nonlocal seen
                seen = seen or states.data(node).device_value is not None
                return seen

            return accepts

        states.match_validator = make

    on_states(core, spoil)


@drill("MAM-M5", "the wrong variable is returned")
def full_hit_cut_to_the_state(core: Any) -> None:
    """A match tells only as many cached tokens as have a state at their end."""

    def then(result: Any, *_: Any) -> Any:
        length = result.device_prefix_len
        return msgspec.structs.replace(result, full_kv_hit_length=length)

    on_states(core, lambda states: after(states, "finalize_match", then))


@drill("MAM-M6", "a loop too many")
def states_above_refreshed(core: Any) -> None:
    """A match refreshes the states above its end as well."""

    def spoil(states: Any) -> None:
        refresh = states.refresh_after_match

        def call(best: Any) -> None:
            for node in core._path(best):
                refresh(node)

        states.refresh_after_match = call

    on_states(core, spoil)


@drill("MAM-M6", "a call is forgotten")
def matched_state_not_refreshed(core: Any) -> None:
    """A match leaves the recency of the state that it found as it was."""
    on_states(core, lambda states: setattr(states, "refresh_after_match", lambda best: None))


@drill("MAM-M7", "a habit of another cache")
def states_refreshed_on_the_way(core: Any) -> None:
    """An insert refreshes the state of every node that it walks over."""

    def spoil(states: Any) -> None:
        def first(node: Any, *_: Any) -> None:
            if node in states.recency:
                states.recency.promote(node)

        before(states, "consume_overlap", first)

    on_states(core, spoil)


@drill("MAM-M8", "a half-ported field", "BUG-01")
def state_branch_left_at_default(core: Any) -> None:
    """A match never says where a state would be worth storing."""
    on_states(core, lambda states: setattr(states, "finalize_match", lambda result: result))


@drill("MAM-M8", "two roundings with different grids")
def branch_on_the_grid_of_pages(core: Any) -> None:
    """A match proposes a state at the end of the last page, where none may be stored."""
    page = core.page_size
    on_states(
        core, lambda states: during(states, "finalize_match", states, "_grid", lambda _: page)
    )


@drill("MAM-M9", "a rounding too many")
def boundary_rounded_too(core: Any) -> None:
    """A state off the grid does not keep a match from proposing the multiple before it."""

    def spoil(states: Any) -> None:
        def then(result: Any, *_: Any) -> Any:
            grid = states._grid
            aligned = result.full_kv_hit_length // grid * grid
            if aligned < result.device_prefix_len // grid * grid or not aligned:
                return result
            if result.device_prefix_len % grid == 0:
                return result
            return msgspec.structs.replace(result, mamba_branching_seqlen=aligned)

        after(states, "finalize_match", then)

    on_states(core, spoil)


# --- Commits ------------------------------------------------------------------------------


@drill("MAM-I4", "the wrong half of a node", "BUG-15")
def state_above_the_leaf(core: Any) -> None:
    """The state of a new leaf is stored on the node above, if that has none."""

    def spoil(states: Any) -> None:
        commit = states.commit_insert

        def call(target: Any, insertion: Any) -> None:
            above = target.parent
            is_free = above.parent is not None and states.data(above).device_value is None
            commit(above if insertion.is_new_leaf and is_free else target, insertion)

        states.commit_insert = call

    on_states(core, spoil)


@drill("MAM-I5", "a check is forgotten")
def insert_without_a_state(core: Any) -> None:
    """An insert that brings no state is begun, and fails halfway."""
    find = core._find_component

    def check(request: Any) -> None:
        core._find_component = lambda kind: None if kind is ComponentType.MAMBA else find(kind)
        try:
            true_check(request)
        finally:
            core._find_component = find

    true_check, core._check_components = core._check_components, check


@drill("MAM-I7", "a forgotten line")
def refill_leaves_the_time(core: Any) -> None:
    """A state that is stored on an existing node does not make the node recent."""

    def spoil(states: Any) -> None:
        commit = states.commit_insert

        def call(target: Any, insertion: Any) -> None:
            time = target.last_access_time
            is_refill = states.data(target).device_value is None and not insertion.is_new_leaf
            commit(target, insertion)
            if is_refill:
                target.last_access_time = time

        states.commit_insert = call

    on_states(core, spoil)


@drill("MAM-I7", "two branches are mixed up")
def refill_counts_as_there(core: Any) -> None:
    """An insert that stores its state on an existing node says that there was one."""

    def spoil(states: Any) -> None:
        def then(_: None, __: Any, insertion: Any) -> None:
            if not insertion.is_new_leaf:
                insertion.result.mamba_exist = True

        after(states, "commit_insert", then)

    on_states(core, spoil)


@drill("MAM-I8", "a call is forgotten")
def reached_state_not_refreshed(core: Any) -> None:
    """An insert that ends on a node with a state leaves the state's recency as it was."""

    def spoil(states: Any) -> None:
        commit = states.commit_insert

        def call(target: Any, insertion: Any) -> None:
            order = list(states.recency)
            commit(target, insertion)
            place = order.index(target) if target in order else 0
            if place:
                states.recency.remove(target)
                states.recency.push_behind(target, order[place - 1])

        states.commit_insert = call

    on_states(core, spoil)


@drill("MAM-I8", "a branch is forgotten")
def state_replaced(core: Any) -> None:
    """An insert replaces the state that is there, and says that it did not."""

    def spoil(states: Any) -> None:
        def then(_: None, target: Any, insertion: Any) -> None:
            states.data(target).device_value = insertion.request.mamba_value

        after(states, "commit_insert", then)

    on_states(core, spoil)


@drill("MAM-I12", "a half-ported field", "BUG-01")
def refused_state_not_told(core: Any) -> None:
    """An insert never says that it had no use for the state."""

    def spoil(states: Any) -> None:
        def then(_: None, __: Any, insertion: Any) -> None:
            insertion.result.mamba_exist = False

        after(states, "commit_insert", then)

    on_states(core, spoil)


# --- The cap of a path --------------------------------------------------------------------


@drill("MAM-P2", "a condition too many")
def cap_asked_for_when_exceeded(core: Any) -> None:
    """An insert asks for the cap only if its path has too many states."""

    def spoil(states: Any) -> None:
        def then(_: None, target: Any, insertion: Any) -> None:
            held = [node for node in core._path(target) if node in states.recency]
            if len(held) <= states._states_max:
                _drop_caps(insertion)

        after(states, "commit_insert", then)

    on_states(core, spoil)


def _drop_caps(insertion: Any) -> None:
    insertion.pending[:] = [
        each for each in insertion.pending if not isinstance(each, MambaEvictExcessPathStates)
    ]


@drill("MAM-P2", "a condition is forgotten")
def cap_after_every_insert(core: Any) -> None:
    """An insert asks for the cap also where it stored no state."""

    def spoil(states: Any) -> None:
        def then(_: None, target: Any, insertion: Any) -> None:
            if insertion.result.mamba_exist and states._states_max >= 0:
                insertion.pending.append(MambaEvictExcessPathStates(target.id))

        after(states, "commit_insert", then)

    on_states(core, spoil)


@drill("MAM-P3", "a case too many in a list")
def cap_can_wait(core: Any) -> None:
    """An insert runs on past a cap that the cache has yet to apply."""

    def spoil(walk: Any) -> None:
        is_barrier = walk._is_barrier_behind

        def call(count: int) -> bool:
            kept = list(walk._pending)
            _drop_caps(walk._insertion)
            is_there = bool(is_barrier(count))
            walk._pending[:] = kept
            return is_there

        walk._is_barrier_behind = call

    on_insert(core, spoil)


@drill("MAM-P5", "off by one: `>=` for `>`")
def cap_of_one_less(core: Any) -> None:
    """A path keeps one state less than it may."""

    def fewer(most: int) -> int:
        return most - 1 if most > 0 else most

    on_states(core, lambda states: during(states, "evict_excess", states, "_states_max", fewer))


@drill("MAM-P12", "zero counts as nothing said")
def no_states_means_no_cap(core: Any) -> None:
    """A cap of no states at all is taken for no cap."""

    def spoil(states: Any) -> None:
        states._states_max = states._states_max or -1

    on_states(core, spoil)


@drill("MAM-P6", "a loop runs the other way")
def cap_takes_the_deepest(core: Any) -> None:
    """A path over its cap gives up the states nearest to its end."""

    def spoil(states: Any) -> None:
        def call(tail: Any) -> list[Any]:
            held = [node for node in core._path(tail) if node in states.recency]
            excess = len(held) - states._states_max
            if states._states_max < 0 or excess <= 0:
                return []
            found = [node for node in reversed(held[:-1]) if not states._is_spared(node)]
            return [states.evict_device(node) for node in found[:excess]]

        states.evict_excess = call

    on_states(core, spoil)


@drill("MAM-P6", "a check is forgotten")
def cap_takes_forks(core: Any) -> None:
    """A path over its cap gives up states at which other paths part."""

    def spoil(states: Any) -> None:
        def then(is_spared: bool, node: Any) -> bool:
            return is_spared and not (len(node.children) > 1 and states.is_unlocked(node))

        after(states, "_is_spared", then)

    on_states(core, spoil)


@drill("MAM-P6", "a check is forgotten")
def cap_takes_locked_states(core: Any) -> None:
    """A path over its cap gives up states that a request has locked."""

    def spoil(states: Any) -> None:
        def then(is_spared: bool, node: Any) -> bool:
            return is_spared and not (len(node.children) == 1 and not states.is_unlocked(node))

        after(states, "_is_spared", then)

    on_states(core, spoil)


@drill("MAM-P6", "`break` for `continue`")
def cap_ends_at_a_spared_state(core: Any) -> None:
    """A path over its cap gives up nothing below a state that is spared."""

    def spoil(states: Any) -> None:
        evict_excess = states.evict_excess

        def call(tail: Any) -> list[Any]:
            spares, is_over = states._is_spared, False

            def is_spared(node: Any) -> bool:
                nonlocal is_over
                is_over = is_over or spares(node)
                return is_over

            states._is_spared = is_spared
            try:
                return list(evict_excess(tail))
            finally:
                states._is_spared = spares

        states.evict_excess = call

    on_states(core, spoil)


@drill("MAM-P8", "an optimisation across a border")
def capped_states_in_one(core: Any) -> None:
    """The states that a path gives up are freed in one piece and not one by one."""

    def then(freed: list[Any], *_: Any) -> list[Any]:
        return [torch.cat(freed)] if len(freed) > 1 else freed

    on_states(core, lambda states: after(states, "evict_excess", then))


@drill("MAM-A6", "an empty entry is left in")
def cap_that_frees_nothing_told(core: Any) -> None:
    """A cap that frees no state leaves an empty list of freed ones."""

    def then(_: None, __: Any, device_frees: Any, *___: Any) -> None:
        device_frees.setdefault(ComponentType.MAMBA, [])

    after(core, "evict_excess_path_states", then)


# --- Splits and locks ---------------------------------------------------------------------


def on_state_split(core: Any, then: Any) -> None:
    """Do something to both records of a split: `then(states, upper, lower)`."""
    on_split(
        core,
        lambda upper, lower: on_states(
            core, lambda states: then(states, states.data(upper), states.data(lower))
        ),
    )


@drill("MAM-S1", "a habit of another component")
def split_copies_state_lock(core: Any) -> None:
    """The upper half of a split has the lock of the state, which nobody will release."""
    on_state_split(core, lambda _, upper, lower: setattr(upper, "lock_ref", lower.lock_ref))


@drill("MAM-S1", "a habit of another component")
def split_copies_host_lock_of_a_state(core: Any) -> None:
    """The upper half of a split has the host lock of the state."""
    on_state_split(
        core, lambda _, upper, lower: setattr(upper, "host_lock_ref", lower.host_lock_ref)
    )


@drill("MAM-S2", "the new half is the wrong one", "BUG-15")
def split_moves_state_up(core: Any) -> None:
    """The upper half of a split takes the state, which stands for more tokens than it has."""

    def spoil(states: Any) -> None:
        def then(_: None, upper: Any, lower: Any, __: int) -> None:
            mine, theirs = states.data(upper), states.data(lower)
            if theirs.device_value is not None and theirs.lock_ref == 0:
                mine.device_value, theirs.device_value = theirs.device_value, None
                states.recency.push_behind(upper, lower)
                states.recency.remove(lower)

        after(states, "redistribute_on_split", then)

    on_states(core, spoil)


@drill("MAM-L1", "a habit of another component")
def state_locks_the_path(core: Any) -> None:
    """A lock holds the states of its whole path."""

    def spoil(states: Any) -> None:
        def walk(one: Any) -> Any:
            def call(node: Any, receipt: Any) -> None:
                while node.parent is not None:
                    one(node, receipt)
                    node = node.parent

            return call

        states.acquire, states.release = walk(states.acquire), walk(states.release)

    on_states(core, spoil)


@drill("MAM-L1", "a condition too many")
def tombstones_not_locked(core: Any) -> None:
    """A lock does not count on a node without a state."""

    def spoil(states: Any) -> None:
        acquire = states.acquire

        def call(node: Any, receipt: Any) -> None:
            if states.data(node).device_value is not None:
                acquire(node, receipt)

        states.acquire = call

    on_states(core, spoil)


@drill("MAM-L1", "a special case is forgotten")
def root_locked_like_a_node(core: Any) -> None:
    """A lock of the root counts on the root, where no release takes it off."""

    def spoil(states: Any) -> None:
        def first(node: Any, _: Any) -> None:
            if node.parent is None:
                states.data(node).lock_ref += 1

        before(states, "acquire", first)

    on_states(core, spoil)


@drill("MAM-L10", "an argument is ignored")
def skipped_state_locked(core: Any) -> None:
    """A lock that should leave the state out takes it all the same."""

    def then(receipt: Any, node_id: Any, *_: Any) -> Any:
        def acquire(states: Any) -> None:
            if states.component_type in receipt.skipped_lock_components:
                states.acquire(core._node(node_id), receipt)

        on_states(core, acquire)
        return receipt

    after(core, "inc_lock_ref", then)


@drill("MAM-I15", "two calls are taken for one")
def stored_state_makes_recent(core: Any) -> None:
    """A state that the cache stores itself makes its node recent, as an insert would."""
    on_states(
        core,
        lambda _: before(
            core, "set_component_device_value", lambda node, *_: core._tree.touch(core._node(node))
        ),
    )
