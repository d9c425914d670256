"""A Python core with short calls: tests speak of tokens, slots and handles alone."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import pytest
import torch

from treedrift.backends.contract import (
    BackupKV,
    CacheAction,
    CacheInitParams,
    ComponentType,
    EvictDeviceLeafResult,
    EvictionResult,
    FreeDeviceKV,
    FreeDeviceKVFullOnly,
    InsertParams,
    InsertResult,
    InsertStepResult,
    MambaEvictExcessPathStates,
    MatchPrefixParams,
    MatchResult,
    NodeId,
    RadixKey,
    RecoverEvictedSWA,
    RecoverSWAWithLockedFull,
    SWARebuild,
    UpdatePendingBackupOnNodeSplit,
)
from treedrift.backends.inspection import TreeSnapshot
from treedrift.backends.python_core import PythonTreeCore
from treedrift.backends.python_core.inspection import inspect_tree

FULL, SWA, MAMBA = ComponentType.FULL, ComponentType.SWA, ComponentType.MAMBA
AUX = ComponentType.AUXILIARY_SWA

WINDOW_OFFSET = 1000
"""The window slot of a slot of FULL lies this much higher, in both windows."""


def key(tokens: list[int], extra_key: str | None = None, salt: str | None = None) -> RadixKey:
    """A fresh key."""
    return RadixKey(array("q", tokens), extra_key, cache_salt=salt)


def plain(action: CacheAction) -> tuple[Any, ...]:
    """An action as a tuple that can be compared."""
    match action:
        case FreeDeviceKV():
            return "free", *(slots.tolist() for slots in action.indices)
        case FreeDeviceKVFullOnly():
            return "free full only", *(slots.tolist() for slots in action.indices)
        case BackupKV():
            return "backup", action.node_ids
        case UpdatePendingBackupOnNodeSplit():
            ids = (action.old_node_id, action.new_node_id, action.new_child_node_id)
            return "split", action.ack_id, *ids
        case SWARebuild():
            name = "rebuild" if action.component_type == SWA else "rebuild aux"
            return name, action.node_id, action.source_value.tolist()
        case RecoverSWAWithLockedFull():
            slots = (action.kept_full.tolist(), action.incoming_full.tolist())
            return "recover", action.node_id, *slots
        case RecoverEvictedSWA():
            return "move aux", action.kept_full.tolist(), action.incoming_full.tolist()
        case MambaEvictExcessPathStates():
            return "cap", action.tail_node_id
    raise AssertionError(action)


class Driver:
    """One core and what was said to it. `core` is there for every call without a short form."""

    def __init__(self, **params: Any) -> None:
        self.core = PythonTreeCore(CacheInitParams(**params))
        self.capped: list[list[int]] = []
        """States that the cap evicted, by each of its actions."""

    def begin(
        self,
        tokens: list[int],
        first_slot: int = 0,
        extra_key: str | None = None,
        salt: str | None = None,
        **params: Any,
    ) -> tuple[list[tuple[Any, ...]], InsertResult | None]:
        """Begin an insert of consecutive slots; its actions and, if it finished, its result."""
        value = torch.arange(first_slot, first_slot + len(tokens))
        arguments = InsertParams(key=key(tokens, extra_key, salt), value=value, **params)
        return self._shown(self.core.begin_insert(arguments))

    def resume(self) -> tuple[list[tuple[Any, ...]], InsertResult | None]:
        """Resume the insert."""
        return self._shown(self.core.resume_insert())

    def _shown(self, step: InsertStepResult) -> tuple[list[tuple[Any, ...]], InsertResult | None]:
        shown = [plain(action) for action in step.actions]
        for action in step.actions:
            self._apply(action)
        return shown, step.result

    def _apply(self, action: CacheAction) -> None:
        """Do what the cache does for a component's action."""
        match action:
            case SWARebuild():
                self._publish(action, action.source_value)
            case RecoverSWAWithLockedFull():
                self._publish(action, action.incoming_full)
            case MambaEvictExcessPathStates():
                frees: dict[ComponentType, list[torch.Tensor]] = {}
                self.core.evict_excess_path_states(action.tail_node_id, frees, {}, [])
                self.capped.append([slots.item() for slots in frees.get(MAMBA, ())])

    def _publish(self, action: SWARebuild | RecoverSWAWithLockedFull, slots: torch.Tensor) -> None:
        value = slots + WINDOW_OFFSET
        self.core.set_component_device_value(action.node_id, action.component_type, value)

    def insert(
        self, tokens: list[int], first_slot: int = 0, **params: Any
    ) -> tuple[list[tuple[Any, ...]], InsertResult]:
        """Run an insert to its end; all its actions and its result."""
        actions, result = self.begin(tokens, first_slot, **params)
        while result is None:
            more, result = self.resume()
            actions += more
        assert self.core.end_insert() == []
        return actions, result

    def leaf(self, tokens: list[int], first_slot: int = 0, **params: Any) -> int:
        """Run an insert to its end; the handle of its target."""
        _, result = self.insert(tokens, first_slot, **params)
        assert result.last_device_node is not None
        return result.last_device_node

    def match(
        self, tokens: list[int], extra_key: str | None = None, salt: str | None = None
    ) -> MatchResult:
        """Match a fresh key."""
        return self.core.match_prefix(MatchPrefixParams(key(tokens, extra_key, salt)))

    def value(self, node_id: NodeId, component: ComponentType) -> list[int] | None:
        """What a node holds of a component."""
        value = self.core.get_component_device_value(node_id, component)
        return None if value is None else value.tolist()

    def order(self, component: ComponentType) -> list[NodeId]:
        """The nodes that hold a component, most recent first."""
        return self.snapshot().lru_lists[component]

    def steps(self, component: ComponentType, count: int) -> list[Any]:
        """A whole walk that evicts its leaves: for a leaf its handle, else the frees by name."""
        shown: list[Any] = []
        tracker: dict[ComponentType, int] = {}
        self.core.evict_device_start(component, count)
        while (step := self.core.evict_device_next_node(component, tracker)).made_progress:
            result: EvictionResult = step
            shown.append(
                {
                    each.name: [slots.tolist() for slots in freed]
                    for each, freed in step.device_frees.items()
                }
            )
            if step.node_id is not None:
                shown[-1] = step.node_id
                result = self.core.evict_device_leaf(step.node_id, False)
            for each, evicted in result.tracker.items():
                tracker[each] = tracker.get(each, 0) + evicted
        self.core.evict_device_end(component)
        return shown

    def evict(self, count: int) -> list[list[int]]:
        """Walk until `count` tokens are evicted; the freed slots, victim by victim."""
        freed: list[list[int]] = []
        tracker: dict[ComponentType, int] = {}
        self.core.evict_device_start(FULL, count)
        while (step := self.core.evict_device_next_node(FULL, tracker)).node_id is not None:
            result: EvictDeviceLeafResult = self.core.evict_device_leaf(step.node_id, False)
            freed += [slots.tolist() for slots in result.device_frees[FULL]]
            tracker[FULL] = tracker.get(FULL, 0) + result.tracker[FULL]
        self.core.evict_device_end(FULL)
        return freed

    def lock(self, node_id: int, *skipped: ComponentType) -> Callable[[], None]:
        """Lock a node; returns what releases it."""
        receipt = self.core.inc_lock_ref(node_id, skipped)

        def release() -> None:
            self.core.dec_lock_ref(node_id, receipt.to_dec_params())

        return release

    def sizes(self, component: ComponentType = FULL) -> tuple[int, int]:
        """Evictable and protected tokens, or states."""
        evictable = self.core.component_evictable_size(component)
        return evictable, self.core.component_protected_size(component)

    def snapshot(self) -> TreeSnapshot:
        """The whole state, after the core's own check of it."""
        self.core.sanity_check([], [])
        return inspect_tree(self.core)


NewTree = Callable[..., Driver]


@pytest.fixture
def new_tree() -> NewTree:
    """Makes a driver around a fresh core with these parameters."""
    return Driver
