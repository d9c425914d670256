//! Locks and pins (LOCK-1 to LOCK-31, SWA-L, MAM-L).
//!
//! A release is checked along its whole path, for every component, before anything is released.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::NodeId;
use crate::component::{ComponentType, FULL, Tier};
use crate::error::{Result, contract};
use crate::evict::Freed;
use crate::indices::Indices;
use crate::nodes::Slot;
use crate::tree::Tree;

/// Boundary marks of one receipt. A component without an entry was not locked; an entry without
/// a mark stands for a segment that reached the root (SWA-L5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks(SmallVec<[(ComponentType, Option<i64>); 2]>);

impl Marks {
    /// The entry of a component, the last one if several mean it.
    pub fn get(&self, component: ComponentType) -> Option<Option<i64>> {
        let mut entries = self.0.iter().rev();
        entries
            .find(|entry| entry.0 == component)
            .map(|entry| entry.1)
    }

    /// Adds the entry of a component.
    pub fn set(&mut self, component: ComponentType, mark: Option<i64>) {
        self.0.push((component, mark));
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = (ComponentType, Option<i64>)> + '_ {
        self.0.iter().copied()
    }
}

/// What a lock gives and its release must show (LOCK-2, LOCK-8).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockReceipt {
    /// The node that was locked.
    pub node: Option<NodeId>,
    /// Components that the lock left out.
    pub skipped: Vec<ComponentType>,
    /// FULL's tokens that became protected; `None` if FULL was left out.
    pub delta: Option<u64>,
    /// Marks of device locks.
    pub marks: Marks,
    /// Marks of host locks.
    pub host_marks: Marks,
}

impl LockReceipt {
    fn check_anchor(&self, id: NodeId) -> Result<()> {
        if self.node == Some(id) {
            return Ok(());
        }
        contract(format!("the receipt is not of node {id}"))
    }
}

impl<V: Indices> Tree<V> {
    /// Locks what a node needs in every component but the skipped ones (LOCK-1, LOCK-2).
    pub fn inc_lock_ref(&mut self, id: NodeId, skipped: &[ComponentType]) -> Result<LockReceipt> {
        let slot = self.nodes.resolve(id)?;
        let mut receipt = LockReceipt {
            node: Some(id),
            skipped: skipped.to_vec(),
            ..LockReceipt::default()
        };
        for component in Arc::clone(&self.components).iter() {
            if !skipped.contains(&component.kind()) {
                component.acquire_lock(self, slot, &mut receipt);
            }
        }
        self.refresh_leaf(slot);
        Ok(receipt)
    }

    /// Releases a lock on the node it was taken on (LOCK-8). With `skip_swa`, windows that were
    /// released early are left out, and what is easier to give up with them (LOCK-9).
    pub fn dec_lock_ref(
        &mut self,
        id: NodeId,
        receipt: &LockReceipt,
        skip_swa: bool,
    ) -> Result<()> {
        let slot = self.nodes.resolve(id)?;
        receipt.check_anchor(id)?;
        let released_early = match skip_swa {
            true => self.released_with_window(),
            false => SmallVec::new(),
        };
        let components = Arc::clone(&self.components);
        let covered = components.iter().filter(|component| {
            let kind = component.kind();
            !receipt.skipped.contains(&kind) && !released_early.contains(&kind)
        });
        // As the release goes: the easiest to give up first (MAM-L17).
        for component in covered.clone().rev() {
            component.check_release(self, slot, receipt)?;
        }
        for component in covered.rev() {
            component.release_lock(self, slot, receipt);
        }
        self.refresh_leaf(slot);
        Ok(())
    }

    /// SWA and the components that are easier to give up on an internal node; nothing without
    /// SWA (SWA-L10).
    fn released_with_window(&self) -> SmallVec<[ComponentType; 4]> {
        let Some(window) = self.index_of(ComponentType::Swa) else {
            return SmallVec::new();
        };
        let priority = self.components[window].internal_priority();
        let kinds = self.components.iter().enumerate();
        kinds
            .filter(|(index, one)| *index == window || one.internal_priority() < priority)
            .map(|(_, one)| one.kind())
            .collect()
    }

    /// Releases the SWA window of a receipt early, and every state lock with it (LOCK-15).
    pub fn dec_swa_lock_only(&mut self, id: NodeId, receipt: &LockReceipt) -> Result<Freed<V>> {
        let slot = self.nodes.resolve(id)?;
        receipt.check_anchor(id)?;
        let Some(window) = self.index_of(ComponentType::Swa) else {
            return Ok(Freed::new());
        };
        if slot == self.nodes.root {
            return Ok(Freed::new());
        }
        let components = Arc::clone(&self.components);
        let released = self.released_with_window();
        let others = components.iter().enumerate().filter(|(index, component)| {
            let kind = component.kind();
            *index != window && released.contains(&kind) && !receipt.skipped.contains(&kind)
        });
        components[window].check_release(self, slot, receipt)?;
        for (_, component) in others.clone() {
            component.check_release(self, slot, receipt)?;
        }
        let freed = self.release_window(window, slot, receipt);
        for (_, component) in others.rev() {
            component.release_lock(self, slot, receipt);
        }
        Ok(freed)
    }

    /// Releases one window of a receipt and nothing else (LOCK-18).
    pub fn dec_window_lock_only(
        &mut self,
        id: NodeId,
        component: ComponentType,
        receipt: &LockReceipt,
    ) -> Result<Freed<V>> {
        let slot = self.nodes.resolve(id)?;
        receipt.check_anchor(id)?;
        if slot == self.nodes.root || receipt.skipped.contains(&component) {
            return Ok(Freed::new());
        }
        let index = self.check_window(component)?;
        let components = Arc::clone(&self.components);
        components[index].check_release(self, slot, receipt)?;
        Ok(self.release_window(index, slot, receipt))
    }

    fn release_window(&mut self, index: usize, slot: Slot, receipt: &LockReceipt) -> Freed<V> {
        let components = Arc::clone(&self.components);
        let component = &components[index];
        let values = component.release_window(self, slot, receipt);
        let kind = component.kind();
        values.into_iter().map(|value| (kind, value)).collect()
    }

    /// The mark of a segment's boundary node: its own, or a fresh one (SWA-L2, LOCK-24).
    pub(crate) fn boundary_mark(&mut self, slot: Slot, index: usize, tier: Tier) -> i64 {
        let (_, mark) = self.nodes[slot].data[index].lock_mut(tier);
        *mark.get_or_insert_with(|| {
            let next = &mut self.records[index].next_mark;
            *next += 1;
            *next - 1
        })
    }

    /// Locks FULL alone, without a receipt (LOCK-14).
    pub fn inc_full_pin(&mut self, id: NodeId) -> Result<()> {
        let slot = self.nodes.resolve(id)?;
        let components = Arc::clone(&self.components);
        components[FULL].acquire_lock(self, slot, &mut LockReceipt::default());
        self.refresh_leaf(slot);
        Ok(())
    }

    /// Undoes one `inc_full_pin` (LOCK-14).
    pub fn dec_full_pin(&mut self, id: NodeId) -> Result<()> {
        let slot = self.nodes.resolve(id)?;
        let components = Arc::clone(&self.components);
        let receipt = LockReceipt::default();
        components[FULL].check_release(self, slot, &receipt)?;
        components[FULL].release_lock(self, slot, &receipt);
        self.refresh_leaf(slot);
        Ok(())
    }

    /// Pins a node on the host in every component (LOCK-22).
    pub fn inc_host_lock_ref(&mut self, id: NodeId) -> Result<LockReceipt> {
        let slot = self.nodes.resolve(id)?;
        let mut receipt = LockReceipt {
            node: Some(id),
            ..LockReceipt::default()
        };
        for component in Arc::clone(&self.components).iter() {
            component.acquire_host_lock(self, slot, &mut receipt);
        }
        self.refresh_leaf(slot);
        Ok(receipt)
    }

    /// Releases a host pin (LOCK-25).
    pub fn dec_host_lock_ref(&mut self, id: NodeId, receipt: &LockReceipt) -> Result<()> {
        let slot = self.nodes.resolve(id)?;
        receipt.check_anchor(id)?;
        let components = Arc::clone(&self.components);
        let covered = components
            .iter()
            .filter(|component| !receipt.skipped.contains(&component.kind()));
        for component in covered.clone().rev() {
            component.check_host_release(self, slot, receipt)?;
        }
        for component in covered.rev() {
            component.release_host_lock(self, slot, receipt);
        }
        self.refresh_leaf(slot);
        Ok(())
    }
}
