"""Behaviours that the recording proxy counts as results pass: splits, evictions, declines, errors.

They make a blind generator seen: a run that never evicts has not compared evictions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

Counts = Counter[str]


def _match(counts: Counts, result: Any, is_new: Callable[[Any], bool]) -> None:
    counts["match.hit" if result.device_prefix_len else "match.miss"] += 1
    if result.last_visited_node_id is not None and is_new(result.last_visited_node_id):
        counts["match.split"] += 1
    if result.swa_branching_seqlen is not None or result.mamba_branching_seqlen is not None:
        counts["match.branching"] += 1


def _insert(counts: Counts, step: Any, is_new: Callable[[Any], bool]) -> None:
    for action in step.actions:
        counts[f"action.{type(action).__name__}"] += 1
    if step.result is None:
        counts["insert.suspended"] += 1
    elif step.result.rotation_tail_declined:
        counts["insert.declined"] += 1
    elif step.result.mamba_exist:
        counts["insert.state_was_there"] += 1
    elif step.result.prefix_len:
        counts["insert.overlap"] += 1
    else:
        counts["insert.fresh"] += 1


def _evict_leaf(counts: Counts, result: Any, is_new: Callable[[Any], bool]) -> None:
    counts["evict.write_back" if result.backup_kv is not None else "evict.leaf"] += 1


def _next_node(counts: Counts, result: Any, is_new: Callable[[Any], bool]) -> None:
    if result.node_id is not None:
        counts["evict.offered"] += 1
    else:
        counts["evict.internal" if result.made_progress else "evict.exhausted"] += 1


def _drop(counts: Counts, result: Any, is_new: Callable[[Any], bool]) -> None:
    counts["drop.dropped" if result.is_dropped else "drop.refused"] += 1


def _lock(counts: Counts, result: Any, is_new: Callable[[Any], bool]) -> None:
    counts["lock.moved" if result.delta else "lock.nothing_moved"] += 1


def _release_window(counts: Counts, result: Any, is_new: Callable[[Any], bool]) -> None:
    counts["lock.window_released"] += 1


def _attach(counts: Counts, actions: Any, is_new: Callable[[Any], bool]) -> None:
    counts["window.attached"] += 1


def _events(counts: Counts, events: Any, is_new: Callable[[Any], bool]) -> None:
    for event in events:
        counts[f"event.{type(event).__name__}"] += 1


WATCHED: dict[str, Callable[[Counts, Any, Callable[[Any], bool]], None]] = {
    "match_prefix": _match,
    "begin_insert": _insert,
    "resume_insert": _insert,
    "evict_device_leaf": _evict_leaf,
    "evict_device_next_node": _next_node,
    "drop_subtree_no_host": _drop,
    "inc_lock_ref": _lock,
    "dec_swa_lock_only": _release_window,
    "attach_swa_window": _attach,
    "take_events": _events,
}
"""Methods whose results are counted as behaviours."""

EXPECTED_BEHAVIOURS = (
    "match.hit",
    "match.miss",
    "match.split",
    "insert.fresh",
    "insert.overlap",
    "insert.suspended",
    "insert.declined",
    "action.FreeDeviceKV",
    "action.FreeDeviceKVFullOnly",
    "action.BackupKV",
    "action.UpdatePendingBackupOnNodeSplit",
    "evict.leaf",
    "evict.write_back",
    "evict.exhausted",
    "drop.dropped",
    "lock.moved",
    "event.BlockStored",
    "event.BlockRemoved",
    "event.AllBlocksCleared",
)
"""Behaviours that a long run of the `full` profile must reach on the device tier."""
