//! The contract's error classes, raised from native code.
//!
//! They live in Python and are imported when the first error is raised.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use tree_core::TreeError;

const MODULE: &str = "treedrift.backends.contract.errors";

/// A class of the contract's error module.
pub struct ErrorClass {
    name: &'static str,
    class: PyOnceLock<Py<PyType>>,
}

impl ErrorClass {
    const fn new(name: &'static str) -> Self {
        ErrorClass {
            name,
            class: PyOnceLock::new(),
        }
    }

    /// An instance with one argument; an import failure takes its place.
    pub fn raise<'py>(&self, py: Python<'py>, argument: impl IntoPyObject<'py>) -> PyErr {
        let built = self
            .class
            .import(py, MODULE, self.name)
            .and_then(|class| class.call1((argument,)));
        built.map_or_else(|failure| failure, PyErr::from_value)
    }
}

static UNKNOWN_NODE: ErrorClass = ErrorClass::new("UnknownNodeError");
static INSERT_PROTOCOL: ErrorClass = ErrorClass::new("InsertProtocolError");
static NOT_AN_ANCESTOR: ErrorClass = ErrorClass::new("AncestorError");
static UNSOUND: ErrorClass = ErrorClass::new("SanityCheckError");
/// A call out of protocol.
pub static CONTRACT: ErrorClass = ErrorClass::new("ContractError");
/// A value that no tree accepts.
pub static INVALID_ARGUMENT: ErrorClass = ErrorClass::new("InvalidArgumentError");
/// The core panicked, now or before.
pub static POISONED: ErrorClass = ErrorClass::new("CorePoisonedError");

/// The contract's error for a refusal of the tree.
pub fn refusal(py: Python<'_>, error: TreeError) -> PyErr {
    match error {
        TreeError::UnknownNode(id) => UNKNOWN_NODE.raise(py, id),
        TreeError::Contract(text) => CONTRACT.raise(py, text),
        TreeError::InvalidArgument(text) => INVALID_ARGUMENT.raise(py, text),
        TreeError::InsertProtocol(text) => INSERT_PROTOCOL.raise(py, text),
        TreeError::NotAnAncestor(text) => NOT_AN_ANCESTOR.raise(py, text),
        TreeError::Unsound(text) => UNSOUND.raise(py, text),
    }
}
