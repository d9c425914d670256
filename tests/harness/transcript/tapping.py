"""A tap on a core that makes calls of it, and what is compared between a run and its replay."""

from __future__ import annotations

import inspect
from array import array
from collections import Counter
from typing import Any, cast

import msgspec
import torch

from treedrift.backends.contract import CacheInitParams, RadixKey, TreeCore
from treedrift.backends.registry import local_backend
from treedrift.harness.canonical import HANDLE_FIELDS, HANDLE_LIST_FIELDS, RECEIPT_FIELDS
from treedrift.harness.config import Config
from treedrift.harness.ops import AnyOp
from treedrift.harness.recorder import BUFFERS, SETTINGS, recorded_methods
from treedrift.harness.side import LocalSide, Settings
from treedrift.harness.trace import Trace, dump_trace, new_trace, parse_trace
from treedrift.harness.transcript import Call, Pseudonyms, Room, Transcript, config_of
from treedrift.harness.transcript.part import NamingKind

SETTINGS_OF_SIDES = Settings(model=False, watch_free_list=False, tree_every=2**62)


def copied(item: Any) -> Any:
    """A value of the contract that shares nothing with it."""
    match item:
        case torch.Tensor():
            return item.clone()
        case RadixKey():
            own = array("q", item.token_ids)
            return RadixKey(own, item.extra_key, item.is_bigram, item.limit, item.cache_salt)
        case msgspec.Struct():
            fields = {name: copied(getattr(item, name)) for name in item.__struct_fields__}
            return type(item)(**fields)
        case dict():
            return {key: copied(value) for key, value in item.items()}
        case list() | tuple():
            return type(item)(copied(one) for one in item)
        case _:
            return item


class _TappedEvents:
    def __init__(self, tap: Tap) -> None:
        self._tap = tap

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tap.core.kv_events, name)
        if name == "record_all_cleared":
            return lambda: self._tap.call(f"kv_events.{name}", {}, found)
        return found


class Tap:
    """A core in front of another one. `heard` are the calls while it listens."""

    def __init__(self, core: TreeCore) -> None:
        vars(self).update(core=core, heard=[], is_listening=True, kv_events=_TappedEvents(self))

    core: TreeCore
    heard: list[Call]
    is_listening: bool

    def call(self, method: str, arguments: dict[str, Any], act: Any, buffers: Any = ()) -> Any:
        """Make one call and hear it."""
        call = Call(method, arguments)
        if self.is_listening:
            self.heard.append(call)
        try:
            result = act()
        except Exception as error:
            call.error = error
            raise
        call.result = copied(result)
        call.filled = {name: copied(given) for name, given in dict(buffers).items()}
        return result

    def __getattr__(self, name: str) -> Any:
        if name == "empty_match_result":
            return self.call(name, {}, lambda: self.core.empty_match_result)
        found = getattr(self.core, name)
        if name not in _METHODS:
            return found
        signature = inspect.signature(found)

        def tapped(*positional: Any, **keywords: Any) -> Any:
            bound = signature.bind(*positional, **keywords).arguments
            buffers = {key: bound.pop(key) for key in BUFFERS & bound.keys()}
            given = {
                key: copied(value)
                for key, value in bound.items()
                if key not in signature.parameters or value != signature.parameters[key].default
            }
            return self.call(name, given, lambda: found(*positional, **keywords), buffers)

        return tapped

    def __setattr__(self, name: str, new: Any) -> None:
        if name == "is_listening":
            vars(self)[name] = new
        else:
            assert name in SETTINGS
            self.call(f"{name} =", {"value": new}, lambda: setattr(self.core, name, new))


_METHODS = frozenset(recorded_methods())


class TappedSide(LocalSide):
    """A side whose core is tapped while ops run, and not while the side looks at it."""

    def __init__(self, core_name: str = "python") -> None:
        create = local_backend(core_name).create

        def tapped(params: CacheInitParams) -> TreeCore:
            self.params, self.tap = params, Tap(create(params))
            return cast(TreeCore, self.tap)

        super().__init__(tapped)

    def open(self, config: Config, settings: Settings) -> str | None:
        """Build the side; what the cache does first is heard, other reads are not."""
        refused = super().open(config, settings)
        if refused is None:
            self.tap.is_listening = False
        return refused

    def _dispatch(self, op: AnyOp) -> None:
        self.tap.is_listening = True
        try:
            super()._dispatch(op)
        finally:
            self.tap.is_listening = False


def run_tapped(config: Config, ops: list[AnyOp], core_name: str = "python") -> TappedSide | None:
    """A tapped side after a run of ops that finds nothing; None if the core refuses to be built."""
    side = TappedSide(core_name)
    if side.open(config, SETTINGS_OF_SIDES) is not None:
        return None
    seen = side.run(ops)
    assert not seen.alarms
    assert not side.dead
    return side


# --- What is compared -----------------------------------------------------------------------

COMPARED = frozenset(
    {
        "attach_swa_window",
        "begin_insert",
        "dec_swa_lock_only",
        "drive_host_eviction",
        "drop_subtree_no_host",
        "evict_device_leaf",
        "evict_device_next_node",
        "evict_device_start",
        "evict_excess_path_states",
        "finish_external_linker_offload",
        "mark_external_cache_stored_path",
        "mark_external_linker_offload_pending",
        "match_prefix",
        "resume_insert",
        "set_component_device_value",
        "take_events",
    }
)
"""Calls that change a tree or say how it was changed."""


class Comparable:
    """Answers of one side with its handles, receipts and hashes numbered, and slots counted."""

    def __init__(self, *, with_tokens: bool) -> None:
        self._with_tokens = with_tokens
        self._numbers: dict[Any, int] = {}

    def answers(self, calls: list[Call]) -> list[Any]:
        """What is compared of calls, in order."""
        return [
            [call.method, self._plain(call.result), self._plain(call.filled)]
            for call in calls
            if call.method in COMPARED and call.error is None
        ]

    def _number(self, kind: str, item: Any) -> Any:
        if item is None:
            return None
        return self._numbers.setdefault((kind, item), len(self._numbers))

    def _plain(self, item: Any, name: str = "") -> Any:
        if name in HANDLE_FIELDS:
            return self._number("node", item)
        if name in HANDLE_LIST_FIELDS:
            return [self._number("node", one) for one in item or []]
        if name in RECEIPT_FIELDS:
            return [(int(kind), self._number("uuid", item[kind])) for kind in sorted(item)]
        if name == "lora_name":
            return None  # Names of adapters are no part of a transcript.
        if not self._with_tokens and name in ("block_hashes", "token_ids"):
            return len(item)
        if not self._with_tokens and name in ("cache_salt", "parent_block_hash", "session_id"):
            return item is None
        match item:
            case torch.Tensor():
                return item.numel()
            case msgspec.Struct():
                fields = {
                    key: self._plain(getattr(item, key), key) for key in item.__struct_fields__
                }
                return [type(item).__name__, fields]
            case dict():
                return [(key, self._plain(item[key])) for key in sorted(item)]
            case list() | tuple():
                return [self._plain(one) for one in item]
            case _:
                return item


# --- Transcripts ------------------------------------------------------------------------------


def room_of(config: Config) -> Room:
    """The room of a server whose pools are those of a configuration."""
    window = None if config.window_ring else config.window_capacity or config.capacity
    return Room(
        slots=config.capacity,
        row_length=config.row_length,
        window_slots=window,
        states=config.states,
    )


def transcribed(side: TappedSide, naming: NamingKind = Pseudonyms) -> tuple[Trace, Counter[str]]:
    """What a tapped side did, as a trace that was written and read; and what can't be told."""
    config = config_of(side.params, room_of(side.config))
    transcript = Transcript(config, naming())
    told = [op for call in side.tap.heard for op in transcript.tell(call)]
    trace = new_trace(config, told + transcript.finish())
    return parse_trace(dump_trace(trace), "the transcript"), transcript.untold
