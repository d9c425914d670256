//! The rest of the native core: sizes, paths, hashes, the linker's tree side.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use tree_core::{ComponentType, NodeId, to_hex};

use crate::arguments::{Component, Flag, Handle, Many, OngoingPair};
use crate::core::{AnyValue, NativeTreeCore, private_copy, with_tree};
use crate::results::{buffer_state, hex_list};

/// `(node, parent, start, end, full_value_len | None, child_count)`.
type PathTuple = (u64, u64, usize, usize, Option<usize>, usize);

/// `(component number, device tensor, keys, whether the last pages alone are of use)`.
type OffloadTuple<'py> = (u32, Bound<'py, PyAny>, Vec<String>, bool);

fn ids(handles: Many<Handle>) -> Vec<NodeId> {
    handles.0.into_iter().map(|handle| handle.0).collect()
}

#[pymethods]
impl NativeTreeCore {
    fn component_evictable_size(&self, py: Python<'_>, component: Component) -> PyResult<i128> {
        self.with(
            py,
            |any| with_tree!(any, tree => tree.evictable_size(component.0)),
        )
    }

    fn component_protected_size(&self, py: Python<'_>, component: Component) -> PyResult<i128> {
        self.with(
            py,
            |any| with_tree!(any, tree => tree.protected_size(component.0)),
        )
    }

    /// FULL's tokens, and the entries of all other components.
    fn total_size(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        self.with(py, |any| with_tree!(any, tree => tree.total_size()))
    }

    fn adjust_component_size(
        &self,
        py: Python<'_>,
        node_id: Handle,
        component: Component,
        delta: i64,
    ) -> PyResult<()> {
        self.attempt(py, |any| {
            with_tree!(any, tree => tree.adjust_component_size(node_id.0, component.0, delta))
        })
    }

    /// Whether the handle is the root's; it must be known.
    pub fn is_root(&self, py: Python<'_>, node_id: Handle) -> PyResult<bool> {
        self.attempt(py, |any| with_tree!(any, tree => tree.is_root(node_id.0)))
    }

    fn is_full_device_evicted(&self, py: Python<'_>, node_id: Handle) -> PyResult<bool> {
        self.attempt(
            py,
            |any| with_tree!(any, tree => tree.is_full_device_evicted(node_id.0)),
        )
    }

    /// A private copy, None on the root.
    fn get_component_device_value<'py>(
        &self,
        py: Python<'py>,
        node_id: Handle,
        component: Component,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let value: Option<AnyValue> = self.attempt(py, |any| {
            with_tree!(any, tree => {
                let value = tree.device_value(node_id.0, component.0)?;
                Ok(value.as_ref().map(private_copy))
            })
        })?;
        value.map(|value| self.tensor(py, value)).transpose()
    }

    fn collect_full_device_indices<'py>(
        &self,
        py: Python<'py>,
        from_node_id: Handle,
        until_node_id: Handle,
    ) -> PyResult<Bound<'py, PyAny>> {
        let value: AnyValue = self.attempt(py, |any| {
            with_tree!(any, tree => {
                tree.collect_full_device_indices(from_node_id.0, until_node_id.0).map(Into::into)
            })
        })?;
        self.tensor(py, value)
    }

    fn collect_path_info(
        &self,
        py: Python<'_>,
        node_ids: Many<Handle>,
    ) -> PyResult<Vec<Vec<PathTuple>>> {
        let node_ids = ids(node_ids);
        let paths = self.attempt(
            py,
            |any| with_tree!(any, tree => tree.collect_path_info(&node_ids)),
        )?;
        let row = |node: &tree_core::PathNode| {
            let (start, end) = (node.start, node.end);
            (
                node.node,
                node.parent,
                start,
                end,
                node.full_value_len,
                node.child_count,
            )
        };
        Ok(paths
            .iter()
            .map(|path| path.iter().map(row).collect())
            .collect())
    }

    fn dfs_weight_order(&self, py: Python<'_>, node_ids: Many<Handle>) -> PyResult<Vec<usize>> {
        let node_ids = ids(node_ids);
        self.attempt(
            py,
            |any| with_tree!(any, tree => tree.dfs_weight_order(&node_ids)),
        )
    }

    fn all_values_flatten<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let value: AnyValue = self.with(
            py,
            |any| with_tree!(any, tree => tree.all_values_flatten(ComponentType::Full).into()),
        )?;
        self.tensor(py, value)
    }

    fn all_mamba_values_flatten<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let value: AnyValue = self.with(
            py,
            |any| with_tree!(any, tree => tree.all_values_flatten(ComponentType::Mamba).into()),
        )?;
        self.tensor(py, value)
    }

    /// `(slots, positions, previous)` as native-endian int64 bytes.
    fn walk_for_kv_canary<'py>(
        &self,
        py: Python<'py>,
        unlocked_only: Flag,
        swa_resident_only: Flag,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let rows = self.with(py, |any| {
            with_tree!(any, tree => {
                tree.walk_for_kv_canary(unlocked_only.0, swa_resident_only.0)
            })
        })?;
        let columns = [rows.slots, rows.positions, rows.previous];
        PyTuple::new(py, columns.map(|column| int64_bytes(py, &column)))
    }

    fn get_last_hash_value(&self, py: Python<'_>, node_id: Handle) -> PyResult<Option<String>> {
        self.attempt(py, |any| {
            with_tree!(any, tree => {
                let list = tree.hash_values(node_id.0)?;
                Ok(list.and_then(<[_]>::last).map(to_hex))
            })
        })
    }

    fn get_hash_values(&self, py: Python<'_>, node_id: Handle) -> PyResult<Vec<String>> {
        self.attempt(py, |any| {
            with_tree!(any, tree => Ok(hex_list(tree.hash_values(node_id.0)?.unwrap_or(&[]))))
        })
    }

    fn get_prefix_hash_values(&self, py: Python<'_>, node_id: Handle) -> PyResult<Vec<String>> {
        self.attempt(py, |any| {
            with_tree!(any, tree => tree.prefix_hash_values(node_id.0).map(|list| hex_list(&list)))
        })
    }

    fn backfill_missing_hash_values(&self, py: Python<'_>) -> PyResult<usize> {
        self.attempt(
            py,
            |any| with_tree!(any, tree => tree.backfill_missing_hash_values()),
        )
    }

    /// `(state, hashes, token bytes, extra_key, cache_salt, prefix | None)`, or None.
    fn snapshot_buffer_backup<'py>(
        &self,
        py: Python<'py>,
        node_id: Handle,
        with_prefix: Flag,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let snapshot = self.with(py, |any| {
            with_tree!(any, tree => {
                tree.snapshot_buffer_backup(node_id.0, with_prefix.0).map(|snapshot| (
                    buffer_state(&snapshot.state),
                    hex_list(snapshot.hashes),
                    int64_bytes(py, snapshot.tokens),
                    snapshot.extra_key.map(String::from),
                    snapshot.cache_salt.map(String::from),
                    snapshot.prefix.as_deref().map(hex_list),
                ))
            })
        })?;
        snapshot.map(|fields| fields.into_pyobject(py)).transpose()
    }

    /// `(parent, parent_is_root, parent_last_hash | None)`, or None.
    fn validate_buffer_backup(
        &self,
        py: Python<'_>,
        node_id: Handle,
        expected_key_length: u64,
    ) -> PyResult<Option<(u64, bool, Option<String>)>> {
        self.with(py, |any| {
            with_tree!(any, tree => {
                let state = tree.validate_buffer_backup(node_id.0, expected_key_length);
                state.as_ref().map(buffer_state)
            })
        })
    }

    /// `(extra_key, cache_salt)`.
    fn prefetch_anchor_info(
        &self,
        py: Python<'_>,
        node_id: Handle,
    ) -> PyResult<(Option<String>, Option<String>)> {
        self.attempt(py, |any| {
            with_tree!(any, tree => {
                let (extra_key, cache_salt) = tree.namespace_of(node_id.0)?;
                Ok((extra_key.map(String::from), cache_salt.map(String::from)))
            })
        })
    }

    fn build_backup_chain(&self, py: Python<'_>, node_id: Handle) -> PyResult<Vec<u64>> {
        self.attempt(
            py,
            |any| with_tree!(any, tree => tree.build_backup_chain(node_id.0)),
        )
    }

    /// A list of offload tuples, or None.
    fn build_offload<'py>(
        &self,
        py: Python<'py>,
        node_id: Handle,
    ) -> PyResult<Option<Vec<OffloadTuple<'py>>>> {
        let plans = self.attempt(py, |any| {
            with_tree!(any, tree => {
                let plans = tree.build_offload(node_id.0)?;
                Ok(plans.map(|plans| {
                    let plan = |plan: &tree_core::OffloadPlan<'_, _>| {
                        let device = private_copy(&plan.device);
                        (plan.component as u32, device, hex_list(plan.keys), plan.is_tail)
                    };
                    plans.iter().map(plan).collect::<Vec<_>>()
                }))
            })
        })?;
        let Some(plans) = plans else { return Ok(None) };
        let convert = |(component, value, keys, is_tail)| {
            Ok((component, self.tensor(py, value)?, keys, is_tail))
        };
        let plans = plans.into_iter().map(convert);
        plans.collect::<PyResult<_>>().map(Some)
    }

    fn mark_offload_pending(&self, py: Python<'_>, node_id: Handle) -> PyResult<()> {
        self.attempt(
            py,
            |any| with_tree!(any, tree => tree.mark_offload_pending(node_id.0)),
        )
    }

    fn finish_offload(
        &self,
        py: Python<'_>,
        node_ids: Many<Handle>,
        ack_id: Handle,
        success: Flag,
    ) -> PyResult<()> {
        let node_ids = ids(node_ids);
        self.attempt(
            py,
            |any| with_tree!(any, tree => tree.finish_offload(&node_ids, ack_id.0, success.0)),
        )
    }

    fn mark_stored_path(
        &self,
        py: Python<'_>,
        from_node_id: Handle,
        until_node_id: Handle,
    ) -> PyResult<()> {
        self.attempt(
            py,
            |any| with_tree!(any, tree => tree.mark_stored_path(from_node_id.0, until_node_id.0)),
        )
    }

    fn sanity_check(
        &self,
        py: Python<'_>,
        ongoing_write_through: Many<OngoingPair>,
        ongoing_load_back: Many<OngoingPair>,
    ) -> PyResult<()> {
        let plain = |pairs: Many<OngoingPair>| -> Vec<_> {
            pairs.0.into_iter().map(|pair| (pair.0, pair.1)).collect()
        };
        let (writes, loads) = (plain(ongoing_write_through), plain(ongoing_load_back));
        self.attempt(
            py,
            |any| with_tree!(any, tree => tree.sanity_check(&writes, &loads)),
        )
    }

    fn tree_text(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |any| with_tree!(any, tree => tree.pretty_print()))
    }
}

fn int64_bytes<'py>(py: Python<'py>, column: &[i64]) -> Bound<'py, PyBytes> {
    // SAFETY: any initialised memory may be read as bytes, and `i64` has no padding.
    let bytes = unsafe { std::slice::from_raw_parts(column.as_ptr().cast(), size_of_val(column)) };
    PyBytes::new(py, bytes)
}
