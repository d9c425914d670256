//! What the tree stores per key unit: opaque slot indices that can be cut and joined.
//!
//! The tree never looks at an index, so the same tree serves slots on the host and slots that
//! live in device memory. Hides where the indices are.

use crate::span::Span;

/// A run of slot indices, one per key unit, owned by the tree.
pub trait Indices: Clone {
    /// What a caller hands to an insert; the tree copies from it and never keeps it.
    type Source: ?Sized;

    /// A private copy of `[start, end)` of the caller's indices.
    fn copied(source: &Self::Source, start: usize, end: usize) -> Self;

    /// How many indices the caller gave.
    fn source_len(source: &Self::Source) -> usize;

    /// How many indices there are.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The run `[start, end)`; it may share memory with this one.
    fn slice(&self, start: usize, end: usize) -> Self;

    /// All parts in order, as one fresh run.
    fn concat(parts: &[&Self]) -> Self;

    /// The numbers themselves, for the calls that report slots one by one.
    fn to_host(&self) -> Span<i64>;
}

/// Indices in host memory.
pub type HostIndices = Span<i64>;

impl Indices for HostIndices {
    type Source = [i64];

    fn copied(source: &[i64], start: usize, end: usize) -> Self {
        Span::copied(&source[start..end])
    }

    fn source_len(source: &[i64]) -> usize {
        source.len()
    }

    fn len(&self) -> usize {
        (**self).len()
    }

    fn slice(&self, start: usize, end: usize) -> Self {
        Span::slice(self, start, end)
    }

    fn concat(parts: &[&Self]) -> Self {
        Span::joined(parts)
    }

    fn to_host(&self) -> Span<i64> {
        self.clone()
    }
}
