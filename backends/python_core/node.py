"""Node: one edge of the tree, with the state that the rules of chapter NODE name.

It hides nothing and decides nothing; the tree and the components change it.
"""

from __future__ import annotations

from collections.abc import Hashable

import torch

from .keys import Namespace


class ComponentData:
    """What one component holds on one node: a value and its locks."""

    __slots__ = ("device_value", "host_lock_ref", "host_lock_uuid", "lock_ref", "lock_uuid")

    def __init__(self) -> None:
        """Start without a value and unlocked."""
        self.device_value: torch.Tensor | None = None
        self.lock_ref = 0
        self.lock_uuid: int | None = None
        self.host_lock_ref = 0
        self.host_lock_uuid: int | None = None


class Node:
    """A span of tokens below `parent`.

    `key` holds the raw tokens as packed 64-bit integers, one more than `length` in a bigram tree;
    `length` counts units. `auxiliary` has one record for each component beside FULL, in component
    order. Times are readings of the tree's clock. Nodes compare by identity.
    """

    __slots__ = (
        "auxiliary",
        "children",
        "creation_time",
        "event_hashes",
        "external_cache_stored",
        "full",
        "hashes",
        "history_length",
        "hit_count",
        "id",
        "key",
        "last_access_time",
        "length",
        "namespace",
        "parent",
        "prefix_length",
        "priority",
        "rotation_base",
        "write_through_pending_id",
    )

    def __init__(
        self,
        node_id: int,
        key: bytes,
        length: int,
        namespace: Namespace | None,
        priority: int,
        auxiliary_count: int,
    ) -> None:
        """Start detached, without values, counts or marks (NODE-2)."""
        self.id = node_id
        self.key = key
        self.length = length
        self.namespace = namespace
        self.priority = priority
        self.parent: Node | None = None
        # A dict keeps the order of NODE-7: assigning to an existing slot does not move it.
        self.children: dict[Hashable, Node] = {}
        self.full = ComponentData()
        # Empty in a tree of FULL alone, which shares this one tuple among all nodes.
        self.auxiliary: tuple[ComponentData, ...] = (
            tuple(ComponentData() for _ in range(auxiliary_count)) if auxiliary_count else ()
        )
        self.hit_count = 0
        self.last_access_time = 0
        self.creation_time = 0
        self.hashes: list[str] | None = None
        self.event_hashes: list[str] | None = None
        self.external_cache_stored = False
        self.write_through_pending_id: int | None = None
        self.rotation_base: int | None = None
        self.prefix_length = 0
        self.history_length = 0
