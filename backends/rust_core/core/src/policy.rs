//! Which leaf goes first (POL-1 to POL-7).
//!
//! A rank is a pair; the smallest goes first. Hides the arithmetic of T-LRU, which is exact for
//! integers of any size and IEEE for floats.

/// An eviction policy with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum Policy {
    /// Least recently used first.
    Lru,
    /// Least often inserted first.
    Lfu,
    /// Oldest first.
    Fifo,
    /// Most recently used first.
    Mru,
    /// Youngest first.
    Filo,
    /// Lowest priority first.
    Priority,
    /// Nodes hit `protected_threshold` times stay longer.
    Slru {
        /// Hits from which a node counts as protected.
        protected_threshold: i64,
    },
    /// Tails that no later prompt of the branch is likely to need go first.
    Tlru(TailBudget),
}

/// The T-LRU budget beyond a branch's history length (POL-5, POL-6).
#[derive(Clone, Debug, PartialEq)]
pub enum TailBudget {
    /// Both parameters are integers: estimate minus threshold. A caller with larger numbers
    /// clamps; no length comes near the limits of the type.
    Exact {
        /// Estimate minus threshold.
        surplus: i64,
    },
    /// An integer estimate is added exactly before a float threshold is subtracted.
    FloatThreshold {
        /// The estimate.
        estimate: i128,
        /// The threshold.
        threshold: f64,
    },
    /// The estimate is a float.
    Float {
        /// The estimate.
        estimate: f64,
        /// The threshold.
        threshold: f64,
    },
}

impl TailBudget {
    /// Whether a node that starts at `depth` in a branch of this history is tail-safe (POL-5).
    pub fn is_safe(&self, depth: u64, history_length: u64) -> bool {
        let budget = match *self {
            TailBudget::Exact { surplus } => {
                let budget = i128::from(history_length) + i128::from(surplus);
                return i128::from(depth) >= budget.max(0);
            }
            TailBudget::FloatThreshold {
                estimate,
                threshold,
            } => estimate.saturating_add(i128::from(history_length)) as f64 - threshold,
            TailBudget::Float {
                estimate,
                threshold,
            } => history_length as f64 + estimate - threshold,
        };
        // A comparison with NaN is false, so a NaN budget makes no node safe (POL-6); `f64::max`
        // would drop the NaN.
        let budget = if budget < 0.0 { 0.0 } else { budget };
        depth as f64 >= budget
    }
}

/// What a policy reads of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankInputs {
    /// Time of the last access.
    pub last_access: u64,
    /// Time of creation.
    pub creation: u64,
    /// Counted inserts.
    pub hit_count: u64,
    /// Priority.
    pub priority: i64,
    /// Units above the node.
    pub depth: u64,
    /// Greatest depth ever reached below the node (POL-8).
    pub history_length: u64,
}

/// Place in the order of eviction; the smallest goes first.
pub type Rank = (i64, i64);

impl Policy {
    /// Whether the T-LRU lengths must be kept (POL-10).
    pub fn keeps_lengths(&self) -> bool {
        matches!(self, Policy::Tlru(_))
    }

    /// The rank of a node (POL-4).
    pub fn rank(&self, node: &RankInputs) -> Rank {
        let (accessed, created) = (node.last_access as i64, node.creation as i64);
        match self {
            Policy::Lru => (0, accessed),
            Policy::Lfu => (node.hit_count as i64, accessed),
            Policy::Fifo => (0, created),
            Policy::Mru => (0, -accessed),
            Policy::Filo => (0, -created),
            Policy::Priority => (node.priority, accessed),
            Policy::Slru {
                protected_threshold,
            } => (
                i64::from(node.hit_count as i64 >= *protected_threshold),
                accessed,
            ),
            Policy::Tlru(budget) => (
                -i64::from(budget.is_safe(node.depth, node.history_length)),
                accessed,
            ),
        }
    }
}
