//! The page hashes of nodes (KEY-37, KEY-40 to KEY-42).

use crate::NodeId;
use crate::error::Result;
use crate::hash::{Digest, check_hashable, page_digests, storage_namespace_seed};
use crate::indices::Indices;
use crate::nodes::Slot;
use crate::span::Span;
use crate::tree::Tree;

impl<V: Indices> Tree<V> {
    /// Hashes a node unless it is hashed. Under an unhashed parent the chain starts anew, which
    /// both released cores reproduce (KEY-37).
    pub(crate) fn ensure_hashes(&mut self, slot: Slot) {
        let node = &self.nodes[slot];
        if node.hashes.is_some() {
            return;
        }
        let above = self.nodes[node.parent]
            .hashes
            .as_deref()
            .and_then(<[_]>::last);
        let prior = above.copied().or_else(|| {
            let namespace = self.namespaces.get(node.namespace);
            storage_namespace_seed(
                namespace.extra_key.as_deref(),
                namespace.cache_salt.as_deref(),
            )
        });
        let mut digests = Vec::new();
        page_digests(&node.tokens, self.layout, prior, &mut digests);
        self.nodes[slot].hashes = Some(Span::from(digests));
    }

    /// Hashes every node that has no list, parents first; returns how many (KEY-41).
    pub fn backfill_missing_hash_values(&mut self) -> Result<usize> {
        let missing: Vec<Slot> = self
            .nodes
            .pre_order()
            .filter(|&slot| self.nodes[slot].hashes.is_none())
            .collect();
        for &slot in &missing {
            check_hashable(&self.nodes[slot].tokens)?;
        }
        for &slot in &missing {
            self.ensure_hashes(slot);
        }
        Ok(missing.len())
    }

    /// A node's own page hashes, `None` if unhashed; the root has an empty list (KEY-42).
    pub fn hash_values(&self, id: NodeId) -> Result<Option<&[Digest]>> {
        Ok(self.nodes[self.nodes.resolve(id)?].hashes.as_deref())
    }

    /// Page hashes of a node's ancestors, root first, below the lowest unhashed one (KEY-42).
    pub fn prefix_hash_values(&self, id: NodeId) -> Result<Vec<Digest>> {
        let slot = self.nodes.resolve(id)?;
        if slot == self.nodes.root {
            return Ok(Vec::new());
        }
        let lists: Vec<&Span<Digest>> = self
            .nodes
            .path_up(self.nodes[slot].parent)
            .map_while(|above| self.nodes[above].hashes.as_ref())
            .collect();
        Ok(lists
            .iter()
            .rev()
            .flat_map(|list| list.iter().copied())
            .collect())
    }
}
