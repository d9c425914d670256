//! The native core as Python sees it: matching, inserting, configuration.
//!
//! A call converts its arguments, locks the core, works, and converts the answer. The interpreter
//! lock is kept throughout: most calls take less time than giving it up and taking it back, and
//! a key is read straight from the caller's array, which another thread could write to.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyString, PyTuple};
use tree_core::{
    ComponentType, EventFormat, HostIndices, Indices, InsertRequest, InsertStep, Key, NodeId,
    PageLayout, Policy, TailBudget, Tree, TreeConfig, TreeError,
};

use crate::arguments::{Flag, Handle, KeyArg, PerComponent, Text};
use crate::errors::{INVALID_ARGUMENT, POISONED, refusal};
use crate::results;
use crate::values::{DeviceIndices, TensorArg, TensorIndices, Torch};

/// A tree over either kind of index values.
pub enum AnyTree {
    /// Slots are plain numbers.
    Host(Tree<HostIndices>),
    /// Slots live in device memory.
    Device(Tree<DeviceIndices>),
}

/// Runs one expression on whichever tree there is.
macro_rules! with_tree {
    ($any:expr, $tree:ident => $body:expr) => {
        match $any {
            $crate::core::AnyTree::Host($tree) => $body,
            $crate::core::AnyTree::Device($tree) => $body,
        }
    };
}
pub(crate) use with_tree;

/// The core. It cannot be subclassed, copied or pickled and takes no new attributes (BND-3).
#[pyclass(frozen, module = "treedrift._rust_core")]
pub struct NativeTreeCore {
    tree: Mutex<AnyTree>,
    /// What the boundary needs of torch.
    pub torch: Torch,
    is_bigram: bool,
    /// Names the adapter behind an extra key; `None` when events are off (EVT-17).
    lora_names: Option<Py<PyAny>>,
}

impl NativeTreeCore {
    /// Locks the core and works on its tree. A panic poisons the lock, and with it the core.
    pub fn with<R>(&self, py: Python<'_>, work: impl FnOnce(&mut AnyTree) -> R) -> PyResult<R> {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let mut tree = self.tree.lock_py_attached(py).ok()?;
            Some(work(&mut tree))
        }));
        match outcome {
            Ok(Some(result)) => Ok(result),
            Ok(None) => Err(POISONED.raise(py, "this core panicked before and refuses every call")),
            Err(panic) => Err(POISONED.raise(py, panic_text(panic.as_ref()))),
        }
    }

    /// Like `with`, for work that the tree can refuse.
    pub fn attempt<R>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut AnyTree) -> Result<R, TreeError>,
    ) -> PyResult<R> {
        self.with(py, work)?.map_err(|error| refusal(py, error))
    }

    /// A tensor over indices that the tree has given up or copied.
    pub fn tensor<'py>(&self, py: Python<'py>, value: AnyValue) -> PyResult<Bound<'py, PyAny>> {
        match value {
            AnyValue::Host(value) => value.into_tensor(py, &self.torch),
            AnyValue::Device(value) => value.into_tensor(py, &self.torch),
        }
    }

    /// The current name of the adapter behind an extra key.
    fn lora_name<'py>(
        &self,
        py: Python<'py>,
        extra_key: Option<&str>,
    ) -> PyResult<Option<Bound<'py, PyString>>> {
        match &self.lora_names {
            Some(names) => Ok(names.bind(py).call1((extra_key,))?.extract()?),
            None => Ok(None),
        }
    }

    /// Looks up the name behind a node's namespace, for the events that follow (EVT-19).
    pub fn refresh_lora_name(&self, py: Python<'_>, id: NodeId) -> PyResult<()> {
        if self.lora_names.is_none() {
            return Ok(());
        }
        let namespace = self.attempt(
            py,
            |any| with_tree!(any, tree => tree.namespace_of(id).map(owned_namespace)),
        )?;
        self.name_namespace(py, namespace)
    }

    fn name_namespace(&self, py: Python<'_>, namespace: OwnedNamespace) -> PyResult<()> {
        let (extra_key, cache_salt) = namespace;
        let name = self.lora_name(py, extra_key.as_deref())?;
        let name = name.as_ref().map(|name| name.to_str()).transpose()?;
        let key = Key {
            tokens: &[],
            extra_key: extra_key.as_deref(),
            cache_salt: cache_salt.as_deref(),
        };
        self.with(
            py,
            |any| with_tree!(any, tree => tree.set_lora_name(&key, name)),
        )
    }

    fn insert<V: TensorIndices>(
        tree: &mut Tree<V>,
        value: &TensorArg<'_>,
        scalars: &InsertScalars<'_>,
    ) -> Result<InsertStep, TreeError> {
        V::with_source(value, |values| {
            tree.begin_insert(&InsertRequest {
                key: scalars.key,
                values,
                prev_prefix_len: scalars.prev_prefix_len,
                swa_evicted_len: scalars.swa_evicted_len,
                inserted_len: scalars.inserted_len,
                priority: scalars.priority,
                rotation_base: scalars.rotation_base,
                session_id: scalars.session_id,
                lora_name: scalars.lora_name,
                tracks_adopted: scalars.tracks_adopted,
            })
        })
    }
}

/// Everything of an insert but its value.
struct InsertScalars<'a> {
    key: Key<'a>,
    prev_prefix_len: u64,
    swa_evicted_len: u64,
    inserted_len: u64,
    priority: i64,
    rotation_base: Option<i64>,
    session_id: Option<&'a str>,
    lora_name: Option<&'a str>,
    tracks_adopted: bool,
}

type OwnedNamespace = (Option<String>, Option<String>);

fn owned_namespace((extra_key, cache_salt): (Option<&str>, Option<&str>)) -> OwnedNamespace {
    (extra_key.map(String::from), cache_salt.map(String::from))
}

/// Indices of either kind, out of the tree.
pub enum AnyValue {
    /// Plain numbers.
    Host(HostIndices),
    /// A tensor.
    Device(DeviceIndices),
}

impl From<HostIndices> for AnyValue {
    fn from(value: HostIndices) -> Self {
        AnyValue::Host(value)
    }
}

impl From<DeviceIndices> for AnyValue {
    fn from(value: DeviceIndices) -> Self {
        AnyValue::Device(value)
    }
}

/// A copy that shares no memory with the tree.
pub fn private_copy<V: Indices + Into<AnyValue>>(value: &V) -> AnyValue {
    V::concat(&[value]).into()
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    format!("the core panicked and is poisoned: {text}")
}

/// A policy from its lower-cased name and its checked parameters.
fn policy(
    py: Python<'_>,
    name: &str,
    protected_threshold: i64,
    tail_budget: Option<&Bound<'_, PyTuple>>,
) -> PyResult<Policy> {
    Ok(match name {
        "lru" => Policy::Lru,
        "lfu" => Policy::Lfu,
        "fifo" => Policy::Fifo,
        "mru" => Policy::Mru,
        "filo" => Policy::Filo,
        "priority" => Policy::Priority,
        "slru" => Policy::Slru {
            protected_threshold,
        },
        "tlru" => Policy::Tlru(match tail_budget {
            Some(budget) => budget_of(budget)?,
            None => TailBudget::Exact { surplus: 0 },
        }),
        _ => return Err(INVALID_ARGUMENT.raise(py, format!("unknown eviction policy: {name}"))),
    })
}

/// `(surplus,)` for integers, `(estimate, threshold)` with a float threshold otherwise.
fn budget_of(budget: &Bound<'_, PyTuple>) -> PyResult<TailBudget> {
    if budget.len() == 1 {
        let surplus = budget.get_item(0)?.extract()?;
        return Ok(TailBudget::Exact { surplus });
    }
    let (estimate, threshold) = (budget.get_item(0)?, budget.get_item(1)?.extract()?);
    if estimate.is_instance_of::<pyo3::types::PyFloat>() {
        let estimate = estimate.extract()?;
        return Ok(TailBudget::Float {
            estimate,
            threshold,
        });
    }
    let estimate = estimate.extract()?;
    Ok(TailBudget::FloatThreshold {
        estimate,
        threshold,
    })
}

#[pymethods]
impl NativeTreeCore {
    /// `lora_names` maps an extra key to a name or None; it turns events on.
    #[new]
    #[pyo3(signature = (page_size, is_bigram, device, is_host, policy_name, protected_threshold=2,
                        tail_budget=None, lora_names=None, is_dynamo=false))]
    #[allow(clippy::too_many_arguments, reason = "Python passes them by name")]
    fn new(
        page_size: u64,
        is_bigram: bool,
        device: &Bound<'_, PyAny>,
        is_host: bool,
        policy_name: &str,
        protected_threshold: i64,
        tail_budget: Option<&Bound<'_, PyTuple>>,
        lora_names: Option<Py<PyAny>>,
        is_dynamo: bool,
    ) -> PyResult<Self> {
        let py = device.py();
        let page_size = page_size as usize;
        if page_size == 0 {
            return Err(INVALID_ARGUMENT.raise(py, "page_size must be at least 1"));
        }
        let format = match is_dynamo {
            true => EventFormat::Dynamo,
            false => EventFormat::Default,
        };
        let config = TreeConfig {
            layout: PageLayout {
                page_size,
                is_bigram,
            },
            policy: policy(py, policy_name, protected_threshold, tail_budget)?,
            events: lora_names.is_some().then_some(format),
        };
        let tree = match is_host {
            true => AnyTree::Host(Tree::new(config)),
            false => AnyTree::Device(Tree::new(config)),
        };
        Ok(NativeTreeCore {
            tree: Mutex::new(tree),
            torch: Torch::new(device, is_host)?,
            is_bigram,
            lora_names,
        })
    }

    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |any| with_tree!(any, tree => tree.reset()))
    }

    /// The one root, whichever namespace is asked about.
    #[pyo3(signature = (extra_key=None))]
    pub fn root(&self, py: Python<'_>, extra_key: Option<Text<'_>>) -> PyResult<NodeId> {
        drop(extra_key); // All namespaces hang below one root (KEY-25).
        self.with(py, |any| with_tree!(any, tree => tree.root()))
    }

    /// `(device_prefix_len, best_node, full_kv_hit_length, last_visited | None, split | None)`.
    fn match_prefix(
        &self,
        token_ids: &Bound<'_, PyAny>,
        extra_key: Option<Text<'_>>,
        cache_salt: Option<Text<'_>>,
        limit: Option<Bound<'_, PyAny>>,
    ) -> PyResult<results::MatchTuple> {
        let py = token_ids.py();
        let key = KeyArg::new(token_ids, extra_key, cache_salt, limit)?;
        let key = key.key()?;
        let outcome = self.with(py, |any| with_tree!(any, tree => tree.match_prefix(key)))?;
        Ok((
            outcome.device_prefix_len,
            outcome.best_node,
            outcome.full_kv_hit_length,
            outcome.last_visited,
            outcome.split.map(results::split_tuple),
        ))
    }

    /// `(matched_len, node, pinned_len)`.
    fn match_full_device_prefix(
        &self,
        token_ids: &Bound<'_, PyAny>,
        extra_key: Option<Text<'_>>,
        cache_salt: Option<Text<'_>>,
        limit: Option<Bound<'_, PyAny>>,
    ) -> PyResult<(usize, u64, usize)> {
        let py = token_ids.py();
        let key = KeyArg::new(token_ids, extra_key, cache_salt, limit)?;
        let key = key.key()?;
        let found = self.with(
            py,
            |any| with_tree!(any, tree => tree.match_full_device_prefix(key)),
        )?;
        Ok((found.matched_len, found.node, found.pinned_len))
    }

    /// One step; see `results::insert_step`.
    #[allow(
        clippy::too_many_arguments,
        reason = "one call per insert must stay one call"
    )]
    fn begin_insert<'py>(
        &self,
        token_ids: &Bound<'py, PyAny>,
        extra_key: Option<Text<'py>>,
        cache_salt: Option<Text<'py>>,
        limit: Option<Bound<'py, PyAny>>,
        value: &Bound<'py, PyAny>,
        prev_prefix_len: u64,
        evicted_lens: PerComponent<u64>,
        inserted_len: u64,
        priority: Option<i64>,
        session_id: Option<Text<'py>>,
        tracks_adopted: Flag,
        rotation_base: Option<i64>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let py = token_ids.py();
        let key = KeyArg::new(token_ids, extra_key, cache_salt, limit)?;
        let session_id = session_id.as_ref().map(Text::as_str).transpose()?;
        let value = match TensorArg::check(value, &self.torch)? {
            Ok(value) => value,
            Err(error) => return Err(self.unless_suspended(py, error)),
        };
        let key = key.key()?;
        let name = self.lora_name(py, key.extra_key)?;
        let scalars = InsertScalars {
            key,
            prev_prefix_len,
            swa_evicted_len: evicted_lens.get(ComponentType::Swa).unwrap_or(0),
            inserted_len,
            priority: priority.unwrap_or(0),
            rotation_base,
            session_id,
            lora_name: name.as_ref().map(|name| name.to_str()).transpose()?,
            tracks_adopted: tracks_adopted.0,
        };
        let step = self.attempt(
            py,
            |any| with_tree!(any, tree => Self::insert(tree, &value, &scalars)),
        )?;
        results::insert_step(py, step)
    }

    fn resume_insert<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        if self.lora_names.is_some() {
            let namespace = self.with(
                py,
                |any| with_tree!(any, tree => tree.suspended_namespace().map(owned_namespace)),
            )?;
            if let Some(namespace) = namespace {
                self.name_namespace(py, namespace)?;
            }
        }
        let step = self.attempt(py, |any| with_tree!(any, tree => tree.resume_insert()))?;
        results::insert_step(py, step)
    }

    fn has_ongoing_insert(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |any| with_tree!(any, tree => tree.has_ongoing_insert()))
    }

    fn end_insert(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |any| with_tree!(any, tree => tree.end_insert()))
    }

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

    fn take_events<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let events = self.with(py, |any| with_tree!(any, tree => tree.take_events()))?;
        let convert = |event| results::event(py, event, self.is_bigram);
        events.into_iter().map(convert).collect()
    }

    fn record_all_cleared(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |any| with_tree!(any, tree => tree.record_all_cleared()))
    }

    fn rotation_base_of(&self, py: Python<'_>, node_id: Handle) -> PyResult<Option<i64>> {
        self.attempt(
            py,
            |any| with_tree!(any, tree => tree.rotation_base_of(node_id.0)),
        )
    }

    fn rotation_phase_of(&self, py: Python<'_>, node_id: Handle) -> PyResult<Option<i128>> {
        self.attempt(
            py,
            |any| with_tree!(any, tree => tree.rotation_phase_of(node_id.0)),
        )
    }
}

impl NativeTreeCore {
    /// A refused value stands back behind a second insert (INS-1).
    fn unless_suspended(&self, py: Python<'_>, error: PyErr) -> PyErr {
        let text = "concurrent insert walks: another insert is suspended";
        match self.has_ongoing_insert(py) {
            Ok(true) => refusal(py, TreeError::InsertProtocol(text)),
            Ok(false) => error,
            Err(failure) => failure,
        }
    }
}
