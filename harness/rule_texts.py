"""What the rules of the spec say, one plain sentence each.

Those about windows and states are all told, in files of their own; of the others only those that
decide about divergences, that the ledger of known differences names or that a drill breaks. `rules`
says where they apply.
"""

from __future__ import annotations

from .state_texts import STATE_TEXTS
from .window_texts import WINDOW_TEXTS

RULE_TEXTS = {
    **WINDOW_TEXTS,
    **STATE_TEXTS,
    "BKP-25": (
        "A backup plan hands out the node's own device slots, and no slots for a node that has a "
        "host copy."
    ),
    "BKP-30": (
        "Committing a backup stores a copy of the given host slots on the node; no slots change "
        "nothing."
    ),
    "BKP-36": (
        "Marking nodes as pending sets their acknowledgement id and answers them ancestors first."
    ),
    "BKP-42": (
        "A landed backup clears the marks that carry its id and publishes every listed node on "
        "the host."
    ),
    "BND-9": "Whatever a core answers is a value of the declared type that the caller owns.",
    "BND-22": "A number outside its declared range is refused with an OverflowError.",
    "BND-23": (
        "A component that is unknown, or that the tree was built without, is refused with a typed "
        "error."
    ),
    "BND-24": "A value of the wrong type is refused with a TypeError.",
    "BND-27": (
        "The slots of an insert are 64-bit integers on the core's device, and none are converted."
    ),
    "BND-31": (
        "A handle that is not alive is refused with an error that carries the handle, before any "
        "change."
    ),
    "BND-34": "A core that has panicked refuses every later call.",
    "BND-35": (
        "Every call comes back: calls take one lock for their whole length and never wait for "
        "another."
    ),
    "BND-45": "A refused call leaves everything that can be observed as it was.",
    "BND-46": "A handle is alive or refused, and never comes to mean another node.",
    "BUF-12": "Only components that name pools of their own have keys in a buffer-mode backup.",
    "CFG-1": (
        "A configuration is accepted or refused when the core is built, by its parameters alone."
    ),
    "CHK-18": (
        "The core's own check fails exactly if an invariant is broken, the sizes counted anew "
        "among them."
    ),
    "CHK-19": "A node with a copy in flight exists and is locked.",
    "CMP-10": "A deleted node is unlinked everywhere, and its handle is refused from then on.",
    "CTL-16": "The cache inserts with one begin and as many resumes as the core has barriers.",
    "CTL-21": (
        "An action about window slots names the slots that the driver has to move, map or free."
    ),
    "CTL-24": (
        "The tree keeps exactly those slots of an insert that it does not hand back through frees."
    ),
    "CTL-25": (
        "An eviction walks one component after the other until enough is freed or nothing is left."
    ),
    "CTL-31": "Freed slots reach the pool after each step, before the core is asked again.",
    "CTL-34": "A request gives up the window of its lock early, once, and releases the rest later.",
    "CTL-38": (
        "A checkpoint puts a request's computed tokens into the tree and makes its row name the "
        "tree's slots."
    ),
    "CTL-39": (
        "A request that ends gives back its lock, its row, and the slots that it alone holds."
    ),
    "CTL-50": "What an op does and how it ends follows from what the core answered before.",
    "CTL-60": "Every slot is free, in the tree, or held by one request: exactly one of these.",
    "CTL-61": (
        "With no request left every lock is released, so that all of the tree can be evicted."
    ),
    "EVD-1": "Each component has at most one open walk, and steps need one.",
    "EVD-3": "Closing a walk forgets its candidates and what it was waiting for.",
    "EVD-4": "A step compares the caller's running total with the request, and only reads it.",
    "EVD-6": "A step reports what this step alone freed and counted.",
    "EVD-7": (
        "A step made progress exactly if it offers a node, asks for a backup, frees or counts "
        "something."
    ),
    "EVD-9": "A leaf that the caller did not evict is not offered again by the same walk.",
    "EVD-11": "A walk ranks the leaves that are there when it is opened.",
    "EVD-12": (
        "The parent that an offered leaf has left without children joins the walk at the next step."
    ),
    "EVD-13": (
        "A walk offers nothing more once the running total reaches the request or no leaf is left."
    ),
    "EVD-15": "A step of the full component's walk frees nothing and changes nothing.",
    "EVD-16": "Other leaves that appear during a walk are not offered by it.",
    "EVD-17": (
        "Only a device leaf that nobody locks can be evicted; anything else is refused unchanged."
    ),
    "EVD-18": "Evicted tokens count as unbacked if their node had no host copy.",
    "EVD-20": (
        "In write-back mode a leaf without a host copy is not evicted; its backup is asked for "
        "instead."
    ),
    "EVD-21": (
        "Evicting a leaf without a host copy deletes it: an event, its slots freed, its parent "
        "perhaps a leaf."
    ),
    "EVD-22": "The count of a deleted leaf has an entry for every component, zeros included.",
    "EVD-23": (
        "A leaf goes in the core's own write mode; who names another is obeyed by the released "
        "Python core alone."
    ),
    "EVD-25": "Only a node with both a device and a host copy can be demoted.",
    "EVD-28": "A demoted node gives up its device slots and stays in the tree with its host copy.",
    "EVD-32": "A demote counts only components that had something on the device.",
    "EVD-33": (
        "A subtree without host copies is dropped only from an unlocked device leaf that nothing "
        "still needs."
    ),
    "EVD-34": (
        "A dropped subtree goes from the deepest nodes up, and its slots are freed in that order."
    ),
    "EVD-35": "Dropping a subtree counts device tokens alone.",
    "EVD-41": (
        "An interrupted eviction is finished for the node that it waits for, in an open walk."
    ),
    "EVH-6": (
        "Host eviction always counts its component, and answers nothing for one that is not there."
    ),
    "EVH-12": (
        "Host leaves go in the order of the policy, and a parent that becomes one joins the walk."
    ),
    "EVH-16": "Host slots are freed in the order in which their nodes were taken.",
    "EVT-3": "Taking the events gives all that are queued, in order, once, and empties the queue.",
    "EVT-4": "Only the cache records that everything was cleared.",
    "EVT-10": (
        "A stored page tells its tokens, its size and its salt, chained to the page before it."
    ),
    "EVT-11": "A removed node tells the hashes of all its pages in order.",
    "EVT-12": (
        "A page's published hash comes from the node's own chain, or from the namespace's event "
        "chain."
    ),
    "EVT-14": (
        "The first page of a node is chained to the last page of its parent, below the root to "
        "nothing."
    ),
    "EVT-15": (
        "A published hash is the page's own, mixed with the seed of its namespace if there is one."
    ),
    "EVT-16": (
        "By default only an adapter's namespace has a seed; in Dynamo's format each has, with its "
        "salt."
    ),
    "EVT-17": "An event names the adapter that is registered for its namespace.",
    "EVT-18": (
        "An adapter is found by its whole namespace, in Dynamo's format also by the namespace's "
        "end."
    ),
    "EVT-19": "An event carries the adapter's name that is registered when it is recorded.",
    "EVT-20": (
        "An event joins the last one of the queue only if all that they share is equal and the "
        "hashes chain."
    ),
    "EVT-21": (
        "Events of different namespaces are never joined by the released Rust core, and by others "
        "they are."
    ),
    "EVT-30": "A store or removal is recorded exactly when a node enters or leaves a tier.",
    "EVT-31": "Only an insert gives an event a session.",
    "FLAT-2": "All slots of the tree are listed node by node, each parent before its children.",
    "FLAT-3": "All states of the tree are listed node by node, each parent before its children.",
    "FLAT-4": "The canary walk gives a row for each device slot of each node, in tree order.",
    "FLAT-5": (
        "A slot's position is its depth, and the slot before it is the one above it on its path."
    ),
    "FLAT-6": (
        "The canary walk leaves out the root, locked nodes where asked, and nodes without a "
        "window where asked."
    ),
    "FULL-3": (
        "Both halves of a split have the locks of the whole, and each a copy of its part of the "
        "values."
    ),
    "HIC-1": "The host tier can be turned on and never off.",
    "HIC-2": "Buffer-only mode can be turned on and never off.",
    "HIC-3": "A changed setting holds from the next decision on and rewrites nothing.",
    "HIC-4": "That there is a host pool for windows can be told, and not be taken back.",
    "HINS-3": "A host insert of an empty key inserts nothing.",
    "HINS-4": (
        "A host insert tells the length of its key, and neither a device node nor adopted ranges."
    ),
    "HINS-5": "A host insert walks down from its anchor along the pages of the key.",
    "HINS-7": "A matched node without a host copy takes the given slots as its host copy.",
    "HINS-9": "A host insert counts as known only what had a host copy before.",
    "HINS-13": "A host insert names the node that holds the end of the key on the host.",
    "HINS-14": "Host data below a node that has no host copy is dropped.",
    "INS-1": "A second insert is refused while one is suspended.",
    "INS-2": "An insert runs to its first barrier or its end, and goes on when it is resumed.",
    "INS-3": "Resuming is refused when no insert is suspended.",
    "INS-4": "An insert is in flight exactly while it is suspended.",
    "INS-5": "Ending an insert drops it and hands out the actions that were not handed out yet.",
    "INS-7": (
        "An insert is begun, resumed until it has a result, and ended; its result carries no "
        "actions."
    ),
    "INS-11": (
        "The value of an insert is 64-bit, flat, on the core's device and at least as long as the "
        "aligned key."
    ),
    "INS-13": "Every insert that begins touches the root and raises its priority.",
    "INS-14": (
        "An insert of less than a page ends at once at the root and says that a state is there."
    ),
    "INS-16": "A rotation base conflicts if the deepest node that the key reaches has another one.",
    "INS-17": "An insert whose rotation base conflicts is declined and changes nothing.",
    "INS-18": "An insert without a rotation base is never declined.",
    "INS-19": "The rotation base is stamped on new leaves only; other nodes keep theirs.",
    "INS-21": "An insert touches each node that it finds, before any split.",
    "INS-22": (
        "An insert splits a node that it matches in part, and raises the upper half's priority "
        "alone."
    ),
    "INS-31": (
        "Duplicate slots are freed from where the caller's own prefix ends, those without a "
        "window first."
    ),
    "INS-32": (
        "Each node's duplicates are freed apart, and they are the request's slots, never the "
        "tree's."
    ),
    "INS-40": (
        "What is left of the key becomes a new leaf with copies of the given slots, which the "
        "tree adopts."
    ),
    "INS-41": "An insert tells how much was there before and names the node at which the key ends.",
    "INS-45": (
        "An insert touches the root and each walked node from the top down, so that deeper nodes "
        "are newer."
    ),
    "INS-50": "A walked node or new leaf counts a hit if it ends beyond what was inserted before.",
    "INS-52": "A visit counts one hit, and under write-back none.",
    "INS-53": (
        "A counted node whose hits reach the threshold, and which needs a copy, asks for its "
        "backup."
    ),
    "INS-54": "The insert that makes a leaf counts as its first visit.",
    "INS-56": (
        "A backup names the node after its consecutive ancestors that need one too, the topmost "
        "first."
    ),
    "INS-60": "Actions are handed out in the order in which they arose, all of them at a barrier.",
    "INS-61": (
        "A step tells a node's split first, then what components ask for, freed slots, and a "
        "backup."
    ),
    "INS-62": "The last step hands out everything that is left, and the backup at the very end.",
    "INS-63": "An insert suspends only when it hands out an action that can't wait.",
    "INS-71": "The numbers and texts of an insert have fixed types and ranges.",
    "INV01-1": (
        "After every op the tree is well formed: one root, parents and children that agree, no "
        "dead nodes."
    ),
    "INV02-5": "Full slots leave the tree through frees or a reset, each exactly once.",
    "KEY-3": "An empty salt is none, while an empty extra key is a namespace of its own.",
    "KEY-4": "A key's limit cuts its tokens off.",
    "KEY-5": "A key of pairs has one unit less than tokens.",
    "KEY-11": "Two keys match as far as their first whole pages are the same.",
    "KEY-13": "A child is found by its first page together with its namespace.",
    "KEY-20": "A tree of pairs views every key as pairs of tokens.",
    "KEY-25": "One tree with one root serves all namespaces, and nodes never mix them.",
    "KEY-26": "A node's device value has one slot for each unit of its key.",
    "KEY-30": "A page's hash is that of its tokens after the hash of the page before it.",
    "KEY-31": "A page with a token beyond 32 bits is hashed by wide tokens, and no other page is.",
    "KEY-32": "Each page of a chain is hashed after the one before it.",
    "KEY-37": (
        "A node's hashes go on from its parent's last hash, below the root from the namespace."
    ),
    "KEY-38": "The number of a hash is its first 64 bits, read with a sign.",
    "KEY-40": (
        "A node gets its own hashes when it is made with storage or linker on, or when an event "
        "needs them."
    ),
    "KEY-41": "A backfill hashes every node that has no hashes, parents first, and tells how many.",
    "KEY-42": (
        "A node's own, last and ancestors' hashes are read as they are stored, up to the first gap."
    ),
    "KEY-43": (
        "A node that can be backed up from a buffer is described as it is now; any other gives "
        "nothing."
    ),
    "KEY-44": "A planned node still holds only if it is on the device with the same length.",
    "KEY-51": "The core's settings are those that were set last, and a reset keeps them.",
    "KEY-54": "Fields of an insert's result that belong to other features stay at their defaults.",
    "KEY-56": "Fields of a match that no component sets stay at their defaults.",
    "LDB-2": (
        "A load-back plan names the evicted nodes of the path from the top, with their host slots."
    ),
    "LDB-21": (
        "A node that is being loaded carries the mark of its anchor, in write-back mode alone."
    ),
    "LDB-22": "Loading gives the listed nodes copies of the device slots, one after the other.",
    "LDB-30": "A landed load clears its marks and makes the nodes of the path settled duplicates.",
    "LEAF-1": "A device leaf is on the device, unlocked, and has no child on the device.",
    "LEAF-2": "A host leaf is on the host alone, unlocked, and has no children.",
    "LEAF-5": (
        "Whether a node is a leaf is asked again when its value, its locks or its children change."
    ),
    "LEAF-6": "A lock takes the nodes on its path out of the leaves at once.",
    "LNK-2": (
        "An offload is planned for a node that is neither stored outside nor on its way there."
    ),
    "LNK-3": "An offload names the node's device slots and its page hashes.",
    "LNK-4": "Only a node that is neither stored nor pending can be marked for an offload.",
    "LNK-5": (
        "A node whose offload is in flight is not offered again, nor is either half of it after a "
        "split."
    ),
    "LNK-6": "An offload that ends clears its marks, and marks the nodes as stored if it landed.",
    "LNK-7": "After an offload that failed the next counted visit asks for it again.",
    "LNK-8": (
        "A path is marked as stored from a node up to one of its ancestors, which is left out."
    ),
    "LNK-9": "That a node is stored outside goes to both parts of a split and is never taken back.",
    "LNK-21": (
        "FULL and each window tell what they took over from an insert, and states tell nothing."
    ),
    "LOCK-1": "A lock takes every component that is not skipped and gives a receipt.",
    "LOCK-2": (
        "The receipt names the node, what was skipped, and what each component needs for the "
        "release."
    ),
    "LOCK-3": (
        "A lock counts on every node up to the root; those first locked move from evictable to "
        "protected."
    ),
    "LOCK-6": (
        "A window lock counts from the node upward until the window is covered, and marks where "
        "it ends."
    ),
    "LOCK-8": "A release takes back what its receipt took, on the receipt's own node.",
    "LOCK-9": (
        "A release that leaves the window alone leaves states alone too; without windows it "
        "leaves nothing."
    ),
    "LOCK-10": (
        "A release counts down on every node up to the root; those last locked become evictable "
        "again."
    ),
    "LOCK-12": "A release is refused when a count on its path is zero.",
    "LOCK-14": "A pin locks the full component alone, without a receipt.",
    "LOCK-15": "A window can be released early, once, with the receipt of its lock.",
    "LOCK-16": (
        "A window that is released early is evicted at once where its node is a device leaf."
    ),
    "LOCK-18": "One window component of a receipt can be released alone.",
    "LOCK-19": (
        "Both halves of a locked node are locked, but its state is locked on the lower one alone."
    ),
    "LOCK-20": "A node's lock count is the number of locks and pins held on it or below it.",
    "LOCK-21": "A lock changes no order and no hits, and records no event.",
    "LOCK-22": (
        "A host lock takes every component's host side and gives a receipt without device parts."
    ),
    "LOCK-23": (
        "A host lock pins one node, and only one that has a host copy unless writes go back."
    ),
    "LOCK-24": "A host lock counts on its node and marks it with an id that its receipt repeats.",
    "LOCK-25": "A host lock is released with its receipt on its own node.",
    "LOCK-26": (
        "A host release counts down from the node up to the one that carries the receipt's mark."
    ),
    "LOCK-27": "A host lock spans both halves of a split, and its boundary goes to the upper one.",
    "LOCK-28": "A host lock holds a node on the host, and does not keep it on the device.",
    "LRU-3": "A newcomer can be put just behind a member of a list, which keeps its own place.",
    "LRU-4": "What is removed from a list was a member and is none any more.",
    "LRU-5": "A member that is refreshed moves to the head of its list.",
    "LRU-9": "A walk goes on with the nearest newer member that nobody locks.",
    "LRU-10": "A component's device list holds exactly the nodes that have its device value.",
    "LRU-11": "A component's host list holds the nodes that have its value on the host alone.",
    "MATCH-1": "An empty key matches the root and touches nothing.",
    "MATCH-2": "A match walks from the root along whole pages until the key or the tree ends.",
    "MATCH-3": (
        "Every unit that a match walks over counts, whatever the components say of the node."
    ),
    "MATCH-4": (
        "A match that ends inside a node splits it, and goes no further than its upper half."
    ),
    "MATCH-7": (
        "A match names the last node on its way that every component accepts, the root if there "
        "is none."
    ),
    "MATCH-9": "The matched length is that of the device slots down to the last device node.",
    "MATCH-10": "A match names the deepest node that it visited.",
    "MATCH-12": (
        "The host hit is the length of the host copies between the last device node and the best "
        "match."
    ),
    "MATCH-13": "A match carries no action, or the single one of its split.",
    "MATCH-17": "Matching is not called cheap by either core.",
    "NODE-3": "The root is empty and locked, and it is never evicted or backed up.",
    "NODE-4": "New nodes get new handles, in order of creation, and none is used again.",
    "NODE-5": (
        "A handle is alive until its node leaves the tree; then it is refused and nothing changes."
    ),
    "NODE-6": "The root, host copies and evicted nodes are told by what the node holds.",
    "NODE-7": (
        "A new child comes last among its siblings, and the upper part of a split takes the old "
        "place."
    ),
    "NODE-8": (
        "A node's key is whole pages, and no two children begin with the same page of one "
        "namespace."
    ),
    "NODE-9": (
        "A node's rotation phase is its base plus the pages above it, and nothing without a base."
    ),
    "NODE-10": "Hits are counted by inserts and copied by splits, and by nothing else.",
    "NODE-11": "An insert raises the priority of every node on its way and never lowers it.",
    "NODE-14": (
        "Host copies suit write-through if each of them hangs below another one or the root."
    ),
    "NODE-23": (
        "A match makes its path the newest of the tree, the best match first and the root last."
    ),
    "NODE-24": (
        "The lower half of a split gets a new time, and the upper half takes over the creation "
        "time."
    ),
    "NODE-40": "A reset leaves a new root alone and keeps settings and queued events.",
    "ORD-2": "A node weighs as often as it, or a node below it, was named.",
    "ORD-3": (
        "Nodes are ordered depth first, heavier subtrees first, and each node after its subtree."
    ),
    "PATH-1": "A device-only lookup reads full slots alone and refreshes nothing.",
    "PATH-2": (
        "A read-only match stops at the first node that is not on the device and changes nothing."
    ),
    "PATH-10": "A path lists the nodes from below the root to the asked one, with their spans.",
    "PATH-11": "A path's slots are those of its nodes from the top down, without the end itself.",
    "PLUG-1": (
        "Every core has the same methods and answers those that it can't serve in the agreed way."
    ),
    "POL-4": "Leaves are offered in the order of the policy's rank, the lowest first.",
    "POL-5": "T-LRU gives up a tail first if it begins at the budget or behind it.",
    "POL-8": (
        "A node's depth and the greatest depth below it are kept for the policy that needs them."
    ),
    "POL-9": (
        "The upper half of a split is as deep as its own end, and both know how far the tree went "
        "below."
    ),
    "POL-12": "Only inserts, matches and splits make a node newer, each in its own order.",
    "POL-14": (
        "The rest of a node that was matched in part is newer than others, and older than what "
        "was matched."
    ),
    "POL-15": "A node keeps the time of its creation, and the upper part of a split takes it over.",
    "POL-21": "A walk ranks each candidate once, and later touches don't matter to it.",
    "POOL-15": "Freed slots join the free list in the order in which they are given back.",
    "POOL-35": "A run of freed window slots goes back page by page, in the order of the run.",
    "POOL-42": "Freed states are handed out again in the order in which they came back.",
    "POOL-59": (
        "What is allocated and freed, and in which order, follows the core's actions one by one."
    ),
    "POOL-61": (
        "A slot has one owner: it is handed out once, freed once, and written by its owner alone."
    ),
    "POOL-63": "A window slot belongs to one full slot, which is allocated.",
    "RST-1": "A reset leaves a new root alone, and every handle from before is refused.",
    "RST-3": (
        "A reset empties all sizes, lists and leaves, and the result for an empty key names the "
        "new root."
    ),
    "RST-4": "A reset keeps settings, queued events and what handles and ids have counted up to.",
    "SIZE-1": "Evictable and protected are the device tokens of unlocked and of locked nodes.",
    "SIZE-2": "The sizes by name are those of their component.",
    "SIZE-4": "The total counts all device values, locked or not.",
    "SIZE-5": (
        "A size is corrected by hand where the node has a value, on the side that its lock says."
    ),
    "SIZE-7": "A device value can be stored by hand for other components than the full one.",
    "SIZE-8": "A component's device value is read as it is stored, and the root has none.",
    "SIZE-9": "A value is on the host alone if it is there and not on the device.",
    "SPLIT-1": "A split gives its new handle to the upper half.",
    "SPLIT-2": (
        "A split puts a new node above the old one, which keeps its handle and the rest of the key."
    ),
    "SPLIT-3": "The upper part of a split takes over priority, hits, age, marks and rotation base.",
    "SPLIT-4": "A split cuts the hashes of a node at the same page as its key.",
    "SPLIT-5": (
        "A split cuts a full value where it cuts the key, and each half has a copy of its part."
    ),
    "SPLIT-6": (
        "A split tells of itself if the node has a copy in flight or host memory is only a buffer."
    ),
    "SPLIT-9": "An insert touches a node before it splits it, and its upper half not again.",
    "SPLIT-10": "A split changes no size, and its halves are asked anew whether they are leaves.",
    "SPLIT-11": "A split records no event and changes no value, size or hit.",
    "STO-13": "A prefetch anchor tells the namespace of its node.",
    "STO-30": "What storing a node needs is told for every node with a host copy.",
    "XFER-2": (
        "A component plans the transfers of a phase, and nothing where it has nothing to move."
    ),
    "XFER-39": "Finished transfers are recorded on the node, component by component.",
}
"""By number."""
