//! Shows the whole state to tests. Compiled into the inspection module alone (INSP-2).

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tree_core::{NodeView, TreeView};

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
        state.set_item("evictable", view.evictable)?;
        state.set_item("protected", view.protected)?;
        state.set_item("has_insert", view.has_insert)?;
        state.set_item("has_walk", view.has_walk)?;
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
    fields.set_item("lock_ref", node.lock_ref)?;
    fields.set_item("host_lock_ref", node.host_lock_ref)?;
    fields.set_item("host_lock_uuid", node.host_lock_uuid)?;
    fields.set_item("device_value", node.device)?;
    fields.set_item("write_through_pending_id", node.write_through_pending)?;
    fields.set_item("external_cache_stored", node.is_externally_stored)?;
    fields.set_item("rotation_base", node.rotation_base)?;
    Ok(fields)
}
