//! Looking a key up (MATCH-1 to MATCH-16, PATH-1, PATH-2).

use std::sync::Arc;

use smallvec::SmallVec;

use crate::NodeId;
use crate::indices::Indices;
use crate::insert::SplitUpdate;
use crate::key::{Key, NamespaceId, common_prefix};
use crate::nodes::Slot;
use crate::tree::Tree;

/// How far a key is cached. Lengths are in units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchOutcome {
    /// Units up to the deepest valid boundary.
    pub device_prefix_len: usize,
    /// The node that ends there. Without a host tier all three node fields of a match are it.
    pub best_node: NodeId,
    /// Units matched whatever the components say.
    pub full_kv_hit_length: usize,
    /// The deepest node visited, if any.
    pub last_visited: Option<NodeId>,
    /// What a split must tell the cache.
    pub split: Option<SplitUpdate>,
    /// Units at which a window is missing in the middle of what is cached (SWA-M8).
    pub swa_branching_len: Option<usize>,
    /// Units at which a state would be of use (MAM-M8).
    pub mamba_branching_len: Option<usize>,
}

/// The answer of a read-only match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullMatch {
    /// Units matched, in whole pages.
    pub matched_len: usize,
    /// The deepest node matched at least partly.
    pub node: NodeId,
    /// Units from the root through the whole of that node.
    pub pinned_len: usize,
}

/// Where a read-only walk ended.
pub(crate) struct Located {
    pub matched: usize,
    pub node: Slot,
    pub end: usize,
}

impl<V: Indices> Tree<V> {
    /// Longest cached prefix; may split one node and refreshes recency (MATCH).
    pub fn match_prefix(&mut self, key: Key) -> MatchOutcome {
        let (tokens, units) = self.layout.align(key.tokens);
        let mut outcome = MatchOutcome {
            device_prefix_len: 0,
            best_node: self.root(),
            full_kv_hit_length: 0,
            last_visited: None,
            split: None,
            swa_branching_len: None,
            mamba_branching_len: None,
        };
        if units == 0 {
            return outcome;
        }
        let mut best = self.nodes.root;
        if let Some(namespace) = self.namespaces.find(&key) {
            best = self.match_walk(namespace, tokens, units, &mut outcome);
        }
        outcome.best_node = self.nodes[best].id;
        let components = Arc::clone(&self.components);
        for component in components.iter() {
            component.refresh_on_match_end(self, best);
        }
        self.stamp_path(best);
        for component in components.iter() {
            component.finalize_match(&mut outcome);
        }
        outcome
    }

    fn match_walk(
        &mut self,
        namespace: NamespaceId,
        tokens: &[i64],
        units: usize,
        outcome: &mut MatchOutcome,
    ) -> Slot {
        let components = Arc::clone(&self.components);
        let mut progress: SmallVec<[usize; 4]> = SmallVec::from_elem(usize::MAX, components.len());
        let mut best = self.nodes.root;
        let mut at = self.nodes.root;
        let mut position = 0;
        while position < units {
            let rest = &tokens[position..];
            let Some(child) = self.nodes.child(at, namespace, rest) else {
                break;
            };
            let matched = self.matched_units(child, rest);
            let is_whole = matched == self.nodes.units(child);
            at = child;
            if !is_whole {
                at = self.split(child, matched);
                outcome.split = self.split_update(at, child);
            }
            position += matched;
            let node = &self.nodes[at];
            // Every component sees every node: some keep count along the path (MATCH-6).
            let is_valid = components
                .iter()
                .zip(&mut progress)
                .fold(true, |all, (component, progress)| {
                    component.accepts(node, progress) && all
                });
            if is_valid {
                best = at;
                outcome.device_prefix_len = position;
            }
            if !is_whole {
                break;
            }
        }
        outcome.full_kv_hit_length = position;
        outcome.last_visited = (at != self.nodes.root).then(|| self.nodes[at].id);
        best
    }

    /// Units of a child that `rest` shares, in whole pages.
    pub(crate) fn matched_units(&self, child: Slot, rest: &[i64]) -> usize {
        let common = common_prefix(&self.nodes[child].tokens, rest);
        self.layout.units(common) / self.layout.page_size * self.layout.page_size
    }

    /// NODE-23: newer than everything, and each ancestor older than its descendant.
    fn stamp_path(&mut self, best: Slot) {
        let depth = self.nodes.path_up(best).count() as u64;
        let mut time = self.tick_many(depth + 1);
        let mut at = best;
        loop {
            self.nodes[at].rank.last_access = time;
            self.rerank(at);
            if at == self.nodes.root {
                return;
            }
            time -= 1;
            at = self.nodes[at].parent;
        }
    }

    /// Matched length, deepest node, its end; changes nothing (PATH-1, PATH-2).
    pub fn match_full_device_prefix(&self, key: Key) -> FullMatch {
        let (tokens, units) = self.layout.align(key.tokens);
        let located = match self.namespaces.find(&key) {
            Some(namespace) => self.locate(namespace, tokens, units),
            None => Located {
                matched: 0,
                node: self.nodes.root,
                end: 0,
            },
        };
        FullMatch {
            matched_len: located.matched,
            node: self.nodes[located.node].id,
            pinned_len: located.end,
        }
    }

    /// The deepest node matched at least partly, without a split.
    pub(crate) fn locate(&self, namespace: NamespaceId, tokens: &[i64], units: usize) -> Located {
        let mut found = Located {
            matched: 0,
            node: self.nodes.root,
            end: 0,
        };
        while found.matched < units && found.matched == found.end {
            let rest = &tokens[found.matched..];
            let Some(child) = self.nodes.child(found.node, namespace, rest) else {
                break;
            };
            found.end += self.nodes.units(child);
            found.matched += self.matched_units(child, rest);
            found.node = child;
        }
        found
    }
}
