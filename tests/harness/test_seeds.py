"""Seeds show on the Python core what their notes say; the order of victims is what tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from treedrift.backends.python_core import PythonTreeCore
from treedrift.harness import observation, ops
from treedrift.harness.side import LocalSide, Settings
from treedrift.harness.trace import Trace, read_trace

SEEDS = Path(__file__).parents[2] / "corpora" / "seeds"
SMALL = sorted(path for path in SEEDS.glob("*.jsonl") if not path.stem.startswith("mooncake"))


def replay(trace: Trace) -> list[observation.Observation]:
    side = LocalSide(PythonTreeCore, None)
    assert side.open(trace.header.config, Settings(tree_every=1)) is None
    batches = (side.run(trace.ops), side.finish())
    return [observation.decode(data) for batch in batches for data in batch.observations]


def calls_of(name: str, method: str) -> list[Any]:
    """What a method answered, call by call."""
    seen = replay(read_trace(SEEDS / f"{name}.jsonl"))
    return [call[2][1] for step in seen for call in step.calls if call[0] == method]


def victims(name: str) -> list[list[int]]:
    """The slots that evictions freed, leaf by leaf, in order."""
    return [frees[0][1][0] for _, frees, *_ in calls_of(name, "evict_device_leaf")]


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_a_seed_runs_without_a_finding(path: Path) -> None:
    trace = read_trace(path)
    seen = replay(trace)
    assert [finding for step in seen for finding in step.findings] == []
    refused = [op for op, step in zip(trace.ops, seen, strict=False) if step.outcome]
    assert all(ops.is_hostile(op) for op in refused)


def test_the_order_by_shared_subtrees_is_that_of_the_example() -> None:
    assert calls_of("match-insert-x7", "dfs_weight_order")[0] == [2, 4, 3, 1, 5, 6, 7, 0, 9, 8]


def test_a_split_refreshes_the_rest_that_was_not_matched() -> None:
    assert victims("match-insert-x11") == [
        [5],
        [3, 4],
        [1, 2],
        [10],
        [11],
        [8, 9],
        [14],
        [6, 7],
    ]
    assert victims("match-insert-x11-fifo") == [[3, 4], [5], [8], [1, 2]]


def test_tail_safe_nodes_go_first() -> None:
    assert victims("evict-lock-x4") == [[19, 20], [21, 22], [11, 12], [5, 6], [1, 2]]


def test_a_lock_keeps_a_path_and_its_release_gives_it_up() -> None:
    assert victims("evict-lock-x1") == [[7, 8], [9, 10], [3, 4], [1, 2]]


@pytest.mark.parametrize("policy", ["lfu", "mru", "filo", "priority", "slru"])
def test_the_seed_of_a_policy_tells_it_from_lru(policy: str) -> None:
    trace = read_trace(SEEDS / f"evict-policy-{policy}.jsonl")
    config = {name: getattr(trace.header.config, name) for name in ("capacity", "page_size")}
    plain = Trace(trace.header, trace.ops)
    plain.header.config = type(trace.header.config)(**config)
    freed = [
        call[2][1][1]
        for step in replay(plain)
        for call in step.calls
        if call[0] == "evict_device_leaf"
    ]
    assert [frees[0][1][0] for frees in freed] != victims(f"evict-policy-{policy}")


def test_salts_give_equal_tokens_different_hashes() -> None:
    (_, first, second) = calls_of("case-21-salted-events", "take_events")[0]
    assert not set(first[1]) & set(second[1])


def test_a_split_of_a_pending_node_tells_of_both_parts() -> None:
    steps = calls_of("case-09-split-in-flight", "begin_insert")
    assert steps[1][1][0][0] == "UpdatePendingBackupOnNodeSplit"
    assert [action[0] for action in steps[1][1]][1:] == ["FreeDeviceKV", "BackupKV"]


def test_a_host_lock_makes_a_drop_refuse() -> None:
    drops = calls_of("case-23-refused-drop", "drop_subtree_no_host")
    assert [drop[-1] for drop in drops[:3]] == [True, False, True]
