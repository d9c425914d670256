"""KV contents: fingerprints of prefixes, poison after a free."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pytest
import torch

from treedrift.backends.pools import (
    POISON,
    PoolError,
    extend_fingerprints,
    fingerprints,
    make_pools,
    namespace_seed,
)

PLAIN = (None, None)


def of(tokens: list[int], namespace: tuple[str | None, str | None] = PLAIN) -> list[int]:
    return fingerprints(array("q", tokens), namespace).tolist()


def test_a_fingerprint_stands_for_the_whole_prefix() -> None:
    assert of([1, 2, 3])[:2] == of([1, 2])
    assert of([1, 2, 3])[2] != of([2, 1, 3])[2]
    assert of([0, 0, 5])[2] != of([0, 5])[1]
    assert of([7, 9])[1] != of([8, 9])[1]
    assert of([]) == []


def test_equal_tokens_at_different_places_differ() -> None:
    prints = of([0] * 2000)
    assert len(set(prints)) == 2000


def test_extreme_tokens_have_fingerprints() -> None:
    assert len(set(of([2**63 - 1, -(2**63), -1, 0]))) == 4


@pytest.mark.parametrize("cut", [1, 2, 999, 2999])
def test_a_sequence_can_be_continued_from_its_last_fingerprint(cut: int) -> None:
    tokens = array("q", [(7 * place) % 1000 for place in range(3000)])
    whole = fingerprints(tokens, ("a", None))
    row = torch.full((3001,), POISON)
    row[:cut] = fingerprints(tokens[:cut], ("a", None))
    extend_fingerprints(row, tokens, ("a", None), cut)
    assert torch.equal(row[:3000], whole)
    assert row[3000] == POISON


def test_namespaces_that_run_together_are_told_apart() -> None:
    spaces = [(None, None), ("", None), ("ab", None), (None, "ab"), ("a", "b"), ("", "ab")]
    seeds = {namespace_seed(space) for space in spaces}
    assert len(seeds) == len(spaces)
    assert namespace_seed(("ab", "")) == namespace_seed(("ab", None))
    assert namespace_seed(("\ud800", None)) != namespace_seed(("?", None))


def test_fingerprints_are_the_same_in_every_process() -> None:
    assert namespace_seed(PLAIN) == 7550833572479437665
    assert of([1, 2], ("lora", "salt")) == [7071424046655605669, -1087711351437045804]


def test_an_array_can_grow_after_it_was_fingerprinted() -> None:
    tokens = array("q", [1, 2])
    kept = fingerprints(tokens, PLAIN)
    tokens.append(3)
    assert kept.tolist() == of([1, 2])


def test_whatever_is_freed_is_poisoned() -> None:
    heard: list[str] = []
    pools = make_pools(8, 2, 8, journal=lambda kind, _: heard.append(kind))
    slots = pools.allocator.alloc(3)
    assert slots is not None
    pools.kv.write(slots, torch.tensor([5, 6, 7]))
    pools.allocator.free(slots[1:2])
    assert pools.kv.read(slots).tolist() == [5, POISON, 7]
    assert heard == ["alloc", "free"]
    with pytest.raises(PoolError):
        pools.allocator.free(slots)
    assert pools.kv.read(slots).tolist() == [5, POISON, 7]


def test_clear_poisons_everything() -> None:
    pools = make_pools(8, 2, 8, page_size=2)
    slots = pools.allocator.alloc(4)
    assert slots is not None
    pools.kv.write(slots, slots)
    pools.table.alloc_row()
    pools.clear()
    assert pools.kv.read(slots).tolist() == [POISON] * 4
    assert pools.allocator.available_size() == 8
    assert pools.table.available_size() == 2


def test_consecutive_fingerprints_share_no_obvious_difference() -> None:
    prints = of([5] * 50)
    differences = {right - left for left, right in pairwise(prints)}
    assert len(differences) == 49
