//! States: what an insert attaches, where matches end, the cap of a path, locks and walks.

mod common;

use common::{
    FULL, HostTree, MAMBA, assert_sound, find, insert_all, insert_state, states, tree_of, value,
};
use tree_core::{Action, AuxiliaryConfig, HostIndices, InsertRequest, Key, TreeError};

fn stateful(cap: Option<u64>) -> HostTree {
    tree_of(1, vec![states(cap)])
}

fn refused<T: std::fmt::Debug>(answer: Result<T, TreeError>) -> bool {
    matches!(answer, Err(TreeError::Contract(_)))
}

/// A chain of two-token nodes with states 900, 901, 902.
fn chain(tree: &mut HostTree) {
    for (length, state) in [(2, 900), (4, 901), (6, 902)] {
        insert_state(tree, &[1, 2, 3, 4, 5, 6][..length], 100, state);
    }
}

fn sizes(tree: &HostTree) -> (i128, i128) {
    (tree.evictable_size(MAMBA), tree.protected_size(MAMBA))
}

#[test]
fn a_second_state_for_a_prefix_stays_with_the_caller() {
    // MAM-I1, MAM-I6 to MAM-I8, example MAM-T2.
    let mut tree = stateful(None);
    assert!(insert_state(&mut tree, &[], 1, 900).mamba_exist);
    assert!(!insert_state(&mut tree, &[1, 2, 3, 4], 1, 901).mamba_exist);
    assert!(insert_state(&mut tree, &[1, 2, 3, 4], 11, 902).mamba_exist);
    let refill = insert_state(&mut tree, &[1, 2], 21, 903);
    assert_eq!((refill.mamba_exist, refill.last_node), (false, 2));
    assert_eq!(value(&tree, 1, MAMBA), Some(vec![901]));
    assert_eq!(sizes(&tree), (2, 0));
    assert_sound(&tree);
}

#[test]
fn a_match_ends_at_a_state_and_tells_where_one_would_help() {
    // MAM-M4, MAM-M8, example MAM-T1.
    let tokens: Vec<i64> = (1..=24).collect();
    for (chunk, page_size, branching) in [(1, 1, 23), (4, 1, 20), (6, 4, 12), (3, 2, 18)] {
        let mut tree = tree_of(page_size, vec![AuxiliaryConfig::Mamba { chunk, cap: None }]);
        insert_state(&mut tree, &tokens, 1, 900);
        let short = find(&mut tree, &tokens[..23]);
        assert_eq!(short.device_prefix_len, 0);
        assert_eq!(short.mamba_branching_len, Some(branching));
        let whole = find(&mut tree, &tokens);
        assert_eq!(
            (whole.device_prefix_len, whole.mamba_branching_len),
            (24, None)
        );
    }
}

#[test]
fn an_insert_without_a_state_is_refused_before_anything_changes() {
    let mut tree = stateful(None);
    let mut request = InsertRequest::new(Key::plain(&[1, 2]), &[1, 2][..]);
    for state in [None, Some(HostIndices::from(vec![1, 2]))] {
        request.state = state;
        let answer = tree.begin_insert(&request);
        assert!(matches!(answer, Err(TreeError::InvalidArgument(_))));
    }
    assert_eq!((tree.node_count(), tree.has_ongoing_insert()), (1, false));
}

#[test]
fn a_path_gives_up_its_shallowest_states_beyond_the_cap() {
    // MAM-P2 to MAM-P6, example MAM-T3.
    let mut tree = stateful(Some(1));
    chain(&mut tree);
    assert_eq!(sizes(&tree), (1, 0));
    assert_eq!(value(&tree, 3, MAMBA), Some(vec![902]));
    let state = HostIndices::from(vec![903]);
    let again = insert_all(&mut tree, &[1, 2, 3, 4, 5, 6], 20, |request| {
        request.state = Some(state);
    });
    assert!(again.1.mamba_exist);
    assert!(
        !again
            .0
            .iter()
            .any(|action| matches!(action, Action::EvictExcessStates(_)))
    );
    insert_state(&mut tree, &[1, 2], 30, 904);
    insert_state(&mut tree, &[1, 2, 9], 40, 905);
    insert_state(&mut tree, &[1, 2, 9, 8], 50, 906);
    assert_eq!(
        value(&tree, 1, MAMBA),
        Some(vec![904]),
        "a fork keeps its state"
    );
    assert_eq!(value(&tree, 4, MAMBA), None);
    assert!(matches!(
        tree.evict_excess_path_states(99),
        Err(TreeError::UnknownNode(99))
    ));
    assert!(refused(common::tree(1).evict_excess_path_states(0)));
    assert_sound(&tree);
}

#[test]
fn a_walk_tombstones_inner_nodes_and_offers_leaves() {
    // MAM-E5, MAM-E6, MAM-L3, example MAM-T5.
    let mut tree = stateful(None);
    chain(&mut tree);
    let full = tree.inc_lock_ref(2, &[]).unwrap();
    let skipping = tree.inc_lock_ref(2, &[MAMBA]).unwrap();
    assert_eq!(sizes(&tree), (2, 1));
    tree.evict_device_start(MAMBA, 9).unwrap();
    let step = tree.evict_device_next_node(MAMBA, 0).unwrap();
    assert_eq!((step.node, step.freed[0].1.to_vec()), (None, vec![900]));
    let leaf = tree.evict_device_next_node(MAMBA, 1).unwrap();
    assert_eq!((leaf.node, leaf.freed.len()), (Some(3), 0));
    assert!(tree.drop_subtree_no_host(3).unwrap().is_some());
    let end = tree.evict_device_next_node(MAMBA, 2).unwrap();
    assert_eq!((end.node, end.freed.len()), (None, 0));
    tree.evict_device_end(MAMBA).unwrap();
    tree.dec_lock_ref(2, &full, false).unwrap();
    assert_eq!(sizes(&tree), (1, 0));
    tree.evict_device_start(MAMBA, 9).unwrap();
    let step = tree.evict_device_next_node(MAMBA, 0).unwrap();
    assert_eq!(
        step.freed[0].1.to_vec(),
        [901],
        "FULL's lock keeps no state"
    );
    tree.evict_device_end(MAMBA).unwrap();
    let tombstone = tree.inc_lock_ref(2, &[]).unwrap();
    insert_state(&mut tree, &[1, 2, 3, 4], 20, 903);
    assert_eq!(sizes(&tree), (0, 1));
    tree.dec_lock_ref(2, &tombstone, true).unwrap();
    tree.dec_lock_ref(2, &skipping, false).unwrap();
    assert_eq!((sizes(&tree), tree.protected_size(FULL)), ((1, 0), 0));
    assert_sound(&tree);
}

#[test]
fn a_value_is_stored_once_and_in_its_length() {
    // MAM-I15, SIZE-7.
    let mut tree = stateful(None);
    chain(&mut tree);
    let split = find(&mut tree, &[1]).last_visited.unwrap();
    let slots = |count| HostIndices::from(vec![7; count]);
    assert!(refused(tree.set_device_value(split, MAMBA, slots(2))));
    assert!(refused(tree.set_device_value(split, FULL, slots(1))));
    assert!(refused(tree.set_device_value(tree.root(), MAMBA, slots(1))));
    tree.set_device_value(split, MAMBA, slots(1)).unwrap();
    assert!(refused(tree.set_device_value(split, MAMBA, slots(1))));
    assert_eq!(tree.total_size(), (6, 4));
    assert_eq!(tree.all_values_flatten(MAMBA).to_vec(), [7, 900, 901, 902]);
    assert_sound(&tree);
}

#[test]
fn an_offload_takes_the_state_under_the_last_key() {
    // MAM-H18, SWA-N1.
    let mut tree = tree_of(2, vec![common::window(common::SWA, 2), states(None)]);
    tree.settings.enable_external_cache_linker = true;
    insert_state(&mut tree, &[1, 2, 3, 4], 10, 900);
    let plans = tree.build_offload(1).unwrap().unwrap();
    let shown: Vec<_> = plans
        .iter()
        .map(|plan| (plan.device.to_vec(), plan.keys.len(), plan.is_tail))
        .collect();
    assert_eq!(shown[0], (vec![12, 13], 1, false));
    assert_eq!(shown[1], (vec![12, 13], 1, true));
    assert_eq!(shown[2], (vec![900], 1, true));
}
