//! Calls about what this core lacks: arguments are checked as for every call, then refused.

use pyo3::prelude::*;
use tree_core::ComponentType;

use crate::arguments::{Component, Flag, Handle, Many, Receipt};
use crate::core::{NativeTreeCore, with_tree};
use crate::errors::CONTRACT;
use crate::values::check_tensor_type;

#[pymethods]
impl NativeTreeCore {
    /// Refuses a component that is no window of this core, that is every one (LOCK-18).
    fn dec_window_lock_only(
        &self,
        py: Python<'_>,
        node_id: Handle,
        component: Component,
        receipt: Receipt,
    ) -> PyResult<()> {
        drop(receipt); // It has been converted, which is all that a refusal needs.
        self.refuse_component(py, node_id, component)
    }

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
        self.root(py, None)?;
        Ok(component.0 == ComponentType::Full)
    }

    /// Refuses every component: FULL can't be set, and there is nothing else (SIZE-7).
    fn set_component_device_value(
        &self,
        py: Python<'_>,
        node_id: Handle,
        component: Component,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        check_tensor_type(value)?;
        self.refuse_component(py, node_id, component)
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

    /// What a call for a component comes to that the core lacks, or that can't do it.
    fn refuse_component(
        &self,
        py: Python<'_>,
        node_id: Handle,
        component: Component,
    ) -> PyResult<()> {
        self.is_root(py, node_id)?;
        let text = format!("{:?} of this core can't be acted on like that", component.0);
        Err(CONTRACT.raise(py, text))
    }

    /// The same for a call that names no node.
    fn refuse_span(&self, py: Python<'_>, component: Component) -> PyResult<()> {
        let root = self.root(py, None)?;
        self.refuse_component(py, Handle(root), component)
    }
}
