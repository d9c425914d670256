"""The Mamba component: at most one state on a node, which sums up the whole prefix (MAM).

A state can't be cut, so only nodes where an insert ended have one, and a match ends on such a
node or at the root. Locks are on one node, not on a path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import torch

from ..contract import (
    ComponentType,
    ContractError,
    DecLockRefParams,
    IncLockRefResult,
    MambaEvictExcessPathStates,
    MatchResult,
    PoolHitPolicy,
    PoolName,
    PoolTransfer,
)
from .auxiliary import AuxiliaryComponent
from .component import NodeTest
from .insertion import Insertion

if TYPE_CHECKING:
    from .node import Node
    from .tree import Tree


class MambaComponent(AuxiliaryComponent):
    """Mamba's part of one tree."""

    component_type = ComponentType.MAMBA
    internal_priority = 0
    pool_name = PoolName.MAMBA

    def __init__(self, tree: Tree, index: int, grid: int, states_max: int) -> None:
        """`grid` is where states may be stored (MAM-C2); no cap for a negative `states_max`."""
        self._grid = grid
        self._states_max = states_max
        super().__init__(tree, index)

    def value_length(self, node: Node) -> int:
        """One state (MAM-D2)."""
        return 1

    def freed_slots(self, node: Node, value: torch.Tensor) -> torch.Tensor:
        """The state's own slot (MAM-A2)."""
        return value

    # --- Match ----------------------------------------------------------------------------

    def match_validator(self) -> NodeTest:
        """Accept the nodes with a state (MAM-M1)."""
        index = self._index
        return lambda node: node.auxiliary[index].device_value is not None

    def finalize_match(self, result: MatchResult) -> MatchResult:
        """Say where a state would be worth storing, on the grid (MAM-M8)."""
        aligned = result.full_kv_hit_length // self._grid * self._grid
        if aligned <= result.device_prefix_len:
            return result
        return msgspec.structs.replace(result, mamba_branching_seqlen=aligned)

    def refresh_after_match(self, best: Node) -> None:
        """Make the state of the match recent, none above it (MAM-M6)."""
        if best in self.recency:
            self.recency.promote(best)

    def refresh_after_insert(self, target: Node) -> None:
        """Do nothing more than the commit did (MAM-I11)."""

    # --- Insert ---------------------------------------------------------------------------

    def redistribute_on_split(self, upper: Node, lower: Node, length: int) -> None:
        """Leave state and locks below: they belong to the end of the node (MAM-S1, MAM-S2)."""

    def consume_overlap(self, node: Node, length: int, position: int, insertion: Insertion) -> int:
        """Keep none of the request's slots."""
        return length

    def commit_insert(self, target: Node, insertion: Insertion) -> None:
        """Store the state on a target without one (MAM-I6 to MAM-I9)."""
        tree = self._tree
        is_held = self.data(target).device_value is not None
        if is_held:
            self.recency.promote(target)
            insertion.result.mamba_exist = True
        else:
            assert insertion.request.mamba_value is not None
            self.store(target, insertion.request.mamba_value)
        if not insertion.is_new_leaf:
            tree.touch(target)
        if self._states_max >= 0 and not is_held:
            insertion.pending.append(MambaEvictExcessPathStates(target.id))

    # --- Locks ----------------------------------------------------------------------------

    def acquire(self, node: Node, receipt: IncLockRefResult) -> None:
        """Lock the one node, with a state or not (MAM-L1)."""
        if node is not self._tree.root:
            self._lock(node)

    def check_release(self, node: Node, receipt: DecLockRefParams) -> None:
        """Refuse if the node is not locked (MAM-L2)."""
        if self.data(node).lock_ref <= 0:
            raise ContractError(f"node {node.id} holds no state lock that could be released")

    def release(self, node: Node, receipt: DecLockRefParams) -> None:
        """Unlock the one node (MAM-L2)."""
        if node is not self._tree.root:
            self._unlock(node)

    def acquire_host(self, node: Node, receipt: IncLockRefResult) -> None:
        """Count a host lock on the one node, with a host copy or not (MAM-L6, MAM-L9)."""
        if node is not self._tree.root:
            self.data(node).host_lock_ref += 1

    def check_release_host(self, node: Node, receipt: DecLockRefParams) -> None:
        """Refuse if the node has no host lock (MAM-L7)."""
        if node is not self._tree.root and self.data(node).host_lock_ref <= 0:
            raise ContractError(f"node {node.id} holds no host lock of a state")

    def release_host(self, node: Node, receipt: DecLockRefParams) -> None:
        """Take one host lock off the one node (MAM-L7)."""
        if node is not self._tree.root:
            self.data(node).host_lock_ref -= 1

    # --- Eviction and offload -------------------------------------------------------------

    def evict_excess(self, tail: Node) -> list[torch.Tensor]:
        """The states that the path to `tail` gives up for the cap, root side first (MAM-P5)."""
        if self._states_max < 0:
            return []
        holders = []
        node = tail
        while node.parent is not None:
            if self.data(node).device_value is not None:
                holders.append(node)
            node = node.parent
        freed: list[torch.Tensor] = []
        excess = len(holders) - self._states_max
        for holder in reversed(holders):
            if len(freed) >= excess or holder is tail:
                break
            if self._is_spared(holder):
                continue
            value = self.evict_device(holder)
            assert value is not None
            freed.append(value)
        return freed

    def _is_spared(self, node: Node) -> bool:
        """Whether the cap leaves a state alone: a lock, a fork or a device leaf (MAM-P6)."""
        is_inner = len(node.children) == 1 and node not in self._tree.device_leaves
        return not (is_inner and self.is_unlocked(node))

    def offload(self, node: Node) -> PoolTransfer | None:
        """The state, named by the node's last page (MAM-H18)."""
        value = self.data(node).device_value
        if value is None or not node.hashes:
            return None
        return PoolTransfer(
            self.pool_name,
            device_indices=value,
            keys=node.hashes[-1:],
            hit_policy=PoolHitPolicy.TRAILING_PAGES,
        )
