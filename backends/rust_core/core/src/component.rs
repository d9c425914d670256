//! What a node can hold a value for, and the hooks by which a component follows the tree.
//!
//! The tree walks and restructures; what that means for a component's values, locks and ledger
//! is decided behind these hooks (section 2.16 of the match chapter, CMP). FULL is the only
//! component yet. The tree calls hooks in component order, releases in reversed order (CMP-9).

use std::sync::Arc;

use crate::error::Result;
use crate::indices::Indices;
use crate::nodes::Slot;
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
}

/// How many components a node has room for.
pub(crate) const COMPONENTS: usize = 1;

/// Position of FULL in a node's component data.
pub(crate) const FULL: usize = 0;

/// State of one component on one node.
#[derive(Clone, Debug)]
pub(crate) struct ComponentData<V> {
    /// Device value; absent on the root, which counts as resident all the same (NODE-3).
    pub device: Option<V>,
    pub lock_ref: u64,
    pub host_lock_ref: u64,
    /// Boundary mark of a host lock segment (LOCK-24).
    pub host_lock_uuid: Option<i64>,
}

impl<V> Default for ComponentData<V> {
    fn default() -> Self {
        ComponentData {
            device: None,
            lock_ref: 0,
            host_lock_ref: 0,
            host_lock_uuid: None,
        }
    }
}

/// One component's host lock receipt: no entry, or an entry that may lack its mark (LOCK-26).
pub type HostLockEntry = Option<Option<i64>>;

/// Accepts or refuses the nodes of one match, root side first (MATCH-6).
pub(crate) type MatchValidator<V> = Box<dyn FnMut(&ComponentData<V>) -> bool>;

/// The components of a tree, in component order.
pub(crate) type Components<V> = Arc<[Box<dyn Component<V>>]>;

/// The part of a request that lies on a node which an insert walks over (INS-30).
pub(crate) struct InsertOverlap {
    /// Units from the root to the node's start.
    pub position: usize,
    /// Units of the node that the request covers: all of them, after a possible split.
    pub units: usize,
}

/// Hooks of one component.
pub(crate) trait Component<V: Indices>: Send + Sync {
    /// A fresh validator for one match.
    fn create_match_validator(&self) -> MatchValidator<V>;

    /// Divides a node's state between its new upper fragment and itself (SPLIT-5).
    fn redistribute_on_node_split(
        &self,
        upper: &mut ComponentData<V>,
        lower: &mut ComponentData<V>,
        split_len: usize,
    );

    /// Reacts to an insert over a resident node; returns from which offset of the overlap it
    /// took over the request's slots, `units` for none (INS-30).
    fn update_on_insert_overlap(
        &self,
        tree: &mut Tree<V>,
        node: Slot,
        overlap: &InsertOverlap,
    ) -> usize;

    /// Locks the path to a node; returns the tokens that became protected (LOCK-3).
    fn acquire_lock(&self, tree: &mut Tree<V>, anchor: Slot) -> u64;

    /// Whether `release_lock` may run; checked for all components before any is released.
    fn check_release(&self, tree: &Tree<V>, anchor: Slot) -> Result<()>;

    /// Undoes one `acquire_lock` (LOCK-10).
    fn release_lock(&self, tree: &mut Tree<V>, anchor: Slot);

    /// Pins a node on the host; returns the receipt's entry (LOCK-23, LOCK-24).
    fn acquire_host_lock(&self, tree: &mut Tree<V>, anchor: Slot) -> HostLockEntry;

    /// Whether `release_host_lock` may run.
    fn check_host_release(&self, tree: &Tree<V>, anchor: Slot, entry: HostLockEntry) -> Result<()>;

    /// Undoes one `acquire_host_lock` (LOCK-26).
    fn release_host_lock(&self, tree: &mut Tree<V>, anchor: Slot, entry: HostLockEntry);

    /// Takes the device value off a node and its ledger (CMP-2).
    fn evict_device(&self, tree: &mut Tree<V>, node: Slot) -> Option<V>;
}
