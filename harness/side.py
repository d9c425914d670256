"""One side: a core, its cache and its pools, running ops and telling what each one showed.

A side runs whole where its core lives. The lockstep talks to it through three calls, in process
(`LocalSide`) or through a worker (`make_handlers` is what the worker serves).
"""

from __future__ import annotations

import gc
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any, cast
from weakref import WeakKeyDictionary

import msgspec
import torch

from ..backends.contract import (
    AuxiliaryWindow,
    CacheInitParams,
    ComponentType,
    CorePoisonedError,
    EvictParams,
    KvEventLoraNames,
    NodeId,
    TreeCore,
)
from ..backends.inspection import TreeSnapshot
from ..backends.pools import PoolError
from . import locking, observation, ops, oracles, tokens, walking
from .cache import Cache, CacheError, Request, pools_for
from .canonical import tensor
from .config import Config
from .execute import CoreOps
from .observation import Finding, Observation
from .recorder import Recorder, UnreadableAnswerError
from .reference_model import ReferenceModel
from .references import References

CoreFactory = Callable[[CacheInitParams], TreeCore]
Inspector = Callable[[TreeCore], TreeSnapshot]

DURING_INSERT = frozenset[type[Any]](
    (
        ops.CoreResume,
        ops.CoreEnd,
        ops.CoreInsert,
        ops.CoreMatch,
        ops.Ask,
        ops.Lock,
        ops.Unlock,
        ops.Pin,
        ops.WindowRanges,
        ops.HostEvict,
        ops.DrainEvents,
    )
)
"""Ops that may run while an insert is suspended (CTL-23, MATCH-15); others let it end first."""

BELOW_INSERT = (ops.EvictLeaf, ops.DropSubtree, ops.StoreValue, ops.AttachWindow)
"""Ops whose hostile kinds change the tree below a suspended insert."""

KEEPS_WALKS = frozenset[type[Any]]((*ops.CoreOp.__args__, ops.Touch, ops.DrainEvents, ops.Reset))
"""Ops that leave an open walk open, if only to end it themselves; evictions need it closed."""


YOUNG_OBJECTS = 20_000
"""New objects between two collections of the youngest; Python's own 700 are two ops' worth."""


def may_run_during_insert(op: ops.AnyOp) -> bool:
    """Whether an op leaves a suspended insert as it is."""
    return type(op) in DURING_INSERT or (isinstance(op, BELOW_INSERT) and ops.is_hostile(op))


class Settings(msgspec.Struct, kw_only=True, frozen=True):
    """How a side is watched. Both sides of a pair are opened with the same settings.

    `tree_every`: ops between two looks at the whole tree. `inspect`: also through the inspector.
    `ordered`: False if one core of the pair returns some results in an arbitrary order.
    `watch_free_list`: whether whole free lists are part of what is compared, and the whole tree's
    slots after every core insert; off for large pools, where the indices handed out and taken
    back, in order, determine the lists, and an insert shows the path of its key. `model`: whether
    the reference model listens; it counts page by page, so it is off for large pools too.
    """

    tree_every: int = 16
    inspect: bool = False
    ordered: bool = True
    watch_free_list: bool = True
    model: bool = True
    device: str = "cpu"


class Batch(msgspec.Struct, array_like=True):
    """Observations of a run of ops, and which of them hold findings."""

    observations: list[bytes] = []
    alarms: list[int] = []

    def add(self, seen: Observation) -> None:
        """Append one observation."""
        if seen.findings:
            self.alarms.append(len(self.observations))
        self.observations.append(observation.encode(seen))


class HarnessError(Exception):
    """The harness itself failed while it ran an op; the message names the op."""


class LocalSide:
    """A side in this process."""

    def __init__(
        self,
        factory: CoreFactory,
        inspector: Inspector | None = None,
        prepare_cache: Callable[[Cache], None] | None = None,
    ) -> None:
        self._factory = factory
        self._inspector = inspector
        self._prepare_cache = prepare_cache

    def open(self, config: Config, settings: Settings) -> str | None:
        """Build a fresh side; the class of the error if the core refuses the configuration."""
        self.config, self.settings = config, settings
        self.pools = pools_for(config, settings.device, self._note_pool)
        self._journal: list[Any] = []
        self._findings: list[Finding] = []
        try:
            self._names = KvEventLoraNames()
            params = core_params(config, self.pools.allocator, self._names)
            self._core = self._factory(params)
        except Exception as error:
            return type(error).__name__
        root = self._core.root_node_handle
        self.model = ReferenceModel(config, root) if settings.model else None
        self.recorder = Recorder(self._core, settings.ordered, self.model)
        core = cast(TreeCore, self.recorder)
        self.cache = Cache(core, config, self.pools)
        if self._prepare_cache is not None:
            self._prepare_cache(self.cache)
        self.references = References(self._core, self.recorder.names)
        self.core_ops = CoreOps(core, self.cache, config, self.references, settings.watch_free_list)
        self.index = oracles.EventIndex(config) if config.events else None
        self._met: list[NodeId] = []
        self.op_count = 0
        self.dead = False
        self.total_ns = 0
        self.recorder.calls.clear()
        self.components = config.component_types()
        self.capacity = self._available()
        self.serials = WeakKeyDictionary[Request, int]()
        self.prompts = Counter[str]()
        return None

    def _note_pool(self, kind: str, slots: torch.Tensor) -> None:
        self._journal.append([kind, tensor(slots)])

    # --- Running --------------------------------------------------------------------------

    def run(self, batch: Sequence[ops.AnyOp]) -> Batch:
        """Run ops in order; one observation each. Ends early when the core is dead."""
        started = perf_counter_ns()
        seen = Batch()
        for op in batch:
            if self.dead:
                break
            seen.add(self._observe(op))
        self.total_ns += perf_counter_ns() - started
        return seen

    def _observe(self, op: ops.AnyOp) -> Observation:
        self.op_count += 1
        if self._inspector is not None:
            self.recorder.watch_refusals(self._raw_snapshot if ops.is_hostile(op) else None)
        outcome = self._guarded(lambda: self._dispatch(op), ops.kind_of(op))
        for method in self._take(self.recorder.changed_by_refusal):
            self._findings.append(Finding("refusal", f"a refused {method} changed the tree"))
        due = self.op_count % self.settings.tree_every == 0
        return self._observation(outcome, due)

    def _observation(self, outcome: str | None, look: bool) -> Observation:
        calls = self._take(self.recorder.calls)
        sizes: list[int] = []
        tree = snapshot = None
        if not self.dead:
            try:
                sizes = observation.sizes(
                    self._core, self.pools, len(self.cache.requests), self.components
                )
                if self.model is not None:
                    self.model.check_sizes(observation.ledgers(sizes, self.components))
                if look and not self.core_ops.is_inserting:
                    tree, snapshot = self._look()
            except Exception as error:
                # Looking only reads: a core that can't even be read is at the end.
                self.dead = True
                self._findings.append(Finding("unreadable", f"reading the core raised {error!r}"))
        told = [Finding(found.oracle, found.message) for found in self._take(self.cache.findings)]
        found = self._take(self._findings) + told
        if self.model is not None:
            found += self._take(self.model.findings)
        pool = self._take(self._journal)
        return Observation(outcome, calls, pool, sizes, tree, snapshot, found, self.dead)

    @staticmethod
    def _take(items: list[Any]) -> list[Any]:
        if not items:
            return []
        taken = list(items)
        items.clear()
        return taken

    def _look(self) -> tuple[Any, Any]:
        """The whole tree, and the inspector's view of it. Looking changes nothing on the side."""
        names, settings = self.recorder.names, self.settings
        with names.looking():
            live = self.references.live()
            met = [node for node in self._met if self.references.is_live(node)]
            known = observation.known_nodes(self._core, live, met)
            self._met = [node for node in known[1] if node not in names.told]
            tree = observation.tree(
                self._core,
                self.cache,
                names,
                live,
                known,
                settings.ordered,
                settings.watch_free_list,
            )
            snapshot = None
            if settings.inspect and self._inspector is not None:
                snapshot = observation.snapshot(self._inspector(self._core), names)
        if self.settings.watch_free_list:
            self._findings += oracles.conservation(self._core, self.cache, known[1])
        if tree["healthy"] is not True:
            self._findings.append(Finding("sanity_check", tree["healthy"]))
        return tree, snapshot

    def _raw_snapshot(self) -> Any:
        """The inspected tree with its own handles, so that looking at it numbers nothing."""
        return self._inspector(self._core) if self._inspector else None

    def _guarded(self, act: Callable[[], None], what: str) -> str | None:
        """Run something; a core's error is its outcome, any other error is the harness's own."""
        try:
            act()
        except (PoolError, CacheError) as error:
            oracle = "pool" if isinstance(error, PoolError) else "cache"
            self._findings.append(Finding(oracle, str(error)))
            return type(error).__name__
        except CorePoisonedError as error:
            self.dead = True
            self._findings.append(Finding("crash", str(error)))
            return "CorePoisonedError"
        except UnreadableAnswerError as error:
            # Neither the cache nor a comparison can go on from an answer that is none.
            self.dead = True
            self._findings.append(Finding("unreadable", str(error)))
            return type(error).__name__
        except Exception as error:
            if error is not self.recorder.last_error:
                raise HarnessError(f"{what}, op {self.op_count}: {error!r}") from error
            return type(error).__name__
        return None

    def _dispatch(self, op: ops.AnyOp) -> None:
        if self.core_ops.is_inserting and not may_run_during_insert(op):
            self.core_ops.inserts.settle()
        if type(op) not in KEEPS_WALKS:
            walking.close_walks(self.core_ops)
        handler = REQUEST_HANDLERS.get(type(op))
        if handler is not None:
            handler(self, op)
        else:
            self.core_ops.run(op)

    def drain_events(self) -> None:
        """Take the queued events; the index of the event oracle follows them."""
        events = self.recorder.take_events()
        if self.index is not None:
            self._findings += self.index.replay(events)
            if not self.core_ops.is_inserting:
                self._findings += self.index.check(self._core)

    def name_adapter(self, extra_key: str, name: str) -> None:
        """Register an adapter's name while the side runs.

        Blocks stored before keep their hashes and are removed under others (EVT-19), so from
        here on events alone no longer tell what is resident.
        """
        _register(self._names, extra_key, name)
        self.index = None

    def reset(self) -> None:
        """Drop everything."""
        self.cache.reset()
        self.core_ops.forget()

    # --- The end --------------------------------------------------------------------------

    def finish(self) -> Batch:
        """Release everything and evict step by step until the tree is empty.

        One observation per step: the order of victims is the last thing that two sides compare,
        and on each side everything must have come back to the pools.
        """
        seen = Batch()
        if self.dead:
            return seen
        steps: list[Callable[[], None]] = [
            self.core_ops.inserts.settle,
            self._close_walks,
            self._release_all,
            self._evict_lists,
            self._evict_all,
            self.drain_events,
        ]
        for number, step in enumerate(steps):
            outcome = self._guarded(step, "the final drain")
            if number == len(steps) - 1 and not self.dead:
                self._check_empty()
            # A step that called nothing has left the side as the step before showed it.
            look = not self.dead and (number == 0 or bool(self.recorder.calls))
            seen.add(self._observation(outcome, look))
            if self.dead:
                break
        return seen

    def _close_walks(self) -> None:
        walking.close_walks(self.core_ops)

    def _evict_lists(self) -> None:
        walking.evict_lists(self.core_ops)

    def _evict_all(self) -> None:
        self.cache.evict(EvictParams(num_tokens=2**62))

    def _release_all(self) -> None:
        core, held = self.recorder, self.references
        for request in list(self.cache.requests):
            self.cache.abort(request)
        while self.cache.linker.ack(True):
            pass
        for lock in held.locks:
            if held.is_live(lock.node):  # A receipt that skipped FULL keeps no node alive.
                locking.release(self.core_ops, lock)
        for lock in held.host_locks:
            if held.is_live(lock.node):
                core.dec_host_lock_ref(lock.node, lock.receipt.to_dec_params())
        for node in held.pins:
            core.dec_full_pin(node)
        held.forget_tree()

    def _check_empty(self) -> None:
        total, others = self._core.total_size()
        if total:
            self._findings.append(Finding("conservation", f"{total} units can't be evicted"))
        if others:
            says = f"{others} values of windows and states can't be evicted"
            self._findings.append(Finding("conservation", says))
        for kind, available in self._available().items():
            missing = self.capacity[kind] - available
            if missing:
                what = "" if kind is ComponentType.FULL else f"{kind.name.lower()} "
                says = f"{missing} {what}slots did not come back"
                self._findings.append(Finding("conservation", says))

    def _available(self) -> dict[ComponentType, int]:
        """Free slots of every pool; a window that is a ring has none of its own."""
        free = {ComponentType.FULL: self.pools.allocator.available_size()}
        for kind in self.components[1:]:
            free[kind] = observation.pool_of(self.pools, kind).available_size()
        return free

    def figures(self) -> dict[str, int]:
        """Times, ops, tokens and behaviours since `open`; times are in nanoseconds."""
        return {
            "core_ns": self.recorder.core_ns,
            "total_ns": self.total_ns,
            "ops": self.op_count,
            **self.prompts,
            **self.recorder.behaviours,
        }


def core_params(config: Config, allocator: Any, names: KvEventLoraNames) -> CacheInitParams:
    """What a core of this configuration is built from. `names` gets those of the configuration."""
    for extra_key, lora_name in config.lora_names.items():
        _register(names, extra_key, lora_name)
    return CacheInitParams(
        page_size=config.page_size,
        tree_components=config.component_types(),
        is_eagle=config.bigram,
        sliding_window_size=config.window if config.has_windows else None,
        draft_swa_window=config.draft_window,
        swa_gates_prefix_match=config.window_gates,
        enable_mamba_extra_buffer=config.has_states and config.state_buffer != "none",
        mamba_cache_chunk_size=config.state_chunk if config.has_states else None,
        mamba_max_states_per_path=config.state_cap,
        component_registry_override=_second_window(config),
        eviction_policy=config.policy,
        eviction_policy_config=config.policy_arguments() or None,
        token_to_kv_pool_allocator=allocator,
        enable_kv_cache_events=config.events,
        dynamo_kv_event_format=config.dynamo_events,
        kv_event_lora_names=names,
    )


def _second_window(config: Config) -> dict[ComponentType, Any] | None:
    if ComponentType.AUXILIARY_SWA not in config.component_types():
        return None
    return {ComponentType.AUXILIARY_SWA: AuxiliaryWindow(config.aux_window or 0)}


def _register(names: KvEventLoraNames, extra_key: str, name: str) -> None:
    """Name a namespace and the adapter of that id, by which longer ones are named too (EVT-18)."""
    names.register(_Named(extra_key), name)
    names.register(lora_id=extra_key, lora_name=name)


class _Named:
    """A request of a namespace that belongs to an adapter, as the name table wants to see it."""

    def __init__(self, extra_key: str) -> None:
        self.extra_key = extra_key
        self.lora_id = extra_key


# --- Request ops ----------------------------------------------------------------------------


def _request_op(act: Callable[[Cache, Request, Any], object]) -> Callable[[LocalSide, Any], None]:
    def run(side: LocalSide, op: Any) -> None:
        request = _request(side, op)
        if request is not None:
            act(side.cache, request, op)

    return run


def _request(side: LocalSide, op: Any) -> Request | None:
    live = side.cache.requests
    return live[op.request % len(live)] if live else None


def _arrive(side: LocalSide, op: ops.Arrive) -> None:
    _admitted(
        side,
        side.cache.arrive(
            tokens.expand(op),
            op.namespace,
            op.priority,
            op.session_id,
            op.rotation_base,
            cow=op.cow,
        ),
    )


def _readmit(side: LocalSide, op: ops.Readmit) -> None:
    waiting = side.cache.waiting
    if waiting:
        _admitted(side, side.cache.readmit(waiting[op.waiting % len(waiting)]))


def _admitted(side: LocalSide, request: Request | None) -> None:
    if request is not None:
        side.prompts["requests"] += 1
        side.serials[request] = side.prompts["requests"]
        side.prompts["hit_tokens"] += request.protected_len
        side.prompts["prompt_tokens"] += request.prompt_len


def _decode(side: LocalSide, op: ops.Decode) -> None:
    request = _request(side, op)
    if request is None:
        return
    produced = array("q", op.tokens)
    if op.invent > 0:
        made = len(request.tokens) - request.prompt_len
        produced.extend(tokens.invent(side.serials[request], made, op.invent))
    side.cache.decode(request, produced)


def _pressure(op: ops.Evict | ops.EvictForAlloc) -> EvictParams:
    return EvictParams(num_tokens=op.count, swa_num_tokens=op.window, mamba_num=op.states)


def _touch(side: LocalSide, op: ops.Touch) -> None:
    side.cache.touch(side.core_ops.key(op.tokens, op.namespace))


REQUEST_HANDLERS: dict[type[Any], Callable[[LocalSide, Any], object]] = {
    ops.Arrive: _arrive,
    ops.Prefill: _request_op(
        lambda cache, request, op: cache.prefill(request, op.count, op.checkpoint)
    ),
    ops.Decode: _decode,
    ops.Checkpoint: _request_op(lambda cache, request, op: cache.checkpoint(request)),
    ops.Finish: _request_op(lambda cache, request, op: cache.finish(request)),
    ops.Abort: _request_op(lambda cache, request, op: cache.abort(request)),
    ops.Retract: _request_op(lambda cache, request, op: cache.retract(request)),
    ops.Readmit: _readmit,
    ops.EarlyRelease: _request_op(lambda cache, request, op: cache.early_release(request)),
    ops.Evict: lambda side, op: side.cache.evict(_pressure(op)),
    ops.EvictForAlloc: lambda side, op: side.cache.evict_for_alloc(_pressure(op)),
    ops.Touch: _touch,
    ops.LinkerAck: lambda side, op: side.cache.linker.ack(op.success),
    ops.Reset: lambda side, op: side.reset(),
    ops.DrainEvents: lambda side, op: side.drain_events(),
    ops.NameAdapter: lambda side, op: side.name_adapter(op.extra_key, op.name),
}


# --- In a worker ----------------------------------------------------------------------------

_OPEN = msgspec.json.Decoder(tuple[Config, Settings])
_BATCH = msgspec.json.Decoder(list[ops.AnyOp])


def collect_rarely() -> None:
    """Keep the garbage collector away from what stays, and let it come seldom.

    The libraries of a server are many objects that no collection will ever free, and a run makes
    many records that go by reference count alone: looking for cycles among them costs a part of
    every op and finds next to nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 10, 5)


def make_handlers(core_name: str) -> dict[str, Callable[[bytes], bytes]]:
    """What a worker that hosts one side answers: `open`, `run`, `finish`, `figures`."""
    from ..backends import registry

    backend = registry.local_backend(core_name)
    side = LocalSide(backend.create, backend.inspect, backend.prepare_cache)
    collect_rarely()
    encode = msgspec.msgpack.encode

    def open_side(data: bytes) -> bytes:
        return encode(side.open(*_OPEN.decode(data)))

    return {
        "open": open_side,
        "run": lambda data: encode(side.run(_BATCH.decode(data))),
        "finish": lambda data: encode(side.finish()),
        "figures": lambda data: encode(side.figures()),
    }
