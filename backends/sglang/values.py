"""Values of a release turned into those of the contract, and back.

Converters are built once per release from the fields that both sides have: a contract field that
the release lacks keeps its default (or an empty value) and is noted as missing; a release field
that the contract lacks is an error, by name, as soon as it leaves its default. Containers are
copied on the way out, and so are the tensors that a tree keeps (BND-29); freed slots are passed on.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import torch

from .. import contract
from ..contract import (
    CacheTransferPhase,
    ComponentType,
    EvictionResult,
    PoolHitPolicy,
    PoolName,
    RadixKey,
    StorageMedium,
    UnsupportedError,
)
from .release import REQUIRED, Release, ReleaseMismatchError, fields_of

Converter = Callable[[Any], Any]

_ACTIONS = (
    "FreeDeviceKV",
    "FreeDeviceKVFullOnly",
    "BackupKV",
    "UpdatePendingBackupOnNodeSplit",
    "FreeComponentDeviceSlot",
    "FreeComponentHostSlot",
    "MambaEvictExcessPathStates",
    "RebuildFullToSWAMapping",
    "RecoverSWAWithLockedFull",
    "RecoverEvictedSWA",
    "SWARebuild",
)
_EVENTS = ("BlockStored", "BlockRemoved", "AllBlocksCleared")
_RESULTS = (
    "MatchResult",
    "InsertResult",
    "InsertStepResult",
    "IncLockRefResult",
    "DecLockRefResult",
    "EvictDeviceNextNodeResult",
    "EvictDeviceLeafResult",
    "DemoteResult",
    "DropSubtreeNoHostResult",
    "DriveHostEvictionResult",
    "DecSwaLockOnlyResult",
    "RadixCacheWalkResult",
    "TreePathNodeInfo",
    "PoolTransfer",
    "StorageBackupSpec",
    "BufferBackupSnapshot",
    "BufferBackupState",
)
_PARAMS = (
    "MatchPrefixParams",
    "InsertParams",
    "DecLockRefParams",
    "PoolTransfer",
    "PoolTransferResult",
    "InsertResult",
    "CacheInitParams",
)
_DRAINED = ("device_frees", "host_frees", "cache_actions")
# Fields that older releases tell in another way: the field to read, and what to make of it.
_TOLD_OTHERWISE: dict[tuple[str, str], tuple[str, Converter]] = {
    ("MatchResult", "device_prefix_len"): ("device_indices", len),
}
# A released server publishes these two apart from the parameters (CFG-5).
_PUBLISHED_APART = {"mamba_cache_chunk_size", "mamba_max_states_per_path"}


class _Table(dict[Any, Any]):
    """Members of one enumeration by those of the other; a new member is named, not guessed."""

    def __missing__(self, key: object) -> Any:
        raise ReleaseMismatchError(f"the contract has no place for {key!r}")


class Values:
    """Converters between one release and the contract."""

    def __init__(self, release: Release) -> None:
        self._release = release
        self._build_tables()
        outward = self._outward_fields()
        self._action_out: dict[Any, Converter] = {}
        self._event_out: dict[Any, Converter] = {}
        self._result_out: dict[Any, Converter] = {}
        for name in _ACTIONS:
            self._register(name, self._action_out, outward)
        for name in _EVENTS:
            self._register(name, self._event_out, outward)
        for name in _RESULTS:
            self._register(name, self._result_out, outward)
        inward = self._inward_fields()
        self._param_in: dict[str, Converter] = {}
        for name in _PARAMS:
            if release.find(name) is None:
                release.note_missing("contract", {name})
            else:
                self._param_in[name] = self._inward(name, inward)

    # --- Tables ---------------------------------------------------------------------------

    def _build_tables(self) -> None:
        components, pools = self._release.type("ComponentType"), self._release.type("PoolName")
        policies = self._release.type("PoolHitPolicy")
        known = {member.value: member for member in components}
        self._component_in = {ours: known[ours] for ours in ComponentType if ours in known}
        self._component_out = _Table({theirs: ours for ours, theirs in self._component_in.items()})
        self._pool_in = _by_value(PoolName, pools)
        self._pool_out = _Table({theirs: ours for ours, theirs in self._pool_in.items()})
        self._policy_in = _by_value(PoolHitPolicy, policies)
        self._policy_out = _Table({theirs: ours for ours, theirs in self._policy_in.items()})
        self._phase_in = _by_value(CacheTransferPhase, self._release.type("CacheTransferPhase"))
        # Events carry plain strings in some releases and an enumeration of strings in others.
        self._medium_out = _Table({member.value: member for member in StorageMedium})
        key_parameters = inspect.signature(self._release.type("RadixKey")).parameters
        self._key_type = self._release.type("RadixKey")
        self._key_has_salt = "cache_salt" in key_parameters
        self._key_has_limit = "limit" in key_parameters
        lacking = {"cache_salt", "limit"} - set(key_parameters)
        self._release.note_missing("RadixKey", lacking)

    def _outward_fields(self) -> dict[str, Converter]:
        return {
            "component_type": self._component_out.__getitem__,
            "cache_actions": self.actions_out,
            "actions": self.actions_out,
            "device_frees": self.frees_out,
            "host_frees": self.frees_out,
            "tracker": self.component_map_out,
            "skipped_lock_components": lambda value: tuple(map(self.component_out, value)),
            "component_lock_uuids": self.component_map_out,
            "component_host_lock_uuids": self.component_map_out,
            "adopted_ranges": self._ranges_out,
            "result": lambda value: None if value is None else self.result_out(value),
            "backup_kv": lambda value: None if value is None else self.action_out(value),
            "name": self._pool_out.__getitem__,
            "indices_from_pool": lambda value: None if value is None else self._pool_out[value],
            "hit_policy": self._policy_out.__getitem__,
            "medium": lambda value: None if value is None else self._medium_out[str_of(value)],
            "comp_xfers": self.transfers_out,
            "key": self.key_out,
            "indices": list,
            "node_ids": list,
            "source_value": _owned,
            "kept_full": _owned,
            "full_indices": _all_owned,
            "swa_indices": list,
            "host_indices": _owned,
            "device_indices": _owned,
            "host_value": _owned,
            "block_hashes": list,
            "token_ids": _owned,
            "hash_values": _owned,
            "hash_value": _owned,
            "prefix_keys": _owned,
            "keys": _owned,
            "nodes_to_load": _owned,
        }

    def _inward_fields(self) -> dict[str, Converter]:
        return {
            "key": self.key_in,
            # The tree would keep the caller's own tensor (BND-29).
            "mamba_value": _cloned,
            "c128_value": _cloned,
            "component_evicted_seqlens": self.component_map_in,
            "skipped_lock_components": self.components_in,
            "component_lock_uuids": self.component_map_in,
            "component_host_lock_uuids": self.component_map_in,
            "tree_components": self.components_in,
            "adopted_ranges": lambda value: None if value is None else self.component_map_in(value),
            "cache_actions": lambda value: [],
            "name": lambda value: self._pool_in.get(value, value),
            "indices_from_pool": lambda value: self._pool_in.get(value, value),
            "hit_policy": lambda value: self._policy_in.get(value, value),
            "keys": _owned,
            "nodes_to_load": _owned,
        }

    # --- Building converters --------------------------------------------------------------

    def _register(
        self, name: str, table: dict[Any, Converter], fields: Mapping[str, Converter]
    ) -> None:
        theirs = self._release.find(name)
        if theirs is None:
            self._release.note_missing("contract", {name})
        else:
            table[theirs] = self._outward(name, theirs, fields)

    def _outward(self, name: str, theirs: Any, convert: Mapping[str, Converter]) -> Converter:
        ours: Any = getattr(contract, name)
        our_fields, their_fields = fields_of(ours), fields_of(theirs)
        shared = [(key, key, convert.get(key)) for key in our_fields if key in their_fields]
        lacking = set(our_fields) - set(their_fields)
        for key in sorted(lacking):
            source, made = _TOLD_OTHERWISE.get((name, key), ("", None))
            if source in their_fields:
                shared.append((key, source, made))
                lacking.remove(key)
        self._release.note_missing(name, lacking)
        stand_ins = {
            key: _stand_in(ours, key) for key in sorted(lacking) if our_fields[key] is REQUIRED
        }
        used = {source for _, source, _ in shared}
        extra = [(key, made) for key, made in their_fields.items() if key not in used]

        def out(value: Any) -> Any:
            for key, default in extra:
                if default is REQUIRED or _differs(getattr(value, key), default()):
                    raise ReleaseMismatchError(f"the contract has no place for {name}.{key}")
            return ours(
                **stand_ins,
                **{
                    key: getattr(value, source) if made is None else made(getattr(value, source))
                    for key, source, made in shared
                },
            )

        return out

    def _inward(self, name: str, convert: Mapping[str, Converter]) -> Converter:
        our_fields = fields_of(getattr(contract, name))
        theirs = self._release.type(name)
        their_fields = fields_of(theirs)
        lacking = set(our_fields) - set(their_fields) - _PUBLISHED_APART
        self._release.note_missing(name, lacking)
        shared = [(key, convert.get(key)) for key in our_fields if key in their_fields]
        # A tree can't be built without a feature that was asked for; a call goes without a hint.
        # The default of the names is an object of its own, which can't be compared.
        strict = sorted(lacking - {"kv_event_lora_names"}) if name == "CacheInitParams" else []
        refused = [(key, our_fields[key]) for key in strict]
        # `disable` switches the cache around a core off, not the core.
        fixed = {"disable": False} if "disable" in their_fields else {}
        demanded = {key for key, made in their_fields.items() if made is REQUIRED}
        if unknown := sorted(demanded - set(our_fields) - set(fixed)):
            raise ReleaseMismatchError(f"{name} of the installed sglang demands {unknown}")

        def into(value: Any) -> Any:
            for key, default in refused:
                if default is REQUIRED or _differs(getattr(value, key), default()):
                    raise UnsupportedError(f"the installed sglang has no {name}.{key}")
            return theirs(
                **fixed,
                **{
                    key: getattr(value, key) if made is None else made(getattr(value, key))
                    for key, made in shared
                },
            )

        return into

    # --- Out of the release ---------------------------------------------------------------

    def component_out(self, value: Any) -> ComponentType:
        """A component of the contract."""
        found: ComponentType = self._component_out[value]
        return found

    def component_map_out(self, value: Mapping[Any, Any]) -> dict[ComponentType, Any]:
        """A copy of a map with components as its keys."""
        return {self._component_out[key]: item for key, item in value.items()}

    def frees_out(self, value: Mapping[Any, Iterable[Any]]) -> dict[ComponentType, list[Any]]:
        """Freed tensors per component; one that freed nothing has no entry (BND-16).

        What a window frees is named by full slots that the tree still holds (CMP-4).
        """
        freed = {self._component_out[key]: list(items) for key, items in value.items() if items}
        if (windows := freed.get(ComponentType.SWA)) is not None:
            freed[ComponentType.SWA] = _all_owned(windows)
        return freed

    def _ranges_out(self, value: Any) -> Any:
        if value is None:
            return None
        return {self._component_out[key]: list(items) for key, items in value.items()}

    def action_out(self, value: Any) -> Any:
        """One cache action."""
        convert = self._action_out.get(type(value))
        if convert is None:
            raise ReleaseMismatchError(f"the contract has no action {type(value).__name__}")
        return convert(value)

    def actions_out(self, values: Iterable[Any]) -> list[Any]:
        """A fresh list of cache actions, in order."""
        return [self.action_out(value) for value in values]

    def event_out(self, value: Any) -> Any:
        """One KV event."""
        convert = self._event_out.get(type(value))
        if convert is None:
            raise ReleaseMismatchError(f"the contract has no event {type(value).__name__}")
        return convert(value)

    def result_out(self, value: Any) -> Any:
        """A result of any method, by the name of its type."""
        convert = self._result_out.get(type(value))
        if convert is None:
            raise ReleaseMismatchError(f"the contract has no result {type(value).__name__}")
        return convert(value)

    def eviction_out(self, value: Any) -> EvictionResult:
        """A result with freed slots; the released one is drained for its finalizer (BND-19)."""
        result: EvictionResult = self.result_out(value)
        for name in _DRAINED:
            if (held := getattr(value, name, None)) is not None:
                held.clear()
        return result

    def transfers_out(self, value: Mapping[Any, Iterable[Any]]) -> dict[ComponentType, list[Any]]:
        """Transfers per component."""
        return {
            self._component_out[key]: [self.result_out(item) for item in items]
            for key, items in value.items()
        }

    def pool_out(self, value: Any) -> PoolName:
        """A pool's name, given as a member or as its plain string."""
        return value if isinstance(value, PoolName) else PoolName(str_of(value))

    def key_out(self, value: Any) -> RadixKey:
        """A key with tokens of its own."""
        return RadixKey(
            value.token_ids[:],
            value.extra_key,
            value.is_bigram,
            getattr(value, "limit", None),
            getattr(value, "cache_salt", None),
        )

    # --- Into the release -----------------------------------------------------------------

    def component_in(self, value: Any) -> Any:
        """A component of the release; what is no component is passed on for the core to refuse."""
        return self._component_in.get(value, value)

    def phase_in(self, value: Any) -> Any:
        """A transfer phase of the release; anything else is passed on as it is."""
        return self._phase_in.get(value, value)

    def components_in(self, values: Iterable[Any]) -> tuple[Any, ...]:
        """Components of the release, in order."""
        return tuple(self._component_in.get(value, value) for value in values)

    def component_map_in(self, value: Mapping[Any, Any]) -> dict[Any, Any]:
        """A copy of a map with the release's components as its keys."""
        return {self._component_in.get(key, key): item for key, item in value.items()}

    def transfers_in(self, value: Mapping[Any, Iterable[Any]]) -> dict[Any, list[Any]]:
        """Transfers per component."""
        convert = self._param_in["PoolTransfer"]
        return {
            self._component_in.get(key, key): [convert(item) for item in items]
            for key, items in value.items()
        }

    def param_in(self, value: Any) -> Any:
        """A parameter object, by the name of its type; anything else is passed on as it is."""
        convert = self._param_in.get(type(value).__name__)
        return value if convert is None else convert(value)

    def key_in(self, value: Any) -> Any:
        """A fresh key with tokens of its own: a core may flip or keep what it is given (PLUG-9)."""
        if not isinstance(value, RadixKey):
            return value
        more: dict[str, Any] = {}
        if value.limit is not None:
            more["limit"] = self._supported(self._key_has_limit, "limit", value.limit)
        if value.cache_salt is not None:
            more["cache_salt"] = self._supported(self._key_has_salt, "cache_salt", value.cache_salt)
        return self._key_type(value.token_ids[:], value.extra_key, value.is_bigram, **more)

    def _supported(self, is_there: bool, name: str, value: Any) -> Any:
        if not is_there:
            raise UnsupportedError(f"the installed sglang has no RadixKey.{name}")
        return value


def str_of(value: Any) -> Any:
    """The plain value of an enumeration's member; anything else as it is."""
    return getattr(value, "value", value)


def _stand_in(ours: Any, name: str) -> Any:
    """What a field that the release lacks holds where the contract has no default: nothing."""
    kinds = {field.name: field.type for field in msgspec.structs.fields(ours)}
    kind = kinds[name]
    return kind() if kind in (bool, int, str) else None


def _by_value(ours: Any, theirs: Any) -> dict[Any, Any]:
    known = {member.value: member for member in theirs}
    return {member: known[member.value] for member in ours if member.value in known}


def _owned(value: Any) -> Any:
    """A list, an array or a tensor that the tree can't reach any more; None as it is (BND-29)."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    return None if value is None else value[:]


def _all_owned(values: Iterable[Any]) -> list[Any]:
    return [_owned(value) for value in values]


def _cloned(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _differs(value: Any, default: Any) -> bool:
    if value is default:
        return False
    return isinstance(value, torch.Tensor) or bool(value != default)
