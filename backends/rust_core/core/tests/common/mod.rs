//! What the tests share: short ways to insert, match and empty a tree.

#![allow(dead_code, reason = "each test file uses its own part")]

use tree_core::{
    Action, AuxiliaryConfig, ComponentType, HostIndices, InsertOutcome, InsertRequest, Key,
    LeafEviction, MatchOutcome, NodeId, PageLayout, Policy, Tree, TreeConfig,
};

pub type HostTree = Tree<HostIndices>;

pub const FULL: ComponentType = ComponentType::Full;
pub const SWA: ComponentType = ComponentType::Swa;
pub const AUX: ComponentType = ComponentType::AuxiliarySwa;
pub const MAMBA: ComponentType = ComponentType::Mamba;

/// A tree with plain units and least-recent-first eviction.
pub fn tree(page_size: usize) -> HostTree {
    tree_with(page_size, Policy::Lru)
}

pub fn tree_with(page_size: usize, policy: Policy) -> HostTree {
    Tree::new(TreeConfig {
        layout: PageLayout {
            page_size,
            is_bigram: false,
        },
        policy,
        ..TreeConfig::default()
    })
}

/// A window of this size that matches stop at.
pub fn window(kind: ComponentType, size: usize) -> AuxiliaryConfig {
    AuxiliaryConfig::Window {
        kind,
        size,
        gates_match: true,
    }
}

/// States at every depth.
pub fn states(cap: Option<u64>) -> AuxiliaryConfig {
    AuxiliaryConfig::Mamba { chunk: 1, cap }
}

/// A tree with these components beside FULL.
pub fn tree_of(page_size: usize, auxiliaries: Vec<AuxiliaryConfig>) -> HostTree {
    Tree::new(TreeConfig {
        layout: PageLayout {
            page_size,
            is_bigram: false,
        },
        auxiliaries,
        ..TreeConfig::default()
    })
}

/// Does what a cache does about an action: window values are FULL's own numbers.
pub fn carry_out(tree: &mut HostTree, action: &Action<HostIndices>) -> Vec<Vec<i64>> {
    match action {
        Action::Rebuild {
            node,
            component,
            source: slots,
        }
        | Action::RecoverLocked {
            node,
            component,
            kept: slots,
            ..
        } => {
            tree.set_device_value(*node, *component, slots.clone())
                .expect("the node has no value yet");
            Vec::new()
        }
        Action::EvictExcessStates(tail) => {
            let freed = tree.evict_excess_path_states(*tail);
            let freed = freed.expect("the tree has states");
            freed.iter().map(|value| value.to_vec()).collect()
        }
        _ => Vec::new(),
    }
}

/// Runs an insert to its end and does what it asks for; returns all actions in order.
pub fn insert_all<'a>(
    tree: &mut HostTree,
    tokens: &'a [i64],
    first: i64,
    adjust: impl FnOnce(&mut InsertRequest<'a, HostIndices>),
) -> (Vec<Action<HostIndices>>, InsertOutcome) {
    let values: &'a [i64] = slots(first, tokens.len()).leak();
    let mut request = InsertRequest::new(Key::plain(tokens), values);
    adjust(&mut request);
    let mut step = tree.begin_insert(&request).expect("the insert is accepted");
    let mut actions = Vec::new();
    loop {
        for action in step.actions {
            carry_out(tree, &action);
            actions.push(action);
        }
        if let Some(outcome) = step.outcome {
            return (actions, outcome);
        }
        step = tree.resume_insert().expect("the insert is suspended");
    }
}

/// An insert with a state.
pub fn insert_state(tree: &mut HostTree, tokens: &[i64], first: i64, state: i64) -> InsertOutcome {
    let state = HostIndices::from(vec![state]);
    insert_all(tree, tokens, first, |request| request.state = Some(state)).1
}

/// The device value of a component.
pub fn value(tree: &HostTree, node: NodeId, component: ComponentType) -> Option<Vec<i64>> {
    let value = tree.device_value(node, component);
    value
        .expect("node and component are there")
        .map(|value| value.to_vec())
}

/// Slots `first`, `first + 1`, and so on.
pub fn slots(first: i64, count: usize) -> Vec<i64> {
    (first..).take(count).collect()
}

/// Runs an insert to its end; returns what it freed of the slots that start at `first`.
pub fn insert(tree: &mut HostTree, tokens: &[i64], first: i64) -> (Vec<Vec<i64>>, InsertOutcome) {
    insert_with(tree, tokens, first, |_| {})
}

pub fn insert_with<'a>(
    tree: &mut HostTree,
    tokens: &'a [i64],
    first: i64,
    adjust: impl FnOnce(&mut InsertRequest<'a, HostIndices>),
) -> (Vec<Vec<i64>>, InsertOutcome) {
    let values = slots(first, tokens.len());
    let values: &'a [i64] = values.leak();
    let mut request = InsertRequest::new(Key::plain(tokens), values);
    adjust(&mut request);
    let mut step = tree.begin_insert(&request).expect("the insert is accepted");
    let mut freed = Vec::new();
    loop {
        for action in step.actions {
            if let Action::Free { start, end } | Action::FreeFullOnly { start, end } = action {
                freed.push(values[start..end].to_vec());
            }
        }
        if let Some(outcome) = step.outcome {
            return (freed, outcome);
        }
        step = tree.resume_insert().expect("the insert is suspended");
    }
}

pub fn find(tree: &mut HostTree, tokens: &[i64]) -> MatchOutcome {
    tree.match_prefix(Key::plain(tokens))
}

/// Evicts leaves until `request` tokens are gone; returns the freed slots in order.
pub fn evict(tree: &mut HostTree, request: u64) -> Vec<Vec<i64>> {
    tree.evict_device_start(FULL, request)
        .expect("no walk is open");
    let mut freed = Vec::new();
    let mut count = 0;
    while let Some(id) = tree
        .evict_device_next_node(FULL, count)
        .expect("a walk is open")
        .node
    {
        let LeafEviction::Deleted(values) =
            tree.evict_device_leaf(id, false).expect("it is a leaf")
        else {
            panic!("a backup was asked for outside write-back");
        };
        for (_, value) in values {
            count += value.len() as u64;
            freed.push(value.to_vec());
        }
    }
    tree.evict_device_end(FULL).expect("a walk is open");
    freed
}

/// Slots of the path from the root through a node.
pub fn path_slots(tree: &HostTree, node: NodeId) -> Vec<i64> {
    tree.collect_full_device_indices(node, tree.root())
        .expect("the root is above")
        .to_vec()
}

pub fn assert_sound(tree: &HostTree) {
    tree.sanity_check(&[], &[]).expect("every invariant holds");
}
