"""Cache actions: what a core asks the cache to do, in order (KEY-58, CTL-19).

Actions are immutable records; tensors are 1-D int64 index tensors.
"""

from __future__ import annotations

import msgspec
import torch

from .components import ComponentType, NodeId


class FreeDeviceKV(msgspec.Struct, frozen=True, eq=False):
    """Give these device slots back; each tensor is a run of a row (POOL-59)."""

    indices: list[torch.Tensor]


class FreeDeviceKVFullOnly(msgspec.Struct, frozen=True, eq=False):
    """Like `FreeDeviceKV`, for slots whose window peer is already gone (INS-31)."""

    indices: list[torch.Tensor]


class BackupKV(msgspec.Struct, frozen=True):
    """Copy these nodes to the next tier, root-most first (INS-56)."""

    node_ids: list[NodeId]


class UpdatePendingBackupOnNodeSplit(msgspec.Struct, frozen=True):
    """A node with a backup in flight was split (SPLIT-6)."""

    ack_id: NodeId | None
    old_node_id: NodeId
    new_node_id: NodeId
    new_child_node_id: NodeId
    component_type: ComponentType = ComponentType.FULL


class FreeComponentDeviceSlot(msgspec.Struct, frozen=True, eq=False):
    """Give device slots of one component back (CTL-20 to CTL-22)."""

    indices: list[torch.Tensor]
    component_type: ComponentType


class FreeComponentHostSlot(msgspec.Struct, frozen=True, eq=False):
    """Give host slots of one component back."""

    host_indices: list[torch.Tensor]
    component_type: ComponentType


class MambaEvictExcessPathStates(msgspec.Struct, frozen=True):
    """The path to this node holds more states than the cap allows."""

    tail_node_id: NodeId
    component_type: ComponentType = ComponentType.MAMBA


class RebuildFullToSWAMapping(msgspec.Struct, frozen=True, eq=False):
    """Map full slots to window slots, pairwise."""

    full_indices: list[torch.Tensor]
    swa_indices: list[torch.Tensor]
    component_type: ComponentType = ComponentType.SWA


class RecoverSWAWithLockedFull(msgspec.Struct, frozen=True, eq=False):
    """Move the window peers of `incoming_full` to `kept_full`, then free `incoming_full`."""

    node_id: NodeId
    kept_full: torch.Tensor
    incoming_full: torch.Tensor
    component_type: ComponentType = ComponentType.SWA


class RecoverEvictedSWA(msgspec.Struct, frozen=True, eq=False):
    """Move a mapping only; no built-in core emits it (CTL-21)."""

    component_type: ComponentType
    kept_full: torch.Tensor
    incoming_full: torch.Tensor


class SWARebuild(msgspec.Struct, frozen=True, eq=False):
    """Translate full slots and store the result as the node's window value."""

    node_id: NodeId
    source_value: torch.Tensor
    component_type: ComponentType = ComponentType.SWA


ComponentAction = (
    UpdatePendingBackupOnNodeSplit
    | FreeComponentDeviceSlot
    | FreeComponentHostSlot
    | MambaEvictExcessPathStates
    | RebuildFullToSWAMapping
    | RecoverSWAWithLockedFull
    | RecoverEvictedSWA
    | SWARebuild
)
"""Actions that one component's driver executes."""

CacheAction = FreeDeviceKV | FreeDeviceKVFullOnly | BackupKV | ComponentAction
"""Everything that a core can ask for."""
