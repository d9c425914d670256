//! Sliding windows: a component whose values matter for the last units of a path only (SWA).
//!
//! A node without a value is a tombstone: its tokens are cached in FULL, but a match can pass it
//! only once a whole window below it is there. A second window is an instance of the same
//! component, independent of the first (SWA-C8). Hides where a lock's segment ends.

use smallvec::SmallVec;

use crate::backup::OffloadPlan;
use crate::component::{Component, ComponentData, ComponentType, InsertOverlap, Tier};
use crate::cursor::{Cursor, Payload};
use crate::error::{Result, TreeError, contract};
use crate::hash::{Digest, PageLayout};
use crate::indices::Indices;
use crate::insert::{Action, InsertRequest};
use crate::locks::LockReceipt;
use crate::matching::MatchOutcome;
use crate::nodes::{Node, Slot};
use crate::tree::Tree;

/// Part of a path: a node and the units that it covers.
struct Segment {
    node: Slot,
    start: usize,
    end: usize,
}

/// One window.
pub(crate) struct Window {
    pub kind: ComponentType,
    /// Its position in the tree's component order.
    pub index: usize,
    /// Units that it keeps (SWA-C2).
    pub size: usize,
    /// Whether a match stops at tombstones; off when the tree does not own the window (SWA-C5).
    pub gates_match: bool,
    /// A second window adopts nothing of an insert but its own slots (SWA-I14).
    pub is_independent: bool,
}

impl<V: Indices> Component<V> for Window {
    fn kind(&self) -> ComponentType {
        self.kind
    }

    fn internal_priority(&self) -> u8 {
        1
    }

    fn is_window(&self) -> bool {
        true
    }

    /// `progress` is the length of the run of values that ends at the node; with none missing
    /// since the root it is as good as endless (SWA-M2 to SWA-M4).
    fn accepts(&self, node: &Node<V>, progress: &mut usize) -> bool {
        match &node.data[self.index].device {
            Some(value) => {
                *progress = progress.saturating_add(value.len());
                *progress >= self.size
            }
            None => {
                *progress = 0;
                !self.gates_match && node.full().device.is_some()
            }
        }
    }

    fn refresh_on_match_end(&self, tree: &mut Tree<V>, best: Slot) {
        self.refresh(tree, best);
    }

    /// SWA-M8: where the walk went on although a window was missing.
    fn finalize_match(&self, outcome: &mut MatchOutcome) {
        let cached = outcome.full_kv_hit_length;
        outcome.swa_branching_len = (cached > outcome.device_prefix_len).then_some(cached);
    }

    /// SWA-I2, checked at once: an unaligned cursor could cut a page in two.
    fn check_insert(
        &self,
        layout: PageLayout,
        request: &InsertRequest<V>,
        _units: usize,
    ) -> Result<()> {
        let evicted = request.evicted_len(self.kind);
        if evicted.is_multiple_of(layout.page_size as u64) {
            return Ok(());
        }
        let text =
            format!("an evicted length of {evicted} units is not whole pages: round it down");
        Err(TreeError::InvalidArgument(text))
    }

    fn update_on_insert_overlap(
        &self,
        tree: &mut Tree<V>,
        cursor: &mut Cursor<V>,
        payload: &Payload<V>,
        node: Slot,
        overlap: &InsertOverlap,
    ) -> usize {
        let end = overlap.position + overlap.units;
        if cursor.prev_prefix_len >= end as u64 {
            return overlap.units; // SWA-I5
        }
        let mut floor = cursor.evicted_len(self.kind);
        if self.is_independent {
            // SWA-I14; a page that the caller shares in part can't be taken over.
            let page = tree.layout.page_size as u64;
            floor = floor.max(cursor.prev_prefix_len.div_ceil(page).saturating_mul(page));
        }
        let mut consumed = overlap.units;
        for segment in segments(tree, node, overlap.position, end) {
            let Some(segment) = self.clip(tree, cursor, segment, floor) else {
                continue;
            };
            cursor.record_adopted(self.kind, segment.start, segment.end);
            if self.is_independent {
                self.recover_beside(tree, cursor, &segment);
            } else {
                consumed = consumed.min(segment.start - overlap.position);
                self.recover(tree, cursor, payload, &segment);
            }
        }
        consumed
    }

    /// SWA-I17 to SWA-I24: publishes the live part of a new leaf, its last window apart.
    fn commit_insert(
        &self,
        tree: &mut Tree<V>,
        cursor: &mut Cursor<V>,
        target: Slot,
        is_new: bool,
    ) {
        if let Some(branching) = cursor.swa_branching_len.filter(|_| !self.is_independent) {
            cursor.swa_branch_inserted = cursor.given_units as u64 >= branching;
        }
        if !is_new {
            return;
        }
        let floor = cursor.evicted_len(self.kind);
        for segment in segments(tree, target, cursor.position, cursor.units) {
            let Some(segment) = self.clip(tree, cursor, segment, floor) else {
                continue;
            };
            let kept = self.size.div_ceil(tree.layout.page_size);
            let kept = kept.saturating_mul(tree.layout.page_size);
            let live = segment.end - segment.start;
            if live > kept {
                let upper = cursor.split(tree, segment.node, live - kept);
                self.push_rebuild(tree, cursor, upper);
            }
            self.push_rebuild(tree, cursor, segment.node);
            cursor.record_adopted(self.kind, segment.start, segment.end);
        }
    }

    fn refresh_on_insert_end(&self, tree: &mut Tree<V>, target: Slot) {
        self.refresh(tree, target);
    }

    fn redistribute_on_node_split(
        &self,
        upper: &mut ComponentData<V>,
        lower: &mut ComponentData<V>,
        split_len: usize,
    ) {
        lower.cut_front(upper, split_len);
    }

    fn acquire_lock(&self, tree: &mut Tree<V>, anchor: Slot, receipt: &mut LockReceipt) {
        let mark = self.acquire(tree, anchor, Tier::Device);
        receipt.marks.set(self.kind, mark);
    }

    fn check_release(&self, tree: &Tree<V>, anchor: Slot, receipt: &LockReceipt) -> Result<()> {
        let entry = receipt.marks.get(self.kind);
        self.check_segment(tree, anchor, Tier::Device, entry)
    }

    fn release_lock(&self, tree: &mut Tree<V>, anchor: Slot, receipt: &LockReceipt) {
        self.release(tree, anchor, receipt);
    }

    /// A node that nobody else holds gives its value up at once. While the receipt holds FULL
    /// there is none (SWA-L14).
    fn release_window(&self, tree: &mut Tree<V>, anchor: Slot, receipt: &LockReceipt) -> Vec<V> {
        let mut unlocked = self.release(tree, anchor, receipt);
        unlocked.retain(|slot| tree.is_device_leaf(*slot));
        let leaves = unlocked.into_iter();
        leaves
            .filter_map(|slot| self.evict_device(tree, slot))
            .collect()
    }

    fn acquire_host_lock(&self, tree: &mut Tree<V>, anchor: Slot, receipt: &mut LockReceipt) {
        let mark = self.acquire(tree, anchor, Tier::Host);
        receipt.host_marks.set(self.kind, mark);
    }

    fn check_host_release(
        &self,
        tree: &Tree<V>,
        anchor: Slot,
        receipt: &LockReceipt,
    ) -> Result<()> {
        let entry = receipt.host_marks.get(self.kind);
        self.check_segment(tree, anchor, Tier::Host, entry)
    }

    fn release_host_lock(&self, tree: &mut Tree<V>, anchor: Slot, receipt: &LockReceipt) {
        let mark = receipt.host_marks.get(self.kind).flatten();
        for slot in self.segment(tree, anchor, Tier::Host, mark) {
            tree.nodes[slot].data[self.index].host_lock_ref -= 1;
            tree.refresh_leaf(slot);
        }
    }

    fn value_len(&self, units: usize) -> usize {
        units
    }

    /// What is freed is named by FULL's slots, whose peers the cache finds (SWA-E10). FULL goes
    /// on reading them, hence the copy.
    fn evict_device(&self, tree: &mut Tree<V>, node: Slot) -> Option<V> {
        tree.take_value(node, self.index)?;
        tree.nodes[node].full().device.as_ref().map(copy)
    }

    /// SWA-N1.
    fn plan_offload<'a>(
        &self,
        layout: PageLayout,
        value: &V,
        keys: &'a [Digest],
    ) -> Option<OffloadPlan<'a, V>> {
        let pages = keys.len().min(value.len() / layout.page_size);
        (pages > 0).then(|| {
            let tail = value.slice(value.len() - pages * layout.page_size, value.len());
            OffloadPlan::tail(self.kind, tail, &keys[keys.len() - pages..])
        })
    }
}

impl Window {
    /// SWA-U2: the window above a node and one page more, locked or not.
    fn refresh<V: Indices>(&self, tree: &mut Tree<V>, start: Slot) {
        let limit = self.size.saturating_add(tree.layout.page_size);
        let recency = &mut tree.records[self.index].recency;
        recency.promote_window(&mut tree.nodes, start, limit);
    }

    // --- Insert --------------------------------------------------------------------------

    /// The live part of a tombstone, from `floor` on; what lies below it is split off (SWA-I3).
    fn clip<V: Indices>(
        &self,
        tree: &mut Tree<V>,
        cursor: &mut Cursor<V>,
        segment: Segment,
        floor: u64,
    ) -> Option<Segment> {
        let start = segment.start.max(floor as usize);
        let has_value = tree.nodes[segment.node].data[self.index].device.is_some();
        if has_value || start >= segment.end {
            return None;
        }
        if start > segment.start {
            cursor.split(tree, segment.node, start - segment.start);
        }
        Some(Segment { start, ..segment })
    }

    /// SWA-I7, SWA-I8: window values come with the request's FULL slots. Those replace the
    /// tree's, or only lend it their peers where a lock or another window needs the tree's.
    fn recover<V: Indices>(
        &self,
        tree: &mut Tree<V>,
        cursor: &mut Cursor<V>,
        payload: &Payload<V>,
        segment: &Segment,
    ) {
        let &Segment { node, start, end } = segment;
        let id = tree.nodes[node].id;
        let is_needed = self.is_needed_by_others(tree, node);
        let full = tree.nodes[node].full_mut();
        let Some(kept) = &full.device else { return };
        if full.lock_ref > 0 || is_needed {
            cursor.pending.push(Action::RecoverLocked {
                node: id,
                component: self.kind,
                kept: copy(kept),
                start,
                end,
            });
            return;
        }
        let incoming = payload.copy(start, end);
        let replaced = full.device.replace(incoming);
        cursor.record_adopted(ComponentType::Full, start, end);
        cursor.pending.extend(replaced.map(Action::FreeReplaced));
        self.push_rebuild(tree, cursor, node);
    }

    /// Whether another window's value is the peers of this node's own FULL slots.
    fn is_needed_by_others<V: Indices>(&self, tree: &Tree<V>, node: Slot) -> bool {
        let data = tree.nodes[node].data.iter().enumerate();
        let mut held = data.filter(|(_, data)| data.device.is_some());
        held.any(|(index, _)| index != self.index && tree.components[index].is_window())
    }

    /// A second window's recovery. It takes the peers of the request's slots only where the
    /// first window has not just made those slots the tree's, and takes them before the first
    /// window's own recovery frees the slots.
    fn recover_beside<V: Indices>(
        &self,
        tree: &mut Tree<V>,
        cursor: &mut Cursor<V>,
        segment: &Segment,
    ) {
        let &Segment { node, start, end } = segment;
        let id = tree.nodes[node].id;
        let is_replaced = cursor
            .pending
            .iter()
            .any(|action| matches!(action, Action::Rebuild { node, .. } if *node == id));
        if let Some(kept) = tree.nodes[node]
            .full()
            .device
            .as_ref()
            .filter(|_| !is_replaced)
        {
            let action = Action::RecoverEvicted {
                component: self.kind,
                kept: copy(kept),
                start,
                end,
            };
            let frees_slots =
                |one: &Action<V>| matches!(one, Action::RecoverLocked { node, .. } if *node == id);
            let place = cursor.pending.iter().position(frees_slots);
            let place = place.unwrap_or(cursor.pending.len());
            cursor.pending.insert(place, action);
        }
        self.push_rebuild(tree, cursor, node);
    }

    fn push_rebuild<V: Indices>(&self, tree: &Tree<V>, cursor: &mut Cursor<V>, slot: Slot) {
        let node = &tree.nodes[slot];
        if let Some(source) = &node.full().device {
            cursor.pending.push(Action::Rebuild {
                node: node.id,
                component: self.kind,
                source: copy(source),
            });
        }
    }

    // --- Locks ---------------------------------------------------------------------------

    /// SWA-L1, SWA-L19: counts every node from the anchor up until a window is covered, and marks
    /// the one that covers it; `None` when the root comes first.
    fn acquire<V: Indices>(&self, tree: &mut Tree<V>, anchor: Slot, tier: Tier) -> Option<i64> {
        let (mut covered, mut protected) = (0, 0);
        let mut at = anchor;
        let mut boundary = None;
        while at != tree.nodes.root && covered < self.size {
            covered += tree.nodes.units(at);
            let data = &mut tree.nodes[at].data[self.index];
            let (count, _) = data.lock_mut(tier);
            *count += 1;
            if *count == 1 && tier == Tier::Device {
                protected += data.len();
            }
            boundary = Some(at);
            at = tree.nodes[at].parent;
        }
        tree.records[self.index].ledger.protect(protected);
        let boundary = boundary.filter(|_| covered >= self.size)?;
        Some(tree.boundary_mark(boundary, self.index, tier))
    }

    /// The nodes that one receipt counts: up to the one with its mark, or to the root (SWA-L7).
    fn segment<V: Indices>(
        &self,
        tree: &Tree<V>,
        anchor: Slot,
        tier: Tier,
        mark: Option<i64>,
    ) -> SmallVec<[Slot; 8]> {
        let mut slots = SmallVec::new();
        for slot in tree.nodes.path_up(anchor) {
            slots.push(slot);
            let (_, own) = tree.nodes[slot].data[self.index].lock(tier);
            if mark.is_some() && own == mark {
                break;
            }
        }
        slots
    }

    /// A receipt fits if its mark is on the path and every count up to it is positive.
    fn check_segment<V: Indices>(
        &self,
        tree: &Tree<V>,
        anchor: Slot,
        tier: Tier,
        entry: Option<Option<i64>>,
    ) -> Result<()> {
        if anchor == tree.nodes.root {
            return Ok(()); // SWA-L8: nothing is required there.
        }
        let Some(mark) = entry else {
            return contract(format!("the receipt has no {:?} entry", self.kind));
        };
        let segment = self.segment(tree, anchor, tier, mark);
        for &slot in &segment {
            let node = &tree.nodes[slot];
            if node.data[self.index].lock(tier).0 == 0 {
                return contract(format!("node {} holds no {:?} lock", node.id, self.kind));
            }
        }
        let last = segment.last().map(|&slot| &tree.nodes[slot]);
        let ends_at = last.and_then(|node| node.data[self.index].lock(tier).1);
        if mark.is_some() && ends_at != mark {
            return contract("no node above carries the mark of this receipt");
        }
        Ok(())
    }

    /// Counts a receipt's segment down; returns the nodes with a value that became free.
    fn release<V: Indices>(
        &self,
        tree: &mut Tree<V>,
        anchor: Slot,
        receipt: &LockReceipt,
    ) -> SmallVec<[Slot; 8]> {
        let mark = receipt.marks.get(self.kind).flatten();
        let mut segment = self.segment(tree, anchor, Tier::Device, mark);
        segment.retain(|slot| {
            let data = &mut tree.nodes[*slot].data[self.index];
            data.lock_ref -= 1;
            let (is_free, len) = (data.lock_ref == 0, data.len());
            if is_free {
                tree.records[self.index].ledger.unprotect(len);
                tree.refresh_leaf(*slot);
            }
            is_free && len > 0
        });
        segment
    }
}

fn copy<V: Indices>(value: &V) -> V {
    V::concat(&[value])
}

/// The nodes that cover `[start, end)` of the path to `lower`, which ends there; root side first.
fn segments<V: Indices>(
    tree: &Tree<V>,
    lower: Slot,
    start: usize,
    end: usize,
) -> SmallVec<[Segment; 2]> {
    let mut found = SmallVec::new();
    let (mut node, mut end) = (lower, end);
    while end > start {
        let segment_start = end - tree.nodes.units(node);
        found.push(Segment {
            node,
            start: segment_start,
            end,
        });
        (node, end) = (tree.nodes[node].parent, segment_start);
    }
    found.reverse();
    found
}
