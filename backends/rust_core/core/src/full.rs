//! The FULL component: one slot per unit on every node (FULL-1 to FULL-6, LOCK-3 to LOCK-26).
//!
//! Its recency is the nodes' last access and its candidates are the leaf set; it keeps no list.

use crate::backup::OffloadPlan;
use crate::component::{Component, ComponentData, ComponentType, FULL, Tier};
use crate::error::{Result, contract};
use crate::hash::{Digest, PageLayout};
use crate::indices::Indices;
use crate::locks::LockReceipt;
use crate::nodes::{NO_SLOT, Node, Slot};
use crate::tree::Tree;

/// FULL has no state of its own.
pub(crate) struct Full;

impl<V: Indices> Component<V> for Full {
    fn kind(&self) -> ComponentType {
        ComponentType::Full
    }

    fn internal_priority(&self) -> u8 {
        2
    }

    fn accepts(&self, node: &Node<V>, _progress: &mut usize) -> bool {
        node.full().device.is_some()
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
        let mut delta = 0;
        let mut at = anchor;
        while at != tree.nodes.root {
            let node = &mut tree.nodes[at];
            let data = &mut node.data[FULL];
            data.lock_ref += 1;
            if data.lock_ref == 1 {
                delta += data.len();
                tree.device_leaves.remove(&mut tree.nodes, at);
            }
            at = tree.nodes[at].parent;
        }
        tree.records[FULL].ledger.protect(delta);
        receipt.delta = Some(delta);
    }

    fn check_release(&self, tree: &Tree<V>, anchor: Slot, _receipt: &LockReceipt) -> Result<()> {
        match tree
            .nodes
            .path_up(anchor)
            .find(|&slot| tree.nodes[slot].full().lock_ref == 0)
        {
            Some(slot) => contract(format!("node {} holds no lock", tree.nodes[slot].id)),
            None => Ok(()),
        }
    }

    fn release_lock(&self, tree: &mut Tree<V>, anchor: Slot, _receipt: &LockReceipt) {
        let mut at = anchor;
        while at != tree.nodes.root {
            let data = tree.nodes[at].full_mut();
            data.lock_ref -= 1;
            if data.lock_ref == 0 {
                let freed = data.len();
                tree.records[FULL].ledger.unprotect(freed);
                tree.refresh_leaf(at);
            }
            at = tree.nodes[at].parent;
        }
    }

    fn acquire_host_lock(&self, tree: &mut Tree<V>, anchor: Slot, receipt: &mut LockReceipt) {
        // No node has a host value, and only write-back pins a node without one (LOCK-23).
        if !tree.settings.is_write_back {
            return;
        }
        let mark = tree.boundary_mark(anchor, FULL, Tier::Host);
        tree.nodes[anchor].full_mut().host_lock_ref += 1;
        receipt.host_marks.set(ComponentType::Full, Some(mark));
    }

    fn check_host_release(
        &self,
        tree: &Tree<V>,
        anchor: Slot,
        receipt: &LockReceipt,
    ) -> Result<()> {
        let Some(mark) = receipt.host_marks.get(ComponentType::Full) else {
            return Ok(());
        };
        let Some(mark) = mark else {
            return contract("a host lock receipt lacks its FULL mark");
        };
        if !tree.settings.is_write_back {
            return Ok(());
        }
        let mut at = anchor;
        loop {
            if at == NO_SLOT {
                return contract("no node above carries the mark of this host lock receipt");
            }
            let data = tree.nodes[at].full();
            if data.host_lock_ref == 0 {
                return contract(format!("node {} holds no host lock", tree.nodes[at].id));
            }
            if data.host_lock_mark == Some(mark) {
                return Ok(());
            }
            at = tree.nodes[at].parent;
        }
    }

    fn release_host_lock(&self, tree: &mut Tree<V>, anchor: Slot, receipt: &LockReceipt) {
        // Without host values a release outside write-back stops at once (LOCK-26).
        let mark = receipt.host_marks.get(ComponentType::Full).flatten();
        if mark.is_none() || !tree.settings.is_write_back {
            return;
        }
        let mut at = anchor;
        loop {
            tree.nodes[at].full_mut().host_lock_ref -= 1;
            tree.refresh_leaf(at);
            if tree.nodes[at].full().host_lock_mark == mark {
                return;
            }
            at = tree.nodes[at].parent;
        }
    }

    fn value_len(&self, units: usize) -> usize {
        units
    }

    fn evict_device(&self, tree: &mut Tree<V>, node: Slot) -> Option<V> {
        let value = tree.nodes[node].full_mut().device.take()?;
        tree.records[FULL].ledger.evictable -= value.len() as i128;
        Some(value)
    }

    fn plan_offload<'a>(
        &self,
        _layout: PageLayout,
        value: &V,
        keys: &'a [Digest],
    ) -> Option<OffloadPlan<'a, V>> {
        Some(OffloadPlan::whole(ComponentType::Full, value, keys))
    }
}
