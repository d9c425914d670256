//! What copies to other tiers need to know of the tree: chains, linker marks, buffer snapshots
//! (BKP-20, LNK-1 to LNK-9, BUF-5 to BUF-10).

use crate::NodeId;
use crate::component::ComponentType;
use crate::error::{Result, TreeError, contract};
use crate::hash::Digest;
use crate::indices::Indices;
use crate::nodes::Slot;
use crate::tree::Tree;

/// What the offload of a node copies of one component (LNK-3).
#[derive(Clone, Debug)]
pub struct OffloadPlan<'a, V> {
    /// The component.
    pub component: ComponentType,
    /// Device slots.
    pub device: V,
    /// One key per page.
    pub keys: &'a [Digest],
    /// Whether the last pages alone are of use.
    pub is_tail: bool,
}

impl<'a, V: Clone> OffloadPlan<'a, V> {
    pub(crate) fn whole(component: ComponentType, device: &V, keys: &'a [Digest]) -> Self {
        OffloadPlan {
            component,
            device: device.clone(),
            keys,
            is_tail: false,
        }
    }

    pub(crate) fn tail(component: ComponentType, device: V, keys: &'a [Digest]) -> Self {
        OffloadPlan {
            component,
            device,
            keys,
            is_tail: true,
        }
    }
}

/// Where a node hangs (KEY-44).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferState {
    /// The parent.
    pub parent: NodeId,
    /// Whether the parent is the root.
    pub parent_is_root: bool,
    /// Last page hash of the parent.
    pub parent_last_hash: Option<Digest>,
}

/// A node as a buffer-mode backup needs it (KEY-43).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferSnapshot<'a> {
    /// Where it hangs.
    pub state: BufferState,
    /// Its page hashes.
    pub hashes: &'a [Digest],
    /// Its raw tokens.
    pub tokens: &'a [i64],
    /// Its namespace's extra key.
    pub extra_key: Option<&'a str>,
    /// Its namespace's salt.
    pub cache_salt: Option<&'a str>,
    /// Page hashes of its ancestors, if asked for.
    pub prefix: Option<Vec<Digest>>,
}

impl<V: Indices> Tree<V> {
    /// The node preceded by its consecutive ancestors that need a copy, root-most first
    /// (BKP-20, BKP-21).
    pub fn build_backup_chain(&self, id: NodeId) -> Result<Vec<NodeId>> {
        Ok(self.backup_chain(self.nodes.resolve(id)?))
    }

    pub(crate) fn backup_chain(&self, slot: Slot) -> Vec<NodeId> {
        let mut chain = vec![self.nodes[slot].id];
        if slot != self.nodes.root {
            let above = self.nodes.path_up(self.nodes[slot].parent);
            let uncovered = above.take_while(|&above| {
                let node = &self.nodes[above];
                let is_pending = self.settings.enable_external_cache_linker
                    && node.write_through_pending.is_some();
                !node.is_externally_stored && !is_pending
            });
            chain.extend(uncovered.map(|above| self.nodes[above].id));
        }
        chain.reverse();
        chain
    }

    /// What an offload of a node copies: `None` if it is stored or pending, an empty list if
    /// there is nothing to copy (LNK-2, LNK-3).
    pub fn build_offload(&self, id: NodeId) -> Result<Option<Vec<OffloadPlan<'_, V>>>> {
        let node = &self.nodes[self.nodes.resolve(id)?];
        if node.is_externally_stored || node.write_through_pending.is_some() {
            return Ok(None);
        }
        let keys = node.hashes.as_deref().unwrap_or(&[]);
        if keys.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let held = self.components.iter().zip(&node.data);
        let plans = held.filter_map(|(component, data)| {
            component.plan_offload(self.layout, data.device.as_ref()?, keys)
        });
        Ok(Some(plans.collect()))
    }

    /// An offload of this node is in flight (LNK-4).
    pub fn mark_offload_pending(&mut self, id: NodeId) -> Result<()> {
        let slot = self.nodes.resolve(id)?;
        let node = &mut self.nodes[slot];
        if node.is_externally_stored || node.write_through_pending.is_some() {
            return contract(format!(
                "node {id} is stored already, or its offload is pending"
            ));
        }
        node.write_through_pending = Some(id);
        Ok(())
    }

    /// An offload has landed or failed (LNK-6).
    pub fn finish_offload(&mut self, ids: &[NodeId], ack: NodeId, success: bool) -> Result<()> {
        let slots: Result<Vec<Slot>> = ids.iter().map(|&id| self.nodes.resolve(id)).collect();
        let slots = slots?;
        let is_pending = |&slot: &Slot| self.nodes[slot].write_through_pending == Some(ack);
        if !slots.iter().all(is_pending) {
            return contract(format!("not every node waits for offload {ack}"));
        }
        for slot in slots {
            let node = &mut self.nodes[slot];
            node.write_through_pending = None;
            node.is_externally_stored |= success;
        }
        Ok(())
    }

    /// The external store holds this path already (LNK-8).
    pub fn mark_stored_path(&mut self, from: NodeId, until: NodeId) -> Result<()> {
        let (from, until) = (self.nodes.resolve(from)?, self.nodes.resolve(until)?);
        let path: Vec<Slot> = self
            .nodes
            .path_up(from)
            .take_while(|&slot| slot != until)
            .collect();
        let top = path.last().map_or(from, |&slot| self.nodes[slot].parent);
        if top != until {
            let text = "the path's end is not an ancestor of its start";
            return Err(TreeError::NotAnAncestor(text.into()));
        }
        for slot in path {
            self.nodes[slot].is_externally_stored = true;
        }
        Ok(())
    }

    /// A node as a buffer-mode backup needs it, `None` if it cannot be had (BUF-5, BUF-6).
    pub fn snapshot_buffer_backup(
        &self,
        id: NodeId,
        with_prefix: bool,
    ) -> Option<BufferSnapshot<'_>> {
        let slot = self.nodes.find(id)?;
        let state = self.buffer_state(slot)?;
        let node = &self.nodes[slot];
        let hashes = node.hashes.as_deref().filter(|list| !list.is_empty())?;
        let namespace = self.namespaces.get(node.namespace);
        let prefix = match with_prefix {
            true => Some(self.prefix_hash_values(id).ok()?),
            false => None,
        };
        Some(BufferSnapshot {
            state,
            hashes,
            tokens: &node.tokens,
            extra_key: namespace.extra_key.as_deref(),
            cache_salt: namespace.cache_salt.as_deref(),
            prefix,
        })
    }

    /// Where a planned node hangs now, `None` if it has changed (BUF-9).
    pub fn validate_buffer_backup(&self, id: NodeId, units: u64) -> Option<BufferState> {
        let slot = self.nodes.find(id)?;
        let state = self.buffer_state(slot)?;
        (self.nodes.units(slot) as u64 == units).then_some(state)
    }

    /// The parent's state for a device-resident node that is not the root.
    fn buffer_state(&self, slot: Slot) -> Option<BufferState> {
        let node = &self.nodes[slot];
        node.full().device.as_ref()?;
        let parent = &self.nodes[node.parent];
        Some(BufferState {
            parent: parent.id,
            parent_is_root: node.parent == self.nodes.root,
            parent_last_hash: parent.hashes.as_deref().and_then(<[_]>::last).copied(),
        })
    }
}
