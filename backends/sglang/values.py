"""Values of a release turned into those of the contract, and back, for the plug.

Everything that crosses is the receiver's own: the tree keeps some of the tensors that it is given
or answers with (BND-29), and a core may flip or keep the key that it is given (PLUG-9).
"""

from __future__ import annotations

from typing import Any

from ..contract import (
    CacheAction,
    CacheTransferPhase,
    ComponentTransfers,
    ComponentType,
    EvictionResult,
    Frees,
    PoolName,
    RadixKey,
)
from .crossing import Crossing
from .pairing import note_lacking
from .release import Release

_DRAINED = ("device_frees", "host_frees", "cache_actions")


class Values:
    """Converters between one release and the contract; notes what the release lacks.

    Those that lead into the release pass on what is no value of the contract, for the core to
    refuse; the others raise `ReleaseMismatchError` for what the contract has no place for.
    """

    def __init__(self, release: Release) -> None:
        note_lacking(release)
        outward = Crossing(release, inward=False, owns=True)
        inward = Crossing(release, inward=True, owns=True)
        self.result_out = outward.struct
        self.event_out = outward.struct
        self.action_out = outward.struct
        self._actions_out = outward.of(list[CacheAction])
        self.component_out = outward.of(ComponentType)
        self.frees_out = outward.of(Frees)
        self.transfers_out = outward.of(ComponentTransfers)
        self.pool_out = outward.of(PoolName)
        self.param_in = inward.struct
        self.key_in = inward.of(RadixKey)
        self.component_in = inward.of(ComponentType)
        self.components_in = inward.of(tuple[ComponentType, ...])
        self.component_map_in = inward.of(dict[ComponentType, Any])
        self.transfers_in = inward.of(ComponentTransfers)
        self.phase_in = inward.of(CacheTransferPhase)

    def actions_out(self, values: Any) -> list[CacheAction]:
        """A fresh list of cache actions, in order."""
        actions: list[CacheAction] = self._actions_out(values)
        return actions

    def eviction_out(self, value: Any) -> EvictionResult:
        """A result with freed slots; the released one is drained for its finalizer (BND-19)."""
        result: EvictionResult = self.result_out(value)
        for name in _DRAINED:
            if (held := getattr(value, name, None)) is not None:
                held.clear()
        return result
