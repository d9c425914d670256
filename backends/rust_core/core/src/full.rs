//! The FULL component: one slot per unit on every node (FULL-1 to FULL-6, LOCK-3 to LOCK-26).
//!
//! Its recency is the nodes' last access and its candidates are the leaf set; it keeps no list.

use crate::component::{
    Component, ComponentData, FULL, HostLockEntry, InsertOverlap, MatchValidator,
};
use crate::error::{Result, contract};
use crate::indices::Indices;
use crate::nodes::{NO_SLOT, Slot};
use crate::tree::Tree;

/// FULL has no state of its own.
pub(crate) struct Full;

impl<V: Indices> Component<V> for Full {
    fn create_match_validator(&self) -> MatchValidator<V> {
        Box::new(|data| data.device.is_some())
    }

    fn redistribute_on_node_split(
        &self,
        upper: &mut ComponentData<V>,
        lower: &mut ComponentData<V>,
        split_len: usize,
    ) {
        upper.lock_ref = lower.lock_ref;
        upper.host_lock_ref = lower.host_lock_ref;
        // The mark moves up, so that a pin on the lower fragment releases both (LOCK-27).
        upper.host_lock_uuid = lower.host_lock_uuid.take();
        if let Some(value) = lower.device.take() {
            upper.device = Some(value.slice(0, split_len));
            lower.device = Some(value.slice(split_len, value.len()));
        }
    }

    fn update_on_insert_overlap(
        &self,
        _tree: &mut Tree<V>,
        _node: Slot,
        overlap: &InsertOverlap,
    ) -> usize {
        overlap.units
    }

    fn acquire_lock(&self, tree: &mut Tree<V>, anchor: Slot) -> u64 {
        let mut delta = 0;
        let mut at = anchor;
        while at != tree.nodes.root {
            let node = &mut tree.nodes[at];
            let data = &mut node.data[FULL];
            data.lock_ref += 1;
            if data.lock_ref == 1 {
                delta += data.device.as_ref().map_or(0, |value| value.len() as u64);
                tree.device_leaves.remove(&mut tree.nodes, at);
            }
            at = tree.nodes[at].parent;
        }
        tree.ledgers[FULL].protect(delta);
        delta
    }

    fn check_release(&self, tree: &Tree<V>, anchor: Slot) -> Result<()> {
        match tree
            .nodes
            .path_up(anchor)
            .find(|&slot| tree.nodes[slot].full().lock_ref == 0)
        {
            Some(slot) => contract(format!("node {} holds no lock", tree.nodes[slot].id)),
            None => Ok(()),
        }
    }

    fn release_lock(&self, tree: &mut Tree<V>, anchor: Slot) {
        let mut at = anchor;
        while at != tree.nodes.root {
            let data = tree.nodes[at].full_mut();
            data.lock_ref -= 1;
            if data.lock_ref == 0 {
                let freed = data.device.as_ref().map_or(0, |value| value.len() as u64);
                tree.ledgers[FULL].unprotect(freed);
                tree.refresh_leaf(at);
            }
            at = tree.nodes[at].parent;
        }
    }

    fn acquire_host_lock(&self, tree: &mut Tree<V>, anchor: Slot) -> HostLockEntry {
        // No node has a host value, and only write-back pins a node without one (LOCK-23).
        if !tree.settings.is_write_back {
            return None;
        }
        let data = tree.nodes[anchor].full_mut();
        let uuid = *data.host_lock_uuid.get_or_insert(tree.next_host_lock_uuid);
        if uuid == tree.next_host_lock_uuid {
            tree.next_host_lock_uuid += 1;
        }
        data.host_lock_ref += 1;
        Some(Some(uuid))
    }

    fn check_host_release(&self, tree: &Tree<V>, anchor: Slot, entry: HostLockEntry) -> Result<()> {
        let Some(uuid) = entry else { return Ok(()) };
        let Some(uuid) = uuid else {
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
            if data.host_lock_uuid == Some(uuid) {
                return Ok(());
            }
            at = tree.nodes[at].parent;
        }
    }

    fn release_host_lock(&self, tree: &mut Tree<V>, anchor: Slot, entry: HostLockEntry) {
        // Without host values a release outside write-back stops at once (LOCK-26).
        let (Some(Some(uuid)), true) = (entry, tree.settings.is_write_back) else {
            return;
        };
        let mut at = anchor;
        loop {
            tree.nodes[at].full_mut().host_lock_ref -= 1;
            tree.refresh_leaf(at);
            if tree.nodes[at].full().host_lock_uuid == Some(uuid) {
                return;
            }
            at = tree.nodes[at].parent;
        }
    }

    fn evict_device(&self, tree: &mut Tree<V>, node: Slot) -> Option<V> {
        let value = tree.nodes[node].full_mut().device.take()?;
        tree.ledgers[FULL].evictable -= value.len() as i128;
        Some(value)
    }
}
