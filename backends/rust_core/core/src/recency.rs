//! A component's recency list, woven through the nodes (LRU-1 to LRU-9).
//!
//! A node is in the list exactly while it has a device value of the component (LRU-10), locked or
//! not, so membership needs no mark of its own. Hides the links.

use smallvec::SmallVec;

use crate::component::ComponentData;
use crate::nodes::{NO_SLOT, Nodes, Slot};

/// Both ends of one list; the links are in the nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recency {
    /// The component's position in a node's data.
    index: usize,
    newest: Slot,
    oldest: Slot,
}

impl Recency {
    pub fn new(index: usize) -> Self {
        Recency {
            index,
            newest: NO_SLOT,
            oldest: NO_SLOT,
        }
    }

    fn at<'a, V>(&self, nodes: &'a Nodes<V>, slot: Slot) -> &'a ComponentData<V> {
        &nodes[slot].data[self.index]
    }

    fn at_mut<'a, V>(&self, nodes: &'a mut Nodes<V>, slot: Slot) -> &'a mut ComponentData<V> {
        &mut nodes[slot].data[self.index]
    }

    fn contains<V>(&self, nodes: &Nodes<V>, slot: Slot) -> bool {
        self.at(nodes, slot).device.is_some()
    }

    /// Puts a node that is not listed at the most recent end (LRU-2).
    pub fn insert_newest<V>(&mut self, nodes: &mut Nodes<V>, slot: Slot) {
        self.link(nodes, NO_SLOT, slot, self.newest);
    }

    /// Puts a node that is not listed one step behind `member` (LRU-3).
    pub fn insert_behind<V>(&mut self, nodes: &mut Nodes<V>, member: Slot, slot: Slot) {
        let older = self.at(nodes, member).older;
        self.link(nodes, member, slot, older);
    }

    fn link<V>(&mut self, nodes: &mut Nodes<V>, newer: Slot, slot: Slot, older: Slot) {
        let data = self.at_mut(nodes, slot);
        (data.newer, data.older) = (newer, older);
        self.set_older(nodes, newer, slot);
        self.set_newer(nodes, older, slot);
    }

    /// Takes a listed node out (LRU-4).
    pub fn remove<V>(&mut self, nodes: &mut Nodes<V>, slot: Slot) {
        let data = self.at_mut(nodes, slot);
        let (newer, older) = (data.newer, data.older);
        (data.newer, data.older) = (NO_SLOT, NO_SLOT);
        self.set_older(nodes, newer, older);
        self.set_newer(nodes, older, newer);
    }

    /// What follows `slot` towards the oldest end; `NO_SLOT` stands for the newest end itself.
    fn set_older<V>(&mut self, nodes: &mut Nodes<V>, slot: Slot, older: Slot) {
        match slot {
            NO_SLOT => self.newest = older,
            _ => self.at_mut(nodes, slot).older = older,
        }
    }

    fn set_newer<V>(&mut self, nodes: &mut Nodes<V>, slot: Slot, newer: Slot) {
        match slot {
            NO_SLOT => self.oldest = newer,
            _ => self.at_mut(nodes, slot).newer = newer,
        }
    }

    /// Moves a listed node to the most recent end (LRU-5).
    pub fn promote<V>(&mut self, nodes: &mut Nodes<V>, slot: Slot) {
        self.remove(nodes, slot);
        self.insert_newest(nodes, slot);
    }

    /// Moves the listed nodes from `start` up to the most recent end, `start` first, until the
    /// visited nodes cover `limit` units or the root is reached (LRU-7).
    pub fn promote_window<V>(&mut self, nodes: &mut Nodes<V>, start: Slot, limit: usize) {
        let mut covered = 0;
        let mut listed: SmallVec<[Slot; 8]> = SmallVec::new();
        let mut at = start;
        while at != nodes.root && covered < limit {
            covered += nodes.units(at);
            if self.contains(nodes, at) {
                listed.push(at);
            }
            at = nodes[at].parent;
        }
        for &slot in listed.iter().rev() {
            self.promote(nodes, slot);
        }
    }

    /// The least recent node that no lock of this component holds (LRU-8).
    pub fn oldest_unlocked<V>(&self, nodes: &Nodes<V>) -> Option<Slot> {
        self.unlocked_from(nodes, self.oldest)
    }

    /// The same among the nodes that are more recent than a listed one (LRU-9).
    pub fn next_unlocked<V>(&self, nodes: &Nodes<V>, member: Slot) -> Option<Slot> {
        self.unlocked_from(nodes, self.at(nodes, member).newer)
    }

    fn unlocked_from<V>(&self, nodes: &Nodes<V>, mut at: Slot) -> Option<Slot> {
        while at != NO_SLOT {
            let data = self.at(nodes, at);
            if data.lock_ref == 0 {
                return Some(at);
            }
            at = data.newer;
        }
        None
    }

    /// All members, the most recent first; no more than `limit`, should the links go round.
    pub fn members<V>(&self, nodes: &Nodes<V>, limit: usize) -> Vec<Slot> {
        let mut found = Vec::new();
        let mut at = self.newest;
        while at != NO_SLOT && found.len() < limit {
            found.push(at);
            at = self.at(nodes, at).older;
        }
        found
    }

    /// Whether both directions name the same order and the oldest end is where it should be.
    pub fn is_well_linked<V>(&self, nodes: &Nodes<V>, members: &[Slot]) -> bool {
        let mut newer = NO_SLOT;
        let is_linked = members.iter().all(|&slot| {
            let expected = std::mem::replace(&mut newer, slot);
            self.at(nodes, slot).newer == expected
        });
        is_linked && self.oldest == newer
    }
}
