"""What an inner node gives up when one of its auxiliary values has to go (SWA-E8, MAM-E6)."""

from __future__ import annotations

from ..contract import Frees
from .auxiliary import AuxiliaryComponent
from .node import Node


def evict_inner(component: AuxiliaryComponent, node: Node) -> Frees:
    """Free a node's value of `component`, and those that can't outlast it, in this order.

    Leaf status stays as it was: FULL keeps its value, and no lock or child changes.
    """
    frees: Frees = {}
    for each in (component, *component.taken_along(node)):
        slots = each.evict_device(node)
        assert slots is not None
        frees[each.component_type] = [slots]
    return frees
