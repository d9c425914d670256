"""Drills of recency and age: which calls stamp which nodes, and in which order."""

from __future__ import annotations

from typing import Any

from .drill import Theme, after, before, on_insert, on_split

drill = Theme()


@drill("NODE-23", "a condition too many")
def skipped_touch(core: Any) -> None:
    """A match leaves the recency of inner nodes alone."""
    touch = core._tree.touch
    core._tree.touch = lambda node: touch(node) if not node.children else None


@drill("NODE-24", "a forgotten line", "BUG-11")
def forgotten_touch_of_a_split(core: Any) -> None:
    """The lower half of a split keeps its old time."""
    split = core._tree.split

    def call(lower: Any, length: int) -> Any:
        time = lower.last_access_time
        upper = split(lower, length)
        lower.last_access_time = time
        return upper

    core._tree.split = call


@drill("POL-14", "two lines are swapped", "BUG-11")
def cold_rest_newest(core: Any) -> None:
    """A partial match refreshes the unmatched rest last, so that it outlives what was matched."""
    cut: list[Any] = []
    on_split(core, lambda upper, lower: cut.append(lower))

    def then(result: Any, *_: Any) -> Any:
        if cut:
            core._tree.touch(cut[-1])
        return result

    before(core, "match_prefix", lambda *_: cut.clear())
    after(core, "match_prefix", then)


@drill("NODE-23", "a loop runs the other way")
def path_stamped_upwards(core: Any) -> None:
    """A match stamps its path from the end, so that ancestors are newer than what was matched."""

    def then(result: Any, *_: Any) -> Any:
        node = core._tree.nodes[result.best_match_node]
        while node is not None:
            core._tree.touch(node)
            node = node.parent
        return result

    after(core, "match_prefix", then)


@drill("SPLIT-9", "two lines are swapped")
def touched_after_the_split(core: Any) -> None:
    """An insert splits a node first and touches the upper half then."""

    def spoil(walk: Any) -> None:
        def then(position: int, child: Any, *_: Any) -> int:
            if walk.node is not child:
                core._tree.touch(walk.node)
            return position

        after(walk, "_overlap", then)

    on_insert(core, spoil)


@drill("POL-15", "a half-ported field")
def split_is_newborn(core: Any) -> None:
    """The upper half of a split is as young as the split."""
    on_split(core, lambda upper, lower: setattr(upper, "creation_time", core._tree.tick()))


@drill("LOCK-21", "a habit of another cache")
def lock_counts_as_use(core: Any) -> None:
    """Locking a node makes it the most recently used one."""
    before(core, "inc_lock_ref", lambda node, *_: core._tree.touch(core._node(node)))


@drill("MATCH-1", "an early return comes too late")
def empty_match_touches(core: Any) -> None:
    """A match of an empty key stamps the root."""
    before(core, "match_prefix", lambda *_: core._tree.touch(core._tree.root))


@drill("PATH-1", "a read that writes")
def lookup_refreshes(core: Any) -> None:
    """A device-only lookup counts as a use of the node that it finds."""

    def then(found: Any, *_: Any) -> Any:
        core._tree.touch(core._tree.nodes[found[1]])
        return found

    after(core, "match_full_device_prefix", then)


@drill("INS-21", "a line is moved out of a loop")
def insert_touches_its_end_alone(core: Any) -> None:
    """An insert refreshes the last node on its path and none of those above."""

    def spoil(walk: Any) -> None:
        overlap = walk._overlap

        def call(child: Any, position: int) -> Any:
            if walk.node is not core._tree.root:
                walk.node.last_access_time = walk.old_time
            walk.old_time = child.last_access_time
            return overlap(child, position)

        walk._overlap = call

    on_insert(core, spoil)
