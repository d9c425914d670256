"""Explains a divergence: replays its trace, and tells what parted, by which rule, on which nodes.

Both sides run the trace once more, one after the other, up to the op where they part. They may
live in workers: all that is read are their observations, which are plain data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from . import observation, pictures
from .compare import Divergence, compare, decisive
from .config import Config
from .describe import describe_call, describe_op
from .explanation import Explanation, OpLine, SideView
from .lockstep import BATCH_OPS, Client, Lockstep, Pair
from .observation import Observation
from .opening import replay_settings
from .ops import AnyOp
from .parting import Parting, find_parting, touched_by
from .remote import WorkerFailure
from .rules import Rule, rule_numbered, rule_of
from .side import Settings
from .trace import Trace

OPS_KEPT = 40
"""Ops of a trace that an explanation lists; of a longer one the last and the concerned ones."""

LAST_OPS_KEPT = 10
"""The last ops before the divergence, which are always listed."""

DRAIN_STEPS = (
    "the suspended insert ends",
    "open walks are closed",
    "all requests and locks are released",
    "windows and states are evicted",
    "everything is evicted",
    "the events are taken",
)
"""The steps of `LocalSide.finish`, in order."""

STEPS_MAX = 1000
"""A crash is looked for op by op in traces of up to so many ops."""


def explain(
    trace: Trace,
    lockstep: Lockstep,
    pair: Pair,
    signature: str | None = None,
    settings: Settings | None = None,
) -> Explanation | None:
    """Explain the divergence of `pair` that has `signature`; None if a replay shows none.

    Without a signature it is the one of the trace's header. If a replay shows other divergences
    alone, one of them is explained, a soft one only if there is no other: compare
    `Explanation.signature`. `settings` are those of a replay unless they are given.
    """
    scene = _Scene(trace, lockstep, pair, settings)
    found = scene.find(signature or trace.header.signature)
    return None if found is None else scene.explain(found)


class _Glance(msgspec.Struct, array_like=True):
    """The part of an observation that every op is read for; the rest stays packed."""

    outcome: msgspec.Raw
    calls: list[Any]
    pool: msgspec.Raw
    sizes: msgspec.Raw
    tree: msgspec.Raw


_GLANCE = msgspec.msgpack.Decoder(_Glance)
_NOTHING = msgspec.msgpack.encode(None)


class _Watched(msgspec.Struct, kw_only=True):
    """What one side showed of the trace, as far as it was run.

    `latest` is the observation of the last op, `pictured` the latest one before it that shows a
    tree, `drained` those of the final drain. `touches` are the handles of each op.
    """

    latest: bytes | None = None
    pictured: bytes | None = None
    drained: list[bytes] = []
    touches: list[list[int]] = []

    def add(self, seen: bytes) -> None:
        """Go on with the observation of the next op."""
        self.advance(seen)
        self.touches.append(touched_by(_GLANCE.decode(seen).calls))

    def advance(self, seen: bytes) -> None:
        """Make an observation the latest one."""
        if self.latest is not None and bytes(_GLANCE.decode(self.latest).tree) != _NOTHING:
            self.pictured = self.latest
        self.latest = seen


class _Scene:
    """One trace and the two sides that run it."""

    def __init__(
        self, trace: Trace, lockstep: Lockstep, pair: Pair, settings: Settings | None
    ) -> None:
        self.trace = trace
        self.pair = pair
        self.clients = {name: lockstep.clients[name] for name in pair}
        self.config: Config = trace.header.config
        self.settings = settings or replay_settings([pair], self.config)

    def find(self, signature: str | None) -> Divergence | None:
        """Replay the trace and choose the divergence."""
        narrow = Lockstep(self.clients, [self.pair])
        found = narrow.run(self.config, self.trace.ops, self.settings).divergences
        named = [one for one in found if one.signature == signature]
        return decisive(named or found)

    def explain(self, found: Divergence) -> Explanation:
        """Watch both sides again and put everything together."""
        watched = [self._watch(name, found) for name in self.pair]
        step = _drain_step(found, watched)
        index = self._index(found, watched)
        for one in watched:
            _go_to(one, index, step)
        seen = [None if one.latest is None else observation.decode(one.latest) for one in watched]
        parting = find_parting(found, *seen)
        drawn = _Pictures(watched, seen, is_first=index == 0)
        concerned = _concerned(parting, seen, drawn)
        rule = self._rule(found)
        return Explanation(
            pair=self.pair,
            signature=found.signature,
            kind=found.kind,
            is_soft=found.is_soft,
            where=found.where,
            op_index=index,
            op_kind=found.op_kind,
            op=self._op_text(found, index, step),
            call=parting.call,
            rows=parting.rows,
            rule=rule.number if rule else None,
            rule_text=rule.text if rule else None,
            guilty=found.side,
            verdict=found.verdict,
            config=unusual(self.config),
            note=self.trace.header.note,
            op_count=len(self.trace.ops),
            ops=self._op_lines(found, index, watched, concerned),
            concerned=sorted(concerned),
            sides=_sides(self.pair, seen, parting, drawn, concerned),
        )

    def _rule(self, found: Divergence) -> Rule | None:
        """The rule that the trace names for its kind, which somebody has thought about, or ours."""
        header = self.trace.header
        if header.rule is not None and header.signature in (None, found.signature):
            return rule_numbered(header.rule)
        return rule_of(found)

    def _index(self, found: Divergence, watched: list[_Watched]) -> int | None:
        """The op that parts; of a worker that died, the first one that it did not answer."""
        if found.kind in ("refused", "hang", "memory"):
            return None if found.kind == "refused" else found.op_index
        if found.kind == "crash" and found.side is not None:
            answered = len(watched[self.pair.index(found.side)].touches)
            return answered if answered < len(self.trace.ops) else found.op_index
        return found.op_index

    def _op_text(self, found: Divergence, index: int | None, step: int | None) -> str:
        if found.op_kind == "drain":
            where = "the final drain"
            if step is None:
                return where
            return f"{where}, step {step + 1} of {len(DRAIN_STEPS)}: {DRAIN_STEPS[step]}"
        if found.kind == "refused":
            return "the core is built"
        if index is None or index >= len(self.trace.ops):
            return found.op_kind
        return describe_op(self.trace.ops[index])

    def _op_lines(
        self,
        found: Divergence,
        index: int | None,
        watched: list[_Watched],
        concerned: set[int],
    ) -> list[OpLine]:
        """The ops up to the one that parts, with the nodes that each of them touched."""
        if found.kind == "refused":
            return []
        ops = self.trace.ops if index is None else self.trace.ops[: index + 1]
        longest = max((one.touches for one in watched), key=len)
        touches = [longest[at] if at < len(longest) else [] for at in range(len(ops))]
        concerns = {at for at, handles in enumerate(touches) if concerned & set(handles)}
        return [
            OpLine(
                index=at,
                text=describe_op(ops[at]),
                touches=touches[at],
                is_concerned=at in concerns,
            )
            for at in _kept(len(ops), concerns)
        ]

    # --- Watching -------------------------------------------------------------------------

    def _watch(self, name: str, found: Divergence) -> _Watched:
        """Run the trace on one side, up to the op that parts or through the final drain."""
        watched = _Watched()
        if found.kind == "refused" or (found.kind in ("hang", "memory") and found.side == name):
            return watched  # There is nothing to run, or it would take as long again.
        client = self.clients[name]
        try:
            if client.open(self.config, self.settings) is not None:
                return watched
            for batch in self._batches(found):
                for seen in _answers(client, batch):
                    watched.add(seen)
            if found.op_kind == "drain":
                watched.drained = _answers(client, None)
        except WorkerFailure:
            pass  # What it answered until then is all there is to see.
        return watched

    def _batches(self, found: Divergence) -> Iterator[list[AnyOp]]:
        ops = self.trace.ops
        if found.op_index is not None:
            ops = ops[: found.op_index + 1]
        # A worker that dies tells nothing of its batch; op by op it is known where it died.
        one_by_one = found.kind == "crash" and len(ops) <= STEPS_MAX
        size = 1 if one_by_one else BATCH_OPS
        return (ops[start : start + size] for start in range(0, len(ops), size))


def _answers(client: Client, batch: list[AnyOp] | None) -> list[bytes]:
    client.submit(batch)
    return client.collect().observations


def _go_to(watched: _Watched, index: int | None, step: int | None) -> None:
    """Make the observation of the op, or of the step of the drain, the latest one."""
    if step is not None:
        for seen in watched.drained[: step + 1]:
            watched.advance(seen)
        if len(watched.drained) <= step:
            watched.latest = None
    elif index is None or len(watched.touches) <= index:
        watched.pictured = watched.pictured if watched.latest is None else watched.latest
        watched.latest = None


def _drain_step(found: Divergence, watched: list[_Watched]) -> int | None:
    """The step of the final drain that shows a divergence."""
    if found.op_kind != "drain":
        return None
    steps = zip(*[one.drained for one in watched], strict=False)
    for number, (left, right) in enumerate(steps):
        if found.kind == "difference":
            difference = compare(left, right)
            told = [] if difference is None else [difference.where]
        else:
            findings = observation.decode(left).findings + observation.decode(right).findings
            told = [f"{one.oracle}: {one.message}" for one in findings]
        if found.where in told:
            return number
    return None


def unusual(config: Config) -> dict[str, Any]:
    """The fields of a configuration that differ from their defaults."""
    plain, usual = msgspec.to_builtins(config), msgspec.to_builtins(Config())
    changed = {name: value for name, value in plain.items() if value != usual[name]}
    if "components" in changed:
        changed["components"] = ",".join(config.components)
    return changed


def _kept(count: int, concerns: set[int]) -> list[int]:
    """The ops that are listed: all of a short trace, the last and the concerned of a long one."""
    if count <= OPS_KEPT:
        return list(range(count))
    last = set(range(count - LAST_OPS_KEPT, count))
    return sorted(last | set(sorted(concerns - last)[LAST_OPS_KEPT - OPS_KEPT :]))


# --- Trees and nodes ----------------------------------------------------------------------


class _Pictures:
    """The trees of both sides before and after the op, drawn alike."""

    def __init__(
        self, watched: list[_Watched], seen: list[Observation | None], is_first: bool
    ) -> None:
        earlier = [
            None if one.pictured is None else observation.decode(one.pictured) for one in watched
        ]
        self.before = _draw_both(earlier)
        self.after = _draw_both(seen)
        if is_first:
            self.before = [pictures.empty(), pictures.empty()]

    def roots(self) -> set[int]:
        """The numbers of the roots."""
        return pictures.roots([*self.before, *self.after])


def _draw_both(seen: list[Observation | None]) -> list[pictures.Picture | None]:
    inspected = all(one is not None and one.snapshot is not None for one in seen)
    return [None if one is None else pictures.draw(one, inspected) for one in seen]


def _concerned(parting: Parting, seen: list[Observation | None], drawn: _Pictures) -> set[int]:
    """The nodes that a divergence is about; the root only if there is no other."""
    roots = drawn.roots()
    calls = [one.calls[: _upto(parting)] for one in seen if one is not None]
    touched = {handle for made in calls for handle in touched_by(made)}
    differing = pictures.differing(*drawn.after)
    for handles in (parting.handles | differing, touched):
        if handles - roots:
            return handles - roots
    return parting.handles | differing


def _upto(parting: Parting) -> int | None:
    return None if parting.call_index is None else parting.call_index + 1


def _sides(
    pair: Pair,
    seen: list[Observation | None],
    parting: Parting,
    drawn: _Pictures,
    concerned: set[int],
) -> list[SideView]:
    views = []
    for side, (name, one) in enumerate(zip(pair, seen, strict=True)):
        view = SideView(name=name)
        if one is not None:
            view.outcome = one.outcome
            view.calls = [describe_call(call) for call in one.calls[: _upto(parting)]]
            view.findings = [f"{found.oracle}: {found.message}" for found in one.findings]
        trees = [(picture[side], picture[1 - side]) for picture in (drawn.before, drawn.after)]
        view.tree_before, view.tree_after = (
            pictures.nodes_of(mine, other, concerned) for mine, other in trees
        )
        views.append(view)
    return views
