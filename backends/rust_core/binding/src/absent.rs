//! Calls about the host tier, which this core lacks: arguments are checked as for every call, then
//! refused or answered with nothing.

use pyo3::prelude::*;

use crate::arguments::{Component, Flag, Handle, Many};
use crate::core::{NativeTreeCore, with_tree};
use crate::errors::CONTRACT;

#[pymethods]
impl NativeTreeCore {
    /// Raises `UnknownNodeError` unless every handle is known, for methods that do no more yet.
    fn check_nodes(&self, py: Python<'_>, node_ids: Many<Handle>) -> PyResult<()> {
        for node_id in node_ids.0 {
            self.is_root(py, node_id)?;
        }
        Ok(())
    }

    /// Like `check_nodes`, with the flag of the spec that no node of this core has (STO-30).
    fn check_storage_backup(
        &self,
        py: Python<'_>,
        node_id: Handle,
        with_prefix: Flag,
    ) -> PyResult<()> {
        let _ = with_prefix;
        self.is_root(py, node_id).map(drop)
    }

    /// Whether the core has the component whose host values are to go (EVH-6).
    fn drive_host_eviction(
        &self,
        py: Python<'_>,
        component: Component,
        num_tokens: u64,
    ) -> PyResult<bool> {
        let _ = num_tokens; // No node is on the host.
        self.with(
            py,
            |any| with_tree!(any, tree => tree.has_component(component.0)),
        )
    }

    /// False for every node of a component that the core has (SIZE-9).
    fn component_has_host_value_only(
        &self,
        py: Python<'_>,
        node_id: Handle,
        component: Component,
    ) -> PyResult<bool> {
        self.attempt(
            py,
            |any| with_tree!(any, tree => tree.device_value(node_id.0, component.0).map(|_| false)),
        )
    }

    /// No internal victim ever waits for a backup, so there is none to finish (EVD-41).
    fn finish_state_eviction(
        &self,
        py: Python<'_>,
        node_id: Handle,
        component: Component,
    ) -> PyResult<()> {
        self.is_root(py, node_id)?;
        let text = format!("no {:?} eviction waits for a backup", component.0);
        Err(CONTRACT.raise(py, text))
    }
}
