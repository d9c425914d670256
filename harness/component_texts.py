"""What the rules about windows and Mamba states say, one plain sentence each, as `rule_texts`."""

from __future__ import annotations

COMPONENT_TEXTS = {
    "CTL-34": "A request gives up the window of its lock early, once, and releases the rest later.",
    "MAM-A2": "Each freed state is one entry of the states' frees, in the order of eviction.",
    "MAM-A3": "Freed states go back to their pool one after the other.",
    "MAM-D1": (
        "A node's state is that after exactly its prefix, and stands on no other node in its place."
    ),
    "MAM-D4": "States are counted by slots, one for each node that has one.",
    "MAM-E1": "A walk for states begins at the least recent state that no lock holds.",
    "MAM-E5": "A walk for states offers a device leaf whole instead of its state.",
    "MAM-E6": "Above the leaves one step takes one state and leaves everything else of its node.",
    "MAM-E8": "A state asks for a backup first only where a write-back host tier could take it.",
    "MAM-E9": (
        "A step of a walk for states made progress if it offers, asks, frees or counts something."
    ),
    "MAM-E16": "A node that was locked after a walk for states had reached it is not evicted.",
    "MAM-I12": "An insert tells that a state was there already, so that the caller frees its own.",
    "MAM-I15": "A state stored by hand makes its node the most recent one and asks for no cap.",
    "MAM-L1": "A lock holds the state of its own node alone, even before there is one.",
    "MAM-L2": "A release lets go of the state of its own node alone.",
    "MAM-L5": "A locked state is never evicted, whatever happens to others on its node.",
    "MAM-M6": "A match makes the state newer in which it ends, and no other.",
    "MAM-M8": (
        "A branching point is the last depth of the grid that is cached, if no state is as deep."
    ),
    "MAM-M10": "A match that ends in a state on the host alone tells of one state there.",
    "MAM-P2": "With a cap every state that an insert adds asks once for its path to be capped.",
    "MAM-P5": "A path is capped by the states on it from its end up to the root.",
    "MAM-P6": "The cap takes states from the top down, but no fork's, no locked one, not the last.",
    "MAM-P8": "What a cap frees is appended to the caller's frees, and nothing is counted.",
    "MAM-P13": "The cache caps a path where an insert asks for it, and drains what was freed.",
    "MAM-V1": "The list of states holds exactly the nodes that have one.",
    "MAM-V3": "Evictable and protected states are those of unlocked and of locked nodes.",
    "MAM-V8": "Every state that a core was given is on one node or was handed back.",
    "POOL-35": "A run of freed window slots goes back page by page, in the order of the run.",
    "POOL-42": "Freed states are handed out again in the order in which they came back.",
    "POOL-63": "A window slot belongs to one full slot, which is allocated.",
    "SWA-A1": "Evicted windows are found by their full slots, and their slots freed.",
    "SWA-A5": "A rebuilt window is what the node's full slots map to.",
    "SWA-A6": "A recovered window moves from the new full slots to the kept ones, pair by pair.",
    "SWA-A7": "Loaded window rows are mapped to the full slots of their nodes, pair by pair.",
    "SWA-A8": "A window stored by hand makes its node the most recent one.",
    "SWA-A9": "A window's ledger is corrected by hand where the node has a window.",
    "SWA-B2": "A span without windows is cut exactly where it was asked for.",
    "SWA-B4": "Window rows are attached root first, and nodes are split where they begin and end.",
    "SWA-C8": "A second window keeps its own values, lists, sizes and locks.",
    "SWA-D2": "A node's window has one slot for each unit of its key, or is not there at all.",
    "SWA-D5": "A window's sizes count the slots of unlocked and of locked nodes.",
    "SWA-E2": "A walk for a window begins at its least recent node that no lock of it holds.",
    "SWA-E4": "A node that was locked after a walk for a window had reached it is not evicted.",
    "SWA-E5": "A walk for a window offers a device leaf whole instead of its window.",
    "SWA-E6": "Above the leaves one step takes the window of one node, and what depends on it.",
    "SWA-E7": "A step for a window counts the slots of the window that it freed.",
    "SWA-E8": "A state goes with the window of its node, and so does an unlocked second window.",
    "SWA-E10": "An evicted window is told by the full slots of its node.",
    "SWA-E12": "A window asks for a backup first only where a write-back host tier could take it.",
    "SWA-E18": (
        "A step of a walk for a window made progress if it offers, asks, frees or counts something."
    ),
    "SWA-I7": "Where full slots are locked, they are kept and take over the new slots' window.",
    "SWA-I8": (
        "Where full slots are not locked, the new ones take their place, and the window is rebuilt."
    ),
    "SWA-I9": "A recovered span is adopted by the window, and by FULL where its slots changed.",
    "SWA-I12": "A window comes only by an action, at which the insert waits.",
    "SWA-I24": "An insert tells whether its whole key is as long as the branching length.",
    "SWA-I25": "An insert makes its window newer once its actions are done.",
    "SWA-L1": "A window lock counts on whole nodes upward until the window is covered.",
    "SWA-L2": "The node with which a window is covered keeps one id, for all receipts alike.",
    "SWA-L5": "A receipt has an entry for each window that was locked, and none for a skipped one.",
    "SWA-L7": "A window release counts down to the node that carries the receipt's id.",
    "SWA-L13": "A window that is released early goes at once where nothing else holds its leaf.",
    "SWA-M7": "A match tells how much of its last window is on the host alone.",
    "SWA-M8": (
        "A window's branching point is how far the key is cached, if the match ends before that."
    ),
    "SWA-Q2": "A request keeps the window of what it has computed, and gives up what is before it.",
    "SWA-U2": "A match makes the nodes of its last window newer, the deepest most.",
    "SWA-V1": "A window's list holds exactly the nodes that have its value.",
    "SWA-V3": "A window's sizes are those of its nodes, counted anew.",
    "SWA-V10": "A locked window is never evicted.",
    "SWA-V13": "A node's full slots map to its window slots, and to nothing where it has none.",
    "SWA-X3": (
        "Whether a branch was reached is told of the key as given by one released core, of its "
        "whole pages by the other."
    ),
    "SWA-X4": (
        "The hit of a new leaf that its window splits is measured after the split by one released "
        "core, by the key by the other."
    ),
    "SWA-X7": "Of an empty or impossible span the released cores tell different things.",
}
"""By number."""
