//! Inserting, step by step.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tree_core::{ComponentType, InsertRequest, InsertStep, Key, Tree, TreeError};

use crate::arguments::{Flag, KeyArg, PerComponent, Text};
use crate::core::{AnyTree, NativeTreeCore, owned_namespace, with_tree};
use crate::errors::refusal;
use crate::results;
use crate::values::{DeviceIndices, HostSlots, TensorArg, TensorIndices, Torch};

/// Everything of an insert but its slots.
struct InsertScalars<'a> {
    key: Key<'a>,
    prev_prefix_len: u64,
    evicted_lens: &'a [(ComponentType, u64)],
    swa_branching_len: Option<u64>,
    state: Option<Bound<'a, PyAny>>,
    inserted_len: u64,
    priority: i64,
    rotation_base: Option<i64>,
    session_id: Option<&'a str>,
    lora_name: Option<&'a str>,
    tracks_adopted: bool,
}

/// A step of either kind of tree; its values become tensors once the core is unlocked.
enum AnyStep {
    Host(InsertStep<HostSlots>),
    Device(InsertStep<DeviceIndices>),
}

impl AnyStep {
    fn into_tuple<'py>(self, py: Python<'py>, torch: &Torch) -> PyResult<Bound<'py, PyTuple>> {
        match self {
            AnyStep::Host(step) => results::insert_step(py, torch, step),
            AnyStep::Device(step) => results::insert_step(py, torch, step),
        }
    }
}

fn insert<V: TensorIndices>(
    tree: &mut Tree<V>,
    value: &TensorArg<'_>,
    scalars: &InsertScalars<'_>,
) -> Result<InsertStep<V>, TreeError> {
    V::with_source(value, |values| {
        tree.begin_insert(&InsertRequest {
            key: scalars.key,
            values,
            prev_prefix_len: scalars.prev_prefix_len,
            evicted_lens: scalars.evicted_lens,
            swa_branching_len: scalars.swa_branching_len,
            state: scalars
                .state
                .as_ref()
                .map(|state| V::state(state.clone().unbind())),
            inserted_len: scalars.inserted_len,
            priority: scalars.priority,
            rotation_base: scalars.rotation_base,
            session_id: scalars.session_id,
            lora_name: scalars.lora_name,
            tracks_adopted: scalars.tracks_adopted,
        })
    })
}

#[pymethods]
impl NativeTreeCore {
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
        mamba_value: &Bound<'py, PyAny>,
        swa_branching_len: Option<u64>,
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
            evicted_lens: evicted_lens.entries(),
            swa_branching_len,
            state: self.state(mamba_value)?,
            inserted_len,
            priority: priority.unwrap_or(0),
            rotation_base,
            session_id,
            lora_name: name.as_ref().map(|name| name.to_str()).transpose()?,
            tracks_adopted: tracks_adopted.0,
        };
        let step = self.attempt(py, |any| match any {
            AnyTree::Host(tree) => insert(tree, &value, &scalars).map(AnyStep::Host),
            AnyTree::Device(tree) => insert(tree, &value, &scalars).map(AnyStep::Device),
        })?;
        step.into_tuple(py, &self.torch)
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
        let step = self.attempt(py, |any| match any {
            AnyTree::Host(tree) => tree.resume_insert().map(AnyStep::Host),
            AnyTree::Device(tree) => tree.resume_insert().map(AnyStep::Device),
        })?;
        step.into_tuple(py, &self.torch)
    }

    fn has_ongoing_insert(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |any| with_tree!(any, tree => tree.has_ongoing_insert()))
    }

    fn end_insert(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |any| with_tree!(any, tree => tree.end_insert()))
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

    /// The state of an insert, if the tree keeps states and the value is one.
    fn state<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let is_state = self.has_states && !value.is_none() && self.torch.is_state(value)?;
        Ok(is_state.then(|| value.clone()))
    }
}
