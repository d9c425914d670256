//! Arguments as they come from Python (BND-21 to BND-26).

use pyo3::buffer::PyBuffer;
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyInt, PyMapping, PyString, PyType};
use tree_core::{ComponentType, Key, LockReceipt, Marks, NodeId};

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

/// A real `bool` (BND-24).
#[derive(Clone, Copy)]
pub struct Flag(pub bool);

impl FromPyObject<'_, '_> for Flag {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        match object.cast::<PyBool>() {
            Ok(value) => Ok(Flag(value.is_true())),
            Err(_) => Err(PyTypeError::new_err("a flag must be a bool")),
        }
    }
}

/// A `str` that can be encoded (BND-25).
pub struct Text<'py>(Bound<'py, PyString>);

impl<'py> FromPyObject<'_, 'py> for Text<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let text = object.cast::<PyString>()?.to_owned();
        text.to_str()?;
        Ok(Text(text))
    }
}

impl Text<'_> {
    /// The text itself.
    pub fn as_str(&self) -> PyResult<&str> {
        self.0.to_str()
    }
}

/// The items of any iterable.
pub struct Many<T>(pub Vec<T>);

impl<'py, T: FromPyObjectOwned<'py>> FromPyObject<'_, 'py> for Many<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let items = object.try_iter()?;
        let convert = |item: PyResult<Bound<'py, PyAny>>| item?.extract().map_err(Into::into);
        items.map(convert).collect::<PyResult<_>>().map(Many)
    }
}

/// A mapping from components to numbers; every entry is converted, whichever are used.
pub struct PerComponent<T>(Vec<(ComponentType, T)>);

impl<'py, T: FromPyObjectOwned<'py>> FromPyObject<'_, 'py> for PerComponent<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let mut entries = Vec::new();
        for entry in object.cast::<PyMapping>()?.items()?.try_iter()? {
            let (key, value): (Bound<'py, PyAny>, Bound<'py, PyAny>) = entry?.extract()?;
            let component: Component = key.extract()?;
            entries.push((component.0, value.extract().map_err(Into::into)?));
        }
        Ok(PerComponent(entries))
    }
}

impl<T> PerComponent<T> {
    /// All entries.
    pub fn entries(&self) -> &[(ComponentType, T)] {
        &self.0
    }
}

impl<T: Copy> PerComponent<T> {
    /// The number of a component, the last one if several keys mean it.
    pub fn get(&self, component: ComponentType) -> Option<T> {
        let mut entries = self.0.iter().rev();
        entries
            .find(|entry| entry.0 == component)
            .map(|entry| entry.1)
    }
}

/// The fields of a `DecLockRefParams`, all of them converted.
pub struct Receipt(pub LockReceipt);

impl FromPyObject<'_, '_> for Receipt {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let node: Option<Handle> = object.getattr(intern!(py, "node_id"))?.extract()?;
        let skipped = object.getattr(intern!(py, "skipped_lock_components"))?;
        let skipped: Many<Component> = skipped.extract()?;
        let uuids = object.getattr(intern!(py, "component_lock_uuids"))?;
        let uuids: PerComponent<Option<i64>> = uuids.extract()?;
        let host_uuids = object.getattr(intern!(py, "component_host_lock_uuids"))?;
        let host_uuids: PerComponent<Option<i64>> = host_uuids.extract()?;
        Ok(Receipt(LockReceipt {
            node: node.map(|handle| handle.0),
            skipped: skipped.0.into_iter().map(|item| item.0).collect(),
            delta: None,
            marks: marks(&uuids),
            host_marks: marks(&host_uuids),
        }))
    }
}

fn marks(entries: &PerComponent<Option<i64>>) -> Marks {
    let mut marks = Marks::default();
    for &(component, mark) in entries.entries() {
        marks.set(component, mark);
    }
    marks
}

/// An operation and the node it is about.
pub struct OngoingPair(pub i64, pub NodeId);

impl FromPyObject<'_, '_> for OngoingPair {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let Many(items) = object.extract::<Many<Bound<'_, PyAny>>>()?;
        let [operation, node] = items.as_slice() else {
            return Err(PyValueError::new_err("an ongoing operation is a pair"));
        };
        Ok(OngoingPair(
            operation.extract()?,
            node.extract::<Handle>()?.0,
        ))
    }
}

/// A key whose tokens are borrowed from the caller's array.
pub struct KeyArg<'py> {
    // `None` for an empty array, whose buffer points nowhere.
    buffer: Option<PyBuffer<i64>>,
    len: usize,
    extra_key: Option<Text<'py>>,
    cache_salt: Option<Text<'py>>,
}

impl<'py> KeyArg<'py> {
    /// Refuses anything but an `array('q')`, and a negative limit (KEY-2, KEY-4).
    pub fn new(
        token_ids: &Bound<'py, PyAny>,
        extra_key: Option<Text<'py>>,
        cache_salt: Option<Text<'py>>,
        limit: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        let py = token_ids.py();
        let Some(buffer) = token_buffer(token_ids)? else {
            return Err(CONTRACT.raise(py, "a key's token_ids must be an array('q')"));
        };
        let mut len = buffer.as_ref().map_or(0, |buffer| buffer.item_count());
        if let Some(limit) = limit {
            match limit.extract::<usize>() {
                Ok(limit) => len = len.min(limit),
                Err(error) if !error.is_instance_of::<PyOverflowError>(py) => return Err(error),
                Err(_) if limit.lt(0)? => {
                    return Err(INVALID_ARGUMENT.raise(py, "a key's limit must not be negative"));
                }
                Err(_) => {} // Beyond every length, so it cuts nothing.
            }
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
            extra_key: self.extra_key.as_ref().map(Text::as_str).transpose()?,
            cache_salt: self.cache_salt.as_ref().map(Text::as_str).transpose()?,
        })
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
