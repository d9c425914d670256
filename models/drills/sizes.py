"""Drills of sizes, handles and resets: what is counted, and what outlives what."""

from __future__ import annotations

from typing import Any

from .drill import Theme, after, before

drill = Theme()


@drill("SIZE-1", "off by one")
def wrong_evictable_size(core: Any) -> None:
    """A leaf longer than one page counts one unit too much when it goes."""

    def then(value: Any, node: Any) -> Any:
        if node.length > core.page_size:
            core._tree.full.evictable -= 1
        return value

    after(core._tree.full, "evict_device", then)


@drill("SIZE-4", "a sum is taken of the wrong set")
def total_without_locked(core: Any) -> None:
    """The total size leaves out what is locked."""
    core.total_size = lambda: (core._tree.full.evictable, 0)


@drill("SIZE-2", "an absent thing gives an error")
def size_of_an_absent_component(core: Any) -> None:
    """The size of a component that the core lacks is that of FULL."""

    def then(component: Any, *_: Any) -> Any:
        return core._tree.full if component is None else component

    after(core, "_find_component", then)


@drill("SIZE-5", "a check is forgotten")
def size_below_zero(core: Any) -> None:
    """A size can be corrected to less than nothing."""
    adjust = core.adjust_component_size
    full = core._tree.full

    def call(node_id: Any, component_type: Any, delta: Any) -> None:
        is_low = type(delta) is int and -(2**63) <= delta < -full.evictable
        adjust(node_id, component_type, -full.evictable if is_low else delta)

    core.adjust_component_size = call


@drill("BND-46", "an identity is used again")
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


@drill("CMP-10", "a registration is not undone")
def dead_handle_lives_on(core: Any) -> None:
    """The handle of an evicted node is still known."""

    def then(frees: Any, leaf: Any) -> Any:
        core._tree.nodes[leaf.id] = leaf
        return frees

    after(core._tree, "delete_leaf", then)


# --- Reset --------------------------------------------------------------------------------


@drill("RST-3", "a state is not cleared")
def reset_keeps_sizes(core: Any) -> None:
    """A reset empties the tree and leaves the sizes as they were."""
    full = core._tree.full

    def call() -> None:
        kept = full.evictable, full.protected
        reset()
        full.evictable, full.protected = kept

    reset, core.reset = core.reset, call


@drill("RST-4", "a state is cleared too many")
def reset_forgets_settings(core: Any) -> None:
    """A reset puts the write-through threshold back to its default."""

    def then(_: None) -> None:
        core._tree.settings.write_through_threshold = 256

    after(core, "reset", then)


@drill("NODE-40", "a state is cleared too many")
def reset_drops_events(core: Any) -> None:
    """A reset throws away the events that nobody has taken yet."""
    before(core, "reset", lambda: core._tree.events.take())


@drill("RST-1", "a counter starts anew")
def reset_rewinds_handles(core: Any) -> None:
    """After a reset handles are given out from the first one on again."""
    before(core, "reset", lambda: setattr(core._tree, "_next_node_id", 0))


@drill("RST-3", "a state is not cleared")
def reset_keeps_leaves(core: Any) -> None:
    """A reset leaves the old leaves among the candidates for eviction."""
    tree = core._tree

    def call() -> None:
        kept = tree.device_leaves
        reset()
        tree.device_leaves |= kept

    reset, core.reset = core.reset, call
