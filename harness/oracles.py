"""Checks on one side alone, so that a fault that both cores share is still seen.

They stand outside the cores: slots are counted against the pool, events are replayed into an
index of their own, and page hashes are computed again from the tokens that the events carry.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

from ..backends.contract import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    ComponentType,
    KvEvent,
    NodeId,
    StorageMedium,
    TreeCore,
)
from ..backends.pools import StatePool, WindowPool
from .config import Config
from .observation import Finding, free_list

if TYPE_CHECKING:
    from .cache import Cache


def conservation(core: TreeCore, cache: Cache, nodes: list[NodeId]) -> list[Finding]:
    """Every slot of every pool is free, in the tree, or held by a request: exactly once.

    That is POOL-61 and CTL-60, by pages. `nodes` are all nodes that are known.
    """
    in_tree = core.all_values_flatten()
    page_size = cache.config.page_size
    owned = Counter(_pages(in_tree.tolist(), page_size))
    owned.update(free_list(cache.pools))
    for request in cache.requests:
        owned.update(_pages(cache.private_slots(request).tolist(), page_size))
    found = _owners("", owned, cache.config.capacity // page_size)
    total, _ = core.total_size()
    ledgers = core.evictable_size() + core.protected_size()
    if not ledgers == total == in_tree.numel():
        counted = f"evictable + protected {ledgers}, total {total}, slots {in_tree.numel()}"
        found.append(Finding("conservation", f"sizes differ: {counted}"))
    for kind in cache.pools.windows:
        found += _window_conservation(core, cache, kind, in_tree)
        found += _mapping(core, cache.pools.windows[kind], kind, nodes)
    if cache.pools.states is not None:
        found += _state_conservation(core, cache, cache.pools.states)
    return found


def _owners(of: str, owned: Counter[int], last: int) -> list[Finding]:
    """Findings about the units of a pool that do not have exactly one owner each."""
    found: list[Finding] = []
    if len(owned) == last == owned.total() and all(map(owned.__contains__, range(1, last + 1))):
        return found
    double = sorted(page for page, count in owned.items() if count > 1)
    if double:
        found.append(Finding("conservation", f"{of}pages with two owners: {double[:8]}"))
    foreign = sorted(page for page in owned if not 1 <= page <= last)
    if foreign:
        found.append(Finding("conservation", f"{of}pages that the pool never had: {foreign[:8]}"))
    lost = [page for page in range(1, last + 1) if page not in owned]
    if lost:
        found.append(Finding("conservation", f"{of}pages that nobody owns: {lost[:8]}"))
    return found


def _pages(slots: list[int], page_size: int) -> set[int] | list[int]:
    """The pages of slots that one owner holds; with page size 1 every slot counts."""
    return slots if page_size == 1 else {slot // page_size for slot in slots}


def _window_conservation(
    core: TreeCore, cache: Cache, kind: ComponentType, in_tree: torch.Tensor
) -> list[Finding]:
    """Window slots have one owner each; those of the tree are the peers of its full slots."""
    window, page_size = cache.pools.windows[kind], cache.config.page_size
    if window.is_ring:
        return []
    peers = window.translate(in_tree)
    peers = peers[peers > 0]
    owned = Counter(_pages(peers.tolist(), page_size))
    owned.update(window.free_list() + window.staged_list())
    for request in cache.requests:
        own = window.translate(cache.window_owned(request, kind))
        owned.update(_pages(own.tolist(), page_size))
    found = _owners(f"{kind.name.lower()} ", owned, window.allocator.size // page_size)
    return found + _ledgers(core, kind, peers.numel())


def _mapping(
    core: TreeCore, window: WindowPool, kind: ComponentType, nodes: list[NodeId]
) -> list[Finding]:
    """Full slots of a node are mapped to its window slots, and to nothing without (SWA-V13)."""
    if window.is_ring:
        return []
    slots, expected = [], []
    for node in nodes:
        full = core.get_component_device_value(node, ComponentType.FULL)
        if full is None or full.numel() == 0:
            continue
        peers = core.get_component_device_value(node, kind)
        slots.append(full)
        expected.append(torch.zeros_like(full) if peers is None else peers)
        if expected[-1].numel() != full.numel():
            return [_unmapped(kind)]
    # All at once: a comparison takes as long for one node as for all of them.
    if slots and not torch.equal(window.translate(torch.cat(slots)), torch.cat(expected)):
        return [_unmapped(kind)]
    return []


def _unmapped(kind: ComponentType) -> Finding:
    says = f"{kind.name.lower()} slots of a node are not those of its full slots"
    return Finding("conservation", says)


def _state_conservation(core: TreeCore, cache: Cache, states: StatePool) -> list[Finding]:
    """States have one owner each (MAM-V8)."""
    in_tree = core.all_mamba_values_flatten().tolist()
    owned = Counter(states.free_list() + in_tree)
    for request in cache.requests:
        owned.update(cache.private_states(request))
    found = _owners("mamba ", owned, states.size)
    return found + _ledgers(core, ComponentType.MAMBA, len(in_tree))


def _ledgers(core: TreeCore, kind: ComponentType, stored: int) -> list[Finding]:
    """Both ledgers of a component count what nodes hold (SWA-V3, MAM-V3)."""
    counted = core.component_evictable_size(kind) + core.component_protected_size(kind)
    if counted == stored:
        return []
    says = f"{kind.name.lower()} evictable + protected {counted}, stored {stored}"
    return [Finding("conservation", f"sizes differ: {says}")]


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
