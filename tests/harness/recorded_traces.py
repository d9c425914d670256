"""Traces such as are recorded inside a server: long keys in runs, answers, many ops."""

from __future__ import annotations

from treedrift.harness import ops
from treedrift.harness.config import Config
from treedrift.harness.ops import AnyOp, CoreInsert, CoreMatch, Lock, Run, Unlock

RECORDED = Config(capacity=2**17, rows=64, row_length=2**15, page_size=16)

PROMPT_TOKENS = 3000


def recorded(requests: int, pressure: bool = True) -> list[AnyOp]:
    """Requests one after another, six ops each; every second one goes on from the one before.

    With `pressure`, what came first is evicted now and then.
    """
    steps: list[AnyOp] = []
    for number in range(requests):
        prompt = [*prompt_of(number), (10**7 + number * 100, 90)]
        found, made = 2 * number, 2 * number + 1
        steps += [
            CoreMatch([], runs=prompt, answer=found),
            Lock(f"answer:{found}"),
            CoreInsert([], owned=600, runs=prompt, answer=made),
            Lock(f"answer:{made}"),
            Unlock(0),
            Unlock(0),
        ]
        if number % 8 == 7 and pressure:
            steps += [ops.Evict(4 * PROMPT_TOKENS), ops.Ask("path", [f"answer:{made}"])]
    return steps


def prompt_of(number: int) -> list[Run]:
    """What the keys of a request and of one of its neighbours have in common."""
    return [(1, 600), (10_000 + number // 2 * PROMPT_TOKENS, PROMPT_TOKENS)]
