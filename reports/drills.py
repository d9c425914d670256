"""The kill table as a page: which seeded faults are caught, how fast, by what, and how small.

It reads what `treedrift drills --json` prints.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
from markupsafe import Markup

from ..harness.events import Canary
from . import plots
from .html import environment
from .words import plural

ROWS_MAX = 40
"""Rows of the table that stand open, unless more were missed; the quicker drills are folded."""


class KillsError(Exception):
    """A file that is no kill table; the message names it and what to do."""


class Kill(msgspec.Struct, kw_only=True):
    """One drill: what it breaks, and what became of it. `size` is in ops, after shrinking."""

    name: str
    about: str
    rule: str
    stands_for: str
    caught: bool
    ops: int
    seconds: float
    by: str | None = None
    ops_before: int | None = None
    size: int | None = None
    is_minimal: bool | None = None


class Kills(msgspec.Struct, kw_only=True):
    """A kill table. `budget_seconds` is for each drill."""

    seed: int
    budget_seconds: float
    canary: Canary
    drills: list[Kill]
    interrupted: bool = False

    def verdict(self) -> str:
        """The table in a sentence or two."""
        caught, all_ = sum(kill.caught for kill in self.drills), len(self.drills)
        share = f" ({caught / all_:.1%})" if all_ else ""
        said = f"{caught:,} of {plural(all_, 'drill')} caught within "
        said += f"{self.budget_seconds:g} s each{share}."
        sizes = self.sizes()
        if len(sizes):
            upper = sizes.quantile(0.95, interpolation="higher")
            said += f" After shrinking {sizes.median():g} ops at the median, "
            said += f"{upper:g} at the 95th percentile."
        if not self.canary.caught:
            said = f"The canary ({self.canary.drill}) was not caught: this proves nothing. {said}"
        return said + (" It was interrupted." if self.interrupted else "")

    def sizes(self) -> Any:
        """Ops after shrinking, of the drills that were shrunk, as a series."""
        return pd.Series([kill.size for kill in self.drills if kill.size is not None], dtype=float)

    def slowest_first(self) -> list[Kill]:
        """What was missed, then what took longest."""
        return sorted(self.drills, key=lambda kill: (kill.caught, -kill.seconds, kill.name))

    def catchers(self) -> list[tuple[str, int]]:
        """How many drills each comparison or oracle caught first, the most first."""
        first = pd.Series([_catcher(kill.by) for kill in self.drills if kill.by], dtype=object)
        counts = first.value_counts().sort_index().sort_values(ascending=False, kind="stable")
        return [(str(name), int(count)) for name, count in counts.items()]


def _catcher(signature: str) -> str:
    """`difference in calls`, `oracle conservation`: what a signature says about who saw it."""
    kind, _, rest = signature.partition(":")
    place = rest.partition(":")[2].partition("@")[0]
    area = place.split("[")[0].split(".")[0].split(":")[0]
    return f"{kind} in {area}" if kind == "difference" else f"{kind} {area}"


def read_kills(path: Path) -> Kills:
    """Read what `treedrift drills --json` printed. Raises `KillsError`."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Kills)
    except OSError as error:
        reason = error.strerror or str(error)
        raise KillsError(f"{path}: can't be read: {reason}; check the path") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise KillsError(
            f"{path}: no kill table: {error}; make one with: treedrift drills --json > FILE"
        ) from None


def kills_page(kills: Kills) -> str:
    """The page of a kill table."""
    table = pd.DataFrame([msgspec.to_builtins(kill) for kill in kills.drills])
    drawn = {}
    if any(kill.caught for kill in kills.drills):
        drawn["kills"] = Markup(plots.kills(table, kills.budget_seconds))
    if len(kills.sizes()):
        drawn["sizes"] = Markup(plots.sizes(kills.sizes()))
    slowest = max((kill.seconds for kill in kills.drills), default=0.0)
    return (
        environment()
        .get_template("drills.html.j2")
        .render(
            kills=kills,
            plots=drawn,
            open_max=max(ROWS_MAX, sum(not kill.caught for kill in kills.drills)),
            bar=lambda seconds: (
                round(100 * math.log1p(100 * seconds) / math.log1p(100 * slowest), 1)
                if slowest
                else 0
            ),
        )
    )
