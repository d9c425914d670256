//! Inserting a key, step by step (INS-1 to INS-71).
//!
//! An insert stops where the cache must act before the tree goes on. Only then are the rest of
//! the key and of the slots copied; an insert that runs through copies what its new leaf keeps.

use std::sync::Arc;

use crate::NodeId;
use crate::component::{ComponentType, FULL, InsertOverlap};
use crate::cursor::{Cursor, Payload, Phase, Suspended, evicted_len};
use crate::error::{Result, TreeError, contract};
use crate::hash::check_hashable;
use crate::indices::Indices;
use crate::key::Key;
use crate::nodes::Slot;
use crate::tree::Tree;

/// What to insert. Lengths are in units (KEY-53).
pub struct InsertRequest<'a, V: Indices> {
    /// The key; a trailing partial page is ignored.
    pub key: Key<'a>,
    /// One slot per unit of the aligned key; a surplus is ignored.
    pub values: &'a V::Source,
    /// Units whose slots the caller already shares with the tree.
    pub prev_prefix_len: u64,
    /// Units whose values the caller has given up, per component that it knows of (SWA-I1).
    pub evicted_lens: &'a [(ComponentType, u64)],
    /// Where a match of the same key saw a window missing (SWA-I24).
    pub swa_branching_len: Option<u64>,
    /// The state of the whole aligned key; a tree with states needs one (MAM-I5). The tree keeps
    /// it as it is.
    pub state: Option<V>,
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
            evicted_lens: &[],
            swa_branching_len: None,
            state: None,
            inserted_len: 0,
            priority: 0,
            rotation_base: None,
            session_id: None,
            lora_name: None,
            tracks_adopted: false,
        }
    }

    pub(crate) fn evicted_len(&self, component: ComponentType) -> u64 {
        evicted_len(self.evicted_lens, component)
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

/// What the cache must do, in order. Ranges are units of the request, whose slots are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<V> {
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
    /// Give these slots back, which the request's have replaced in the tree (SWA-I8).
    FreeReplaced(V),
    /// Copy these nodes to the next tier, root-most first (INS-56).
    Backup(Vec<NodeId>),
    /// Follow a split.
    Split(SplitUpdate),
    /// Store the window peers of these slots as the node's window value (SWA-A5).
    Rebuild {
        /// The node.
        node: NodeId,
        /// The window.
        component: ComponentType,
        /// The node's own slots.
        source: V,
    },
    /// Give the peers of the request's slots to the node's own, free the request's, and store
    /// the peers as the node's window value (SWA-A6).
    RecoverLocked {
        /// The node.
        node: NodeId,
        /// The window.
        component: ComponentType,
        /// The node's own slots.
        kept: V,
        /// First unit.
        start: usize,
        /// Unit behind the last one.
        end: usize,
    },
    /// Give the peers of the request's slots to the kept ones, and no more (SWA-A7).
    RecoverEvicted {
        /// The window.
        component: ComponentType,
        /// The slots that take over.
        kept: V,
        /// First unit.
        start: usize,
        /// Unit behind the last one.
        end: usize,
    },
    /// Evict the states that the path to this node holds beyond the cap (MAM-P2).
    EvictExcessStates(NodeId),
}

impl<V> Action<V> {
    /// Whether the insert may go on before the cache has done it (INS-60).
    fn is_deferrable(&self) -> bool {
        matches!(
            self,
            Action::Free { .. }
                | Action::FreeFullOnly { .. }
                | Action::FreeReplaced(_)
                | Action::Split(_)
        )
    }
}

impl<V: Indices> Action<V> {
    /// Appends the action to `divided`; as two, if it is about the value of `lower`, of which the
    /// first `units` went to `upper` (SWA-I22).
    pub(crate) fn divide(
        self,
        lower: NodeId,
        upper: NodeId,
        units: usize,
        divided: &mut Vec<Self>,
    ) {
        match self {
            Action::Rebuild {
                node,
                component,
                source,
            } if node == lower => {
                let parts = [(upper, 0, units), (lower, units, source.len())];
                divided.extend(parts.map(|(node, from, to)| Action::Rebuild {
                    node,
                    component,
                    source: source.slice(from, to),
                }));
            }
            Action::RecoverLocked {
                node,
                component,
                kept,
                start,
                ..
            } if node == lower => {
                let parts = [(upper, 0, units), (lower, units, kept.len())];
                divided.extend(parts.map(|(node, from, to)| Action::RecoverLocked {
                    node,
                    component,
                    kept: kept.slice(from, to),
                    start: start + from,
                    end: start + to,
                }));
            }
            other => divided.push(other),
        }
    }
}

/// Ranges of units that the tree took over from a request, per component (KEY-55).
pub type Adopted = Vec<(ComponentType, Vec<(usize, usize)>)>;

/// What a finished insert found and did (KEY-54).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsertOutcome {
    /// Units that were in the tree already.
    pub prefix_len: usize,
    /// The node that ends the key; of a declined insert, the one in conflict.
    pub last_node: NodeId,
    /// The caller keeps the state: the aligned key was empty (INS-14), or it ends at a node that
    /// has one (MAM-I8).
    pub mamba_exist: bool,
    /// The key reaches as far as the branching length that came with it (SWA-I24).
    pub swa_branch_inserted: bool,
    /// The rotation base was in conflict (INS-17).
    pub is_declined: bool,
    /// The adopted ranges, if asked for.
    pub adopted: Option<Adopted>,
}

/// One step; `outcome` is `None` exactly while the insert is suspended (KEY-57).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsertStep<V> {
    /// To be done before the insert is resumed.
    pub actions: Vec<Action<V>>,
    /// The end of the insert.
    pub outcome: Option<InsertOutcome>,
}

impl<V: Indices> Tree<V> {
    /// Whether an insert is suspended (INS-4).
    pub fn has_ongoing_insert(&self) -> bool {
        self.suspended.is_some()
    }

    /// Namespace of the suspended insert: extra key and salt.
    pub fn suspended_namespace(&self) -> Option<(Option<&str>, Option<&str>)> {
        let namespace = self
            .namespaces
            .get(self.suspended.as_ref()?.cursor.namespace);
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
    pub fn begin_insert(&mut self, request: &InsertRequest<V>) -> Result<InsertStep<V>> {
        let (tokens, units) = self.layout.align(request.key.tokens);
        self.check_insert(request, tokens, units)?;
        let root = self.nodes.root;
        self.touch(root);
        self.raise_priority(root, request.priority);
        if units == 0 {
            return Ok(self.finish_empty());
        }
        if let Some(outcome) = self.rotation_conflict(request, tokens, units) {
            return Ok(InsertStep {
                actions: Vec::new(),
                outcome: Some(outcome),
            });
        }
        let namespace = self.namespaces.acquire(&request.key);
        self.namespaces.set_lora_name(namespace, request.lora_name);
        let given_units = self.layout.units(request.key.tokens.len());
        let cursor = Cursor::new(request, namespace, units, given_units);
        Ok(self.run_insert(cursor, root, Payload::Borrowed(tokens, request.values)))
    }

    fn check_insert(&self, request: &InsertRequest<V>, tokens: &[i64], units: usize) -> Result<()> {
        if self.suspended.is_some() {
            let text = "concurrent insert walks: another insert is suspended";
            return Err(TreeError::InsertProtocol(text));
        }
        let given = V::source_len(request.values);
        if given < units {
            let text = format!("{given} slots cannot cover a key of {units} units");
            return Err(TreeError::InvalidArgument(text));
        }
        for component in self.components.iter() {
            component.check_insert(self.layout, request, units)?;
        }
        if self.hashes_on_insert() {
            check_hashable(tokens)?;
        }
        Ok(())
    }

    /// Goes on after a barrier (INS-2). Refused if the node that it stands on is gone; the
    /// insert then stays suspended.
    pub fn resume_insert(&mut self) -> Result<InsertStep<V>> {
        let Some(suspended) = &self.suspended else {
            return Err(TreeError::InsertProtocol("no in-flight insert to resume"));
        };
        let Some(node) = self.nodes.find(suspended.node) else {
            let id = suspended.node;
            return contract(format!(
                "the insert stands on node {id}, which was evicted: end the insert"
            ));
        };
        if let Phase::Walk { tokens, .. } = &suspended.phase
            && self.hashes_on_insert()
        {
            check_hashable(tokens)?;
        }
        let Some(Suspended { cursor, phase, .. }) = self.suspended.take() else {
            unreachable!("it was there a moment ago");
        };
        Ok(match phase {
            Phase::Walk { tokens, values } => {
                let payload = Payload::Owned {
                    start: cursor.position,
                    tokens,
                    values,
                };
                self.run_insert(cursor, node, payload)
            }
            Phase::Tail { is_new } => self.finish_insert(cursor, node, is_new),
        })
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
    fn finish_empty(&self) -> InsertStep<V> {
        InsertStep {
            actions: Vec::new(),
            outcome: Some(InsertOutcome {
                prefix_len: 0,
                last_node: self.root(),
                mamba_exist: true,
                swa_branch_inserted: false,
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
            mamba_exist: false,
            swa_branch_inserted: false,
            is_declined: true,
            adopted: request.tracks_adopted.then(Vec::new),
        })
    }

    fn run_insert(
        &mut self,
        mut cursor: Cursor<V>,
        from: Slot,
        payload: Payload<V>,
    ) -> InsertStep<V> {
        let mut at = from;
        while cursor.position < cursor.units {
            let rest = payload.tokens(cursor.position);
            let Some(child) = self.nodes.child(at, cursor.namespace, rest) else {
                break;
            };
            at = self.walk_step(&mut cursor, &payload, child);
            if !cursor.pending.iter().all(Action::is_deferrable) {
                let (tokens, values) = payload.take(cursor.position, cursor.units);
                return self.suspend(cursor, at, Phase::Walk { tokens, values });
            }
        }
        self.commit(cursor, at, &payload)
    }

    /// INS-21 to INS-24 for one node; returns the node that the walk stands on.
    fn walk_step(&mut self, cursor: &mut Cursor<V>, payload: &Payload<V>, child: Slot) -> Slot {
        self.touch(child);
        let units = self.matched_units(child, payload.tokens(cursor.position));
        let mut node = child;
        if units < self.nodes.units(child) {
            node = cursor.split(self, child, units);
        }
        self.raise_priority(node, cursor.priority);
        let overlap = InsertOverlap {
            position: cursor.position,
            units,
        };
        let mut consumed = units;
        for component in Arc::clone(&self.components).iter() {
            let taken = component.update_on_insert_overlap(self, cursor, payload, node, &overlap);
            consumed = consumed.min(taken);
        }
        cursor.free_duplicates(&overlap, consumed);
        if self.count_hit(cursor, node, cursor.position + units) {
            cursor.pending.push(Action::Backup(self.backup_chain(node)));
        }
        cursor.position += units;
        node
    }

    /// INS-50 to INS-53: counts a hit; whether that asks for a backup.
    fn count_hit(&mut self, cursor: &Cursor<V>, slot: Slot, end: usize) -> bool {
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

    fn suspend(&mut self, mut cursor: Cursor<V>, at: Slot, phase: Phase<V>) -> InsertStep<V> {
        let actions = std::mem::take(&mut cursor.pending);
        self.suspended = Some(Suspended {
            node: self.nodes[at].id,
            cursor,
            phase,
        });
        InsertStep {
            actions,
            outcome: None,
        }
    }

    /// INS-40 to INS-43: the new leaf, if key remains, and what the components attach.
    fn commit(&mut self, mut cursor: Cursor<V>, at: Slot, payload: &Payload<V>) -> InsertStep<V> {
        let mut target = at;
        let is_new = cursor.position < cursor.units;
        if is_new {
            target = self.attach_leaf(&cursor, at, payload);
            cursor.record_adopted(ComponentType::Full, cursor.position, cursor.units);
        }
        for component in Arc::clone(&self.components).iter() {
            component.commit_insert(self, &mut cursor, target, is_new);
        }
        if cursor.pending.iter().all(Action::is_deferrable) {
            return self.finish_insert(cursor, target, is_new);
        }
        self.suspend(cursor, target, Phase::Tail { is_new })
    }

    /// INS-44, INS-54: the end of the insert.
    fn finish_insert(
        &mut self,
        mut cursor: Cursor<V>,
        target: Slot,
        is_new: bool,
    ) -> InsertStep<V> {
        for component in Arc::clone(&self.components).iter() {
            component.refresh_on_insert_end(self, target);
        }
        // Where a component split the new leaf, this end falls short of the key's (DIV01-1).
        let end = cursor.position + self.nodes.units(target);
        if is_new && self.count_hit(&cursor, target, end) {
            let chain = self.backup_chain(target);
            cursor.pending.push(Action::Backup(chain));
        }
        self.namespaces.release(cursor.namespace);
        InsertStep {
            actions: cursor.pending,
            outcome: Some(InsertOutcome {
                prefix_len: cursor.position,
                last_node: self.nodes[target].id,
                mamba_exist: cursor.mamba_exist,
                swa_branch_inserted: cursor.swa_branch_inserted,
                is_declined: false,
                adopted: cursor.adopted,
            }),
        }
    }

    fn attach_leaf(&mut self, cursor: &Cursor<V>, parent: Slot, payload: &Payload<V>) -> Slot {
        let (tokens, value) = payload.take(cursor.position, cursor.units);
        let leaf = self.grow_leaf(parent, cursor.namespace, tokens);
        let node = &mut self.nodes[leaf];
        node.rank.priority = cursor.priority;
        node.rotation_base = cursor.rotation_base;
        self.records[FULL].ledger.evictable += value.len() as i128;
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
