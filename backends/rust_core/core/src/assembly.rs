//! Which components a tree is made of.
//!
//! The one place that names them all: a further component is a file of its own with the hooks of
//! `Component`, and an entry here. Hides what each needs to be built.

use crate::component::{Component, ComponentType, FULL};
use crate::full::Full;
use crate::indices::Indices;
use crate::mamba::Mamba;
use crate::window::Window;

/// A component beside FULL.
#[derive(Clone, Debug)]
pub enum AuxiliaryConfig {
    /// A sliding window.
    Window {
        /// `Swa`, or the type of a further window, which is independent of the first (SWA-C8).
        kind: ComponentType,
        /// Units that it keeps.
        size: usize,
        /// Whether matches stop where it is missing (SWA-C5).
        gates_match: bool,
    },
    /// Mamba states.
    Mamba {
        /// Units between two states; not 0 (MAM-C2).
        chunk: usize,
        /// States of one path (MAM-P1).
        cap: Option<u64>,
    },
}

impl AuxiliaryConfig {
    fn build<V: Indices>(&self, index: usize, page_size: usize) -> Box<dyn Component<V>> {
        match *self {
            AuxiliaryConfig::Window {
                kind,
                size,
                gates_match,
            } => Box::new(Window {
                kind,
                index,
                size,
                gates_match,
                is_independent: kind != ComponentType::Swa,
            }),
            AuxiliaryConfig::Mamba { chunk, cap } => Box::new(Mamba {
                index,
                grid: least_common_multiple(chunk, page_size),
                cap,
            }),
        }
    }
}

/// FULL and the others, in tree order.
pub(crate) fn components<V: Indices>(
    auxiliaries: &[AuxiliaryConfig],
    page_size: usize,
) -> Vec<Box<dyn Component<V>>> {
    let full: Box<dyn Component<V>> = Box::new(Full);
    let others = auxiliaries.iter().enumerate();
    let others = others.map(|(place, one)| one.build(FULL + 1 + place, page_size));
    std::iter::once(full).chain(others).collect()
}

/// Saturates, since a grid beyond every length is never reached.
fn least_common_multiple(left: usize, right: usize) -> usize {
    let (mut divisor, mut rest) = (left, right);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (left / divisor).saturating_mul(right)
}
