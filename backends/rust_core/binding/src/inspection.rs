//! Shows the whole state to tests. Compiled into the inspection module alone (INSP-2).

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tree_core::{ComponentView, NodeView, RecordView, TreeView};

use crate::core::{NativeTreeCore, with_tree};
use crate::results::hex_list;

#[pymethods]
impl NativeTreeCore {
    /// The whole tree as a dict of plain values, nodes in pre-order.
    fn inspect_tree<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let view: TreeView = self.with(py, |any| with_tree!(any, tree => tree.view()))?;
        let state = PyDict::new(py);
        let nodes = PyList::empty(py);
        for node in view.nodes {
            nodes.append(node_dict(py, node)?)?;
        }
        state.set_item("nodes", nodes)?;
        state.set_item("device_leaves", view.device_leaves)?;
        let records = view.records.into_iter().map(record_tuple);
        state.set_item("records", records.collect::<Vec<_>>())?;
        state.set_item("has_insert", view.has_insert)?;
        state.set_item("queued_events", view.queued_events)?;
        Ok(state)
    }

    /// Panics while the core is locked.
    fn inspect_panic(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |_| panic!("asked for by a test"))
    }
}

fn node_dict(py: Python<'_>, node: NodeView) -> PyResult<Bound<'_, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("node_id", node.id)?;
    fields.set_item("parent_id", node.parent)?;
    fields.set_item("child_ids", node.children)?;
    fields.set_item("token_ids", node.tokens)?;
    fields.set_item("extra_key", node.extra_key)?;
    fields.set_item("cache_salt", node.cache_salt)?;
    fields.set_item("priority", node.priority)?;
    fields.set_item("hit_count", node.rank.hit_count)?;
    fields.set_item("access_time", node.rank.last_access)?;
    fields.set_item("creation_time", node.rank.creation)?;
    fields.set_item("prefix_length", node.prefix_length)?;
    fields.set_item("history_length", node.rank.history_length)?;
    fields.set_item("hash_values", node.hashes.as_deref().map(hex_list))?;
    fields.set_item(
        "event_hash_values",
        node.event_hashes.as_deref().map(hex_list),
    )?;
    let components = node.components.into_iter().map(component_tuple);
    fields.set_item("components", components.collect::<Vec<_>>())?;
    fields.set_item("write_through_pending_id", node.write_through_pending)?;
    fields.set_item("external_cache_stored", node.is_externally_stored)?;
    fields.set_item("rotation_base", node.rotation_base)?;
    Ok(fields)
}

/// `(component number, locks, host locks, mark | None, host mark | None, slots | None)`.
type ComponentTuple = (u32, u64, u64, Option<i64>, Option<i64>, Option<Vec<i64>>);

fn component_tuple(view: ComponentView) -> ComponentTuple {
    (
        view.kind as u32,
        view.lock_ref,
        view.host_lock_ref,
        view.lock_mark,
        view.host_lock_mark,
        view.device,
    )
}

/// `(component number, evictable, protected, list, whether a walk is open)`.
fn record_tuple(view: RecordView) -> (u32, i128, i128, Vec<u64>, bool) {
    (
        view.kind as u32,
        view.evictable,
        view.protected,
        view.recency,
        view.has_walk,
    )
}
