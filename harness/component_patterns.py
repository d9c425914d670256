"""Which rule decides where windows and Mamba states part: read before the general patterns.

A component is told by the call that names it, or by the entry of a mapping. `swa` stands for both
windows where their rules are the same.
"""

from __future__ import annotations

from .rule_pattern import EVICTING, INSERTING, Pattern, each, fields

WINDOWS = ("swa", "auxiliary_swa")
"""Windows as places name them, by their component."""

MATCHING = ("core_match", "touch", "arrive", "readmit")
STORING = ("core_insert", "prefill", "checkpoint", "finish")
"""Ops that match, and those that insert: one of both is what moved an entry of a list."""


def _of_windows(rule: str, *places: str, op: str = "*") -> list[Pattern]:
    """Patterns for what mappings hold of a window."""
    return each(rule, *[f"{place}.{kind}*" for place in places for kind in WINDOWS], op=op)


def _about_windows(rule: str, *places: str) -> list[Pattern]:
    """Patterns for calls about a window."""
    return [one for kind in WINDOWS for one in each(rule, *places, about=kind)]


def _match_patterns() -> list[Pattern]:
    match = "call.match_prefix.result"
    return [
        *each("SWA-M7", f"{match}.swa_host_hit_length"),
        *each("SWA-M8", f"{match}.swa_branching_seqlen"),
        *each("MAM-M10", f"{match}.mamba_host_hit_length"),
        *each("MAM-M8", f"{match}.mamba_branching_seqlen"),
    ]


def _insert_patterns() -> list[Pattern]:
    found = []
    for method in INSERTING:
        result = f"call.{method}.result.result"
        found += [
            *each("MAM-I12", f"{result}.mamba_exist"),
            *each("SWA-I24", f"{result}.swa_branch_inserted"),
            *_of_windows("SWA-I9", f"{result}.adopted_ranges"),
        ]
    return found


def _action_patterns() -> list[Pattern]:
    steps = [f"call.{method}.result.actions" for method in INSERTING]
    found = []
    for place in steps:
        found += [
            *each("SWA-I7", place + ".*", about="RecoverSWAWithLockedFull"),
            *each("SWA-C8", place + ".*", about="RecoverEvictedSWA"),
            *each("SWA-I12", place + ".*", about="SWARebuild"),
            *each("MAM-P2", place + ".*", about="MambaEvictExcessPathStates"),
        ]
    answers = [f"call.{method}.result" for method in ("commit_load_back", "attach_swa_window")]
    answers += ["call.end_insert.result"]
    answers += [f"call.{method}.result.cache_actions" for method in EVICTING]
    for place in [*steps, *answers]:
        found += [
            *fields("SWA-I20", place, "source_value", about="length"),
            *fields("SWA-A5", place, "source_value"),
            *fields("SWA-A6", place, "kept_full", "incoming_full"),
            *fields("SWA-A7", place, "full_indices", "swa_indices"),
            *fields("MAM-P2", place, "tail_node_id"),
        ]
    return found


def _eviction_patterns() -> list[Pattern]:
    walk, start = "call.evict_device_next_node", "call.evict_device_start*"
    frees = [
        f"call.{method}.result.device_frees" for method in EVICTING if method != "dec_swa_lock_only"
    ]
    counts = [f"call.{method}.result.tracker" for method in EVICTING]
    return [
        *_victim_patterns(),
        *_of_windows("SWA-E10", *frees),
        *each("MAM-A2", *[f"{place}.mamba*" for place in frees]),
        *_of_windows("SWA-E7", *counts),
        *each("MAM-D4", *[f"{place}.mamba*" for place in counts]),
        *_about_windows("SWA-E4", f"{walk}.*ContractError*"),
        *each("MAM-E16", f"{walk}.*ContractError*", about="mamba"),
        *_about_windows("SWA-E5", f"{walk}.result.node_id"),
        *each("MAM-E5", f"{walk}.result.node_id", about="mamba"),
        *_about_windows("SWA-E18", f"{walk}.result.made_progress"),
        *each("MAM-E9", f"{walk}.result.made_progress", about="mamba"),
        *fields("SWA-E12", f"{walk}.result", "swa_backup_node_id", "swa_backup_num_tokens"),
        *fields("MAM-E8", f"{walk}.result", "mamba_backup_node_id"),
        *_about_windows("SWA-E6", f"{walk}*"),
        *each("MAM-E6", f"{walk}*", about="mamba"),
        *_about_windows("SWA-E2", start),
        *each("MAM-E1", start, about="mamba"),
        *each("MAM-P6", "call.evict_excess_path_states.filled*"),
        *each("MAM-P5", "call.evict_excess_path_states*"),
    ]


def _victim_patterns() -> list[Pattern]:
    """What a step or an eviction took: by the component that walks, and the one that loses."""
    step, leaf = (
        f"call.{method}.result.device_frees"
        for method in ("evict_device_next_node", "evict_device_leaf")
    )
    found = []
    for walking in WINDOWS:
        found += [
            *each("SWA-E6", f"{step}.{walking}*", about=walking),
            *each("SWA-E8", f"{step}.*", about=walking),
        ]
    return [
        *found,
        *each("MAM-E6", f"{step}.mamba*", about="mamba"),
        *each("MAM-D7", f"{step}.*", about="mamba"),
        *[one for kind in WINDOWS for one in each("SWA-E9", f"{leaf}.{kind}*", about="None")],
        *each("MAM-E17", f"{leaf}.mamba*", about="None"),
    ]


def _insert_argument_patterns() -> list[Pattern]:
    """What the cache handed to an insert."""
    given = "call.begin_insert.params"
    return [
        *fields("SWA-Q1", given, "component_evicted_seqlens", "swa_branching_seqlen"),
        *fields("MAM-R5", given, "mamba_value"),
        *fields("CTL-38", given, "key", "value"),
    ]


def _lock_patterns() -> list[Pattern]:
    return [
        *_of_windows("SWA-L1", "call.inc_lock_ref.result.component_lock_uuids"),
        *_of_windows("SWA-L13", "call.dec_swa_lock_only.result.device_frees"),
    ]


def _question_patterns() -> list[Pattern]:
    sizes = ("call.component_evictable_size*", "call.component_protected_size*")
    return [
        *_about_windows("SWA-D5", *sizes),
        *each("MAM-D4", *sizes, about="mamba"),
        *_about_windows("SWA-A8", "call.set_component_device_value*"),
        *each("MAM-I15", "call.set_component_device_value*", about="mamba"),
        *_about_windows("SWA-D2", "call.get_component_device_value*"),
        *each("MAM-D1", "call.get_component_device_value*", about="mamba"),
        *_about_windows("SWA-A9", "call.adjust_component_size*"),
        *each("SWA-B2", "call.swa_tombstone_ranges.*|*"),
        *each("SWA-B1", "call.swa_tombstone_ranges*"),
        *each("SWA-B4", *[f"call.attach_swa_window.result.{what}" for what in ("length", "type")]),
    ]


def _state_patterns() -> list[Pattern]:
    """What is seen between two ops: sizes, pools, nodes."""
    windows = ("swa", "aux_swa")
    return [
        *each("RST-3", "sizes.*_evictable", "sizes.*_protected", op="reset"),
        *each("MAM-L13", "sizes.mamba_evictable", "sizes.mamba_protected", op="early_release"),
        *each("SWA-D5", *[f"sizes.{kind}_evictable" for kind in windows]),
        *each("SWA-D5", *[f"sizes.{kind}_protected" for kind in windows]),
        *each("SWA-A1", *[f"sizes.{kind}_free" for kind in windows]),
        *each("MAM-D4", "sizes.mamba_evictable", "sizes.mamba_protected"),
        *each("MAM-A3", "sizes.mamba_free"),
        *each("SWA-D2", *[f"tree.node.{kind}_value" for kind in windows]),
        *each("MAM-D1", "tree.node.mamba_value"),
        *each("POOL-35", "tree.window_free*"),
        *each("POOL-42", "tree.state_free*"),
    ]


def _snapshot_patterns() -> list[Pattern]:
    node = "snapshot.nodes"
    return [
        *each("RST-3", "snapshot.open_walks*", op="reset"),
        *_of_windows("SWA-S1", f"{node}.lock_ref", op="core_match"),
        *_of_windows("SWA-L7", f"{node}.lock_ref", op="unlock"),
        *_of_windows("SWA-L13", f"{node}.lock_ref", op="release_window"),
        *_of_windows("SWA-L1", f"{node}.lock_ref"),
        *_of_windows("SWA-L19", f"{node}.host_lock_ref"),
        *each("MAM-S1", f"{node}.lock_ref.mamba", f"{node}.host_lock_ref.mamba", op="core_match"),
        *each("MAM-L2", f"{node}.lock_ref.mamba", op="unlock"),
        *each("MAM-L1", f"{node}.lock_ref.mamba"),
        *_of_windows("SWA-D2", f"{node}.device_value"),
        *each("MAM-D1", f"{node}.device_value.mamba*"),
        *_of_windows("SWA-S4", f"{node}.device_lock_uuid", op="core_match"),
        *_of_windows("SWA-L2", f"{node}.device_lock_uuid"),
        *_list_patterns(),
        *_of_windows("SWA-V3", "snapshot.evictable", "snapshot.protected"),
        *each("MAM-V3", "snapshot.evictable.mamba", "snapshot.protected.mamba"),
    ]


def _list_patterns() -> list[Pattern]:
    """Lists of recency, by what an op does to them."""
    windows, states = "snapshot.lru_lists", "snapshot.lru_lists.mamba*"
    found = []
    for op in MATCHING:
        found += [*_of_windows("SWA-U2", windows, op=op), *each("MAM-M6", states, op=op)]
    for op in STORING:
        found += [*_of_windows("SWA-I25", windows, op=op), *each("MAM-I8", states, op=op)]
    return [
        *found,
        *_of_windows("SWA-U4", windows, op="store_value"),
        *_of_windows("SWA-U4", windows, op="attach_window"),
        *each("MAM-I15", states, op="store_value"),
        *_of_windows("SWA-V1", windows),
        *each("MAM-V1", states),
    ]


def _oracle_patterns() -> list[Pattern]:
    found = "oracle.conservation:"
    return [
        *each("SWA-V13", "oracle.window_mapping*", f"{found} *slots of a node are not those*"),
        *each("SWA-Q2", "oracle.window_content*"),
        *each("MAM-D1", "oracle.state_content*"),
        *each("SWA-V3", f"{found} sizes differ: *swa evictable*"),
        *each("MAM-V3", f"{found} sizes differ: mamba evictable*"),
        *each("MAM-V8", f"{found} mamba pages*"),
        *each("POOL-63", f"{found} *swa pages*"),
        *each("CTL-61", f"{found} * values of windows and states can't be evicted"),
    ]


def _general_patterns() -> list[Pattern]:
    """Ops that made other calls."""
    return [
        *each("CTL-34", "extra.dec_swa_lock_only", "extra.dec_window_lock_only"),
        *each("CTL-21", "extra.set_component_device_value"),
        *each("MAM-P13", "extra.evict_excess_path_states"),
    ]


COMPONENT_PATTERNS: list[Pattern] = [
    *_match_patterns(),
    *_insert_patterns(),
    *_action_patterns(),
    *_insert_argument_patterns(),
    *_lock_patterns(),
    *_eviction_patterns(),
    *_question_patterns(),
    *_state_patterns(),
    *_snapshot_patterns(),
    *_oracle_patterns(),
    *_general_patterns(),
]
"""Every pattern of a window or a state, the more specific ones first."""

MODEL_RULES = {
    "swa_branching_seqlen": "SWA-M8",
    "mamba_branching_seqlen": "MAM-M8",
    "mamba_exist of an insert": "MAM-I12",
    "swa_branch_inserted of an insert": "SWA-I24",
    "an insert asks for RecoverSWAWithLockedFull": "SWA-I7",
    "an insert asks for SWARebuild": "SWA-I8",
    "an insert asks for MambaEvictExcessPathStates": "MAM-P2",
    "an insert asks for a window": "SWA-I12",
    "an insert does not ask for RecoverSWAWithLockedFull": "SWA-I7",
    "an insert does not ask for SWARebuild": "SWA-I8",
    "an insert does not ask for MambaEvictExcessPathStates": "MAM-P2",
    "size of full": "SIZE-1",
    "size of mamba": "MAM-V3",
    "size of": "SWA-V3",
    "protected size of full": "SIZE-1",
    "protected size of mamba": "MAM-V3",
    "protected size of": "SWA-V3",
    "the tree has states": "MAM-V8",
    "value of mamba": "MAM-D1",
    "value of": "SWA-D2",
    "mamba is stored": "MAM-I15",
    "* is stored": "SWA-A8",
    "ranges without": "SWA-B1",
    "a node ends at": "SPLIT-2",
    "whether a receipt has a window": "SWA-L5",
    "the boundary of a window": "SWA-L2",
    "a release of mamba": "MAM-L2",
    "a release of": "SWA-L7",
    "whether a release gives up its window": "SWA-L13",
    "a window of slots": "SWA-E10",
    "* whose window is gone already": "SWA-E10",
    "* whose window is locked": "SWA-V10",
    "number of nodes that a step gives up": "SWA-E6",
    "whether * goes with": "SWA-E8",
    "* goes without its leaf": "SWA-E5",
    "* of another node goes with": "SWA-E8",
    "a state": "MAM-A2",
    "the state of a prefix": "MAM-L5",
    "a path's cap": "MAM-P6",
}
"""How findings of the reference model about windows and states begin, and what they are about."""
