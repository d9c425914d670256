//! What a node can hold a value for, and the hooks by which a component follows the tree.
//!
//! The tree walks and restructures; what that means for a component's values, locks and lists is
//! decided behind these hooks, one group for each group of rules (CMP, SWA, MAM). The tree calls
//! them in component order and releases in reversed order (CMP-9). Only FULL, which every node
//! has, and the calls that name a component by its type are told apart. What a further component
//! has to write is shown by the test in `fourth`.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::backup::OffloadPlan;
use crate::cursor::{Cursor, Payload};
use crate::error::Result;
use crate::hash::{Digest, PageLayout};
use crate::indices::Indices;
use crate::insert::InsertRequest;
use crate::locks::LockReceipt;
use crate::matching::MatchOutcome;
use crate::nodes::{NO_SLOT, Node, Slot};
use crate::tree::Tree;

/// The kinds of values that the contract knows (KEY-59).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ComponentType {
    /// The base component; in every tree.
    Full = 0,
    /// Sliding-window values.
    Swa = 1,
    /// State-space values.
    Mamba = 2,
    /// Compressed values.
    C128 = 3,
    /// A second window.
    AuxiliarySwa = 4,
}

impl ComponentType {
    /// The type with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        [
            Self::Full,
            Self::Swa,
            Self::Mamba,
            Self::C128,
            Self::AuxiliarySwa,
        ]
        .get(usize::from(number))
        .copied()
    }

    /// The first boundary mark of the type, one above the start of its range (SWA-D11, LOCK-29).
    pub(crate) fn first_mark(self) -> i64 {
        let range = match self {
            Self::Swa => 1,
            Self::Full => 2,
            Self::Mamba => 3,
            Self::C128 => 4,
            Self::AuxiliarySwa => 5,
        };
        range * 100_000_000_000_000 + 1
    }
}

/// Position of FULL in a node's component data; auxiliary components follow in tree order.
pub(crate) const FULL: usize = 0;

/// State of one component on one node.
#[derive(Clone, Debug)]
pub(crate) struct ComponentData<V> {
    /// Device value; absent on the root, which counts as resident in FULL all the same (NODE-3).
    pub device: Option<V>,
    pub lock_ref: u64,
    pub host_lock_ref: u64,
    /// Boundary mark of device lock segments (SWA-L1).
    pub lock_mark: Option<i64>,
    /// Boundary mark of host lock segments (LOCK-24).
    pub host_lock_mark: Option<i64>,
    /// Neighbours in the component's recency list, in which a node is while it has a value.
    pub newer: Slot,
    pub older: Slot,
}

impl<V> Default for ComponentData<V> {
    fn default() -> Self {
        ComponentData {
            device: None,
            lock_ref: 0,
            host_lock_ref: 0,
            lock_mark: None,
            host_lock_mark: None,
            newer: NO_SLOT,
            older: NO_SLOT,
        }
    }
}

impl<V> ComponentData<V> {
    /// Lock count and boundary mark of one tier.
    pub fn lock(&self, tier: Tier) -> (u64, Option<i64>) {
        match tier {
            Tier::Device => (self.lock_ref, self.lock_mark),
            Tier::Host => (self.host_lock_ref, self.host_lock_mark),
        }
    }

    /// The same, to be changed.
    pub fn lock_mut(&mut self, tier: Tier) -> (&mut u64, &mut Option<i64>) {
        match tier {
            Tier::Device => (&mut self.lock_ref, &mut self.lock_mark),
            Tier::Host => (&mut self.host_lock_ref, &mut self.host_lock_mark),
        }
    }
}

impl<V: Indices> ComponentData<V> {
    /// Entries of the device value.
    pub fn len(&self) -> u64 {
        self.device.as_ref().map_or(0, |value| value.len() as u64)
    }

    /// Splits a component whose locks and values belong to units: the upper fragment is locked
    /// alike and takes the marks, so that a segment covers the same units (FULL-3, SWA-S1 to
    /// SWA-S4).
    pub fn cut_front(&mut self, upper: &mut Self, units: usize) {
        upper.lock_ref = self.lock_ref;
        upper.host_lock_ref = self.host_lock_ref;
        upper.lock_mark = self.lock_mark.take();
        upper.host_lock_mark = self.host_lock_mark.take();
        if let Some(value) = self.device.take() {
            upper.device = Some(value.slice(0, units));
            self.device = Some(value.slice(units, value.len()));
        }
    }
}

/// Which of a node's locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    Device,
    Host,
}

/// A node's data, one entry per component in tree order; within the node if FULL is alone.
pub(crate) type NodeData<V> = SmallVec<[ComponentData<V>; 1]>;

/// The components of a tree, in component order.
pub(crate) type Components<V> = Arc<[Box<dyn Component<V>>]>;

/// The part of a request that lies on a node which an insert walks over (INS-30).
pub(crate) struct InsertOverlap {
    /// Units from the root to the node's start.
    pub position: usize,
    /// Units of the node that the request covers: all of them, after a possible split.
    pub units: usize,
}

/// Hooks of one component. `anchor`, `best` and `target` are the nodes that a call names.
pub(crate) trait Component<V: Indices>: Send + Sync {
    /// The type that calls and receipts name it by.
    fn kind(&self) -> ComponentType;

    /// How hard it is to give up on an internal node: whatever is easier goes along (CMP-1).
    fn internal_priority(&self) -> u8;

    /// Whether it keeps the last units of a path, so that it has window locks and spans.
    fn is_window(&self) -> bool {
        false
    }

    // --- Match ---------------------------------------------------------------------------

    /// Whether a match may end at `node`. Called for every visited node, root side first;
    /// `progress` is the component's own number for one match, at first `usize::MAX` (MATCH-6).
    fn accepts(&self, node: &Node<V>, progress: &mut usize) -> bool;

    /// Refreshes recency at the end of a match (MATCH-11).
    fn refresh_on_match_end(&self, _tree: &mut Tree<V>, _best: Slot) {}

    /// Adds its own figures to a match (MATCH-12).
    fn finalize_match(&self, _outcome: &mut MatchOutcome) {}

    // --- Insert --------------------------------------------------------------------------

    /// Refuses a request that lacks what the component needs; `units` are those of whole pages.
    fn check_insert(
        &self,
        _layout: PageLayout,
        _request: &InsertRequest<V>,
        _units: usize,
    ) -> Result<()> {
        Ok(())
    }

    /// Reacts to an insert over a resident node; returns from which offset of the overlap it
    /// took over the request's slots, all of its units for none (INS-30).
    fn update_on_insert_overlap(
        &self,
        _tree: &mut Tree<V>,
        _cursor: &mut Cursor<V>,
        _payload: &Payload<V>,
        _node: Slot,
        overlap: &InsertOverlap,
    ) -> usize {
        overlap.units
    }

    /// Attaches its data to the node that ends an insert, new or not (INS-42).
    fn commit_insert(
        &self,
        _tree: &mut Tree<V>,
        _cursor: &mut Cursor<V>,
        _target: Slot,
        _is_new: bool,
    ) {
    }

    /// Refreshes recency at the end of an insert (INS-44).
    fn refresh_on_insert_end(&self, _tree: &mut Tree<V>, _target: Slot) {}

    // --- Split ---------------------------------------------------------------------------

    /// Divides a node's state between its new upper fragment and itself (SPLIT-5).
    fn redistribute_on_node_split(
        &self,
        upper: &mut ComponentData<V>,
        lower: &mut ComponentData<V>,
        split_len: usize,
    );

    // --- Locks ---------------------------------------------------------------------------

    /// Locks what the anchor needs, and notes in the receipt what its release must show (LOCK-1).
    fn acquire_lock(&self, tree: &mut Tree<V>, anchor: Slot, receipt: &mut LockReceipt);

    /// Whether `release_lock` may run; checked for all components before any is released.
    fn check_release(&self, tree: &Tree<V>, anchor: Slot, receipt: &LockReceipt) -> Result<()>;

    /// Undoes one `acquire_lock` (LOCK-8).
    fn release_lock(&self, tree: &mut Tree<V>, anchor: Slot, receipt: &LockReceipt);

    /// Releases the window of a checked receipt early; returns the values that go at once
    /// (SWA-L13).
    fn release_window(&self, _tree: &mut Tree<V>, _anchor: Slot, _receipt: &LockReceipt) -> Vec<V> {
        Vec::new()
    }

    /// Pins on the host (LOCK-22).
    fn acquire_host_lock(&self, tree: &mut Tree<V>, anchor: Slot, receipt: &mut LockReceipt);

    /// Whether `release_host_lock` may run.
    fn check_host_release(&self, tree: &Tree<V>, anchor: Slot, receipt: &LockReceipt)
    -> Result<()>;

    /// Undoes one `acquire_host_lock` (LOCK-26).
    fn release_host_lock(&self, tree: &mut Tree<V>, anchor: Slot, receipt: &LockReceipt);

    // --- Values and eviction -------------------------------------------------------------

    /// Entries that the value of a node with this many units has.
    fn value_len(&self, units: usize) -> usize;

    /// Takes the device value off a node, its ledger and its list; returns what the caller is to
    /// free (CMP-2).
    fn evict_device(&self, tree: &mut Tree<V>, node: Slot) -> Option<V>;

    /// Gives up states that a path holds beyond its cap (MAM-P5).
    fn evict_excess_path_states(&self, _tree: &mut Tree<V>, _tail: Slot) -> Vec<V> {
        Vec::new()
    }

    // --- Linker --------------------------------------------------------------------------

    /// Its part of an offload of a node with these page hashes (LNK-3).
    fn plan_offload<'a>(
        &self,
        layout: PageLayout,
        value: &V,
        keys: &'a [Digest],
    ) -> Option<OffloadPlan<'a, V>>;
}
