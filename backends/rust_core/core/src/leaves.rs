//! A set of nodes with their ranks, with constant-time changes and dense iteration.
//!
//! Each member remembers its place in the set (`Node::leaf_position`), so nothing is searched.
//! Ranks are kept here as they change, so that opening a walk reads one dense array instead of
//! visiting every leaf.

use crate::NodeId;
use crate::nodes::{NO_SLOT, Nodes, Slot};
use crate::policy::Rank;

/// One member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub rank: Rank,
    pub id: NodeId,
    pub slot: Slot,
}

#[derive(Default)]
pub(crate) struct LeafSet {
    members: Vec<Leaf>,
}

impl LeafSet {
    pub fn clear(&mut self) {
        self.members.clear();
    }

    pub fn members(&self) -> &[Leaf] {
        &self.members
    }

    /// Makes `slot` a member, or brings its rank up to date.
    pub fn insert<V>(&mut self, nodes: &mut Nodes<V>, slot: Slot, rank: Rank) {
        let node = &mut nodes[slot];
        if node.leaf_position != NO_SLOT {
            self.members[node.leaf_position as usize].rank = rank;
            return;
        }
        node.leaf_position = self.members.len() as u32;
        let id = node.id;
        self.members.push(Leaf { rank, id, slot });
    }

    /// Takes `slot` out if it is a member.
    pub fn remove<V>(&mut self, nodes: &mut Nodes<V>, slot: Slot) {
        let position = std::mem::replace(&mut nodes[slot].leaf_position, NO_SLOT);
        if position == NO_SLOT {
            return;
        }
        self.members.swap_remove(position as usize);
        if let Some(moved) = self.members.get(position as usize) {
            nodes[moved.slot].leaf_position = position;
        }
    }
}
