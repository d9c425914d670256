"""The contract's actions, frees, transfers and events from what the native core gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..contract import (
    AllBlocksCleared,
    BackupKV,
    BlockRemoved,
    BlockStored,
    CacheAction,
    ComponentType,
    FreeDeviceKV,
    FreeDeviceKVFullOnly,
    Frees,
    KvEvent,
    MambaEvictExcessPathStates,
    NodeId,
    PoolHitPolicy,
    PoolName,
    PoolTransfer,
    RecoverEvictedSWA,
    RecoverSWAWithLockedFull,
    StorageMedium,
    SWARebuild,
    UpdatePendingBackupOnNodeSplit,
)

if TYPE_CHECKING:
    from ..._rust_core import NativeTreeCore

# What the first field of an action tuple says.
_FREE, _FREE_FULL_ONLY, _BACKUP, _SPLIT, _FREE_REPLACED = 0, 1, 2, 3, 4
_REBUILD, _RECOVER_LOCKED, _RECOVER_EVICTED, _EVICT_EXCESS_STATES = 5, 6, 7, 8

POOLS = {
    ComponentType.FULL: PoolName.KV,
    ComponentType.SWA: PoolName.SWA,
    ComponentType.MAMBA: PoolName.MAMBA,
    ComponentType.AUXILIARY_SWA: PoolName.AUXILIARY_SWA,
}
"""The pool that holds each component's values."""

WINDOWS = (ComponentType.SWA, ComponentType.AUXILIARY_SWA)

TYPES = tuple(ComponentType)
"""Components by number; a call of the class takes three times as long."""

NativeFrees = list[tuple[int, torch.Tensor]]
"""What a call freed, with the number of the component."""


def freed_of_node(freed: NativeFrees, tracker: dict[ComponentType, int]) -> Frees:
    """What went from one node, so one tensor per component; counts it in `tracker`."""
    frees: Frees = {}
    for number, tensor in freed:
        component = TYPES[number]
        frees[component] = [tensor]
        tracker[component] = tensor.numel()
    return frees


def freed_by_component(freed: NativeFrees) -> Frees:
    """The freed tensors of each component in order."""
    frees: Frees = {}
    for number, tensor in freed:
        frees.setdefault(TYPES[number], []).append(tensor)
    return frees


def offload(number: int, slots: torch.Tensor, keys: list[str], is_tail: bool) -> PoolTransfer:
    """One component's part of an offload (LNK-3)."""
    policy = PoolHitPolicy.TRAILING_PAGES if is_tail else PoolHitPolicy.ALL_PAGES
    return PoolTransfer(POOLS[TYPES[number]], None, slots, keys, policy)


def split_action(raw: tuple[NodeId | None, NodeId, NodeId]) -> UpdatePendingBackupOnNodeSplit:
    """What the cache must know of a split (SPLIT-6)."""
    ack_id, split_node, new_node = raw
    return UpdatePendingBackupOnNodeSplit(ack_id, split_node, new_node, split_node)


def action(raw: Any, value: torch.Tensor | None) -> CacheAction:
    """The contract's action for a native one; the request's slots are cut from its value."""
    kind = raw[0]
    if kind in (_FREE, _FREE_FULL_ONLY):
        indices = [_part(value, raw[1], raw[2])]
        return FreeDeviceKV(indices) if kind == _FREE else FreeDeviceKVFullOnly(indices)
    if kind == _BACKUP:
        return BackupKV(raw[1])
    if kind == _SPLIT:
        return split_action(raw[1])
    if kind == _FREE_REPLACED:
        return FreeDeviceKVFullOnly([raw[1]])
    if kind == _EVICT_EXCESS_STATES:
        return MambaEvictExcessPathStates(raw[1])
    return _window_action(kind, TYPES[raw[1]], raw[2:], value)


def _window_action(
    kind: int, component: ComponentType, fields: tuple[Any, ...], value: torch.Tensor | None
) -> CacheAction:
    if kind == _REBUILD:
        node_id, source = fields
        return SWARebuild(node_id, source, component)
    if kind == _RECOVER_LOCKED:
        node_id, kept, start, end = fields
        return RecoverSWAWithLockedFull(node_id, kept, _part(value, start, end), component)
    kept, start, end = fields
    return RecoverEvictedSWA(component, kept, _part(value, start, end))


def _part(value: torch.Tensor | None, start: int, end: int) -> torch.Tensor:
    if value is None:
        raise RuntimeError("an insert that acts on its slots has lost its value")
    return value[start:end]


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
