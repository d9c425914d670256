"""What all parts of the core share: construction, settings, and the lookup of handles.

The core's calls are spread over modules by concern; each module derives from `CoreBase`, and
`core.PythonTreeCore` puts them together. Every call checks its arguments, then looks up handles,
then checks the protocol, and only then changes anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ..contract import (
    CacheInitParams,
    ComponentType,
    ContractError,
    InvalidArgumentError,
    NodeId,
    TreeCore,
    UnknownNodeError,
    UnsupportedError,
)
from . import arguments
from .assembly import auxiliary_makers
from .component import Component
from .events import EventRecorder
from .keys import KeyLayout
from .node import Node
from .policies import make_policy
from .tree import Tree


class CoreBase(TreeCore):
    """One tree, its settings and its handles."""

    def __init__(self, params: CacheInitParams) -> None:
        """Build an empty tree (CFG-1 to CFG-4).

        Raises `TypeError`, `OverflowError` or `InvalidArgumentError` for a bad value, and
        `UnsupportedError` for a component or mode that this core does not have.
        """
        page_size = arguments.size(params.page_size, "page_size")
        is_eagle = arguments.flag(params.is_eagle, "is_eagle")
        sessions = arguments.flag(params.enable_session_radix_cache, "enable_session_radix_cache")
        events = EventRecorder(
            arguments.flag(params.enable_kv_cache_events, "enable_kv_cache_events"),
            arguments.flag(params.dynamo_kv_event_format, "dynamo_kv_event_format"),
            params.kv_event_lora_names,
        )
        policy = make_policy(params.eviction_policy, params.eviction_policy_config)
        makers = auxiliary_makers(params, page_size)
        if sessions:
            raise UnsupportedError("this core has no session mode")
        device = _device_of(params.token_to_kv_pool_allocator)
        self.kv_events = events
        self.device = device
        # States stand for tokens, so a tree with states never holds pairs (MAM-D12).
        is_bigram = is_eagle and ComponentType.MAMBA not in params.tree_components
        self._tree = Tree(KeyLayout(page_size, is_bigram), policy, events, device, makers)

    # --- Handles and components -----------------------------------------------------------

    def _node(self, node_id: NodeId) -> Node:
        """The node of a handle; `UnknownNodeError` for one that is not live (BND-31)."""
        if type(node_id) is int:
            node = self._tree.nodes.get(node_id)
            if node is not None:
                return node
        node = self._tree.nodes.get(arguments.handle(node_id))
        if node is None:
            raise UnknownNodeError(node_id)
        return node

    def _nodes(self, node_ids: Iterable[NodeId]) -> list[Node]:
        """The nodes of several handles: all are converted before the first is looked up."""
        return [self._node(handle) for handle in [arguments.handle(each) for each in node_ids]]

    def _find_component(self, component_type: ComponentType) -> Component | None:
        for component in self._tree.components:
            if component.component_type == component_type:
                return component
        return None

    def _component(self, component_type: ComponentType) -> Component:
        """A component that the core was built with, else `ContractError`."""
        component = self._find_component(component_type)
        if component is None:
            raise lacking(component_type)
        return component

    # --- Settings -------------------------------------------------------------------------

    @property
    def page_size(self) -> int:
        """Units per page; fixed (BND-38)."""
        return self._tree.layout.page_size

    @page_size.setter
    def page_size(self, value: int) -> None:
        raise AttributeError("page_size is fixed at construction")

    @property
    def is_eagle(self) -> bool:
        """Whether the tree holds pairs of tokens; fixed (KEY-20)."""
        return self._tree.layout.is_bigram

    @is_eagle.setter
    def is_eagle(self, value: bool) -> None:
        raise AttributeError("is_eagle is fixed at construction")

    @property
    def enable_hicache(self) -> bool:
        """Always False: this core has no host tier."""
        return False

    @enable_hicache.setter
    def enable_hicache(self, value: bool) -> None:
        raise AttributeError("call set_hicache_enabled instead")

    @property
    def is_host_memory_buffer_only(self) -> bool:
        """Whether splits are announced even without a pending backup (HIC-2, SPLIT-6)."""
        return self._tree.settings.is_host_memory_buffer_only

    @is_host_memory_buffer_only.setter
    def is_host_memory_buffer_only(self, value: bool) -> None:
        raise AttributeError("call set_host_memory_buffer_only instead")

    @property
    def enable_storage(self) -> bool:
        """Whether new leaves are hashed (KEY-40)."""
        return self._tree.settings.enable_storage

    @enable_storage.setter
    def enable_storage(self, value: bool) -> None:
        self._tree.settings.enable_storage = arguments.flag(value, "enable_storage")

    @property
    def enable_external_cache_linker(self) -> bool:
        """Whether hit counts trigger offloads to an external store (LNK-1)."""
        return self._tree.settings.enable_external_cache_linker

    @enable_external_cache_linker.setter
    def enable_external_cache_linker(self, value: bool) -> None:
        checked = arguments.flag(value, "enable_external_cache_linker")
        self._tree.settings.enable_external_cache_linker = checked

    @property
    def write_through_threshold(self) -> int:
        """Hits at which a node is offered for a backup (INS-53)."""
        return self._tree.settings.write_through_threshold

    @write_through_threshold.setter
    def write_through_threshold(self, value: int) -> None:
        checked = arguments.signed(value, "write_through_threshold")
        self._tree.settings.write_through_threshold = checked

    @property
    def is_write_back(self) -> bool:
        """Whether leaves are backed up when they are evicted, and hits not counted (HIC-9)."""
        return self._tree.settings.is_write_back

    @is_write_back.setter
    def is_write_back(self, value: bool) -> None:
        self._tree.settings.is_write_back = arguments.flag(value, "is_write_back")

    @property
    def has_swa_host_pool(self) -> bool:
        """Whether window values could go to the host; without a host tier it changes nothing."""
        return self._tree.settings.has_swa_host_pool

    @has_swa_host_pool.setter
    def has_swa_host_pool(self, value: bool) -> None:
        checked = arguments.flag(value, "has_swa_host_pool")
        if checked and self._find_component(ComponentType.SWA) is None:
            raise UnsupportedError("this core has no window component")
        if self._tree.settings.has_swa_host_pool and not checked:
            raise ContractError("a host pool that is there can't be taken away")
        self._tree.settings.has_swa_host_pool = checked

    @property
    def supports_rotation_base(self) -> bool:
        """Always True (NODE-9)."""
        return True

    @supports_rotation_base.setter
    def supports_rotation_base(self, value: bool) -> None:
        raise AttributeError("supports_rotation_base is fixed")


def lacking(component_type: ComponentType) -> ContractError:
    """The error for a component that the core was built without."""
    return ContractError(f"this core was built without {component_type.name}")


def _device_of(allocator: Any) -> torch.device:
    """The allocator's device, the CPU without one; a bare `cuda` gets its index (BND-38)."""
    try:
        device = torch.device(allocator.device if allocator else "cpu")
    except RuntimeError as error:
        raise InvalidArgumentError(f"unusable device: {error}") from error
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    if device.type not in ("cpu", "cuda") or (device.type == "cpu" and device.index is not None):
        raise InvalidArgumentError(f"a tree lives on cpu or cuda, not on {device}")
    return device
