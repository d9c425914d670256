"""The gate: every part of the contract is driven by an op and read by the comparison.

A spy between recorder and core notes what a few hundred generated cases call, pass and get. A
method counts as driven when a call of it returned; a parameter or field when at least two
different values of it were seen. What is not driven yet stands in `UNDRIVEN`, and only there.
"""

from __future__ import annotations

import inspect
from enum import Enum
from typing import Any, cast

import msgspec
import pytest
import torch

from treedrift.backends import contract
from treedrift.backends.contract import CacheInitParams, TreeCore
from treedrift.backends.python_core import PythonTreeCore
from treedrift.harness.ops import AnyOp
from treedrift.harness.recorder import UNRECORDED
from treedrift.harness.side import LocalSide, Settings
from treedrift.models.profiles import PROFILES
from treedrift.models.swarm import generate_case

CASES_MAX = 100
"""Cases per profile at most; the search ends when nothing is missing any more."""

UNDRIVEN_FOR = {
    "there is no host tier yet": """
        BlockRemoved.medium
        BlockStored.medium
        DemoteResult
        DriveHostEvictionResult.cache_actions
        DriveHostEvictionResult.device_frees
        DriveHostEvictionResult.host_frees
        DropSubtreeNoHostResult.cache_actions
        DropSubtreeNoHostResult.host_frees
        EvictDeviceLeafResult.cache_actions
        EvictDeviceLeafResult.host_frees
        EvictDeviceNextNodeResult.host_frees
        EvictDeviceNextNodeResult.mamba_backup_node_id
        EvictDeviceNextNodeResult.swa_backup_node_id
        EvictDeviceNextNodeResult.swa_backup_num_tokens
        EvictDeviceNextNodeResult.unbacked_tokens
        FreeComponentHostSlot
        InsertResult.host_insert_dropped
        InsertResult.inserted_host_node
        InsertResult.total_len
        MatchResult.host_hit_length
        MatchResult.mamba_host_hit_length
        MatchResult.swa_host_hit_length
        PoolTransfer.host_indices
        PoolTransfer.nodes_to_load
        RebuildFullToSWAMapping
        build_backup_spec
        build_hicache_transfers
        build_load_back_spec
        commit_backup
        commit_hicache_transfers
        commit_load_back
        demote
        finish_load_back
        finish_mamba_state_eviction
        finish_swa_state_eviction
        finish_write_through
        insert_host
        mark_write_through_pending
        set_hicache_enabled
    """,
    "there is no storage and no other pool yet": """
        PoolTransfer.block_pages
        PoolTransfer.group_pages
        PoolTransfer.indices_from_pool
        PoolTransferResult
        StorageBackupSpec
        buffer_backup_pool_keys(hash_values)
    """,
    "both our cores refuse it": """
        CacheInitParams.enable_session_radix_cache
    """,
    "the cache makes it, and no core is told": """
        FreeComponentDeviceSlot
    """,
    "no core reads or sets it": """
        BlockStored.lora_id
        CacheInitParams.req_to_token_pool
        DecLockRefResult.delta
        DecSwaLockOnlyResult.cache_actions
        DecSwaLockOnlyResult.host_frees
        DecSwaLockOnlyResult.tracker
        EvictDeviceNextNodeResult.cache_actions
        InsertParams.c128_value
        InsertResult.cache_actions
        MambaEvictExcessPathStates.component_type
        MatchPrefixParams.cow_mamba
        MatchPrefixParams.req
        MatchResult.cache_protected_len
        MatchResult.full_device_match_len
        RecoverEvictedSWA.component_type
        RecoverSWAWithLockedFull.component_type
        UpdatePendingBackupOnNodeSplit.component_type
        evict_excess_path_states(cache_actions)
        evict_excess_path_states(host_frees)
    """,
    "the contract leaves its form open": """
        node_by_id
        pretty_print
    """,
}
"""What no op drives or no comparison reads yet, by reason. This list only shrinks.

A method stands for its parameters too, and a record for its fields.
"""
UNDRIVEN = {part for parts in UNDRIVEN_FOR.values() for part in parts.split()}


class Seen:
    """Names of methods, parameters and fields, each with up to two different values."""

    def __init__(self) -> None:
        self._values: dict[str, set[str]] = {}

    def note(self, name: str, value: Any) -> None:
        """A value of a parameter, field or attribute, and everything inside it."""
        values = self._values.setdefault(name, set())
        if len(values) < 2:
            values.add(_text(value))
        self.look_into(value)

    def look_into(self, value: Any) -> None:
        if isinstance(value, msgspec.Struct):
            kind = type(value).__name__
            self.call(kind)
            for field in value.__struct_fields__:
                self.note(f"{kind}.{field}", getattr(value, field))
        elif isinstance(value, dict | list | tuple):
            for item in value.values() if isinstance(value, dict) else value:
                self.look_into(item)

    def call(self, name: str) -> None:
        """A call that returned, or a record that was seen; these need no second value."""
        self._values.setdefault(name, set()).update(("called", "returned"))

    def driven(self) -> set[str]:
        return {name for name, values in self._values.items() if len(values) > 1}


def _text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return str(value.tolist())
    return value.name if isinstance(value, Enum) else repr(value)


class Spy:
    """A core that notes what goes in and out."""

    def __init__(self, core: TreeCore, seen: Seen) -> None:
        self.__dict__.update(_core=core, _seen=seen)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._core, name)
        if name.startswith("_") or name not in CONTRACT_NAMES:
            return found
        if not callable(found):
            self._seen.call(name)
            self._seen.look_into(found)
            return found
        signature = inspect.signature(getattr(TreeCore, name))

        def call(*positional: Any, **keywords: Any) -> Any:
            result = found(*positional, **keywords)
            bound = signature.bind(self, *positional, **keywords)
            bound.apply_defaults()
            for parameter, value in bound.arguments.items():
                if parameter != "self":
                    self._seen.note(f"{name}({parameter})", value)
            self._seen.call(name)
            self._seen.look_into(result)
            return result

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        self._seen.note(f"{name}(value)", value)
        setattr(self._core, name, value)


ASSIGNED = (
    "enable_storage",
    "enable_external_cache_linker",
    "write_through_threshold",
    "is_write_back",
    "has_swa_host_pool",
)
CONTRACT_NAMES = {
    name for name in (*vars(TreeCore), *TreeCore.__annotations__) if not name.startswith("_")
}


RECORDS = {
    record.__name__: record.__struct_fields__
    for record in vars(contract).values()
    if isinstance(record, type) and issubclass(record, msgspec.Struct)
}
"""Every record that a core takes or gives, with its fields."""
# The cache takes the first and calls a core with its numbers; the second is only a base.
del RECORDS["EvictParams"], RECORDS["EvictionResult"]


def contract_parts() -> set[str]:
    """Methods, attributes, records, parameters as `method(name)`, fields as `Record.name`."""
    parts = CONTRACT_NAMES | RECORDS.keys() | {f"{name}(value)" for name in ASSIGNED}
    for name in CONTRACT_NAMES:
        method = vars(TreeCore).get(name)
        if inspect.isfunction(method):
            names = list(inspect.signature(method).parameters)[1:]
            parts |= {f"{name}({parameter})" for parameter in names}
    for record, fields in RECORDS.items():
        parts |= {f"{record}.{field}" for field in fields}
    return parts


def _whole(part: str) -> str:
    """The method of a parameter, the record of a field; anything else is whole."""
    return part.partition("(")[0].partition(".")[0]


def undriven_parts(driven: set[str]) -> set[str]:
    """What was not driven, without the parts of wholes that were not driven either."""
    missing = contract_parts() - driven
    return {part for part in missing if _whole(part) == part or _whole(part) not in missing}


@pytest.fixture(scope="module")
def undriven() -> set[str]:
    seen = Seen()

    def factory(params: CacheInitParams) -> TreeCore:
        seen.look_into(params)
        return cast(TreeCore, Spy(PythonTreeCore(params), seen))

    for seed in range(CASES_MAX):
        for profile in PROFILES.values():
            config, ops = generate_case(seed, profile, hostile=seed % 2 == 1)
            side = LocalSide(factory)
            if side.open(config, Settings()) is None:
                side.run(cast(list[AnyOp], ops))
                side.finish()
        if undriven_parts(seen.driven()) <= UNDRIVEN:
            break
    return undriven_parts(seen.driven())


def test_every_part_of_the_contract_is_driven_or_listed_with_its_reason(
    undriven: set[str],
) -> None:
    missing = sorted(undriven - UNDRIVEN)
    assert not missing, "no op drives: " + ", ".join(missing)


def test_the_list_of_undriven_parts_only_shrinks(undriven: set[str]) -> None:
    stale = sorted(UNDRIVEN - undriven)
    assert not stale, "driven now, or unknown; take it off the list: " + ", ".join(stale)


def test_the_comparison_reads_every_method_but_those_listed() -> None:
    assert {name for name in UNRECORDED if not name.startswith("_")} <= UNDRIVEN
