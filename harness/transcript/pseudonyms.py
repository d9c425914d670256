"""Names for what a trace must not tell: tokens, namespaces and sessions of a server's users.

A radix tree asks of a key only which prefix it shares with others of its namespace. So a token's
pseudonym stands for the whole prefix that ends with it: the same prefix has the same numbers for
as long as the naming lasts, and a token in another context has another number, which tells nothing
of how often it comes. What is new of a key gets the next free numbers, so a key is a few runs.

Hides the trie of prefixes that were seen.
"""

from __future__ import annotations

from array import array
from typing import Protocol

from treedrift.backends.contract import RadixKey

from ..ops import DEFAULT_NAMESPACE, Namespace, Run

STORED_BYTES_MAX = 256 * 2**20
"""Memory that pseudonyms take before they are full, where nothing else is said."""

_TOKEN_BYTES = 8
_ENTRY_BYTES = 400
"""What a run or a name takes besides its tokens, about."""


class Naming(Protocol):
    """How a transcript spells what users said."""

    @property
    def is_full(self) -> bool:
        """Whether it has taken all the memory it may: its owner should start anew."""

    def key(self, key: RadixKey) -> tuple[list[int], list[Run]]:
        """The tokens of a key, its limit aside, as `tokens` and `runs` of an op."""

    def namespace(self, key: RadixKey) -> Namespace:
        """Where a key lives."""

    def session(self, session_id: str | None) -> str | None:
        """The name of a session."""


class PlainNames:
    """Everything as it is."""

    is_full = False

    def key(self, key: RadixKey) -> tuple[list[int], list[Run]]:
        """The tokens of a key, and no runs."""
        return key.token_ids.tolist(), []

    def namespace(self, key: RadixKey) -> Namespace:
        """Where a key lives."""
        return _space(key.extra_key, key.cache_salt)

    def session(self, session_id: str | None) -> str | None:
        """The session itself."""
        return session_id


class _Node:
    """Tokens that follow one prefix, the pseudonym of the first, and what was seen after them."""

    __slots__ = ("children", "first", "tokens")

    def __init__(self, tokens: array[int], first: int) -> None:
        self.tokens = tokens
        self.first = first
        self.children: dict[int, _Node] = {}

    @property
    def end(self) -> int:
        """The pseudonym that comes next to its last one."""
        return self.first + len(self.tokens)

    def split(self, at: int) -> _Node:
        """Cut into two; returns the upper one, to be put in this one's place."""
        upper = _Node(self.tokens[:at], self.first)
        upper.children[self.tokens[at]] = self
        self.tokens = self.tokens[at:]
        self.first += at
        return upper


class Pseudonyms:
    """Names that carry no text, and are the same for the same thing until the end.

    `bytes_max` bounds the memory: beyond it `is_full` is true, and everything goes on working.
    """

    def __init__(self, bytes_max: int = STORED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._stored = 0
        self._next = 1
        self._tries: dict[tuple[str | None, str | None], _Node] = {}
        self._spaces: dict[str, str] = {}
        self._salts: dict[str, str] = {}
        self._sessions: dict[str, str] = {}

    @property
    def is_full(self) -> bool:
        """Whether the memory for what was seen is used up."""
        return self._stored > self._bytes_max

    def key(self, key: RadixKey) -> tuple[list[int], list[Run]]:
        """The pseudonyms of a key's tokens: no tokens, a few runs."""
        space = (key.extra_key, key.cache_salt)
        root = self._tries.get(space)
        if root is None:
            root = self._tries[space] = _Node(array("q"), 0)
            self._stored += _ENTRY_BYTES
        return [], self._runs(root, key.token_ids)

    def namespace(self, key: RadixKey) -> Namespace:
        """Pseudonyms of where a key lives; what is None or empty stays so (KEY-3)."""
        return _space(
            self._name(self._spaces, "ns", key.extra_key),
            self._name(self._salts, "salt", key.cache_salt),
        )

    def session(self, session_id: str | None) -> str | None:
        """The pseudonym of a session; None and "" stay what they are."""
        return self._name(self._sessions, "session", session_id)

    def _name(self, names: dict[str, str], kind: str, name: str | None) -> str | None:
        if not name:
            return name
        found = names.get(name)
        if found is None:
            found = names[name] = f"{kind}-{len(names) + 1}"
            self._stored += _ENTRY_BYTES + len(name)
        return found

    def _runs(self, node: _Node, tokens: array[int]) -> list[Run]:
        """The pseudonyms of a key, from the root of its namespace down."""
        runs: list[Run] = []
        at, length = 0, len(tokens)
        while at < length:
            child = node.children.get(tokens[at])
            if child is None:
                first = self._add(node, tokens[at:])
                _append(runs, first, length - at)
                break
            common = _common(child.tokens, tokens[at : at + len(child.tokens)])
            _append(runs, child.first, common)
            at += common
            if at < length and common < len(child.tokens):
                start = child.tokens[0]
                child = node.children[start] = child.split(common)
                self._stored += _ENTRY_BYTES
            node = child
        return runs

    def _add(self, node: _Node, tail: array[int]) -> int:
        """Pseudonyms for the new tail of a prefix; returns the first."""
        first = self._next
        self._next += len(tail)
        self._stored += _TOKEN_BYTES * len(tail)
        if node.end == first and not node.children:
            # A key that grows, as that of a request does: its run grows with it.
            node.tokens.extend(tail)
            return first
        node.children[tail[0]] = _Node(tail, first)
        self._stored += _ENTRY_BYTES
        return first


def _space(extra_key: str | None, cache_salt: str | None) -> Namespace:
    is_default = extra_key is None and cache_salt is None
    return DEFAULT_NAMESPACE if is_default else Namespace(extra_key, cache_salt)


def _append(runs: list[Run], first: int, count: int) -> None:
    """Add a run, to the one before it where they are consecutive."""
    if runs and sum(runs[-1]) == first:
        runs[-1] = (runs[-1][0], runs[-1][1] + count)
    else:
        runs.append((first, count))


def _common(left: array[int], right: array[int]) -> int:
    """Length of the longest common prefix; compares arrays, not single tokens."""
    if left == right:
        return len(left)
    return RadixKey(left).match(RadixKey(right))
