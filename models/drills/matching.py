"""Drills of keys, namespaces and matches: what counts as equal, and what a match says of it."""

from __future__ import annotations

from typing import Any

import msgspec

from treedrift.backends.contract import MatchPrefixParams, RadixKey
from treedrift.backends.python_core.match import deepest_match

from .drill import Theme, after, override

drill = Theme()


# --- Keys and pages -----------------------------------------------------------------------


@drill("KEY-11", "off by one page")
def off_by_one_page(core: Any) -> None:
    """A partial match ends one page early."""
    kind = type(core._tree.layout)

    def matched_units(layout: Any, node: Any, key: Any, position: int) -> int:
        length: int = kind.matched_units(layout, node, key, position)
        is_cut = length < node.length and length > layout.page_size
        return length - layout.page_size if is_cut else length

    override(core._tree.layout, matched_units=matched_units)


@drill("KEY-4", "an argument is ignored")
def limit_ignored(core: Any) -> None:
    """A match looks the whole key up, whatever its limit."""
    match = core.match_prefix

    def call(params: Any) -> Any:
        key = params.key
        if type(key.limit) is int and key.limit >= 0:
            key = RadixKey(key.token_ids, key.extra_key, key.is_bigram, None, key.cache_salt)
        return match(MatchPrefixParams(key))

    core.match_prefix = call


@drill("KEY-5", "a unit is mixed up")
def limit_counts_pairs(core: Any) -> None:
    """In a tree of pairs a key's limit counts pairs and not tokens."""
    kind = type(core._tree.layout)

    def pack(layout: Any, key: Any) -> Any:
        if layout.is_bigram and type(key.limit) is int and key.limit > 0:
            # A copy, because the key is the caller's own.
            key = RadixKey(key.token_ids, key.extra_key, False, key.limit + 1, key.cache_salt)
        return kind.pack(layout, key)

    override(core._tree.layout, pack=pack)


@drill("KEY-13", "off by one token")
def pairs_without_closing_token(core: Any) -> None:
    """In a tree of pairs the last token of a page is no part of its child slot."""
    if not core.is_eagle:
        return
    kind = type(core._tree.layout)

    def slot(layout: Any, tokens: bytes, position: int, namespace: Any) -> Any:
        start = 8 * position
        page = kind.slot(layout, tokens[start : start + layout._page_stride], 0, None)
        return page if namespace is None else (namespace, page)

    override(core._tree.layout, slot=slot)


# --- Namespaces ---------------------------------------------------------------------------


def _key_slots_by(core: Any, part_of: Any) -> None:
    """Replace what a namespace adds to a child slot."""
    kind = type(core._tree.layout)

    def slot(layout: Any, tokens: bytes, position: int, namespace: Any) -> Any:
        part = None if namespace is None else part_of(*namespace)
        return kind.slot(layout, tokens, position, part)

    override(core._tree.layout, slot=slot)


@drill("KEY-25", "an encoding is not injective", "BUG-21")
def namespace_by_concatenation(core: Any) -> None:
    """Namespaces whose extra key and salt make the same text in a row share their nodes."""
    _key_slots_by(core, lambda extra_key, salt: (extra_key or "") + (salt or ""))


@drill("KEY-13", "a half-ported field", "BUG-21")
def salt_no_part_of_the_key(core: Any) -> None:
    """Keys that differ in their salt alone share their nodes."""
    _key_slots_by(core, lambda extra_key, salt: extra_key)


@drill("KEY-3", "empty is taken for absent")
def empty_extra_key_normalised(core: Any) -> None:
    """An empty extra key is taken for none, as an empty salt is."""
    kind = type(core._tree.layout)

    def pack(layout: Any, key: Any) -> Any:
        packed = kind.pack(layout, key)
        if packed.namespace is None or packed.namespace[0] != "":
            return packed
        salt = packed.namespace[1]
        return packed._replace(namespace=None if salt is None else (None, salt))

    override(core._tree.layout, pack=pack)


# --- What a match does --------------------------------------------------------------------


@drill("MATCH-4", "a branch is forgotten")
def partial_match_refused(core: Any) -> None:
    """A match that ends inside a node gives up that node as a whole."""
    match = core.match_prefix

    def call(params: Any) -> Any:
        key = params.key
        position, node, end = deepest_match(core._tree, core._tree.layout.pack(key))
        if position == end:
            return match(params)
        start = end - node.length
        tokens = key.token_ids[: start + core.is_eagle if start else 0]
        return match(
            MatchPrefixParams(RadixKey(tokens, key.extra_key, False, None, key.cache_salt))
        )

    core.match_prefix = call


@drill("KEY-56", "a half-ported field", "BUG-01")
def full_hit_left_at_default(core: Any) -> None:
    """A match never says how far the key was found at all."""

    def then(result: Any, *_: Any) -> Any:
        return msgspec.structs.replace(result, full_kv_hit_length=0)

    after(core, "match_prefix", then)


@drill("MATCH-10", "none is taken for zero")
def root_for_no_visit(core: Any) -> None:
    """A match that finds nothing says that it visited the root."""

    def then(result: Any, *_: Any) -> Any:
        visited = result.last_visited_node_id
        root = core._tree.root.id
        return msgspec.structs.replace(
            result, last_visited_node_id=root if visited is None else visited
        )

    after(core, "match_prefix", then)


@drill("MATCH-9", "a sum leaves a part out")
def last_node_not_counted(core: Any) -> None:
    """The length of a match leaves out a last node that was split off just now."""

    def then(result: Any, *_: Any) -> Any:
        best = core._tree.nodes[result.best_match_node]
        is_fresh = best.id == max(core._tree.nodes) and best is not core._tree.root
        if not is_fresh:
            return result
        length = result.device_prefix_len - best.length
        return msgspec.structs.replace(result, device_prefix_len=length)

    after(core, "match_prefix", then)


@drill("PATH-2", "the wrong variable is returned")
def pinned_length_is_matched(core: Any) -> None:
    """A device-only lookup gives the matched length twice, not where the node ends."""
    after(core, "match_full_device_prefix", lambda found, *_: (found[0], found[1], found[0]))


@drill("PATH-2", "a walk stops one step early")
def lookup_ignores_partial_nodes(core: Any) -> None:
    """A device-only lookup does not count a node that matches in part."""

    def then(found: Any, *_: Any) -> Any:
        matched, node_id, end = found
        if matched == end:
            return found
        node = core._tree.nodes[node_id]
        start = end - node.length
        return start, node.parent.id, start

    after(core, "match_full_device_prefix", then)


@drill("RST-3", "a cached answer outlives what it names")
def stale_empty_match(core: Any) -> None:
    """After a reset the result for an empty key still names the old root."""
    first = core.empty_match_result
    override(core, empty_match_result=property(lambda core: first))
