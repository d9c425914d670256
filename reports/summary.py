"""The summary of a run as one plain object: what `--json` prints and every other report reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from ..harness.behaviours import EXPECTED_BEHAVIOURS
from ..harness.compare import Divergence
from ..harness.ops import AnyOp
from ..harness.tally import Tally

POLICIES = ("lru", "lfu", "fifo", "mru", "filo", "priority", "slru", "tlru")
"""All eviction policies (POL-1)."""

OP_KINDS = tuple(sorted(str(op.__struct_config__.tag) for op in get_args(AnyOp)))
"""All kinds of op."""

TOKEN_COUNTS = ("requests", "hit_tokens", "prompt_tokens")


def summarize(
    pairs: Sequence[tuple[str, str]],
    tally: Tally,
    seconds: float,
    divergences: Sequence[Divergence],
    occurrences: Sequence[int],
    interrupted: bool = False,
) -> dict[str, Any]:
    """Everything that a run is told as. Times are in seconds, lengths in tokens."""
    return {
        "ops": tally.op_count,
        "cases": tally.cases,
        "refused_cases": tally.refused,
        "seconds": round(seconds, 3),
        "interrupted": interrupted,
        "pairs": [list(pair) for pair in pairs],
        "divergences": [
            _divergence(divergence, count)
            for divergence, count in zip(divergences, occurrences, strict=True)
        ],
        "statistics": _statistics(tally),
    }


def _divergence(divergence: Divergence, count: int) -> dict[str, Any]:
    return {
        "kind": divergence.kind,
        "signature": divergence.signature,
        "pair": list(divergence.pair),
        "side": divergence.side,
        "op": divergence.op_kind,
        "op_index": divergence.op_index,
        "where": divergence.where,
        "left": divergence.left,
        "right": divergence.right,
        "count": count,
        "file": divergence.file,
    }


def _statistics(tally: Tally) -> dict[str, Any]:
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
