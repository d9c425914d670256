"""Random lives of a cache: requests that share prefixes, are cut off, and come again.

A life depends on its seed and its setting alone, never on what the cache answers, so that two
cores with the same seed see the same requests.
"""

from __future__ import annotations

from array import array
from random import Random

from treedrift.harness.tokens import invent

from .scheduler import Ask, Scheduler
from .setting import Setting

NAMESPACES = (None, None, None, "tenant")
ADAPTERS = (None, None, None, "adapter-1", "adapter-2")
SALTS = (None, None, None, "salt")
FEW_TOKENS = 3
"""A small alphabet lets prompts agree by chance, and part in the middle of a page."""


def live(
    setting: Setting, seed: int, requests: int, first_token: int = 0, keep: bool = False
) -> Scheduler:
    """Serve a random life to its end; what happened is in the scheduler's ledger and figures.

    All tokens are at or above `first_token`.
    """
    random = Random(seed)
    scheduler = Scheduler(setting, keep)
    asks: list[Ask] = []
    for number in range(requests):
        asks.append(_ask(random, setting, asks, number, first_token))
        scheduler.submit(asks[-1])
        for _ in range(random.choice((0, 0, 1, 2, 5, 9))):
            scheduler.step()
        _disturb(random, scheduler, number)
    scheduler.drain()
    scheduler.check()
    return scheduler


def _ask(
    random: Random, setting: Setting, earlier: list[Ask], number: int, first_token: int
) -> Ask:
    """A new prompt, or one that goes on where an earlier request was, or near there."""
    ask = Ask(
        name=f"r{number}",
        prompt=array("q"),
        output=random.choice((1, 2, 5, 12, 24)),
        first_output=first_token,
        extra_key=random.choice(NAMESPACES),
        lora_id=random.choice(ADAPTERS),
        cache_salt=random.choice(SALTS),
        priority=random.choice((None, 0, 1, 3)),
    )
    if earlier and random.random() < 0.8:
        number = random.randrange(max(0, len(earlier) - 12), len(earlier))
        before = earlier[number]
        answer = (first_token + token for token in invent(number, 0, before.output))
        said = before.prompt + array("q", answer)
        # Mostly the whole conversation; sometimes it parts from it earlier.
        cut = len(said) if random.random() < 0.5 else random.randrange(len(said))
        ask.prompt = said[:cut]
        ask.extra_key, ask.lora_id = before.extra_key, before.lora_id
        ask.cache_salt = before.cache_salt
    length_max = setting.row_length - ask.output - 1
    new = random.choice((1, 3, 8, 20, 40))
    del ask.prompt[max(0, length_max - new) :]
    ask.prompt.extend(first_token + random.randrange(FEW_TOKENS) for _ in range(new))
    return ask


def _disturb(random: Random, scheduler: Scheduler, number: int) -> None:
    """What else happens to a server: clients go away, memory gets short, caches are flushed."""
    someone = f"r{random.randrange(max(0, number - 6), number + 1)}"
    chance = random.random()
    if chance < 0.1:
        scheduler.abort(someone)
    elif chance < 0.2:
        scheduler.retract(someone)
    elif chance < 0.3:
        scheduler.rank_waiting()
    elif chance < 0.33:
        scheduler.drain()
        scheduler.check()
    elif chance < 0.34:
        scheduler.drain()
        scheduler.flush()
    if scheduler.store is not None:
        scheduler.store.complete(random.choice((0, 1, 4, 8)))
