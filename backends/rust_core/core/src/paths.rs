//! Reading paths and the whole tree in order (PATH-10, PATH-11, ORD, FLAT).
//!
//! Nothing here recurses, so depth is limited by memory alone.

use std::cmp::Reverse;

use hashbrown::HashMap;

use crate::NodeId;
use crate::component::{ComponentType, FULL};
use crate::error::{Result, contract};
use crate::indices::Indices;
use crate::nodes::Slot;
use crate::tree::Tree;

/// One node of a path; the span is in units from the root (KEY-60).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathNode {
    /// The node.
    pub node: NodeId,
    /// Its parent.
    pub parent: NodeId,
    /// First unit.
    pub start: usize,
    /// Unit behind the last one.
    pub end: usize,
    /// Length of FULL's device value.
    pub full_value_len: Option<usize>,
    /// How many children it has.
    pub child_count: usize,
}

/// One row per device slot (FLAT-4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CanaryRows {
    /// The slots.
    pub slots: Vec<i64>,
    /// Their distance from the root in units.
    pub positions: Vec<i64>,
    /// The slot before each one, -1 for none.
    pub previous: Vec<i64>,
}

impl<V: Indices> Tree<V> {
    /// FULL device slots of the path below `until` down to `from` (PATH-11).
    pub fn collect_full_device_indices(&self, from: NodeId, until: NodeId) -> Result<V> {
        let (from, until) = (self.nodes.resolve(from)?, self.nodes.resolve(until)?);
        let mut parts: Vec<&V> = Vec::new();
        let mut at = from;
        while at != until {
            let Some(value) = &self.nodes[at].full().device else {
                return contract("the path's end is not an ancestor of its start");
            };
            parts.push(value);
            at = self.nodes[at].parent;
        }
        parts.reverse();
        Ok(V::concat(&parts))
    }

    /// The path from the root's child to each handle (PATH-10).
    pub fn collect_path_info(&self, ids: &[NodeId]) -> Result<Vec<Vec<PathNode>>> {
        let slots: Result<Vec<Slot>> = ids.iter().map(|&id| self.nodes.resolve(id)).collect();
        Ok(slots?
            .into_iter()
            .map(|slot| self.path_info(slot))
            .collect())
    }

    fn path_info(&self, end: Slot) -> Vec<PathNode> {
        let mut slots: Vec<Slot> = self.nodes.path_up(end).collect();
        slots.reverse();
        let mut start = 0;
        slots
            .into_iter()
            .map(|slot| {
                let node = &self.nodes[slot];
                let span_start = start;
                start += self.nodes.units(slot);
                PathNode {
                    node: node.id,
                    parent: self.nodes[node.parent].id,
                    start: span_start,
                    end: start,
                    full_value_len: node.full().device.as_ref().map(Indices::len),
                    child_count: node.child_count as usize,
                }
            })
            .collect()
    }

    /// Input positions in order of shared subtrees: children before their node, heavier subtrees
    /// first, ties in child order (ORD-1 to ORD-3).
    pub fn dfs_weight_order(&self, ids: &[NodeId]) -> Result<Vec<usize>> {
        let slots: Result<Vec<Slot>> = ids.iter().map(|&id| self.nodes.resolve(id)).collect();
        let slots = slots?;
        let mut inputs: HashMap<Slot, Vec<usize>, foldhash::fast::FixedState> = HashMap::default();
        for (position, &slot) in slots.iter().enumerate() {
            inputs.entry(slot).or_default().push(position);
        }
        let mut children = self.weighted_children(&slots);
        let mut order = Vec::with_capacity(ids.len());
        // Entered nodes wait below their children, so a node comes after its subtree.
        let mut stack = vec![(self.nodes.root, false)];
        while let Some((slot, is_entered)) = stack.pop() {
            if is_entered {
                order.extend(inputs.remove(&slot).unwrap_or_default());
                continue;
            }
            stack.push((slot, true));
            if let Some(mut below) = children.remove(&slot) {
                below.sort_by_key(|&(weight, order, _)| (Reverse(weight), order));
                stack.extend(below.iter().rev().map(|&(_, _, child)| (child, false)));
            }
        }
        Ok(order)
    }

    /// Children with inputs in their subtree, by parent: weight, place among siblings, child.
    fn weighted_children(
        &self,
        slots: &[Slot],
    ) -> HashMap<Slot, Vec<(usize, u64, Slot)>, foldhash::fast::FixedState> {
        let mut weights: HashMap<Slot, usize, foldhash::fast::FixedState> = HashMap::default();
        for &slot in slots {
            for above in self.nodes.path_up(slot) {
                *weights.entry(above).or_default() += 1;
            }
        }
        let mut children: HashMap<_, Vec<_>, _> = HashMap::default();
        for (slot, weight) in weights {
            let node = &self.nodes[slot];
            let below = children.entry(node.parent).or_default();
            below.push((weight, node.order, slot));
        }
        children
    }

    /// All device values of a component in pre-order; nothing without it (FLAT-2, FLAT-3).
    pub fn all_values_flatten(&self, component: ComponentType) -> V {
        let Some(index) = self.index_of(component) else {
            return V::concat(&[]);
        };
        let parts: Vec<&V> = self
            .nodes
            .pre_order()
            .filter_map(|slot| self.nodes[slot].data[index].device.as_ref())
            .collect();
        V::concat(&parts)
    }

    /// One row per FULL device slot, nodes in pre-order. Locked ones are left out if asked, and
    /// so are those without a window value, whose locks then count instead (FLAT-4 to FLAT-6).
    pub fn walk_for_kv_canary(&self, unlocked_only: bool, swa_resident_only: bool) -> CanaryRows {
        let window = self.index_of(ComponentType::Swa);
        let index = window.filter(|_| swa_resident_only).unwrap_or(FULL);
        let mut rows = CanaryRows::default();
        // The path above the node at hand: node, units through it, last slot down to it.
        let mut path: Vec<(Slot, i64, i64)> = vec![(self.nodes.root, 0, -1)];
        for slot in self.nodes.pre_order().skip(1) {
            let node = &self.nodes[slot];
            while path.last().is_some_and(|&(above, ..)| above != node.parent) {
                path.pop();
            }
            let &(_, mut position, mut previous) = path.last().expect("the root is on the path");
            let end = position + self.nodes.units(slot) as i64;
            if let Some(value) = &node.full().device {
                let data = &node.data[index];
                let is_locked = unlocked_only && data.lock_ref > 0;
                let is_emitted = data.device.is_some() && !is_locked;
                for &index in value.to_host().iter() {
                    if is_emitted {
                        rows.slots.push(index);
                        rows.positions.push(position);
                        rows.previous.push(previous);
                    }
                    previous = index;
                    position += 1;
                }
            }
            path.push((slot, end, previous));
        }
        rows
    }
}
