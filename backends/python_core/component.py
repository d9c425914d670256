"""Component: what the tree asks of each kind of value that nodes hold (CMP, section INS 2.16).

The tree's walks call these hooks for every component in component order and know no component by
name. Lock releases run in reversed order (CMP-9).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from ..contract import ComponentType, DecLockRefParams, IncLockRefResult, PoolTransfer
from .insertion import Insertion

if TYPE_CHECKING:
    from .node import ComponentData, Node

NodeTest = Callable[["Node"], bool]


class Component(ABC):
    """One kind of value. `evictable` and `protected` are its ledgers (SIZE-1)."""

    component_type: ComponentType
    evictable: int
    protected: int

    @abstractmethod
    def reset(self) -> None:
        """Forget all sizes and any open walk (RST-2, RST-3)."""

    @abstractmethod
    def data(self, node: Node) -> ComponentData:
        """What this component holds on a node."""

    @abstractmethod
    def value_length(self, node: Node) -> int:
        """How many entries a device value on this node has."""

    # --- Match and insert -----------------------------------------------------------------

    @abstractmethod
    def match_validator(self) -> NodeTest:
        """A fresh test for one match; it sees every visited node, root side first (MATCH-6)."""

    @abstractmethod
    def redistribute_on_split(self, upper: Node, lower: Node, length: int) -> None:
        """Move the first `length` units of `lower` and its locks to `upper` (SPLIT-5)."""

    @abstractmethod
    def consume_overlap(self, node: Node, length: int, position: int, insertion: Insertion) -> int:
        """From which unit of the span on the component keeps the request's slots (INS-30).

        The span has `length` units from `position` on and ends where `node` ends.
        """

    @abstractmethod
    def commit_insert(self, target: Node, insertion: Insertion) -> None:
        """Attach the insert's data to its target; may add actions (INS-42)."""

    # --- Locks ----------------------------------------------------------------------------

    @abstractmethod
    def acquire(self, node: Node, receipt: IncLockRefResult) -> None:
        """Take one device lock and note in the receipt what its release needs (LOCK-3)."""

    @abstractmethod
    def check_release(self, node: Node, receipt: DecLockRefParams) -> None:
        """Raise `ContractError` unless `release` would succeed."""

    @abstractmethod
    def release(self, node: Node, receipt: DecLockRefParams) -> None:
        """Give one device lock back (LOCK-10)."""

    @abstractmethod
    def acquire_host(self, node: Node, receipt: IncLockRefResult) -> None:
        """Take one host lock (LOCK-23)."""

    @abstractmethod
    def check_release_host(self, node: Node, receipt: DecLockRefParams) -> None:
        """Raise `ContractError` unless `release_host` would succeed."""

    @abstractmethod
    def release_host(self, node: Node, receipt: DecLockRefParams) -> None:
        """Give one host lock back (LOCK-26)."""

    # --- Eviction and offload -------------------------------------------------------------

    @abstractmethod
    def evict_device(self, node: Node) -> torch.Tensor | None:
        """Give up the node's device value and return what is to be freed; None without (CMP-2)."""

    @property
    @abstractmethod
    def has_open_walk(self) -> bool:
        """Whether a device walk is open (EVD-1)."""

    @abstractmethod
    def open_walk(self, request_count: int) -> None:
        """Open a device walk for `request_count` tokens or states (EVD-1)."""

    @abstractmethod
    def next_victim(self, evicted_count: int) -> Node | None:
        """The next node to evict, None if the request is met or nothing is left (EVD-5).

        Raises `ContractError`, and stays where it is, if that node must not be evicted.
        """

    @abstractmethod
    def close_walk(self) -> None:
        """Close the walk and forget its candidates (EVD-3)."""

    @abstractmethod
    def offload(self, node: Node) -> PoolTransfer | None:
        """What an external store copies of a hashed node; None if it is nothing (LNK-3)."""
