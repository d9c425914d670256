//! Evicting device leaves, and FULL's walk over them (EVD-1 to EVD-36).
//!
//! FULL's walk ranks the leaves once, when it opens, and then offers them one by one. Without a
//! host tier a leaf is deleted, never demoted, and has no descendant on the host.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::NodeId;
use crate::component::{ComponentType, FULL};
use crate::error::{Result, contract};
use crate::indices::Indices;
use crate::nodes::Slot;
use crate::policy::Rank;
use crate::tree::Tree;

/// The last leaf that a walk offered (EVD-12).
enum Offered {
    /// Still in the tree when last looked at.
    Leaf(NodeId),
    /// Deleted since; its parent was this node.
    ChildOf(NodeId),
}

/// An open walk over FULL's device leaves.
pub(crate) struct LeafWalk {
    request: u64,
    heap: BinaryHeap<Reverse<(Rank, NodeId)>>,
    offered: Option<Offered>,
}

/// Values that were given up, with the component that each belonged to.
pub type Freed<V> = SmallVec<[(ComponentType, V); 1]>;

/// One step of a walk (EVD-5); a step without node and values is the walk's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkStep<V> {
    /// The leaf to be evicted next.
    pub node: Option<NodeId>,
    /// What went from an internal node.
    pub freed: Freed<V>,
}

/// Answer to the eviction of a leaf.
#[derive(Debug)]
pub enum LeafEviction<V> {
    /// Write-back: back this node up first; nothing was changed (EVD-20).
    NeedsBackup(NodeId),
    /// The leaf is gone and these are its values; none of them has a copy elsewhere (EVD-21).
    Deleted(Freed<V>),
}

impl<V: Indices> Tree<V> {
    /// Opens a walk of a component that ends once `request` entries are evicted (EVD-1).
    pub fn evict_device_start(&mut self, component: ComponentType, request: u64) -> Result<()> {
        let index = self.check_component(component)?;
        if self.is_walk_open(index) {
            return contract(format!("a {component:?} eviction walk is open already"));
        }
        if index != FULL {
            self.open_list_walk(index, request);
            return Ok(());
        }
        let leaves = self.device_leaves.members().iter();
        let ranked: Vec<_> = leaves.map(|leaf| Reverse((leaf.rank, leaf.id))).collect();
        self.leaf_walk = Some(LeafWalk {
            request,
            heap: BinaryHeap::from(ranked),
            offered: None,
        });
        Ok(())
    }

    /// One step of a walk, given the entries evicted so far (EVD-4).
    pub fn evict_device_next_node(
        &mut self,
        component: ComponentType,
        evicted: u64,
    ) -> Result<WalkStep<V>> {
        let index = self.check_component(component)?;
        match index {
            FULL => Ok(WalkStep {
                node: self.next_leaf(evicted)?,
                freed: Freed::new(),
            }),
            _ => self.next_in_list(index, evicted),
        }
    }

    /// The next leaf of FULL's walk (EVD-12 to EVD-16).
    fn next_leaf(&mut self, evicted: u64) -> Result<Option<NodeId>> {
        let Some(mut walk) = self.leaf_walk.take() else {
            return contract("no FULL eviction walk is open");
        };
        self.admit_parent(&mut walk);
        let mut found = None;
        while evicted < walk.request && found.is_none() {
            let Some(Reverse((_, id))) = walk.heap.pop() else {
                break;
            };
            // Handles are never reused, so a stale entry cannot name another node.
            found = self
                .nodes
                .find(id)
                .filter(|&slot| self.is_device_leaf(slot))
                .map(|_| id);
        }
        walk.offered = found.map(Offered::Leaf);
        self.leaf_walk = Some(walk);
        Ok(found)
    }

    /// EVD-12: the parent of the leaf offered last joins the walk if it is a leaf by now.
    fn admit_parent(&self, walk: &mut LeafWalk) {
        let parent = match walk.offered.take() {
            Some(Offered::Leaf(id)) => self.nodes.find(id).map(|slot| self.nodes[slot].parent),
            Some(Offered::ChildOf(id)) => self.nodes.find(id),
            None => None,
        };
        if let Some(parent) = parent.filter(|&slot| self.is_device_leaf(slot)) {
            let node = &self.nodes[parent];
            walk.heap
                .push(Reverse((self.policy.rank(&node.rank), node.id)));
        }
    }

    /// Closes a walk (EVD-3).
    pub fn evict_device_end(&mut self, component: ComponentType) -> Result<()> {
        let index = self.check_component(component)?;
        if !self.is_walk_open(index) {
            return contract(format!("no {component:?} eviction walk is open"));
        }
        self.records[index].walk = None;
        if index == FULL {
            self.leaf_walk = None;
        }
        Ok(())
    }

    pub(crate) fn is_walk_open(&self, index: usize) -> bool {
        match index {
            FULL => self.leaf_walk.is_some(),
            _ => self.records[index].walk.is_some(),
        }
    }

    /// Evicts a device leaf, or asks for its backup first (EVD-17). The caller's idea of the
    /// write mode must be the tree's.
    pub fn evict_device_leaf(
        &mut self,
        id: NodeId,
        is_write_back: bool,
    ) -> Result<LeafEviction<V>> {
        let slot = self.nodes.resolve(id)?;
        if is_write_back != self.settings.is_write_back {
            return contract("is_write_back differs from the tree's own setting");
        }
        self.check_device_leaf(slot)?;
        if is_write_back {
            return Ok(LeafEviction::NeedsBackup(id));
        }
        Ok(LeafEviction::Deleted(self.delete_leaf(slot)))
    }

    /// Deletes an unbacked device leaf and returns its values; `None` if a lock forbids it
    /// (EVD-33).
    pub fn drop_subtree_no_host(&mut self, id: NodeId) -> Result<Option<Freed<V>>> {
        let slot = self.nodes.resolve(id)?;
        self.check_device_leaf(slot)?;
        let node = &self.nodes[slot];
        if node.write_through_pending.is_some() {
            return contract(format!("node {id} has a backup in flight"));
        }
        if node.is_locked() {
            return Ok(None);
        }
        Ok(Some(self.delete_leaf(slot)))
    }

    fn check_device_leaf(&self, slot: Slot) -> Result<()> {
        if self.is_device_leaf(slot) {
            return Ok(());
        }
        contract(format!("node {} is no device leaf", self.nodes[slot].id))
    }

    /// EVD-21. Above the leaf nothing is left to clean up: without a host tier FULL stays on
    /// every node, so the cleanup of EVD-36 ends at the refreshed parent.
    fn delete_leaf(&mut self, slot: Slot) -> Freed<V> {
        self.record_removed(slot);
        let mut freed = Freed::new();
        // FULL goes last, because a window gives up its value under FULL's slots (SWA-E10).
        for component in Arc::clone(&self.components).iter().rev() {
            let value = component.evict_device(self, slot);
            freed.extend(value.map(|value| (component.kind(), value)));
        }
        self.device_leaves.remove(&mut self.nodes, slot);
        let node = &self.nodes[slot];
        let (id, parent, namespace) = (node.id, node.parent, node.namespace);
        if let Some(walk) = &mut self.leaf_walk
            && matches!(walk.offered, Some(Offered::Leaf(offered)) if offered == id)
        {
            walk.offered = Some(Offered::ChildOf(self.nodes[parent].id));
        }
        self.nodes.remove(slot);
        self.namespaces.release(namespace);
        self.refresh_leaf(parent);
        freed
    }
}
