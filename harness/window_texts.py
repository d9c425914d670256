"""What the rules about sliding windows say, one plain sentence each, as in `rule_texts`.

Rules of the host tier and of sessions are left out.
"""

from __future__ import annotations

WINDOW_TEXTS = {
    "SWA-A1": "Evicted windows are found by their full slots, and their slots freed.",
    "SWA-A3": "Slots whose windows are gone are freed on the full side alone.",
    "SWA-A4": "A freed slot gives back its window first and then itself.",
    "SWA-A5": "A rebuilt window is what the node's full slots map to.",
    "SWA-A6": "A recovered window moves from the new full slots to the kept ones, pair by pair.",
    "SWA-A7": "Loaded window rows are mapped to the full slots of their nodes, pair by pair.",
    "SWA-A8": "A window stored by hand makes its node the most recent one.",
    "SWA-A9": "A window's ledger is corrected by hand where the node has a window.",
    "SWA-A10": (
        "A node's split is told first, then slots that were replaced, its window, duplicates and "
        "a backup."
    ),
    "SWA-B1": "The spans of a cached key whose window value is gone are read without a change.",
    "SWA-B2": "A span without windows is cut exactly where it was asked for.",
    "SWA-B3": "Loaded window rows are attached to a span of the tree that has none.",
    "SWA-B4": "Window rows are attached root first, and nodes are split where they begin and end.",
    "SWA-B5": "Where host memory is only a buffer every split is told, whatever it was made for.",
    "SWA-C1": "Components act in one fixed order, and releases go through them backwards.",
    "SWA-C2": (
        "The longer one of a window and its draft's window rules all that the window decides."
    ),
    "SWA-C3": "The length of a window is a whole number above zero.",
    "SWA-C4": "A window needs as many whole pages as cover it.",
    "SWA-C5": "Who owns the windows matters for nothing but where a match may end.",
    "SWA-C8": "A second window keeps its own values, lists, sizes and locks.",
    "SWA-D1": (
        "A node keeps a window's value, locks and boundary apart from those of other components."
    ),
    "SWA-D2": "A node's window has one slot for each unit of its key, or is not there at all.",
    "SWA-D3": (
        "Which window slot belongs to a full slot is known to the pool's mapping, not to the tree."
    ),
    "SWA-D4": "A zero in a window's value counts like any other slot.",
    "SWA-D5": "A window's sizes count the slots of unlocked and of locked nodes.",
    "SWA-D6": "A window's list orders the nodes that have one by recency, locked or not.",
    "SWA-D7": "The root has no window, is in no list, and ends every walk upwards.",
    "SWA-D8": "What a split, an attach or an adoption stores is a copy of what it was given.",
    "SWA-D9": "A node's window is read as it is stored, and a dead handle is refused.",
    "SWA-D10": (
        "A window goes with its leaf, and above the leaves it takes states along and never full "
        "slots."
    ),
    "SWA-D11": (
        "Each kind of window counts its ids up from a start of its own, and a reset does not "
        "begin anew."
    ),
    "SWA-E1": (
        "A window has at most one open walk, other components have theirs beside it, and a reset "
        "ends all."
    ),
    "SWA-E2": "A walk for a window begins at its least recent node that no lock of it holds.",
    "SWA-E3": (
        "A walk whose node has left the list starts again at the least recent one, unless it was "
        "over."
    ),
    "SWA-E4": "A node that was locked after a walk for a window had reached it is not evicted.",
    "SWA-E5": "A walk for a window offers a device leaf whole instead of its window.",
    "SWA-E6": "Above the leaves one step takes the window of one node, and what depends on it.",
    "SWA-E7": "A step for a window counts the slots of the window that it freed.",
    "SWA-E8": "A state goes with the window of its node, and so does an unlocked second window.",
    "SWA-E9": "A window goes with its node wherever a whole leaf is evicted.",
    "SWA-E10": "An evicted window is told by the full slots of its node.",
    "SWA-E11": (
        "The window of an ancestor that goes for want of children is freed and counted with it."
    ),
    "SWA-E12": "A window asks for a backup first only where a write-back host tier could take it.",
    "SWA-E16": "Closing a walk for a window forgets where it stood.",
    "SWA-E18": (
        "A step of a walk for a window made progress if it offers, asks, frees or counts something."
    ),
    "SWA-E20": "A split in the middle of a walk leaves the walk at the lower half.",
    "SWA-I1": (
        "An insert says up to where its slots have lost their windows, and only later ones carry "
        "any."
    ),
    "SWA-I2": "The point up to which an insert has no windows is the end of a page.",
    "SWA-I3": (
        "A node without a window is split where the insert's windows begin, and its upper half "
        "stays bare."
    ),
    "SWA-I4": (
        "On a node that was there each component acts first, then duplicates are freed and the "
        "hit counts."
    ),
    "SWA-I5": "A node inside the prefix that the caller owns already gains no window.",
    "SWA-I6": (
        "A window is recovered as far as the insert has one, even before the caller's own prefix "
        "ends."
    ),
    "SWA-I7": "Where full slots are locked, they are kept and take over the new slots' window.",
    "SWA-I8": (
        "Where full slots are not locked, the new ones take their place, and the window is rebuilt."
    ),
    "SWA-I9": "A recovered span is adopted by the window, and by FULL where its slots changed.",
    "SWA-I10": (
        "Duplicates are freed up to where slots were taken over, those without windows on the "
        "full side alone."
    ),
    "SWA-I11": "On a node that has its window every slot of the insert is a duplicate.",
    "SWA-I12": "A window comes only by an action, at which the insert waits.",
    "SWA-I13": (
        "An insert goes on from the lower part of what a window split, which alone counts the hit."
    ),
    "SWA-I14": (
        "A second window recovers only behind the caller's own prefix, and takes over no slots."
    ),
    "SWA-I17": (
        "A new leaf has a window from where the insert's windows begin, and none if they begin "
        "behind it."
    ),
    "SWA-I18": (
        "Each window looks for a new leaf in all the parts that an earlier window left of it."
    ),
    "SWA-I19": "The end of an insert fills a window only where it made a new leaf.",
    "SWA-I20": (
        "A new leaf longer than its window is split, so that it ends up with one window of whole "
        "pages."
    ),
    "SWA-I21": (
        "The windows of a split leaf are asked for from the top down, behind what its splits tell."
    ),
    "SWA-I22": (
        "Who splits a node whose window is still asked for asks for its halves instead, the upper "
        "one first."
    ),
    "SWA-I23": "An insert names the deepest part of its leaf, whatever was split off above.",
    "SWA-I24": "An insert tells whether its whole key is as long as the branching length.",
    "SWA-I25": "An insert makes its window newer once its actions are done.",
    "SWA-I26": "Of a leaf that its window split only the lowest part counts the hit.",
    "SWA-I28": (
        "Adopted ranges are told only where that was asked for, and those that touch become one."
    ),
    "SWA-I29": "An insert given up at a barrier leaves what FULL took over, and windows missing.",
    "SWA-L1": "A window lock counts on whole nodes upward until the window is covered.",
    "SWA-L2": "The node with which a window is covered keeps one id, for all receipts alike.",
    "SWA-L3": "A locked window stays in its list, and walks step over it.",
    "SWA-L4": "A window that comes to a locked node is protected at once.",
    "SWA-L5": "A receipt has an entry for each window that was locked, and none for a skipped one.",
    "SWA-L6": "A lock of the root counts on nothing.",
    "SWA-L7": "A window release counts down to the node that carries the receipt's id.",
    "SWA-L8": (
        "A release is refused if its receipt is another node's, or has no entry for a window it "
        "should have."
    ),
    "SWA-L9": (
        "A boundary that no node carries ends no release; our cores refuse what would take "
        "others' locks."
    ),
    "SWA-L10": "A release that leaves the window alone leaves the state alone too.",
    "SWA-L11": "An early release gives up a lock's window and state, and its full slots stay held.",
    "SWA-L12": "One window of a lock can be released alone, and nothing happens if it was skipped.",
    "SWA-L13": "A window that is released early goes at once where nothing else holds its leaf.",
    "SWA-L14": "An early release frees a window at once only where FULL was not locked with it.",
    "SWA-L15": "After an early release a leaf's window can be evicted while its full slots stay.",
    "SWA-L16": "An early release answers with what it freed, which is most often nothing.",
    "SWA-L17": (
        "A window is released early at most once and up to its boundary, and the rest later "
        "without it."
    ),
    "SWA-L18": "A pin never touches a window.",
    "SWA-L19": (
        "A host lock counts upward over one window as a device lock does, and has a boundary of "
        "its own."
    ),
    "SWA-L23": "A node that any component locks is no leaf that could be evicted.",
    "SWA-M1": (
        "Each match asks every component anew about each node that it visits, from the root down."
    ),
    "SWA-M2": (
        "A match may end where no window was missing so far, or a whole window above has no gap."
    ),
    "SWA-M3": "Without a host tier only windows on the device count for a match.",
    "SWA-M4": (
        "Where windows don't gate matches, one may end at a node without any; after a gap a "
        "window must still be whole."
    ),
    "SWA-M5": "A match ends only at a node that every component accepts.",
    "SWA-M6": "A match refreshes windows from its end upward, and none if it ends at the root.",
    "SWA-M7": "A match tells how much of its last window is on the host alone.",
    "SWA-M8": (
        "A window's branching point is how far the key is cached, if the match ends before that."
    ),
    "SWA-M9": "The full hit counts all that was walked over, with or without a window.",
    "SWA-M11": "A match of less than a page asks no component and changes nothing.",
    "SWA-M12": "A node that a match splits has its window cut before its upper half is judged.",
    "SWA-M13": (
        "How much is computed again for a window's sake is for the scheduler to say, never for "
        "the tree."
    ),
    "SWA-N1": "An offload names the last whole pages of a node's window with their hashes.",
    "SWA-N2": "An external lookup asks for the pages of the last window alone.",
    "SWA-N3": (
        "Windows loaded from outside are mapped to a prefix's last slots, and move the request's "
        "cursor up."
    ),
    "SWA-P1": (
        "The mapping names a window slot or zero for each full slot, and slot zero is never "
        "handed out."
    ),
    "SWA-P2": "Full slots and their window slots are taken together or not at all.",
    "SWA-P3": "A run of window slots is freed by whole pages, each of which must be mapped.",
    "SWA-P4": "Only a slot whose window is gone is freed on the full side alone.",
    "SWA-P5": (
        "Within a group of frees the mapping is cleared at once, and slots come back when the "
        "group ends."
    ),
    "SWA-P6": "A mapping is set pair by pair from lists of the same length, and cleared to zero.",
    "SWA-Q1": (
        "A request's insert has windows from the request's cursor on, and may be cut at its "
        "branching point."
    ),
    "SWA-Q2": "A request keeps the window of what it has computed, and gives up what is before it.",
    "SWA-Q3": (
        "An insert that reached its branching point clears it, and the request gives up windows "
        "again."
    ),
    "SWA-Q4": (
        "A released row frees what is before its cursor on the full side alone, and the rest with "
        "windows."
    ),
    "SWA-S1": "Both halves of a split have the window locks of the whole node.",
    "SWA-S2": (
        "A split cuts a window's value where it cuts the key; without a value neither half has one."
    ),
    "SWA-S4": (
        "A window's boundary id goes to the upper half of a split, so receipts cover the same "
        "tokens."
    ),
    "SWA-S5": "The upper half of a split comes just behind the lower one in a window's list.",
    "SWA-S7": "A split changes no size of a window.",
    "SWA-S8": "After a split both halves are asked anew whether they are leaves.",
    "SWA-U1": "What an insert walks over gets no newer in a window's list.",
    "SWA-U2": "A match or insert makes the nodes of its last window newer, the deepest most.",
    "SWA-U3": "Locked windows are refreshed like any others.",
    "SWA-U4": "A window that is stored by hand enters its list as the newest.",
    "SWA-V1": "A window's list holds exactly the nodes that have its value.",
    "SWA-V3": "A window's sizes are those of its nodes, counted anew.",
    "SWA-V4": "A node that has a window has as many full slots on the device.",
    "SWA-V5": "A window lock never goes without a full lock, unless a caller skips FULL.",
    "SWA-V7": "A node without a window can be locked.",
    "SWA-V8": (
        "A receipt counts on one unbroken run of nodes up to its boundary, before and after splits."
    ),
    "SWA-V9": "A new leaf that nobody locks has at most one window of whole pages.",
    "SWA-V10": "A locked window is never evicted.",
    "SWA-V11": "A boundary id is on one node alone.",
    "SWA-V12": "The total size includes every window on the device.",
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
