//! Inserting a key, step by step (INS-1 to INS-71).
//!
//! An insert stops where the cache must act before the tree goes on. Only then are the rest of
//! the key and of the slots copied; an insert that runs through copies what its new leaf keeps.

use std::sync::Arc;

use crate::NodeId;
use crate::component::InsertOverlap;
use crate::error::{Result, TreeError, contract};
use crate::hash::check_hashable;
use crate::indices::Indices;
use crate::key::{Key, NamespaceId};
use crate::nodes::Slot;
use crate::span::Span;
use crate::tree::Tree;

/// What to insert. Lengths are in units (KEY-53).
pub struct InsertRequest<'a, V: Indices> {
    /// The key; a trailing partial page is ignored.
    pub key: Key<'a>,
    /// One slot per unit of the aligned key; a surplus is ignored.
    pub values: &'a V::Source,
    /// Units whose slots the caller already shares with the tree.
    pub prev_prefix_len: u64,
    /// Units whose window slots the caller has given up (INS-31).
    pub swa_evicted_len: u64,
    /// Units that earlier inserts of the same request have counted (INS-50).
    pub inserted_len: u64,
    /// Priority of new nodes; raises that of walked ones.
    pub priority: i64,
    /// Base stamped on a new leaf; a conflict declines the insert (INS-16).
    pub rotation_base: Option<i64>,
    /// Attribution of stored events.
    pub session_id: Option<&'a str>,
    /// Name of the namespace's adapter in events, as of now (EVT-17).
    pub lora_name: Option<&'a str>,
    /// Whether the outcome lists the ranges that the tree took over.
    pub tracks_adopted: bool,
}

impl<'a, V: Indices> InsertRequest<'a, V> {
    /// A request with all options at their defaults.
    pub fn new(key: Key<'a>, values: &'a V::Source) -> Self {
        InsertRequest {
            key,
            values,
            prev_prefix_len: 0,
            swa_evicted_len: 0,
            inserted_len: 0,
            priority: 0,
            rotation_base: None,
            session_id: None,
            lora_name: None,
            tracks_adopted: false,
        }
    }
}

/// A node was split while the cache was busy with it (SPLIT-6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitUpdate {
    /// The backup in flight, if any.
    pub ack_id: Option<NodeId>,
    /// The node that was split; it is the lower fragment now.
    pub split_node: NodeId,
    /// The new upper fragment.
    pub new_node: NodeId,
}

/// What the cache must do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Give the request's slots of units `[start, end)` back.
    Free {
        /// First unit.
        start: usize,
        /// Unit behind the last one.
        end: usize,
    },
    /// The same for slots whose window peer is gone already.
    FreeFullOnly {
        /// First unit.
        start: usize,
        /// Unit behind the last one.
        end: usize,
    },
    /// Copy these nodes to the next tier, root-most first (INS-56).
    Backup(Vec<NodeId>),
    /// Follow a split.
    Split(SplitUpdate),
}

impl Action {
    /// Whether the insert may go on before the cache has done it (INS-60).
    fn is_deferrable(&self) -> bool {
        !matches!(self, Action::Backup(_))
    }
}

/// What a finished insert found and did (KEY-54).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsertOutcome {
    /// Units that were in the tree already.
    pub prefix_len: usize,
    /// The node that ends the key; of a declined insert, the one in conflict.
    pub last_node: NodeId,
    /// The aligned key was empty (INS-14).
    pub is_empty: bool,
    /// The rotation base was in conflict (INS-17).
    pub is_declined: bool,
    /// FULL's adopted ranges, if asked for.
    pub adopted: Option<Vec<(usize, usize)>>,
}

/// One step; `outcome` is `None` exactly while the insert is suspended (KEY-57).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsertStep {
    /// To be done before the insert is resumed.
    pub actions: Vec<Action>,
    /// The end of the insert.
    pub outcome: Option<InsertOutcome>,
}

/// The part of a request that outlives a step.
struct Cursor {
    namespace: NamespaceId,
    units: usize,
    position: usize,
    prev_prefix_len: u64,
    swa_evicted_len: u64,
    inserted_len: u64,
    priority: i64,
    rotation_base: Option<i64>,
    session_id: Option<Arc<str>>,
    tracks_adopted: bool,
    pending: Vec<Action>,
}

/// An insert between two steps.
pub(crate) struct Suspended<V> {
    cursor: Cursor,
    node: NodeId,
    /// Key and slots from the cursor's position on.
    tokens: Span<i64>,
    values: V,
}

impl<V> Suspended<V> {
    pub fn namespace(&self) -> NamespaceId {
        self.cursor.namespace
    }
}

/// Key and slots of a request from `start` on: the caller's, or a suspended insert's own.
enum Payload<'a, V: Indices> {
    Borrowed(&'a [i64], &'a V::Source),
    Owned {
        start: usize,
        tokens: Span<i64>,
        values: V,
    },
}

impl<V: Indices> Payload<'_, V> {
    fn tokens(&self, from: usize) -> &[i64] {
        match self {
            Payload::Borrowed(tokens, _) => &tokens[from..],
            Payload::Owned { start, tokens, .. } => &tokens[from - start..],
        }
    }

    /// What the tree keeps of the rest of the request.
    fn take(&self, from: usize, units: usize) -> (Span<i64>, V) {
        match self {
            Payload::Borrowed(tokens, values) => (
                Span::copied(&tokens[from..]),
                V::copied(values, from, units),
            ),
            Payload::Owned {
                start,
                tokens,
                values,
            } => (
                tokens.slice(from - start, tokens.len()),
                values.slice(from - start, units - start),
            ),
        }
    }
}

impl<V: Indices> Tree<V> {
    /// Whether an insert is suspended (INS-4).
    pub fn has_ongoing_insert(&self) -> bool {
        self.suspended.is_some()
    }

    /// Namespace of the suspended insert: extra key and salt.
    pub fn suspended_namespace(&self) -> Option<(Option<&str>, Option<&str>)> {
        let namespace = self.namespaces.get(self.suspended.as_ref()?.namespace());
        Some((
            namespace.extra_key.as_deref(),
            namespace.cache_salt.as_deref(),
        ))
    }

    /// Drops the insert in flight (INS-5). What it has emitted is always handed out already, so
    /// there is nothing to return.
    pub fn end_insert(&mut self) {
        if let Some(suspended) = self.suspended.take() {
            self.namespaces.release(suspended.cursor.namespace);
        }
    }

    /// Starts an insert and runs to its first barrier or its end (INS-2).
    pub fn begin_insert(&mut self, request: &InsertRequest<V>) -> Result<InsertStep> {
        if self.suspended.is_some() {
            let text = "concurrent insert walks: another insert is suspended";
            return Err(TreeError::InsertProtocol(text));
        }
        let (tokens, units) = self.layout.align(request.key.tokens);
        let given = V::source_len(request.values);
        if given < units {
            let text = format!("{given} slots cannot cover a key of {units} units");
            return Err(TreeError::InvalidArgument(text));
        }
        if self.hashes_on_insert() {
            check_hashable(tokens)?;
        }
        let root = self.nodes.root;
        self.touch(root);
        self.raise_priority(root, request.priority);
        if units == 0 {
            return Ok(self.finish_empty());
        }
        let adopted = request.tracks_adopted.then(Vec::new);
        if let Some(outcome) = self.rotation_conflict(request, tokens, units, &adopted) {
            return Ok(InsertStep {
                actions: Vec::new(),
                outcome: Some(outcome),
            });
        }
        let namespace = self.namespaces.acquire(&request.key);
        self.namespaces.set_lora_name(namespace, request.lora_name);
        let cursor = Cursor {
            namespace,
            units,
            position: 0,
            prev_prefix_len: request.prev_prefix_len,
            swa_evicted_len: request.swa_evicted_len,
            inserted_len: request.inserted_len,
            priority: request.priority,
            rotation_base: request.rotation_base,
            session_id: request.session_id.map(Arc::from),
            tracks_adopted: request.tracks_adopted,
            pending: Vec::new(),
        };
        Ok(self.run_insert(cursor, root, Payload::Borrowed(tokens, request.values)))
    }

    /// Goes on after a barrier (INS-2).
    pub fn resume_insert(&mut self) -> Result<InsertStep> {
        let Some(suspended) = &self.suspended else {
            return Err(TreeError::InsertProtocol("no in-flight insert to resume"));
        };
        let Some(node) = self.nodes.find(suspended.node) else {
            return contract("the tree below the suspended insert was removed");
        };
        if self.hashes_on_insert() {
            check_hashable(&suspended.tokens)?;
        }
        let Some(suspended) = self.suspended.take() else {
            unreachable!("it was there a moment ago");
        };
        let payload = Payload::Owned {
            start: suspended.cursor.position,
            tokens: suspended.tokens,
            values: suspended.values,
        };
        Ok(self.run_insert(suspended.cursor, node, payload))
    }

    /// Whether a new leaf will be hashed (KEY-40).
    fn hashes_on_insert(&self) -> bool {
        self.events.is_some()
            || self.settings.enable_storage
            || self.settings.enable_external_cache_linker
    }

    fn raise_priority(&mut self, slot: Slot, priority: i64) {
        let rank = &mut self.nodes[slot].rank;
        if rank.priority < priority {
            rank.priority = priority;
            self.rerank(slot);
        }
    }

    /// INS-14: nothing to insert; adopted ranges stay absent even if asked for.
    fn finish_empty(&self) -> InsertStep {
        InsertStep {
            actions: Vec::new(),
            outcome: Some(InsertOutcome {
                prefix_len: 0,
                last_node: self.root(),
                is_empty: true,
                is_declined: false,
                adopted: None,
            }),
        }
    }

    /// INS-16, INS-17: a base that differs from that of the deepest node on the way.
    fn rotation_conflict(
        &self,
        request: &InsertRequest<V>,
        tokens: &[i64],
        units: usize,
        adopted: &Option<Vec<(usize, usize)>>,
    ) -> Option<InsertOutcome> {
        request.rotation_base?;
        let namespace = self.namespaces.find(&request.key)?;
        let located = self.locate(namespace, tokens, units);
        let node = &self.nodes[located.node];
        if located.node == self.nodes.root || node.rotation_base == request.rotation_base {
            return None;
        }
        Some(InsertOutcome {
            prefix_len: located.matched,
            last_node: node.id,
            is_empty: false,
            is_declined: true,
            adopted: adopted.clone(),
        })
    }

    fn run_insert(&mut self, mut cursor: Cursor, from: Slot, payload: Payload<V>) -> InsertStep {
        let mut at = from;
        while cursor.position < cursor.units {
            let rest = payload.tokens(cursor.position);
            let Some(child) = self.nodes.child(at, cursor.namespace, rest) else {
                break;
            };
            let emitted = cursor.pending.len();
            at = self.walk_step(&mut cursor, child, rest);
            if !cursor.pending[emitted..].iter().all(Action::is_deferrable) {
                return self.suspend(cursor, at, &payload);
            }
        }
        self.commit(cursor, at, &payload)
    }

    /// INS-21 to INS-24 for one node; returns the node that the walk stands on.
    fn walk_step(&mut self, cursor: &mut Cursor, child: Slot, rest: &[i64]) -> Slot {
        self.touch(child);
        let units = self.matched_units(child, rest);
        let mut node = child;
        if units < self.nodes.units(child) {
            node = self.split(child, units);
            cursor
                .pending
                .extend(self.split_update(node, child).map(Action::Split));
        }
        self.raise_priority(node, cursor.priority);
        let overlap = InsertOverlap {
            position: cursor.position,
            units,
        };
        let components = Arc::clone(&self.components);
        let consumed = components
            .iter()
            .map(|component| component.update_on_insert_overlap(self, node, &overlap))
            .min();
        cursor.free_duplicates(&overlap, consumed.unwrap_or(units));
        if self.count_hit(cursor, node, cursor.position + units) {
            cursor.pending.push(Action::Backup(self.backup_chain(node)));
        }
        cursor.position += units;
        node
    }

    /// INS-50 to INS-53: counts a hit; whether that asks for a backup.
    fn count_hit(&mut self, cursor: &Cursor, slot: Slot, end: usize) -> bool {
        if self.settings.is_write_back || end as u64 <= cursor.inserted_len {
            return false;
        }
        self.nodes[slot].rank.hit_count += 1;
        self.rerank(slot);
        let node = &self.nodes[slot];
        self.settings.enable_external_cache_linker
            && !node.is_externally_stored
            && node.write_through_pending.is_none()
            && node.rank.hit_count as i64 >= self.settings.write_through_threshold
    }

    fn suspend(&mut self, mut cursor: Cursor, at: Slot, payload: &Payload<V>) -> InsertStep {
        let actions = std::mem::take(&mut cursor.pending);
        let (tokens, values) = payload.take(cursor.position, cursor.units);
        self.suspended = Some(Suspended {
            node: self.nodes[at].id,
            cursor,
            tokens,
            values,
        });
        InsertStep {
            actions,
            outcome: None,
        }
    }

    /// INS-40 to INS-44: the new leaf, if key remains, and the end of the insert. FULL has
    /// nothing to commit, so commit and tail are one step.
    fn commit(&mut self, mut cursor: Cursor, at: Slot, payload: &Payload<V>) -> InsertStep {
        let prefix_len = cursor.position;
        let mut adopted = cursor.tracks_adopted.then(Vec::new);
        let mut target = at;
        if prefix_len < cursor.units {
            target = self.attach_leaf(&cursor, at, payload);
            if let Some(adopted) = &mut adopted {
                adopted.push((prefix_len, cursor.units));
            }
            if self.count_hit(&cursor, target, cursor.units) {
                let chain = self.backup_chain(target);
                cursor.pending.push(Action::Backup(chain));
            }
        }
        self.namespaces.release(cursor.namespace);
        InsertStep {
            actions: cursor.pending,
            outcome: Some(InsertOutcome {
                prefix_len,
                last_node: self.nodes[target].id,
                is_empty: false,
                is_declined: false,
                adopted,
            }),
        }
    }

    fn attach_leaf(&mut self, cursor: &Cursor, parent: Slot, payload: &Payload<V>) -> Slot {
        let (tokens, value) = payload.take(cursor.position, cursor.units);
        let leaf = self.grow_leaf(parent, cursor.namespace, tokens);
        let node = &mut self.nodes[leaf];
        node.rank.priority = cursor.priority;
        node.rotation_base = cursor.rotation_base;
        self.ledgers[crate::component::FULL].evictable += value.len() as i128;
        node.full_mut().device = Some(value);
        if self.settings.enable_storage || self.settings.enable_external_cache_linker {
            self.ensure_hashes(leaf);
        }
        self.refresh_leaf(leaf);
        self.refresh_leaf(parent);
        self.record_stored(leaf, cursor.session_id.as_ref());
        leaf
    }
}

impl Cursor {
    /// INS-31: the request's slots that the tree does not need, window-less ones first.
    fn free_duplicates(&mut self, overlap: &InsertOverlap, consumed: usize) {
        let position = overlap.position as u64;
        let kept = self.prev_prefix_len.saturating_sub(position);
        if kept >= consumed as u64 {
            return;
        }
        let start = overlap.position + kept as usize;
        let end = overlap.position + consumed;
        let gone = self.swa_evicted_len.saturating_sub(start as u64);
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
