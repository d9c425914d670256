"""KV events of one core: recording, publishing under namespaces, coalescing (EVT-1 to EVT-31).

It hides how a page's published hash follows from its node. Names of adapters are looked up when
an event is recorded, not when it is taken (EVT-19).
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from ..contract import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    KvEvent,
    LoraNames,
    StorageMedium,
)
from .arguments import optional_text
from .hashing import encode_namespace, event_hash_list, fill_event_hashes, fill_hashes
from .keys import KeyLayout, Namespace, unpack
from .node import Node

_EVENT_DOMAIN = b"sglang-kv-event-namespace-v1"


class EventRecorder:
    """The queue of a core's events. Disabled, it records nothing and stays empty (EVT-2)."""

    def __init__(self, enabled: bool, dynamo_format: bool, lora_names: LoraNames) -> None:
        """`dynamo_format` seeds every namespace, the default format named adapters only."""
        self.enabled = enabled
        self._dynamo_format = dynamo_format
        self._lora_names = lora_names
        self._queue: list[KvEvent] = []

    def __len__(self) -> int:
        """Events waiting to be taken."""
        return len(self._queue)

    def record_all_cleared(self) -> None:
        """Append `AllBlocksCleared`; nothing when events are off (EVT-4)."""
        if self.enabled:
            self._queue.append(AllBlocksCleared())

    def take(self) -> list[KvEvent]:
        """All queued events in order; empties the queue (EVT-3)."""
        taken, self._queue = self._queue, []
        return taken

    def check_adapter_name(self, namespace: Namespace | None) -> None:
        """Raise whatever the table of names raises for a namespace, `TypeError` for no text.

        The table is foreign code: asked before a change, its failure leaves the tree as it was.
        """
        if self.enabled:
            optional_text(self._lora_name(namespace[0] if namespace else None), "an adapter's name")

    def record_stored(self, node: Node, session_id: str | None, layout: KeyLayout) -> None:
        """A node became resident on the device (EVT-10). Hashes the node if it is not (EVT-13)."""
        if not self.enabled:
            return
        fill_hashes(node, layout)
        extra_key, cache_salt = node.namespace or (None, None)
        if node.namespace is not None:
            fill_event_hashes(node, layout)
        seed = self._seed(extra_key, cache_salt)
        parent_hashes = event_hash_list(node.parent) if node.parent is not None else []
        self._append_stored(
            BlockStored(
                block_hashes=_published(event_hash_list(node), seed),
                parent_block_hash=next(iter(_published(parent_hashes[-1:], seed)), None),
                token_ids=_event_tokens(node, layout),
                block_size=layout.page_size,
                medium=StorageMedium.GPU,
                cache_salt=cache_salt,
                session_id=session_id,
                lora_name=self._lora_name(extra_key),
            )
        )

    def record_removed(self, node: Node) -> None:
        """A node is about to leave the device (EVT-11)."""
        if not self.enabled:
            return
        seed = self._seed(*(node.namespace or (None, None)))
        event = BlockRemoved(_published(event_hash_list(node), seed), StorageMedium.GPU)
        last = self._queue[-1] if self._queue else None
        if isinstance(last, BlockRemoved) and last.medium == event.medium:
            last.block_hashes += event.block_hashes
        else:
            self._queue.append(event)

    def _append_stored(self, event: BlockStored) -> None:
        """Append, or merge into the last event if that one ends where this one begins (EVT-20).

        The pages of one node always merge with each other, so a node is handled as one event.
        """
        last = self._queue[-1] if self._queue else None
        if (
            isinstance(last, BlockStored)
            and last.block_hashes
            and last.block_hashes[-1] == event.parent_block_hash
            and _merge_key(last) == _merge_key(event)
        ):
            last.block_hashes += event.block_hashes
            last.token_ids += event.token_ids  # type: ignore[operator]
        else:
            self._queue.append(event)

    def _lora_name(self, extra_key: str | None) -> str | None:
        names = self._lora_names
        return names.resolve(extra_key) if self._dynamo_format else names.get(extra_key)

    def _seed(self, extra_key: str | None, cache_salt: str | None) -> bytes | None:
        """What published hashes of a namespace are mixed with, if with anything (EVT-16)."""
        if not self._dynamo_format:
            # The salt is in the chain already; the extra key counts if it names an adapter.
            if self._lora_names.get(extra_key) is None:
                return None
            cache_salt = None
        if extra_key is None and cache_salt is None:
            return None
        return sha256(_EVENT_DOMAIN + encode_namespace(extra_key, cache_salt)).digest()


def _merge_key(event: BlockStored) -> tuple[object, ...]:
    return (
        event.medium,
        event.lora_id,
        event.block_size,
        event.cache_salt,
        event.session_id,
        event.lora_name,
    )


def _event_tokens(node: Node, layout: KeyLayout) -> list[int] | list[tuple[int, int]]:
    tokens = unpack(node.key).tolist()
    return list(zip(tokens, tokens[1:], strict=False)) if layout.is_bigram else tokens


def _published(hashes: Sequence[str], seed: bytes | None) -> list[int]:
    """Page hashes as signed 64-bit integers, mixed with the seed (KEY-38, EVT-15)."""
    short = [bytes.fromhex(page[:16]) for page in hashes]
    if seed is not None:
        short = [sha256(seed + value).digest()[:8] for value in short]
    return [int.from_bytes(value, "big", signed=True) for value in short]
