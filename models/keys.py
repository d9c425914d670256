"""Keys made to collide: few tokens, shared prefixes, cuts at page boundaries and one beside them.

A case has a handful of base sequences that branch off each other. A key is a base cut, extended
or changed near a page boundary; most keys come again and again, so that inserts meet what is
there already. The lists that are handed out are shared between ops, nobody may change them.
"""

from __future__ import annotations

from treedrift.harness.ops import DEFAULT_NAMESPACE, Namespace

from .chance import Chance

LORA_IDS = ("0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210")
"""Adapter ids, as long as a server makes them."""

COLLIDING: tuple[tuple[Namespace, ...], ...] = (
    (Namespace("a", "bc"), Namespace("ab", "c"), Namespace("abc")),
    (Namespace(""), Namespace(None, ""), Namespace("", "")),
    (Namespace("a"), Namespace(None, "a"), Namespace("a", "a")),
    (Namespace(LORA_IDS[0]), Namespace("t" + LORA_IDS[0]), Namespace(LORA_IDS[0], "s")),
    (Namespace(LORA_IDS[1]), Namespace(LORA_IDS[0]), Namespace("t" + LORA_IDS[1], "s")),
    (Namespace("None"), Namespace(None, "None"), Namespace("é", "\x00")),
)
"""Namespaces that a careless hash of key and salt would mix up."""

TOKENS: tuple[tuple[tuple[int, ...], float], ...] = (
    ((1, 2), 4),
    ((1, 2, 3), 6),
    ((0, 1), 1),
    ((1, 2, 3, 4), 3),
    ((1, 2, 2**31), 1),
    ((1, 2**32 - 1, 2**32), 1),
    ((1, 2, 2**40), 1),
    ((7, 2**32 + 7), 0.5),
    ((0, 2**63 - 1), 0.5),
)
"""Alphabets of tokens with their weights."""

NEGATIVE: tuple[tuple[int, ...], ...] = ((1, -1), (1, 2, -(2**63)), (-1, 2**32 - 1))
"""Alphabets with tokens that can't be hashed."""


class Keys:
    """The keys of one case. `longest` is the length of the longest base, in tokens."""

    def __init__(
        self, chance: Chance, page_size: int, bigram: bool, longest: int, negative: bool
    ) -> None:
        """`negative` allows tokens that can't be hashed."""
        self._chance = chance
        self._page = page_size
        # A key of n pairs has n + 1 tokens, so page boundaries lie one token further.
        self._shift = 1 if bigram else 0
        self._longest = longest + self._shift
        self._tokens = chance.pick(NEGATIVE) if negative else chance.weighted(TOKENS)
        self._bases = self._make_bases(chance.between(2, 5))
        self._pool = [self._fresh() for _ in range(chance.pick((6, 12, 24, 48)))]
        self.namespaces = self._make_namespaces()

    def _make_bases(self, count: int) -> list[list[int]]:
        bases = [self._random(self._longest)]
        for _ in range(count - 1):
            start = self._chance.pick(bases)[: self._cut(self._longest)]
            size = self._chance.between(len(start), self._longest)
            bases.append(start + self._random(size - len(start)))
        return bases

    def _make_namespaces(self) -> list[Namespace]:
        if self._chance.flip(0.4):
            return [DEFAULT_NAMESPACE]
        spaces = list(self._chance.pick(COLLIDING))[: self._chance.between(1, 3)]
        # The default comes twice, for it is what most keys live in.
        return [DEFAULT_NAMESPACE, DEFAULT_NAMESPACE, *spaces]

    def _random(self, count: int) -> list[int]:
        pick, tokens = self._chance.pick, self._tokens
        return [pick(tokens) for _ in range(count)]

    def _cut(self, length: int) -> int:
        """A length near a page boundary, at most `length`."""
        real, page = self._chance.real, self._page
        cut = page * int(real() * (length // page + 1)) + self._shift
        if real() < 0.4:
            cut += -1 if real() < 0.5 else 1
        return min(max(cut, 0), length)

    def _fresh(self) -> list[int]:
        real, page = self._chance.real, self._page
        base = self._chance.pick(self._bases)
        key = base[: self._cut(len(base))]
        if real() < 0.3:
            key += self._random(1 + int(real() * (page + 1)))
        if key and real() < 0.2:
            at = min(self._cut(len(key)), len(key) - 1)
            key[at] = self._chance.pick(self._tokens)
        return key

    def token(self) -> int:
        """One token."""
        return self._chance.pick(self._tokens)

    def some(self, most: int) -> list[int]:
        """One to `most` tokens."""
        return self._random(1 + int(self._chance.real() * most))

    def key(self) -> list[int]:
        """A key, most often one that was handed out before."""
        real, pool = self._chance.real, self._pool
        at = int(real() * len(pool))
        if real() < 0.15:
            pool[at] = self._fresh()
        return pool[at]

    def base(self) -> list[int]:
        """One of the base sequences, whole."""
        return self._chance.pick(self._bases)

    def near_boundary(self, length: int) -> int:
        """A length at a page boundary or one beside it, at most `length`."""
        return self._cut(length)

    def namespace(self) -> Namespace:
        """One of the case's namespaces."""
        return self._chance.pick(self.namespaces)
