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
        for slot in self.nodes.pre_order() {
            self.check_children(slot, &mut found);
            if slot != self.nodes.root {
                self.check_node(slot, &mut found);
            }
        }
        self.check_leaves(&mut found);
        for index in 0..self.components.len() {
            self.check_ledger(index, &mut found);
            self.check_marks(index, &mut found);
            if index != FULL {
                self.check_recency(index, &mut found);
            }
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
        let root = &self.nodes[self.nodes.root];
        for (component, data) in self.components.iter().zip(&root.data) {
            let kind = component.kind();
            if data.lock_ref == 0 {
                found.push(format!("the root is not locked in {kind:?}"));
            }
            if data.device.is_some() {
                found.push(format!("the root has a {kind:?} value"));
            }
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

    /// CHK-3, CHK-5, and that values have their lengths (SWA-D2, MAM-D2). That FULL is locked
    /// wherever another component is (CHK-9) is up to the callers, so it says nothing of the tree.
    fn check_node(&self, slot: Slot, found: &mut Vec<String>) {
        let node = &self.nodes[slot];
        if node.full().device.is_none() {
            found.push(format!("node {} has no FULL value", node.id));
        }
        for (component, data) in self.components.iter().zip(&node.data) {
            let kind = component.kind();
            let expected = component.value_len(self.nodes.units(slot));
            let value = data.device.as_ref();
            if value.is_some_and(|value| value.len() != expected) {
                found.push(format!(
                    "node {} has a {kind:?} value of another length",
                    node.id
                ));
            }
        }
    }

    /// CHK-18.
    fn check_ledger(&self, index: usize, found: &mut Vec<String>) {
        let mut counted = Ledger::default();
        for slot in self.nodes.pre_order().skip(1) {
            let data = &self.nodes[slot].data[index];
            match data.lock_ref {
                0 => counted.evictable += i128::from(data.len()),
                _ => counted.protected += i128::from(data.len()),
            }
        }
        let kept = self.records[index].ledger;
        if counted != kept {
            let kind = self.components[index].kind();
            found.push(format!(
                "{kind:?}'s ledger is {kept:?}, its nodes add up to {counted:?}"
            ));
        }
    }

    /// CHK-15, CHK-17.
    fn check_recency(&self, index: usize, found: &mut Vec<String>) {
        let kind = self.components[index].kind();
        let recency = &self.records[index].recency;
        let members = recency.members(&self.nodes, self.nodes.count());
        let holders = self
            .nodes
            .pre_order()
            .skip(1)
            .filter(|&slot| self.nodes[slot].data[index].device.is_some());
        let (mut listed, mut expected) = (members.clone(), holders.collect::<Vec<_>>());
        listed.sort_unstable();
        expected.sort_unstable();
        if listed != expected {
            found.push(format!("{kind:?}'s list is not its nodes with a value"));
        }
        if !recency.is_well_linked(&self.nodes, &members) {
            found.push(format!("{kind:?}'s list is not well linked"));
        }
    }

    /// SWA-V11: a mark names one node.
    fn check_marks(&self, index: usize, found: &mut Vec<String>) {
        let mut marks = Vec::new();
        for slot in self.nodes.pre_order() {
            let data = &self.nodes[slot].data[index];
            marks.extend(data.lock_mark);
            marks.extend(data.host_lock_mark);
        }
        let count = marks.len();
        marks.sort_unstable();
        marks.dedup();
        let kind = self.components[index].kind();
        if marks.len() != count {
            found.push(format!("two nodes carry one {kind:?} mark"));
        }
        if marks
            .last()
            .is_some_and(|&last| last >= self.records[index].next_mark)
        {
            found.push(format!("a {kind:?} mark is yet to be issued"));
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
