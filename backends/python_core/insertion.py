"""Insertion: what one insert was asked for and what it has to say so far.

The walk and the components' hooks share it: hooks read the request and add to the actions and the
result. Only splits need care, because they cut a node for which an action may be waiting.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from ..contract import (
    CacheAction,
    ComponentType,
    InsertResult,
    RecoverSWAWithLockedFull,
    SWARebuild,
)
from .keys import PackedKey

if TYPE_CHECKING:
    from .node import Node
    from .tree import Tree


@dataclass(slots=True)
class Request:
    """The arguments of one insert, converted. Lengths are in units.

    `key_units` is the key's length before it was cut to whole pages.
    """

    key: PackedKey
    key_units: int
    prev_prefix_len: int
    evicted_lens: dict[ComponentType, int]
    window_evicted_len: int
    window_branch_len: int | None
    mamba_value: torch.Tensor | None
    inserted_len: int
    priority: int
    rotation_base: int | None
    session_id: str | None
    track_adopted_ranges: bool


@dataclass(slots=True)
class Insertion:
    """One insert in flight. `value` has one entry for each unit of the key, and is the caller's."""

    tree: Tree
    request: Request
    value: torch.Tensor
    result: InsertResult
    is_new_leaf: bool = False
    pending: list[CacheAction] = field(default_factory=list)

    def split(self, lower: Node, length: int) -> Node:
        """Cut a node for a hook, and every waiting action that fills its window (SWA-I22)."""
        upper = self.tree.split(lower, length)
        self.pending[:] = [piece for action in self.pending for piece in _cut(action, upper, lower)]
        self.pending += self.tree.split_action(upper, lower)
        return upper


def _cut(action: CacheAction, upper: Node, lower: Node) -> list[CacheAction]:
    """The action for each half of a split node, or the action itself if it is for another one."""
    if not isinstance(action, (SWARebuild, RecoverSWAWithLockedFull)):
        return [action]
    if action.node_id != lower.id:
        return [action]
    component = action.component_type
    first, second = upper.full.device_value, lower.full.device_value
    assert first is not None
    assert second is not None
    if isinstance(action, SWARebuild):
        return [SWARebuild(upper.id, first, component), SWARebuild(lower.id, second, component)]
    incoming = action.incoming_full
    return [
        RecoverSWAWithLockedFull(upper.id, first, incoming[: upper.length], component),
        RecoverSWAWithLockedFull(lower.id, second, incoming[upper.length :], component),
    ]
