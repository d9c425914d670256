"""Component: what the tree asks of each kind of value that nodes hold (CMP, section INS 2.16).

The tree's walks call these hooks for every component in component order and know no component by
name. Lock releases run in reversed order (CMP-9).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from ..contract import CacheAction, ComponentType, DecLockRefParams, IncLockRefResult

if TYPE_CHECKING:
    from .node import Node

NodeTest = Callable[["Node"], bool]


class Component(ABC):
    """One kind of value. `evictable` and `protected` are its ledgers (SIZE-1)."""

    component_type: ComponentType
    evictable: int
    protected: int

    @abstractmethod
    def reset(self) -> None:
        """Forget all sizes and any open walk (RST-2, RST-3)."""

    # --- Match and insert -----------------------------------------------------------------

    @abstractmethod
    def match_validator(self) -> NodeTest:
        """A fresh test for one match; it sees every visited node, root side first (MATCH-6)."""

    @abstractmethod
    def redistribute_on_split(self, upper: Node, lower: Node, length: int) -> None:
        """Move the first `length` units of `lower` and its locks to `upper` (SPLIT-5)."""

    @abstractmethod
    def consume_overlap(
        self, node: Node, length: int, position: int, actions: list[CacheAction]
    ) -> int:
        """From which unit of the span on the component keeps the request's slots (INS-30).

        What the cache must do goes into `actions`.
        """

    @abstractmethod
    def commit_insert(self, target: Node, actions: list[CacheAction]) -> None:
        """Attach the insert's data to its target; may add to `actions` (INS-42)."""

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

    # --- Eviction -------------------------------------------------------------------------

    @abstractmethod
    def evict_device(self, node: Node) -> torch.Tensor | None:
        """Give up the node's device value and return it; None without one (CMP-2)."""

    @property
    @abstractmethod
    def has_open_walk(self) -> bool:
        """Whether a device walk is open (EVD-1)."""

    @abstractmethod
    def open_walk(self, request_count: int) -> None:
        """Open a device walk for `request_count` tokens (EVD-1)."""

    @abstractmethod
    def next_victim(self, evicted_count: int) -> Node | None:
        """The next leaf to evict, None if the request is met or nothing is left (EVD-5)."""

    @abstractmethod
    def close_walk(self) -> None:
        """Close the walk and forget its candidates (EVD-3)."""
