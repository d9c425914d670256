//! The whole tree as plain data, for comparisons in tests. Not part of a production build.

use crate::NodeId;
use crate::component::{ComponentData, ComponentType};
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
    /// What each component holds, in component order.
    pub components: Vec<ComponentView>,
    /// Backup in flight.
    pub write_through_pending: Option<NodeId>,
    /// Held by the external store.
    pub is_externally_stored: bool,
    /// Rotation base.
    pub rotation_base: Option<i64>,
}

/// One component on one node.
#[derive(Clone, Debug)]
pub struct ComponentView {
    /// The component.
    pub kind: ComponentType,
    /// Device locks.
    pub lock_ref: u64,
    /// Host locks.
    pub host_lock_ref: u64,
    /// Boundary mark of device locks.
    pub lock_mark: Option<i64>,
    /// Boundary mark of host locks.
    pub host_lock_mark: Option<i64>,
    /// Device slots.
    pub device: Option<Vec<i64>>,
}

/// What the tree keeps of one component beside its nodes.
#[derive(Clone, Debug)]
pub struct RecordView {
    /// The component.
    pub kind: ComponentType,
    /// Evictable entries.
    pub evictable: i128,
    /// Protected entries.
    pub protected: i128,
    /// Its recency list, the most recent node first.
    pub recency: Vec<NodeId>,
    /// Whether a walk is open.
    pub has_walk: bool,
}

/// The whole tree; nodes in pre-order.
#[derive(Clone, Debug)]
pub struct TreeView {
    /// Nodes.
    pub nodes: Vec<NodeView>,
    /// Members of the leaf set.
    pub device_leaves: Vec<NodeId>,
    /// One record per component, in component order.
    pub records: Vec<RecordView>,
    /// Whether an insert is suspended.
    pub has_insert: bool,
    /// Queued events.
    pub queued_events: usize,
}

impl<V: Indices> Tree<V> {
    /// Everything that the tree holds.
    pub fn view(&self) -> TreeView {
        TreeView {
            nodes: self
                .nodes
                .pre_order()
                .map(|slot| self.node_view(slot))
                .collect(),
            device_leaves: self.sorted_leaves(),
            records: (0..self.components.len())
                .map(|index| self.record_view(index))
                .collect(),
            has_insert: self.has_ongoing_insert(),
            queued_events: self.queued_events(),
        }
    }

    fn record_view(&self, index: usize) -> RecordView {
        let record = &self.records[index];
        let listed = record.recency.members(&self.nodes, self.nodes.count());
        RecordView {
            kind: self.components[index].kind(),
            evictable: record.ledger.evictable,
            protected: record.ledger.protected,
            recency: listed.into_iter().map(|slot| self.nodes[slot].id).collect(),
            has_walk: self.is_walk_open(index),
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
            components: self
                .components
                .iter()
                .zip(&node.data)
                .map(|(component, data)| component_view(component.kind(), data))
                .collect(),
            write_through_pending: node.write_through_pending,
            is_externally_stored: node.is_externally_stored,
            rotation_base: node.rotation_base,
        }
    }
}

fn component_view<V: Indices>(kind: ComponentType, data: &ComponentData<V>) -> ComponentView {
    ComponentView {
        kind,
        lock_ref: data.lock_ref,
        host_lock_ref: data.host_lock_ref,
        lock_mark: data.lock_mark,
        host_lock_mark: data.host_lock_mark,
        device: data.device.as_ref().map(|value| value.to_host().to_vec()),
    }
}
