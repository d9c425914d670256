//! A set of nodes with constant-time changes and dense iteration.
//!
//! Each member remembers its place in the set (`Node::leaf_position`), so nothing is searched.

use crate::nodes::{NO_SLOT, Nodes, Slot};

#[derive(Default)]
pub(crate) struct LeafSet {
    members: Vec<Slot>,
}

impl LeafSet {
    pub fn clear(&mut self) {
        self.members.clear();
    }

    pub fn members(&self) -> &[Slot] {
        &self.members
    }

    /// Makes `slot` a member or not.
    pub fn set<V>(&mut self, nodes: &mut Nodes<V>, slot: Slot, is_member: bool) {
        let position = nodes[slot].leaf_position;
        if (position != NO_SLOT) == is_member {
            return;
        }
        if is_member {
            nodes[slot].leaf_position = self.members.len() as u32;
            self.members.push(slot);
        } else {
            nodes[slot].leaf_position = NO_SLOT;
            self.members.swap_remove(position as usize);
            if let Some(&moved) = self.members.get(position as usize) {
                nodes[moved].leaf_position = position;
            }
        }
    }
}
