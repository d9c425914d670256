//! The native core as Python sees it: how it is built, and matching.
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
    AuxiliaryConfig, EventFormat, Freed, Indices, Key, NodeId, PageLayout, Policy, TailBudget,
    Tree, TreeConfig, TreeError,
};

use crate::arguments::{Component, Flag, Handle, KeyArg, Text};
use crate::errors::{INVALID_ARGUMENT, POISONED, refusal};
use crate::results;
use crate::values::{DeviceIndices, HostSlots, TensorIndices, Torch};

/// A tree over either kind of index values.
pub enum AnyTree {
    /// Slots are plain numbers.
    Host(Tree<HostSlots>),
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
    /// Whether an insert brings a state.
    pub has_states: bool,
    /// Names the adapter behind an extra key; `None` when events are off (EVT-17).
    pub lora_names: Option<Py<PyAny>>,
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

    /// `(component number, tensor)` of all that a call has freed.
    pub fn freed<'py>(
        &self,
        py: Python<'py>,
        freed: Vec<(u32, AnyValue)>,
    ) -> PyResult<Vec<(u32, Bound<'py, PyAny>)>> {
        let convert = |(component, value)| Ok((component, self.tensor(py, value)?));
        freed.into_iter().map(convert).collect()
    }

    /// A tensor over indices that the tree has given up or copied.
    pub fn tensor<'py>(&self, py: Python<'py>, value: AnyValue) -> PyResult<Bound<'py, PyAny>> {
        match value {
            AnyValue::Host(value) => value.into_tensor(py, &self.torch),
            AnyValue::Device(value) => value.into_tensor(py, &self.torch),
        }
    }

    /// The current name of the adapter behind an extra key.
    pub fn lora_name<'py>(
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

    pub fn name_namespace(&self, py: Python<'_>, namespace: OwnedNamespace) -> PyResult<()> {
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
}

/// Extra key and salt.
pub type OwnedNamespace = (Option<String>, Option<String>);

/// A namespace that outlives the lock on the core.
pub fn owned_namespace((extra_key, cache_salt): (Option<&str>, Option<&str>)) -> OwnedNamespace {
    (extra_key.map(String::from), cache_salt.map(String::from))
}

/// Indices of either kind, out of the tree.
pub enum AnyValue {
    /// Plain numbers.
    Host(HostSlots),
    /// A tensor.
    Device(DeviceIndices),
}

impl From<HostSlots> for AnyValue {
    fn from(value: HostSlots) -> Self {
        AnyValue::Host(value)
    }
}

impl From<DeviceIndices> for AnyValue {
    fn from(value: DeviceIndices) -> Self {
        AnyValue::Device(value)
    }
}

/// What a tree freed, without its own kind of value.
pub fn any_freed<V: Into<AnyValue>>(freed: Freed<V>) -> Vec<(u32, AnyValue)> {
    let convert = |(component, value): (_, V)| (component as u32, value.into());
    freed.into_iter().map(convert).collect()
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

/// The components beside FULL in tree order; windows come before states (SWA-C1).
fn auxiliaries(
    windows: Vec<(Component, u64, Flag)>,
    states: Option<(u64, Option<u64>)>,
) -> Vec<AuxiliaryConfig> {
    let windows = windows
        .into_iter()
        .map(|(kind, size, gates_match)| AuxiliaryConfig::Window {
            kind: kind.0,
            size: size as usize,
            gates_match: gates_match.0,
        });
    let states = states.map(|(chunk, cap)| AuxiliaryConfig::Mamba {
        chunk: chunk as usize,
        cap,
    });
    windows.chain(states).collect()
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
    /// `lora_names` maps an extra key to a name or None; it turns events on. A window is
    /// `(component, size, gates_match)`, `states` is `(chunk size, cap | None)`.
    #[new]
    #[pyo3(signature = (page_size, is_bigram, device, is_host, policy_name, protected_threshold=2,
                        tail_budget=None, lora_names=None, is_dynamo=false, windows=None, states=None))]
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
        windows: Option<Vec<(Component, u64, Flag)>>,
        states: Option<(u64, Option<u64>)>,
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
            auxiliaries: auxiliaries(windows.unwrap_or_default(), states),
        };
        let tree = match is_host {
            true => AnyTree::Host(Tree::new(config)),
            false => AnyTree::Device(Tree::new(config)),
        };
        Ok(NativeTreeCore {
            tree: Mutex::new(tree),
            torch: Torch::new(device, is_host)?,
            is_bigram,
            has_states: states.is_some(),
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

    /// See `results::MatchTuple`.
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
            outcome.swa_branching_len,
            outcome.mamba_branching_len,
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
