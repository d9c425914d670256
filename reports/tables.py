"""Tables of a run as pandas data frames: what pages print and plots draw.

Only this module, and those that draw, need the `reports` extra.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from ..harness.behaviours import EXPECTED_BEHAVIOURS
from .run import RunView
from .summary import OP_KINDS, POLICIES, TOKEN_COUNTS


def coverage(run: RunView) -> Any:
    """Ops, policies and behaviours: `group`, `name` and `count`, the largest of a group first.

    What should be reached is there with a count of 0; `is_expected` tells it from the rest.
    """
    behaviours = {
        name: count for name, count in run.tally.behaviours.items() if name not in TOKEN_COUNTS
    }
    rows = [
        (group, name, counted.get(name, 0), name in expected)
        for group, counted, expected in (
            ("ops", run.tally.op_kinds, OP_KINDS),
            ("policies", run.tally.policies, POLICIES),
            ("behaviours", behaviours, EXPECTED_BEHAVIOURS),
        )
        for name in sorted({*counted, *expected})
    ]
    table = pd.DataFrame(rows, columns=["group", "name", "count", "is_expected"])
    return table.sort_values(["group", "count", "name"], ascending=[True, False, True])


def over_time(run: RunView) -> Any:
    """One row a sample, with the start and the end: what was reached by then.

    `seconds`, `ops`, expected `behaviours`, `kinds`, and the `rate` in ops a second until then.
    """
    told = [(sample.seconds, sample.tally) for sample in run.samples]
    # A last sample that is as good as the end would make an interval of nothing.
    told = [*(one for one in told if one[0] < run.seconds - 1.0), (run.seconds, run.tally)]
    rows = [(0.0, 0, 0, 0)] + [
        (
            seconds,
            tally.op_count,
            sum(bool(tally.behaviours.get(name)) for name in EXPECTED_BEHAVIOURS),
            sum(kind.seconds <= seconds for kind in run.kinds),
        )
        for seconds, tally in told
    ]
    table = pd.DataFrame(rows, columns=["seconds", "ops", "behaviours", "kinds"])
    table = table.drop_duplicates("seconds", keep="last").reset_index(drop=True)
    return table.assign(rate=(table["ops"].diff() / table["seconds"].diff()).bfill())


def cores(run: RunView) -> Any:
    """One row a core: seconds inside the core, seconds of its whole side, and the share."""
    table = pd.DataFrame(
        {
            "core": pd.Series(run.tally.core_seconds, dtype=float),
            "side": pd.Series(run.tally.side_seconds, dtype=float),
        }
    )
    return table.assign(share=table["core"] / table["side"].where(table["side"] > 0))


def kinds(run: RunView) -> Any:
    """One row a kind, new ones first: how often, when first, how large before and after."""
    rows = [
        {
            "status": "known" if kind.is_known else "new",
            "signature": kind.signature,
            "pair": ",".join(kind.pair),
            "rule": kind.rule,
            "count": kind.count,
            "first_seconds": kind.seconds,
            "ops_before": None if kind.shrunk is None else kind.shrunk.ops_before,
            "ops_after": None if kind.shrunk is None else kind.shrunk.ops_after,
        }
        for kind in (*run.new, *run.known)
    ]
    return pd.DataFrame(rows)
