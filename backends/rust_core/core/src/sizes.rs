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
        match component {
            ComponentType::Full => self.ledgers[FULL],
            _ => Ledger::default(),
        }
    }

    /// FULL's device tokens, locked or not, counted on the nodes (SIZE-4).
    pub fn total_size(&self) -> usize {
        self.nodes
            .pre_order()
            .filter_map(|slot| self.nodes[slot].full().device.as_ref())
            .map(Indices::len)
            .sum()
    }

    /// Corrects a ledger by hand (SIZE-5).
    pub fn adjust_component_size(
        &mut self,
        id: NodeId,
        component: ComponentType,
        delta: i64,
    ) -> Result<()> {
        let slot = self.nodes.resolve(id)?;
        if component != ComponentType::Full {
            let text = format!("this tree has no {component:?} component");
            return Err(TreeError::InvalidArgument(text));
        }
        let data = self.nodes[slot].full();
        if data.device.is_none() {
            return Ok(());
        }
        let ledger = &mut self.ledgers[FULL];
        let size = match data.lock_ref {
            0 => &mut ledger.evictable,
            _ => &mut ledger.protected,
        };
        let adjusted = *size + i128::from(delta);
        if adjusted < 0 {
            let text = format!("a size of {size} cannot change by {delta}");
            return Err(TreeError::InvalidArgument(text));
        }
        *size = adjusted;
        Ok(())
    }
}
