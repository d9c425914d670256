"""Drills of inserts: what is kept, freed, declined and told, and where an insert stops."""

from __future__ import annotations

from typing import Any

from treedrift.backends.contract import FreeDeviceKV, FreeDeviceKVFullOnly
from treedrift.backends.python_core.match import deepest_match

from .drill import Theme, after, edit_actions, on_insert, on_request

drill = Theme()


# --- Actions ------------------------------------------------------------------------------


@drill("INS-62", "a list loses its last entry")
def leaked_slots(core: Any) -> None:
    """An insert forgets the last of the slots that it should give back."""
    edit_actions(core, lambda actions: actions[:-1])


@drill("INS-31", "the wrong kind of message", "BUG-17")
def action_of_another_type(core: Any) -> None:
    """Duplicates are given back for the full pool alone."""

    def edit(actions: list[Any]) -> list[Any]:
        return [
            FreeDeviceKVFullOnly(action.indices) if isinstance(action, FreeDeviceKV) else action
            for action in actions
        ]

    edit_actions(core, edit)


@drill("INS-31", "an argument is ignored", "BUG-17")
def evicted_length_ignored(core: Any) -> None:
    """Duplicates outside the window are given back for both pools, whose peers are gone."""
    on_request(core, lambda request: setattr(request, "window_evicted_len", 0))


@drill("INS-31", "two lines are swapped")
def window_part_last(core: Any) -> None:
    """The duplicates outside the window are given back after those inside."""

    def spoil(walk: Any) -> None:
        free = walk._free_duplicates

        def call(position: int, consumed: int) -> None:
            count = len(walk._pending)
            free(position, consumed)
            walk._pending[count:] = reversed(walk._pending[count:])

        walk._free_duplicates = call

    on_insert(core, spoil)


@drill("INS-31", "an argument is ignored", "BUG-25")
def owned_slots_freed(core: Any) -> None:
    """Slots that the request shares with the tree already are given back as duplicates."""
    on_request(core, lambda request: setattr(request, "prev_prefix_len", 0))


@drill("INS-32", "two variables are mixed up", "BUG-25")
def slots_of_the_tree_freed(core: Any) -> None:
    """The slots given back are those of the tree, which keeps them."""

    def spoil(walk: Any) -> None:
        overlapped: list[Any] = []
        free = walk._free_duplicates

        def call(position: int, consumed: int) -> None:
            count = len(walk._pending)
            free(position, consumed)
            for place in range(count, len(walk._pending)):
                action = walk._pending[place]
                size = action.indices[0].numel()
                value = overlapped[-1].full.device_value
                walk._pending[place] = type(action)([value[:size].clone()])

        def consume(node: Any, length: int, *_: Any) -> int:
            overlapped.append(node)
            return length

        core._tree.full.consume_overlap = consume
        walk._free_duplicates = call

    on_insert(core, spoil)


@drill("INS-32", "an optimisation across a border")
def frees_merged(core: Any) -> None:
    """The slots of neighbouring nodes are given back in one action."""

    def edit(actions: list[Any]) -> list[Any]:
        merged: list[Any] = []
        for action in actions:
            last = merged[-1] if merged else None
            if isinstance(action, FreeDeviceKV) and isinstance(last, FreeDeviceKV):
                merged[-1] = FreeDeviceKV([*last.indices, *action.indices])
            else:
                merged.append(action)
        return merged

    edit_actions(core, edit)


@drill("INS-61", "a list is built from the wrong end")
def actions_newest_first(core: Any) -> None:
    """The actions of a step come in reversed order."""
    edit_actions(core, lambda actions: actions[::-1])


# --- Suspension ---------------------------------------------------------------------------


@drill("INS-60", "a case is missing from a list")
def stops_at_every_action(core: Any) -> None:
    """An insert is suspended by actions that could wait, too."""

    def spoil(walk: Any) -> None:
        walk._is_barrier_behind = lambda count: len(walk._pending) > count

    on_insert(core, spoil)


@drill("INS-60", "a condition is never true")
def never_suspended(core: Any) -> None:
    """An insert runs on past a backup that it asks for."""

    def spoil(walk: Any) -> None:
        walk._is_barrier_behind = lambda count: False

    on_insert(core, spoil)


@drill("INS-60", "a buffer is not flushed")
def earlier_actions_kept_back(core: Any) -> None:
    """A barrier hands out its own last action, and all that waited before come at the end."""

    def spoil(walk: Any) -> None:
        steps = walk.steps

        def run() -> Any:
            try:
                while True:
                    actions = next(steps)
                    walk._pending[:0] = actions[:-1]
                    yield actions[-1:]
            except StopIteration as stop:
                return stop.value

        walk.steps = run()

    on_insert(core, spoil)


@drill("INS-5", "a state is not cleared")
def insert_not_ended(core: Any) -> None:
    """An insert that was abandoned while it was suspended stays in flight."""
    end = core.end_insert

    def call() -> Any:
        walk = core._insert
        actions = end()
        core._insert = walk
        return actions

    core.end_insert = call


# --- The leaf and the result --------------------------------------------------------------


@drill("INS-40", "one component decides for another", "BUG-05")
def veto_of_a_leaf(core: Any) -> None:
    """An insert whose window has passed its end makes no leaf, although its slots are good."""

    def spoil(walk: Any) -> None:
        add = walk._add_leaf

        def call(position: int) -> Any:
            request = walk._request
            return add(position) if request.window_evicted_len < request.key.length else walk.node

        walk._add_leaf = call

    on_insert(core, spoil)


@drill("LNK-21", "a half-ported field", "BUG-01")
def adoption_not_told(core: Any) -> None:
    """An insert never says which range the tree took over."""
    on_insert(core, lambda walk: setattr(walk._result, "adopted_ranges", None))


@drill("INS-40", "a unit is mixed up")
def adopted_range_relative(core: Any) -> None:
    """The range that the tree took over counts from the new leaf and not from the root."""

    def then(step: Any, *_: Any) -> Any:
        ranges = step.result.adopted_ranges if step.result is not None else None
        for spans in (ranges or {}).values():
            spans[:] = [(0, end - start) for start, end in spans]
        return step

    after(core, "begin_insert", then)
    after(core, "resume_insert", then)


@drill("INS-41", "a length is taken after the change")
def prefix_len_of_the_new_path(core: Any) -> None:
    """An insert counts its own new leaf into the prefix that it found."""

    def then(step: Any, *_: Any) -> Any:
        if step.result is not None and not step.result.rotation_tail_declined:
            node = core._tree.nodes[step.result.last_device_node]
            step.result.prefix_len = sum(each.length for each in core._path(node))
        return step

    after(core, "begin_insert", then)
    after(core, "resume_insert", then)


@drill("INS-41", "the wrong variable is returned")
def last_node_above_the_leaf(core: Any) -> None:
    """An insert names the node above its new leaf as its last one."""

    def then(step: Any, *_: Any) -> Any:
        result = step.result
        if result is not None and result.last_device_node is not None:
            node = core._tree.nodes[result.last_device_node]
            is_new = result.prefix_len < sum(each.length for each in core._path(node))
            if is_new and not result.rotation_tail_declined:
                result.last_device_node = node.parent.id
        return step

    after(core, "begin_insert", then)
    after(core, "resume_insert", then)


@drill("INS-14", "a half-ported field", "BUG-01")
def empty_insert_without_state(core: Any) -> None:
    """An insert of nothing leaves one of its fields at the default."""

    def then(step: Any, *_: Any) -> Any:
        if step.result is not None:
            step.result.mamba_exist = False
        return step

    after(core, "begin_insert", then)


# --- Rotation -----------------------------------------------------------------------------


@drill("INS-16", "an argument is ignored")
def ignored_rotation(core: Any) -> None:
    """An insert of a conflicting rotation base is not declined."""

    def spoil(walk: Any) -> None:
        walk._conflicting_rotation = lambda: False

    on_insert(core, spoil)


@drill("INS-18", "absent is taken for different")
def no_base_conflicts(core: Any) -> None:
    """An insert without a rotation base is declined where the tree has one."""

    def spoil(walk: Any) -> None:
        conflicting = walk._conflicting_rotation

        def call() -> bool:
            matched, node, _ = deepest_match(core._tree, walk._request.key)
            if walk._request.rotation_base is not None or node.rotation_base is None:
                return bool(conflicting())
            result = walk._result
            result.prefix_len, result.last_device_node = matched, node.id
            result.rotation_tail_declined = True
            return True

        walk._conflicting_rotation = call

    on_insert(core, spoil)


@drill("INS-17", "an early return leaves a field out", "BUG-01")
def declined_insert_matches_nothing(core: Any) -> None:
    """An insert that is declined does not say how much it found."""

    def then(step: Any, *_: Any) -> Any:
        if step.result is not None and step.result.rotation_tail_declined:
            step.result.prefix_len = 0
        return step

    after(core, "begin_insert", then)


@drill("INS-19", "a field is written too often")
def base_stamped_on_the_path(core: Any) -> None:
    """An insert stamps its rotation base on the nodes that it finds, too."""

    def spoil(walk: Any) -> None:
        def then(position: int, *_: Any) -> int:
            walk.node.rotation_base = walk._request.rotation_base
            return position

        after(walk, "_overlap", then)

    on_insert(core, spoil)
