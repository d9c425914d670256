"""Page hashes as callers see them, and what a buffer-mode backup needs (KEY-41 to KEY-44)."""

from __future__ import annotations

from ..contract import (
    BufferBackupSnapshot,
    BufferBackupState,
    ComponentType,
    InvalidArgumentError,
    NodeId,
    PoolName,
    RadixKey,
)
from . import arguments
from .base import CoreBase
from .hashing import fill_hashes
from .keys import has_negative_token, unpack
from .node import Node
from .window import Window


class PageNameCalls(CoreBase):
    """The calls that read or fill page hashes."""

    def get_last_hash_value(self, node_id: NodeId) -> str | None:
        """The node's last page hash; None if it has none (KEY-42)."""
        return _last_hash(self._node(node_id))

    def get_hash_values(self, node_id: NodeId) -> list[str]:
        """The node's own page hashes; empty if it was never hashed (KEY-42)."""
        return list(self._node(node_id).hashes or ())

    def get_prefix_hash_values(self, node_id: NodeId) -> list[str]:
        """The ancestors' page hashes, root first, up to the first unhashed one (KEY-42)."""
        return _prefix_hashes(self._node(node_id))

    def backfill_missing_hash_values(self) -> int:
        """Hash every node that has no list, parents first; returns how many (KEY-41).

        Raises `InvalidArgumentError`, and hashes nothing, if one of them has a negative token.
        """
        tree = self._tree
        missing = [node for node in tree.pre_order() if node.hashes is None]
        if any(has_negative_token(node.key) for node in missing):
            raise InvalidArgumentError("a negative token can't be hashed")
        for node in missing:
            fill_hashes(node, tree.layout)
        return len(missing)

    def snapshot_buffer_backup(
        self, node_id: NodeId, pass_prefix_keys: bool
    ) -> BufferBackupSnapshot | None:
        """A node as a backup needs it; None if it is unknown, the root or unhashed (KEY-43)."""
        handle = arguments.handle(node_id)
        arguments.flag(pass_prefix_keys, "pass_prefix_keys")
        node = self._tree.nodes.get(handle)
        if node is None or node.parent is None or not node.hashes:
            return None
        extra_key, cache_salt = node.namespace or (None, None)
        key = RadixKey(unpack(node.key), extra_key, self.is_eagle, None, cache_salt)
        return BufferBackupSnapshot(
            node_id=node.id,
            parent_node_id=node.parent.id,
            parent_is_root=node.parent is self._tree.root,
            parent_last_hash=_last_hash(node.parent),
            hash_values=list(node.hashes),
            key=key,
            prefix_keys=_prefix_hashes(node) if pass_prefix_keys else None,
        )

    def validate_buffer_backup(
        self, node_id: NodeId, expected_key_length: int
    ) -> BufferBackupState | None:
        """Where a planned node hangs now; None if it is gone or was split (KEY-44)."""
        handle = arguments.handle(node_id)
        length = arguments.unsigned(expected_key_length, "expected_key_length")
        node = self._tree.nodes.get(handle)
        if node is None or node.parent is None or node.length != length:
            return None
        is_root = node.parent is self._tree.root
        return BufferBackupState(node.parent.id, is_root, _last_hash(node.parent))

    def buffer_backup_pool_keys(
        self, node_id: NodeId, hash_values: list[str]
    ) -> dict[ComponentType, dict[PoolName, list[str]]]:
        """No page of a window goes to the host, which buffer-only mode has to be told (BUF-12)."""
        self._node(node_id)
        if not self.is_host_memory_buffer_only:
            return {}
        windows = [each for each in self._tree.auxiliary if isinstance(each, Window)]
        return {window.component_type: {window.pool_name: []} for window in windows}


def _last_hash(node: Node) -> str | None:
    return node.hashes[-1] if node.hashes else None


def _prefix_hashes(node: Node) -> list[str]:
    lists = []
    ancestor = node.parent
    while ancestor is not None and ancestor.hashes is not None:
        lists.append(ancestor.hashes)
        ancestor = ancestor.parent
    return [page for hashes in reversed(lists) for page in hashes]
