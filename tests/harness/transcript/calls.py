"""Calls made by hand, as a cache might make them on some core."""

from __future__ import annotations

from array import array
from typing import Any

import torch

from treedrift.backends.contract import (
    ComponentType,
    DecLockRefParams,
    IncLockRefResult,
    InsertParams,
    InsertResult,
    InsertStepResult,
    MatchPrefixParams,
    MatchResult,
    NodeId,
    RadixKey,
)
from treedrift.harness.transcript import Call


def key(*tokens: int) -> RadixKey:
    return RadixKey(array("q", tokens))


def match(node: NodeId, *tokens: int) -> Call:
    """A match that ends on a node."""
    result = MatchResult(len(tokens), node, node, node)
    return Call("match_prefix", {"params": MatchPrefixParams(key(*tokens))}, result)


def begin(*tokens: int, node: NodeId | None = None, **params: Any) -> Call:
    """The begin of an insert, which has its result at once if it names a node."""
    given = InsertParams(key=key(*tokens), **{"value": torch.arange(len(tokens)), **params})
    return Call("begin_insert", {"params": given}, step(node))


def resume(node: NodeId | None = None) -> Call:
    return Call("resume_insert", result=step(node))


def step(node: NodeId | None) -> InsertStepResult:
    result = None if node is None else InsertResult(0, last_device_node=node)
    return InsertStepResult([], result)


def end() -> Call:
    return Call("end_insert", result=[])


def lock(node: NodeId, mark: int | None = None, **more: Any) -> Call:
    """A lock on a node, whose window ends at a mark if there is one."""
    marks: dict[ComponentType, int | None] = {} if mark is None else {ComponentType.SWA: mark}
    skip = more.get("skip_lock_components", ())
    receipt = IncLockRefResult(0, node, tuple(skip), marks)
    return Call("inc_lock_ref", {"node_id": node, **more}, receipt)


def unlock(locked: Call, *also_skipped: ComponentType, **more: Any) -> Call:
    """The release of a lock, or of what else it does not skip."""
    return Call("dec_lock_ref", {**_receipt(locked, also_skipped), **more})


def release_window(locked: Call) -> Call:
    return Call("dec_swa_lock_only", _receipt(locked))


def _receipt(locked: Call, also_skipped: tuple[ComponentType, ...] = ()) -> dict[str, Any]:
    params: DecLockRefParams = locked.result.to_dec_params()
    params.skipped_lock_components += also_skipped
    return {"node_id": locked.result.node_id, "params": params}
