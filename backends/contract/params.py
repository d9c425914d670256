"""Arguments of a core's constructor and methods (KEY-50 to KEY-53, LOCK-2, CFG-1)."""

from __future__ import annotations

from typing import Any

import msgspec
import torch

from .components import ComponentType, NodeId
from .events import KvEventLoraNames, LoraNames
from .key import RadixKey


class AuxiliaryWindow(msgspec.Struct, frozen=True):
    """A second sliding window: what `component_registry_override` gives for AUXILIARY_SWA (SWA-C8).

    It is independent of the first: its own values, locks, lists and evicted length.
    """

    sliding_window_size: int


class CacheInitParams(msgspec.Struct, kw_only=True, eq=False):
    """How a core is built (CFG-1). Fixed for the core's life (CFG-12).

    `token_to_kv_pool_allocator` is read for its `device` only; without one the device is the CPU.
    The two Mamba figures stand here because a released server publishes them apart (CFG-5).
    """

    page_size: int = 1
    tree_components: tuple[ComponentType, ...] = (ComponentType.FULL,)
    is_eagle: bool = False
    eviction_policy: str = "lru"
    eviction_policy_config: dict[str, Any] | None = None
    token_to_kv_pool_allocator: Any = None
    req_to_token_pool: Any = None
    enable_kv_cache_events: bool = False
    dynamo_kv_event_format: bool = False
    kv_event_lora_names: LoraNames = msgspec.field(default_factory=KvEventLoraNames)
    enable_session_radix_cache: bool = False
    sliding_window_size: int | None = None
    draft_swa_window: int = 0
    swa_gates_prefix_match: bool = True
    enable_mamba_extra_buffer: bool = False
    mamba_cache_chunk_size: int | None = None
    mamba_max_states_per_path: int = -1
    component_registry_override: dict[ComponentType, Any] | None = None


class MatchPrefixParams(msgspec.Struct, eq=False):
    """What to look up (KEY-52). A core reads only `key`."""

    key: RadixKey
    cow_mamba: bool = False
    req: Any = None


class InsertParams(msgspec.Struct, kw_only=True, eq=False):
    """What to insert (KEY-53).

    `value` is int64, 1-D, on the core's device, at least as long as the page-aligned key; None
    stands for the token ids themselves (INS-11). Lengths are in units.
    """

    key: RadixKey
    value: torch.Tensor | None = None
    mamba_value: torch.Tensor | None = None
    mamba_keep_idx: int | None = None
    c128_value: torch.Tensor | None = None
    prev_prefix_len: int = 0
    swa_branching_seqlen: int | None = None
    component_evicted_seqlens: dict[ComponentType, int] = msgspec.field(default_factory=dict)
    inserted_len: int = 0
    priority: int | None = 0
    session_id: str | None = None
    track_adopted_ranges: bool = False
    rotation_base: int | None = None

    def get_evicted_seqlen(self, component_type: ComponentType) -> int:
        """Units whose value of this component the caller has given up; 0 if not said."""
        return self.component_evicted_seqlens.get(component_type, 0)

    def set_evicted_seqlen(self, component_type: ComponentType, length: int) -> None:
        """Say how many units of this component the caller has given up."""
        self.component_evicted_seqlens[component_type] = length


class DecLockRefParams(msgspec.Struct, eq=False):
    """The receipt of a lock, as its release wants it back (LOCK-2, LOCK-8)."""

    node_id: NodeId | None = None
    skipped_lock_components: tuple[ComponentType, ...] = ()
    component_lock_uuids: dict[ComponentType, int | None] = msgspec.field(default_factory=dict)
    component_host_lock_uuids: dict[ComponentType, int | None] = msgspec.field(default_factory=dict)


class EvictParams(msgspec.Struct, eq=False):
    """How many tokens or states to evict, per component (CTL-25)."""

    num_tokens: int = 0
    swa_num_tokens: int = 0
    mamba_num: int = 0
