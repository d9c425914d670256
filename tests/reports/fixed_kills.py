"""A made-up kill table, as `treedrift drills --json` prints it."""

from __future__ import annotations

from typing import Any


def kill(name: str, **fields: Any) -> dict[str, Any]:
    """One drill as `drills --json` prints it."""
    return {
        "name": name,
        "about": f"{name} is <b>spoilt</b>.",
        "rule": "INS-62",
        "case": None,
        "stands_for": "a list loses its last entry",
        "caught": True,
        "by": "difference:finish:calls[].begin_insert.result.actions.length",
        "signature": None,
        "ops": 17,
        "cases": 1,
        "seconds": 0.5,
        "ops_before": 17,
        "size": 5,
        "shrink_seconds": 3.0,
        "is_minimal": True,
        "kept": True,
        "file": None,
    } | fields


DRILLS = [
    kill("quick", seconds=0.001, size=2),
    kill("slow", seconds=42.0, size=9, is_minimal=False),
    kill("leaky", by="oracle:drain:conservation: # slots@drill:leaky", size=3),
    kill("hidden", caught=False, by=None, seconds=60.0, size=None, is_minimal=None),
]


def table(drills: list[dict[str, Any]] = DRILLS, **fields: Any) -> dict[str, Any]:
    return {
        "seed": 1,
        "budget_seconds": 60.0,
        "shrink_seconds": 30.0,
        "interrupted": False,
        "canary": {"drill": "leaked-slots", "caught": True, "ops": 17, "seconds": 0.2},
        "summary": {"drills": len(drills)},
        "drills": drills,
    } | fields
