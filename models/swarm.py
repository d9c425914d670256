"""The swarm engine: traces made by chance, each with its own subset of the op language.

A case draws a configuration, a handful of colliding keys, and new weights for every kind of step;
some kinds are left out altogether, which reaches states that an even mixture never does. The same
seed, profile and mode give the same case on every machine.
"""

from __future__ import annotations

from collections.abc import Callable

from treedrift.harness.config import Config
from treedrift.harness.ops import AnyOp

from . import auxiliary_steps as auxiliary
from . import core_steps as core
from . import request_steps as request
from .case import Case
from .chance import Chance, Wheel
from .configs import draw_config
from .hostile_auxiliary_steps import (
    HOSTILE_AUXILIARY_STEPS,
    HOSTILE_STATE_STEPS,
    HOSTILE_WINDOW_STEPS,
)
from .hostile_steps import HOSTILE_STEPS
from .keys import Keys
from .profiles import Profile
from .recorded import tell_as_recorded

Step = Callable[[Case], None]
Table = dict[str, tuple[float, Step]]
"""Steps by name, with their usual weights."""

REQUEST_STEPS: Table = {
    "arrive": (4.0, request.arrive),
    "turn": (2.0, request.turn),
    "crowd": (0.7, request.crowd),
    "prefill": (2.0, request.prefill),
    "decode": (3.0, request.decode),
    "checkpoint": (1.0, request.checkpoint),
    "finish": (2.0, request.finish),
    "abort": (0.5, request.abort),
    "retract": (0.6, request.retract),
    "readmit": (0.5, request.readmit),
    "evict": (0.9, request.evict),
    "evict_for_alloc": (0.6, request.evict_for_alloc),
    "touch": (0.6, request.touch),
    "linker_ack": (0.2, request.linker_ack),
    "reset": (0.04, request.reset),
    "drain_events": (0.3, request.drain_events),
    "name_adapter": (0.05, request.name_adapter),
}
CORE_STEPS: Table = {
    "match": (4.0, core.match),
    "insert": (6.0, core.insert),
    "repeat": (0.6, core.repeat),
    "chain": (0.5, core.chain),
    "shatter": (0.7, core.shatter),
    "burst": (0.4, core.burst),
    "walk": (0.8, core.walk),
    "suspend": (0.2, core.suspend),
    "lock": (1.2, core.lock),
    "unlock": (1.5, core.unlock),
    "guarded": (0.5, core.guarded),
    "pin": (0.5, core.pin),
    "host_evict": (0.15, core.host_evict),
    "ask": (1.5, core.ask),
    "backfill": (0.2, core.backfill),
    "adjust_size": (0.2, core.adjust_size),
    "offload": (0.1, core.offload),
    "mark_stored": (0.1, core.mark_stored),
    "set_flag": (0.15, core.set_flag),
}
"""The steps of every tree."""

WINDOW_REQUEST_STEPS: Table = {"early_release": (0.7, request.early_release)}
STATE_REQUEST_STEPS: Table = {"copies": (0.6, request.copies)}
AUXILIARY_REQUEST_STEPS: Table = {"share": (0.6, request.share)}
AUXILIARY_CORE_STEPS: Table = {
    "aux_walk": (1.0, auxiliary.walk),
    "store": (0.5, auxiliary.store),
    "pressed": (0.5, auxiliary.pressed),
    "held_split": (0.4, auxiliary.held_split),
}
WINDOW_CORE_STEPS: Table = {
    "recover": (1.2, auxiliary.recover),
    "window_locks": (0.6, auxiliary.window_locks),
    "release_window": (0.6, auxiliary.release_window),
    "ranges": (0.4, auxiliary.ranges),
    "attach": (1.0, auxiliary.attach),
}
STATE_CORE_STEPS: Table = {
    "capped": (0.7, auxiliary.capped),
    "cap_path": (0.4, auxiliary.cap_path),
    "refill": (0.7, auxiliary.refill),
}
"""More steps, of trees with windows, with states, or with either."""

_LINKER_STEPS = {"suspend": 8.0, "offload": 6.0, "mark_stored": 3.0, "linker_ack": 5.0}
"""How much more of a step there is when the linker is on."""

_AUXILIARY_SUSPENSIONS = 4.0
"""How much oftener inserts wait where every window and every state is a barrier."""

_OF_EVENTS = ("drain_events", "name_adapter")
"""Steps that do nothing without KV events."""

_SHARED = ("evict", "drain_events", "reset", "linker_ack")
"""Request steps that a trace of core calls needs too."""

FILLERS = ("arrive", "turn", "insert")
"""Steps that put something into the tree; a case keeps at least one of them."""

_KEPT_SHARES = (0.25, 0.5, 0.8, 0.95)
"""Shares of all kinds of steps that a case keeps, one drawn per case."""

RECORDED_SHARE = 0.2
"""The share of cases whose ops are spelled as in a recording."""

HOSTILE_EVERY = 3
"""One case of a campaign in so many breaks the protocol."""

_FACTORS = (0.3, 1.0, 1.0, 3.0)
_HOSTILE_SHARE = 0.16
_LENGTHS = ((30, 3.0), (80, 5.0), (160, 4.0), (300, 2.0), (600, 0.5))


def campaign_case(seed: int, profile: Profile, hostile: bool) -> tuple[Config, list[AnyOp]]:
    """The case that this seed has in campaigns; `hostile`: where the cores allow hostile ops."""
    return generate_case(seed, profile, hostile and seed % HOSTILE_EVERY == 0)


def generate_case(
    seed: int, profile: Profile, hostile: bool = False, length: int | None = None
) -> tuple[Config, list[AnyOp]]:
    """A configuration and `length` ops (a drawn number when None).

    Without `hostile` no op breaks the protocol and no token is negative.
    """
    chance = Chance(seed, profile.name, hostile)
    negative = hostile and chance.flip(0.12)
    config = draw_config(chance, profile, hashable=not negative)
    keys = Keys(chance, config.page_size, config.is_bigram, _longest(chance, config), negative)
    case = Case(chance, config, keys, hostile, _is_recorded(seed, profile, hostile))
    wheel = draw_steps(chance, profile, config, hostile)
    count = _draw_length(chance) if length is None else length
    out = case.ops
    while len(out) < count:
        before = len(out)
        wheel.spin(chance)(case)
        tell_as_recorded(case, before)
    del out[count:]
    return config, out


def _is_recorded(seed: int, profile: Profile, hostile: bool) -> bool:
    """Whether the ops of a case are spelled as in a recording; other cases stay what they were."""
    if "core" not in profile.levels:
        return False
    return Chance("recorded", seed, profile.name, hostile).flip(RECORDED_SHARE)


def _draw_length(chance: Chance) -> int:
    typical = chance.weighted(_LENGTHS)
    return chance.between(typical // 2, typical)


def _longest(chance: Chance, config: Config) -> int:
    """The longest base: some pages, and so few that a row has room for an answer."""
    pages = chance.pick((3, 5, 8, 12, 16))
    most = min(config.row_length * 2 // 3, config.capacity * 3 // 4)
    return max(1, min(pages * config.page_size, most))


def steps_of(profile: Profile, config: Config) -> Table:
    """Every step of a profile with its weight, which is zero for those that can do nothing."""
    table: Table = {}
    if "request" in profile.levels:
        table |= REQUEST_STEPS
        table |= _chosen(config, AUXILIARY_REQUEST_STEPS, WINDOW_REQUEST_STEPS, STATE_REQUEST_STEPS)
    if "core" in profile.levels:
        table |= CORE_STEPS
        table |= {name: REQUEST_STEPS[name] for name in _SHARED}
        table |= _chosen(config, AUXILIARY_CORE_STEPS, WINDOW_CORE_STEPS, STATE_CORE_STEPS)
    found = {}
    for name, (usual, step) in table.items():
        weight = profile.weights.get(name, usual)
        if config.linker:
            weight *= _LINKER_STEPS.get(name, 1.0)
        elif name == "suspend" and len(config.components) > 1:
            weight *= _AUXILIARY_SUSPENSIONS
        if name in _OF_EVENTS and not config.events:
            weight = 0.0
        found[name] = (weight, step)
    return found


def hostile_steps_of(config: Config) -> Table:
    """Every step that breaks the protocol of such a tree."""
    more = _chosen(config, HOSTILE_AUXILIARY_STEPS, HOSTILE_WINDOW_STEPS, HOSTILE_STATE_STEPS)
    return HOSTILE_STEPS | more


def _chosen(config: Config, of_either: Table, of_windows: Table, of_states: Table) -> Table:
    """The steps that a tree of this configuration can use."""
    chosen = of_either if config.has_windows or config.has_states else {}
    if config.has_windows:
        chosen = chosen | of_windows
    return chosen | of_states if config.has_states else chosen


def draw_steps(chance: Chance, profile: Profile, config: Config, hostile: bool) -> Wheel[Step]:
    """The steps of one case: those of the profile, some left out, the others weighted anew."""
    table = steps_of(profile, config)
    share = chance.pick(_KEPT_SHARES)
    weights = {name: weight * _factor(chance, share) for name, (weight, _) in table.items()}
    fillers = [name for name in FILLERS if name in table and table[name][0]]
    if fillers and not any(weights[name] for name in fillers):
        kept = chance.pick(fillers)
        weights[kept] = table[kept][0]
    steps = [(table[name][1], weight) for name, weight in weights.items()]
    if hostile:
        steps += _hostile_steps(chance, hostile_steps_of(config), sum(weights.values()))
    return Wheel(steps)


def _factor(chance: Chance, share: float) -> float:
    """Zero for a kind that is left out, else how much more or less of it there is."""
    return chance.pick(_FACTORS) if chance.flip(share) else 0.0


def _hostile_steps(chance: Chance, table: Table, peaceful: float) -> list[tuple[Step, float]]:
    """Hostile steps whose weights are a fixed share of all."""
    drawn = [(step, usual * _factor(chance, 0.6)) for usual, step in table.values()]
    total = sum(weight for _, weight in drawn)
    if not total:
        return []
    scale = peaceful * _HOSTILE_SHARE / (1 - _HOSTILE_SHARE) / total
    return [(step, weight * scale) for step, weight in drawn]
