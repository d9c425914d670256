"""Random request traffic keeps every slot in one place and every content right."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from treedrift.backends.contract import EvictParams
from treedrift.harness.ops import Namespace

NAMESPACES = [Namespace(), Namespace("a"), Namespace(None, "a")]


def step(side: Any, rng: random.Random) -> None:
    cache = side.cache
    request = rng.choice(cache.requests) if cache.requests else None
    kind = rng.random()
    if kind < 0.3 or request is None:
        prompt = array("q", [rng.randint(1, 2) for _ in range(rng.randint(1, 14))])
        base = rng.choice([None, None, 1, 2])
        cache.arrive(prompt, rng.choice(NAMESPACES), rng.randint(0, 2), None, base)
    elif kind < 0.6:
        count = rng.choice([None, 1, 3, 4])
        if not cache.prefill(request, count, rng.random() < 0.7):
            cache.retract(request)
    elif kind < 0.75:
        tokens = array("q", [rng.randint(1, 2) for _ in range(rng.randint(1, 3))])
        if not cache.decode(request, tokens):
            cache.retract(request)
    elif kind < 0.95:
        rng.choice([cache.finish, cache.abort, cache.retract, cache.checkpoint])(request)
    else:
        cache.evict(EvictParams(num_tokens=rng.randint(1, 6)))
    if cache.waiting and rng.random() < 0.3:
        cache.readmit(rng.choice(cache.waiting))
    if rng.random() < 0.2:
        cache.linker_ack(rng.random() < 0.7)


@pytest.mark.parametrize("page_size", [1, 2, 3])
@pytest.mark.parametrize("bigram", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"need_sort": True, "policy": "lfu"},
        {"linker": True},
        {"write_back": True, "policy": "fifo"},
        {"buffer_only": True, "storage": True, "policy": "slru"},
    ],
    ids=lambda fields: "-".join(fields) or "plain",
)
def test_no_slot_is_lost_or_shared(
    bench: Callable[..., Any], page_size: int, bigram: bool, fields: dict[str, Any]
) -> None:
    side = bench(capacity=50, row_length=20, page_size=page_size, bigram=bigram, **fields)
    rng = random.Random(f"{page_size} {bigram} {sorted(fields)}")
    for _ in range(250):
        step(side, rng)
        side.check()
    for request in list(side.cache.requests):
        side.cache.finish(request)
    while side.cache.linker_ack(True):
        pass
    side.check()
    assert side.core.protected_size() == 0
    side.cache.evict(EvictParams(num_tokens=1000))
    assert side.pools.allocator.available_size() == 50 // page_size * page_size
