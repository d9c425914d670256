"""The contract's actions and events from the tuples that the native core gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..contract import (
    AllBlocksCleared,
    BackupKV,
    BlockRemoved,
    BlockStored,
    CacheAction,
    FreeDeviceKV,
    FreeDeviceKVFullOnly,
    KvEvent,
    NodeId,
    StorageMedium,
    UpdatePendingBackupOnNodeSplit,
)

if TYPE_CHECKING:
    from ..._rust_core import NativeTreeCore

# What the first field of an action tuple says.
_FREE, _FREE_FULL_ONLY, _BACKUP = 0, 1, 2


def split_action(raw: tuple[NodeId | None, NodeId, NodeId]) -> UpdatePendingBackupOnNodeSplit:
    """What the cache must know of a split (SPLIT-6)."""
    ack_id, split_node, new_node = raw
    return UpdatePendingBackupOnNodeSplit(ack_id, split_node, new_node, split_node)


def action(raw: Any, value: torch.Tensor | None) -> CacheAction:
    """The contract's action for a native one; frees are cut from the insert's value."""
    kind = raw[0]
    if kind in (_FREE, _FREE_FULL_ONLY):
        if value is None:
            raise RuntimeError("an insert that frees slots has lost its value")
        indices = [value[raw[1] : raw[2]]]
        return FreeDeviceKV(indices) if kind == _FREE else FreeDeviceKVFullOnly(indices)
    if kind == _BACKUP:
        return BackupKV(raw[1])
    return split_action(raw[1])


class RustKvEvents:
    """The native event queue as a recorder (EVT-2 to EVT-4)."""

    def __init__(self, native: NativeTreeCore, enabled: bool, page_size: int) -> None:
        self._native = native
        self._page_size = page_size
        self.enabled = enabled

    def record_all_cleared(self) -> None:
        """Append `AllBlocksCleared`; nothing when events are off."""
        self._native.record_all_cleared()

    def take(self) -> list[KvEvent]:
        """All queued events in order; empties the queue."""
        return [self._event(raw) for raw in self._native.take_events()]

    def _event(self, raw: Any) -> KvEvent:
        if raw is None:
            return AllBlocksCleared()
        if isinstance(raw, list):
            return BlockRemoved(raw, StorageMedium.GPU)
        hashes, parent, tokens, cache_salt, session_id, lora_name = raw
        return BlockStored(
            hashes,
            parent,
            tokens,
            self._page_size,
            medium=StorageMedium.GPU,
            cache_salt=cache_salt,
            session_id=session_id,
            lora_name=lora_name,
        )
