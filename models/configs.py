"""Configurations drawn by chance: small pools, every policy with parameters that matter."""

from __future__ import annotations

import math
from typing import Any

from treedrift.harness.config import Config, PolicyValue, StateBuffer

from .chance import Chance
from .keys import LORA_IDS
from .profiles import Profile

PAGE_SIZES = ((1, 6), (2, 5), (3, 3), (4, 4), (8, 2), (16, 1))
"""Page sizes with their weights."""

POLICIES = ("lru", "lfu", "fifo", "mru", "filo", "priority", "slru", "tlru")
"""Every policy, by the name that a configuration uses."""

SLRU_THRESHOLDS: tuple[int, ...] = (2, 2, 1, 3, 3, 4, 0, -1, 2**63 - 1, -(2**63))
"""Thresholds of the protected segment; zero and less protect everything."""

_HUGE = "1" + "0" * 40

TLRU_PARAMETERS: tuple[tuple[PolicyValue, PolicyValue], ...] = (
    (4, 2),
    (3, 0),
    (2, 0),
    (6, 1),
    (10, 3),
    (100, 0),
    (0, 0),
    (2, 5),
    (-1, 0),
    (True, False),
    (_HUGE, 0),
    (0, _HUGE),
    (_HUGE[:-1] + "3", _HUGE[:-1] + "0"),
    (4.5, 2),
    (3.5, 0.5),
    (4, 0.5),
    (1e300, 3),
    (2.0, 9007199254740993),
    ("nan", 0),
    ("inf", 0),
    ("-inf", 1),
    (0, "inf"),
    (3, "nan"),
    ("inf", "inf"),
)
"""Threshold and estimate of T-LRU; text stands for what JSON can't hold."""


STATES = (2, 3, 4, 6, 8, 8, 12, 16, 24, 32)
"""Slots for Mamba states: fewer than a few requests need, to more than there are nodes."""

STATE_CAPS = (-1, -1, 0, 1, 2, 3)
STATE_CHUNKS = (1, 1, 2, 3, 4, 6)
STATE_BUFFERS: tuple[StateBuffer, ...] = ("none", "single", "double", "lazy")


def draw_config(chance: Chance, profile: Profile, hashable: bool) -> Config:
    """A configuration of the profile. Unless `hashable`, nothing that needs hashes is on."""
    page_size = chance.weighted(PAGE_SIZES)
    pages = chance.pick(profile.pages)
    row_pages = chance.pick((4, 6, 8, 12, 16, 24, 32))
    policy = chance.pick((*POLICIES, "lru", "slru", "tlru"))
    events = hashable and chance.flip(0.55)
    drawn: dict[str, Any] = {
        "page_size": page_size,
        "bigram": chance.flip(0.15),
        "policy": policy.upper() if chance.flip(0.05) else policy,
        "policy_config": _policy_config(chance, policy),
        "capacity": pages * page_size + (chance.below(page_size) if chance.flip(0.2) else 0),
        "rows": chance.between(1, 6),
        "row_length": row_pages * page_size + (chance.below(page_size) if chance.flip(0.3) else 0),
        "need_sort": chance.flip(0.4),
        "events": events,
        "storage": hashable and chance.flip(0.25),
        "linker": hashable and chance.flip(0.3),
        "write_through_threshold": chance.pick((1, 2, 256)),
        "buffer_only": chance.flip(0.12),
        "write_back": chance.flip(0.12),
    }
    # A choice of one is none: it would shift all that is drawn after it.
    sets = profile.components
    drawn["components"] = chance.pick(sets) if len(sets) > 1 else sets[0]
    if "swa" in drawn["components"]:
        drawn.update(_windows(chance, page_size, drawn))
    if "mamba" in drawn["components"]:
        drawn.update(_states(chance, page_size, drawn["row_length"]))
    drawn.update(profile.pins)
    if drawn["events"]:
        drawn["dynamo_events"] = chance.flip(0.5)
        drawn["lora_names"] = chance.pick(
            ({}, {LORA_IDS[0]: "one"}, {LORA_IDS[0]: "one", LORA_IDS[1]: "two"}, {"a": "one"})
        )
    if drawn["linker"]:
        drawn["write_through_threshold"] = chance.pick((1, 2, 2, 3))
    return Config(**drawn)


def _policy_config(chance: Chance, policy: str) -> dict[str, PolicyValue]:
    if policy == "slru" and chance.flip(0.7):
        return {"protected_threshold": chance.pick(SLRU_THRESHOLDS)}
    if policy == "tlru" and chance.flip(0.95):
        # The first five tell T-LRU from LRU on small trees, so they come more often.
        pairs = TLRU_PARAMETERS[:5] if chance.flip(0.7) else TLRU_PARAMETERS
        threshold, estimate = chance.pick(pairs)
        return {"threshold": threshold, "next_prompt_estimate": estimate}
    return {}


def _windows(chance: Chance, page: int, drawn: dict[str, Any]) -> dict[str, Any]:
    has_second = "aux_swa" in drawn["components"]
    gates = chance.flip(0.8)
    least, capacity = 4 * page, drawn["capacity"]
    return {
        "window": _window(chance, page),
        "draft_window": _window(chance, page) if chance.flip(0.25) else 0,
        "aux_window": _window(chance, page) if has_second else None,
        "window_gates": gates,
        # A ring belongs to one window.
        "window_ring": not gates and not has_second and chance.flip(0.5),
        "window_replay": chance.flip(0.12),
        "window_capacity": (
            max(least, capacity // chance.pick((2, 3, 4))) if chance.flip(0.5) else None
        ),
        "window_interval": chance.pick((1, 1, 2, page, 3 * page, 128)),
    }


def _window(chance: Chance, page: int) -> int:
    """A window below, at and above a page, or several pages."""
    lengths = (1, 2, 3, 4, 5, page - 1, page, page + 1, 2 * page, 2 * page + 1, 4 * page)
    return max(1, chance.pick(lengths))


def _states(chance: Chance, page: int, row_length: int) -> dict[str, Any]:
    chunk = chance.pick(STATE_CHUNKS)
    # On a grid wider than a request there are no states at all.
    fits = math.lcm(chunk, page) <= row_length // 3
    return {
        "states": chance.pick(STATES),
        "state_chunk": chunk if fits else 1,
        "state_cap": chance.pick(STATE_CAPS),
        "state_buffer": chance.pick(STATE_BUFFERS if page == 1 else STATE_BUFFERS[1:]),
        "state_skip_lock": chance.flip(0.4),
    }
