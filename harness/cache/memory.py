"""The pools that a configuration asks for."""

from __future__ import annotations

import torch

from treedrift.backends.contract import ComponentType
from treedrift.backends.pools import Journal, Pools, make_pools

from ..config import Config

WINDOWS = (ComponentType.SWA, ComponentType.AUXILIARY_SWA)
"""Components that are sliding windows."""


def pools_for(
    config: Config, device: torch.device | str = "cpu", journal: Journal | None = None
) -> Pools:
    """Pools for one side: windows and states only where the tree has such a component."""
    slots = config.window_capacity or config.capacity
    return make_pools(
        config.capacity,
        config.rows,
        config.row_length,
        config.page_size,
        config.need_sort,
        device,
        journal,
        windows={kind: slots for kind in config.component_types() if kind in WINDOWS},
        window_ring=config.window_ring,
        states=config.states if config.has_states else 0,
    )
