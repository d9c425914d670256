"""What the references of a trace refer to, and how they are written when other ops are gone.

Operands are positions: `request: 2` is the third of the running requests. When an op is removed,
the positions that later ops should name move. So a trace is followed on a sound side of our own,
which tells for every reference *which* request, receipt, pin, node or offload it met: by the op
that made it. To relink is to run the remaining ops on such a side and to write every reference as
the position that its thing has there; an op whose thing is gone goes too.

Nodes are known by their path as well, so that one is found again that another op has made. Long
traces of core calls are followed without running them (see `sketch`).
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from ...backends.inspection import NodeSnapshot
from ...backends.registry import local_backend
from .. import ops
from ..cache import Request
from ..opening import NEVER
from ..side import LocalSide, Settings, may_run_during_insert
from .draft import Candidate, Draft, replaced
from .sketch import Sketch, is_sketched
from .things import Answers, Path, Place, Reference, Thing, node_refs

UNWATCHED = Settings(tree_every=NEVER, watch_free_list=False)

SOUND_CORE = "python"
"""The core on which traces are followed."""


class RequestState(msgspec.Struct):
    """What a request was when an op was done with it."""

    maker: int
    tokens: list[int]
    computed_len: int
    namespace: ops.Namespace


class Links(msgspec.Struct):
    """All references of a trace, by op; and which request each op was about.

    `is_sketched`: they were found without running the trace.
    """

    references: list[dict[Place, Reference]] = []
    requests: dict[int, RequestState] = {}
    is_sketched: bool = False


def follow(draft: Draft) -> Links | None:
    """Find out what the references of a trace refer to. None: our core can't run this trace."""
    if is_sketched(draft.ops):
        return _sketched(draft)
    try:
        follower = Follower(draft)
        found = Links()
        for number, op in enumerate(draft.ops):
            follower.prepare(op, number)
            references = dict(follower.references(op))
            found.references.append(references)
            about = follower.request_of(op)
            follower.run(op, number)
            about = about or follower.made_by(number)
            if about is not None:
                found.requests[number] = follower.described(about)
    except Exception:
        # Whatever a sound core or the harness makes of it: then there is nothing to relink.
        return None
    return found


def _sketched(draft: Draft) -> Links:
    sketch, found = Sketch(), Links(is_sketched=True)
    for number, op in enumerate(draft.ops):
        found.references.append(dict(sketch.references(op)))
        sketch.run(op, number)
    return found


def relink(base: Draft, candidate: Candidate, links: Links) -> Draft | None:
    """The candidate with every reference written as what it meant in the base.

    None where that can't be found out.
    """
    made: list[ops.AnyOp] = []
    try:
        follower = Sketch() if links.is_sketched else Follower(candidate.draft)
        for op, origin in zip(candidate.draft.ops, candidate.origins, strict=True):
            if isinstance(follower, Follower):
                follower.prepare(op, origin)
            new = _rewritten(follower, op, base.ops[origin], links.references[origin])
            if new is not None:
                follower.run(new, origin)
                made.append(new)
    except Exception:
        return None  # As in `follow`.
    return Draft(candidate.draft.config, made)


def _rewritten(
    follower: Follower | Sketch, op: Any, before: Any, references: dict[Place, Reference]
) -> Any | None:
    """The op with its references moved; None if one of them has nothing to name any more."""
    if type(op) is not type(before):
        return op
    new: dict[str, Any] = {}
    for (field, index), reference in references.items():
        now, then = getattr(op, field, None), getattr(before, field, None)
        if now != then:
            continue  # The candidate names something else here, and means it.
        spelled = follower.spelled(op, reference)
        if spelled is None:
            return None
        if field == "success":
            continue
        if isinstance(now, list):
            new.setdefault(field, list(now))[index] = spelled
        else:
            new[field] = spelled
    return replaced(op, **new) if new else op


class Follower:
    """A sound side that runs one op after another and knows which op made what."""

    def __init__(self, draft: Draft) -> None:
        backend = local_backend(SOUND_CORE)
        assert backend.inspect is not None, "our own core can be inspected"
        self._inspect = backend.inspect
        self._side = LocalSide(backend.create, backend.inspect)
        if self._side.open(draft.config, UNWATCHED) is not None:
            raise ValueError("a configuration that our core refuses")
        self._things: dict[int, Thing] = {}
        self._kept: list[object] = []  # So that no two things ever share an identity.
        self._nodes: dict[int, Thing] = {}
        self._made: Counter[int] = Counter()
        self._paths: dict[int, _Path] = {}
        self._pins: list[Thing] = []
        self._answers = Answers()

    # --- Running --------------------------------------------------------------------------

    def prepare(self, op: ops.AnyOp, number: int) -> None:
        """Let a suspended insert end, as it does before an op that may not run during one.

        What it makes then counts as made by op `number`, which lets it end.
        """
        core_ops = self._side.core_ops
        if core_ops.is_inserting and not may_run_during_insert(op):
            core_ops.inserts.settle()
            self._note_all(number)

    def run(self, op: ops.AnyOp, number: int) -> None:
        """Run one op, and note what it made as made by op `number`."""
        pins = len(self._pins)
        release = op.release if isinstance(op, ops.Pin) and not op.force else None
        self._side.run([op])
        self._note_all(number)
        self._answers.note(op, number)
        count = len(self._side.references.pins)
        if count > pins:
            self._pins.append(("pin", number, 0))
        elif count < pins and release is not None:
            del self._pins[release % pins]
        del self._pins[count:]

    def _note_all(self, number: int) -> None:
        self._note("request", self._side.cache.requests, number)
        self._note("lock", self._all_locks(), number)
        self._note("offload", self._side.cache.linker.pending, number)
        for node in self._side.recorder.names.told:
            if node not in self._nodes:
                self._nodes[node] = ("node", number, self._made[number])
                self._made[number] += 1

    def _all_locks(self) -> Iterator[object]:
        held = self._side.references
        yield from held.locks
        yield from held.host_locks
        yield from held.released

    def _note(self, kind: str, items: Iterable[object], number: int) -> None:
        for item in items:
            if id(item) not in self._things:
                self._things[id(item)] = (kind, number, 0)
                self._kept.append(item)

    # --- Requests -------------------------------------------------------------------------

    def request_of(self, op: Any) -> Request | None:
        """The request that an op names."""
        if isinstance(op, ops.Readmit):
            return _at(self._side.cache.waiting, op.waiting)
        number = getattr(op, "request", None)
        return None if number is None else _at(self._side.cache.requests, number)

    def made_by(self, number: int) -> Request | None:
        """The running request that op `number` has made."""
        requests = self._side.cache.requests
        return next((one for one in requests if self._thing(one) == ("request", number, 0)), None)

    def described(self, request: Request) -> RequestState:
        """What a request is now."""
        return RequestState(
            self._thing(request)[1],
            request.tokens.tolist(),
            request.computed_len,
            request.namespace,
        )

    # --- References -----------------------------------------------------------------------

    def _thing(self, item: object) -> Thing:
        return self._things[id(item)]

    def references(self, op: Any) -> Iterator[tuple[Place, Reference]]:
        """Every operand of an op that meets something, and what it meets."""
        for field, things in self._numbered(op):
            number = getattr(op, field)
            if things and number is not None:
                # An ack is always for the oldest offload.
                position = 0 if field == "success" else number % len(things)
                yield (field, 0), Reference(things[position])
        for place, ref in node_refs(op):
            kind, _, number = ref.partition(":")
            answer = self._answers.named(ref)
            if answer is not None:
                yield place, Reference(answer)
            elif kind == "request":
                found = self._running()
                if found:
                    yield place, Reference(found[int(number) % len(found)])
            elif kind in ("live", "stale"):
                nodes = self._handles(kind)
                if nodes:
                    node = nodes[int(number) % len(nodes)]
                    path = self._path(node) if kind == "live" else None
                    yield place, Reference(self._nodes[node], path)

    def spelled(self, op: Any, reference: Reference) -> Any | None:
        """How an op has to spell a reference now; None if there is no such thing any more."""
        kind = reference.thing[0]
        if kind == "answer":
            return self._answers.spelled(reference.thing)
        if kind == "node":
            return self._spelled_node(reference)
        for _, things in self._numbered(op):
            if reference.thing in things:
                return things.index(reference.thing)
        if kind == "request" and reference.thing in self._running():
            return f"request:{self._running().index(reference.thing)}"
        return None

    def _spelled_node(self, reference: Reference) -> str | None:
        live = self._handles("live")
        if reference.path is None:
            stale = [self._nodes[node] for node in self._handles("stale")]
            return f"stale:{stale.index(reference.thing)}" if reference.thing in stale else None
        for position, node in enumerate(live):
            if self._path(node) == reference.path:
                return f"live:{position}"
        things = [self._nodes[node] for node in live]
        return f"live:{things.index(reference.thing)}" if reference.thing in things else None

    def _numbered(self, op: Any) -> Iterator[tuple[str, Sequence[Thing]]]:
        """The operands that are numbers of things, and those things in order."""
        held, cache = self._side.references, self._side.cache
        if isinstance(op, ops.Readmit):
            yield "waiting", [self._thing(one) for one in cache.waiting]
        elif isinstance(op, ops.Unlock):
            locks = held.host_locks if op.host else held.locks
            locks = held.released if op.receipt == "released" else locks
            yield "lock", [self._thing(one) for one in locks]
        elif isinstance(op, ops.ReleaseWindow):
            locks = held.released if op.receipt == "released" else held.locks
            yield "lock", [self._thing(one) for one in locks]
        elif isinstance(op, ops.Pin):
            yield "release", self._pins
        elif isinstance(op, ops.LinkerAck):
            yield "success", [self._thing(one) for one in cache.linker.pending[:1]]
        elif hasattr(op, "request"):
            yield "request", self._running()

    def _running(self) -> list[Thing]:
        return [self._thing(one) for one in self._side.cache.requests]

    def _handles(self, kind: str) -> list[int]:
        """Live handles, or stale ones, in the order in which references count them."""
        held = self._side.references
        if kind == "live":
            return held.live()
        dead = [node for node in held.names.told if not held.is_live(node)]
        return held.stale + dead

    def _path(self, node: int) -> Path | None:
        """The path of a node.

        It is found out once, as long as the node lives: a split leaves the handle at the end.
        """
        if node not in self._paths:
            for one in self._inspect(self._side.references.core).nodes:
                above = None if one.parent_id is None else self._paths[one.parent_id]
                if one.node_id not in self._paths:
                    self._paths[one.node_id] = _path_below(above, one)
        found = self._paths.get(node)
        return None if found is None else found.digest()


_Path = Any
"""A hash that goes on from its parent's; `hashlib` has no name for the type."""

_ROOT: _Path = blake2b(digest_size=16)


def _path_below(above: _Path | None, node: NodeSnapshot) -> _Path:
    if above is None:
        return _ROOT
    path = above.copy()
    if above is _ROOT:
        path.update(repr((node.extra_key, node.cache_salt)).encode())
    tokens = node.token_ids
    units = zip(tokens, tokens[1:], strict=False) if node.is_bigram else zip(tokens, strict=True)
    path.update(array("q", [token for unit in units for token in unit]))
    return path


def _at(items: Sequence[Any], number: int) -> Any | None:
    return items[number % len(items)] if items else None
