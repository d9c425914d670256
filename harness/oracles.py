"""Checks on one side alone, so that a fault that both cores share is still seen.

They stand outside the cores: slots are counted against the pool, events are replayed into an
index of their own, and page hashes are computed again from the tokens that the events carry.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any

from ..backends.contract import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    KvEvent,
    StorageMedium,
    TreeCore,
)
from .config import Config
from .observation import Finding

if TYPE_CHECKING:
    from .cache import Cache


def conservation(core: TreeCore, cache: Cache) -> list[Finding]:
    """Every slot is free, in the tree, or held by a request: exactly once (POOL-61, CTL-60)."""
    owners: Counter[int] = Counter(core.all_values_flatten().tolist())
    owners.update(cache.free_list())
    owners.update(cache.held_slots())
    first, last = cache.slot_range()
    found = []
    double = sorted(slot for slot, count in owners.items() if count > 1)
    if double:
        found.append(Finding("conservation", f"slots with two owners: {double[:8]}"))
    foreign = sorted(slot for slot in owners if not first <= slot <= last)
    if foreign:
        found.append(Finding("conservation", f"slots that the pool never had: {foreign[:8]}"))
    lost = [slot for slot in range(first, last + 1) if slot not in owners]
    if lost:
        found.append(Finding("conservation", f"slots that nobody owns: {lost[:8]}"))
    total, _ = core.total_size()
    ledgers = core.evictable_size() + core.protected_size()
    if ledgers != total:
        found.append(
            Finding("conservation", f"evictable + protected is {ledgers}, total is {total}")
        )
    return found


class EventIndex:
    """What is resident on the device, told from the KV events alone (EVT).

    Hashes are counted, since namespaces without a salt can publish the same ones on purpose.
    """

    def __init__(self, config: Config) -> None:
        self._page_size = config.page_size
        self._plain = not config.dynamo_events and not config.lora_names
        self._resident: Counter[int] = Counter()
        self._digests: dict[int, bytes] = {}

    def replay(self, events: list[KvEvent]) -> list[Finding]:
        """Apply drained events in order."""
        found: list[Finding] = []
        for event in events:
            if isinstance(event, AllBlocksCleared):
                self._resident.clear()
            elif event.medium != StorageMedium.GPU:
                continue
            elif isinstance(event, BlockStored):
                found += self._stored(event)
            else:
                found += self._removed(event)
        return found

    def check(self, core: TreeCore) -> list[Finding]:
        """Compare the index with the tree, once everything queued has been replayed."""
        total, _ = core.total_size()
        known = sum(self._resident.values()) * self._page_size
        if known == total:
            return []
        return [
            Finding("event_replay", f"events tell of {known} resident units, the tree has {total}")
        ]

    def _stored(self, event: BlockStored) -> list[Finding]:
        found = []
        pages = len(event.block_hashes)
        if len(event.token_ids) != pages * event.block_size or event.block_size != self._page_size:
            found.append(
                Finding("event_replay", f"{pages} hashes for {len(event.token_ids)} units")
            )
        parent = event.parent_block_hash
        if parent is not None and not self._resident[parent]:
            found.append(Finding("event_replay", f"stored below {parent}, which is not resident"))
        self._resident.update(event.block_hashes)
        if self._plain and event.cache_salt is None:
            found += self._check_chain(event)
        return found

    def _check_chain(self, event: BlockStored) -> list[Finding]:
        """Hash the pages again from the event's tokens (KEY-30 to KEY-32)."""
        prior = self._digests.get(event.parent_block_hash or 0, b"")
        if event.parent_block_hash is not None and not prior:
            return []  # Below a salted or renamed block, whose digest no event tells.
        for number, published in enumerate(event.block_hashes):
            start = number * event.block_size
            prior = page_digest(prior, event.token_ids[start : start + event.block_size])
            if int.from_bytes(prior[:8], "big", signed=True) != published:
                return [
                    Finding("event_replay", f"block hash {published} is not that of its tokens")
                ]
            self._digests[published] = prior
        return []

    def _removed(self, event: BlockRemoved) -> list[Finding]:
        found = []
        for block in event.block_hashes:
            if self._resident[block] <= 0:
                found.append(Finding("event_replay", f"removed {block}, which is not resident"))
            self._resident[block] -= 1
        return found


def page_digest(prior: bytes, units: list[Any]) -> bytes:
    """Digest of one page of tokens or token pairs after `prior` (KEY-30, KEY-31)."""
    words = [
        word for unit in units for word in (unit if isinstance(unit, (tuple, list)) else (unit,))
    ]
    wide = any(word >= 2**32 for word in words)
    size = 8 if wide else 4
    body = b"".join(word.to_bytes(size, "little") for word in words)
    return hashlib.sha256(prior + (b"\xff" if wide else b"") + body).digest()
