//! Window values by position instead of by node: which are missing, and putting loaded ones back
//! (SWA-B1 to SWA-B5).

use crate::component::ComponentType;
use crate::error::{Result, contract};
use crate::indices::Indices;
use crate::insert::SplitUpdate;
use crate::key::Key;
use crate::nodes::Slot;
use crate::tree::Tree;

/// A node on the way of a key, as far as the key goes.
struct Visited {
    node: Slot,
    start: usize,
    end: usize,
}

impl<V: Indices> Tree<V> {
    /// The parts of `[start, end)` that are cached without a value of this window, in order and
    /// merged. Nothing is refreshed or split (SWA-B1).
    pub fn window_tombstone_ranges(
        &self,
        key: Key,
        start: usize,
        end: usize,
        component: ComponentType,
    ) -> Result<Vec<(usize, usize)>> {
        let index = self.check_window(component)?;
        if start > end || end > key.tokens.len() {
            return contract(format!("{start}..{end} is no range of the key"));
        }
        let mut found: Vec<(usize, usize)> = Vec::new();
        for visited in self.visit(&key, end) {
            let has_value = self.nodes[visited.node].data[index].device.is_some();
            if has_value || visited.end <= start {
                continue;
            }
            // An empty span inside a tombstone is answered with itself, as the released core does.
            let (from, to) = (visited.start.max(start), visited.end.min(end));
            match found.last_mut().filter(|last| last.1 == from) {
                Some(last) => last.1 = to,
                None => found.push((from, to)),
            }
        }
        Ok(found)
    }

    /// Stores `values` as the window of `[start, end)`, all of which must be cached without one.
    /// Returns what the splits at its ends have to say (SWA-B3, SWA-B4).
    pub fn attach_window(
        &mut self,
        key: Key,
        start: usize,
        end: usize,
        values: &V::Source,
        component: ComponentType,
    ) -> Result<Vec<SplitUpdate>> {
        let index = self.check_window(component)?;
        if start > end || V::source_len(values) != end - start {
            return contract(format!("the values do not fit {start}..{end}"));
        }
        let mut updates = Vec::new();
        if start == end {
            return Ok(updates);
        }
        let visited = self.visit(&key, end);
        self.check_attachable(&visited, start, end, index)?;
        for part in visited.iter().filter(|part| part.end > start) {
            let (from, to) = (part.start.max(start), part.end.min(end));
            let mut node = part.node;
            if from > part.start {
                let upper = self.split(node, from - part.start);
                updates.extend(self.split_update(upper, node));
            }
            if to - from < self.nodes.units(node) {
                let upper = self.split(node, to - from);
                updates.extend(self.split_update(upper, node));
                node = upper;
            }
            let value = V::copied(values, from - start, to - start);
            self.store_value(node, index, value);
        }
        Ok(updates)
    }

    fn check_attachable(
        &self,
        visited: &[Visited],
        start: usize,
        end: usize,
        index: usize,
    ) -> Result<()> {
        let page = self.layout.page_size;
        if !start.is_multiple_of(page) || !end.is_multiple_of(page) {
            return contract(format!("{start}..{end} cuts a page"));
        }
        if visited.last().is_none_or(|last| last.end < end) {
            return contract(format!("{start}..{end} is not cached whole"));
        }
        let mut parts = visited.iter().filter(|part| part.end > start);
        if parts.any(|part| self.nodes[part.node].data[index].device.is_some()) {
            return contract(format!("{start}..{end} has window values already"));
        }
        Ok(())
    }

    /// The nodes that a key matches down to position `end`, the last one perhaps in part.
    fn visit(&self, key: &Key, end: usize) -> Vec<Visited> {
        let (tokens, units) = self.layout.align(key.tokens);
        let mut found = Vec::new();
        let Some(namespace) = self.namespaces.find(key) else {
            return found;
        };
        let (mut at, mut position) = (self.nodes.root, 0);
        while position < end.min(units) {
            let rest = &tokens[position..];
            let Some(child) = self.nodes.child(at, namespace, rest) else {
                break;
            };
            let matched = self.matched_units(child, rest);
            found.push(Visited {
                node: child,
                start: position,
                end: position + matched,
            });
            (at, position) = (child, position + matched);
            if matched < self.nodes.units(child) {
                break;
            }
        }
        found
    }
}
