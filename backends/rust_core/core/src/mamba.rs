//! States: a component with one slot for the whole prefix that ends at a node (MAM).
//!
//! A state can't be cut and says nothing about other depths, so a split leaves it below, a lock
//! holds one node, and a match ends only where there is one.

use crate::backup::OffloadPlan;
use crate::component::{Component, ComponentData, ComponentType};
use crate::cursor::Cursor;
use crate::error::{Result, TreeError, contract};
use crate::hash::{Digest, PageLayout};
use crate::indices::Indices;
use crate::insert::{Action, InsertRequest};
use crate::locks::LockReceipt;
use crate::matching::MatchOutcome;
use crate::nodes::{Node, Slot};
use crate::tree::Tree;

/// The component of states.
pub(crate) struct Mamba {
    /// Its position in the tree's component order.
    pub index: usize,
    /// Depths at which a new state is worth having are multiples of this (MAM-D10).
    pub grid: usize,
    /// States that one path may keep (MAM-P1).
    pub cap: Option<u64>,
}

impl<V: Indices> Component<V> for Mamba {
    fn kind(&self) -> ComponentType {
        ComponentType::Mamba
    }

    fn internal_priority(&self) -> u8 {
        0
    }

    fn accepts(&self, node: &Node<V>, _progress: &mut usize) -> bool {
        node.data[self.index].device.is_some()
    }

    /// MAM-M6: the node itself; its ancestors' states were of no use.
    fn refresh_on_match_end(&self, tree: &mut Tree<V>, best: Slot) {
        if tree.nodes[best].data[self.index].device.is_some() {
            let recency = &mut tree.records[self.index].recency;
            recency.promote(&mut tree.nodes, best);
        }
    }

    /// MAM-M8, MAM-M9: only the hit is aligned, the boundary is compared as it is.
    fn finalize_match(&self, outcome: &mut MatchOutcome) {
        let aligned = outcome.full_kv_hit_length / self.grid * self.grid;
        outcome.mamba_branching_len = (aligned > outcome.device_prefix_len).then_some(aligned);
    }

    fn check_insert(
        &self,
        _layout: PageLayout,
        request: &InsertRequest<V>,
        units: usize,
    ) -> Result<()> {
        if units == 0 || request.state.as_ref().is_some_and(|state| state.len() == 1) {
            return Ok(());
        }
        let text = "an insert needs one Mamba state";
        Err(TreeError::InvalidArgument(text.into()))
    }

    /// MAM-I6 to MAM-I9: a new state is stored, a second one for the same prefix left to the
    /// caller.
    fn commit_insert(
        &self,
        tree: &mut Tree<V>,
        cursor: &mut Cursor<V>,
        target: Slot,
        is_new: bool,
    ) {
        let Some(state) = cursor.state.take() else {
            return;
        };
        if tree.nodes[target].data[self.index].device.is_some() {
            let recency = &mut tree.records[self.index].recency;
            recency.promote(&mut tree.nodes, target);
            tree.touch(target);
            cursor.mamba_exist = true;
            return;
        }
        tree.store_value(target, self.index, state);
        if !is_new {
            tree.touch(target);
        }
        if self.cap.is_some() {
            let id = tree.nodes[target].id;
            cursor.pending.push(Action::EvictExcessStates(id));
        }
    }

    /// MAM-S1, MAM-S2: everything stays with the lower fragment, where the prefix ends.
    fn redistribute_on_node_split(
        &self,
        _upper: &mut ComponentData<V>,
        _lower: &mut ComponentData<V>,
        _split_len: usize,
    ) {
    }

    fn acquire_lock(&self, tree: &mut Tree<V>, anchor: Slot, _receipt: &mut LockReceipt) {
        if anchor == tree.nodes.root {
            return;
        }
        let data = &mut tree.nodes[anchor].data[self.index];
        data.lock_ref += 1;
        if data.lock_ref == 1 {
            let len = data.len();
            tree.records[self.index].ledger.protect(len);
        }
    }

    fn check_release(&self, tree: &Tree<V>, anchor: Slot, _receipt: &LockReceipt) -> Result<()> {
        self.check_count(tree, anchor, |data| data.lock_ref)
    }

    fn release_lock(&self, tree: &mut Tree<V>, anchor: Slot, _receipt: &LockReceipt) {
        if anchor == tree.nodes.root {
            return;
        }
        let data = &mut tree.nodes[anchor].data[self.index];
        data.lock_ref -= 1;
        if data.lock_ref == 0 {
            let len = data.len();
            tree.records[self.index].ledger.unprotect(len);
            tree.refresh_leaf(anchor);
        }
    }

    fn acquire_host_lock(&self, tree: &mut Tree<V>, anchor: Slot, _receipt: &mut LockReceipt) {
        if anchor != tree.nodes.root {
            tree.nodes[anchor].data[self.index].host_lock_ref += 1;
        }
    }

    fn check_host_release(
        &self,
        tree: &Tree<V>,
        anchor: Slot,
        _receipt: &LockReceipt,
    ) -> Result<()> {
        self.check_count(tree, anchor, |data| data.host_lock_ref)
    }

    fn release_host_lock(&self, tree: &mut Tree<V>, anchor: Slot, _receipt: &LockReceipt) {
        if anchor != tree.nodes.root {
            tree.nodes[anchor].data[self.index].host_lock_ref -= 1;
        }
    }

    fn value_len(&self, _units: usize) -> usize {
        1
    }

    fn evict_device(&self, tree: &mut Tree<V>, node: Slot) -> Option<V> {
        tree.take_value(node, self.index)
    }

    /// MAM-P5 to MAM-P7: the shallowest states first, but neither the tail's, nor locked ones,
    /// nor those at a fork or at the end of a path.
    fn evict_excess_path_states(&self, tree: &mut Tree<V>, tail: Slot) -> Vec<V> {
        let Some(cap) = self.cap else {
            return Vec::new();
        };
        let path = tree.nodes.path_up(tail);
        let held = path.filter(|&slot| tree.nodes[slot].data[self.index].device.is_some());
        let holders: Vec<Slot> = held.collect();
        let mut excess = (holders.len() as u64).saturating_sub(cap);
        let mut freed = Vec::new();
        for slot in holders.into_iter().rev().filter(|&slot| slot != tail) {
            let node = &tree.nodes[slot];
            let is_kept = node.data[self.index].lock_ref > 0 || node.child_count != 1;
            if excess == 0 || is_kept {
                continue;
            }
            excess -= 1;
            freed.extend(self.evict_device(tree, slot));
        }
        freed
    }

    /// MAM-H18.
    fn plan_offload<'a>(
        &self,
        _layout: PageLayout,
        value: &V,
        keys: &'a [Digest],
    ) -> Option<OffloadPlan<'a, V>> {
        let last = &keys[keys.len().checked_sub(1)?..];
        Some(OffloadPlan::tail(ComponentType::Mamba, value.clone(), last))
    }
}

impl Mamba {
    fn check_count<V: Indices>(
        &self,
        tree: &Tree<V>,
        anchor: Slot,
        count: impl FnOnce(&ComponentData<V>) -> u64,
    ) -> Result<()> {
        let node = &tree.nodes[anchor];
        if anchor != tree.nodes.root && count(&node.data[self.index]) == 0 {
            return contract(format!("node {} holds no Mamba lock", node.id));
        }
        Ok(())
    }
}
