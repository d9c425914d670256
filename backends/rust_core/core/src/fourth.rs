//! A component that no other file knows of, and a tree that works with it unchanged.
//!
//! What an author of a further component has to write is all here: the hooks, and nothing in the
//! tree's walks, locks, lists or checks.

use crate::NodeId;
use crate::assembly::{self, AuxiliaryConfig};
use crate::backup::OffloadPlan;
use crate::component::{Component, ComponentData, ComponentType};
use crate::cursor::Cursor;
use crate::error::{Result, contract};
use crate::evict::LeafEviction;
use crate::hash::{Digest, PageLayout};
use crate::indices::{HostIndices, Indices};
use crate::insert::{Action, InsertRequest};
use crate::key::Key;
use crate::locks::LockReceipt;
use crate::nodes::{Node, Slot};
use crate::tree::{Tree, TreeConfig};

const SIDECAR: ComponentType = ComponentType::C128;
const MAMBA: ComponentType = ComponentType::Mamba;
const SWA: ComponentType = ComponentType::Swa;

/// Keeps one entry for every two units, and never stops a match.
struct Sidecar {
    index: usize,
}

impl<V: Indices> Component<V> for Sidecar {
    fn kind(&self) -> ComponentType {
        SIDECAR
    }

    fn internal_priority(&self) -> u8 {
        0
    }

    fn accepts(&self, _node: &Node<V>, _progress: &mut usize) -> bool {
        true
    }

    fn commit_insert(&self, tree: &mut Tree<V>, _: &mut Cursor<V>, target: Slot, is_new: bool) {
        if let Some(full) = tree.nodes[target].full().device.clone().filter(|_| is_new) {
            tree.store_value(target, self.index, full.slice(0, full.len() / 2));
        }
    }

    fn redistribute_on_node_split(
        &self,
        upper: &mut ComponentData<V>,
        lower: &mut ComponentData<V>,
        split_len: usize,
    ) {
        lower.cut_front(upper, split_len / 2);
    }

    fn acquire_lock(&self, tree: &mut Tree<V>, anchor: Slot, _receipt: &mut LockReceipt) {
        for slot in path(tree, anchor) {
            let data = &mut tree.nodes[slot].data[self.index];
            data.lock_ref += 1;
            if data.lock_ref == 1 {
                tree.records[self.index].ledger.protect(data.len());
            }
        }
    }

    fn check_release(&self, tree: &Tree<V>, anchor: Slot, _receipt: &LockReceipt) -> Result<()> {
        let path = path(tree, anchor);
        let mut locks = path
            .iter()
            .map(|&slot| tree.nodes[slot].data[self.index].lock_ref);
        match locks.any(|count| count == 0) {
            true => contract("no lock of the sidecar to release"),
            false => Ok(()),
        }
    }

    fn release_lock(&self, tree: &mut Tree<V>, anchor: Slot, _receipt: &LockReceipt) {
        for slot in path(tree, anchor) {
            let data = &mut tree.nodes[slot].data[self.index];
            data.lock_ref -= 1;
            if data.lock_ref == 0 {
                tree.records[self.index].ledger.unprotect(data.len());
                tree.refresh_leaf(slot);
            }
        }
    }

    fn acquire_host_lock(&self, _: &mut Tree<V>, _: Slot, _: &mut LockReceipt) {}

    fn check_host_release(&self, _: &Tree<V>, _: Slot, _: &LockReceipt) -> Result<()> {
        Ok(())
    }

    fn release_host_lock(&self, _: &mut Tree<V>, _: Slot, _: &LockReceipt) {}

    fn value_len(&self, units: usize) -> usize {
        units / 2
    }

    fn evict_device(&self, tree: &mut Tree<V>, node: Slot) -> Option<V> {
        tree.take_value(node, self.index)
    }

    fn plan_offload<'a>(
        &self,
        _: PageLayout,
        value: &V,
        keys: &'a [Digest],
    ) -> Option<OffloadPlan<'a, V>> {
        Some(OffloadPlan::whole(SIDECAR, value, keys))
    }
}

fn path<V: Indices>(tree: &Tree<V>, anchor: Slot) -> Vec<Slot> {
    tree.nodes.path_up(anchor).collect()
}

/// Pages of 2, a window of 4, states, and the sidecar behind them (SWA-C1).
fn tree() -> Tree<HostIndices> {
    let layout = PageLayout {
        page_size: 2,
        is_bigram: false,
    };
    let window = AuxiliaryConfig::Window {
        kind: SWA,
        size: 4,
        gates_match: true,
    };
    let states = AuxiliaryConfig::Mamba {
        chunk: 2,
        cap: None,
    };
    let mut components = assembly::components(&[window, states], layout.page_size);
    let index = components.len();
    components.push(Box::new(Sidecar { index }));
    let config = TreeConfig {
        layout,
        ..TreeConfig::default()
    };
    Tree::of_components(config, components)
}

/// Inserts the numbers below `count` as tokens and as slots; returns the node at their end.
fn insert(tree: &mut Tree<HostIndices>, count: i64) -> NodeId {
    let tokens: Vec<i64> = (0..count).collect();
    let request = InsertRequest {
        state: Some(HostIndices::from(vec![900 + count])),
        ..InsertRequest::new(Key::plain(&tokens), &tokens[..])
    };
    let mut step = tree.begin_insert(&request).unwrap();
    while step.outcome.is_none() {
        for action in step.actions {
            if let Action::Rebuild { node, source, .. } = action {
                tree.set_device_value(node, SWA, source).unwrap();
            }
        }
        step = tree.resume_insert().unwrap();
    }
    tree.sanity_check(&[], &[]).unwrap();
    step.outcome.unwrap().last_node
}

fn value(tree: &Tree<HostIndices>, node: NodeId) -> Option<Vec<i64>> {
    let value = tree.device_value(node, SIDECAR).unwrap();
    value.map(|value| value.to_vec())
}

#[test]
fn a_fourth_component_needs_nothing_of_the_tree() {
    let mut tree = tree();
    let inner = insert(&mut tree, 4);
    let leaf = insert(&mut tree, 8);
    assert_eq!(value(&tree, leaf), Some(vec![4, 5]));

    // A match cuts the value with the node, and both halves stay locked.
    let receipt = tree.inc_lock_ref(leaf, &[]).unwrap();
    assert_eq!(
        (tree.evictable_size(SIDECAR), tree.protected_size(SIDECAR)),
        (0, 4)
    );
    let upper = tree
        .match_prefix(Key::plain(&[0, 1, 2, 3, 4, 5]))
        .last_visited
        .unwrap();
    assert_eq!(
        (value(&tree, upper), value(&tree, leaf)),
        (Some(vec![4]), Some(vec![5]))
    );
    tree.sanity_check(&[], &[]).unwrap();
    tree.dec_lock_ref(leaf, &receipt, false).unwrap();
    assert!(tree.dec_lock_ref(leaf, &receipt, false).is_err());

    // Its walk takes values off inner nodes, with what is as easy to give up.
    tree.evict_device_start(SIDECAR, 2).unwrap();
    let step = tree.evict_device_next_node(SIDECAR, 0).unwrap();
    let kinds: Vec<_> = step.freed.iter().map(|freed| freed.0).collect();
    assert_eq!((step.node, kinds), (None, vec![SIDECAR, MAMBA]));
    assert_eq!(value(&tree, inner), None);
    tree.evict_device_end(SIDECAR).unwrap();

    // A window takes it along, and a leaf goes with all that it has.
    tree.evict_device_start(SWA, 9).unwrap();
    let step = tree.evict_device_next_node(SWA, 0).unwrap();
    let kinds: Vec<_> = step.freed.iter().map(|freed| freed.0).collect();
    assert_eq!((kinds, value(&tree, upper)), (vec![SWA, SIDECAR], None));
    let step = tree.evict_device_next_node(SWA, 2).unwrap();
    assert_eq!(step.node, Some(leaf));
    let LeafEviction::Deleted(freed) = tree.evict_device_leaf(leaf, false).unwrap() else {
        panic!("a backup was asked for outside write-back");
    };
    assert!(freed.contains(&(SIDECAR, HostIndices::from(vec![5]))));
    assert_eq!(freed.len(), 4);
    tree.sanity_check(&[], &[]).unwrap();
    tree.reset();
    assert_eq!(tree.evictable_size(SIDECAR), 0);
}
