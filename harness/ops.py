"""The op language: what one step of a trace can be.

Every op is total: its operands are references that are resolved against what exists on the side
that runs it, and an op that finds nothing to work on does nothing. So any subsequence of a trace
is a trace. No op holds a handle, slot or receipt of one side.

Two levels. *Request ops* go through the cache, as an inference server does. *Core ops* call the
core itself, also out of protocol; `hostile` says which ones only our own cores must answer alike
(the released cores assert, panic or accept in silence there).

A node reference is text: `root`; `live:3` (the fourth handle that is alive, counted from the
oldest and modulo their number); `stale:0` (the first handle that has died); `answer:7` (the node
that the op with answer 7 answered, while it is alive); `offered` (what the open walk offered last);
`request:1` (the node that request 1 has locked); `bogus:-1` (a number that was never a handle).
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import msgspec

NodeRef = str
Run = tuple[int, int]
ComponentName = Literal["full", "swa", "mamba", "aux_swa"]
Flag = Literal["storage", "linker", "write_back", "write_through_threshold", "buffer_only"]
ValueKind = Literal["slots", "none", "short", "float", "flat"]
StateKind = Literal["fresh", "none", "two"]
ReceiptKind = Literal["own", "released", "foreign", "stripped"]
Question = Literal[
    "path",
    "order",
    "indices",
    "hashes",
    "snapshot",
    "validate",
    "canary",
    "flatten",
    "rotation",
    "predicates",
    "sizes",
    "backup_chain",
    "sanity",
]

BLOCK_TOKENS = 512
"""Tokens that one block id of a request log stands for."""


class Op(msgspec.Struct, tag_field="op", forbid_unknown_fields=True, omit_defaults=True):
    """Base of all ops."""


class Namespace(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """Where a key lives: its extra key and its cache salt (KEY-25)."""

    extra_key: str | None = None
    cache_salt: str | None = None


DEFAULT_NAMESPACE = Namespace()


# --- Request level ------------------------------------------------------------------------


class Arrive(Op, tag="arrive"):
    """A request arrives, is matched, locked and given a row; nothing without a free row.

    The prompt is `tokens`, then the tokens that `blocks` stand for (512 each), cut to `length`.
    Without `cow` the request does not start from the cached Mamba state (MAM-M15).
    """

    tokens: list[int] = []
    blocks: list[int] = []
    length: int | None = None
    namespace: Namespace = DEFAULT_NAMESPACE
    priority: int = 0
    session_id: str | None = None
    rotation_base: int | None = None
    cow: bool = True


class Prefill(Op, tag="prefill"):
    """Compute `count` more tokens of a prompt (all when None), then checkpoint it or not."""

    request: int
    count: int | None = None
    checkpoint: bool = True


class Decode(Op, tag="decode"):
    """A prefilled request produces `tokens`, then `invent` tokens that no other request has."""

    request: int
    tokens: list[int] = []
    invent: int = 0


class Checkpoint(Op, tag="checkpoint"):
    """Put what a request has computed into the tree and go on."""

    request: int


class Finish(Op, tag="finish"):
    """A request ends well: its tokens go into the tree, the rest is freed."""

    request: int


class Abort(Op, tag="abort"):
    """A request ends badly: what it alone holds is freed."""

    request: int


class Retract(Op, tag="retract"):
    """A request loses its row for lack of memory and waits to be admitted again."""

    request: int


class Readmit(Op, tag="readmit"):
    """The k-th waiting request is admitted again, with all its tokens as its prompt."""

    waiting: int


class EarlyRelease(Op, tag="early_release"):
    """A request gives up the window part of its prefix lock, once (CTL-34)."""

    request: int


class Evict(Op, tag="evict"):
    """Memory pressure: evict tokens, window tokens and states from the device (CTL-25)."""

    count: int
    window: int = 0
    states: int = 0


class EvictForAlloc(Op, tag="evict_for_alloc"):
    """Memory pressure of an allocation that is short of tokens, window tokens and states."""

    count: int
    window: int = 0
    states: int = 0


class Touch(Op, tag="touch"):
    """A lookup that only refreshes recency."""

    tokens: list[int]
    namespace: Namespace = DEFAULT_NAMESPACE


class LinkerAck(Op, tag="linker_ack"):
    """The oldest offload in flight lands or fails."""

    success: bool = True


class Reset(Op, tag="reset"):
    """All requests end and the tree is emptied."""


class DrainEvents(Op, tag="drain_events"):
    """Take the KV events queued so far."""


class NameAdapter(Op, tag="name_adapter"):
    """A namespace gets an adapter's name, which KV events carry from now on (EVT-18, EVT-19)."""

    extra_key: str
    name: str


# --- Core level ---------------------------------------------------------------------------


class CoreMatch(Op, tag="core_match"):
    """`match_prefix`; with `device_only`, `match_full_device_prefix`. `limit` caps the key.

    The key is `tokens`, then the consecutive ones of each of `runs`: its first token, and how many.
    The node that is answered is kept as `answer:N` under the number `answer`.
    """

    tokens: list[int]
    namespace: Namespace = DEFAULT_NAMESPACE
    limit: int | None = None
    device_only: bool = False
    runs: list[Run] = []
    answer: int | None = None


class CoreInsert(Op, tag="core_insert"):
    """Insert `tokens`, then those of `runs`, with fresh slots; for `runs` see `core_match`.

    `owned` says how many leading units the caller already shares with the tree (its
    `prev_prefix_len`, cut to what is matched); `raw_prev` passes a `prev_prefix_len` as it is
    instead. `suspend` leaves the insert at its first barrier. `value` other than `slots` is
    hostile: `none` passes no value, and the slots themselves as tokens instead of `tokens`; the
    others are refused. So is `force`, which begins although an insert is suspended.

    `swa_evicted` and `aux_evicted` are the evicted lengths of the windows, cut to whole pages,
    `raw_evicted` one that is passed for both as it is (hostile, SWA-I2). `branch` is the branching
    length (SWA-I24). `state` other than `fresh` is hostile: no Mamba state, or two (MAM-I5).

    Once the insert has a result, its node is kept as `answer:N` under the number `answer`.
    """

    tokens: list[int]
    namespace: Namespace = DEFAULT_NAMESPACE
    limit: int | None = None
    owned: int = 0
    raw_prev: int | None = None
    inserted_len: int = 0
    priority: int | None = 0
    session_id: str | None = None
    rotation_base: int | None = None
    track_adopted_ranges: bool = False
    swa_evicted: int = 0
    aux_evicted: int = 0
    raw_evicted: int | None = None
    branch: int | None = None
    state: StateKind = "fresh"
    value: ValueKind = "slots"
    suspend: bool = False
    force: bool = False
    runs: list[Run] = []
    answer: int | None = None


class CoreResume(Op, tag="core_resume"):
    """Go on with a suspended insert by one step; hostile without one."""

    force: bool = False


class CoreEnd(Op, tag="core_end"):
    """Abandon a suspended insert."""


class Lock(Op, tag="lock"):
    """`inc_lock_ref`; with `host`, `inc_host_lock_ref`. The receipt is kept.

    A device lock ends open walks of auxiliary components first, which must not meet a lock between
    two steps (SWA-E4, MAM-E16); `force` leaves them open (hostile). Skipping a window but not
    `mamba` is hostile: the window may go under a locked state (MAM-L14). One that skips `full`
    but locks a window or a state must say `force`: released cores find fault with it (SWA-V5).
    """

    node: NodeRef
    skip: list[ComponentName] = []
    host: bool = False
    force: bool = False


class ReleaseWindow(Op, tag="release_window"):
    """Give up the window of the k-th held device receipt early; its release then leaves it out.

    `dec_swa_lock_only`; with `window`, `dec_window_lock_only` of that component (hostile for
    `swa`, which leaves a Mamba lock behind, MAM-L14). Nothing for a receipt whose window reached
    the root, was skipped or is gone (SWA-L17), unless `force` (hostile); other `receipt` values
    misuse one (hostile).
    """

    lock: int
    window: ComponentName | None = None
    receipt: ReceiptKind = "own"
    force: bool = False


class Unlock(Op, tag="unlock"):
    """Release the k-th held receipt of the kind; other `receipt` values misuse one (hostile)."""

    lock: int
    host: bool = False
    receipt: ReceiptKind = "own"
    skip_swa: bool = False
    window: ComponentName | None = None


class Pin(Op, tag="pin"):
    """`inc_full_pin`, or with `release` the k-th pin's `dec_full_pin`; `force`: any node's."""

    node: NodeRef = "root"
    release: int | None = None
    force: bool = False


class WalkStart(Op, tag="walk_start"):
    """Open a device walk; with `force` also a second one (hostile)."""

    count: int
    component: ComponentName = "full"
    force: bool = False


class WalkNext(Op, tag="walk_next"):
    """One step of the open walk; `done` is the running total, None the true one."""

    component: ComponentName = "full"
    done: int | None = None
    force: bool = False


class WalkEnd(Op, tag="walk_end"):
    """Close the open walk."""

    component: ComponentName = "full"
    force: bool = False


class EvictLeaf(Op, tag="evict_leaf"):
    """`evict_device_leaf` of the node that the open walk offered; hostile of any other."""

    node: NodeRef = "offered"
    flip_mode: bool = False


class DropSubtree(Op, tag="drop_subtree"):
    """`drop_subtree_no_host`, of the offered node or (hostile) of any."""

    node: NodeRef = "offered"


class CapPath(Op, tag="cap_path"):
    """`evict_excess_path_states` of the path to a node (MAM-P5)."""

    node: NodeRef


class StoreValue(Op, tag="store_value"):
    """`set_component_device_value` of a node that lacks it, with fresh slots; hostile with `force`.

    `force` stores on whatever node it is, `short` a value of one entry too few (both refused).
    """

    node: NodeRef
    component: ComponentName = "mamba"
    force: bool = False
    short: bool = False


class WindowRanges(Op, tag="window_ranges"):
    """`swa_tombstone_ranges` of a key between two positions; `raw` takes them as they are."""

    tokens: list[int]
    start: int = 0
    end: int | None = None
    namespace: Namespace = DEFAULT_NAMESPACE
    component: ComponentName = "swa"
    raw: bool = False


class AttachWindow(Op, tag="attach_window"):
    """Load the k-th tombstone range of a key and publish it with `attach_swa_window` (SWA-B3).

    `raw` attaches `[start, end)` itself, whatever is there (hostile).
    """

    tokens: list[int]
    range: int = 0
    start: int = 0
    end: int | None = None
    namespace: Namespace = DEFAULT_NAMESPACE
    component: ComponentName = "swa"
    raw: bool = False


class Demote(Op, tag="demote"):
    """`demote`; hostile while there is no host tier."""

    node: NodeRef


class HostEvict(Op, tag="host_evict"):
    """`drive_host_eviction`."""

    count: int
    component: ComponentName = "full"


class Ask(Op, tag="ask"):
    """A read-only question about nodes; `number` and `flag` are what the question needs besides."""

    about: Question
    nodes: list[NodeRef] = []
    number: int = 0
    flag: bool = False


class Backfill(Op, tag="backfill"):
    """`backfill_missing_hash_values`."""


class AdjustSize(Op, tag="adjust_size"):
    """Move a ledger by `delta` and back again."""

    node: NodeRef
    delta: int
    component: ComponentName = "full"


class Offload(Op, tag="offload"):
    """Plan, lock and mark an external offload of one node, as the linker does."""

    node: NodeRef


class MarkStored(Op, tag="mark_stored"):
    """The external store holds the path from `node` up to `until`."""

    node: NodeRef
    until: NodeRef = "root"


class SetFlag(Op, tag="set_flag"):
    """Change a setting of the core between two ops; `write_back` only without a host lock left."""

    flag: Flag
    value: int


class Misuse(Op, tag="misuse"):
    """Hostile: make the refused call `method` of `misuse.MISUSES`; an unknown name does nothing."""

    method: str
    node: NodeRef = "root"
    component: ComponentName = "swa"


RequestOp = (
    Arrive
    | Prefill
    | Decode
    | Checkpoint
    | Finish
    | Abort
    | Retract
    | Readmit
    | EarlyRelease
    | Evict
    | EvictForAlloc
    | Touch
    | LinkerAck
    | Reset
    | DrainEvents
    | NameAdapter
)
CoreOp = (
    CoreMatch
    | CoreInsert
    | CoreResume
    | CoreEnd
    | Lock
    | ReleaseWindow
    | Unlock
    | Pin
    | WalkStart
    | WalkNext
    | WalkEnd
    | EvictLeaf
    | DropSubtree
    | CapPath
    | StoreValue
    | WindowRanges
    | AttachWindow
    | Demote
    | HostEvict
    | Ask
    | Backfill
    | AdjustSize
    | Offload
    | MarkStored
    | SetFlag
    | Misuse
)
AnyOp = RequestOp | CoreOp


def kind_of(op: Op) -> str:
    """The op's name in a trace."""
    return str(op.__struct_config__.tag)


def is_hostile(op: Op) -> bool:
    """Whether an op breaks the protocol, so that only our own cores must agree on it."""
    match op:
        case CoreInsert():
            raw = (op.raw_prev, op.raw_evicted)
            return (
                op.value != "slots"
                or op.state != "fresh"
                or op.force
                or op.raw_evicted is not None
                or any(number is not None and number < 0 for number in raw)
            )
        case Lock(skip=skip, force=force):
            leaves_states = bool({"swa", "aux_swa"} & set(skip)) and "mamba" not in skip
            return force or leaves_states or _is_wild(op)
        case ReleaseWindow(receipt=receipt, window=window, force=force):
            return receipt != "own" or window == "swa" or force
        case Unlock(receipt=receipt, window=window, skip_swa=skip_swa):
            return receipt != "own" or window is not None or skip_swa
        case CoreResume(force=force) | Pin(force=force) | WalkStart(force=force):
            return force or _is_wild(op)
        case WalkNext(force=force) | WalkEnd(force=force) | StoreValue(force=force):
            return force or getattr(op, "short", False) or _is_wild(op)
        case WindowRanges(raw=raw) | AttachWindow(raw=raw):
            return raw
        case EvictLeaf(node=node, flip_mode=flip):
            return node != "offered" or flip
        case DropSubtree(node=node):
            return node != "offered"
        case Demote() | Misuse():
            return True
        case Ask(about="indices", flag=True):
            return True  # Its end may be no ancestor (PATH-11).
        case _:
            return _is_wild(op)


def _is_wild(op: Op) -> bool:
    """Whether an op names a handle that never was, or a bad number."""
    refs, counts = _wild_fields(type(op))
    for field in refs:
        named = getattr(op, field)
        for ref in (named,) if isinstance(named, str) else named:
            if ref.startswith("bogus:"):
                return True
    for field in counts:
        count = getattr(op, field)
        if count is not None and count < 0:
            return True
    return False


@cache
def _wild_fields(kind: type[Op]) -> tuple[list[str], list[str]]:
    """The fields of an op that name handles, and those that count."""
    fields = kind.__struct_fields__
    return (
        [field for field in ("node", "until", "nodes") if field in fields],
        [field for field in ("count", "inserted_len", "limit") if field in fields],
    )
