"""Pseudonyms keep which prefixes keys share, and nothing of what the keys say."""

from __future__ import annotations

import random
from array import array
from itertools import combinations

import pytest

from treedrift.backends.contract import RadixKey
from treedrift.harness.ops import CoreMatch, Namespace
from treedrift.harness.tokens import key_tokens
from treedrift.harness.transcript import PlainNames, Pseudonyms

FAR = 10**12
"""Where original tokens begin in these tests; pseudonyms never get there."""


def key(*tokens: int, extra: str | None = None, salt: str | None = None) -> RadixKey:
    return RadixKey(array("q", tokens), extra, cache_salt=salt)


def named(naming: Pseudonyms, given: RadixKey) -> list[int]:
    tokens, runs = naming.key(given)
    return key_tokens(CoreMatch(tokens, runs=runs)).tolist()


def random_keys(seed: int, count: int, alphabet: int = 3, longest: int = 40) -> list[RadixKey]:
    """Keys that share prefixes, grow and end inside each other."""
    chance = random.Random(seed)
    known = [array("q")]
    for _ in range(count):
        stem = chance.choice(known)[: chance.randrange(longest)]
        tail = [FAR + chance.randrange(alphabet) for _ in range(chance.randrange(longest // 2))]
        known.append(stem + array("q", tail))
    return [RadixKey(tokens) for tokens in known]


@pytest.mark.parametrize("seed", range(8))
def test_all_pairs_of_keys_share_as_much_as_before(seed: int) -> None:
    naming = Pseudonyms()
    keys = random_keys(seed, 60)
    told = [named(naming, one) for one in keys]
    for one, other in combinations(range(len(keys)), 2):
        after = RadixKey(array("q", told[one])).match(RadixKey(array("q", told[other])))
        assert after == keys[one].match(keys[other])
    assert [len(one) for one in told] == [len(one) for one in keys]


def test_a_key_has_the_same_pseudonyms_whenever_it_comes() -> None:
    naming = Pseudonyms()
    keys = random_keys(20, 80)
    first = [named(naming, one) for one in keys]
    assert [named(naming, one) for one in keys] == first


def test_no_original_token_is_told() -> None:
    naming = Pseudonyms()
    told = {token for one in random_keys(5, 80, alphabet=50) for token in named(naming, one)}
    assert max(told) < FAR


def test_a_token_in_another_context_has_another_number() -> None:
    told = named(Pseudonyms(), key(7, 7, 7, 7, 7))
    assert len(set(told)) == 5


def test_a_new_tail_is_one_run_of_the_next_numbers() -> None:
    naming = Pseudonyms()
    naming.key(key(1, 2, 3, 4))
    tokens, runs = naming.key(key(1, 2, 8, 9))
    assert (tokens, runs) == ([], [(1, 2), (5, 2)])


def test_a_key_that_grows_stays_one_run() -> None:
    naming = Pseudonyms()
    for length in range(1, 50):
        _, runs = naming.key(key(*range(FAR, FAR + length)))
        assert runs == [(1, length)]


def test_tokens_beyond_the_limit_of_a_key_are_named_too() -> None:
    limited = RadixKey(array("q", (1, 2, 3)), limit=1)
    assert named(Pseudonyms(), limited) == [1, 2, 3]


def test_namespaces_share_no_numbers() -> None:
    naming = Pseudonyms()
    spaces = [key(1, 2), key(1, 2, extra="a"), key(1, 2, salt="a"), key(1, 2, extra="a", salt="b")]
    told = [number for one in spaces for number in named(naming, one)]
    assert len(set(told)) == len(told)


def test_names_get_pseudonyms_that_stay() -> None:
    naming = Pseudonyms()
    asked = [
        key(extra="secret", salt="grain"),
        key(extra="other", salt="grain"),
        key(extra="secret"),
        key(extra="", salt=""),
        key(),
    ]
    assert [naming.namespace(one) for one in asked] == [
        Namespace("ns-1", "salt-1"),
        Namespace("ns-2", "salt-1"),
        Namespace("ns-1"),
        Namespace(""),
        Namespace(),
    ]
    told = [naming.session(name) for name in ("ann", "bob", "ann", "", None)]
    assert told == ["session-1", "session-2", "session-1", "", None]


def test_it_is_full_when_its_memory_is_used_up() -> None:
    naming = Pseudonyms(bytes_max=8 * 1000)
    naming.key(key(*range(500)))
    assert not naming.is_full
    naming.key(key(*range(500)))
    assert not naming.is_full
    naming.key(key(*range(1000, 1600)))
    assert naming.is_full
    assert named(naming, key(0, 1)) == [1, 2]


def test_many_names_fill_it_too() -> None:
    naming = Pseudonyms(bytes_max=10_000)
    for number in range(100):
        naming.session(f"session of user {number}")
    assert naming.is_full


def test_plain_names_are_the_real_ones() -> None:
    naming = PlainNames()
    given = key(5, 6, 7, extra="a", salt="b")
    assert naming.key(given) == ([5, 6, 7], [])
    assert naming.namespace(given) == Namespace("a", "b")
    assert naming.session("ann") == "ann"
