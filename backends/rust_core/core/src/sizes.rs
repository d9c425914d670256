//! How many tokens the tree holds, and how many of them may go (SIZE-1 to SIZE-6).

use crate::NodeId;
use crate::component::{ComponentType, FULL};
use crate::error::{Result, TreeError};
use crate::indices::Indices;
use crate::tree::Tree;

/// Tokens of one component. Signed and wide: hand-made corrections that no one matches may drive
/// a ledger below zero later, as they do in the released Python core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    pub evictable: i128,
    pub protected: i128,
}

impl Ledger {
    pub fn protect(&mut self, tokens: u64) {
        self.evictable -= i128::from(tokens);
        self.protected += i128::from(tokens);
    }

    pub fn unprotect(&mut self, tokens: u64) {
        self.evictable += i128::from(tokens);
        self.protected -= i128::from(tokens);
    }
}

impl<V: Indices> Tree<V> {
    /// Tokens on the device that no lock holds; 0 for a component that the tree lacks (SIZE-2).
    pub fn evictable_size(&self, component: ComponentType) -> i128 {
        self.ledger(component).evictable
    }

    /// Tokens on the device that a lock holds; 0 for a component that the tree lacks (SIZE-2).
    pub fn protected_size(&self, component: ComponentType) -> i128 {
        self.ledger(component).protected
    }

    fn ledger(&self, component: ComponentType) -> Ledger {
        let index = self.index_of(component);
        index.map_or_else(Ledger::default, |index| self.records[index].ledger)
    }

    /// FULL's device tokens and the device entries of all other components, locked or not,
    /// counted on the nodes (SIZE-4).
    pub fn total_size(&self) -> (usize, usize) {
        let mut total = (0, 0);
        for slot in self.nodes.pre_order() {
            let data = &self.nodes[slot].data;
            total.0 += data[FULL].len() as usize;
            total.1 += data[FULL + 1..]
                .iter()
                .map(|one| one.len() as usize)
                .sum::<usize>();
        }
        total
    }

    /// Corrects a ledger by hand (SIZE-5), to no less than nothing and no more than a `u64`.
    pub fn adjust_component_size(
        &mut self,
        id: NodeId,
        component: ComponentType,
        delta: i64,
    ) -> Result<()> {
        let slot = self.nodes.resolve(id)?;
        let Some(index) = self.index_of(component) else {
            let text = format!("this tree has no {component:?} component");
            return Err(TreeError::InvalidArgument(text));
        };
        let data = &self.nodes[slot].data[index];
        if data.device.is_none() {
            return Ok(());
        }
        let ledger = &mut self.records[index].ledger;
        let size = match data.lock_ref {
            0 => &mut ledger.evictable,
            _ => &mut ledger.protected,
        };
        let adjusted = *size + i128::from(delta);
        if u64::try_from(adjusted).is_err() {
            let text = format!("a size of {size} cannot change by {delta}");
            return Err(TreeError::InvalidArgument(text));
        }
        *size = adjusted;
        Ok(())
    }
}
