//! Inserting keys: what is freed, adopted, declined, suspended and refused.

mod common;

use common::{FULL, assert_sound, find, insert, insert_with, slots, tree};
use tree_core::{Action, ComponentType, InsertRequest, Key, TreeError};

#[test]
fn each_walked_node_frees_its_own_duplicates() {
    // INS-32, example X1.
    let mut tree = tree(1);
    insert(&mut tree, &[1, 2, 3, 4], 10);
    find(&mut tree, &[1, 2, 9]);
    assert_eq!(insert(&mut tree, &[1, 2, 7, 8], 20).0, [vec![20, 21]]);
    let (freed, outcome) = insert_with(&mut tree, &[1, 2, 7, 8], 30, |request| {
        request.prev_prefix_len = 1
    });
    assert_eq!(freed, [vec![31], vec![32, 33]]);
    assert_eq!(outcome.prefix_len, 4);
    assert_sound(&tree);
}

#[test]
fn slots_without_a_window_peer_are_freed_first_and_apart() {
    // INS-31, example X12.
    let mut tree = tree(1);
    insert(&mut tree, &[1, 2, 3, 4], 10);
    let values = slots(20, 5);
    let mut request = InsertRequest::new(Key::plain(&[1, 2, 3, 4, 5]), &values[..]);
    request.evicted_lens = &[(ComponentType::Swa, 2)];
    let step = tree.begin_insert(&request).unwrap();
    let full_only = Action::FreeFullOnly { start: 0, end: 2 };
    assert_eq!(step.actions, [full_only, Action::Free { start: 2, end: 4 }]);
}

#[test]
fn a_conflicting_rotation_base_declines_and_changes_nothing() {
    // INS-16 to INS-18, example X6.
    let mut tree = tree(1);
    let based = |base| move |request: &mut InsertRequest<_>| request.rotation_base = base;
    let first = insert_with(&mut tree, &[1, 2, 3, 4], 10, based(Some(1)))
        .1
        .last_node;
    let declined = insert_with(&mut tree, &[1, 2, 9], 20, |request| {
        request.rotation_base = Some(2);
        request.tracks_adopted = true;
    });
    assert!(declined.0.is_empty() && declined.1.is_declined);
    assert_eq!((declined.1.prefix_len, declined.1.last_node), (2, first));
    assert_eq!(declined.1.adopted, Some(vec![]));
    assert_eq!(tree.node_count(), 2);
    let accepted = insert_with(&mut tree, &[1, 2, 9], 20, |request| {
        request.rotation_base = Some(1);
        request.tracks_adopted = true;
    });
    assert_eq!(accepted.1.adopted, Some(vec![(FULL, vec![(2, 3)])]));
    assert!(
        !insert_with(&mut tree, &[1, 2, 9, 8], 30, based(None))
            .1
            .is_declined
    );
    let grafted = insert_with(&mut tree, &[1, 2, 9, 8, 7], 40, based(Some(1))).1;
    assert!(grafted.is_declined);
    assert_eq!(grafted.prefix_len, 4);
}

#[test]
fn an_empty_key_finishes_at_once_and_adopts_nothing() {
    // INS-14.
    let mut tree = tree(4);
    let outcome = insert_with(&mut tree, &[1, 2], 0, |request| {
        request.tracks_adopted = true
    })
    .1;
    assert!(outcome.mamba_exist);
    assert_eq!(outcome.adopted, None);
    assert_eq!(outcome.last_node, tree.root());
}

#[test]
fn a_hit_that_asks_for_an_offload_suspends_the_insert() {
    // INS-60, INS-63, LNK-1, examples X3 and E11.
    let mut tree = tree(1);
    tree.settings.enable_external_cache_linker = true;
    tree.settings.write_through_threshold = 1;
    let first = insert(&mut tree, &[1, 2], 10).1.last_node;
    let values = slots(20, 3);
    let request = InsertRequest::new(Key::plain(&[1, 2, 3]), &values[..]);
    let step = tree.begin_insert(&request).unwrap();
    let free = Action::Free { start: 0, end: 2 };
    assert_eq!(step.actions, [free, Action::Backup(vec![first])]);
    assert!(step.outcome.is_none() && tree.has_ongoing_insert());
    let refused = tree.begin_insert(&request);
    assert!(matches!(refused, Err(TreeError::InsertProtocol(_))));
    assert_eq!(find(&mut tree, &[1, 2]).device_prefix_len, 2);
    let last = tree.resume_insert().unwrap();
    let leaf = last.outcome.expect("the insert is finished").last_node;
    assert_eq!(last.actions, [Action::Backup(vec![first, leaf])]);
    assert!(matches!(
        tree.resume_insert(),
        Err(TreeError::InsertProtocol(_))
    ));
    assert_sound(&tree);
}

#[test]
fn an_abandoned_insert_leaves_what_it_walked() {
    // INS-5.
    let mut tree = tree(1);
    tree.settings.enable_external_cache_linker = true;
    tree.settings.write_through_threshold = 1;
    insert(&mut tree, &[1, 2], 10);
    let values = slots(20, 3);
    tree.begin_insert(&InsertRequest::new(Key::plain(&[1, 2, 3]), &values[..]))
        .unwrap();
    tree.end_insert();
    tree.end_insert();
    assert!(!tree.has_ongoing_insert());
    assert_eq!(tree.total_size(), (2, 0));
}

#[test]
fn too_few_slots_are_refused_before_anything_changes() {
    // INS-11.
    let mut tree = tree(2);
    let request = InsertRequest::new(Key::plain(&[1, 2, 3, 4]), &[10, 11, 12][..]);
    assert!(matches!(
        tree.begin_insert(&request),
        Err(TreeError::InvalidArgument(_))
    ));
    assert_eq!(tree.node_count(), 1);
}

#[test]
fn negative_tokens_are_stored_unless_something_hashes() {
    // KEY-34.
    let mut tree = tree(1);
    insert(&mut tree, &[-1, -2], 10);
    assert_eq!(find(&mut tree, &[-1, -2]).device_prefix_len, 2);
    assert!(matches!(
        tree.backfill_missing_hash_values(),
        Err(TreeError::InvalidArgument(_))
    ));
    tree.settings.enable_storage = true;
    let request = InsertRequest::new(Key::plain(&[-3]), &[0][..]);
    assert!(matches!(
        tree.begin_insert(&request),
        Err(TreeError::InvalidArgument(_))
    ));
    assert_eq!(tree.node_count(), 2);
}

#[test]
fn write_back_counts_no_hits() {
    // INS-52.
    let mut tree = tree(1);
    tree.settings.enable_external_cache_linker = true;
    tree.settings.is_write_back = true;
    tree.settings.write_through_threshold = 1;
    insert(&mut tree, &[1], 10);
    let step = tree
        .begin_insert(&InsertRequest::new(Key::plain(&[1]), &[11][..]))
        .unwrap();
    assert!(step.outcome.is_some());
}
