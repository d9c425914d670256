"""Backup chains: which ancestors must be copied along with a node (INS-56)."""

from __future__ import annotations

from ..contract import BackupKV
from .node import Node
from .tree import Tree


def backup_chain(tree: Tree, node: Node) -> BackupKV:
    """The node preceded by the ancestors that still need a copy, root-most first (INS-56)."""
    chain = [node.id]
    stops_at_pending = tree.settings.enable_external_cache_linker
    ancestor = node.parent
    while ancestor is not None and ancestor is not tree.root:
        is_pending = ancestor.write_through_pending_id is not None
        if ancestor.external_cache_stored or (stops_at_pending and is_pending):
            break
        chain.append(ancestor.id)
        ancestor = ancestor.parent
    chain.reverse()
    return BackupKV(chain)
