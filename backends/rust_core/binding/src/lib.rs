//! The Python boundary of `tree-core`: one native class, owned values only (BND-9).
//!
//! Every argument is converted and checked before the tree is touched, every refusal is raised as
//! the contract's own error class, and a panic poisons the core it happened in (BND-34).

mod absent;
mod arguments;
mod component_methods;
mod core;
mod errors;
mod insert_methods;
#[cfg(feature = "inspection")]
mod inspection;
mod results;
mod settings;
mod tree_methods;
mod values;

use pyo3::prelude::*;

/// The module of the production build.
#[cfg(not(feature = "inspection"))]
#[pymodule]
fn _rust_core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<core::NativeTreeCore>()
}

/// The module of the inspection build: the same names, and the methods that show state.
#[cfg(feature = "inspection")]
#[pymodule]
fn _rust_core_inspection(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<core::NativeTreeCore>()
}
