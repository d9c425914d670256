"""A released SGLang core behind the project's contract.

Runs inside an environment that has SGLang. Every call converts its arguments, calls the released
core once, and converts the answer; `core_ns` counts the time in the released core alone. Hides
SGLang's own types. It must not repair what a core answers: a difference is what we look for.
"""

# ruff: noqa: D102 -- the contract documents the methods of a core.

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, TypeVar

import torch

from ..contract import (
    CacheAction,
    CacheInitParams,
    ComponentType,
    DecLockRefParams,
    DecLockRefResult,
    DecSwaLockOnlyResult,
    DemoteResult,
    DriveHostEvictionResult,
    DropSubtreeNoHostResult,
    EvictDeviceLeafResult,
    EvictDeviceNextNodeResult,
    EvictionResult,
    Frees,
    IncLockRefResult,
    InsertParams,
    InsertStepResult,
    KvEvent,
    MatchPrefixParams,
    MatchResult,
    NodeId,
    RadixKey,
)
from .call import ReleasedCall
from .construct import build_core, plug_in
from .host_tier import HostTierCalls
from .queries import QueryCalls

_Eviction = TypeVar("_Eviction", bound=EvictionResult)


def _forwarded(name: str) -> Any:
    """An attribute that lives in the released core."""

    def read(self: SglangCore) -> Any:
        return self._call.get(name)

    def write(self: SglangCore, value: Any) -> None:
        self._call.set(name, value)

    return property(read, write)


class SglangEvents:
    """The released core's event queue, with events in the contract's types (EVT-2 to EVT-4)."""

    def __init__(self, core: SglangCore) -> None:
        self._core = core
        # Fixed at construction (CFG-12).
        self.enabled = bool(core._call.get("kv_events").enabled)

    def record_all_cleared(self) -> None:
        """Append `AllBlocksCleared`; nothing when events are off."""
        self._core._call.get("kv_events").record_all_cleared()

    def take(self) -> list[KvEvent]:
        """All queued events in order; empties the queue."""
        convert = self._core._values.event_out
        return [convert(event) for event in self._core._call("take_events")]


class SglangCore(QueryCalls, HostTierCalls):
    """A released core. `flavour` is "python" or "rust".

    `missing` names what of the contract the release lacks, as in "BlockStored.lora_name": fields
    keep their defaults, methods raise `UnsupportedError`.
    """

    enable_hicache: bool = _forwarded("enable_hicache")
    enable_storage: bool = _forwarded("enable_storage")
    enable_external_cache_linker: bool = _forwarded("enable_external_cache_linker")
    write_through_threshold: int = _forwarded("write_through_threshold")
    is_write_back: bool = _forwarded("is_write_back")
    has_swa_host_pool: bool = _forwarded("has_swa_host_pool")
    is_host_memory_buffer_only: bool = _forwarded("is_host_memory_buffer_only")
    write_back_duplicate_reclaim_digest: int = _forwarded("write_back_duplicate_reclaim_digest")
    supports_rotation_base: bool = _forwarded("supports_rotation_base")
    page_size: int = _forwarded("page_size")
    is_eagle: bool = _forwarded("is_eagle")

    def __init__(self, params: CacheInitParams, flavour: str = "rust") -> None:
        """Build an empty tree. Raises the contract's errors, and `ReleaseMismatchError`."""
        plug = plug_in(flavour)
        self._values = plug.values
        self._call = ReleasedCall(
            build_core(plug, params),
            plug.release.type("ComponentType"),
            plug.methods_lacking,
            plug.parameters_lacking,
        )
        self.flavour = flavour
        self.missing = plug.missing
        self.device = torch.device(self._call.get("device"))
        self.kv_events = SglangEvents(self)

    @property
    def core_ns(self) -> int:
        """Nanoseconds spent inside the released core so far."""
        return self._call.core_ns

    # --- Life cycle -----------------------------------------------------------------------

    def reset(self) -> None:
        self._call("reset")

    def set_hicache_enabled(self) -> None:
        self._call("set_hicache_enabled")

    def set_host_memory_buffer_only(self) -> None:
        self._call("set_host_memory_buffer_only")

    # --- Match and insert -----------------------------------------------------------------

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        result: MatchResult = self._values.result_out(
            self._call("match_prefix", self._values.param_in(params))
        )
        return result

    def match_full_device_prefix(self, key: RadixKey) -> tuple[int, NodeId, int]:
        matched, node_id, pinned = self._call("match_full_device_prefix", self._values.key_in(key))
        return matched, node_id, pinned

    @property
    def empty_match_result(self) -> MatchResult:
        result: MatchResult = self._values.result_out(self._call.get("empty_match_result"))
        return result

    def supports_fast_match_prefix(self) -> bool:
        if self._call.lacks("supports_fast_match_prefix"):
            return super().supports_fast_match_prefix()
        return bool(self._call("supports_fast_match_prefix"))

    def begin_insert(self, params: InsertParams) -> InsertStepResult:
        return self._insert_step("begin_insert", self._values.param_in(params))

    def resume_insert(self) -> InsertStepResult:
        return self._insert_step("resume_insert")

    def _insert_step(self, method: str, *args: Any) -> InsertStepResult:
        result: InsertStepResult = self._values.result_out(self._call(method, *args))
        return result

    def has_ongoing_insert(self) -> bool:
        return bool(self._call("has_ongoing_insert"))

    def end_insert(self) -> list[CacheAction]:
        return self._values.actions_out(self._call("end_insert"))

    # --- Locks ----------------------------------------------------------------------------

    def inc_lock_ref(
        self, node_id: NodeId, skip_lock_components: Sequence[ComponentType] = ()
    ) -> IncLockRefResult:
        skipped = self._values.components_in(skip_lock_components)
        return self._receipt("inc_lock_ref", node_id, skipped)

    def inc_host_lock_ref(self, node_id: NodeId) -> IncLockRefResult:
        return self._receipt("inc_host_lock_ref", node_id)

    def _receipt(self, method: str, *args: Any) -> IncLockRefResult:
        result: IncLockRefResult = self._values.result_out(self._call(method, *args))
        return result

    def dec_lock_ref(
        self, node_id: NodeId, params: DecLockRefParams, skip_swa: bool = False
    ) -> DecLockRefResult:
        given = self._values.param_in(params)
        optional = {"skip_swa": skip_swa} if skip_swa is not False else {}
        result: DecLockRefResult = self._values.result_out(
            self._call("dec_lock_ref", node_id, given, **optional)
        )
        return result

    def dec_host_lock_ref(self, node_id: NodeId, params: DecLockRefParams) -> DecLockRefResult:
        given = self._values.param_in(params)
        result: DecLockRefResult = self._values.result_out(
            self._call("dec_host_lock_ref", node_id, given)
        )
        return result

    def dec_swa_lock_only(self, node_id: NodeId, params: DecLockRefParams) -> DecSwaLockOnlyResult:
        given = self._values.param_in(params)
        return self._eviction(DecSwaLockOnlyResult, "dec_swa_lock_only", node_id, given)

    def dec_window_lock_only(
        self, node_id: NodeId, component_type: ComponentType, params: DecLockRefParams
    ) -> DecSwaLockOnlyResult:
        component, given = self._values.component_in(component_type), self._values.param_in(params)
        return self._eviction(
            DecSwaLockOnlyResult, "dec_window_lock_only", node_id, component, given
        )

    def inc_full_pin(self, node_id: NodeId) -> None:
        self._call("inc_full_pin", node_id)

    def dec_full_pin(self, node_id: NodeId) -> None:
        self._call("dec_full_pin", node_id)

    # --- Eviction -------------------------------------------------------------------------

    def _eviction(self, kind: type[_Eviction], method: str, *args: Any) -> _Eviction:
        result = self._values.eviction_out(self._call(method, *args))
        assert isinstance(result, kind)
        return result

    def evict_device_start(self, component_type: ComponentType, request_cnt: int) -> None:
        self._call("evict_device_start", self._values.component_in(component_type), request_cnt)

    def evict_device_next_node(
        self, component_type: ComponentType, tracker: dict[ComponentType, int]
    ) -> EvictDeviceNextNodeResult:
        component = self._values.component_in(component_type)
        given = self._values.component_map_in(tracker)
        return self._eviction(EvictDeviceNextNodeResult, "evict_device_next_node", component, given)

    def evict_device_leaf(self, node_id: NodeId, is_write_back: bool) -> EvictDeviceLeafResult:
        return self._eviction(EvictDeviceLeafResult, "evict_device_leaf", node_id, is_write_back)

    def evict_device_end(self, component_type: ComponentType) -> None:
        self._call("evict_device_end", self._values.component_in(component_type))

    def finish_mamba_state_eviction(self, node_id: NodeId) -> EvictDeviceNextNodeResult:
        return self._eviction(EvictDeviceNextNodeResult, "finish_mamba_state_eviction", node_id)

    def finish_swa_state_eviction(self, node_id: NodeId) -> EvictDeviceNextNodeResult:
        return self._eviction(EvictDeviceNextNodeResult, "finish_swa_state_eviction", node_id)

    def evict_excess_path_states(
        self,
        tail_node_id: NodeId,
        device_frees: Frees,
        host_frees: Frees,
        cache_actions: list[CacheAction],
    ) -> None:
        # The released cores append to lists that must come into being on access (BND-20).
        on_device: dict[Any, list[torch.Tensor]] = defaultdict(list)
        on_host: dict[Any, list[torch.Tensor]] = defaultdict(list)
        actions: list[Any] = []
        # Releases whose evictions yield no actions have no place to put them.
        is_new = not self._call.lacks("evict_excess_path_states", "cache_actions")
        optional = {"cache_actions": actions} if is_new else {}
        self._call("evict_excess_path_states", tail_node_id, on_device, on_host, **optional)
        for ours, theirs in ((device_frees, on_device), (host_frees, on_host)):
            for component, tensors in self._values.frees_out(theirs).items():
                ours.setdefault(component, []).extend(tensors)
        cache_actions.extend(self._values.actions_out(actions))

    def demote(self, node_id: NodeId) -> DemoteResult:
        return self._eviction(DemoteResult, "demote", node_id)

    def drop_subtree_no_host(self, node_id: NodeId) -> DropSubtreeNoHostResult:
        return self._eviction(DropSubtreeNoHostResult, "drop_subtree_no_host", node_id)

    def drive_host_eviction(
        self, component_type: ComponentType, num_tokens: int
    ) -> DriveHostEvictionResult:
        component = self._values.component_in(component_type)
        return self._eviction(DriveHostEvictionResult, "drive_host_eviction", component, num_tokens)

    # --- Sizes ----------------------------------------------------------------------------

    def component_evictable_size(self, component_type: ComponentType) -> int:
        component = self._values.component_in(component_type)
        return int(self._call("component_evictable_size", component))

    def component_protected_size(self, component_type: ComponentType) -> int:
        component = self._values.component_in(component_type)
        return int(self._call("component_protected_size", component))

    def evictable_size(self) -> int:
        return int(self._call("evictable_size"))

    def protected_size(self) -> int:
        return int(self._call("protected_size"))

    def full_evictable_size(self) -> int:
        return int(self._call("full_evictable_size"))

    def full_protected_size(self) -> int:
        return int(self._call("full_protected_size"))

    def swa_evictable_size(self) -> int:
        return int(self._call("swa_evictable_size"))

    def swa_protected_size(self) -> int:
        return int(self._call("swa_protected_size"))

    def mamba_evictable_size(self) -> int:
        return int(self._call("mamba_evictable_size"))

    def mamba_protected_size(self) -> int:
        return int(self._call("mamba_protected_size"))

    def total_size(self) -> tuple[int, int]:
        full, others = self._call("total_size")
        return full, others

    def adjust_component_size(
        self, node_id: NodeId, component_type: ComponentType, delta: int
    ) -> None:
        component = self._values.component_in(component_type)
        self._call("adjust_component_size", node_id, component, delta)
