//! Arguments as they come from Python (BND-21 to BND-26).

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyInt, PyString, PyType};
use tree_core::{ComponentType, Key, NodeId};

use crate::errors::{CONTRACT, INVALID_ARGUMENT};

/// A node handle: an `int` that is no `bool`, within 64 unsigned bits.
#[derive(Clone, Copy)]
pub struct Handle(pub NodeId);

impl FromPyObject<'_, '_> for Handle {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if !object.is_instance_of::<PyInt>() || object.is_instance_of::<PyBool>() {
            return Err(PyTypeError::new_err("a node handle must be an int"));
        }
        object.extract().map(Handle)
    }
}

/// A component by its number.
#[derive(Clone, Copy)]
pub struct Component(pub ComponentType);

impl FromPyObject<'_, '_> for Component {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let number: u8 = object.extract()?;
        ComponentType::from_number(number)
            .map(Component)
            .ok_or_else(|| {
                let text = format!("unknown component type: {number}");
                INVALID_ARGUMENT.raise(object.py(), text)
            })
    }
}

/// A key whose tokens are borrowed from the caller's array.
pub struct KeyArg<'py> {
    // `None` for an empty array, whose buffer points nowhere.
    buffer: Option<PyBuffer<i64>>,
    len: usize,
    extra_key: Option<Bound<'py, PyString>>,
    cache_salt: Option<Bound<'py, PyString>>,
}

impl<'py> KeyArg<'py> {
    /// Refuses anything but an `array('q')`, and a negative limit (KEY-2, KEY-4).
    pub fn new(
        token_ids: &Bound<'py, PyAny>,
        extra_key: Option<Bound<'py, PyString>>,
        cache_salt: Option<Bound<'py, PyString>>,
        limit: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        let py = token_ids.py();
        let Some(buffer) = token_buffer(token_ids)? else {
            return Err(CONTRACT.raise(py, "a key's token_ids must be an array('q')"));
        };
        let mut len = buffer.as_ref().map_or(0, |buffer| buffer.item_count());
        if let Some(limit) = limit {
            if limit.lt(0)? {
                return Err(INVALID_ARGUMENT.raise(py, "a key's limit must not be negative"));
            }
            len = len.min(limit.extract()?);
        }
        Ok(KeyArg {
            buffer,
            len,
            extra_key,
            cache_salt,
        })
    }

    /// The key as the tree takes it.
    pub fn key(&self) -> PyResult<Key<'_>> {
        let tokens: &[i64] = match &self.buffer {
            // SAFETY: an `array('q')` is contiguous, aligned and at least this long, and the
            // buffer keeps it from moving. The interpreter lock is held for the whole call, so
            // that no other thread writes to it; this is why native work never gives it up.
            Some(buffer) => unsafe {
                std::slice::from_raw_parts(buffer.buf_ptr().cast(), self.len)
            },
            None => &[],
        };
        Ok(Key {
            tokens,
            extra_key: self
                .extra_key
                .as_ref()
                .map(|text| text.to_str())
                .transpose()?,
            cache_salt: self
                .cache_salt
                .as_ref()
                .map(|text| text.to_str())
                .transpose()?,
        })
    }

    /// The extra key as it came.
    pub fn extra_key(&self) -> Option<&Bound<'py, PyString>> {
        self.extra_key.as_ref()
    }
}

/// The memory of an `array('q')`, without one for an empty array; `None` for anything else.
fn token_buffer(token_ids: &Bound<'_, PyAny>) -> PyResult<Option<Option<PyBuffer<i64>>>> {
    static ARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = token_ids.py();
    if !token_ids.is_instance(ARRAY.import(py, "array", "array")?)? {
        return Ok(None);
    }
    if let Ok(buffer) = PyBuffer::<i64>::get(token_ids) {
        let is_signed_word = buffer.format().to_bytes() == b"q";
        return Ok(is_signed_word.then_some(Some(buffer)));
    }
    let is_empty = token_ids.len()? == 0 && token_ids.getattr("typecode")?.eq("q")?;
    Ok(is_empty.then_some(None))
}
