//! Does the tree's state hang together? (CHK-1 to CHK-23)

use std::fmt::Write as _;

use crate::NodeId;
use crate::component::FULL;
use crate::error::{Result, TreeError};
use crate::indices::Indices;
use crate::nodes::Slot;
use crate::sizes::Ledger;
use crate::tree::Tree;

impl<V: Indices> Tree<V> {
    /// Refuses if an invariant does not hold; lists of (operation, node) in flight (CHK).
    pub fn sanity_check(
        &self,
        ongoing_write_through: &[(i64, NodeId)],
        ongoing_load_back: &[(i64, NodeId)],
    ) -> Result<()> {
        let mut found = Vec::new();
        self.check_root(&mut found);
        let mut ledger = Ledger::default();
        for slot in self.nodes.pre_order() {
            self.check_children(slot, &mut found);
            if slot != self.nodes.root {
                self.check_node(slot, &mut ledger, &mut found);
            }
        }
        self.check_leaves(&mut found);
        if ledger != self.ledgers[FULL] {
            found.push(format!(
                "FULL's ledger is {:?}, its nodes add up to {ledger:?}",
                self.ledgers[FULL]
            ));
        }
        for (name, ongoing) in [
            ("write-through", ongoing_write_through),
            ("load-back", ongoing_load_back),
        ] {
            self.check_ongoing(name, ongoing, &mut found);
        }
        self.verdict(found)
    }

    fn verdict(&self, found: Vec<String>) -> Result<()> {
        if found.is_empty() {
            return Ok(());
        }
        let mut text = format!(
            "Sanity check FAILED ({} violations across {} nodes):",
            found.len(),
            self.nodes.count()
        );
        for line in found {
            text.push('\n');
            text.push_str(&line);
        }
        Err(TreeError::Unsound(text))
    }

    fn check_root(&self, found: &mut Vec<String>) {
        if self.nodes[self.nodes.root].full().lock_ref == 0 {
            found.push("the root is not locked".into());
        }
    }

    fn check_children(&self, parent: Slot, found: &mut Vec<String>) {
        let mut count = 0;
        for child in self.nodes.children(parent) {
            count += 1;
            let node = &self.nodes[child];
            if node.parent != parent || self.nodes.units(child) == 0 {
                found.push(format!("node {} does not hang right", node.id));
            } else if self.nodes.child(parent, node.namespace, &node.tokens) != Some(child) {
                found.push(format!("node {} cannot be found by its page", node.id));
            }
        }
        let node = &self.nodes[parent];
        if count != node.child_count {
            found.push(format!("node {} miscounts its children", node.id));
        }
    }

    fn check_node(&self, slot: Slot, ledger: &mut Ledger, found: &mut Vec<String>) {
        let node = &self.nodes[slot];
        let data = node.full();
        let Some(value) = &data.device else {
            found.push(format!("node {} has no FULL value", node.id));
            return;
        };
        if value.len() != self.nodes.units(slot) {
            found.push(format!("node {} has a value of another length", node.id));
        }
        match data.lock_ref {
            0 => ledger.evictable += value.len() as i128,
            _ => ledger.protected += value.len() as i128,
        }
    }

    fn check_leaves(&self, found: &mut Vec<String>) {
        for slot in self.nodes.pre_order() {
            let position = self.nodes[slot].leaf_position as usize;
            let member = self.device_leaves.members().get(position);
            let member = member.filter(|leaf| leaf.slot == slot);
            let node = &self.nodes[slot];
            if member.is_some() != self.is_device_leaf(slot) {
                found.push(format!("node {} is misplaced as a leaf", node.id));
            } else if member.is_some_and(|leaf| leaf.rank != self.policy.rank(&node.rank)) {
                found.push(format!("node {} has an old rank", node.id));
            }
        }
    }

    fn check_ongoing(&self, name: &str, ongoing: &[(i64, NodeId)], found: &mut Vec<String>) {
        for &(operation, id) in ongoing {
            match self.nodes.find(id) {
                None => found.push(format!("{name} {operation}: node {id} is gone")),
                Some(slot) if self.nodes[slot].full().lock_ref == 0 => {
                    found.push(format!("{name} {operation}: node {id} is not locked"));
                }
                Some(_) => {}
            }
        }
    }

    /// The tree as text, one line per node (CHK-22).
    pub fn pretty_print(&self) -> String {
        let mut text = String::new();
        let mut depths: Vec<Slot> = Vec::new();
        for slot in self.nodes.pre_order() {
            let node = &self.nodes[slot];
            while depths.last().is_some_and(|&above| above != node.parent) {
                depths.pop();
            }
            let _ = writeln!(
                text,
                "{:indent$}{} units={} locks={} device={}",
                "",
                node.id,
                self.nodes.units(slot),
                node.full().lock_ref,
                node.full().device.is_some(),
                indent = 2 * depths.len()
            );
            depths.push(slot);
        }
        text
    }
}
