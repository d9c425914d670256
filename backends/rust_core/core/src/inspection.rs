//! The whole tree as plain data, for comparisons in tests. Not part of a production build.

use crate::NodeId;
use crate::hash::Digest;
use crate::indices::Indices;
use crate::nodes::{ROOT_PRIORITY, Slot};
use crate::policy::RankInputs;
use crate::tree::Tree;

/// One node.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// Handle.
    pub id: NodeId,
    /// Parent, except on the root.
    pub parent: Option<NodeId>,
    /// Children in order.
    pub children: Vec<NodeId>,
    /// Raw tokens.
    pub tokens: Vec<i64>,
    /// Namespace: extra key.
    pub extra_key: Option<String>,
    /// Namespace: salt.
    pub cache_salt: Option<String>,
    /// Priority; `None` on a root that no insert has raised.
    pub priority: Option<i64>,
    /// Times and counts.
    pub rank: RankInputs,
    /// T-LRU: units through the node; 0 under other policies (POL-10).
    pub prefix_length: u64,
    /// Own page hashes.
    pub hashes: Option<Vec<Digest>>,
    /// Event page hashes.
    pub event_hashes: Option<Vec<Digest>>,
    /// FULL's device locks.
    pub lock_ref: u64,
    /// FULL's host locks.
    pub host_lock_ref: u64,
    /// FULL's host lock mark.
    pub host_lock_uuid: Option<i64>,
    /// FULL's device slots.
    pub device: Option<Vec<i64>>,
    /// Backup in flight.
    pub write_through_pending: Option<NodeId>,
    /// Held by the external store.
    pub is_externally_stored: bool,
    /// Rotation base.
    pub rotation_base: Option<i64>,
}

/// The whole tree; nodes in pre-order.
#[derive(Clone, Debug)]
pub struct TreeView {
    /// Nodes.
    pub nodes: Vec<NodeView>,
    /// Members of the leaf set.
    pub device_leaves: Vec<NodeId>,
    /// FULL's evictable tokens.
    pub evictable: i128,
    /// FULL's protected tokens.
    pub protected: i128,
    /// Whether an insert is suspended.
    pub has_insert: bool,
    /// Whether a FULL walk is open.
    pub has_walk: bool,
    /// Queued events.
    pub queued_events: usize,
}

impl<V: Indices> Tree<V> {
    /// Everything that the tree holds.
    pub fn view(&self) -> TreeView {
        let full = crate::ComponentType::Full;
        TreeView {
            nodes: self
                .nodes
                .pre_order()
                .map(|slot| self.node_view(slot))
                .collect(),
            device_leaves: self.sorted_leaves(),
            evictable: self.evictable_size(full),
            protected: self.protected_size(full),
            has_insert: self.has_ongoing_insert(),
            has_walk: self.has_open_walk(),
            queued_events: self.queued_events(),
        }
    }

    /// Ids in rising order: the set itself has none.
    fn sorted_leaves(&self) -> Vec<NodeId> {
        let members = self.device_leaves.members();
        let mut leaves: Vec<_> = members.iter().map(|leaf| leaf.id).collect();
        leaves.sort_unstable();
        leaves
    }

    fn node_view(&self, slot: Slot) -> NodeView {
        let node = &self.nodes[slot];
        let namespace = self.namespaces.get(node.namespace);
        let is_root = slot == self.nodes.root;
        let priority = node.rank.priority;
        NodeView {
            id: node.id,
            parent: (!is_root).then(|| self.nodes[node.parent].id),
            children: self
                .nodes
                .children(slot)
                .map(|child| self.nodes[child].id)
                .collect(),
            tokens: node.tokens.to_vec(),
            extra_key: namespace.extra_key.as_deref().map(String::from),
            cache_salt: namespace.cache_salt.as_deref().map(String::from),
            priority: (!is_root || priority != ROOT_PRIORITY).then_some(priority),
            rank: node.rank,
            prefix_length: match self.policy.keeps_lengths() {
                true => node.rank.depth + self.nodes.units(slot) as u64,
                false => 0,
            },
            hashes: node.hashes.as_ref().map(|list| list.to_vec()),
            event_hashes: node.event_hashes.as_ref().map(|list| list.to_vec()),
            lock_ref: node.full().lock_ref,
            host_lock_ref: node.full().host_lock_ref,
            host_lock_uuid: node.full().host_lock_uuid,
            device: node
                .full()
                .device
                .as_ref()
                .map(|value| value.to_host().to_vec()),
            write_through_pending: node.write_through_pending,
            is_externally_stored: node.is_externally_stored,
            rotation_base: node.rotation_base,
        }
    }
}
