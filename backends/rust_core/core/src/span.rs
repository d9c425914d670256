//! A shared slice: splitting one copies nothing.
//!
//! Node keys, slot indices and hash lists are all spans. Hides who else shares the buffer.

use std::ops::Deref;
use std::sync::Arc;

/// A range of an immutable shared buffer.
#[derive(Clone, Debug)]
pub struct Span<T> {
    // `None` is the empty span, so that an empty one costs no allocation.
    buffer: Option<Arc<[T]>>,
    start: usize,
    end: usize,
}

impl<T> Span<T> {
    /// The span without elements.
    pub const fn empty() -> Self {
        Span {
            buffer: None,
            start: 0,
            end: 0,
        }
    }

    /// Elements `[start, end)` of this span, sharing its buffer.
    ///
    /// # Panics
    /// If the range does not lie within the span.
    pub fn slice(&self, start: usize, end: usize) -> Self {
        assert!(
            start <= end && end <= self.len(),
            "a span of {} has no range {start}..{end}",
            self.len()
        );
        Span {
            buffer: self.buffer.clone(),
            start: self.start + start,
            end: self.start + end,
        }
    }

    /// Keeps `[at, len)` and returns `[0, at)`.
    pub fn cut_front(&mut self, at: usize) -> Self {
        let front = self.slice(0, at);
        self.start += at;
        front
    }
}

impl<T: Copy> Span<T> {
    /// All parts in order, in a buffer of their own.
    pub fn joined(parts: &[&Self]) -> Self {
        let end = parts.iter().map(|part| part.len()).sum();
        if end == 0 {
            return Span::empty();
        }
        // Filled in place: going through a `Vec` would copy everything twice.
        let mut buffer = Arc::<[T]>::new_uninit_slice(end);
        let mut rest = Arc::get_mut(&mut buffer).expect("a new buffer is not shared");
        for part in parts {
            let (head, tail) = rest.split_at_mut(part.len());
            head.write_copy_of_slice(part);
            rest = tail;
        }
        // SAFETY: the parts' lengths add up to `end`, so every element was written.
        let buffer = Some(unsafe { buffer.assume_init() });
        Span {
            buffer,
            start: 0,
            end,
        }
    }

    /// A span over a private copy of `items`.
    pub fn copied(items: &[T]) -> Self {
        Span {
            buffer: (!items.is_empty()).then(|| Arc::from(items)),
            start: 0,
            end: items.len(),
        }
    }
}

impl<T> From<Vec<T>> for Span<T> {
    fn from(items: Vec<T>) -> Self {
        let end = items.len();
        Span {
            buffer: (end > 0).then(|| Arc::from(items)),
            start: 0,
            end,
        }
    }
}

impl<T: PartialEq> PartialEq for Span<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for Span<T> {}

impl<T> Deref for Span<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.buffer {
            Some(buffer) => &buffer[self.start..self.end],
            None => &[],
        }
    }
}
