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
        cow = rng.random() < 0.9
        cache.arrive(prompt, rng.choice(NAMESPACES), rng.randint(0, 2), None, base, cow)
    elif kind < 0.6:
        count = rng.choice([None, 1, 3, 4])
        if not cache.prefill(request, count, rng.random() < 0.7):
            cache.retract(request)
    elif kind < 0.75:
        tokens = array("q", [rng.randint(1, 2) for _ in range(rng.randint(1, 3))])
        if not cache.decode(request, tokens):
            cache.retract(request)
    elif kind < 0.8:
        cache.early_release(request)
    elif kind < 0.95:
        rng.choice([cache.finish, cache.abort, cache.retract, cache.checkpoint])(request)
    else:
        few = [rng.randint(0, 6) for _ in range(3)]
        cache.evict(EvictParams(few[0], few[1], few[2] // 2))
    if cache.waiting and rng.random() < 0.3:
        cache.readmit(rng.choice(cache.waiting))
    if rng.random() < 0.2:
        cache.linker.ack(rng.random() < 0.7)


def live(side: Any, seed: str, steps: int) -> None:
    """Random traffic, checked step by step; afterwards everything comes back."""
    rng = random.Random(seed)
    for _ in range(steps):
        step(side, rng)
        side.check()
    for request in list(side.cache.requests):
        side.cache.finish(request)
    while side.cache.linker.ack(True):
        pass
    side.check()
    assert side.core.protected_size() == 0
    side.cache.evict(EvictParams(1000, 1000, 1000))
    page = side.cache.config.page_size
    pools = side.pools
    assert pools.allocator.available_size() == pools.allocator.size // page * page
    for window in pools.windows.values():
        assert window.is_ring or window.available_size() == window.allocator.size // page * page
    assert pools.states is None or pools.states.available_size() == pools.states.size


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
    live(side, f"{page_size} {bigram} {sorted(fields)}", 250)


@pytest.mark.parametrize("page_size", [1, 2, 3])
@pytest.mark.parametrize("window", [1, 3, 8])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"bigram": True, "window_interval": 3},
        {"need_sort": True, "window_capacity": 30, "policy": "lfu"},
        {"window_gates": False},
        {"window_gates": False, "window_ring": True},
        {"window_replay": True, "draft_window": 4},
        {"linker": True, "window_capacity": 24},
    ],
    ids=lambda fields: "-".join(fields) or "plain",
)
def test_no_window_slot_is_lost_or_shared(
    bench: Callable[..., Any], page_size: int, window: int, fields: dict[str, Any]
) -> None:
    side = bench(
        components=("full", "swa"),
        capacity=50,
        row_length=20,
        page_size=page_size,
        window=window,
        **fields,
    )
    live(side, f"{page_size} {window} {sorted(fields)}", 200)


@pytest.mark.parametrize(
    ("page_size", "buffer"),
    [(1, "none"), (1, "single"), (1, "double"), (1, "lazy"), (2, "double"), (3, "lazy")],
)
@pytest.mark.parametrize("components", [("full", "mamba"), ("full", "swa", "mamba")])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"states": 5, "state_chunk": 3},
        {"state_cap": 1, "state_skip_lock": True},
        {"linker": True, "state_chunk": 4},
    ],
    ids=lambda fields: "-".join(fields) or "plain",
)
def test_no_state_is_lost_or_shared(
    bench: Callable[..., Any],
    page_size: int,
    buffer: str,
    components: tuple[str, ...],
    fields: dict[str, Any],
) -> None:
    side = bench(
        components=components,
        capacity=50,
        row_length=20,
        page_size=page_size,
        window=4 if "swa" in components else None,
        state_buffer=buffer,
        **fields,
    )
    live(side, f"{page_size} {buffer} {components} {sorted(fields)}", 200)


@pytest.mark.parametrize("page_size", [1, 2])
@pytest.mark.parametrize(("window", "second"), [(2, 6), (6, 2), (3, 3)])
@pytest.mark.parametrize(
    "components", [("full", "swa", "aux_swa"), ("full", "swa", "aux_swa", "mamba")]
)
def test_no_slot_of_a_second_window_is_lost_or_shared(
    bench: Callable[..., Any],
    page_size: int,
    window: int,
    second: int,
    components: tuple[str, ...],
) -> None:
    side = bench(
        components=components,
        capacity=50,
        window_capacity=40,
        row_length=20,
        page_size=page_size,
        window=window,
        aux_window=second,
        state_buffer="double",
    )
    live(side, f"{page_size} {window} {second} {components}", 200)
