"""What the rules about Mamba states say, one plain sentence each, as in `rule_texts`.

Rules of the host tier and of sessions are left out, but for those that a drill breaks.
"""

from __future__ import annotations

STATE_TEXTS = {
    "MAM-A1": "On the device states ask for nothing but the cap of a path.",
    "MAM-A2": "Each freed state is one entry of the states' frees, in the order of eviction.",
    "MAM-A3": "Freed states go back to their pool one after the other.",
    "MAM-A4": "Freed states go back before the actions of the same answer are applied.",
    "MAM-A5": "Frees and splits that ride along with a cap come before it.",
    "MAM-A6": "An answer that freed no state has no entry for states.",
    "MAM-C1": "The chunk of a model's states and the page are multiples one of the other.",
    "MAM-C2": "The grid is the least common multiple of chunk and page.",
    "MAM-C3": "A negative cap means none, and a server takes no cap of zero.",
    "MAM-C4": "A core with states is not built without the length of a chunk.",
    "MAM-C5": "Without an extra buffer a page is a single token.",
    "MAM-D1": (
        "A node's state is that after exactly its prefix, and stands on no other node in its place."
    ),
    "MAM-D2": "A state is a single slot, or not there at all.",
    "MAM-D3": (
        "A node keeps its state and the locks of that apart from other components, without a "
        "boundary."
    ),
    "MAM-D4": "States are counted by slots, one for each node that has one.",
    "MAM-D5": "A node whose state was evicted is like one that never had any.",
    "MAM-D6": "The list of states orders the nodes that have one by recency, locked or not.",
    "MAM-D7": (
        "A state goes with whatever is evicted on its node, and takes nothing along above the "
        "leaves."
    ),
    "MAM-D8": "States come last of the components, and are released first.",
    "MAM-D9": "There is at most one open walk for states, and it stands on one node or none.",
    "MAM-D10": "The grid of branching points and the cap of a path are fixed when a core is built.",
    "MAM-D11": "The root never has a state.",
    "MAM-D12": "A tree with states never views its keys as pairs.",
    "MAM-D13": "A reset drops all states and tells of no frees.",
    "MAM-E1": "A walk for states begins at the least recent state that no lock holds.",
    "MAM-E2": "A step for states needs an open walk that waits for no backup.",
    "MAM-E3": "A walk whose node has left the list of states starts again at the least recent one.",
    "MAM-E4": "A walk for states does nothing more once enough is counted or no node is left.",
    "MAM-E5": "A walk for states offers a device leaf whole instead of its state.",
    "MAM-E6": "Above the leaves one step takes one state and leaves everything else of its node.",
    "MAM-E7": "One step takes at most one state.",
    "MAM-E8": "A state asks for a backup first only where a write-back host tier could take it.",
    "MAM-E9": (
        "A step of a walk for states made progress if it offers, asks, frees or counts something."
    ),
    "MAM-E14": "Closing a walk for states forgets where it stood, and so does a reset.",
    "MAM-E15": "Walks of several components can be open at once and don't depend on each other.",
    "MAM-E16": "A node that was locked after a walk for states had reached it is not evicted.",
    "MAM-E17": "A state goes with its node wherever a whole leaf is evicted.",
    "MAM-E18": "A state that goes with its node's window is freed and counted by the same step.",
    "MAM-E19": "The state of an ancestor that goes for want of children is freed with it.",
    "MAM-E22": "The cache evicts states last, and none if the walks before have freed enough.",
    "MAM-H18": "An offload names a node's state with the node's last hash.",
    "MAM-I1": (
        "An insert of less than a page says that a state is there, and its own stays with the "
        "caller."
    ),
    "MAM-I2": (
        "A declined insert does not say that a state is there, and its own stays with the caller."
    ),
    "MAM-I3": "An insert gives its state to the node that it ends at, and to no other.",
    "MAM-I4": "A state goes to the deepest part of a new leaf that its window split.",
    "MAM-I5": (
        "An insert into a tree with states must bring one; our cores refuse it before they change "
        "anything."
    ),
    "MAM-I6": "A new leaf takes over the given state itself, and becomes the newest of the list.",
    "MAM-I7": (
        "A node without a state takes over the insert's, becomes the newest and counts by its lock."
    ),
    "MAM-I8": (
        "A node that has a state keeps it and becomes the newest, and the caller has to free its "
        "own."
    ),
    "MAM-I9": "A state is stored and its node touched before the cap of its path is asked for.",
    "MAM-I10": "The touch of an insert's last node shows in the order in which leaves are evicted.",
    "MAM-I11": "The end of an insert makes no state newer but that of its last node.",
    "MAM-I12": "An insert tells that a state was there already, so that the caller frees its own.",
    "MAM-I13": "A state that comes or goes records no event.",
    "MAM-I14": "The state that an insert brings is that after the whole pages of its key.",
    "MAM-I15": "A state stored by hand makes its node the most recent one and asks for no cap.",
    "MAM-L1": "A lock holds the state of its own node alone, even before there is one.",
    "MAM-L2": "A release lets go of the state of its own node alone.",
    "MAM-L3": "A state that comes to a locked node is protected at once.",
    "MAM-L4": "An evicted state leaves the evictable size, never the protected one.",
    "MAM-L5": "A locked state is never evicted, whatever happens to others on its node.",
    "MAM-L10": (
        "A lock that skips states leaves them alone, and its receipt repeats all that was skipped."
    ),
    "MAM-L11": (
        "A release goes backwards through what its receipt has not skipped, and may be made in "
        "parts."
    ),
    "MAM-L12": (
        "A release that leaves the window alone leaves the state alone too, if the tree has "
        "windows."
    ),
    "MAM-L13": "An early release of a lock's window lets go of its state as well.",
    "MAM-L14": (
        "Releasing one window alone keeps the state locked, and that window can't be evicted then."
    ),
    "MAM-L15": "A node whose state is locked is no leaf that could be evicted.",
    "MAM-L16": "Of a leaf that is locked without its state a walk takes the state alone.",
    "MAM-L17": (
        "A release checks the count of the state before it changes that of any other component."
    ),
    "MAM-L18": (
        "After a checkpoint a request locks its state again unless it is set up to leave that out."
    ),
    "MAM-M1": "A match may end only at a node that has a state.",
    "MAM-M3": "Without a host tier a match ends at the same node for device and host.",
    "MAM-M4": (
        "A match that ends inside a node falls back to the deepest state above it, and its split "
        "stays."
    ),
    "MAM-M5": "The full hit is not shortened where a state is missing.",
    "MAM-M6": "A match makes the state newer in which it ends, and no other.",
    "MAM-M7": "Walking over a node makes its state no newer.",
    "MAM-M8": (
        "A branching point is the last depth of the grid that is cached, if no state is as deep."
    ),
    "MAM-M9": (
        "Only the full hit is rounded down to the grid; the match's end is compared with it as it "
        "is."
    ),
    "MAM-M10": "A match that ends in a state on the host alone tells of one state there.",
    "MAM-M13": "A match of less than a page has no branching point and refreshes no state.",
    "MAM-M14": "Device-only lookups, questions about windows and pins take no notice of states.",
    "MAM-M15": (
        "A hit's state is copied only where that is asked for and the state is on the device."
    ),
    "MAM-M16": (
        "A request that copies a state needs a slot, for which others may go while the hit is "
        "locked."
    ),
    "MAM-M17": (
        "A request remembers the state that it copies from, and a slot that was taken for it is "
        "its own."
    ),
    "MAM-M18": "Copying a state leaves it on its node and changes no size.",
    "MAM-M19": "A hit that is treated as a miss keeps its branching point for states.",
    "MAM-P1": "A negative cap is none: nothing is asked for, and nothing is evicted.",
    "MAM-P2": "With a cap every state that an insert adds asks once for its path to be capped.",
    "MAM-P3": "A cap is a barrier, at which the insert waits, and comes last of its step.",
    "MAM-P4": "A path is capped after the backups of its walk, and before that of its leaf.",
    "MAM-P5": "A path is capped by the states on it from its end up to the root.",
    "MAM-P6": "The cap takes states from the top down, but no fork's, no locked one, not the last.",
    "MAM-P7": "A cap takes a state from its node without a backup, and leaves all else there.",
    "MAM-P8": "What a cap frees is appended to the caller's frees, and nothing is counted.",
    "MAM-P9": "A path can keep more states than its cap, since some of them may not go.",
    "MAM-P10": "A cap spares the end of the path that it is asked for, and no other end.",
    "MAM-P11": "Capping the root's path does nothing, and a dead handle is refused.",
    "MAM-P12": "A cap of zero drops every state above the end that may go.",
    "MAM-P13": "The cache caps a path where an insert asks for it, and drains what was freed.",
    "MAM-R1": (
        "State slots are handed out in the order in which they came back, and slot zero never."
    ),
    "MAM-R2": (
        "Slots reserved for a group are handed out first, and what is left of them comes back at "
        "its end."
    ),
    "MAM-R3": "A copied state is all of its source, and its replay starts anew.",
    "MAM-R4": (
        "A request's row gets a state of its own, and with an extra buffer slots to track states "
        "in."
    ),
    "MAM-R5": (
        "A checkpoint reaches as far as the offered state, and inserts nothing where none is "
        "offered."
    ),
    "MAM-R6": (
        "Without an extra buffer a running request offers a copy of its state and keeps its own."
    ),
    "MAM-R7": (
        "With an extra buffer a running request gives its tracked state away and takes a new slot "
        "for it."
    ),
    "MAM-R8": "Without an extra buffer a request that ends offers its own state.",
    "MAM-R9": (
        "With an extra buffer a request that ends offers the last tracked state that is not "
        "beyond its end."
    ),
    "MAM-R10": (
        "For want of a slot a state is evicted; a request that takes slots late gives up its own "
        "lock first."
    ),
    "MAM-R12": (
        "A running request frees an offered state that was not taken, and forgets what it tracked."
    ),
    "MAM-R13": (
        "With an extra buffer a request that ends frees all its states but the one that the tree "
        "took."
    ),
    "MAM-R14": (
        "Without an extra buffer a request that ends frees its state unless the tree took it."
    ),
    "MAM-R16": "A request that ends without a checkpoint frees all its states.",
    "MAM-R17": "A request that has no state can't free one.",
    "MAM-R18": (
        "The window before a request's last tracked state is kept, so that a match can end there."
    ),
    "MAM-R20": "Before requests are admitted as many states are evicted as they lack.",
    "MAM-S1": "The upper half of a split has no state, and no lock of one.",
    "MAM-S2": "The lower half of a split keeps the state with its locks and its place in the list.",
    "MAM-S3": "The upper half of a split enters no list of states.",
    "MAM-S4": (
        "After a split the upper half can take a state and lose it, even while the lower one's is "
        "locked."
    ),
    "MAM-V1": "The list of states holds exactly the nodes that have one.",
    "MAM-V3": "Evictable and protected states are those of unlocked and of locked nodes.",
    "MAM-V4": "A node that has a state has its full slots on the device.",
    "MAM-V5": "A state's lock never goes without a full lock, unless a caller skips FULL.",
    "MAM-V6": "The root has no state and counts as locked.",
    "MAM-V8": "Every state that a core was given is on one node or was handed back.",
}
"""By number."""
