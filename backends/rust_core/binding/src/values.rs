//! Slot indices on both sides of the boundary: host spans and torch tensors.
//!
//! On the CPU the tree keeps plain numbers, copied from contiguous tensors and handed back as
//! tensors over the tree's own buffers; a state stays the tensor that it came as. On another device it keeps tensors and only lets torch
//! cut and join them, so that nothing is copied to the host.

use std::ffi::{c_int, c_void};

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyType};
use pyo3::{IntoPyObjectExt, intern};
use tree_core::{HostIndices, Indices, Span};

use crate::errors::INVALID_ARGUMENT;

/// Index values that can leave as a tensor.
pub trait TensorIndices: Indices + Send + Sync + 'static {
    /// A state: the caller's own one-element tensor, kept as it is (MAM-I6).
    fn state(tensor: Py<PyAny>) -> Self;

    /// A 1-D int64 tensor on the core's device that nobody else writes to.
    fn into_tensor<'py>(self, py: Python<'py>, torch: &Torch) -> PyResult<Bound<'py, PyAny>>;

    /// Runs `use_source` on the indices that a checked value holds.
    fn with_source<R>(value: &TensorArg<'_>, use_source: impl FnOnce(&Self::Source) -> R) -> R;
}

/// What the boundary needs of torch, looked up once per core.
pub struct Torch {
    device: Py<PyAny>,
    int64: Py<PyAny>,
    is_host: bool,
    /// `torch.frombuffer` with the dtype filled in.
    from_buffer: Py<PyAny>,
}

impl Torch {
    /// For cores on `device`; `is_host` cores keep their indices as plain numbers.
    pub fn new(device: &Bound<'_, PyAny>, is_host: bool) -> PyResult<Self> {
        let py = device.py();
        let torch = py.import("torch")?;
        let int64 = torch.getattr("int64")?;
        let options = PyDict::new(py);
        options.set_item("dtype", &int64)?;
        let from_buffer = py.import("functools")?.getattr("partial")?;
        let from_buffer = from_buffer.call((torch.getattr("frombuffer")?,), Some(&options))?;
        Ok(Torch {
            device: device.clone().unbind(),
            int64: int64.unbind(),
            is_host,
            from_buffer: from_buffer.unbind(),
        })
    }

    /// Whether a value is a state: a 1-D integer tensor of one element, on the core's device.
    /// A `TypeError` for what is no tensor at all.
    pub fn is_state(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = value.py();
        check_tensor_type(value)?;
        let dtype = value.getattr(intern!(py, "dtype"))?;
        let is_number = |name| dtype.getattr(name)?.extract::<bool>();
        let is_flag = || dtype.eq(py.import("torch")?.getattr("bool")?);
        let is_integer =
            !is_number("is_floating_point")? && !is_number("is_complex")? && !is_flag()?;
        let shape: Vec<usize> = value.getattr(intern!(py, "shape"))?.extract()?;
        let is_here = value.getattr(intern!(py, "device"))?.eq(&self.device)?;
        Ok(is_integer && is_here && shape == [1])
    }

    fn empty<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let options = PyDict::new(py);
        options.set_item("dtype", &self.int64)?;
        options.set_item("device", &self.device)?;
        py.import("torch")?
            .call_method("empty", (0,), Some(&options))
    }
}

/// Refuses what is no tensor at all.
pub fn check_tensor_type(value: &Bound<'_, PyAny>) -> PyResult<()> {
    static TENSOR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    match value.is_instance(TENSOR.import(value.py(), "torch", "Tensor")?)? {
        true => Ok(()),
        false => Err(PyTypeError::new_err("a value must be a tensor")),
    }
}

/// An insert's value after its checks.
pub struct TensorArg<'py> {
    tensor: Bound<'py, PyAny>,
    /// First element in host memory; unused elsewhere.
    data: *const i64,
    len: usize,
}

impl<'py> TensorArg<'py> {
    /// Refuses what is not a 1-D int64 tensor on the core's device (BND-27). The outer error is a
    /// `TypeError` for what is no tensor at all, the inner one stands back behind protocol errors.
    pub fn check(value: &Bound<'py, PyAny>, torch: &Torch) -> PyResult<PyResult<Self>> {
        check_tensor_type(value)?;
        Ok(Self::check_tensor(value, torch))
    }

    fn check_tensor(value: &Bound<'py, PyAny>, torch: &Torch) -> PyResult<Self> {
        let py = value.py();
        let refuse = |text: &str| Err(INVALID_ARGUMENT.raise(py, text));
        if !value.getattr(intern!(py, "dtype"))?.is(&torch.int64) {
            return refuse("index values must be int64");
        }
        if !value.getattr(intern!(py, "device"))?.eq(&torch.device)? {
            return refuse("index values must be on the core's device");
        }
        let dimensions: usize = value.call_method0(intern!(py, "dim"))?.extract()?;
        if dimensions != 1 {
            return refuse("index values must be one-dimensional");
        }
        // `len()` of a tensor is Python code; `numel()` is not.
        let len = value.call_method0(intern!(py, "numel"))?.extract()?;
        if !torch.is_host {
            return Ok(TensorArg {
                tensor: value.clone(),
                data: std::ptr::null(),
                len,
            });
        }
        let tensor = value.call_method0(intern!(py, "contiguous"))?;
        let address: usize = tensor.call_method0(intern!(py, "data_ptr"))?.extract()?;
        Ok(TensorArg {
            tensor,
            data: address as *const i64,
            len,
        })
    }
}

/// Indices of a core on the CPU: plain numbers, but for a state the tensor that came with it.
pub enum HostSlots {
    /// Slots.
    Numbers(HostIndices),
    /// A state of one element.
    State(Py<PyAny>),
}

impl Clone for HostSlots {
    fn clone(&self) -> Self {
        match self {
            HostSlots::Numbers(numbers) => HostSlots::Numbers(numbers.clone()),
            HostSlots::State(tensor) => HostSlots::State(Python::attach(|py| tensor.clone_ref(py))),
        }
    }
}

impl Indices for HostSlots {
    type Source = [i64];

    fn copied(source: &[i64], start: usize, end: usize) -> Self {
        HostSlots::Numbers(Span::copied(&source[start..end]))
    }

    fn source_len(source: &[i64]) -> usize {
        source.len()
    }

    fn len(&self) -> usize {
        match self {
            HostSlots::Numbers(numbers) => Indices::len(numbers),
            HostSlots::State(_) => 1,
        }
    }

    fn slice(&self, start: usize, end: usize) -> Self {
        HostSlots::Numbers(self.to_host().slice(start, end))
    }

    fn concat(parts: &[&Self]) -> Self {
        let parts: Vec<HostIndices> = parts.iter().map(|part| part.to_host()).collect();
        HostSlots::Numbers(Span::joined(&parts.iter().collect::<Vec<_>>()))
    }

    fn to_host(&self) -> Span<i64> {
        match self {
            HostSlots::Numbers(numbers) => numbers.clone(),
            HostSlots::State(tensor) => Python::attach(|py| numbers_of(tensor.bind(py))),
        }
    }
}

fn numbers_of(tensor: &Bound<'_, PyAny>) -> Span<i64> {
    let list = must(tensor.call_method0("tolist"));
    Span::from(must(list.extract::<Vec<i64>>()))
}

impl TensorIndices for HostSlots {
    fn state(tensor: Py<PyAny>) -> Self {
        HostSlots::State(tensor)
    }

    fn into_tensor<'py>(self, py: Python<'py>, torch: &Torch) -> PyResult<Bound<'py, PyAny>> {
        match self {
            HostSlots::State(tensor) => Ok(tensor.into_bound(py)),
            HostSlots::Numbers(numbers) if numbers.is_empty() => torch.empty(py),
            HostSlots::Numbers(numbers) => {
                let buffer = IndexBuffer(numbers).into_bound_py_any(py)?;
                torch.from_buffer.bind(py).call1((buffer,))
            }
        }
    }

    fn with_source<R>(value: &TensorArg<'_>, use_source: impl FnOnce(&[i64]) -> R) -> R {
        if value.len == 0 {
            return use_source(&[]);
        }
        // SAFETY: `check` saw a contiguous int64 tensor of this length in host memory, which
        // `value.tensor` keeps alive. The interpreter lock is held and the tree runs no Python
        // code on host values, so nobody writes to it meanwhile.
        use_source(unsafe { std::slice::from_raw_parts(value.data, value.len) })
    }
}

/// A span as a Python buffer, for `torch.frombuffer` to build on without a copy. The tensor is
/// writable, so only spans that the tree no longer reads, or private copies, may be wrapped.
#[pyclass(frozen)]
struct IndexBuffer(HostIndices);

#[pymethods]
impl IndexBuffer {
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let items: &[i64] = &slf.get().0;
        let bytes = isize::try_from(size_of_val(items))
            .map_err(|_| PyBufferError::new_err("too many indices"))?;
        let data = items.as_ptr().cast_mut().cast::<c_void>();
        // SAFETY: `view` comes from the interpreter. The memory lives as long as `slf`, which the
        // view holds, and is not read through the tree any more.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), data, bytes, 0, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}

/// Indices in the memory of another device, as a tensor; `None` stands for no index at all.
#[derive(Default)]
pub struct DeviceIndices {
    tensor: Option<Py<PyAny>>,
    len: usize,
}

impl Clone for DeviceIndices {
    fn clone(&self) -> Self {
        let tensor = self.tensor.as_ref();
        DeviceIndices {
            tensor: tensor.map(|tensor| Python::attach(|py| tensor.clone_ref(py))),
            len: self.len,
        }
    }
}

/// A caller's tensor and its length.
pub struct DeviceSource(Py<PyAny>, usize);

fn narrow<'py>(
    tensor: &Bound<'py, PyAny>,
    start: usize,
    end: usize,
) -> PyResult<Bound<'py, PyAny>> {
    tensor.call_method1(intern!(tensor.py(), "narrow"), (0, start, end - start))
}

/// Torch fails on valid slices only when the device does; that must not leave half a change
/// behind, so it counts as a panic of the core.
fn must<T>(outcome: PyResult<T>) -> T {
    outcome.unwrap_or_else(|error| panic!("torch failed: {error}"))
}

impl Indices for DeviceIndices {
    type Source = DeviceSource;

    fn copied(source: &DeviceSource, start: usize, end: usize) -> Self {
        if start == end {
            return DeviceIndices::default();
        }
        let tensor = Python::attach(|py| {
            let part = must(narrow(source.0.bind(py), start, end));
            must(part.call_method0(intern!(py, "clone"))).unbind()
        });
        DeviceIndices {
            tensor: Some(tensor),
            len: end - start,
        }
    }

    fn source_len(source: &DeviceSource) -> usize {
        source.1
    }

    fn len(&self) -> usize {
        self.len
    }

    fn slice(&self, start: usize, end: usize) -> Self {
        let Some(tensor) = self.tensor.as_ref().filter(|_| start < end) else {
            return DeviceIndices::default();
        };
        let tensor = Python::attach(|py| must(narrow(tensor.bind(py), start, end)).unbind());
        DeviceIndices {
            tensor: Some(tensor),
            len: end - start,
        }
    }

    fn concat(parts: &[&Self]) -> Self {
        let len = parts.iter().map(|part| part.len).sum();
        if len == 0 {
            return DeviceIndices::default();
        }
        let tensor = Python::attach(|py| {
            let tensors = parts.iter().filter_map(|part| part.tensor.as_ref());
            let tensors = must(PyList::new(py, tensors.collect::<Vec<_>>()));
            must(must(py.import("torch")).call_method1("cat", (tensors,))).unbind()
        });
        DeviceIndices {
            tensor: Some(tensor),
            len,
        }
    }

    fn to_host(&self) -> Span<i64> {
        let Some(tensor) = &self.tensor else {
            return Span::empty();
        };
        Python::attach(|py| numbers_of(tensor.bind(py)))
    }
}

impl TensorIndices for DeviceIndices {
    fn state(tensor: Py<PyAny>) -> Self {
        DeviceIndices {
            tensor: Some(tensor),
            len: 1,
        }
    }

    fn into_tensor<'py>(self, py: Python<'py>, torch: &Torch) -> PyResult<Bound<'py, PyAny>> {
        match self.tensor {
            Some(tensor) => Ok(tensor.into_bound(py)),
            None => torch.empty(py),
        }
    }

    fn with_source<R>(value: &TensorArg<'_>, use_source: impl FnOnce(&DeviceSource) -> R) -> R {
        use_source(&DeviceSource(value.tensor.clone().unbind(), value.len))
    }
}
