"""Drills of locks, receipts and pins, on the device and on the host."""

from __future__ import annotations

from typing import Any

from .drill import Theme, after, before

drill = Theme()


@drill("LOCK-10", "a loop ends one step early")
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


@drill("LOCK-3", "a loop is forgotten")
def lock_of_the_node_alone(core: Any) -> None:
    """A lock covers its node and none of those above."""
    full = core._tree.full

    def pin(node: Any) -> int:
        if node is core._tree.root:
            return 0
        parent, node.parent = node.parent, core._tree.root
        try:
            return int(true_pin(node))
        finally:
            node.parent = parent

    def unpin(node: Any) -> None:
        if node is core._tree.root:
            return
        parent, node.parent = node.parent, core._tree.root
        try:
            true_unpin(node)
        finally:
            node.parent = parent

    true_pin, true_unpin = full.pin, full.unpin
    full.pin, full.unpin = pin, unpin


@drill("LOCK-3", "a stub is left in")
def evicts_what_is_locked(core: Any) -> None:
    """A lock protects nothing."""
    core._tree.full.pin = lambda node: 0
    core._tree.full.check_unpin = lambda node: None
    core._tree.full.unpin = lambda node: None


@drill("LOCK-2", "a sum is taken of the wrong set")
def delta_of_the_anchor(core: Any) -> None:
    """A receipt counts the tokens of its own node and not all that became protected."""

    def then(receipt: Any, node_id: Any, *_: Any) -> Any:
        if receipt.delta:
            receipt.delta = min(receipt.delta, core._tree.nodes[node_id].length)
        return receipt

    after(core, "inc_lock_ref", then)


@drill("LOCK-1", "an argument is ignored")
def skip_ignored(core: Any) -> None:
    """A lock that should leave FULL out takes it all the same."""

    def then(receipt: Any, node_id: Any, *_: Any) -> Any:
        full = core._tree.full
        if full.component_type in receipt.skipped_lock_components:
            full.acquire(core._tree.nodes[node_id], receipt)
        return receipt

    after(core, "inc_lock_ref", then)


@drill("LOCK-2", "a half-ported field", "BUG-03")
def skip_not_in_the_receipt(core: Any) -> None:
    """A receipt does not say which components its lock left out."""

    def then(receipt: Any, *_: Any) -> Any:
        receipt.skipped_lock_components = ()
        return receipt

    after(core, "inc_lock_ref", then)


@drill("LEAF-6", "a forgotten line")
def locked_leaf_still_offered(core: Any) -> None:
    """A lock leaves its node among the candidates for eviction."""
    tree = core._tree

    def then(count: int, node: Any) -> int:
        if node is not tree.root and not node.children:
            tree.device_leaves.add(node)
        return count

    after(tree.full, "pin", then)


@drill("LEAF-5", "a forgotten line")
def unlocked_leaf_never_offered(core: Any) -> None:
    """A leaf whose last lock goes does not become a candidate again."""
    tree = core._tree

    def then(_: None, node: Any) -> None:
        tree.device_leaves.discard(node)

    after(tree.full, "unpin", then)


@drill("LOCK-10", "a check is forgotten")
def unchecked_release(core: Any) -> None:
    """A lock that nobody holds can be released, and its count falls below zero."""
    core._tree.full.check_unpin = lambda node: None


@drill("LOCK-8", "a check is forgotten", "BUG-03")
def receipt_of_another_node(core: Any) -> None:
    """A receipt is taken on any node, and without a node too."""

    def first(node_id: Any, params: Any, *_: Any) -> None:
        if isinstance(getattr(params, "node_id", 0), int | None):
            params.node_id = node_id

    before(core, "dec_lock_ref", first)
    before(core, "dec_host_lock_ref", first)


@drill("LOCK-14", "the wrong sibling is called")
def pin_unprotected(core: Any) -> None:
    """A pin that becomes the first lock of its path leaves the sizes as they were."""
    full = core._tree.full

    def call(node_id: Any) -> None:
        count = full.pin(core._node(node_id))
        full.evictable += count
        full.protected -= count

    core.inc_full_pin = call


@drill("LOCK-9", "a flag is not looked at twice")
def skip_swa_skips_full(core: Any) -> None:
    """A release that leaves a window alone leaves FULL alone, too."""
    release = core.dec_lock_ref

    def call(node_id: Any, params: Any, skip_swa: Any = False) -> Any:
        result = release(node_id, params, skip_swa)
        if skip_swa is True and core._tree.full.component_type not in (
            params.skipped_lock_components
        ):
            core._tree.full.pin(core._node(node_id))
        return result

    core.dec_lock_ref = call


# --- Host locks ---------------------------------------------------------------------------


@drill("LOCK-23", "a condition is forgotten")
def host_lock_without_host_value(core: Any) -> None:
    """A host lock is taken on a node without a host copy, also outside write-back."""
    full = core._tree.full

    def acquire(node: Any, receipt: Any) -> None:
        if node.full.host_lock_uuid is None:
            node.full.host_lock_uuid = full._next_host_lock_uuid
            full._next_host_lock_uuid += 1
        node.full.host_lock_ref += 1
        receipt.component_host_lock_uuids[full.component_type] = node.full.host_lock_uuid

    full.acquire_host = acquire


@drill("LOCK-24", "a cached value is made anew", "BUG-19")
def boundary_minted_anew(core: Any) -> None:
    """A second host lock moves the boundary that the first one's receipt names."""

    def first(node: Any, receipt: Any) -> None:
        if core.is_write_back:
            node.full.host_lock_uuid = None

    before(core._tree.full, "acquire_host", first)


@drill("LOCK-26", "a loop is forgotten", "BUG-19")
def host_release_of_the_node_alone(core: Any) -> None:
    """The release of a host lock ends at its own node, although a split made it span two."""
    full = core._tree.full
    segment = full._host_segment
    full._host_segment = lambda node, receipt: segment(node, receipt)[:1]


@drill("EVD-33", "a check is forgotten", "BUG-23")
def drop_in_spite_of_a_host_lock(core: Any) -> None:
    """A subtree is dropped although a host lock holds it."""
    drop = core.drop_subtree_no_host

    def call(node_id: Any) -> Any:
        node = core._node(node_id)
        held, node.full.host_lock_ref = node.full.host_lock_ref, 0
        try:
            return drop(node_id)
        finally:
            node.full.host_lock_ref = held

    core.drop_subtree_no_host = call


@drill("LOCK-28", "two tiers are mixed up")
def host_lock_keeps_the_device_leaf(core: Any) -> None:
    """A host lock keeps its node out of the candidates for device eviction."""

    def then(_: None, node: Any, receipt: Any) -> None:
        if node.full.host_lock_ref:
            core._tree.device_leaves.discard(node)

    after(core._tree.full, "acquire_host", then)
