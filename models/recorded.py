"""Ops as a recording spells them: keys with runs, answers that are kept, and nodes named by them.

What the steps of some cases make is told in this way, so that the same stories are run with it.
Most keys stay what they are; some become longer by a run of their own.
"""

from __future__ import annotations

from msgspec.structs import replace

from treedrift.harness import ops

from .case import MAX_I64, Case

NUMBERS = 6
"""Answers are kept under so many numbers, so that one soon stands for another node."""

Keyed = ops.CoreMatch | ops.CoreInsert
OfOneNode = ops.Lock | ops.Pin | ops.CapPath | ops.StoreValue | ops.AdjustSize | ops.Offload


def tell_as_recorded(case: Case, first: int) -> None:
    """Spell the ops of a case from the `first` on as a recording does, if it is such a case."""
    if not case.recorded:
        return
    out, flip = case.ops, case.chance.flip
    for place in range(first, len(out)):
        op = out[place]
        if isinstance(op, Keyed):
            out[place] = _answering(case, op)
        elif isinstance(op, OfOneNode):
            if flip(0.5):
                out[place] = replace(op, node=_named(case, op.node))
        elif isinstance(op, ops.Ask) and flip(0.5):
            out[place] = replace(op, nodes=[_named(case, ref) for ref in op.nodes])


def _answering(case: Case, op: Keyed) -> Keyed:
    chance, tokens, runs = case.chance, op.tokens, list[ops.Run]()
    if chance.flip(0.5):
        cut = chance.below(len(tokens) + 1)
        tokens, runs = tokens[:cut], in_runs(tokens[cut:])
    if chance.flip(0.1):
        start, count = case.keys.token(), 1 + chance.below(2 * case.page)
        runs.append((min(start, MAX_I64 - count + 1), count))
    answer = chance.below(NUMBERS) if chance.flip(0.6) else None
    return replace(op, tokens=tokens, runs=runs, answer=answer)


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
    """An answer in place of a node that is found by its place; one that may never have been."""
    if not ref.startswith("live:"):
        return ref
    return f"answer:{case.chance.below(NUMBERS)}"
