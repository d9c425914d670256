"""The canary walk: one row for every device slot (FLAT-4 to FLAT-6)."""

from __future__ import annotations

import torch

from ..contract import RadixCacheWalkResult
from .component import Component
from .node import Node
from .tree import Tree


def canary_rows(tree: Tree, unlocked_only: bool, window: Component | None) -> RadixCacheWalkResult:
    """Rows of all nodes in pre-order, or of the unlocked ones only, as CPU tensors.

    With `window`, rows of the nodes that hold its value, and its locks count (FLAT-6).
    """
    component = window or tree.full
    empty = torch.empty(0, dtype=torch.int64)
    slots, positions, previous = [empty], [empty], [empty]
    # Where each node ends: its depth in units, and its last slot. The root has neither.
    ends: dict[Node, tuple[int, torch.Tensor]] = {tree.root: (0, torch.tensor([-1]))}
    for node in tree.pre_order():
        assert node.parent is not None
        assert node.full.device_value is not None
        start, slot_before = ends[node.parent]
        value = node.full.device_value.cpu()
        ends[node] = start + node.length, value[-1:]
        data = component.data(node)
        if data.device_value is None or (unlocked_only and data.lock_ref > 0):
            continue
        slots.append(value)
        positions.append(torch.arange(start, start + node.length))
        previous += (slot_before, value[:-1])
    return RadixCacheWalkResult(torch.cat(slots), torch.cat(positions), torch.cat(previous))
