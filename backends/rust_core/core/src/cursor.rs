//! An insert on its way: where it stands, what it was given and what it has to tell.
//!
//! Hides whether key and slots are still the caller's or a suspended insert's own copy.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::NodeId;
use crate::component::{ComponentType, InsertOverlap};
use crate::indices::Indices;
use crate::insert::{Action, Adopted, InsertRequest};
use crate::key::NamespaceId;
use crate::nodes::Slot;
use crate::span::Span;
use crate::tree::Tree;

/// The part of a request that outlives a step.
pub(crate) struct Cursor<V: Indices> {
    pub namespace: NamespaceId,
    /// Units of whole pages, and those of the key as it was given.
    pub units: usize,
    pub given_units: usize,
    /// Units walked so far; a new leaf lies beyond them.
    pub position: usize,
    pub prev_prefix_len: u64,
    evicted_lens: SmallVec<[(ComponentType, u64); 2]>,
    pub inserted_len: u64,
    pub priority: i64,
    pub rotation_base: Option<i64>,
    pub session_id: Option<Arc<str>>,
    pub swa_branching_len: Option<u64>,
    /// The state to attach; none once a component has taken it.
    pub state: Option<V>,
    /// What the outcome will say.
    pub adopted: Option<Adopted>,
    pub mamba_exist: bool,
    pub swa_branch_inserted: bool,
    pub pending: Vec<Action<V>>,
}

impl<V: Indices> Cursor<V> {
    pub fn new(
        request: &InsertRequest<V>,
        namespace: NamespaceId,
        units: usize,
        given_units: usize,
    ) -> Self {
        Cursor {
            namespace,
            units,
            given_units,
            position: 0,
            prev_prefix_len: request.prev_prefix_len,
            evicted_lens: SmallVec::from_slice(request.evicted_lens),
            inserted_len: request.inserted_len,
            priority: request.priority,
            rotation_base: request.rotation_base,
            session_id: request.session_id.map(Arc::from),
            swa_branching_len: request.swa_branching_len,
            state: request.state.clone(),
            adopted: request.tracks_adopted.then(Vec::new),
            mamba_exist: false,
            swa_branch_inserted: false,
            pending: Vec::new(),
        }
    }

    /// Units whose values of a component the caller has given up (SWA-I1).
    pub fn evicted_len(&self, component: ComponentType) -> u64 {
        evicted_len(&self.evicted_lens, component)
    }

    /// Notes that the tree took `[start, end)` over, merged with the last range (KEY-55).
    pub fn record_adopted(&mut self, component: ComponentType, start: usize, end: usize) {
        let Some(adopted) = &mut self.adopted else {
            return;
        };
        let known = adopted.iter().position(|entry| entry.0 == component);
        let known = known.unwrap_or_else(|| {
            adopted.push((component, Vec::new()));
            adopted.len() - 1
        });
        let ranges = &mut adopted[known].1;
        match ranges.last_mut().filter(|last| start <= last.1) {
            Some(last) => *last = (last.0.min(start), last.1.max(end)),
            None => ranges.push((start, end)),
        }
    }

    /// Splits a node while its insert is under way: what was queued for the node is divided like
    /// the node (SWA-I22), and the cache is told of the split.
    pub fn split(&mut self, tree: &mut Tree<V>, lower: Slot, units: usize) -> Slot {
        let upper = tree.split(lower, units);
        let (upper_id, lower_id) = (tree.nodes[upper].id, tree.nodes[lower].id);
        let mut divided = Vec::with_capacity(self.pending.len() + 1);
        for action in self.pending.drain(..) {
            action.divide(lower_id, upper_id, units, &mut divided);
        }
        self.pending = divided;
        let update = tree.split_update(upper, lower);
        self.pending.extend(update.map(Action::Split));
        upper
    }

    /// INS-31: the request's slots that the tree does not need, window-less ones first.
    pub fn free_duplicates(&mut self, overlap: &InsertOverlap, consumed: usize) {
        let position = overlap.position as u64;
        let kept = self.prev_prefix_len.saturating_sub(position);
        if kept >= consumed as u64 {
            return;
        }
        let start = overlap.position + kept as usize;
        let end = overlap.position + consumed;
        let gone = self.evicted_len(ComponentType::Swa);
        let gone = gone.saturating_sub(start as u64);
        let middle = start + gone.min((end - start) as u64) as usize;
        if start < middle {
            self.pending
                .push(Action::FreeFullOnly { start, end: middle });
        }
        if middle < end {
            self.pending.push(Action::Free { start: middle, end });
        }
    }
}

/// The entry of a component, the last one if several mean it; 0 without one.
pub(crate) fn evicted_len(lens: &[(ComponentType, u64)], component: ComponentType) -> u64 {
    let mut entries = lens.iter().rev();
    entries
        .find(|entry| entry.0 == component)
        .map_or(0, |entry| entry.1)
}

/// Where a suspended insert goes on.
pub(crate) enum Phase<V: Indices> {
    /// In the walk, with key and slots from the cursor's position on.
    Walk { tokens: Span<i64>, values: V },
    /// Behind the commit, with what the tail asks of the target.
    Tail { is_new: bool },
}

/// An insert between two steps. `node` is the one that it stands on, or its target.
pub(crate) struct Suspended<V: Indices> {
    pub cursor: Cursor<V>,
    pub node: NodeId,
    pub phase: Phase<V>,
}

/// Key and slots of a request from `start` on: the caller's, or a suspended insert's own.
pub(crate) enum Payload<'a, V: Indices> {
    Borrowed(&'a [i64], &'a V::Source),
    Owned {
        start: usize,
        tokens: Span<i64>,
        values: V,
    },
}

impl<V: Indices> Payload<'_, V> {
    pub fn tokens(&self, from: usize) -> &[i64] {
        match self {
            Payload::Borrowed(tokens, _) => &tokens[from..],
            Payload::Owned { start, tokens, .. } => &tokens[from - start..],
        }
    }

    /// The slots of units `[from, to)`, for the tree to keep.
    pub fn copy(&self, from: usize, to: usize) -> V {
        match self {
            Payload::Borrowed(_, values) => V::copied(values, from, to),
            Payload::Owned { start, values, .. } => values.slice(from - start, to - start),
        }
    }

    /// What the tree keeps of the rest of the request.
    pub fn take(&self, from: usize, units: usize) -> (Span<i64>, V) {
        let tokens = match self {
            Payload::Borrowed(tokens, _) => Span::copied(&tokens[from..]),
            Payload::Owned { start, tokens, .. } => tokens.slice(from - start, tokens.len()),
        };
        (tokens, self.copy(from, units))
    }
}
