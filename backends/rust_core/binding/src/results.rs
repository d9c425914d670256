//! Results as plain Python values; the adapter dresses them in the contract's classes.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use tree_core::{
    Action, BufferState, Digest, Event, InsertStep, Marks, SplitUpdate, StoredEvent, to_hex,
};

use crate::values::{TensorIndices, Torch};

/// Numbers that tell the adapter which action a tuple is.
const FREE: u8 = 0;
const FREE_FULL_ONLY: u8 = 1;
const BACKUP: u8 = 2;
const SPLIT: u8 = 3;
const FREE_REPLACED: u8 = 4;
const REBUILD: u8 = 5;
const RECOVER_LOCKED: u8 = 6;
const RECOVER_EVICTED: u8 = 7;
const EVICT_EXCESS_STATES: u8 = 8;

/// `(ack_id | None, split_node, new_node)`.
pub type SplitTuple = (Option<u64>, u64, u64);

/// `(device_prefix_len, best_node, full_kv_hit_length, last_visited | None, split | None,
/// swa_branching_len | None, mamba_branching_len | None)`.
pub type MatchTuple = (
    usize,
    u64,
    usize,
    Option<u64>,
    Option<SplitTuple>,
    Option<usize>,
    Option<usize>,
);

/// A split update as a tuple.
pub fn split_tuple(update: SplitUpdate) -> SplitTuple {
    (update.ack_id, update.split_node, update.new_node)
}

fn action<'py, V: TensorIndices>(
    py: Python<'py>,
    torch: &Torch,
    action: Action<V>,
) -> PyResult<Bound<'py, PyTuple>> {
    match action {
        Action::Free { start, end } => (FREE, start, end).into_pyobject(py),
        Action::FreeFullOnly { start, end } => (FREE_FULL_ONLY, start, end).into_pyobject(py),
        Action::FreeReplaced(value) => {
            (FREE_REPLACED, value.into_tensor(py, torch)?).into_pyobject(py)
        }
        Action::Backup(chain) => (BACKUP, chain).into_pyobject(py),
        Action::Split(update) => (SPLIT, split_tuple(update)).into_pyobject(py),
        Action::Rebuild {
            node,
            component,
            source,
        } => {
            let source = source.into_tensor(py, torch)?;
            (REBUILD, component as u32, node, source).into_pyobject(py)
        }
        Action::RecoverLocked {
            node,
            component,
            kept,
            start,
            end,
        } => {
            let kept = kept.into_tensor(py, torch)?;
            (RECOVER_LOCKED, component as u32, node, kept, start, end).into_pyobject(py)
        }
        Action::RecoverEvicted {
            component,
            kept,
            start,
            end,
        } => {
            let kept = kept.into_tensor(py, torch)?;
            (RECOVER_EVICTED, component as u32, kept, start, end).into_pyobject(py)
        }
        Action::EvictExcessStates(tail) => (EVICT_EXCESS_STATES, tail).into_pyobject(py),
    }
}

/// `(actions, None | outcome)`; an outcome is `(prefix_len, last_node, mamba_exist,
/// swa_branch_inserted, is_declined, adopted | None)`.
pub fn insert_step<'py, V: TensorIndices>(
    py: Python<'py>,
    torch: &Torch,
    step: InsertStep<V>,
) -> PyResult<Bound<'py, PyTuple>> {
    let actions = PyList::empty(py);
    for one in step.actions {
        actions.append(action(py, torch, one)?)?;
    }
    let outcome = step.outcome.map(|outcome| {
        let adopted = outcome.adopted.map(|ranges| {
            let ranges = ranges.into_iter();
            ranges
                .map(|(component, ranges)| (component as u32, ranges))
                .collect::<Vec<_>>()
        });
        (
            outcome.prefix_len,
            outcome.last_node,
            outcome.mamba_exist,
            outcome.swa_branch_inserted,
            outcome.is_declined,
            adopted,
        )
    });
    (actions, outcome).into_pyobject(py)
}

/// `(component number, mark | None)` for each entry of a receipt.
pub fn marks(marks: &Marks) -> Vec<(u32, Option<i64>)> {
    let entries = marks.iter();
    entries
        .map(|(component, mark)| (component as u32, mark))
        .collect()
}

/// Digests as hex strings.
pub fn hex_list(digests: &[Digest]) -> Vec<String> {
    digests.iter().map(to_hex).collect()
}

/// `(parent, parent_is_root, parent_last_hash | None)`.
pub fn buffer_state(state: &BufferState) -> (u64, bool, Option<String>) {
    (
        state.parent,
        state.parent_is_root,
        state.parent_last_hash.as_ref().map(to_hex),
    )
}

/// `None` for "all cleared", a list for "removed", a tuple for "stored".
pub fn event<'py>(py: Python<'py>, event: Event, is_bigram: bool) -> PyResult<Bound<'py, PyAny>> {
    match event {
        Event::AllCleared => Ok(py.None().into_bound(py)),
        Event::Removed(hashes) => Ok(PyList::new(py, hashes)?.into_any()),
        Event::Stored(event) => stored(py, event, is_bigram),
    }
}

fn stored<'py>(
    py: Python<'py>,
    event: StoredEvent,
    is_bigram: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let tokens = if is_bigram {
        let pairs = event.tokens.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        PyList::new(py, pairs.collect::<Vec<_>>())?
    } else {
        PyList::new(py, event.tokens)?
    };
    let text = |part: Option<std::sync::Arc<str>>| part.map(|part| PyString::new(py, &part));
    let event = (
        event.hashes,
        event.parent,
        tokens,
        text(event.cache_salt),
        text(event.session_id),
        text(event.lora_name),
    );
    Ok(event.into_pyobject(py)?.into_any())
}
