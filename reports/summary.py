"""The summary of a run as one plain object: what `--json` prints and every other report reads."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from ..harness.behaviours import EXPECTED_BEHAVIOURS
from ..harness.events import Shrunk
from ..harness.ops import AnyOp
from ..harness.tally import Tally
from .run import Kind, RunView
from .words import headline

POLICIES = ("lru", "lfu", "fifo", "mru", "filo", "priority", "slru", "tlru")
"""All eviction policies (POL-1)."""

OP_KINDS = tuple(sorted(str(op.__struct_config__.tag) for op in get_args(AnyOp)))
"""All kinds of op."""

ROWS_MAX = 3
"""Fields that differ, told for one kind."""

TOKEN_COUNTS = ("requests", "hit_tokens", "prompt_tokens")


def summary_of(run: RunView) -> dict[str, Any]:
    """Everything that a run is told as. Times are in seconds, lengths in tokens."""
    return {
        "ops": run.tally.op_count,
        "cases": run.tally.cases,
        "refused_cases": run.tally.refused,
        "seconds": round(run.seconds, 3),
        "interrupted": run.is_interrupted,
        "verdict": run.verdict(),
        "pairs": [list(pair) for pair in run.pairs],
        "divergences": [_divergence(kind) for kind in (*run.new, *run.known)],
        "ledger": [msgspec.to_builtins(entry) for entry in run.ledger],
        "canaries": [msgspec.to_builtins(canary) for canary in run.canaries],
        "statistics": statistics_of(run.tally),
    }


def _divergence(kind: Kind) -> dict[str, Any]:
    first, explanation = kind.first, kind.explanation
    return {
        "kind": first.kind,
        "signature": first.signature,
        "group": kind.group,
        "headline": headline(first),
        "pair": list(first.pair),
        "side": first.side,
        "verdict": first.verdict,
        "op": first.op_kind,
        "op_index": first.op_index,
        "where": first.where,
        "left": first.left,
        "right": first.right,
        "rows": differing_rows(kind),
        "count": kind.count,
        "file": first.file,
        "status": None if kind.judged is None else kind.judged.status,
        "known": None if kind.judged is None else kind.judged.known,
        "rule": kind.rule,
        "rule_text": kind.rule_text,
        "guilty": None if explanation is None else explanation.guilty,
        "shrunk": None if kind.shrunk is None else _shrunk(kind.shrunk),
    }


def differing_rows(kind: Kind) -> list[dict[str, Any]]:
    """The fields that differ: of the shrunk trace where it is explained, else as found."""
    first, explanation = kind.first, kind.explanation
    rows = [] if explanation is None else [row for row in explanation.rows if row.differs]
    if not rows:
        return [{"field": first.where, "left": first.left, "right": first.right}]
    return [{"field": row.field, "left": row.left, "right": row.right} for row in rows[:ROWS_MAX]]


def _shrunk(shrunk: Shrunk) -> dict[str, Any]:
    told = ("file", "ops_before", "ops_after", "seconds", "is_minimal", "verdict", "replayed")
    return {name: getattr(shrunk, name) for name in told}


def statistics_of(tally: Tally) -> dict[str, Any]:
    """What a tally counted, with what is left to reach. Times are in seconds, tokens in tokens."""
    behaviours = dict(sorted(tally.behaviours.items()))
    tokens = {name: behaviours.pop(name, 0) for name in TOKEN_COUNTS}
    return {
        "ops": {kind: tally.op_kinds.get(kind, 0) for kind in OP_KINDS},
        "policies": {name: tally.policies.get(name, 0) for name in POLICIES},
        "behaviours": behaviours,
        "not_reached": not_reached(tally),
        "core_seconds": _rounded(tally.core_seconds),
        "side_seconds": _rounded(tally.side_seconds),
        **tokens,
        "hit_rate": round(tokens["hit_tokens"] / max(tokens["prompt_tokens"], 1), 4),
    }


def not_reached(tally: Tally) -> list[str]:
    """Op kinds, policies and behaviours that a long run should have reached and this did not.

    Released cores are never given the hostile kinds, so a run with one says so here.
    """
    behaviours = [name for name in EXPECTED_BEHAVIOURS if not tally.behaviours.get(name)]
    policies = [f"policy.{name}" for name in POLICIES if not tally.policies.get(name)]
    return behaviours + policies + [f"op.{kind}" for kind in OP_KINDS if kind not in tally.op_kinds]


def _rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(spent, 3) for name, spent in sorted(seconds.items())}
