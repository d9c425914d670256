//! A prefix tree over token sequences that owns the KV slots of a language model server.
//!
//! The tree decides what is cached, what a request may reuse and what goes first; the cache
//! around it moves data and frees slots. It knows neither Python nor tensors: slot indices are an
//! [`Indices`] type of the caller's choice. Identifiers such as `INS-31` name the rules of the
//! contract that a piece of code follows.
//!
//! ```
//! use tree_core::{HostIndices, InsertRequest, Key, Tree, TreeConfig};
//!
//! let mut tree: Tree<HostIndices> = Tree::new(TreeConfig::default());
//! let request = InsertRequest::new(Key::plain(&[1, 2, 3]), &[10, 11, 12][..]);
//! let step = tree.begin_insert(&request).unwrap();
//! assert!(step.outcome.is_some());
//! assert_eq!(tree.match_prefix(Key::plain(&[1, 2, 9])).device_prefix_len, 2);
//! ```

mod assembly;
mod backup;
mod check;
mod component;
mod cursor;
mod error;
mod events;
mod evict;
#[cfg(test)]
mod fourth;
mod full;
mod hash;
mod hashes;
mod indices;
mod insert;
#[cfg(feature = "inspection")]
mod inspection;
mod internal;
mod key;
mod leaves;
mod locks;
mod mamba;
mod matching;
mod nodes;
mod paths;
mod policy;
mod recency;
mod sizes;
mod span;
mod spans;
mod tree;
mod window;

pub use assembly::AuxiliaryConfig;
pub use backup::{BufferSnapshot, BufferState, OffloadPlan};
pub use component::ComponentType;
pub use error::{Result, TreeError};
pub use events::{Event, EventFormat, StoredEvent};
pub use evict::{Freed, LeafEviction, WalkStep};
pub use hash::{Digest, PageLayout, page_digests, storage_namespace_seed, to_hex};
pub use indices::{HostIndices, Indices};
pub use insert::{Action, Adopted, InsertOutcome, InsertRequest, InsertStep, SplitUpdate};
#[cfg(feature = "inspection")]
pub use inspection::{ComponentView, NodeView, RecordView, TreeView};
pub use key::Key;
pub use locks::{LockReceipt, Marks};
pub use matching::{FullMatch, MatchOutcome};
pub use paths::{CanaryRows, PathNode};
pub use policy::{Policy, Rank, RankInputs, TailBudget};
pub use span::Span;
pub use tree::{Settings, Tree, TreeConfig};

/// Handle of a node. Handles of one tree only ever grow and are never reused (NODE-4).
pub type NodeId = u64;
