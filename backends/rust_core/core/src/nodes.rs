//! The nodes of a tree: storage, handles, parent and child links.
//!
//! A node lives in a slot that is reused; its handle never is. Children hang in a list in their
//! order (NODE-7) and are found through one table for the whole tree, keyed by parent, namespace
//! and first page. Hides slots' life cycle and the hashing of pages.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};

use crate::NodeId;
use crate::component::{ComponentData, FULL, NodeData};
use crate::error::{Result, TreeError};
use crate::hash::{Digest, PageLayout};
use crate::key::{DEFAULT_NAMESPACE, NamespaceId};
use crate::policy::RankInputs;
use crate::span::Span;

/// Where a node lives; valid as long as the node does.
pub(crate) type Slot = u32;

/// No node.
pub(crate) const NO_SLOT: Slot = u32::MAX;

/// Priority of a root that no insert has raised (NODE-3).
pub(crate) const ROOT_PRIORITY: i64 = -i64::MAX;

pub(crate) struct Node<V> {
    pub id: NodeId,
    pub parent: Slot,
    pub first_child: Slot,
    pub last_child: Slot,
    pub previous: Slot,
    pub next: Slot,
    pub child_count: u32,
    /// Place among the siblings: greater is later (NODE-7).
    pub order: u64,
    /// Place in the set of device leaves, `NO_SLOT` outside it.
    pub leaf_position: u32,
    pub namespace: NamespaceId,
    /// Raw tokens; a bigram node shares its last one with its children's first.
    pub tokens: Span<i64>,
    pub rank: RankInputs,
    pub data: NodeData<V>,
    pub hashes: Option<Span<Digest>>,
    pub event_hashes: Option<Span<Digest>>,
    pub write_through_pending: Option<NodeId>,
    pub is_externally_stored: bool,
    pub rotation_base: Option<i64>,
}

impl<V> Node<V> {
    fn new(id: NodeId, namespace: NamespaceId, tokens: Span<i64>, components: usize) -> Self {
        Node {
            id,
            parent: NO_SLOT,
            first_child: NO_SLOT,
            last_child: NO_SLOT,
            previous: NO_SLOT,
            next: NO_SLOT,
            child_count: 0,
            order: 0,
            leaf_position: NO_SLOT,
            namespace,
            tokens,
            rank: RankInputs::default(),
            data: (0..components).map(|_| ComponentData::default()).collect(),
            hashes: None,
            event_hashes: None,
            write_through_pending: None,
            is_externally_stored: false,
            rotation_base: None,
        }
    }

    pub fn full(&self) -> &ComponentData<V> {
        &self.data[FULL]
    }

    pub fn full_mut(&mut self) -> &mut ComponentData<V> {
        &mut self.data[FULL]
    }

    /// Whether any component holds a lock of either tier here.
    pub fn is_locked(&self) -> bool {
        self.data
            .iter()
            .any(|data| data.lock_ref > 0 || data.host_lock_ref > 0)
    }
}

pub(crate) struct Nodes<V> {
    slots: Vec<Node<V>>,
    free: Vec<Slot>,
    by_id: HashMap<NodeId, Slot, FixedState>,
    edges: HashTable<Slot>,
    hasher: FixedState,
    next_id: NodeId,
    next_order: u64,
    /// Raw tokens of a child's first page.
    page_raw: usize,
    layout: PageLayout,
    /// Entries of a node's data.
    components: usize,
    pub root: Slot,
}

impl<V> Nodes<V> {
    /// A store without a root; call `plant` next.
    pub fn new(layout: PageLayout, components: usize) -> Self {
        Nodes {
            slots: Vec::new(),
            free: Vec::new(),
            by_id: HashMap::default(),
            edges: HashTable::new(),
            hasher: FixedState::default(),
            next_id: 0,
            next_order: 0,
            page_raw: layout
                .page_size
                .saturating_add(usize::from(layout.is_bigram)),
            layout,
            components,
            root: NO_SLOT,
        }
    }

    /// Drops every node and makes a fresh root; handles go on counting (NODE-4).
    pub fn plant(&mut self) {
        self.slots.clear();
        self.free.clear();
        self.by_id.clear();
        self.edges.clear();
        let slot = self.create(DEFAULT_NAMESPACE, Span::empty());
        self.root = slot;
        let root = &mut self[slot];
        root.rank.priority = ROOT_PRIORITY;
        root.hashes = Some(Span::empty());
        for data in &mut root.data {
            data.lock_ref = 1;
        }
    }

    /// A node that hangs nowhere yet.
    pub fn create(&mut self, namespace: NamespaceId, tokens: Span<i64>) -> Slot {
        let id = self.next_id;
        self.next_id += 1;
        let node = Node::new(id, namespace, tokens, self.components);
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = node;
                slot
            }
            None => {
                let slot = Slot::try_from(self.slots.len()).expect("fewer than 2^32 nodes");
                self.slots.push(node);
                slot
            }
        };
        self.by_id.insert(id, slot);
        slot
    }

    /// How many nodes there are, the root included.
    pub fn count(&self) -> usize {
        self.by_id.len()
    }

    /// The slot of a live handle.
    pub fn find(&self, id: NodeId) -> Option<Slot> {
        self.by_id.get(&id).copied()
    }

    /// The slot of a live handle, or the error that names it.
    pub fn resolve(&self, id: NodeId) -> Result<Slot> {
        self.find(id).ok_or(TreeError::UnknownNode(id))
    }

    /// Units of a node's key.
    pub fn units(&self, slot: Slot) -> usize {
        self.layout.units(self[slot].tokens.len())
    }

    /// The child whose first page starts `rest`, which holds at least one page.
    pub fn child(&self, parent: Slot, namespace: NamespaceId, rest: &[i64]) -> Option<Slot> {
        let only = self[parent].first_child;
        if only == NO_SLOT {
            return None;
        }
        let page = &rest[..self.page_raw];
        let is_match = |slot: Slot| {
            let node = &self[slot];
            node.parent == parent
                && node.namespace == namespace
                && node.tokens[..self.page_raw] == *page
        };
        if self[parent].child_count == 1 {
            return is_match(only).then_some(only);
        }
        self.edges
            .find(self.edge_hash(parent, namespace, page), |&slot| {
                is_match(slot)
            })
            .copied()
    }

    fn edge_hash(&self, parent: Slot, namespace: NamespaceId, page: &[i64]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u64(u64::from(parent) << 32 | u64::from(namespace));
        // SAFETY: any initialised memory may be read as bytes, and `i64` has no padding.
        hasher
            .write(unsafe { std::slice::from_raw_parts(page.as_ptr().cast(), size_of_val(page)) });
        hasher.finish()
    }

    fn own_edge_hash(&self, slot: Slot) -> u64 {
        let node = &self[slot];
        self.edge_hash(node.parent, node.namespace, &node.tokens[..self.page_raw])
    }

    fn index_edge(&mut self, slot: Slot) {
        let hash = self.own_edge_hash(slot);
        let mut edges = std::mem::take(&mut self.edges);
        edges.insert_unique(hash, slot, |&slot| self.own_edge_hash(slot));
        self.edges = edges;
    }

    fn unindex_edge(&mut self, slot: Slot) {
        let hash = self.own_edge_hash(slot);
        if let Ok(entry) = self.edges.find_entry(hash, |&other| other == slot) {
            entry.remove();
        }
    }

    /// Hangs a node below a parent, after its other children (NODE-7).
    pub fn append_child(&mut self, parent: Slot, child: Slot) {
        let order = self.next_order;
        self.next_order += 1;
        let last = self[parent].last_child;
        let node = &mut self[child];
        node.parent = parent;
        node.order = order;
        node.previous = last;
        if last == NO_SLOT {
            self[parent].first_child = child;
        } else {
            self[last].next = child;
        }
        self[parent].last_child = child;
        self[parent].child_count += 1;
        self.index_edge(child);
    }

    /// Puts `upper`, which owns the first `raw` tokens of `lower`, in `lower`'s place and hangs
    /// `lower` below it; `lower` keeps the tokens from `rest` on (SPLIT-2).
    pub fn insert_above(&mut self, upper: Slot, lower: Slot, rest: usize) {
        self.unindex_edge(lower);
        let node = &mut self[lower];
        node.tokens.cut_front(rest);
        let (parent, previous, next, order) = (node.parent, node.previous, node.next, node.order);
        (node.previous, node.next) = (NO_SLOT, NO_SLOT);
        let node = &mut self[upper];
        (node.parent, node.previous, node.next, node.order) = (parent, previous, next, order);
        if previous == NO_SLOT {
            self[parent].first_child = upper;
        } else {
            self[previous].next = upper;
        }
        if next == NO_SLOT {
            self[parent].last_child = upper;
        } else {
            self[next].previous = upper;
        }
        self.index_edge(upper);
        self.append_child(upper, lower);
    }

    /// Unlinks a childless node and frees its slot; its handle is dead from now on.
    pub fn remove(&mut self, slot: Slot) {
        self.unindex_edge(slot);
        let node = std::mem::replace(&mut self[slot], Node::new(0, 0, Span::empty(), 0));
        if node.previous == NO_SLOT {
            self[node.parent].first_child = node.next;
        } else {
            self[node.previous].next = node.next;
        }
        if node.next == NO_SLOT {
            self[node.parent].last_child = node.previous;
        } else {
            self[node.next].previous = node.previous;
        }
        self[node.parent].child_count -= 1;
        self.by_id.remove(&node.id);
        self.free.push(slot);
    }

    /// A node's children in their order.
    pub fn children(&self, parent: Slot) -> impl Iterator<Item = Slot> + '_ {
        let mut at = self[parent].first_child;
        std::iter::from_fn(move || {
            let child = at;
            if child == NO_SLOT {
                return None;
            }
            at = self[child].next;
            Some(child)
        })
    }

    /// A node and its ancestors up to, but excluding, the root.
    pub fn path_up(&self, from: Slot) -> impl Iterator<Item = Slot> + '_ {
        let mut at = from;
        std::iter::from_fn(move || {
            if at == self.root {
                return None;
            }
            let node = at;
            at = self[node].parent;
            Some(node)
        })
    }

    /// Every node in pre-order, the root first, children in their order (FLAT-1).
    pub fn pre_order(&self) -> impl Iterator<Item = Slot> + '_ {
        let mut at = self.root;
        std::iter::from_fn(move || {
            let node = at;
            if node == NO_SLOT {
                return None;
            }
            at = self.after(node);
            Some(node)
        })
    }

    fn after(&self, node: Slot) -> Slot {
        if self[node].first_child != NO_SLOT {
            return self[node].first_child;
        }
        let mut at = node;
        while at != self.root {
            if self[at].next != NO_SLOT {
                return self[at].next;
            }
            at = self[at].parent;
        }
        NO_SLOT
    }
}

impl<V> std::ops::Index<Slot> for Nodes<V> {
    type Output = Node<V>;

    fn index(&self, slot: Slot) -> &Node<V> {
        &self.slots[slot as usize]
    }
}

impl<V> std::ops::IndexMut<Slot> for Nodes<V> {
    fn index_mut(&mut self, slot: Slot) -> &mut Node<V> {
        &mut self.slots[slot as usize]
    }
}
