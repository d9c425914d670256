//! What the tree tells: hashes, events, orders, paths, the linker's marks.

mod common;

use common::{FULL, HostTree, evict, find, insert, insert_with, tree};
use tree_core::{
    Event, EventFormat, Key, PageLayout, StoredEvent, Tree, TreeConfig, TreeError, page_digests,
    storage_namespace_seed, to_hex,
};

fn event_tree(format: EventFormat) -> HostTree {
    Tree::new(TreeConfig {
        events: Some(format),
        ..TreeConfig::default()
    })
}

fn stored(event: &Event) -> &StoredEvent {
    match event {
        Event::Stored(event) => event,
        other => panic!("{other:?} is no stored event"),
    }
}

#[test]
fn page_hashes_are_those_of_the_contract() {
    // STO-6, X10.
    let layout = PageLayout {
        page_size: 2,
        is_bigram: false,
    };
    let hash = |tokens: &[i64], layout, prior| {
        let mut digests = Vec::new();
        page_digests(tokens, layout, prior, &mut digests);
        digests.iter().map(to_hex).collect::<Vec<_>>()
    };
    let chain = hash(&[1, 2, 3, 4], layout, None);
    assert!(chain[0].starts_with("34fb5c825de7ca4a") && chain[1].starts_with("c57b445f90651b9a"));
    let seeds = [
        (Some("x"), None, "490aa6d4166a55d9"),
        (None, Some("s"), "08c8766c7cd15330"),
        (Some("x"), Some("s"), "9ff984172d18875a"),
        (Some(""), None, "a3b1ec4e1b7586e7"),
    ];
    for (extra_key, salt, start) in seeds {
        let seed = storage_namespace_seed(extra_key, salt);
        assert!(hash(&[1, 2], layout, seed)[0].starts_with(start));
    }
    let bigram = PageLayout {
        is_bigram: true,
        ..layout
    };
    assert!(hash(&[1, 2, 3], bigram, None)[0].starts_with("ede8ef26a097f0fd"));
}

#[test]
fn hashing_restarts_below_an_unhashed_parent_and_is_never_repaired() {
    // KEY-37, KEY-41, example X10.
    let mut tree = tree(1);
    insert(&mut tree, &[1], 10);
    tree.settings.enable_storage = true;
    let second = insert(&mut tree, &[1, 2], 20).1.last_node;
    let third = insert(&mut tree, &[1, 2, 3], 30).1.last_node;
    let restarted = tree.hash_values(second).unwrap().unwrap().to_vec();
    assert_eq!(tree.prefix_hash_values(third).unwrap(), restarted);
    assert_eq!(tree.backfill_missing_hash_values(), Ok(1));
    assert_eq!(tree.backfill_missing_hash_values(), Ok(0));
    assert_eq!(tree.prefix_hash_values(third).unwrap().len(), 2);
    assert_eq!(tree.hash_values(second).unwrap().unwrap(), restarted);
}

#[test]
fn neighbouring_stores_merge_until_another_event_stands_between() {
    // EVT-20, example X8 (c).
    let mut tree = event_tree(EventFormat::Default);
    insert(&mut tree, &[1, 2], 10);
    insert(&mut tree, &[1, 2, 3], 20);
    insert_with(&mut tree, &[1, 2, 3, 4], 30, |request| {
        request.session_id = Some("A")
    });
    tree.record_all_cleared();
    let events = tree.take_events();
    assert_eq!(events.len(), 3);
    assert_eq!(stored(&events[0]).tokens, [1, 2, 3]);
    assert_eq!(stored(&events[0]).hashes[0], 7_470_307_888_890_966_271);
    assert_eq!(
        stored(&events[1]).parent,
        stored(&events[0]).hashes.last().copied()
    );
    assert_eq!(stored(&events[1]).session_id.as_deref(), Some("A"));
    assert_eq!(events[2], Event::AllCleared);
    assert!(tree.take_events().is_empty());
}

#[test]
fn removals_of_several_leaves_merge_into_one_event() {
    let mut tree = event_tree(EventFormat::Default);
    insert(&mut tree, &[1, 2], 10);
    insert(&mut tree, &[3], 20);
    tree.take_events();
    evict(&mut tree, 99);
    let [Event::Removed(hashes)] = &tree.take_events()[..] else {
        panic!("one removal was expected");
    };
    assert_eq!(hashes.len(), 3);
}

#[test]
fn published_hashes_carry_the_adapter_where_the_format_says_so() {
    // EVT-15 to EVT-17.
    let key = Key {
        tokens: &[1],
        extra_key: Some("x"),
        cache_salt: None,
    };
    let hash = |format, name: Option<&str>| {
        let mut tree = event_tree(format);
        insert_with(&mut tree, &[1], 10, |request| {
            request.key = key;
            request.lora_name = name;
        });
        stored(&tree.take_events()[0]).hashes[0]
    };
    let plain = hash(EventFormat::Default, None);
    assert_ne!(plain, hash(EventFormat::Default, Some("adapter")));
    assert_eq!(
        hash(EventFormat::Dynamo, None),
        hash(EventFormat::Default, Some("adapter"))
    );
}

#[test]
fn shared_subtrees_come_first_and_parents_after_children() {
    // ORD-3, example X7.
    let mut tree = tree(1);
    let mut node = |tokens: &[i64]| insert(&mut tree, tokens, 0).1.last_node;
    let (a, b, seven) = (node(&[1, 2, 3]), node(&[1, 2, 4]), node(&[7]));
    let (c, d) = (node(&[8, 1]), node(&[8, 2]));
    let shared = find(&mut tree, &[1, 2]).best_node;
    let eight = find(&mut tree, &[8]).best_node;
    let ids = [seven, shared, b, a, b, c, d, eight, tree.root(), seven];
    assert_eq!(
        tree.dfs_weight_order(&ids).unwrap(),
        [2, 4, 3, 1, 5, 6, 7, 0, 9, 8]
    );
    assert_eq!(
        tree.dfs_weight_order(&[99]),
        Err(TreeError::UnknownNode(99))
    );
}

#[test]
fn the_canary_walk_chains_slots_along_their_paths() {
    // FLAT-4 to FLAT-6, example X1.
    let mut tree = tree(1);
    let node = insert(&mut tree, &[1, 2, 3, 4], 10).1.last_node;
    insert(&mut tree, &[1, 2, 5, 6], 50);
    insert(&mut tree, &[7, 8], 70);
    let rows = tree.walk_for_kv_canary(false, false);
    assert_eq!(rows.slots, [10, 11, 12, 13, 52, 53, 70, 71]);
    assert_eq!(rows.positions, [0, 1, 2, 3, 2, 3, 0, 1]);
    assert_eq!(rows.previous, [-1, 10, 11, 12, 11, 52, -1, 70]);
    assert_eq!(tree.all_values_flatten(FULL).to_vec(), rows.slots);
    tree.inc_full_pin(node).unwrap();
    assert_eq!(tree.walk_for_kv_canary(true, false).slots, [52, 53, 70, 71]);
}

#[test]
fn a_path_must_end_at_an_ancestor() {
    // PATH-11, LNK-8.
    let mut tree = tree(1);
    let a = insert(&mut tree, &[1], 10).1.last_node;
    let b = insert(&mut tree, &[2], 20).1.last_node;
    assert!(matches!(
        tree.collect_full_device_indices(a, b),
        Err(TreeError::Contract(_))
    ));
    assert!(matches!(
        tree.mark_stored_path(a, b),
        Err(TreeError::NotAnAncestor(_))
    ));
    assert!(tree.collect_full_device_indices(a, a).unwrap().is_empty());
}

#[test]
fn offloads_are_planned_marked_and_finished_once() {
    // LNK-2 to LNK-7, BKP-20, example E11.
    let mut tree = tree(1);
    tree.settings.enable_external_cache_linker = true;
    let first = insert(&mut tree, &[1, 2], 10).1.last_node;
    let second = insert(&mut tree, &[1, 2, 3], 20).1.last_node;
    assert_eq!(tree.build_backup_chain(second).unwrap(), [first, second]);
    let plan = tree.build_offload(first).unwrap().unwrap();
    assert_eq!(
        (plan[0].device.to_vec(), plan[0].keys.len()),
        (vec![10, 11], 2)
    );
    tree.mark_offload_pending(first).unwrap();
    assert!(matches!(
        tree.mark_offload_pending(first),
        Err(TreeError::Contract(_))
    ));
    assert!(tree.build_offload(first).unwrap().is_none());
    assert_eq!(tree.build_backup_chain(second).unwrap(), [second]);
    assert!(matches!(
        tree.finish_offload(&[first, second], first, true),
        Err(TreeError::Contract(_))
    ));
    tree.finish_offload(&[first], first, false).unwrap();
    assert!(tree.build_offload(first).unwrap().is_some());
    tree.mark_stored_path(second, tree.root()).unwrap();
    assert!(tree.build_offload(first).unwrap().is_none());
}

#[test]
fn a_buffer_snapshot_names_the_parent_and_outlives_nothing_unhashed() {
    // BUF-5 to BUF-9.
    let mut tree = tree(1);
    let bare = insert(&mut tree, &[9], 90).1.last_node;
    tree.settings.enable_storage = true;
    let first = insert(&mut tree, &[1, 2], 10).1.last_node;
    let second = insert(&mut tree, &[1, 2, 3], 20).1.last_node;
    let snapshot = tree.snapshot_buffer_backup(second, true).unwrap();
    assert_eq!((snapshot.state.parent, snapshot.tokens), (first, &[3][..]));
    assert_eq!(snapshot.prefix.unwrap().len(), 2);
    for id in [bare, tree.root(), 99] {
        assert!(tree.snapshot_buffer_backup(id, false).is_none());
    }
    assert!(tree.validate_buffer_backup(second, 1).is_some());
    assert!(tree.validate_buffer_backup(second, 2).is_none());
}
