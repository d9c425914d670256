"""A difference of which one side is guilty is told with that side and what tells."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from treedrift.harness.compare import Divergence
from treedrift.harness.tally import Tally
from treedrift.reports.run import Kind, RunView
from treedrift.reports.summary import summary_of
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
    run = RunView(pairs=[PAIR], tally=Tally.empty(), seconds=1.0, kinds=[Kind(first=found)])
    (kind,) = summary_of(run)["divergences"]
    assert (kind["side"], kind["verdict"]) == (side, verdict)
    text = StringIO()
    print_summary(Console(file=text, width=400, markup=False), run)
    return [line.strip() for line in text.getvalue().splitlines()]


def test_the_guilty_side_is_told_with_what_tells_it() -> None:
    assert f"wrong    rust: {MESSAGE}" in told("rust", MESSAGE)


def test_nobody_is_called_guilty_without_a_verdict() -> None:
    assert not [line for line in told(None, None) if "wrong" in line]
