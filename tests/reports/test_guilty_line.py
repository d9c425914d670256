"""A difference of which one side is guilty is told with that side and what tells."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from treedrift.harness.compare import Divergence
from treedrift.harness.tally import Tally
from treedrift.reports.summary import summarize
from treedrift.reports.terminal import print_summary

PAIR = ("python", "rust")
MESSAGE = "reference_model: device_prefix_len of a match is 3, must be 4"


def told(side: str | None, verdict: str | None) -> list[str]:
    found = Divergence(
        pair=PAIR,
        kind="difference",
        op_index=1,
        op_kind="core_match",
        where="calls[0].match_prefix.result.device_prefix_len",
        left=4,
        right=3,
        side=side,
        verdict=verdict,
    )
    summary = summarize([PAIR], Tally.empty(), 1.0, [found], [1])
    (kind,) = summary["divergences"]
    assert (kind["side"], kind["verdict"]) == (side, verdict)
    text = StringIO()
    print_summary(Console(file=text, width=400, markup=False), summary)
    return [line.strip() for line in text.getvalue().splitlines()]


def test_the_guilty_side_is_told_below_the_values() -> None:
    lines = told("rust", MESSAGE)
    assert lines[lines.index("rust: 3") + 1] == f"guilty: rust ({MESSAGE})"


def test_nobody_is_called_guilty_without_a_verdict() -> None:
    assert not [line for line in told(None, None) if "guilty" in line]
