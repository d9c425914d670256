//! What the tests share: short ways to insert, match and empty a tree.

#![allow(dead_code, reason = "each test file uses its own part")]

use tree_core::{
    Action, ComponentType, HostIndices, InsertOutcome, InsertRequest, Key, LeafEviction,
    MatchOutcome, NodeId, PageLayout, Policy, Tree, TreeConfig,
};

pub type HostTree = Tree<HostIndices>;

pub const FULL: ComponentType = ComponentType::Full;

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
