"""How long the state machine runs: the profiles of Hypothesis' own settings, in one place.

`ci` gives the same examples every time and ends within seconds; `nightly` draws new ones for as
many minutes, and keeps what failed so that the next night tries it first.
"""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis.database import DirectoryBasedExampleDatabase

VARIABLE = "TREEDRIFT_HYPOTHESIS_PROFILE"
"""The environment variable that chooses a profile where the caller does not."""

DATABASE = Path(".hypothesis/treedrift")
"""Where the nightly profile keeps failing examples. Several processes may share the folder."""

# Explaining varies every part of a failing example again, which `treedrift show` makes needless.
_PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)

settings.register_profile(
    "treedrift-ci",
    derandomize=True,
    max_examples=120,
    stateful_step_count=25,
    database=None,
    deadline=None,
    phases=_PHASES,
    print_blob=False,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
settings.register_profile(
    "treedrift-nightly",
    parent=settings.get_profile("treedrift-ci"),
    derandomize=False,
    max_examples=20_000,
    stateful_step_count=60,
    report_multiple_bugs=True,
)


class UnknownHypothesisProfileError(ValueError):
    """No profile of settings has that name."""


def settings_named(name: str | None = None, database: Path = DATABASE) -> settings:
    """The settings `ci` or `nightly`; without a name what the environment says, else `ci`.

    `database` is the folder of the nightly one. Raises `UnknownHypothesisProfileError`.
    """
    chosen = name or os.environ.get(VARIABLE) or "ci"
    if chosen == "ci":
        return settings.get_profile("treedrift-ci")
    if chosen == "nightly":
        kept = DirectoryBasedExampleDatabase(database)
        return settings(settings.get_profile("treedrift-nightly"), database=kept)
    raise UnknownHypothesisProfileError(
        f"unknown profile {chosen!r} of Hypothesis settings; {VARIABLE} is ci or nightly"
    )
