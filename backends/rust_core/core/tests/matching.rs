//! Looking keys up: walks, splits, namespaces, recency.

mod common;

use common::{assert_sound, evict, find, insert, insert_with, path_slots, tree};
use tree_core::{HostIndices, InsertRequest, Key, PageLayout, Tree, TreeConfig};

#[test]
fn a_match_inside_a_node_splits_it_and_keeps_its_handle_on_the_suffix() {
    // SPLIT-1, MATCH-4, example X1.
    let mut tree = tree(1);
    let whole = insert(&mut tree, &[1, 2, 3, 4], 10).1.last_node;
    let found = find(&mut tree, &[1, 2, 9]);
    assert_eq!(found.device_prefix_len, 2);
    assert_ne!(found.best_node, whole);
    assert_eq!(path_slots(&tree, found.best_node), [10, 11]);
    assert_eq!(path_slots(&tree, whole), [10, 11, 12, 13]);
    assert_eq!(find(&mut tree, &[1, 2, 3, 4, 5]).best_node, whole);
    assert_sound(&tree);
}

#[test]
fn only_whole_pages_match() {
    // KEY-21, KEY-11, example X2.
    let mut tree = tree(2);
    insert(&mut tree, &[1, 2, 3, 4], 10);
    assert_eq!(find(&mut tree, &[1, 3]).device_prefix_len, 0);
    assert_eq!(find(&mut tree, &[1, 2, 3]).device_prefix_len, 2);
    assert_eq!(find(&mut tree, &[1, 2, 3, 5]).device_prefix_len, 2);
    assert_eq!(find(&mut tree, &[1]).last_visited, None);
}

#[test]
fn an_empty_key_touches_nothing_and_names_the_root() {
    // MATCH-1.
    let mut tree = tree(4);
    let found = find(&mut tree, &[1, 2, 3]);
    assert_eq!(found.best_node, tree.root());
    assert_eq!(found.full_kv_hit_length, 0);
}

#[test]
fn namespaces_never_share_nodes() {
    // KEY-3, KEY-13, KEY-25.
    let mut tree = tree(1);
    let namespaces = [
        (None, None),
        (Some(""), None),
        (Some("x"), None),
        (Some("x"), Some("s")),
        (None, Some("s")),
    ];
    for (place, (extra_key, cache_salt)) in namespaces.into_iter().enumerate() {
        let key = Key {
            tokens: &[1, 2],
            extra_key,
            cache_salt,
        };
        assert_eq!(tree.match_prefix(key).device_prefix_len, 0);
        let values = common::slots(10 * place as i64, 2);
        tree.begin_insert(&InsertRequest::new(key, &values[..]))
            .unwrap();
        assert_eq!(tree.match_prefix(key).device_prefix_len, 2);
    }
    assert_eq!(tree.node_count(), 1 + namespaces.len());
    let empty_salt = Key {
        tokens: &[1, 2],
        extra_key: None,
        cache_salt: Some(""),
    };
    assert_eq!(tree.match_prefix(empty_salt).device_prefix_len, 2);
    assert_sound(&tree);
}

#[test]
fn a_namespace_is_forgotten_with_its_last_node_and_can_come_back() {
    let mut tree = tree(1);
    for round in 0..3 {
        let salt = format!("salt {round}");
        let key = Key {
            tokens: &[1],
            extra_key: None,
            cache_salt: Some(&salt),
        };
        tree.begin_insert(&InsertRequest::new(key, &[round][..]))
            .unwrap();
        assert_eq!(tree.match_prefix(key).device_prefix_len, 1);
        evict(&mut tree, 1);
        assert_eq!(tree.match_prefix(key).device_prefix_len, 0);
    }
}

#[test]
fn a_bigram_tree_counts_pairs_and_shares_the_boundary_token() {
    // KEY-5, KEY-26, BND-36.
    let layout = PageLayout {
        page_size: 2,
        is_bigram: true,
    };
    let mut tree: Tree<HostIndices> = Tree::new(TreeConfig {
        layout,
        ..TreeConfig::default()
    });
    let whole = insert(&mut tree, &[1, 2, 3, 4, 5], 10).1.last_node;
    assert_eq!(tree.total_size(), (4, 0));
    let found = find(&mut tree, &[1, 2, 3, 9]);
    assert_eq!(found.device_prefix_len, 2);
    assert_eq!(path_slots(&tree, found.best_node), [10, 11]);
    assert_eq!(path_slots(&tree, whole), [10, 11, 12, 13]);
    assert_eq!(find(&mut tree, &[1, 2, 3, 4, 5]).best_node, whole);
    assert_eq!(find(&mut tree, &[1]).device_prefix_len, 0);
    assert_sound(&tree);
}

#[test]
fn a_read_only_match_reports_the_whole_node_without_a_split() {
    // PATH-1, PATH-2.
    let mut tree = tree(1);
    let whole = insert(&mut tree, &[1, 2, 3, 4], 10).1.last_node;
    let found = tree.match_full_device_prefix(Key::plain(&[1, 2, 9]));
    assert_eq!(
        (found.matched_len, found.node, found.pinned_len),
        (2, whole, 4)
    );
    assert_eq!(tree.node_count(), 2);
}

#[test]
fn a_split_refreshes_the_suffix_although_it_did_not_match() {
    // NODE-24, POL-14, example X11.
    let mut tree = tree(1);
    insert(&mut tree, &[1, 2, 3, 4], 10);
    insert(&mut tree, &[9], 20);
    find(&mut tree, &[1, 2]);
    assert_eq!(evict(&mut tree, 99), [vec![20], vec![12, 13], vec![10, 11]]);
}

#[test]
fn recency_follows_touches_of_inserts_and_matches() {
    // SPLIT-9, INS-45, example X11.
    let mut tree = tree(1);
    insert(&mut tree, &[1, 2, 3, 4], 10);
    insert(&mut tree, &[9], 20);
    find(&mut tree, &[1, 2, 3, 4]);
    insert(&mut tree, &[8], 30);
    insert(&mut tree, &[1, 2, 7], 40);
    let order = [vec![20], vec![30], vec![12, 13], vec![42], vec![10, 11]];
    assert_eq!(evict(&mut tree, 99), order);
}

#[test]
fn a_split_is_announced_while_an_offload_is_pending_or_in_buffer_mode() {
    // SPLIT-6, example X5.
    let mut tree = tree(1);
    let node = insert(&mut tree, &[1, 2, 3], 10).1.last_node;
    tree.mark_offload_pending(node).unwrap();
    let split = find(&mut tree, &[1]).split.expect("the split is announced");
    assert_eq!((split.ack_id, split.split_node), (Some(node), node));
    tree.settings.is_host_memory_buffer_only = true;
    insert(&mut tree, &[5, 6], 20);
    assert_eq!(find(&mut tree, &[5]).split.expect("announced").ack_id, None);
}

#[test]
fn a_tree_of_twenty_thousand_levels_is_walked_without_recursion() {
    const LEVELS: usize = 20_000;
    let mut tree = tree(1);
    let tokens: Vec<i64> = (0..LEVELS as i64).collect();
    let last = insert(&mut tree, &tokens, 0).1.last_node;
    for end in (1..LEVELS).rev() {
        find(&mut tree, &tokens[..end]);
    }
    assert_eq!(tree.node_count(), LEVELS + 1);
    assert_eq!(find(&mut tree, &tokens).best_node, last);
    assert_eq!(path_slots(&tree, last), tokens);
    assert_eq!(tree.collect_path_info(&[last]).unwrap()[0].len(), LEVELS);
    assert_eq!(tree.walk_for_kv_canary(false, false).slots, tokens);
    assert_eq!(tree.dfs_weight_order(&[last, tree.root()]).unwrap(), [0, 1]);
    assert_sound(&tree);
    assert_eq!(evict(&mut tree, u64::MAX).len(), LEVELS);
}

#[test]
fn a_key_differing_from_its_sibling_in_the_last_unit_of_a_page_is_another_child() {
    let mut tree = tree(64);
    let mut tokens: Vec<i64> = (0..128).collect();
    insert(&mut tree, &tokens, 0);
    tokens[63] = -1;
    let outcome = insert_with(&mut tree, &tokens.clone(), 200, |_| {}).1;
    assert_eq!(outcome.prefix_len, 0);
    assert_eq!(find(&mut tree, &tokens).device_prefix_len, 128);
    assert_eq!(tree.node_count(), 3);
}
