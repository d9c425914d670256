"""A run as JUnit XML, for whatever shows test results in CI.

One suite a pair. Its first case is the pair's agreement, under a name that stays the same from
run to run; then one case a kind, the canary, and the ledger's entries that have vanished. A new
kind fails, a known one is skipped with what the ledger says.
"""

from __future__ import annotations

import io
import re
from typing import Any

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from ..harness.events import Canary
from ..harness.lockstep import Pair
from .commands import lines_of
from .explained import text_explanation
from .run import Kind, RunView
from .words import headline, place_of, plural, versus

TEXT_MAX = 20_000
"""Characters of an explanation or a value."""

NOT_XML = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML can't hold, not even escaped."""


def junit(run: RunView) -> str:
    """The whole file."""
    tree: Any = JUnitXml("treedrift")
    for pair in run.pairs:
        tree.add_testsuite(_pair_suite(run, pair))
    if run.canaries:
        suite = TestSuite("canary")
        suite.add_testcases([_canary_case(canary) for canary in run.canaries])
        tree.add_testsuite(suite)
    tree.update_statistics()
    file = io.BytesIO()
    tree.write(file, pretty=True)
    return file.getvalue().decode()


def _pair_suite(run: RunView, pair: Pair) -> TestSuite:
    suite = TestSuite(versus(pair))
    suite.add_testcase(_agreement(run, pair))
    suite.add_testcases([_kind_case(run, kind) for kind in run.new if kind.pair == pair])
    suite.add_testcases([_kind_case(run, kind) for kind in run.known if kind.pair == pair])
    for entry in run.vanished:
        if entry.pair == pair:
            case = _case(f"known {entry.known}", pair)
            case.result = [Skipped("vanished: it no longer shows; look at its entry again")]
            suite.add_testcase(case)
    return suite


def _agreement(run: RunView, pair: Pair) -> TestCase:
    new = [kind for kind in run.new if kind.pair == pair]
    case = _case("agree", pair, seconds=run.seconds)
    if new:
        found = f"{plural(len(new), 'new kind')} of divergence in {run.tally.op_count:,} ops"
        case.result = [Failure(found, "divergence")]
    elif not run.is_finished:
        case.result = [Error("the run was cut off before its end", "cut")]
    return case


def _kind_case(run: RunView, kind: Kind) -> TestCase:
    case = _case(kind.signature, kind.pair)
    if kind.is_known:
        case.result = [Skipped(_clean(run.note_of(kind)))]
        return case
    failure = Failure(_clean(headline(kind.first)), kind.first.kind)
    failure.text = _clean("\n".join(_told(kind)))
    case.result = [failure]
    return case


def _told(kind: Kind) -> list[str]:
    """A new kind in words, with the commands that go on from it."""
    first = kind.first
    lines = [f"{plural(kind.count, 'time')}, first {place_of(first)}"]
    if kind.explanation is not None:
        lines.append(text_explanation(kind.explanation)[:TEXT_MAX])
    else:
        lines += [first.where, *_values(kind)]
    return lines + lines_of(kind.commands)


def _values(kind: Kind) -> list[str]:
    values = (kind.first.left, kind.first.right)
    if values == (None, None):
        return []
    return [
        f"{name}: {str(value)[:TEXT_MAX]}" for name, value in zip(kind.pair, values, strict=True)
    ]


def _canary_case(canary: Canary) -> TestCase:
    case = TestCase(_clean(f"{canary.drill} is caught"), "treedrift.canary", canary.seconds)
    if not canary.caught:
        told = f"not caught in {canary.ops:,} ops: this run proves nothing"
        case.result = [Failure(told, "canary")]
    return case


def _case(name: str, pair: Pair, seconds: float = 0.0) -> TestCase:
    # Viewers take dots for levels, and versions are full of them.
    group = "-against-".join(name.replace(".", "_") for name in pair)
    return TestCase(_clean(name), f"treedrift.{group}", seconds)


def _clean(text: str) -> str:
    return NOT_XML.sub("\ufffd", text)
