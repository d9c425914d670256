"""Page hashes: what names a page outside the tree (KEY-30 to KEY-41, EVT-12).

It hides the encoding of tokens and namespaces into bytes. Packed tokens are little-endian, as are
the words of a hash.
"""

from __future__ import annotations

from hashlib import sha256

from .keys import TOKEN_BYTES, KeyLayout
from .node import Node

_STORAGE_DOMAIN = b"sglang-cache-namespace-v1"
_SALT_DOMAIN = b"sglang-cache-salt-v1\x00"


def encode_namespace(*parts: str | None) -> bytes:
    """Each part with its presence and length, so that no two lists of parts are encoded alike."""
    encoded = b""
    for part in parts:
        if part is None:
            encoded += b"\x00"
        else:
            text = part.encode()
            encoded += b"\x01" + len(text).to_bytes(8, "little") + text
    return encoded


def page_hashes(tokens: bytes, layout: KeyLayout, prior: bytes) -> list[str]:
    """The chained hash of every page of packed `tokens`; `prior` is a digest or empty (KEY-32).

    INVARIANT: no token is negative; operations check before they change anything.
    """
    words = _unit_words(tokens) if layout.is_bigram else tokens
    page_bytes = layout.page_size * TOKEN_BYTES * (2 if layout.is_bigram else 1)
    narrow = _low_halves(words)
    any_wide = _is_wide(words)
    hashes = []
    digest = prior
    for start in range(0, len(words), page_bytes):
        stop = start + page_bytes
        page = narrow[start // 2 : stop // 2]
        # One wide token makes the whole page wide, and no other page (KEY-31).
        if any_wide and _is_wide(words[start:stop]):
            page = b"\xff" + words[start:stop]
        digest = sha256(digest + page).digest()
        hashes.append(digest.hex())
    return hashes


def _unit_words(tokens: bytes) -> bytes:
    """Both tokens of every pair: `a b c` becomes `a b b c` (KEY-30)."""
    singles = memoryview(tokens).cast("q")
    pairs = memoryview(bytearray(2 * (len(singles) - 1) * TOKEN_BYTES)).cast("q")
    pairs[::2] = singles[:-1]
    pairs[1::2] = singles[1:]
    return pairs.tobytes()


def _low_halves(words: bytes) -> bytes:
    return memoryview(words).cast("I")[::2].tobytes()


def _is_wide(words: bytes) -> bool:
    high_halves = memoryview(words).cast("I")[1::2].tobytes()
    return high_halves != bytes(len(high_halves))


def fill_hashes(node: Node, layout: KeyLayout) -> None:
    """Give a node its own hash list, unless it has one (KEY-37, KEY-40).

    Below a parent without hashes the chain starts anew, as if the node hung from the root.
    """
    if node.hashes is not None:
        return
    parent = node.parent
    if parent is not None and parent.hashes:
        prior = bytes.fromhex(parent.hashes[-1])
    elif node.namespace is not None:
        prior = sha256(_STORAGE_DOMAIN + encode_namespace(*node.namespace)).digest()
    else:
        prior = b""
    node.hashes = page_hashes(node.key, layout, prior)


def fill_event_hashes(node: Node, layout: KeyLayout) -> None:
    """Give a node of a namespace its event hash list, unless it has one (EVT-12).

    The chain starts from the salt alone, so equal tokens under two extra keys have equal hashes.
    """
    if node.event_hashes is not None:
        return
    parent = node.parent
    if parent is not None and parent.event_hashes:
        prior = bytes.fromhex(parent.event_hashes[-1])
    elif node.namespace is not None and node.namespace[1] is not None:
        prior = sha256(_SALT_DOMAIN + node.namespace[1].encode()).digest()
    else:
        prior = b""
    node.event_hashes = page_hashes(node.key, layout, prior)


def event_hash_list(node: Node) -> list[str]:
    """The list that names this node's pages in events; empty for the root (EVT-12)."""
    hashes = node.hashes if node.namespace is None else node.event_hashes
    return hashes or []
