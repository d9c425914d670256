"""Drills of the linker's marks and of the backups that inserts ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from treedrift.backends.contract import BackupKV

from .drill import Theme, after, edit_actions, on_insert

drill = Theme()


# --- When a backup is asked for -----------------------------------------------------------


@drill("INS-53", "off by one: `>` for `>=`")
def late_backup(core: Any) -> None:
    """A backup is asked for one visit too late."""

    def spoil(walk: Any) -> None:
        count = walk._count_hit

        def call(node: Any, end: int) -> None:
            settings = core._tree.settings
            threshold = settings.write_through_threshold
            settings.write_through_threshold = threshold + 1
            try:
                count(node, end)
            finally:
                settings.write_through_threshold = threshold

        walk._count_hit = call

    on_insert(core, spoil)


def _with_field_cleared(core: Any, field: str, empty: Any) -> None:
    """Decide about backups as if a field of each node were empty."""

    def spoil(walk: Any) -> None:
        count = walk._count_hit

        def call(node: Any, end: int) -> None:
            kept = getattr(node, field)
            setattr(node, field, empty)
            try:
                count(node, end)
            finally:
                setattr(node, field, kept)

        walk._count_hit = call

    on_insert(core, spoil)


@drill("INS-53", "a condition is forgotten")
def backup_of_a_stored_node(core: Any) -> None:
    """A node that the external store has already is offered to it again."""
    _with_field_cleared(core, "external_cache_stored", False)


@drill("LNK-5", "a condition is forgotten")
def backup_of_a_pending_node(core: Any) -> None:
    """A node whose offload is in flight is offered again."""
    _with_field_cleared(core, "write_through_pending_id", None)


# --- Chains -------------------------------------------------------------------------------


def _edit_backups(core: Any, edit: Callable[[list[int]], list[int]]) -> None:
    """Edit the nodes of each backup, whoever asks for it."""

    def edit_all(actions: list[Any]) -> list[Any]:
        return [
            BackupKV(edit(action.node_ids)) if isinstance(action, BackupKV) else action
            for action in actions
        ]

    edit_actions(core, edit_all)
    after(core, "build_backup_kv_action", lambda backup, *_: BackupKV(edit(backup.node_ids)))


@drill("INS-56", "a loop is forgotten")
def backup_without_ancestors(core: Any) -> None:
    """A backup names its node and none of the ancestors that need a copy, too."""
    _edit_backups(core, lambda node_ids: node_ids[-1:])


@drill("INS-56", "a list is built from the wrong end")
def backup_from_the_leaf_up(core: Any) -> None:
    """A backup names its node first and the ancestors after it."""
    _edit_backups(core, lambda node_ids: node_ids[::-1])


@drill("INS-56", "a condition is forgotten")
def backup_through_pending_ancestors(core: Any) -> None:
    """A backup takes in ancestors whose offload is in flight, and those above them."""

    def edit(node_ids: list[int]) -> list[int]:
        chain = list(node_ids)
        node = core._tree.nodes[chain[0]].parent
        while node.parent is not None and not node.external_cache_stored:
            chain.insert(0, node.id)
            node = node.parent
        return chain

    _edit_backups(core, edit)


# --- Marks --------------------------------------------------------------------------------


@drill("LNK-4", "a check is forgotten")
def node_claimed_twice(core: Any) -> None:
    """A node that is on its way to the external store can be claimed once more."""
    mark = core.mark_external_linker_offload_pending

    def call(node_id: Any) -> None:
        core._node(node_id).write_through_pending_id = None
        mark(node_id)

    core.mark_external_linker_offload_pending = call


@drill("LNK-7", "a result is ignored", "BUG-23")
def failed_offload_counts_as_stored(core: Any) -> None:
    """An offload that failed is treated as done."""
    finish = core.finish_external_linker_offload

    def call(node_ids: Any, ack_id: Any, success: Any) -> Any:
        return finish(node_ids, ack_id, True if success is False else success)

    core.finish_external_linker_offload = call


@drill("LNK-6", "a state is not cleared")
def failed_offload_stays_pending(core: Any) -> None:
    """A node whose offload failed counts as waiting for it for ever."""
    finish = core.finish_external_linker_offload

    def call(node_ids: Any, ack_id: Any, success: Any) -> Any:
        result = finish(node_ids, ack_id, success)
        for node_id in () if success else node_ids:
            core._tree.nodes[node_id].write_through_pending_id = ack_id
        return result

    core.finish_external_linker_offload = call


@drill("LNK-6", "a loop ends after its first step", "BUG-09")
def offload_acknowledged_in_part(core: Any) -> None:
    """The end of an offload that a split has spread over two nodes reaches the first one alone."""
    finish = core.finish_external_linker_offload

    def call(node_ids: Any, ack_id: Any, success: Any) -> Any:
        nodes = list(node_ids)
        return finish(nodes[:1], ack_id, success)

    core.finish_external_linker_offload = call


@drill("LNK-2", "a condition is forgotten")
def stored_node_offered(core: Any) -> None:
    """What to copy is told for a node that the external store has already."""
    build = core.build_external_linker_offload_transfers

    def call(node_id: Any) -> Any:
        node = core._node(node_id)
        stored, node.external_cache_stored = node.external_cache_stored, False
        try:
            return build(node_id)
        finally:
            node.external_cache_stored = stored

    core.build_external_linker_offload_transfers = call


@drill("LNK-3", "the wrong list is read")
def offload_under_the_hashes_above(core: Any) -> None:
    """A node is copied under the hashes of its path and its own."""

    def then(transfers: Any, node_id: Any) -> Any:
        for transfer in transfers or ():
            transfer.keys = [*core.get_prefix_hash_values(node_id), *transfer.keys]
        return transfers

    after(core, "build_external_linker_offload_transfers", then)


@drill("LNK-8", "off by one node")
def stored_path_with_its_end(core: Any) -> None:
    """A path that is marked as stored includes the node up to which it was marked."""

    def then(_: None, from_id: Any, until_id: Any) -> None:
        core._tree.nodes[until_id].external_cache_stored = True

    after(core, "mark_external_cache_stored_path", then)


@drill("LNK-8", "a loop is forgotten")
def stored_path_of_one_node(core: Any) -> None:
    """A path that is marked as stored is its first node alone."""
    mark = core.mark_external_cache_stored_path

    def call(from_id: Any, until_id: Any) -> None:
        marks = {node: node.external_cache_stored for node in core._tree.pre_order()}
        mark(from_id, until_id)
        for node, was_stored in marks.items():
            if node.id != from_id:
                node.external_cache_stored = was_stored

    core.mark_external_cache_stored_path = call
