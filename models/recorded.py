"""Ops as a recording spells them: keys with runs, answers that are kept, and nodes named by them.

What the steps of some cases make is told in this way: the same calls with the same keys. One choice
an op decides about all of it, so that Hypothesis has little to draw and to shrink.
"""

from __future__ import annotations

from itertools import product

from msgspec.structs import replace

from treedrift.harness import ops

from .case import Case

NUMBERS = 6
"""Answers are kept under so many numbers, so that one soon stands for another node."""

SPELLINGS = tuple(product((0, 1, 2), (None, None, None, *range(NUMBERS))))
"""Whether a key is spelled, half in runs or all in runs; and the number that its answer gets."""

NAMES = (*[None] * NUMBERS, *(f"answer:{number}" for number in range(NUMBERS)))
"""What a node is called in place of its place; nothing where that stays."""

Keyed = ops.CoreMatch | ops.CoreInsert
OfOneNode = ops.Lock | ops.Pin | ops.CapPath | ops.StoreValue | ops.AdjustSize | ops.Offload


def tell_as_recorded(case: Case, first: int) -> None:
    """Spell the ops of a case from the `first` on as a recording does, if it is such a case."""
    if not case.recorded:
        return
    out = case.ops
    for place in range(first, len(out)):
        op = out[place]
        if isinstance(op, Keyed):
            halves, answer = case.chance.pick(SPELLINGS)
            cut = len(op.tokens) * (2 - halves) // 2
            spelled, runs = op.tokens[:cut], in_runs(op.tokens[cut:])
            out[place] = replace(op, tokens=spelled, runs=runs, answer=answer)
        elif isinstance(op, OfOneNode):
            out[place] = replace(op, node=_named(case, op.node))
        elif isinstance(op, ops.Ask):
            out[place] = replace(op, nodes=[_named(case, ref) for ref in op.nodes])


def in_runs(tokens: list[int]) -> list[ops.Run]:
    """Tokens as runs of consecutive ones, each as long as it can be."""
    runs: list[ops.Run] = []
    for token in tokens:
        if runs and sum(runs[-1]) == token:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((token, 1))
    return runs


def _named(case: Case, ref: ops.NodeRef) -> ops.NodeRef:
    """An answer, which may never have been given, in place of a node that is found by its place."""
    return case.chance.pick(NAMES) or ref if ref.startswith("live:") else ref
