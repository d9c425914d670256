"""Which rule decides about which place: the table behind `rules`.

It covers the whole contract: a method, a field, an oracle or a finding without a pattern is a
mistake that a test finds, and so is a pattern that never decides.
"""

from __future__ import annotations

from .component_patterns import COMPONENT_PATTERNS, MODEL_RULES
from .rule_pattern import BACKUPS, EVICTING, FREED, INSERTING, Pattern, each, fields

PARENT = ("parent_node_id", "parent_is_root", "parent_last_hash")
"""Fields that say where a planned node hangs."""

ACTING = ("commit_load_back", "attach_swa_window", "end_insert")
"""Methods that answer a list of actions."""


def _match_patterns() -> list[Pattern]:
    rules = {
        "device_prefix_len": "MATCH-9",
        "last_device_node": "MATCH-7",
        "last_host_node": "MATCH-7",
        "best_match_node": "MATCH-7",
        "host_hit_length": "MATCH-12",
        "cache_protected_len": "KEY-56",
        "full_kv_hit_length": "MATCH-3",
        "cache_actions*": "MATCH-13",
        "last_visited_node_id": "MATCH-10",
        "full_device_match_len": "KEY-56",
    }
    return [
        *each("MATCH-1", "call.empty_match_result.*"),
        *[Pattern(f"call.match_prefix.result.{field}", rule) for field, rule in rules.items()],
    ]


def _insert_patterns() -> list[Pattern]:
    rules = {
        "prefix_len": "INS-41",
        "total_len": "KEY-54",
        "last_device_node": "INS-41",
        "rotation_tail_declined": "INS-17",
        "inserted_host_node": "KEY-54",
        "host_insert_dropped": "KEY-54",
        "adopted_ranges*": "INS-40",
        "cache_actions*": "INS-7",
    }
    found = []
    for method in INSERTING:
        steps = f"call.{method}.result"
        found += [Pattern(f"{steps}.result.{field}", rule) for field, rule in rules.items()]
        found += each("INS-63", f"{steps}.result")
    host = {
        "prefix_len": "HINS-9",
        "total_len": "HINS-4",
        "last_device_node": "HINS-4",
        "mamba_exist": "HINS-3",
        "swa_branch_inserted": "HINS-4",
        "rotation_tail_declined": "HINS-4",
        "inserted_host_node": "HINS-13",
        "host_insert_dropped": "HINS-14",
        "adopted_ranges*": "HINS-4",
        "cache_actions*": "HINS-7",
    }
    return found + [
        Pattern(f"call.insert_host.result.{field}", rule) for field, rule in host.items()
    ]


def _action_patterns() -> list[Pattern]:
    """Actions, in any answer that carries them: which ones, in which order, and their fields."""
    steps = [f"call.{method}.result.actions" for method in INSERTING]
    answers = [f"call.{method}.result" for method in ACTING]
    answers += [f"call.{method}.result.cache_actions" for method in EVICTING]
    found = []
    for place in steps:
        found += [
            *each("INS-53", place + ".*", about="BackupKV"),
            *each("SPLIT-6", place + ".*", about="UpdatePendingBackupOnNodeSplit"),
            *each("INS-31", place + ".*", about="FreeDeviceKVFullOnly"),
            *each("INS-31", place + ".*", about="FreeDeviceKV"),
        ]
    for place in [*steps, *answers]:
        found += [
            *each("INS-31", place + ".indices*"),
            *each("INS-56", place + ".node_ids*"),
            *each(
                "SPLIT-6",
                *[
                    f"{place}.{field}"
                    for field in ("ack_id", "old_node_id", "new_node_id", "new_child_node_id")
                ],
            ),
            *fields("CTL-21", place, "host_indices", "node_id", "component_type"),
        ]
    return [*found, *each("INS-60", *[place + ".*" for place in steps])]


def _eviction_patterns() -> list[Pattern]:
    walk, leaf = "call.evict_device_next_node.result", "call.evict_device_leaf.result"
    host = "call.drive_host_eviction.result"
    return [
        *each("EVD-13", f"{walk}.node_id", about="None"),
        *each("POL-4", f"{walk}.node_id"),
        *each("EVD-7", f"{walk}.made_progress"),
        *each("EVD-15", f"{walk}.unbacked_tokens"),
        *fields("EVD-6", walk, "tracker", *FREED),
        *each("EVD-20", f"{leaf}.backup_kv*"),
        *each("EVD-18", f"{leaf}.unbacked_tokens"),
        *each("EVD-22", f"{leaf}.tracker*"),
        *fields("EVD-21", leaf, *FREED),
        *each("EVD-32", "call.demote.result.tracker*"),
        *fields("EVD-28", "call.demote.result", *FREED),
        *each("EVD-33", "call.drop_subtree_no_host.result.is_dropped"),
        *each("EVD-35", "call.drop_subtree_no_host.result.tracker*"),
        *fields("EVD-34", "call.drop_subtree_no_host.result", *FREED),
        *each("EVH-6", f"{host}.tracker*"),
        *each("EVH-16", f"{host}.host_frees*"),
        *fields("EVH-12", host, "device_frees", "cache_actions"),
        *[
            pattern
            for name in ("mamba", "swa")
            for pattern in fields(
                "EVD-41",
                f"call.finish_{name}_state_eviction.result",
                *("node_id", "made_progress", "unbacked_tokens", "tracker", *FREED, *BACKUPS),
            )
        ],
        *each("EVD-1", "call.evict_device_start*"),
        *each("EVD-3", "call.evict_device_end*"),
        *each("EVD-4", "call.evict_device_next_node*"),
        *each("EVD-17", "call.evict_device_leaf*"),
        *each("EVD-41", "call.finish_mamba_state_eviction*", "call.finish_swa_state_eviction*"),
        *each("EVD-25", "call.demote*"),
        *each("EVD-33", "call.drop_subtree_no_host*"),
        *each("EVH-6", "call.drive_host_eviction*"),
    ]


def _lock_patterns() -> list[Pattern]:
    lock, host = "call.inc_lock_ref.result", "call.inc_host_lock_ref.result"
    return [
        *each("LOCK-3", f"{lock}.delta"),
        *each("LOCK-6", f"{lock}.component_lock_uuids*"),
        *fields("LOCK-2", lock, "node_id", "skipped_lock_components", "component_host_lock_uuids"),
        *each("LOCK-24", f"{host}.component_host_lock_uuids*"),
        *fields("LOCK-22", host, "delta", "node_id", "skipped_lock_components"),
        *fields("LOCK-22", host, "component_lock_uuids"),
        *each("LOCK-8", "call.dec_lock_ref.result.delta"),
        *each("LOCK-25", "call.dec_host_lock_ref.result.delta"),
        *fields("LOCK-16", "call.dec_swa_lock_only.result", "tracker", *FREED),
        *fields("LOCK-18", "call.dec_window_lock_only.result", "tracker", *FREED),
        *each("LOCK-1", "call.inc_lock_ref*"),
        *each("LOCK-8", "call.dec_lock_ref*"),
        *each("LOCK-15", "call.dec_swa_lock_only*"),
        *each("LOCK-18", "call.dec_window_lock_only*"),
        *each("LOCK-23", "call.inc_host_lock_ref*"),
        *each("LOCK-26", "call.dec_host_lock_ref.*ContractError*"),
        *each("LOCK-25", "call.dec_host_lock_ref*"),
        *each("LOCK-14", "call.inc_full_pin*", "call.dec_full_pin*"),
    ]


def _event_patterns() -> list[Pattern]:
    events = "call.take_events.result"
    rules = {
        "block_hashes*": "EVT-12",
        "parent_block_hash": "EVT-14",
        "token_ids*": "EVT-10",
        "block_size": "EVT-10",
        "lora_id": "EVT-10",
        "medium": "EVT-30",
        "cache_salt": "EVT-10",
        "session_id": "EVT-31",
        "lora_name": "EVT-17",
    }
    return [
        *each("EVT-20", "call.take_events.grouping*"),
        *[Pattern(f"{events}.{field}", rule) for field, rule in rules.items()],
        *each("EVT-4", f"{events}.length", about="AllBlocksCleared"),
        *each("EVT-30", events + "*"),
    ]


def _question_patterns() -> list[Pattern]:
    """Reads: sizes, paths, order, values, hashes, rotation and the check."""
    path = "call.collect_path_info.result"
    rules = {
        "SIZE-1": ("component_evictable_size", "component_protected_size"),
        "SIZE-2": (
            "evictable_size",
            "protected_size",
            "full_evictable_size",
            "full_protected_size",
            "swa_evictable_size",
            "swa_protected_size",
            "mamba_evictable_size",
            "mamba_protected_size",
        ),
        "SIZE-4": ("total_size",),
        "SIZE-5": ("adjust_component_size",),
        "SIZE-7": ("set_component_device_value",),
        "SIZE-8": ("get_component_device_value",),
        "SIZE-9": ("component_has_host_value_only",),
        "KEY-25": ("root_node_handle",),
        "PLUG-1": ("node_by_id",),
        "NODE-6": ("is_root", "is_backuped", "is_full_device_evicted"),
        "NODE-14": ("is_write_through_compatible",),
        "PATH-10": ("collect_path_info",),
        "PATH-11": ("collect_full_device_indices",),
        "ORD-3": ("dfs_weight_order",),
        "FLAT-2": ("all_values_flatten",),
        "FLAT-3": ("all_mamba_values_flatten",),
        "KEY-42": ("get_last_hash_value", "get_hash_values", "get_prefix_hash_values"),
        "KEY-41": ("backfill_missing_hash_values",),
        "KEY-43": ("snapshot_buffer_backup",),
        "KEY-44": ("validate_buffer_backup",),
        "BUF-12": ("buffer_backup_pool_keys",),
        "NODE-9": ("rotation_base_of", "rotation_phase_of"),
        "MATCH-17": ("supports_fast_match_prefix",),
        "CHK-18": ("sanity_check",),
        "SWA-B3": ("attach_swa_window",),
    }
    canary = "call.walk_for_kv_canary"
    return [
        *each("SPLIT-2", f"{path}.path_start", f"{path}.path_end"),
        *each("KEY-26", f"{path}.full_value_len"),
        *each("NODE-7", f"{path}.num_children"),
        *fields("PATH-10", path, "node_id", "parent_id"),
        *fields("KEY-37", "call.snapshot_buffer_backup.result", "hash_values"),
        *fields("KEY-42", "call.snapshot_buffer_backup.result", "prefix_keys"),
        *fields("KEY-43", "call.snapshot_buffer_backup.result", "node_id", "key", *PARENT),
        *fields("KEY-44", "call.validate_buffer_backup.result", *PARENT),
        *each("PATH-2", "call.match_full_device_prefix*"),
        *each("FLAT-5", f"{canary}.result.positions*", f"{canary}.result.prev_slot_indices*"),
        *each("FLAT-4", f"{canary}.result.slot_indices*"),
        *each("FLAT-6", f"{canary}*"),
        *[
            Pattern(f"call.{method}*", rule)
            for rule, methods in rules.items()
            for method in methods
        ],
    ]


def _tier_patterns() -> list[Pattern]:
    """The host tier, storage and the external linker."""
    rules = {
        "INS-56": ("build_backup_kv_action",),
        "BKP-25": ("build_backup_spec",),
        "BKP-30": ("commit_backup",),
        "BKP-36": ("mark_write_through_pending",),
        "BKP-42": ("finish_write_through",),
        "LDB-2": ("build_load_back_spec",),
        "LDB-22": ("commit_load_back",),
        "LDB-30": ("finish_load_back",),
        "XFER-2": ("build_hicache_transfers",),
        "XFER-39": ("commit_hicache_transfers",),
        "STO-30": ("build_storage_backup_spec",),
        "STO-13": ("prefetch_anchor_info",),
        "HINS-5": ("insert_host",),
        "LNK-4": ("mark_external_linker_offload_pending",),
        "LNK-6": ("finish_external_linker_offload",),
        "LNK-8": ("mark_external_cache_stored_path",),
        "HIC-1": ("set_hicache_enabled",),
        "HIC-2": ("set_host_memory_buffer_only",),
        "HIC-3": (
            "enable_storage =",
            "enable_external_cache_linker =",
            "write_through_threshold =",
            "is_write_back =",
        ),
        "HIC-4": ("has_swa_host_pool =",),
        "NODE-40": ("reset",),
    }
    offload = "call.build_external_linker_offload_transfers"
    return [
        *fields("INS-56", "call.build_backup_kv_action.result", "node_ids"),
        *each("LNK-3", f"{offload}.result.*"),
        *each("LNK-2", f"{offload}*"),
        *[
            Pattern(f"call.{method}*", rule)
            for rule, methods in rules.items()
            for method in methods
        ],
    ]


def _error_patterns() -> list[Pattern]:
    """How a call ended, where one side raised: by the type of the error."""
    return [
        *each("BND-34", "call.*CorePoisonedError*", "outcome*CorePoisonedError*"),
        *each("EVT-3", "call.take_events.*|*"),
        *each("INS-3", "call.resume_insert.*InsertProtocolError*"),
        *each("INS-1", "call.*InsertProtocolError*", "outcome*InsertProtocolError*"),
        *each("LNK-8", "call.*AncestorError*", "outcome*AncestorError*"),
        *each("NODE-5", "call.*UnknownNodeError*", "outcome*UnknownNodeError*"),
        *each("BND-31", "call.*.error.handle"),
        *each("LOCK-12", "call.dec_*ContractError*", op="unlock"),
        *each("INS-11", "call.begin_insert.*InvalidArgumentError*"),
        *each("INS-71", "call.begin_insert.*OverflowError*", "call.begin_insert.*TypeError*"),
        *each("CHK-18", "call.sanity_check.*SanityCheckError*"),
        *each("BND-22", "call.*OverflowError*"),
        *each("BND-24", "call.*TypeError*"),
        *each("BND-23", "call.*InvalidArgumentError*", "call.*UnsupportedError*"),
    ]


def _state_patterns() -> list[Pattern]:
    """What is seen between two ops: sizes, pools, and the tree as the contract shows it."""
    return [
        *each("LOCK-10", "sizes.evictable", "sizes.protected", op="unlock"),
        *each("LOCK-3", "sizes.evictable", "sizes.protected", op="lock"),
        *each("SIZE-1", "sizes.evictable", "sizes.protected"),
        *each("INS-4", "sizes.has_ongoing_insert", "snapshot.has_insert"),
        *each("CTL-31", "sizes.free"),
        *each("CTL-39", "sizes.requests"),
        *each("POOL-59", "pool*"),
        *each("POOL-15", "tree.free*"),
        *each("NODE-4", "tree.node.handle"),
        *each("NODE-6", "tree.node.is_root", "tree.node.is_backuped"),
        *each("NODE-6", "tree.node.is_full_device_evicted"),
        *each("SPLIT-2", "tree.node.device_value", about="length"),
        *each("CTL-24", "tree.node.device_value"),
        *each("KEY-40", "tree.node.hash_values"),
        *each("KEY-42", "tree.node.last_hash_value", "tree.node.prefix_hash_values"),
        *each("INS-19", "tree.node.rotation_base"),
        *each("SPLIT-2", "tree.paths.path_start", "tree.paths.path_end"),
        *each("KEY-26", "tree.paths.full_value_len"),
        *each("NODE-7", "tree.paths.num_children"),
        *each("PATH-10", "tree.paths*"),
        *each("FLAT-2", "tree.values*"),
        *each("SIZE-4", "tree.total*"),
        *each("ORD-3", "tree.order*"),
        *each("CTL-38", "tree.rows*"),
        *each("INV01-1", "tree.healthy", "oracle.sanity_check*"),
        *each("KEY-51", "tree.settings*"),
        *each("NODE-14", "tree.compatible"),
        *each("NODE-5", "tree.nodes*"),
    ]


def _snapshot_patterns() -> list[Pattern]:
    """The tree as an inspector shows it."""
    node = "snapshot.nodes"
    rules = {
        "node_id": "NODE-4",
        "parent_id": "SPLIT-2",
        "child_ids*": "NODE-7",
        "token_ids*": "NODE-8",
        "extra_key": "KEY-25",
        "cache_salt": "KEY-25",
        "is_bigram": "KEY-20",
        "priority": "NODE-11",
        "hit_count": "INS-50",
        "creation_rank": "POL-15",
        "hash_values*": "KEY-40",
        "event_hash_values*": "EVT-12",
        "lock_ref*": "LOCK-20",
        "host_lock_ref*": "LOCK-24",
        "device_value*": "KEY-26",
        "host_value*": "BKP-30",
        "device_lock_uuid*": "LOCK-6",
        "host_lock_uuid*": "LOCK-24",
        "write_through_pending_id": "SPLIT-3",
        "load_back_pending_id": "LDB-21",
        "external_cache_stored": "LNK-9",
        "rotation_base": "INS-19",
        "prefix_length": "POL-8",
        "history_length": "POL-8",
    }
    tops = {
        "device_leaves*": "LEAF-1",
        "host_leaves*": "LEAF-2",
        "lru_lists*": "LRU-10",
        "host_lru_lists*": "LRU-11",
        "evictable*": "SIZE-1",
        "protected*": "SIZE-1",
        "open_walks*": "EVD-1",
        "queued_events": "EVT-30",
        "nodes.length": "INV01-1",
    }
    return [
        *each("LOCK-3", f"{node}.lock_ref*", op="lock"),
        *each("LOCK-10", f"{node}.lock_ref*", op="unlock"),
        *each("NODE-23", f"{node}.access_rank", op="touch"),
        *each("NODE-23", f"{node}.access_rank", op="core_match"),
        *each("NODE-23", f"{node}.access_rank", op="arrive"),
        *each("INS-45", f"{node}.access_rank", op="core_insert"),
        *each("POL-12", f"{node}.access_rank"),
        *[Pattern(f"{node}.{field}", rule) for field, rule in rules.items()],
        *[Pattern(f"snapshot.{field}", rule) for field, rule in tops.items()],
    ]


def _oracle_patterns() -> list[Pattern]:
    return [
        *each("SIZE-1", "oracle.conservation: sizes differ*"),
        *each("CTL-61", "oracle.conservation: * units can't be evicted"),
        *each("CTL-60", "oracle.conservation*"),
        *each("EVT-14", "oracle.event_replay: stored below*"),
        *each("EVT-11", "oracle.event_replay: removed*"),
        *each("KEY-30", "oracle.event_replay: block hash*"),
        *each("EVT-10", "oracle.event_replay: * hashes for*"),
        *each("EVT-30", "oracle.event_replay*"),
        *each("POOL-61", "oracle.pool*", "oracle.kv_content*"),
        *each("CTL-24", "oracle.cache*"),
        *each("BND-45", "oracle.refusal*"),
        *each("BND-34", "oracle.crash*", "crash*"),
        *each("BND-9", "oracle.unreadable*"),
        *[
            Pattern(f"oracle.reference_model: {start}*", rule)
            for start, rule in REFERENCE_MODEL.items()
        ],
    ]


REFERENCE_MODEL = {
    **MODEL_RULES,
    "device_prefix_len": "MATCH-9",
    "full_kv_hit_length": "MATCH-3",
    "host_hit_length": "MATCH-12",
    "matched length": "PATH-2",
    "a node that ends at": "PATH-2",
    "path_end": "SPLIT-2",
    "num_children": "NODE-7",
    "rotation base": "INS-19",
    "number of slots in the tree": "CTL-24",
    "the tree has slots": "CTL-24",
    "rotation_tail_declined": "INS-17",
    "prefix_len": "INS-41",
    "an insert asks for": "INS-31",
    "an insert does not ask for": "INS-31",
    "an insert goes on": "INS-3",
    "adopted_ranges": "INS-40",
    "delta of a lock": "LOCK-3",
    "a lock of": "LOCK-8",
    "a walk": "EVD-13",
    "made_progress": "EVD-7",
    "whether an eviction asks for a backup": "EVD-20",
    "unbacked_tokens of an eviction": "EVD-18",
    "tracker of an eviction": "EVD-22",
    "an eviction": "EVD-21",
    "a path has slots": "PATH-11",
    "a node has slots": "KEY-26",
    "the node of a prefix": "SPLIT-2",
}
"""How findings of the reference model begin, and the rules that they are about."""


def _general_patterns() -> list[Pattern]:
    """What is left: ops that made other calls, and sides that failed as a whole."""
    return [
        *each("INS-7", "extra.resume_insert", "extra.end_insert"),
        *each("CTL-25", "extra.evict_device_*"),
        *each("CTL-16", "extra.begin_insert"),
        *each("CTL-50", "extra.*", "method", "outcome*"),
        *each("CFG-1", "refused*"),
        *each("INS-2", *[f"call.{method}*" for method in INSERTING]),
        *each("INS-5", "call.end_insert*"),
        *each("INS-4", "call.has_ongoing_insert*"),
        *each("MATCH-2", "call.match_prefix*"),
        *each("BND-35", "hang*", "memory*"),
    ]


PATTERNS: list[Pattern] = [
    *COMPONENT_PATTERNS,
    *_error_patterns(),
    *_match_patterns(),
    *_insert_patterns(),
    *_action_patterns(),
    *_eviction_patterns(),
    *_lock_patterns(),
    *_event_patterns(),
    *_question_patterns(),
    *_tier_patterns(),
    *_state_patterns(),
    *_snapshot_patterns(),
    *_oracle_patterns(),
    *_general_patterns(),
]
"""Every pattern; the first one that fits decides."""
