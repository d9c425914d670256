//! Walks over recency lists, and evicting one component from an internal node (EVD-40, SWA-E,
//! MAM-E).
//!
//! The cursor of a walk is the next victim. It is a handle, so that a node which goes meanwhile
//! is noticed.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::NodeId;
use crate::component::ComponentType;
use crate::error::{Result, contract};
use crate::evict::{Freed, WalkStep};
use crate::indices::Indices;
use crate::nodes::Slot;
use crate::tree::Tree;

/// An open walk over one component's list, from its least recent end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListWalk {
    request: u64,
    cursor: Option<NodeId>,
}

impl<V: Indices> Tree<V> {
    pub(crate) fn open_list_walk(&mut self, index: usize, request: u64) {
        let cursor = self.oldest_unlocked(index);
        self.records[index].walk = Some(ListWalk { request, cursor });
    }

    fn oldest_unlocked(&self, index: usize) -> Option<NodeId> {
        let oldest = self.records[index].recency.oldest_unlocked(&self.nodes);
        oldest.map(|slot| self.nodes[slot].id)
    }

    /// SWA-E3 to SWA-E6, MAM-E3 to MAM-E6.
    pub(crate) fn next_in_list(&mut self, index: usize, evicted: u64) -> Result<WalkStep<V>> {
        let kind = self.components[index].kind();
        let Some(mut walk) = self.records[index].walk else {
            return contract(format!("no {kind:?} eviction walk is open"));
        };
        // A walk that ran off the list is over; one whose victim went starts again.
        if walk
            .cursor
            .is_some_and(|id| self.listed(id, index).is_none())
        {
            walk.cursor = self.oldest_unlocked(index);
            self.records[index].walk = Some(walk);
        }
        let victim = walk.cursor.filter(|_| evicted < walk.request);
        let Some(slot) = victim.and_then(|id| self.listed(id, index)) else {
            return Ok(WalkStep {
                node: None,
                freed: Freed::new(),
            });
        };
        let is_leaf = self.is_device_leaf(slot);
        if !is_leaf {
            self.check_internal_eviction(slot, index)?;
        }
        let next = self.records[index].recency.next_unlocked(&self.nodes, slot);
        walk.cursor = next.map(|slot| self.nodes[slot].id);
        self.records[index].walk = Some(walk);
        Ok(WalkStep {
            node: victim.filter(|_| is_leaf),
            freed: match is_leaf {
                true => Freed::new(),
                false => self.evict_internal(slot, index),
            },
        })
    }

    /// The slot of a node that lives and has a value of this component.
    fn listed(&self, id: NodeId, index: usize) -> Option<Slot> {
        let slot = self.nodes.find(id)?;
        let is_listed = self.nodes[slot].data[index].device.is_some();
        is_listed.then_some(slot)
    }

    /// Whether neither the victim nor what must go with it is locked. No caller in protocol locks
    /// during a walk (SWA-E4, MAM-E16) or a state beyond its window (MAM-L14).
    fn check_internal_eviction(&self, slot: Slot, index: usize) -> Result<()> {
        let node = &self.nodes[slot];
        let mut victims = std::iter::once(index).chain(self.cascade(slot, index));
        match victims.find(|&victim| node.data[victim].lock_ref > 0) {
            Some(victim) => {
                let kind = self.components[victim].kind();
                let id = node.id;
                contract(format!(
                    "node {id} is locked in {kind:?}: release that lock first, or end the walk"
                ))
            }
            None => Ok(()),
        }
    }

    /// CMP-5 on an internal node: what goes when `trigger` goes. A lock spares a component that
    /// is as hard to give up.
    fn cascade(&self, slot: Slot, trigger: usize) -> SmallVec<[usize; 2]> {
        let node = &self.nodes[slot];
        let priority = self.components[trigger].internal_priority();
        let goes = |index: usize| {
            let data = &node.data[index];
            let own = self.components[index].internal_priority();
            let is_spared = own == priority && data.lock_ref > 0;
            index != trigger && data.device.is_some() && own <= priority && !is_spared
        };
        (0..node.data.len()).filter(|&index| goes(index)).collect()
    }

    fn evict_internal(&mut self, slot: Slot, index: usize) -> Freed<V> {
        let victims = std::iter::once(index).chain(self.cascade(slot, index));
        let components = Arc::clone(&self.components);
        let mut freed = Freed::new();
        for victim in victims {
            let component = &components[victim];
            let value = component.evict_device(self, slot);
            freed.extend(value.map(|value| (component.kind(), value)));
        }
        freed
    }

    /// Gives up what the path to a node holds beyond the cap on states (EVD-48).
    pub fn evict_excess_path_states(&mut self, tail: NodeId) -> Result<Vec<V>> {
        let slot = self.nodes.resolve(tail)?;
        let index = self.check_component(ComponentType::Mamba)?;
        let components = Arc::clone(&self.components);
        Ok(components[index].evict_excess_path_states(self, slot))
    }
}
