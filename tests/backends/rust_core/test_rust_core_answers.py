"""The adapter: what crosses the boundary arrives in the contract's classes, as owned values."""

from __future__ import annotations

from array import array
from types import SimpleNamespace

import pytest
import torch

from treedrift.backends.contract import (
    AllBlocksCleared,
    BackupKV,
    BlockRemoved,
    BlockStored,
    CacheInitParams,
    ComponentType,
    FreeDeviceKV,
    FreeDeviceKVFullOnly,
    InsertParams,
    InsertResult,
    KvEventLoraNames,
    MatchPrefixParams,
    RadixKey,
    StorageMedium,
    TreePathNodeInfo,
    UpdatePendingBackupOnNodeSplit,
)
from treedrift.backends.rust_core import RustTreeCore

FULL = ComponentType.FULL


def key(*tokens: int, **namespace: str) -> RadixKey:
    return RadixKey(array("q", tokens), **namespace)


def insert(core: RustTreeCore, tokens: tuple[int, ...], first: int, **fields: object) -> object:
    value = torch.arange(first, first + len(tokens))
    return core.begin_insert(InsertParams(key=key(*tokens), value=value, **fields))


@pytest.fixture(params=[False, True], ids=["host", "tensors"])
def core(request: pytest.FixtureRequest) -> RustTreeCore:
    """A core over plain numbers, and one that keeps tensors as it would on a GPU."""
    return RustTreeCore(CacheInitParams(), keeps_tensors=request.param)


def test_frees_are_views_of_the_callers_value(core: RustTreeCore) -> None:
    insert(core, (1, 2), 10)
    value = torch.arange(20, 23)
    params = InsertParams(key=key(1, 2, 3), value=value, track_adopted_ranges=True)
    params.set_evicted_seqlen(ComponentType.SWA, 1)
    step = core.begin_insert(params)
    full_only, rest = step.actions
    assert isinstance(full_only, FreeDeviceKVFullOnly)
    assert isinstance(rest, FreeDeviceKV)
    assert full_only.indices[0].tolist() == [20]
    assert rest.indices[0].data_ptr() == value[1:].data_ptr()
    assert isinstance(step.result, InsertResult)
    assert step.result.adopted_ranges == {FULL: [(2, 3)]}


def test_the_tree_keeps_a_private_copy_of_the_value(core: RustTreeCore) -> None:
    value = torch.arange(4)
    node = core.begin_insert(InsertParams(key=key(1, 2, 3, 4), value=value)).result.last_device_node
    value.fill_(-1)
    shown = core.get_component_device_value(node, FULL)
    assert shown.tolist() == [0, 1, 2, 3]
    shown.fill_(-1)
    core.match_prefix(MatchPrefixParams(key(1, 2)))
    assert core.collect_full_device_indices(node, core.root_node_handle()).tolist() == [0, 1, 2, 3]


def test_a_strided_value_is_read_element_by_element(core: RustTreeCore) -> None:
    core.begin_insert(InsertParams(key=key(1, 2, 3), value=torch.arange(6)[::2]))
    assert core.all_values_flatten().tolist() == [0, 2, 4]


def test_an_insert_without_a_value_stores_its_tokens(core: RustTreeCore) -> None:
    core.begin_insert(InsertParams(key=key(7, 8)))
    step = core.begin_insert(InsertParams(key=key(7, 9)))
    assert step.actions[0].indices[0].tolist() == [7]
    assert core.all_values_flatten().tolist() == [7, 8, 9]


def test_returned_tensors_are_int64_on_the_device_also_when_empty(core: RustTreeCore) -> None:
    root = core.root_node_handle()
    for tensor in (
        core.all_values_flatten(),
        core.all_mamba_values_flatten(),
        core.collect_full_device_indices(root, root),
        core.walk_for_kv_canary(False, False).positions,
    ):
        assert (tensor.dtype, tensor.device, tensor.shape) == (torch.int64, core.device, (0,))
    assert core.get_component_device_value(root, FULL) is None


def test_a_suspended_insert_frees_from_the_same_value_when_it_resumes(core: RustTreeCore) -> None:
    core.enable_external_cache_linker = True
    core.write_through_threshold = 1
    first = insert(core, (1, 2), 10).result.last_device_node
    second = insert(core, (1, 2, 3, 4), 20)
    assert [type(action) for action in second.actions] == [FreeDeviceKV, BackupKV]
    assert second.result is None
    assert core.has_ongoing_insert()
    last = core.resume_insert()
    assert last.actions == [BackupKV([first, last.result.last_device_node])]
    assert core.end_insert() == []
    assert core.all_values_flatten().tolist() == [10, 11, 22, 23]


def test_an_evicted_leaf_reports_its_slots_tracker_and_unbacked_tokens(core: RustTreeCore) -> None:
    insert(core, (1, 2), 10)
    core.evict_device_start(FULL, 1)
    step = core.evict_device_next_node(FULL, {})
    assert step.made_progress
    result = core.evict_device_leaf(step.node_id, False)
    assert result.device_frees[FULL][0].tolist() == [10, 11]
    assert (result.tracker, result.unbacked_tokens) == ({FULL: 2}, 2)
    assert core.evict_device_next_node(FULL, result.tracker).node_id is None
    core.evict_device_end(FULL)


def test_a_split_of_a_pending_node_comes_as_an_update_action(core: RustTreeCore) -> None:
    node = insert(core, (1, 2), 10).result.last_device_node
    core.mark_external_linker_offload_pending(node)
    match = core.match_prefix(MatchPrefixParams(key(1)))
    update = UpdatePendingBackupOnNodeSplit(node, node, match.best_match_node, node)
    assert match.cache_actions == [update]


def test_paths_come_as_tuples_of_node_information(core: RustTreeCore) -> None:
    root = core.root_node_handle()
    node = insert(core, (1, 2), 10).result.last_device_node
    path = (TreePathNodeInfo(node, root, 0, 2, 2, 0),)
    assert core.collect_path_info([node, root, node]) == (path, (), path)


def test_a_write_back_leaf_answers_with_its_backup() -> None:
    core = RustTreeCore(CacheInitParams())
    core.is_write_back = True
    node = insert(core, (1,), 10).result.last_device_node
    assert core.evict_device_leaf(node, True).backup_kv == BackupKV([node])
    dropped = core.drop_subtree_no_host(node)
    assert dropped.is_dropped
    assert dropped.device_frees[FULL][0].tolist() == [10]


def test_events_name_adapters_as_they_were_when_recorded() -> None:
    names = KvEventLoraNames()
    core = RustTreeCore(
        CacheInitParams(enable_kv_cache_events=True, kv_event_lora_names=names, is_eagle=True)
    )
    value = torch.arange(2)
    core.begin_insert(InsertParams(key=key(1, 2, 3, extra_key="x"), value=value, session_id="S"))
    names.register(SimpleNamespace(lora_id="id", extra_key="x"), lora_name="adapter")
    core.begin_insert(InsertParams(key=key(1, 2, 9, extra_key="x"), value=value))
    core.kv_events.record_all_cleared()
    first, second, cleared = core.take_events()
    assert isinstance(first, BlockStored)
    assert (first.token_ids, first.session_id) == ([(1, 2), (2, 3)], "S")
    assert (first.lora_name, first.medium, first.block_size) == (None, StorageMedium.GPU, 1)
    assert (second.token_ids, second.lora_name) == ([(2, 9)], "adapter")
    assert cleared == AllBlocksCleared()
    assert core.take_events() == []


def test_a_removal_lists_the_hashes_of_the_leaf() -> None:
    core = RustTreeCore(CacheInitParams(enable_kv_cache_events=True))
    node = insert(core, (1, 2), 10).result.last_device_node
    stored = core.take_events()[0]
    core.evict_device_leaf(node, False)
    assert core.take_events() == [BlockRemoved(stored.block_hashes, StorageMedium.GPU)]


def test_a_buffer_snapshot_holds_a_fresh_key() -> None:
    core = RustTreeCore(CacheInitParams(is_eagle=True))
    core.enable_storage = True
    value = torch.arange(2)
    step = core.begin_insert(InsertParams(key=key(1, 2, 3, cache_salt="s"), value=value))
    snapshot = core.snapshot_buffer_backup(step.result.last_device_node, True)
    assert snapshot.key.token_ids == array("q", [1, 2, 3])
    assert (snapshot.key.cache_salt, snapshot.key.is_bigram) == ("s", True)
    assert snapshot.parent_is_root
    assert snapshot.prefix_keys == []
    assert core.snapshot_buffer_backup(99, False) is None


def test_the_callers_key_is_never_changed() -> None:
    core = RustTreeCore(CacheInitParams(is_eagle=True, page_size=2))
    mine = RadixKey(array("q", [1, 2, 3, 4]), limit=3)
    core.begin_insert(InsertParams(key=mine, value=torch.arange(2)))
    assert (mine.is_bigram, mine.limit, list(mine.token_ids)) == (False, 3, [1, 2, 3, 4])
    assert core.match_prefix(MatchPrefixParams(mine)).device_prefix_len == 2
