"""Drills of page hashes: what they are made of, when they are made, and who reads which."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from treedrift.backends.python_core.hashing import encode_namespace, fill_hashes, page_hashes
from treedrift.backends.python_core.keys import KeyLayout, has_negative_token, unpack

from .drill import Theme, after, override

drill = Theme()


def on_first_hash(core: Any, make: Callable[[Any, bytes], list[str]]) -> None:
    """Hash each new leaf in another way, where a sound core would hash it.

    `make` gets the leaf and the digest that its chain goes on from, which is empty at its start.
    """
    tree = core._tree

    def then(_: None, leaf: Any, value: Any) -> None:
        if tree.hashes_inserts:
            leaf.hashes = make(leaf, _prior(leaf))

    after(tree.full, "store_new_leaf", then)


def _prior(leaf: Any) -> bytes:
    if leaf.parent.hashes:
        return bytes.fromhex(leaf.parent.hashes[-1])
    return _seed(leaf)


def _seed(leaf: Any) -> bytes:
    if leaf.namespace is None:
        return b""
    return sha256(b"sglang-cache-namespace-v1" + encode_namespace(*leaf.namespace)).digest()


@drill("KEY-37", "a chain is cut")
def chain_starts_anew(core: Any) -> None:
    """The hashes of a new leaf do not go on from those of its parent."""
    layout = core._tree.layout
    on_first_hash(core, lambda leaf, prior: page_hashes(leaf.key, layout, _seed(leaf)))


@drill("KEY-32", "a variable is not updated in a loop")
def pages_not_chained(core: Any) -> None:
    """All pages of a node are hashed after the same digest."""
    layout = core._tree.layout

    def make(leaf: Any, prior: bytes) -> list[str]:
        starts = range(0, leaf.length, layout.page_size)
        spans = [layout.span(leaf.key, start, start + layout.page_size) for start in starts]
        return [page_hashes(span, layout, prior)[0] for span in spans]

    on_first_hash(core, make)


@drill("KEY-37", "a half-ported field", "BUG-21")
def storage_hashes_without_namespace(core: Any) -> None:
    """The first hash below the root does not know the namespace of its key."""
    layout = core._tree.layout

    def make(leaf: Any, prior: bytes) -> list[str]:
        return page_hashes(leaf.key, layout, prior if leaf.parent.hashes else b"")

    on_first_hash(core, make)


@drill("KEY-31", "an integer is cut")
def wide_tokens_cut(core: Any) -> None:
    """A token that needs more than 32 bits is hashed by its low 32 bits."""
    layout = core._tree.layout

    def make(leaf: Any, prior: bytes) -> list[str]:
        low = array("q", [token & 0xFFFFFFFF for token in unpack(leaf.key)])
        return page_hashes(low.tobytes(), layout, prior)

    on_first_hash(core, make)


@drill("KEY-31", "a decision is taken once for all")
def one_wide_token_widens_all(core: Any) -> None:
    """One wide token makes every page of its node wide."""
    layout = core._tree.layout

    def make(leaf: Any, prior: bytes) -> list[str]:
        if layout.is_bigram or max(unpack(leaf.key)) < 2**32:
            return page_hashes(leaf.key, layout, prior)
        hashes = []
        for start in range(0, leaf.length, layout.page_size):
            words = layout.span(leaf.key, start, start + layout.page_size)
            prior = sha256(prior + b"\xff" + words).digest()
            hashes.append(prior.hex())
        return hashes

    on_first_hash(core, make)


@drill("KEY-30", "a branch is forgotten")
def pairs_hashed_as_tokens(core: Any) -> None:
    """A page of pairs is hashed as the page of their first tokens."""
    plain = KeyLayout(core.page_size, False)

    def make(leaf: Any, prior: bytes) -> list[str]:
        return page_hashes(plain.span(leaf.key, 0, leaf.length), plain, prior)

    if core.is_eagle:
        on_first_hash(core, make)


@drill("KEY-40", "one of two conditions is forgotten")
def linker_leaves_unhashed(core: Any) -> None:
    """A new leaf is hashed for a storage, but not for an external cache."""
    override(core._tree, _hashes_for_storage=property(lambda tree: tree.settings.enable_storage))


@drill("KEY-41", "a loop runs the other way")
def backfill_from_the_leaves(core: Any) -> None:
    """Missing hashes are filled in from the leaves up, so that each chain starts anew."""
    backfill = core.backfill_missing_hash_values

    def call() -> Any:
        tree = core._tree
        missing = [node for node in tree.pre_order() if node.hashes is None]
        if not any(has_negative_token(node.key) for node in missing):
            for node in reversed(missing):
                fill_hashes(node, tree.layout)
            return len(missing)
        return backfill()

    core.backfill_missing_hash_values = call


@drill("KEY-41", "a count of the wrong thing")
def backfill_counts_all(core: Any) -> None:
    """Filling in missing hashes counts the nodes that had theirs, too."""
    after(core, "backfill_missing_hash_values", lambda _: len(core._tree.nodes) - 1)


@drill("KEY-42", "the wrong end of a list")
def first_hash_for_last(core: Any) -> None:
    """The last hash of a node is that of its first page."""

    def then(last: Any, node_id: Any) -> Any:
        hashes = core._node(node_id).hashes
        return hashes[0] if hashes else last

    after(core, "get_last_hash_value", then)


@drill("KEY-42", "off by one node")
def prefix_hashes_with_own(core: Any) -> None:
    """The hashes above a node end with its own."""

    def then(hashes: Any, node_id: Any) -> Any:
        return [*hashes, *(core._node(node_id).hashes or ())]

    after(core, "get_prefix_hash_values", then)


@drill("KEY-42", "`continue` for `break`")
def prefix_hashes_beyond_a_gap(core: Any) -> None:
    """A node without hashes does not hide those above it."""

    def then(_: Any, node_id: Any) -> Any:
        above = core._path(core._node(node_id))[:-1]
        return [page for node in above for page in node.hashes or ()]

    after(core, "get_prefix_hash_values", then)
