//! The tree itself: configuration, life cycle, clock, and the split that others build on.
//!
//! Hides how nodes are stored; the operations live in the modules beside it.

use std::sync::Arc;

use crate::ComponentType;
use crate::NodeId;
use crate::assembly::{self, AuxiliaryConfig};
use crate::component::{Component, Components, FULL};
use crate::cursor::Suspended;
use crate::error::{Result, contract};
use crate::events::{EventFormat, EventLog};
use crate::evict::LeafWalk;
use crate::hash::PageLayout;
use crate::indices::Indices;
use crate::insert::SplitUpdate;
use crate::internal::ListWalk;
use crate::key::{Key, NamespaceId, Namespaces};
use crate::leaves::LeafSet;
use crate::nodes::{NO_SLOT, Nodes, Slot};
use crate::policy::Policy;
use crate::recency::Recency;
use crate::sizes::Ledger;

/// What a tree keeps of one component beside its nodes.
pub(crate) struct Record {
    pub ledger: Ledger,
    /// Empty in FULL's record, which keeps no list.
    pub recency: Recency,
    pub walk: Option<ListWalk>,
    /// The next boundary mark; never goes back (SWA-D11).
    pub next_mark: i64,
}

impl Record {
    fn new(index: usize, kind: ComponentType) -> Self {
        Record {
            ledger: Ledger::default(),
            recency: Recency::new(index),
            walk: None,
            next_mark: kind.first_mark(),
        }
    }

    /// Forgets everything but the marks.
    fn clear(&mut self, index: usize) {
        self.ledger = Ledger::default();
        self.recency = Recency::new(index);
        self.walk = None;
    }
}

/// How a tree is built; fixed for its life (CFG-12).
#[derive(Clone, Debug)]
pub struct TreeConfig {
    /// Page size and kind of unit.
    pub layout: PageLayout,
    /// Order of eviction.
    pub policy: Policy,
    /// Format of KV events; `None` records none.
    pub events: Option<EventFormat>,
    /// Components beside FULL, in tree order (SWA-C1).
    pub auxiliaries: Vec<AuxiliaryConfig>,
}

impl Default for TreeConfig {
    fn default() -> Self {
        TreeConfig {
            layout: PageLayout {
                page_size: 1,
                is_bigram: false,
            },
            policy: Policy::Lru,
            events: None,
            auxiliaries: Vec::new(),
        }
    }
}

/// What may change at any time and takes effect with the next decision (KEY-51).
#[derive(Clone, Debug)]
pub struct Settings {
    /// Hit counts are frozen, and an eviction asks for a backup first (INS-52, EVD-20).
    pub is_write_back: bool,
    /// New leaves are hashed (KEY-40).
    pub enable_storage: bool,
    /// New leaves are hashed and hits trigger offloads (LNK-1).
    pub enable_external_cache_linker: bool,
    /// Hits from which an offload is asked for.
    pub write_through_threshold: i64,
    /// Every split is announced (SPLIT-6).
    pub is_host_memory_buffer_only: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            is_write_back: false,
            enable_storage: false,
            enable_external_cache_linker: false,
            write_through_threshold: 256,
            is_host_memory_buffer_only: false,
        }
    }
}

/// The prefix tree. `V` holds the slot indices of a node.
pub struct Tree<V: Indices> {
    pub(crate) layout: PageLayout,
    pub(crate) policy: Policy,
    /// Changeable configuration; `reset` keeps it.
    pub settings: Settings,
    pub(crate) components: Components<V>,
    pub(crate) nodes: Nodes<V>,
    pub(crate) namespaces: Namespaces,
    pub(crate) events: Option<EventLog>,
    pub(crate) device_leaves: LeafSet,
    /// One for each component, in component order.
    pub(crate) records: Vec<Record>,
    pub(crate) leaf_walk: Option<LeafWalk>,
    pub(crate) suspended: Option<Suspended<V>>,
    clock: u64,
}

impl<V: Indices> Tree<V> {
    /// An empty tree. The page size must not be 0.
    ///
    /// # Panics
    /// If the page size is 0.
    pub fn new(config: TreeConfig) -> Self {
        let components = assembly::components(&config.auxiliaries, config.layout.page_size);
        Self::of_components(config, components)
    }

    /// The same tree over components that are built already.
    pub(crate) fn of_components(
        config: TreeConfig,
        components: Vec<Box<dyn Component<V>>>,
    ) -> Self {
        assert!(config.layout.page_size > 0, "a page has at least one unit");
        let records = components.iter().enumerate();
        let mut tree = Tree {
            layout: config.layout,
            policy: config.policy,
            settings: Settings::default(),
            nodes: Nodes::new(config.layout, components.len()),
            namespaces: Namespaces::new(),
            events: config.events.map(EventLog::new),
            device_leaves: LeafSet::default(),
            records: records
                .map(|(index, one)| Record::new(index, one.kind()))
                .collect(),
            components: components.into(),
            leaf_walk: None,
            suspended: None,
            clock: 0,
        };
        tree.plant();
        tree
    }

    /// Drops every node, walk and suspended insert; keeps configuration and events (RST-1).
    pub fn reset(&mut self) {
        self.leaf_walk = None;
        self.suspended = None;
        self.device_leaves.clear();
        for (index, record) in self.records.iter_mut().enumerate() {
            record.clear(index);
        }
        self.namespaces = Namespaces::new();
        self.plant();
    }

    fn plant(&mut self) {
        self.nodes.plant();
        let root = self.nodes.root;
        self.stamp_creation(root);
    }

    /// Page size and kind of unit.
    pub fn layout(&self) -> PageLayout {
        self.layout
    }

    /// The one root of all namespaces (KEY-25).
    pub fn root(&self) -> NodeId {
        self.nodes[self.nodes.root].id
    }

    /// How many nodes there are, the root included.
    pub fn node_count(&self) -> usize {
        self.nodes.count()
    }

    /// Whether the handle is the root's (NODE-6).
    pub fn is_root(&self, id: NodeId) -> Result<bool> {
        Ok(self.nodes.resolve(id)? == self.nodes.root)
    }

    /// Whether FULL has no device value (NODE-6). Without a host tier no node is evicted.
    pub fn is_full_device_evicted(&self, id: NodeId) -> Result<bool> {
        let slot = self.nodes.resolve(id)?;
        Ok(slot != self.nodes.root && self.nodes[slot].full().device.is_none())
    }

    /// Says how events name the adapter behind a namespace from now on (EVT-17). Does nothing
    /// for a namespace that the tree does not know.
    pub fn set_lora_name(&mut self, key: &Key, name: Option<&str>) {
        if let Some(namespace) = self.namespaces.find(key) {
            self.namespaces.set_lora_name(namespace, name);
        }
    }

    /// Namespace of a node: extra key and salt (STO-13).
    pub fn namespace_of(&self, id: NodeId) -> Result<(Option<&str>, Option<&str>)> {
        let slot = self.nodes.resolve(id)?;
        let namespace = self.namespaces.get(self.nodes[slot].namespace);
        Ok((
            namespace.extra_key.as_deref(),
            namespace.cache_salt.as_deref(),
        ))
    }

    /// The base stamped at a node's creation (NODE-9).
    pub fn rotation_base_of(&self, id: NodeId) -> Result<Option<i64>> {
        Ok(self.nodes[self.nodes.resolve(id)?].rotation_base)
    }

    /// Base plus the pages above the node; `None` without a base (NODE-9).
    pub fn rotation_phase_of(&self, id: NodeId) -> Result<Option<i128>> {
        let slot = self.nodes.resolve(id)?;
        Ok(self.nodes[slot].rotation_base.map(|base| {
            let above = self.units_through(slot) - self.nodes.units(slot);
            i128::from(base) + (above / self.layout.page_size) as i128
        }))
    }

    /// Units from the root through the end of a node.
    pub(crate) fn units_through(&self, slot: Slot) -> usize {
        self.nodes
            .path_up(slot)
            .map(|slot| self.nodes.units(slot))
            .sum()
    }

    /// Whether the tree has a component.
    pub fn has_component(&self, component: ComponentType) -> bool {
        self.index_of(component).is_some()
    }

    /// Place of a component in the tree's order, if it has it.
    pub(crate) fn index_of(&self, component: ComponentType) -> Option<usize> {
        self.components
            .iter()
            .position(|one| one.kind() == component)
    }

    /// The same; refused without it.
    pub(crate) fn check_component(&self, component: ComponentType) -> Result<usize> {
        match self.index_of(component) {
            Some(index) => Ok(index),
            None => contract(format!("this tree has no {component:?} component")),
        }
    }

    /// Place of a window; other components have no spans and window locks.
    pub(crate) fn check_window(&self, component: ComponentType) -> Result<usize> {
        let index = self.check_component(component)?;
        match self.components[index].is_window() {
            true => Ok(index),
            false => contract(format!("{component:?} is no window")),
        }
    }

    /// Draws the next time (NODE-20).
    pub(crate) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Reserves `count` times and returns the last one.
    pub(crate) fn tick_many(&mut self, count: u64) -> u64 {
        self.clock += count;
        self.clock
    }

    pub(crate) fn touch(&mut self, slot: Slot) {
        self.nodes[slot].rank.last_access = self.tick();
        self.rerank(slot);
    }

    /// Follows a change of what a leaf is ranked by.
    pub(crate) fn rerank(&mut self, slot: Slot) {
        if self.nodes[slot].leaf_position != NO_SLOT {
            let rank = self.policy.rank(&self.nodes[slot].rank);
            self.device_leaves.insert(&mut self.nodes, slot, rank);
        }
    }

    pub(crate) fn stamp_creation(&mut self, slot: Slot) {
        self.touch(slot);
        self.nodes[slot].rank.creation = self.tick();
    }

    pub(crate) fn is_device_leaf(&self, slot: Slot) -> bool {
        let node = &self.nodes[slot];
        slot != self.nodes.root
            && node.full().device.is_some()
            && node.data.iter().all(|data| data.lock_ref == 0)
            && !self
                .nodes
                .children(slot)
                .any(|child| self.nodes[child].full().device.is_some())
    }

    /// Brings a node's membership in the leaf set up to date (LEAF-5).
    pub(crate) fn refresh_leaf(&mut self, slot: Slot) {
        if self.is_device_leaf(slot) {
            let rank = self.policy.rank(&self.nodes[slot].rank);
            self.device_leaves.insert(&mut self.nodes, slot, rank);
        } else {
            self.device_leaves.remove(&mut self.nodes, slot);
        }
    }

    /// A node below `parent`, linked, stamped and with its T-LRU lengths, but without values.
    pub(crate) fn grow_leaf(
        &mut self,
        parent: Slot,
        namespace: NamespaceId,
        tokens: crate::Span<i64>,
    ) -> Slot {
        self.namespaces.retain(namespace);
        let leaf = self.nodes.create(namespace, tokens);
        self.stamp_creation(leaf);
        self.nodes.append_child(parent, leaf);
        if self.policy.keeps_lengths() {
            self.extend_history(parent, leaf);
        }
        leaf
    }

    /// POL-8: the branch remembers how deep it has ever been.
    fn extend_history(&mut self, parent: Slot, leaf: Slot) {
        let above = &self.nodes[parent].rank;
        let above = above.depth + self.nodes.units(parent) as u64;
        let length = above + self.nodes.units(leaf) as u64;
        let rank = &mut self.nodes[leaf].rank;
        rank.depth = above;
        rank.history_length = length;
        let mut at = leaf;
        while at != self.nodes.root {
            at = self.nodes[at].parent;
            let history = &mut self.nodes[at].rank.history_length;
            if *history >= length {
                return;
            }
            *history = length;
        }
    }

    /// Splits a node: its first `units` go to a new node above it, whose slot is returned
    /// (SPLIT-1 to SPLIT-11).
    pub(crate) fn split(&mut self, lower: Slot, units: usize) -> Slot {
        let node = &self.nodes[lower];
        let namespace = node.namespace;
        let upper_tokens = node.tokens.slice(0, self.layout.raw(units));
        self.namespaces.retain(namespace);
        let upper = self.nodes.create(namespace, upper_tokens);
        self.stamp_creation(upper);
        self.nodes.insert_above(upper, lower, units);
        self.divide_state(upper, lower, units);
        for (index, record) in self.records.iter_mut().enumerate().skip(FULL + 1) {
            if self.nodes[upper].data[index].device.is_some() {
                record.recency.insert_behind(&mut self.nodes, lower, upper);
            }
        }
        self.touch(lower);
        self.refresh_leaf(upper);
        self.refresh_leaf(lower);
        upper
    }

    fn divide_state(&mut self, upper: Slot, lower: Slot, units: usize) {
        let pages = units / self.layout.page_size;
        let components = Arc::clone(&self.components);
        let node = &mut self.nodes[lower];
        let mut data = std::mem::take(&mut node.data);
        let hashes = node.hashes.as_mut().map(|list| list.cut_front(pages));
        let event_hashes = node.event_hashes.as_mut().map(|list| list.cut_front(pages));
        let (pending, is_stored) = (node.write_through_pending, node.is_externally_stored);
        let (rotation_base, rank) = (node.rotation_base, node.rank);
        if self.policy.keeps_lengths() {
            node.rank.depth += units as u64;
        }
        let node = &mut self.nodes[upper];
        for (index, component) in components.iter().enumerate() {
            component.redistribute_on_node_split(&mut node.data[index], &mut data[index], units);
        }
        (node.hashes, node.event_hashes) = (hashes, event_hashes);
        (node.write_through_pending, node.is_externally_stored) = (pending, is_stored);
        node.rotation_base = rotation_base;
        // The upper fragment keeps its own access time, and everything else of the whole node.
        node.rank = crate::RankInputs {
            last_access: node.rank.last_access,
            ..rank
        };
        self.nodes[lower].data = data;
    }

    /// What the caller must be told of a split, if anything (SPLIT-6).
    pub(crate) fn split_update(&self, upper: Slot, lower: Slot) -> Option<SplitUpdate> {
        let pending = self.nodes[lower].write_through_pending;
        if pending.is_none() && !self.settings.is_host_memory_buffer_only {
            return None;
        }
        Some(SplitUpdate {
            ack_id: pending,
            split_node: self.nodes[lower].id,
            new_node: self.nodes[upper].id,
        })
    }

    /// The device value of a component; `None` on the root (SIZE-8).
    pub fn device_value(&self, id: NodeId, component: ComponentType) -> Result<Option<V>> {
        let slot = self.nodes.resolve(id)?;
        let index = self.check_component(component)?;
        Ok(self.nodes[slot].data[index].device.clone())
    }

    /// Stores a device value of an auxiliary component on a node without one (SIZE-7).
    pub fn set_device_value(
        &mut self,
        id: NodeId,
        component: ComponentType,
        value: V,
    ) -> Result<()> {
        let slot = self.nodes.resolve(id)?;
        let index = self.check_component(component)?;
        if index == FULL || slot == self.nodes.root {
            return contract(format!("{component:?} of node {id} can't be set"));
        }
        if self.nodes[slot].data[index].device.is_some() {
            return contract(format!("node {id} has a {component:?} value already"));
        }
        let expected = self.components[index].value_len(self.nodes.units(slot));
        if value.len() != expected {
            let given = value.len();
            return contract(format!("node {id} takes {expected} slots, not {given}"));
        }
        self.store_value(slot, index, value);
        Ok(())
    }

    /// SWA-A8, MAM-I15: newest of its list, counted by the node's lock.
    pub(crate) fn store_value(&mut self, slot: Slot, index: usize, value: V) {
        let record = &mut self.records[index];
        record.recency.insert_newest(&mut self.nodes, slot);
        let data = &mut self.nodes[slot].data[index];
        let size = match data.lock_ref {
            0 => &mut record.ledger.evictable,
            _ => &mut record.ledger.protected,
        };
        *size += value.len() as i128;
        data.device = Some(value);
    }

    /// CMP-2, LRU-19: an unlocked value leaves node, list and ledger.
    pub(crate) fn take_value(&mut self, slot: Slot, index: usize) -> Option<V> {
        let value = self.nodes[slot].data[index].device.take()?;
        let record = &mut self.records[index];
        record.recency.remove(&mut self.nodes, slot);
        record.ledger.evictable -= value.len() as i128;
        Some(value)
    }
}
