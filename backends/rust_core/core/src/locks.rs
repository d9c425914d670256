//! Locks and pins (LOCK-1 to LOCK-31).
//!
//! A release is checked along its whole path, for every component, before anything is released.

use std::sync::Arc;

use crate::NodeId;
use crate::component::{COMPONENTS, ComponentType, FULL, HostLockEntry};
use crate::error::{Result, contract};
use crate::indices::Indices;
use crate::nodes::Slot;
use crate::tree::Tree;

/// What a release must show (LOCK-2, LOCK-8).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockReceipt {
    /// The node that was locked.
    pub node: Option<NodeId>,
    /// Components that the lock left out.
    pub skipped: Vec<ComponentType>,
    /// FULL's mark of a host lock.
    pub full_host_lock: HostLockEntry,
}

impl LockReceipt {
    fn check_anchor(&self, id: NodeId) -> Result<()> {
        if self.node == Some(id) {
            return Ok(());
        }
        contract(format!("the receipt is not of node {id}"))
    }

    fn covers(&self, index: usize) -> bool {
        !self
            .skipped
            .iter()
            .any(|&skipped| skipped as usize == index)
    }
}

impl<V: Indices> Tree<V> {
    /// Locks the path to a node in every component but the skipped ones; returns the tokens that
    /// became protected, `None` if FULL was skipped (LOCK-1, LOCK-2).
    pub fn inc_lock_ref(&mut self, id: NodeId, skipped: &[ComponentType]) -> Result<Option<u64>> {
        let slot = self.nodes.resolve(id)?;
        if skipped.contains(&ComponentType::Full) {
            self.refresh_leaf(slot);
            return Ok(None);
        }
        let delta = self.lock_component(slot, FULL);
        Ok(Some(delta))
    }

    fn lock_component(&mut self, slot: Slot, index: usize) -> u64 {
        let components = Arc::clone(&self.components);
        let delta = components[index].acquire_lock(self, slot);
        self.refresh_leaf(slot);
        delta
    }

    /// Releases a lock on the node it was taken on (LOCK-8).
    pub fn dec_lock_ref(&mut self, id: NodeId, receipt: &LockReceipt) -> Result<()> {
        let slot = self.nodes.resolve(id)?;
        receipt.check_anchor(id)?;
        let components = Arc::clone(&self.components);
        let covered = (0..COMPONENTS).filter(|&index| receipt.covers(index));
        for index in covered.clone() {
            components[index].check_release(self, slot)?;
        }
        for index in covered.rev() {
            components[index].release_lock(self, slot);
        }
        self.refresh_leaf(slot);
        Ok(())
    }

    /// A tree without windows has none to release early; only the receipt is checked (LOCK-15).
    pub fn dec_swa_lock_only(&self, id: NodeId, receipt: &LockReceipt) -> Result<()> {
        self.nodes.resolve(id)?;
        receipt.check_anchor(id)
    }

    /// Locks FULL alone, without a receipt (LOCK-14).
    pub fn inc_full_pin(&mut self, id: NodeId) -> Result<()> {
        let slot = self.nodes.resolve(id)?;
        self.lock_component(slot, FULL);
        Ok(())
    }

    /// Undoes one `inc_full_pin` (LOCK-14).
    pub fn dec_full_pin(&mut self, id: NodeId) -> Result<()> {
        let slot = self.nodes.resolve(id)?;
        let components = Arc::clone(&self.components);
        components[FULL].check_release(self, slot)?;
        components[FULL].release_lock(self, slot);
        self.refresh_leaf(slot);
        Ok(())
    }

    /// Pins a node on the host; returns FULL's entry of the receipt (LOCK-22).
    pub fn inc_host_lock_ref(&mut self, id: NodeId) -> Result<HostLockEntry> {
        let slot = self.nodes.resolve(id)?;
        let components = Arc::clone(&self.components);
        let entry = components[FULL].acquire_host_lock(self, slot);
        self.refresh_leaf(slot);
        Ok(entry)
    }

    /// Releases a host pin (LOCK-25).
    pub fn dec_host_lock_ref(&mut self, id: NodeId, receipt: &LockReceipt) -> Result<()> {
        let slot = self.nodes.resolve(id)?;
        receipt.check_anchor(id)?;
        let components = Arc::clone(&self.components);
        if receipt.covers(FULL) {
            components[FULL].check_host_release(self, slot, receipt.full_host_lock)?;
            components[FULL].release_host_lock(self, slot, receipt.full_host_lock);
        }
        self.refresh_leaf(slot);
        Ok(())
    }
}
