"""The tree's side of the external cache linker (LNK-1 to LNK-9), and backup chains (INS-56)."""

from __future__ import annotations

from collections.abc import Sequence

from ..contract import (
    AncestorError,
    BackupKV,
    ContractError,
    NodeId,
    PoolTransfer,
)
from . import arguments
from .base import CoreBase
from .chains import backup_chain
from .node import Node


class LinkerCalls(CoreBase):
    """The calls by which an external store learns of nodes and reports back."""

    def build_backup_kv_action(self, node_id: NodeId) -> BackupKV:
        """The backup chain that ends at a node, which is always in it (INS-56, BKP-21)."""
        return backup_chain(self._tree, self._node(node_id))

    def build_external_linker_offload_transfers(self, node_id: NodeId) -> list[PoolTransfer] | None:
        """What an offload copies; None if stored or pending, empty if unhashed (LNK-2, LNK-3)."""
        node = self._node(node_id)
        if _is_claimed(node):
            return None
        offloads = [component.offload(node) for component in self._tree.components]
        return [transfer for transfer in offloads if transfer is not None]

    def mark_external_linker_offload_pending(self, node_id: NodeId) -> None:
        """An offload of this node is in flight; `ContractError` if it is claimed (LNK-4)."""
        node = self._node(node_id)
        if _is_claimed(node):
            raise ContractError(f"node {node.id} is stored already or has an offload in flight")
        node.write_through_pending_id = node.id

    def finish_external_linker_offload(
        self, node_ids: Sequence[NodeId], ack_id: NodeId, success: bool
    ) -> None:
        """An offload has landed or failed (LNK-6, LNK-7).

        Raises `ContractError` if one of the nodes does not wait for `ack_id`.
        """
        handles = [arguments.handle(each) for each in node_ids]
        ack_id = arguments.handle(ack_id)
        arguments.flag(success, "success")
        nodes = self._nodes(handles)
        for node in nodes:
            if node.write_through_pending_id != ack_id:
                raise ContractError(f"node {node.id} does not wait for acknowledgement {ack_id}")
        for node in nodes:
            node.write_through_pending_id = None
            node.external_cache_stored = node.external_cache_stored or success

    def mark_external_cache_stored_path(self, from_node_id: NodeId, until_node_id: NodeId) -> None:
        """The external store holds the nodes from `from` up to below `until` (LNK-8).

        Raises `AncestorError` if `until` is neither `from` nor above it.
        """
        node, until = self._nodes((from_node_id, until_node_id))
        path = []
        while node is not until:
            if node.parent is None:
                raise AncestorError(f"node {until_node_id} is not above node {from_node_id}")
            path.append(node)
            node = node.parent
        for each in path:
            each.external_cache_stored = True


def _is_claimed(node: Node) -> bool:
    return node.external_cache_stored or node.write_through_pending_id is not None
