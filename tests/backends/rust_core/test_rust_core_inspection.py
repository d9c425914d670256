"""The inspection build shows the tree that was made."""

from __future__ import annotations

from array import array

import pytest
import torch

from treedrift.backends.contract import (
    CacheInitParams,
    ComponentType,
    InsertParams,
    MatchPrefixParams,
    RadixKey,
)
from treedrift.backends.rust_core import RustTreeCore, inspector

FULL = ComponentType.FULL


def test_a_snapshot_shows_keys_values_ranks_and_leaves() -> None:
    inspect = inspector()
    if inspect is None:
        pytest.skip("the inspection build is not there")
    core = RustTreeCore(CacheInitParams(eviction_policy="tlru"))
    key = RadixKey(array("q", [1, 2, 3]), extra_key="x")
    leaf = core.begin_insert(InsertParams(key=key, value=torch.arange(3), priority=2)).result
    core.inc_full_pin(leaf.last_device_node)
    split = core.match_prefix(MatchPrefixParams(RadixKey(array("q", [1]), extra_key="x")))
    root, upper, lower = inspect(core).nodes
    assert root.child_ids == [split.best_match_node] == [upper.node_id]
    assert (root.priority, root.hash_values, root.device_value) == (2, [], {})
    assert (upper.token_ids, lower.token_ids) == ([1], [2, 3])
    assert lower.device_value == {FULL: [1, 2]}
    assert lower.node_id == leaf.last_device_node
    assert (upper.prefix_length, lower.prefix_length, upper.history_length) == (1, 3, 3)
    assert lower.access_rank < root.access_rank < upper.access_rank
    assert upper.creation_rank == lower.creation_rank
    assert (upper.lock_ref, upper.extra_key) == ({FULL: 1}, "x")
    assert inspect(core).protected == {FULL: 3}
    assert inspect(core).device_leaves == []
