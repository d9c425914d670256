"""KV events: what a router outside the server learns about resident blocks (EVT).

Hashes are signed 64-bit ints. `token_ids` holds ints, or pairs in a bigram tree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from .components import StorageMedium


class BlockStored(msgspec.Struct):
    """Blocks that became resident, each chained to the one before (EVT-1, EVT-10)."""

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int] | list[tuple[int, int]]
    block_size: int
    lora_id: int | None = None
    medium: StorageMedium | None = None
    cache_salt: str | None = None
    session_id: str | None = None
    lora_name: str | None = None


class BlockRemoved(msgspec.Struct):
    """Blocks that left a tier (EVT-11)."""

    block_hashes: list[int]
    medium: StorageMedium | None = None


class AllBlocksCleared(msgspec.Struct):
    """Everything is gone; recorded by the cache on reset, never by a core (EVT-4)."""


KvEvent = BlockStored | BlockRemoved | AllBlocksCleared


class KvEventRecorder(Protocol):
    """What a core exposes as `kv_events` (EVT-2 to EVT-4)."""

    enabled: bool

    def record_all_cleared(self) -> None:
        """Append `AllBlocksCleared`; nothing when events are off."""

    def take(self) -> list[KvEvent]:
        """All queued events in order; empties the queue."""


class LoraNames(Protocol):
    """A table that names the adapter behind a namespace (EVT-16 to EVT-18)."""

    def get(self, extra_key: str | None) -> str | None:
        """The name in the default event format."""

    def resolve(self, extra_key: str | None) -> str | None:
        """The name in the dynamo event format."""


ADAPTER_ID_LENGTH = 32
"""An adapter's id is the last 32 characters of the namespace that carries it (EVT-18)."""


class KvEventLoraNames:
    """Names by namespace, with adapter names as a fallback (EVT-18)."""

    def __init__(self) -> None:
        self._by_extra_key: dict[str, str] = {}
        self._by_adapter: dict[str, str] = {}

    def register(
        self, req: Any = None, lora_name: str | None = None, *, lora_id: str | None = None
    ) -> None:
        """Name a request's namespace, or an adapter when `lora_id` is given."""
        if req is None:
            if lora_id is not None and lora_name is not None:
                self._by_adapter[lora_id] = lora_name
            return
        if req.lora_id is None:
            return
        name = lora_name if lora_name is not None else self._by_adapter.get(req.lora_id)
        if name is not None:
            self._by_extra_key[req.extra_key] = name

    def get(self, extra_key: str | None) -> str | None:
        """The name registered for exactly this namespace."""
        return None if extra_key is None else self._by_extra_key.get(extra_key)

    def resolve(self, extra_key: str | None) -> str | None:
        """`get`, else the name of the adapter whose id ends the namespace."""
        if not extra_key:
            return None
        exact = self._by_extra_key.get(extra_key)
        return exact if exact is not None else self._by_adapter.get(extra_key[-ADAPTER_ID_LENGTH:])


class LoRANameTable:
    """Names by adapter id alone (EVT-18)."""

    def __init__(self, names: Iterable[tuple[str, str]] = ()) -> None:
        self._by_adapter = dict(names)

    def register(self, lora_id: str, lora_name: str) -> None:
        """Name an adapter."""
        self._by_adapter[lora_id] = lora_name

    def get(self, extra_key: str | None) -> str | None:
        """The name of the adapter whose id ends the namespace."""
        return self._by_adapter.get(extra_key[-ADAPTER_ID_LENGTH:]) if extra_key else None

    def resolve(self, extra_key: str | None) -> str | None:
        """The same as `get`."""
        return self.get(extra_key)
