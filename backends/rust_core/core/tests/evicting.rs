//! Walks, leaf eviction, locks, and the order that each policy gives.

mod common;

use common::{FULL, assert_sound, evict, find, insert, insert_with, tree, tree_with};
use tree_core::{LeafEviction, Policy, TailBudget, TreeError};

#[test]
fn a_walk_stops_at_the_request_and_admits_parents() {
    // EVD-12 to EVD-14, examples X1 and X2.
    let mut tree = tree(1);
    insert(&mut tree, &[1, 2, 3], 10);
    insert(&mut tree, &[4, 5], 40);
    insert(&mut tree, &[6], 60);
    assert_eq!(evict(&mut tree, 0), Vec::<Vec<i64>>::new());
    assert_eq!(evict(&mut tree, 4), [vec![10, 11, 12], vec![40, 41]]);
    insert(&mut tree, &[6, 7], 70);
    assert_eq!(evict(&mut tree, 9), [vec![71], vec![60]]);
    assert_eq!(tree.total_size(), (0, 0));
}

#[test]
fn a_lock_keeps_its_path_and_moves_the_ledgers() {
    // LOCK-3, LOCK-10, example X1.
    let mut tree = tree(1);
    let node = insert(&mut tree, &[1, 2, 3, 4], 10).1.last_node;
    insert(&mut tree, &[1, 2, 5, 6], 20);
    let receipt = tree.inc_lock_ref(node, &[]).unwrap();
    assert_eq!(receipt.delta, Some(4));
    assert_eq!(
        (tree.evictable_size(FULL), tree.protected_size(FULL)),
        (2, 4)
    );
    assert_eq!(evict(&mut tree, 99), [vec![22, 23]]);
    let split = find(&mut tree, &[1, 2, 3]).best_node;
    tree.dec_lock_ref(node, &receipt, false).unwrap();
    assert!(matches!(
        tree.dec_lock_ref(node, &receipt, false),
        Err(TreeError::Contract(_))
    ));
    assert!(matches!(
        tree.dec_lock_ref(split, &receipt, false),
        Err(TreeError::Contract(_))
    ));
    assert_eq!(evict(&mut tree, 99), [vec![13], vec![12], vec![10, 11]]);
    assert_sound(&tree);
}

#[test]
fn a_refused_release_releases_nothing() {
    let mut tree = tree(1);
    let node = insert(&mut tree, &[1, 2], 10).1.last_node;
    let deep = insert(&mut tree, &[1, 2, 3], 20).1.last_node;
    tree.inc_full_pin(node).unwrap();
    assert!(matches!(
        tree.dec_full_pin(deep),
        Err(TreeError::Contract(_))
    ));
    assert_eq!(tree.protected_size(FULL), 2);
    tree.dec_full_pin(node).unwrap();
    assert_sound(&tree);
}

#[test]
fn stale_handles_are_refused_for_ever() {
    // NODE-4, BND-46.
    let mut tree = tree(1);
    let node = insert(&mut tree, &[1], 10).1.last_node;
    evict(&mut tree, 1);
    insert(&mut tree, &[2], 20);
    assert_eq!(tree.inc_full_pin(node), Err(TreeError::UnknownNode(node)));
    let root = tree.root();
    tree.reset();
    assert_eq!(tree.is_root(root), Err(TreeError::UnknownNode(root)));
    assert!(tree.root() > root);
}

#[test]
fn a_walk_never_offers_nodes_that_came_after_it_opened() {
    // EVD-16, example X11.
    let mut tree = tree(1);
    let first = insert(&mut tree, &[1], 10).1.last_node;
    let second = insert(&mut tree, &[2], 20).1.last_node;
    let third = insert(&mut tree, &[3], 30).1.last_node;
    tree.evict_device_start(FULL, 99).unwrap();
    assert_eq!(
        tree.evict_device_next_node(FULL, 0).unwrap().node,
        Some(first)
    );
    for node in [first, second] {
        tree.evict_device_leaf(node, false).unwrap();
    }
    insert(&mut tree, &[4], 40);
    insert(&mut tree, &[5], 50);
    assert_eq!(
        tree.evict_device_next_node(FULL, 0).unwrap().node,
        Some(third)
    );
    assert_eq!(tree.evict_device_next_node(FULL, 0).unwrap().node, None);
    tree.evict_device_end(FULL).unwrap();
    assert!(matches!(
        tree.evict_device_end(FULL),
        Err(TreeError::Contract(_))
    ));
}

#[test]
fn write_back_asks_for_a_backup_and_a_host_pin_forbids_the_drop() {
    // EVD-20, EVD-33, LOCK-23, LOCK-28.
    let mut tree = tree(1);
    tree.settings.is_write_back = true;
    let node = insert(&mut tree, &[1, 2], 10).1.last_node;
    assert!(matches!(
        tree.evict_device_leaf(node, false),
        Err(TreeError::Contract(_))
    ));
    let answer = tree.evict_device_leaf(node, true).unwrap();
    assert!(matches!(answer, LeafEviction::NeedsBackup(id) if id == node));
    let receipt = tree.inc_host_lock_ref(node).unwrap();
    assert!(tree.drop_subtree_no_host(node).unwrap().is_none());
    find(&mut tree, &[1]);
    tree.dec_host_lock_ref(node, &receipt).unwrap();
    assert!(matches!(
        tree.dec_host_lock_ref(node, &receipt),
        Err(TreeError::Contract(_))
    ));
    assert_eq!(
        tree.drop_subtree_no_host(node).unwrap().unwrap()[0]
            .1
            .to_vec(),
        [11]
    );
    assert_sound(&tree);
}

#[test]
fn policies_order_leaves_by_their_own_rank() {
    // POL-4, POL-16, POL-18, POL-19.
    let orders = [
        (Policy::Lru, [20, 30, 10]),
        (Policy::Mru, [10, 30, 20]),
        (Policy::Fifo, [10, 20, 30]),
        (Policy::Filo, [30, 20, 10]),
        (Policy::Lfu, [30, 10, 20]),
        (Policy::Priority, [30, 10, 20]),
        (
            Policy::Slru {
                protected_threshold: 2,
            },
            [30, 20, 10],
        ),
    ];
    for (policy, order) in orders {
        let mut tree = tree_with(1, policy.clone());
        insert_with(&mut tree, &[1], 10, |request| request.priority = 1);
        insert_with(&mut tree, &[2], 20, |request| request.priority = 5);
        insert(&mut tree, &[1], 0);
        insert(&mut tree, &[2], 0);
        insert(&mut tree, &[2], 0);
        insert(&mut tree, &[3], 30);
        find(&mut tree, &[1]);
        let freed: Vec<i64> = evict(&mut tree, 99).concat();
        assert_eq!(freed, order, "{policy:?}");
    }
}

#[test]
fn safe_tails_go_first_under_t_lru() {
    // POL-5, POL-8, example X4.
    let mut tree = tree_with(1, Policy::Tlru(TailBudget::Exact { surplus: -2 }));
    for end in [2, 4, 6, 8] {
        insert(&mut tree, &[1, 2, 3, 4, 5, 6, 7, 8][..end], 10);
    }
    insert(&mut tree, &[50, 51], 500);
    assert_eq!(evict(&mut tree, 3), [vec![16, 17], vec![500, 501]]);
    assert_eq!(evict(&mut tree, 1), [vec![14, 15]]);
}

#[test]
fn a_nan_budget_makes_no_tail_safe_and_infinities_follow_the_sign() {
    // POL-6.
    let safe = |estimate, threshold| {
        TailBudget::Float {
            estimate,
            threshold,
        }
        .is_safe(4, 8)
    };
    assert!(!safe(f64::NAN, 0.0));
    assert!(safe(0.0, f64::INFINITY));
    assert!(!safe(f64::INFINITY, 0.0));
    assert!(!safe(0.0, f64::NEG_INFINITY));
    assert!(safe(-2.0, 2.0) && !safe(-2.0, 1.9));
    let estimate = i128::MAX;
    assert!(
        !TailBudget::FloatThreshold {
            estimate,
            threshold: 1.0
        }
        .is_safe(u64::MAX, 8)
    );
}

#[test]
fn a_ledger_cannot_be_corrected_below_zero() {
    // SIZE-5.
    let mut tree = tree(1);
    let node = insert(&mut tree, &[1, 2], 10).1.last_node;
    tree.adjust_component_size(node, FULL, -2).unwrap();
    let refused = tree.adjust_component_size(node, FULL, -1);
    assert!(matches!(refused, Err(TreeError::InvalidArgument(_))));
    assert_eq!(tree.evictable_size(FULL), 0);
    let text = tree.sanity_check(&[], &[]).unwrap_err().to_string();
    assert!(text.starts_with("Sanity check FAILED (1 violations across 2 nodes):"));
}
