"""Drills of KV events: what is told, in which order, under which hash and name."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from treedrift.backends.contract import BlockRemoved, BlockStored, StorageMedium
from treedrift.backends.python_core.hashing import page_hashes

from .drill import Theme, after, before

drill = Theme()


def _edit_stored(core: Any, edit: Any) -> None:
    """Edit each stored event before it is merged or queued."""
    before(core._tree.events, "_append_stored", edit)


# --- What is told, and in which order -----------------------------------------------------


@drill("EVT-30", "a message is not sent")
def lost_event(core: Any) -> None:
    """What leaves the device is not told, unless it hung from the root."""
    record = core._tree.events.record_removed

    def call(node: Any) -> None:
        if node.parent is core._tree.root:
            record(node)

    core._tree.events.record_removed = call


@drill("EVT-30", "a message is not sent")
def lost_stored_event(core: Any) -> None:
    """What is stored below another node is not told."""
    record = core._tree.events.record_stored

    def call(node: Any, session: Any, layout: Any) -> None:
        if node.parent is core._tree.root:
            record(node, session, layout)

    core._tree.events.record_stored = call


@drill("EVT-30", "a message is sent twice")
def doubled_event(core: Any) -> None:
    """A removal is told twice."""
    record = core._tree.events.record_removed
    core._tree.events.record_removed = lambda node: (record(node), record(node))


@drill("EVT-3", "a queue is read from the wrong end")
def reversed_events(core: Any) -> None:
    """Queued events come newest first."""
    after(core, "take_events", lambda events, *_: events[::-1])


@drill("EVT-3", "a state is not cleared")
def events_taken_twice(core: Any) -> None:
    """Events that were taken are taken once more."""

    def then(events: Any) -> Any:
        core._tree.events._queue = list(events)
        return events

    after(core, "take_events", then)


@drill("EVT-20", "a search goes too far back")
def removal_merged_too_far(core: Any) -> None:
    """A removal is told with an earlier one, although something was stored in between."""
    events = core._tree.events
    record = events.record_removed

    def call(node: Any) -> None:
        earlier = [event for event in events._queue if isinstance(event, BlockRemoved)]
        count = len(events._queue)
        record(node)
        if len(events._queue) > count and earlier:
            earlier[-1].block_hashes += events._queue.pop().block_hashes

    events.record_removed = call


@drill("EVT-20", "a field is left out of a comparison")
def merged_across_sessions(core: Any) -> None:
    """Blocks of two sessions are told as one event, under the first one's name."""

    def edit(event: Any) -> None:
        last = core._tree.events._queue[-1:]
        if last and isinstance(last[0], BlockStored):
            is_next = last[0].block_hashes[-1:] == [event.parent_block_hash]
            event.session_id = last[0].session_id if is_next else event.session_id

    _edit_stored(core, edit)


# --- Fields -------------------------------------------------------------------------------


@drill("EVT-31", "a half-ported field", "BUG-01")
def lost_session(core: Any) -> None:
    """Stored blocks do not name the session that they came with."""
    record = core._tree.events.record_stored
    core._tree.events.record_stored = lambda node, session, layout: record(node, None, layout)


@drill("EVT-10", "a half-ported field", "BUG-21")
def event_without_salt(core: Any) -> None:
    """Stored blocks do not name their salt."""
    _edit_stored(core, lambda event: setattr(event, "cache_salt", None))


@drill("EVT-18", "a fallback is forgotten")
def adapter_by_the_whole_namespace(core: Any) -> None:
    """In Dynamo's format an adapter is not found by the end of a namespace."""
    events = core._tree.events
    events._lora_name = lambda extra_key: events._lora_names.get(extra_key)


@drill("EVT-17", "a half-ported field", "BUG-01")
def event_without_adapter(core: Any) -> None:
    """Stored blocks do not name the adapter that they belong to."""
    _edit_stored(core, lambda event: setattr(event, "lora_name", None))


@drill("EVT-14", "a half-ported field")
def stored_without_parent(core: Any) -> None:
    """Stored blocks do not say which block they follow."""
    _edit_stored(core, lambda event: setattr(event, "parent_block_hash", None))


@drill("EVT-14", "the wrong end of a list")
def parent_is_its_first_page(core: Any) -> None:
    """Stored blocks follow the first page of the node above, not its last."""
    record = core._tree.events.record_stored

    def call(node: Any, session: Any, layout: Any) -> None:
        parent = node.parent
        kept = parent.hashes, parent.event_hashes
        if node.hashes is None:
            record(node, session, layout)
            return
        parent.hashes = parent.hashes and parent.hashes[:1]
        parent.event_hashes = parent.event_hashes and parent.event_hashes[:1]
        try:
            record(node, session, layout)
        finally:
            parent.hashes, parent.event_hashes = kept

    core._tree.events.record_stored = call


@drill("EVT-10", "a branch is forgotten")
def pairs_told_as_tokens(core: Any) -> None:
    """In a tree of pairs events carry the first token of each pair."""

    def edit(event: Any) -> None:
        event.token_ids = [unit[0] if isinstance(unit, tuple) else unit for unit in event.token_ids]

    _edit_stored(core, edit)


@drill("EVT-10", "a unit is mixed up")
def block_as_long_as_its_node(core: Any) -> None:
    """The block size of stored blocks is the length of their node."""
    _edit_stored(core, lambda event: setattr(event, "block_size", len(event.token_ids)))


@drill("EVT-11", "two tiers are mixed up")
def removed_from_the_host(core: Any) -> None:
    """What leaves the device is told as leaving the host."""

    def then(events: Any) -> Any:
        for event in events:
            if isinstance(event, BlockRemoved):
                event.medium = StorageMedium.CPU
        return events

    after(core, "take_events", then)


@drill("EVT-11", "a loop runs the other way")
def removed_from_the_end(core: Any) -> None:
    """The blocks of a node are removed last one first."""
    record = core._tree.events.record_removed

    def call(node: Any) -> None:
        for name in ("hashes", "event_hashes"):
            hashes = getattr(node, name)
            setattr(node, name, hashes and hashes[::-1])
        record(node)

    core._tree.events.record_removed = call


# --- Hashes -------------------------------------------------------------------------------


@drill("EVT-15", "a bit is wrong")
def wrong_block_hash(core: Any) -> None:
    """The last block of a stored event has another hash than its tokens."""

    def then(events: Any, *_: Any) -> Any:
        for event in events:
            if isinstance(event, BlockStored):
                event.block_hashes[-1] ^= 1
        return events

    after(core, "take_events", then)


@drill("KEY-38", "a sign is lost")
def hashes_without_sign(core: Any) -> None:
    """The hashes of removed blocks are told as numbers without a sign."""

    def then(events: Any) -> Any:
        for event in events:
            if isinstance(event, BlockRemoved):
                event.block_hashes = [block % 2**64 for block in event.block_hashes]
        return events

    after(core, "take_events", then)


def _event_chain(core: Any, seed_of: Any) -> None:
    """Start the event hashes of a namespace from another seed."""

    def first(node: Any, session: Any, layout: Any) -> None:
        if core._tree.events.enabled and node.namespace is not None and not node.event_hashes:
            above = node.parent.event_hashes
            prior = bytes.fromhex(above[-1]) if above else seed_of(*node.namespace)
            node.event_hashes = page_hashes(node.key, layout, prior)

    before(core._tree.events, "record_stored", first)


@drill("EVT-12", "a half-ported field", "BUG-21")
def event_hashes_without_salt(core: Any) -> None:
    """The blocks of two tenants have the same hashes, although their salts differ."""
    _event_chain(core, lambda extra_key, salt: b"")


@drill("EVT-12", "a field too many", "BUG-21")
def event_hashes_with_extra_key(core: Any) -> None:
    """The extra key is mixed into the chain of event hashes, as the salt is."""

    def seed_of(extra_key: Any, salt: Any) -> bytes:
        text = (salt or "") + (extra_key or "")
        return sha256(b"sglang-cache-salt-v1\x00" + text.encode()).digest()

    _event_chain(core, seed_of)


@drill("EVT-12", "the wrong list is read", "BUG-21")
def storage_hashes_in_events(core: Any) -> None:
    """Events of a namespace carry the hashes that a storage knows."""

    def first(node: Any, session: Any, layout: Any) -> None:
        if node.namespace is not None and node.hashes is not None:
            node.event_hashes = list(node.hashes)

    before(core._tree.events, "record_stored", first)


@drill("EVT-16", "a condition is forgotten")
def every_namespace_seeded(core: Any) -> None:
    """In the default format a namespace is mixed in although it belongs to no adapter."""
    events = core._tree.events

    def then(seed: Any, extra_key: Any, cache_salt: Any) -> Any:
        if seed is not None or extra_key is None:
            return seed
        return sha256(b"sglang-kv-event-namespace-v1" + extra_key.encode()).digest()

    after(events, "_seed", then)


@drill("EVT-16", "a half-ported field", "BUG-21")
def dynamo_seed_without_salt(core: Any) -> None:
    """In the dynamo format the salt is not mixed into published hashes."""
    events = core._tree.events
    seed = events._seed
    events._seed = lambda extra_key, salt: seed(extra_key, None)


@drill("EVT-16", "an encoding is not injective", "BUG-21")
def dynamo_seed_by_concatenation(core: Any) -> None:
    """In the dynamo format namespaces that make the same text in a row publish the same hashes."""
    events = core._tree.events
    seed = events._seed

    def call(extra_key: Any, salt: Any) -> Any:
        if salt is None or not events._dynamo_format:
            return seed(extra_key, salt)
        return seed((extra_key or "") + salt, None)

    events._seed = call


@drill("EVT-19", "a value is looked up too early")
def names_frozen_at_the_start(core: Any) -> None:
    """Adapters that are named while the core runs are not known to it."""
    names = core._tree.events._lora_names
    known: dict[Any, Any] = {}

    class Frozen:
        """Remembers the first answer for each extra key."""

        def get(self, extra_key: Any) -> Any:
            return known.setdefault(("get", extra_key), names.get(extra_key))

        def resolve(self, extra_key: Any) -> Any:
            return known.setdefault(("resolve", extra_key), names.resolve(extra_key))

    core._tree.events._lora_names = Frozen()
