"""Named profiles: which part of the op language and which features a generated trace may use.

A profile fixes what people ask for and leaves the rest to chance. Weights are relative; a weight
of zero takes a kind away, a kind that is not named keeps its usual weight.
"""

from __future__ import annotations

import difflib
from typing import Any

import msgspec


class UnknownProfileError(ValueError):
    """No profile has that name."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What a generated trace may hold.

    `levels` names the levels of the op language. `weights` changes the weight of single kinds of
    step. `pins` fixes fields of the configuration. `pages` are the sizes of pools to choose from,
    in pages.
    """

    name: str
    about: str
    levels: tuple[str, ...] = ("request", "core")
    weights: dict[str, float] = {}
    pins: dict[str, Any] = {}
    pages: tuple[int, ...] = (8, 10, 12, 16, 16, 24, 32, 64, 128, 256)


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
            weights={
                "evict": 5.0,
                "evict_for_alloc": 4.0,
                "walk": 4.0,
                "burst": 4.0,
                "retract": 3.0,
            },
            pages=(4, 6, 8, 8, 10, 12),
        ),
        Profile(
            name="full-linker",
            about="the tree's side of the external linker: suspended inserts, offloads, splits",
            weights={"suspend": 6.0, "offload": 3.0, "linker_ack": 4.0, "mark_stored": 2.0},
            pins={"linker": True},
        ),
    )
}
"""Every profile by its name."""


def profile_named(name: str) -> Profile:
    """The profile of that name. Raises `UnknownProfileError`, which suggests the closest one."""
    if name in PROFILES:
        return PROFILES[name]
    near = difflib.get_close_matches(name, PROFILES, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(PROFILES)}"
    raise UnknownProfileError(f"unknown profile {name!r}; {hint}")
