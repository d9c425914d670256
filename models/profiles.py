"""Named profiles: which part of the op language and which features a generated trace may use.

A profile fixes what people ask for and leaves the rest to chance. Weights are relative; a weight
of zero takes a kind away, a kind that is not named keeps its usual weight.
"""

from __future__ import annotations

import difflib
from typing import Any

import msgspec

from .chance import Chance


class UnknownProfileError(ValueError):
    """No profile has that name."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What a generated trace may hold.

    `levels` names the levels of the op language. `components` are the component sets to choose
    from. `weights` changes the weight of single kinds of step. `pins` fixes fields of the
    configuration. `pages` are the sizes of pools to choose from, in pages.
    """

    name: str
    about: str
    levels: tuple[str, ...] = ("request", "core")
    components: tuple[tuple[str, ...], ...] = (("full",),)
    weights: dict[str, float] = {}
    pins: dict[str, Any] = {}
    pages: tuple[int, ...] = (8, 10, 12, 16, 16, 24, 32, 64, 128, 256)


WITH_BOTH = ("full", "swa", "mamba")
"""Windows and states in one tree."""

_PRESSURE = {
    "evict": 5.0,
    "evict_for_alloc": 4.0,
    "walk": 4.0,
    "burst": 4.0,
    "retract": 3.0,
}

PROFILES = {
    profile.name: profile
    for profile in (
        Profile(name="full", about="the Full component, everything on the device tier"),
        Profile(
            name="full-requests",
            about="what an inference server does, no direct calls of the core",
            levels=("request",),
            pages=(8, 12, 16, 24, 32, 64),
        ),
        Profile(
            name="full-core",
            about="direct calls of the core only",
            levels=("core",),
        ),
        Profile(
            name="full-events",
            about="KV events on, many namespaces, drained often",
            weights={"drain_events": 6.0, "walk": 2.0, "burst": 2.0},
            pins={"events": True},
        ),
        Profile(
            name="full-pressure",
            about="tiny pools: evictions, retractions and failing allocations",
            weights=_PRESSURE,
            pages=(4, 6, 8, 8, 10, 12),
        ),
        Profile(
            name="full-linker",
            about="the tree's side of the external linker: suspended inserts, offloads, splits",
            weights={"suspend": 6.0, "offload": 3.0, "linker_ack": 4.0, "mark_stored": 2.0},
            pins={"linker": True},
        ),
        Profile(
            name="swa",
            about="sliding windows beside Full, everything on the device tier",
            components=(("full", "swa"),),
        ),
        Profile(
            name="mamba",
            about="Mamba states beside Full, everything on the device tier",
            components=(("full", "mamba"),),
        ),
        Profile(
            name="hybrid",
            about="windows and states in one tree, everything on the device tier",
            components=(WITH_BOTH,),
        ),
        Profile(
            name="windows",
            about="a second window beside the first, sometimes with states; our own cores only",
            components=(("full", "swa", "aux_swa"), ("full", "swa", "aux_swa", "mamba")),
        ),
        Profile(
            name="hybrid-requests",
            about="what an inference server does with windows and states, or with one of them",
            levels=("request",),
            components=(WITH_BOTH, ("full", "swa"), ("full", "mamba")),
            pages=(8, 12, 16, 24, 32, 64),
        ),
        Profile(
            name="hybrid-pressure",
            about="tiny pools with windows and states: evictions, tombstones, failing allocations",
            components=(WITH_BOTH, ("full", "swa"), ("full", "mamba")),
            weights=_PRESSURE | {"aux_walk": 4.0, "pressed": 2.0},
            pages=(4, 6, 8, 8, 10, 12),
        ),
    )
}
"""Every profile by its name."""


def profiles_named(names: str) -> tuple[Profile, ...]:
    """The profiles of a list such as `full,hybrid`. Raises as `profile_named` does."""
    return tuple(profile_named(name.strip()) for name in names.split(","))


def profile_of(seed: int, profiles: tuple[Profile, ...]) -> Profile:
    """Which of several profiles the case of this seed has; always the same one."""
    # Every so-many-th case would not do: jobs and shards count in steps too.
    return Chance("profile", seed).pick(profiles)


def profile_named(name: str) -> Profile:
    """The profile of that name. Raises `UnknownProfileError`, which suggests the closest one."""
    if name in PROFILES:
        return PROFILES[name]
    near = difflib.get_close_matches(name, PROFILES, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(PROFILES)}"
    raise UnknownProfileError(f"unknown profile {name!r}; {hint}")
