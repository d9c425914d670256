//! What may be changed on a native core at any time (KEY-51).

use pyo3::prelude::*;

use crate::arguments::Flag;
use crate::core::{NativeTreeCore, with_tree};

#[pymethods]
impl NativeTreeCore {
    #[getter]
    fn enable_storage(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(
            py,
            |any| with_tree!(any, tree => tree.settings.enable_storage),
        )
    }

    #[setter]
    fn set_enable_storage(&self, py: Python<'_>, value: Flag) -> PyResult<()> {
        self.with(
            py,
            |any| with_tree!(any, tree => tree.settings.enable_storage = value.0),
        )
    }

    #[getter]
    fn enable_external_cache_linker(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(
            py,
            |any| with_tree!(any, tree => tree.settings.enable_external_cache_linker),
        )
    }

    #[setter]
    fn set_enable_external_cache_linker(&self, py: Python<'_>, value: Flag) -> PyResult<()> {
        self.with(
            py,
            |any| with_tree!(any, tree => tree.settings.enable_external_cache_linker = value.0),
        )
    }

    #[getter]
    fn is_write_back(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(
            py,
            |any| with_tree!(any, tree => tree.settings.is_write_back),
        )
    }

    #[setter]
    fn set_is_write_back(&self, py: Python<'_>, value: Flag) -> PyResult<()> {
        self.with(
            py,
            |any| with_tree!(any, tree => tree.settings.is_write_back = value.0),
        )
    }

    #[getter]
    fn write_through_threshold(&self, py: Python<'_>) -> PyResult<i64> {
        self.with(
            py,
            |any| with_tree!(any, tree => tree.settings.write_through_threshold),
        )
    }

    #[setter]
    fn set_write_through_threshold(&self, py: Python<'_>, value: i64) -> PyResult<()> {
        self.with(
            py,
            |any| with_tree!(any, tree => tree.settings.write_through_threshold = value),
        )
    }

    #[getter]
    fn is_host_memory_buffer_only(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(
            py,
            |any| with_tree!(any, tree => tree.settings.is_host_memory_buffer_only),
        )
    }

    fn set_host_memory_buffer_only(&self, py: Python<'_>) -> PyResult<()> {
        self.with(
            py,
            |any| with_tree!(any, tree => tree.settings.is_host_memory_buffer_only = true),
        )
    }
}
