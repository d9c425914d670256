//! Why a call was refused. A refused call leaves the tree as it was.

use std::fmt;

use crate::NodeId;

/// Every way in which a call can be refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeError {
    /// The handle is stale or was never issued (BND-31).
    UnknownNode(NodeId),
    /// The call is out of protocol.
    Contract(String),
    /// No tree accepts this value.
    InvalidArgument(String),
    /// A second insert, or a resume without one (INS-1, INS-3).
    InsertProtocol(&'static str),
    /// The path's end is not an ancestor of its start (LNK-8).
    NotAnAncestor(String),
    /// `sanity_check` found violations (CHK).
    Unsound(String),
}

/// The answer of a call that can be refused.
pub type Result<T> = std::result::Result<T, TreeError>;

impl fmt::Display for TreeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TreeError::UnknownNode(id) => write!(out, "node {id} is not in the tree"),
            TreeError::InsertProtocol(text) => out.write_str(text),
            TreeError::Contract(text)
            | TreeError::InvalidArgument(text)
            | TreeError::NotAnAncestor(text)
            | TreeError::Unsound(text) => out.write_str(text),
        }
    }
}

impl std::error::Error for TreeError {}

/// A contract violation with a text.
pub(crate) fn contract<T>(text: impl Into<String>) -> Result<T> {
    Err(TreeError::Contract(text.into()))
}
