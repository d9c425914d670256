"""The offload side of the external cache linker: what leaves the device for an external store.

It stands for the wrapper and for the transport (LKW-20 to LKW-27). Transfers land when an ack op
says so, oldest first; until then each one locks its node.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import torch

from treedrift.backends.contract import (
    ComponentType,
    DecLockRefParams,
    NodeId,
    PoolName,
    PoolTransfer,
    TreeCore,
    UpdatePendingBackupOnNodeSplit,
)
from treedrift.backends.pools import KvBuffers, Pools

from .findings import OracleFinding

_WINDOW_NAMES = {
    ComponentType.SWA: PoolName.SWA,
    ComponentType.AUXILIARY_SWA: PoolName.AUXILIARY_SWA,
}

QUEUE_LIMIT = 8
"""Offloads in flight that the transport takes; it refuses more, as a bounded queue does."""


class PendingOffload(msgspec.Struct, eq=False):
    """One accepted offload: its locked node, the receipt, the nodes to publish, what it copies."""

    node_id: NodeId
    receipt: DecLockRefParams
    publish: list[NodeId]
    transfers: list[PoolTransfer]
    content: list[torch.Tensor]
    session_id: str | None


class Linker:
    """Offloads in flight, in the order in which they were accepted (CTL-65)."""

    def __init__(self, core: TreeCore, pools: Pools, findings: list[OracleFinding]) -> None:
        self._core = core
        self._buffers = {PoolName.KV: pools.kv}
        for component, window in pools.windows.items():
            self._buffers[_WINDOW_NAMES[component]] = window.kv
        if pools.states is not None:
            self._buffers[PoolName.MAMBA] = pools.states.kv
        self._findings = findings
        self.pending: list[PendingOffload] = []

    def offload(self, node_ids: Sequence[NodeId], session_id: str | None) -> None:
        """Execute a `BackupKV`: start the offload of each node that needs one (LKW-20)."""
        for node_id in node_ids:
            transfers = self._core.build_external_linker_offload_transfers(node_id)
            if transfers is None:
                continue
            receipt = self._core.inc_lock_ref(node_id).to_dec_params()
            if len(self.pending) >= QUEUE_LIMIT:
                # Refused: an insert that passes the node again retries it (LKW-22).
                self._core.dec_lock_ref(node_id, receipt)
                continue
            self._core.mark_external_linker_offload_pending(node_id)
            content = [buffer.read(slots) for buffer, slots in self._copied(transfers)]
            self.pending.append(
                PendingOffload(node_id, receipt, [node_id], transfers, content, session_id)
            )

    def redirect(self, split: UpdatePendingBackupOnNodeSplit) -> None:
        """A node with an offload in flight was split: publish both parts (LKW-23)."""
        for offload in self.pending:
            if offload.node_id == split.ack_id and split.old_node_id in offload.publish:
                place = offload.publish.index(split.old_node_id)
                offload.publish[place : place + 1] = [split.new_node_id, split.new_child_node_id]

    def ack(self, success: bool) -> bool:
        """The oldest offload lands or fails (LKW-24). False when none is in flight."""
        if not self.pending:
            return False
        self._check_content(self.pending[0])
        self._commit(success)
        return True

    def reset(self) -> None:
        """Fail and unlock everything in flight, oldest first (LKW-27)."""
        while self.pending:
            self._commit(success=False)

    def _commit(self, success: bool) -> None:
        offload = self.pending.pop(0)
        self._core.finish_external_linker_offload(offload.publish, offload.node_id, success)
        self._core.dec_lock_ref(offload.node_id, offload.receipt)

    def _check_content(self, offload: PendingOffload) -> None:
        """The copy is made now, so what it reads must still be what was to be copied."""
        copied = self._copied(offload.transfers)
        for (buffer, slots), content in zip(copied, offload.content, strict=True):
            if not buffer.holds(slots, content):
                self._findings.append(
                    OracleFinding("kv_content", "slots of an offload in flight were overwritten")
                )

    def _copied(self, transfers: list[PoolTransfer]) -> list[tuple[KvBuffers, torch.Tensor]]:
        """What a transfer reads: buffers and slots in them."""
        return [
            (self._buffers[transfer.name], transfer.device_indices)
            for transfer in transfers
            if transfer.device_indices is not None
        ]
