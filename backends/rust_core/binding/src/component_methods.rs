//! Locks, eviction and values per component.

use pyo3::prelude::*;
use tree_core::{ComponentType, Key, LeafEviction, NodeId, SplitUpdate, Tree, TreeError};

use crate::arguments::{Component, Flag, Handle, KeyArg, Many, PerComponent, Receipt, Text};
use crate::core::{AnyValue, NativeTreeCore, any_freed, with_tree};
use crate::errors::CONTRACT;
use crate::results::{SplitTuple, marks, split_tuple};
use crate::values::{TensorArg, TensorIndices};

/// `(component number, tensor)` of each freed value.
type FreedList<'py> = Vec<(u32, Bound<'py, PyAny>)>;

/// `(component number, mark | None)` of each entry.
type MarkList = Vec<(u32, Option<i64>)>;

#[pymethods]
impl NativeTreeCore {
    /// `(FULL's newly protected tokens | None, numbers of what was skipped, marks)`.
    fn inc_lock_ref(
        &self,
        py: Python<'_>,
        node_id: Handle,
        skipped: Many<Component>,
    ) -> PyResult<(Option<u64>, Vec<u32>, MarkList)> {
        let skipped: Vec<_> = skipped.0.into_iter().map(|item| item.0).collect();
        let receipt = self.attempt(
            py,
            |any| with_tree!(any, tree => tree.inc_lock_ref(node_id.0, &skipped)),
        )?;
        let numbers = skipped.into_iter().map(|component| component as u32);
        Ok((receipt.delta, numbers.collect(), marks(&receipt.marks)))
    }

    fn dec_lock_ref(
        &self,
        py: Python<'_>,
        node_id: Handle,
        receipt: Receipt,
        skip_swa: Flag,
    ) -> PyResult<()> {
        self.attempt(
            py,
            |any| with_tree!(any, tree => tree.dec_lock_ref(node_id.0, &receipt.0, skip_swa.0)),
        )
    }

    fn dec_swa_lock_only<'py>(
        &self,
        py: Python<'py>,
        node_id: Handle,
        receipt: Receipt,
    ) -> PyResult<FreedList<'py>> {
        let freed = self.attempt(py, |any| {
            with_tree!(any, tree => {
                tree.dec_swa_lock_only(node_id.0, &receipt.0).map(any_freed)
            })
        })?;
        self.freed(py, freed)
    }

    fn dec_window_lock_only<'py>(
        &self,
        py: Python<'py>,
        node_id: Handle,
        component: Component,
        receipt: Receipt,
    ) -> PyResult<FreedList<'py>> {
        let freed = self.attempt(py, |any| {
            with_tree!(any, tree => {
                tree.dec_window_lock_only(node_id.0, component.0, &receipt.0).map(any_freed)
            })
        })?;
        self.freed(py, freed)
    }

    fn inc_full_pin(&self, py: Python<'_>, node_id: Handle) -> PyResult<()> {
        self.attempt(
            py,
            |any| with_tree!(any, tree => tree.inc_full_pin(node_id.0)),
        )
    }

    fn dec_full_pin(&self, py: Python<'_>, node_id: Handle) -> PyResult<()> {
        self.attempt(
            py,
            |any| with_tree!(any, tree => tree.dec_full_pin(node_id.0)),
        )
    }

    /// Marks of the pin.
    fn inc_host_lock_ref(&self, py: Python<'_>, node_id: Handle) -> PyResult<MarkList> {
        let receipt = self.attempt(
            py,
            |any| with_tree!(any, tree => tree.inc_host_lock_ref(node_id.0)),
        )?;
        Ok(marks(&receipt.host_marks))
    }

    fn dec_host_lock_ref(&self, py: Python<'_>, node_id: Handle, receipt: Receipt) -> PyResult<()> {
        self.attempt(
            py,
            |any| with_tree!(any, tree => tree.dec_host_lock_ref(node_id.0, &receipt.0)),
        )
    }

    fn evict_device_start(
        &self,
        py: Python<'_>,
        component: Component,
        request: u64,
    ) -> PyResult<()> {
        self.attempt(
            py,
            |any| with_tree!(any, tree => tree.evict_device_start(component.0, request)),
        )
    }

    /// `(leaf to evict | None, what went from an internal node | None)`.
    fn evict_device_next_node<'py>(
        &self,
        py: Python<'py>,
        component: Component,
        tracker: PerComponent<u64>,
    ) -> PyResult<(Option<u64>, Option<FreedList<'py>>)> {
        let evicted = tracker.get(component.0).unwrap_or(0);
        let (node, freed) = self.attempt(py, |any| {
            with_tree!(any, tree => {
                let step = tree.evict_device_next_node(component.0, evicted)?;
                Ok((step.node, any_freed(step.freed)))
            })
        })?;
        let freed = (!freed.is_empty()).then(|| self.freed(py, freed));
        Ok((node, freed.transpose()?))
    }

    fn evict_device_end(&self, py: Python<'_>, component: Component) -> PyResult<()> {
        self.attempt(
            py,
            |any| with_tree!(any, tree => tree.evict_device_end(component.0)),
        )
    }

    /// What was freed, None if the leaf needs a backup first.
    fn evict_device_leaf<'py>(
        &self,
        py: Python<'py>,
        node_id: Handle,
        is_write_back: Flag,
    ) -> PyResult<Option<FreedList<'py>>> {
        self.refresh_lora_name(py, node_id.0)?;
        let freed = self.attempt(py, |any| {
            with_tree!(any, tree => {
                tree.evict_device_leaf(node_id.0, is_write_back.0).map(|answer| match answer {
                    LeafEviction::NeedsBackup(_) => None,
                    LeafEviction::Deleted(freed) => Some(any_freed(freed)),
                })
            })
        })?;
        freed.map(|freed| self.freed(py, freed)).transpose()
    }

    /// What was freed, None if a lock forbids it.
    fn drop_subtree_no_host<'py>(
        &self,
        py: Python<'py>,
        node_id: Handle,
    ) -> PyResult<Option<FreedList<'py>>> {
        self.refresh_lora_name(py, node_id.0)?;
        let freed = self.attempt(py, |any| {
            with_tree!(any, tree => {
                tree.drop_subtree_no_host(node_id.0).map(|freed| freed.map(any_freed))
            })
        })?;
        freed.map(|freed| self.freed(py, freed)).transpose()
    }

    /// The states that went.
    fn evict_excess_path_states<'py>(
        &self,
        py: Python<'py>,
        tail_node_id: Handle,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let freed: Vec<AnyValue> = self.attempt(py, |any| {
            with_tree!(any, tree => {
                let freed = tree.evict_excess_path_states(tail_node_id.0)?;
                Ok(freed.into_iter().map(Into::into).collect())
            })
        })?;
        let convert = |value| self.tensor(py, value);
        freed.into_iter().map(convert).collect()
    }

    /// Stores a copy of the value.
    fn set_component_device_value(
        &self,
        py: Python<'_>,
        node_id: Handle,
        component: Component,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let value = TensorArg::check(value, &self.torch)??;
        self.attempt(
            py,
            |any| with_tree!(any, tree => store(tree, node_id.0, component.0, &value)),
        )
    }

    /// Spans of a key without values of a window.
    #[allow(clippy::too_many_arguments, reason = "a key is four of them")]
    fn swa_tombstone_ranges(
        &self,
        token_ids: &Bound<'_, PyAny>,
        extra_key: Option<Text<'_>>,
        cache_salt: Option<Text<'_>>,
        limit: Option<Bound<'_, PyAny>>,
        start: u64,
        end: u64,
        component: Component,
    ) -> PyResult<Vec<(usize, usize)>> {
        let py = token_ids.py();
        let key = KeyArg::new(token_ids, extra_key, cache_salt, limit)?;
        let key = key.key()?;
        let (start, end) = (start as usize, end as usize);
        self.attempt(py, |any| {
            with_tree!(any, tree => tree.window_tombstone_ranges(key, start, end, component.0))
        })
    }

    /// The split updates.
    #[allow(clippy::too_many_arguments, reason = "a key is four of them")]
    fn attach_swa_window(
        &self,
        token_ids: &Bound<'_, PyAny>,
        extra_key: Option<Text<'_>>,
        cache_salt: Option<Text<'_>>,
        limit: Option<Bound<'_, PyAny>>,
        window_start: u64,
        window_end: u64,
        swa_values: &Bound<'_, PyAny>,
        component: Component,
    ) -> PyResult<Vec<SplitTuple>> {
        let py = token_ids.py();
        let key = KeyArg::new(token_ids, extra_key, cache_salt, limit)?;
        let key = key.key()?;
        let value = match TensorArg::check(swa_values, &self.torch)? {
            Ok(value) => value,
            Err(error) => return Err(CONTRACT.raise(py, error.value(py).to_string())),
        };
        let span = (window_start as usize, window_end as usize);
        let updates = self.attempt(
            py,
            |any| with_tree!(any, tree => attach(tree, key, span, &value, component.0)),
        )?;
        Ok(updates.into_iter().map(split_tuple).collect())
    }
}

fn store<V: TensorIndices>(
    tree: &mut Tree<V>,
    id: NodeId,
    component: ComponentType,
    value: &TensorArg<'_>,
) -> Result<(), TreeError> {
    let value = V::with_source(value, |values| V::copied(values, 0, V::source_len(values)));
    tree.set_device_value(id, component, value)
}

fn attach<V: TensorIndices>(
    tree: &mut Tree<V>,
    key: Key<'_>,
    (start, end): (usize, usize),
    value: &TensorArg<'_>,
    component: ComponentType,
) -> Result<Vec<SplitUpdate>, TreeError> {
    V::with_source(value, |values| {
        tree.attach_window(key, start, end, values, component)
    })
}
