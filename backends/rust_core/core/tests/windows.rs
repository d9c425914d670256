//! Windows: what an insert publishes and recovers, where matches end, and what locks keep.

mod common;

use common::{
    AUX, FULL, HostTree, MAMBA, SWA, assert_sound, find, insert_all, insert_state, states, tree_of,
    value, window,
};
use tree_core::{Action, HostIndices, Key, NodeId, TreeError};

fn windowed(size: usize) -> HostTree {
    tree_of(1, vec![window(SWA, size)])
}

fn refused<T: std::fmt::Debug>(answer: Result<T, TreeError>) -> bool {
    matches!(answer, Err(TreeError::Contract(_)))
}

/// Tombstones internal victims until `request` units are gone; what was freed, and leaves met.
fn evict_window(tree: &mut HostTree, request: u64) -> (Vec<Vec<i64>>, Vec<NodeId>) {
    tree.evict_device_start(SWA, request).unwrap();
    let (mut freed, mut leaves, mut count) = (Vec::new(), Vec::new(), 0);
    loop {
        let step = tree.evict_device_next_node(SWA, count).unwrap();
        if step.node.is_none() && step.freed.is_empty() {
            break;
        }
        leaves.extend(step.node);
        for (component, slots) in step.freed {
            count += u64::from(component == SWA) * slots.len() as u64;
            freed.push(slots.to_vec());
        }
    }
    tree.evict_device_end(SWA).unwrap();
    (freed, leaves)
}

#[test]
fn a_new_leaf_publishes_its_last_window_apart() {
    // SWA-I17 to SWA-I21, example W1.
    let mut tree = windowed(3);
    let tokens = [1, 2, 3, 4, 5, 6, 7, 8];
    let (actions, outcome) = insert_all(&mut tree, &tokens, 1, |request| {
        request.evicted_lens = &[(SWA, 4)];
        request.tracks_adopted = true;
    });
    let rebuilt: Vec<_> = actions
        .iter()
        .map(|action| match action {
            Action::Rebuild { node, source, .. } => (*node, source.to_vec()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(rebuilt, [(3, vec![5]), (1, vec![6, 7, 8])]);
    let adopted = vec![(FULL, vec![(0, 8)]), (SWA, vec![(4, 8)])];
    assert_eq!((outcome.last_node, outcome.adopted), (1, Some(adopted)));
    assert_eq!(value(&tree, 2, SWA), None);
    let short = find(&mut tree, &tokens[..6]);
    assert_eq!(
        (short.device_prefix_len, short.swa_branching_len),
        (0, Some(6))
    );
    let whole = find(&mut tree, &tokens[..7]);
    assert_eq!(
        (whole.device_prefix_len, whole.swa_branching_len),
        (7, None)
    );
    assert_sound(&tree);
}

#[test]
fn a_tombstone_takes_the_slots_of_an_insert_over_it() {
    // SWA-I8 to SWA-I10, example W2.
    let mut tree = windowed(3);
    insert_all(&mut tree, &[1, 2, 3, 4, 5, 6], 1, |request| {
        request.evicted_lens = &[(SWA, 6)];
    });
    let (actions, outcome) = insert_all(&mut tree, &[1, 2, 3, 4, 5, 6, 7, 8], 7, |request| {
        request.evicted_lens = &[(SWA, 4)];
        request.prev_prefix_len = 2;
        request.tracks_adopted = true;
    });
    assert!(matches!(&actions[0], Action::FreeReplaced(slots) if **slots == [5, 6]));
    assert!(matches!(&actions[1], Action::Rebuild { node: 1, source, .. } if **source == [11, 12]));
    assert_eq!(actions[2], Action::FreeFullOnly { start: 2, end: 4 });
    let adopted = vec![(SWA, vec![(4, 8)]), (FULL, vec![(4, 8)])];
    assert_eq!((outcome.prefix_len, outcome.adopted), (6, Some(adopted)));
    assert_eq!(tree.evictable_size(SWA), 4);
    assert_sound(&tree);
}

#[test]
fn a_locked_tombstone_keeps_its_slots_and_takes_their_peers() {
    // SWA-I7, SWA-L15, example W3.
    let mut tree = windowed(2);
    insert_all(&mut tree, &[1, 2, 3, 4, 5, 6], 1, |_| {});
    let receipt = tree.inc_lock_ref(1, &[]).unwrap();
    assert!(tree.dec_swa_lock_only(1, &receipt).unwrap().is_empty());
    let (freed, leaves) = evict_window(&mut tree, 6);
    assert_eq!(
        (freed, leaves),
        (vec![vec![1, 2, 3, 4], vec![5, 6]], vec![])
    );
    let (actions, _) = insert_all(&mut tree, &[1, 2, 3, 4, 5, 6, 7], 7, |request| {
        request.evicted_lens = &[(SWA, 3)];
    });
    let recovered: Vec<_> = actions
        .iter()
        .filter_map(|action| match action {
            Action::RecoverLocked {
                node,
                kept,
                start,
                end,
                ..
            } => Some((*node, kept.to_vec(), *start, *end)),
            _ => None,
        })
        .collect();
    assert_eq!(recovered, [(2, vec![4], 3, 4), (1, vec![5, 6], 4, 6)]);
    tree.dec_lock_ref(1, &receipt, true).unwrap();
    assert_sound(&tree);
}

#[test]
fn a_receipt_covers_its_segment_across_splits() {
    // SWA-L1, SWA-S4, example W5.
    let mut tree = windowed(4);
    insert_all(&mut tree, &[1, 2, 3, 4], 1, |_| {});
    let first = tree.inc_lock_ref(1, &[]).unwrap();
    find(&mut tree, &[1, 2, 3]);
    let second = tree.inc_lock_ref(1, &[]).unwrap();
    assert_eq!(second.marks, first.marks);
    let upper = tree.inc_lock_ref(2, &[]).unwrap();
    assert_eq!(upper.marks.get(SWA), Some(None));
    tree.dec_lock_ref(1, &first, false).unwrap();
    tree.dec_lock_ref(2, &upper, false).unwrap();
    assert_eq!(tree.protected_size(SWA), 4);
    tree.dec_lock_ref(1, &second, false).unwrap();
    assert!(refused(tree.dec_lock_ref(1, &second, false)));
    assert_eq!((tree.evictable_size(SWA), tree.protected_size(SWA)), (4, 0));
    assert_sound(&tree);
}

#[test]
fn a_receipt_that_does_not_fit_releases_nothing() {
    let mut tree = windowed(2);
    insert_all(&mut tree, &[1, 2, 3, 4], 1, |_| {});
    let receipt = tree.inc_lock_ref(1, &[]).unwrap();
    let mut foreign = receipt.clone();
    foreign.marks.set(SWA, Some(7));
    let mut stripped = receipt.clone();
    stripped.marks = Default::default();
    for wrong in [&foreign, &stripped] {
        assert!(refused(tree.dec_lock_ref(1, wrong, false)));
        assert!(refused(tree.dec_swa_lock_only(1, wrong)));
        assert!(refused(tree.dec_window_lock_only(1, SWA, wrong)));
    }
    assert!(refused(tree.dec_window_lock_only(1, FULL, &receipt)));
    assert_eq!(
        (tree.protected_size(FULL), tree.protected_size(SWA)),
        (4, 2)
    );
    tree.dec_lock_ref(1, &receipt, false).unwrap();
    assert_sound(&tree);
}

#[test]
fn a_window_without_full_lock_goes_with_its_early_release() {
    // SWA-L13, SWA-L14.
    let mut tree = windowed(2);
    insert_all(&mut tree, &[1, 2, 3, 4], 1, |_| {});
    let receipt = tree.inc_lock_ref(1, &[FULL]).unwrap();
    let freed = tree.dec_window_lock_only(1, SWA, &receipt).unwrap();
    assert_eq!((freed[0].0, freed[0].1.to_vec()), (SWA, vec![3, 4]));
    assert_eq!(value(&tree, 1, SWA), None);
    assert_sound(&tree);
}

#[test]
fn a_walk_repairs_its_cursor_and_refuses_a_locked_victim() {
    // SWA-E3, SWA-E4.
    let mut tree = windowed(2);
    insert_all(&mut tree, &[1, 2, 3, 4], 1, |_| {});
    insert_all(&mut tree, &[1, 2, 3, 4, 5, 6], 10, |_| {});
    tree.evict_device_start(SWA, 9).unwrap();
    assert!(refused(tree.evict_device_start(SWA, 9)));
    let receipt = tree.inc_lock_ref(2, &[]).unwrap();
    assert!(refused(tree.evict_device_next_node(SWA, 0)));
    assert_eq!(tree.evict_device_next_node(SWA, 9).unwrap().node, None);
    tree.dec_lock_ref(2, &receipt, false).unwrap();
    let step = tree.evict_device_next_node(SWA, 0).unwrap();
    assert_eq!(step.freed[0].1.to_vec(), [1, 2]);
    tree.evict_device_end(SWA).unwrap();
    assert!(refused(tree.evict_device_end(SWA)));
    assert_sound(&tree);
}

#[test]
fn a_window_takes_the_state_along_unless_that_is_locked() {
    // SWA-E8, MAM-L14, example MAM-T12.
    let mut tree = tree_of(1, vec![window(SWA, 2), states(None)]);
    let inner = insert_state(&mut tree, &[1, 2], 100, 900).last_node;
    insert_state(&mut tree, &[1, 2, 3, 4], 102, 901);
    let receipt = tree.inc_lock_ref(inner, &[SWA]).unwrap();
    tree.evict_device_start(SWA, 2).unwrap();
    assert!(refused(tree.evict_device_next_node(SWA, 0)));
    assert_eq!(value(&tree, inner, SWA), Some(vec![100, 101]));
    tree.dec_lock_ref(inner, &receipt, false).unwrap();
    let step = tree.evict_device_next_node(SWA, 0).unwrap();
    let freed: Vec<_> = step
        .freed
        .iter()
        .map(|(kind, slots)| (*kind, slots.to_vec()))
        .collect();
    assert_eq!(freed, [(SWA, vec![100, 101]), (MAMBA, vec![900])]);
    assert_sound(&tree);
}

#[test]
fn tombstone_ranges_are_told_and_filled() {
    // SWA-B1 to SWA-B4, example W9.
    let mut tree = windowed(3);
    tree.settings.is_host_memory_buffer_only = true;
    let tokens = [1, 2, 3, 4, 5, 6];
    insert_all(&mut tree, &tokens, 1, |request| {
        request.evicted_lens = &[(SWA, 6)];
    });
    let key = Key::plain(&tokens);
    assert_eq!(tree.window_tombstone_ranges(key, 1, 9, SWA).ok(), None);
    let ranges = |tree: &HostTree, start, end| tree.window_tombstone_ranges(key, start, end, SWA);
    assert_eq!(ranges(&tree, 1, 5).unwrap(), [(1, 5)]);
    assert_eq!(ranges(&tree, 3, 3).unwrap(), [(3, 3)]);
    assert!(refused(tree.attach_window(key, 2, 4, &[7], SWA)));
    assert!(refused(tree.attach_window(key, 2, 4, &[7, 8], FULL)));
    assert_eq!(tree.attach_window(key, 3, 3, &[], SWA).unwrap(), []);
    let updates = tree.attach_window(key, 2, 4, &[7, 8], SWA).unwrap();
    assert_eq!(updates.len(), 2);
    assert_eq!(ranges(&tree, 0, 6).unwrap(), [(0, 2), (4, 6)]);
    assert!(refused(tree.attach_window(key, 1, 3, &[7, 8], SWA)));
    assert_eq!(tree.evictable_size(SWA), 2);
    assert_sound(&tree);
}

#[test]
fn a_second_window_recovers_beside_the_first() {
    // SWA-I14, SWA-I22: three ways, by what the first window does with the same units.
    let tokens = [1, 2, 3, 4];
    let mut tree = tree_of(1, vec![window(SWA, 4), window(AUX, 2)]);
    let (actions, _) = insert_all(&mut tree, &tokens, 1, |_| {});
    let rebuilt = |action: &Action<HostIndices>| match action {
        Action::Rebuild {
            component, source, ..
        } => (*component, source.to_vec()),
        other => panic!("{other:?}"),
    };
    let expected = [
        (SWA, vec![1, 2]),
        (SWA, vec![3, 4]),
        (AUX, vec![1, 2]),
        (AUX, vec![3, 4]),
    ];
    assert_eq!(actions.iter().map(rebuilt).collect::<Vec<_>>(), expected);

    // The first window has a value: peers move, slots stay duplicates.
    let mut tree = tree_of(1, vec![window(SWA, 4), window(AUX, 4)]);
    insert_all(&mut tree, &tokens, 1, |request| {
        request.evicted_lens = &[(AUX, 4)]
    });
    let (actions, _) = insert_all(&mut tree, &tokens, 11, |_| {});
    assert!(matches!(&actions[0], Action::RecoverEvicted { kept, .. } if **kept == tokens));
    assert!(matches!(
        &actions[1],
        Action::Rebuild { component: AUX, .. }
    ));
    assert_eq!(actions[2], Action::Free { start: 0, end: 4 });

    // It takes the slots over: the kept slots are the request's. Under a lock: peers move first.
    for is_locked in [false, true] {
        let mut tree = tree_of(1, vec![window(SWA, 4), window(AUX, 4)]);
        insert_all(&mut tree, &tokens, 1, |request| {
            request.evicted_lens = &[(SWA, 4), (AUX, 4)];
        });
        if is_locked {
            tree.inc_full_pin(1).unwrap();
        }
        let (actions, _) = insert_all(&mut tree, &tokens, 11, |_| {});
        let is_moved = matches!(&actions[0], Action::RecoverEvicted { component: AUX, .. });
        assert_eq!((is_moved, actions.len()), (is_locked, 3));
        assert_eq!(
            value(&tree, 1, FULL).unwrap()[0],
            if is_locked { 1 } else { 11 }
        );
        assert_sound(&tree);
    }
}

#[test]
fn an_unaligned_cursor_is_refused_before_anything_changes() {
    let mut tree = tree_of(2, vec![window(SWA, 2)]);
    let mut request = tree_core::InsertRequest::new(Key::plain(&[1, 2]), &[1, 2][..]);
    request.evicted_lens = &[(SWA, 1)];
    let answer = tree.begin_insert(&request);
    assert!(matches!(answer, Err(TreeError::InvalidArgument(_))));
    assert_eq!((tree.node_count(), tree.has_ongoing_insert()), (1, false));
}

#[test]
fn an_insert_whose_target_went_stays_suspended() {
    let mut tree = windowed(2);
    let request = tree_core::InsertRequest::new(Key::plain(&[1, 2]), &[1, 2][..]);
    assert!(tree.begin_insert(&request).unwrap().outcome.is_none());
    tree.drop_subtree_no_host(1).unwrap();
    assert!(refused(tree.resume_insert()));
    assert!(tree.has_ongoing_insert());
    tree.end_insert();
    assert_sound(&tree);
}
