"""A tree that examples speak to in the words of the specification, over any core.

Nodes have the numbers of their creation, 0 for the root; actions and victims are tuples; a node's
window and state values are published as a cache would. A released core lives in a worker. Hides
handles, tensors and the processes of workers.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from treedrift.backends.contract import (
    AuxiliaryWindow,
    BackupKV,
    CacheAction,
    CacheInitParams,
    ComponentType,
    EvictionResult,
    FreeDeviceKV,
    FreeDeviceKVFullOnly,
    IncLockRefResult,
    InsertParams,
    InsertResult,
    InsertStepResult,
    MambaEvictExcessPathStates,
    MatchPrefixParams,
    RadixKey,
    RecoverEvictedSWA,
    RecoverSWAWithLockedFull,
    SWARebuild,
    UnknownNodeError,
    UpdatePendingBackupOnNodeSplit,
)
from treedrift.backends.registry import BackendName, local_backend
from treedrift.backends.sglang.environments import environments
from treedrift.harness.config import COMPONENT_NAMES
from treedrift.harness.remote import Worker, worker_command

RELEASE = "0.5.23"
HANDLERS = f"{Path(__file__).with_name('hosted_core.py')}:make_handlers"
CALL_SECONDS_MAX = 60
NAMES = {kind: name for name, kind in COMPONENT_NAMES.items()}
RELEASED = [
    pytest.mark.released,
    pytest.mark.skipif(
        RELEASE not in [one.release for one in environments()],
        reason=f"no released SGLang here; treedrift env add sglang=={RELEASE}",
    ),
]
OURS = ["python", "rust"]
THEIRS = [
    pytest.param(f"{name}@{RELEASE}", marks=RELEASED) for name in ("sglang-python", "sglang-rust")
]


# --- Cores --------------------------------------------------------------------------------


class RemoteCore:
    """A core in a worker; looks like one."""

    def __init__(self, worker: Worker, params: CacheInitParams) -> None:
        self.__dict__.update(worker=worker)
        self.__dict__.update(number=self._ask("build", params)[0])

    def _ask(self, kind: str, given: Any) -> tuple[Any, tuple[Any, ...]]:
        reply = self.worker.request(kind, pickle.dumps(given), CALL_SECONDS_MAX)
        returned, raised, arguments = pickle.loads(reply)
        if raised is not None:
            raise raised
        return returned, arguments

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._ask("assign", (self.number, name, value))

    def _call(self, name: str, *arguments: Any) -> Any:
        returned, after = self._ask("call", (self.number, name, arguments))
        for mine, theirs in zip(arguments, after, strict=True):
            if isinstance(mine, dict):
                mine.update(theirs)
        return returned


@pytest.fixture(scope="session")
def workers() -> Iterator[Callable[[str], Worker]]:
    """Workers by core name, each started when it is asked for."""
    running: dict[str, Worker] = {}

    def find(name: str) -> Worker:
        if name not in running:
            parsed = BackendName.parse(name)
            place = parsed.place()
            assert place is not None
            command = worker_command(
                parsed.name, place.interpreter, place.process_environment(), HANDLERS
            )
            running[name] = Worker(command)
            running[name].start()
        return running[name]

    yield find
    for worker in running.values():
        worker.close()


@pytest.fixture(params=[*OURS, *THEIRS])
def core_name(request: pytest.FixtureRequest) -> str:
    """The name of each core in turn."""
    name: str = request.param
    return name


@pytest.fixture
def is_native(core_name: str) -> bool:
    """Whether it is the released compiled core, which parts from the others in places."""
    return core_name.startswith("sglang-rust")


@pytest.fixture
def tree(core_name: str, workers: Callable[[str], Worker]) -> Callable[..., Tree]:
    """Builds trees: components by name, then windows, state figures and parameters of a core."""

    def build(*components: str, page: int = 1, **more: Any) -> Tree:
        if (second := more.pop("aux_window", None)) is not None:
            second = {ComponentType.AUXILIARY_SWA: AuxiliaryWindow(second)}
        given = {
            "tree_components": tuple(COMPONENT_NAMES[name] for name in ("full", *components)),
            "page_size": page,
            "sliding_window_size": more.pop("window", None),
            "mamba_cache_chunk_size": more.pop("chunk", 1) if "mamba" in components else None,
            "mamba_max_states_per_path": more.pop("cap", -1),
            "enable_mamba_extra_buffer": page > 1,
            "component_registry_override": second,
        }
        params = CacheInitParams(**given, **more)
        if "@" in core_name:
            return Tree(RemoteCore(workers(core_name), params))
        return Tree(local_backend(core_name).create(params))

    return build


# --- A tree -------------------------------------------------------------------------------


class Inserted(msgspec.Struct):
    """What an insert did: actions per step, and the result in numbers."""

    steps: list[list[tuple[Any, ...]]]
    prefix: int
    last: int
    adopted: dict[str, list[tuple[int, int]]]
    raw: InsertResult


class Lock(msgspec.Struct):
    """A lock that is held."""

    node: int
    receipt: IncLockRefResult

    def boundary(self, component: str) -> int | None:
        """The boundary's id."""
        return self.receipt.component_lock_uuids[COMPONENT_NAMES[component]]


class Tree:
    """A core under test; every call without a short form goes to `core` directly."""

    def __init__(self, core: Any) -> None:
        self.core = core
        self._numbers: dict[int, int] = {core.root_node_handle(): 0}
        self._gone: set[int] = set()
        self._peers: dict[tuple[ComponentType, int], int] = {}

    # --- Names of nodes

    def handle(self, number: int) -> int:
        """The handle of a node."""
        return next(handle for handle, known in self._numbers.items() if known == number)

    def number(self, handle: int) -> int:
        """The number of a node."""
        return self._numbers[handle]

    def _look(self, handles: Iterable[int] = ()) -> list[Any]:
        """Number the nodes that appeared, in the order of their creation; all nodes there are."""
        found: dict[int, Any] = {}
        for handle in {*self._numbers, *handles} - self._gone:
            try:
                (path,) = self.core.collect_path_info([handle])
            except UnknownNodeError:
                self._gone.add(handle)
                continue
            found |= {node.node_id: node for node in path}
        for handle in sorted(set(found) - set(self._numbers)):
            self._numbers[handle] = len(self._numbers)
        return [found[handle] for handle in sorted(found) if self._numbers[handle]]

    def nodes(self) -> dict[int, tuple[int, int, int]]:
        """Parent, first and last position of every node."""
        return {
            self.number(node.node_id): (
                self._numbers[node.parent_id],
                node.path_start,
                node.path_end,
            )
            for node in self._look()
        }

    def values(self, component: str) -> dict[int, list[int] | None]:
        """A component's value on every node."""
        kind = COMPONENT_NAMES[component]
        values = {}
        for node in self._look():
            value = self.core.get_component_device_value(node.node_id, kind)
            values[self.number(node.node_id)] = None if value is None else value.tolist()
        return values

    def sizes(self, component: str) -> tuple[int, int]:
        """Evictable and protected."""
        kind = COMPONENT_NAMES[component]
        evictable = self.core.component_evictable_size(kind)
        return evictable, self.core.component_protected_size(kind)

    # --- Insert and match

    def insert(
        self,
        tokens: Iterable[int],
        slots: Iterable[int],
        *,
        evicted: int = 0,
        aux_evicted: int = 0,
        prev: int = 0,
        state: int | None = None,
        branch: int | None = None,
        **more: Any,
    ) -> Inserted:
        """Insert and do what the steps ask for."""
        lengths = {ComponentType.SWA: evicted, ComponentType.AUXILIARY_SWA: aux_evicted}
        params = InsertParams(
            key=key(tokens),
            value=torch.tensor(list(slots), dtype=torch.int64),
            mamba_value=None if state is None else torch.tensor([state]),
            prev_prefix_len=prev,
            swa_branching_seqlen=branch,
            component_evicted_seqlens={kind: length for kind, length in lengths.items() if length},
            track_adopted_ranges=True,
            **more,
        )
        step = self.core.begin_insert(params)
        applied = [self._apply(step.actions)]
        while step.result is None:
            step = self.core.resume_insert()
            applied.append(self._apply(step.actions))
        assert self.core.end_insert() == []
        self._look([step.result.last_device_node, *self._named(applied)])
        return self._inserted(applied, step)

    def _inserted(
        self, applied: list[list[tuple[CacheAction, Any]]], step: InsertStepResult
    ) -> Inserted:
        result = step.result
        assert result is not None
        assert result.last_device_node is not None
        adopted = result.adopted_ranges or {}
        self.check()
        return Inserted(
            steps=[[self._plain(*one) for one in actions] for actions in applied],
            prefix=result.prefix_len,
            last=self.number(result.last_device_node),
            adopted={NAMES[kind]: ranges for kind, ranges in adopted.items()},
            raw=result,
        )

    def match(self, tokens: Iterable[int]) -> SimpleNamespace:
        """Match; `device`, `full_hit` and branching lengths, nodes by number."""
        found = self.core.match_prefix(MatchPrefixParams(key(tokens)))
        visited = found.last_visited_node_id
        self._look([] if visited is None else [visited])
        self.check()
        return SimpleNamespace(
            device=found.device_prefix_len,
            node=self.number(found.last_device_node),
            best=self.number(found.best_match_node),
            visited=None if visited is None else self.number(visited),
            full_hit=found.full_kv_hit_length,
            swa_branch=found.swa_branching_seqlen,
            mamba_branch=found.mamba_branching_seqlen,
            actions=[self._plain(action, None) for action in found.cache_actions],
        )

    # --- Windows

    def ranges(self, tokens: Iterable[int], start: int, end: int) -> list[tuple[int, int]]:
        """Spans of a key without a window value."""
        found: list[tuple[int, int]] = self.core.swa_tombstone_ranges(key(tokens), start, end)
        return found

    def attach(
        self, tokens: Iterable[int], start: int, end: int, slots: list[int]
    ) -> list[tuple[Any, ...]]:
        """Publish window slots on a span of a key; the splits that this asked for."""
        actions = self.core.attach_swa_window(key(tokens), start, end, torch.tensor(slots))
        self._look()
        self.check()
        return [self._plain(action, None) for action in actions]

    # --- Actions

    def _apply(self, actions: list[CacheAction]) -> list[tuple[CacheAction, Any]]:
        return [(action, self._carry_out(action)) for action in actions]

    def _carry_out(self, action: CacheAction) -> Any:
        """What a cache does about a node's values; slots that are freed concern nobody here."""
        match action:
            case SWARebuild():
                self._publish(action.node_id, action.component_type, action.source_value)
            case RecoverSWAWithLockedFull():
                self._move_peers(action)
                self._publish(action.node_id, action.component_type, action.kept_full)
            case RecoverEvictedSWA():
                self._move_peers(action)
            case MambaEvictExcessPathStates():
                freed: dict[ComponentType, list[torch.Tensor]] = {}
                host: dict[ComponentType, list[torch.Tensor]] = {}
                self.core.evict_excess_path_states(action.tail_node_id, freed, host, [])
                assert host == {}
                return [slots.tolist() for slots in freed.get(ComponentType.MAMBA, [])]
        return None

    def _publish(self, handle: int, kind: ComponentType, full: torch.Tensor) -> None:
        peers = torch.tensor([self._peer(kind, slot) for slot in full.tolist()])
        self.core.set_component_device_value(handle, kind, peers)

    def _peer(self, kind: ComponentType, slot: int) -> int:
        """The window slot of a full slot: the same number, unless an action moved it."""
        return self._peers.get((kind, slot), slot)

    def _move_peers(self, action: RecoverSWAWithLockedFull | RecoverEvictedSWA) -> None:
        kind, moved = action.component_type, action.incoming_full.tolist()
        for mine, theirs in zip(action.kept_full.tolist(), moved, strict=True):
            self._peers[kind, mine] = self._peer(kind, theirs)

    def _named(self, applied: list[list[tuple[CacheAction, Any]]]) -> list[int]:
        actions = [action for step in applied for action, _ in step]
        return [action.node_id for action in actions if isinstance(action, SWARebuild)]

    def _plain(self, action: CacheAction, answer: Any) -> tuple[Any, ...]:
        """An action as a tuple; that of a window other than the first ends with its name."""
        plain: tuple[Any, ...]
        match action:
            case FreeDeviceKV():
                return "free", *(slots.tolist() for slots in action.indices)
            case FreeDeviceKVFullOnly():
                return "free full", *(slots.tolist() for slots in action.indices)
            case BackupKV():
                return "backup", *(self.number(node) for node in action.node_ids)
            case UpdatePendingBackupOnNodeSplit():
                ack = None if action.ack_id is None else self.number(action.ack_id)
                ids = (action.old_node_id, action.new_node_id, action.new_child_node_id)
                return "split", ack, *map(self.number, ids)
            case SWARebuild():
                plain = "rebuild", self.number(action.node_id), action.source_value.tolist()
            case RecoverSWAWithLockedFull():
                slots = action.kept_full.tolist(), action.incoming_full.tolist()
                plain = "recover", self.number(action.node_id), *slots
            case RecoverEvictedSWA():
                plain = "move peers", action.kept_full.tolist(), action.incoming_full.tolist()
            case MambaEvictExcessPathStates():
                return "cap", self.number(action.tail_node_id), answer
            case _:
                raise AssertionError(action)
        is_first = action.component_type is ComponentType.SWA
        return plain if is_first else (*plain, NAMES[action.component_type])

    # --- Locks

    def lock(self, node: int, skip: Iterable[str] = ()) -> Lock:
        """Lock a node."""
        kinds = tuple(COMPONENT_NAMES[name] for name in skip)
        receipt = self.core.inc_lock_ref(self.handle(node), kinds)
        self.check()
        return Lock(node, receipt)

    def unlock(self, held: Lock, *, skip_swa: bool = False) -> None:
        """Release a lock."""
        self.core.dec_lock_ref(self.handle(held.node), held.receipt.to_dec_params(), skip_swa)
        self.check()

    def release_early(self, held: Lock) -> dict[str, list[list[int]]]:
        """Release the window of a lock, and its state; what that freed."""
        receipt = held.receipt.to_dec_params()
        freed = self.core.dec_swa_lock_only(self.handle(held.node), receipt)
        self.check()
        return plain_frees(freed)

    def release_window(self, held: Lock, component: str) -> dict[str, list[list[int]]]:
        """Release one window of a lock alone; what that freed."""
        kind, receipt = COMPONENT_NAMES[component], held.receipt.to_dec_params()
        freed = self.core.dec_window_lock_only(self.handle(held.node), kind, receipt)
        self.check()
        return plain_frees(freed)

    # --- Eviction

    def evict(self, component: str, count: int) -> list[tuple[Any, ...]]:
        """A whole walk. Victims in order, each with what it freed and what it counted.

        A leaf is told by its number, an inner node by "inner".
        """
        kind = COMPONENT_NAMES[component]
        total: dict[ComponentType, int] = {}
        victims: list[tuple[Any, ...]] = []
        self.core.evict_device_start(kind, count)
        while True:
            step = self.core.evict_device_next_node(kind, dict(total))
            assert step.made_progress or (step.node_id is None and not step.device_frees)
            if not step.made_progress:
                break
            victim: Any = "inner"
            if step.node_id is not None:
                assert step.device_frees == {}
                victim = self.number(step.node_id)
                step = self.core.evict_device_leaf(step.node_id, False)
            for freed, amount in step.tracker.items():
                total[freed] = total.get(freed, 0) + amount
            counted = {NAMES[freed]: amount for freed, amount in step.tracker.items() if amount}
            victims.append((victim, plain_frees(step), counted))
        self.core.evict_device_end(kind)
        self._look()
        self.check()
        return victims

    def recency(self, component: str) -> list[int]:
        """The nodes of a component from the most recent; found by evicting them all."""
        kind = COMPONENT_NAMES[component]
        order = []
        self.core.evict_device_start(kind, 2**31)
        before = self.values(component)
        while (step := self.core.evict_device_next_node(kind, {})).made_progress:
            if step.node_id is not None:
                self.core.evict_device_leaf(step.node_id, False)
            after = self.values(component)
            (victim,) = (node for node, value in before.items() if value and not after.get(node))
            order.append(victim)
            before = after
        self.core.evict_device_end(kind)
        return order[::-1]

    def check(self) -> None:
        """The core's own check."""
        self.core.sanity_check([], [])


def key(tokens: Iterable[int]) -> RadixKey:
    """A fresh key."""
    return RadixKey(array("q", tokens))


def plain_frees(result: EvictionResult) -> dict[str, list[list[int]]]:
    """Freed slots by component."""
    assert (result.host_frees, result.cache_actions) == ({}, [])
    return {
        NAMES[kind]: [slots.tolist() for slots in tensors]
        for kind, tensors in result.device_frees.items()
    }
