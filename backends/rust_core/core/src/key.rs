//! Keys as a caller hands them in, and the namespaces they live in (KEY-20 to KEY-26).
//!
//! Hides the interning of namespaces: a node carries a small number instead of two strings.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// A token sequence and its namespace, borrowed from the caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Key<'a> {
    /// Raw tokens; a bigram tree pairs them itself (KEY-20).
    pub tokens: &'a [i64],
    /// First half of the namespace; the empty string is a namespace of its own (KEY-3).
    pub extra_key: Option<&'a str>,
    /// Second half of the namespace; the empty string counts as none (KEY-3).
    pub cache_salt: Option<&'a str>,
}

impl<'a> Key<'a> {
    /// A key in the default namespace.
    pub fn plain(tokens: &'a [i64]) -> Self {
        Key {
            tokens,
            ..Key::default()
        }
    }

    fn salt(&self) -> Option<&'a str> {
        self.cache_salt.filter(|salt| !salt.is_empty())
    }
}

/// Number of a namespace within one tree.
pub(crate) type NamespaceId = u32;

/// The namespace without extra key and salt; always there.
pub(crate) const DEFAULT_NAMESPACE: NamespaceId = 0;

/// The strings behind a namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Namespace {
    pub extra_key: Option<Arc<str>>,
    pub cache_salt: Option<Arc<str>>,
    /// Name under which events publish this namespace's adapter (EVT-17).
    pub lora_name: Option<Arc<str>>,
    // Nodes and suspended inserts that use it; at zero the entry is dropped.
    users: usize,
}

impl Namespace {
    fn is(&self, key: &Key) -> bool {
        self.extra_key.as_deref() == key.extra_key && self.cache_salt.as_deref() == key.salt()
    }

    /// Whether both halves are absent.
    pub fn is_default(&self) -> bool {
        self.extra_key.is_none() && self.cache_salt.is_none()
    }
}

/// All namespaces in use. Unused ones are forgotten, so salts of one request do not pile up.
pub(crate) struct Namespaces {
    entries: Vec<Namespace>,
    free: Vec<NamespaceId>,
    index: HashTable<NamespaceId>,
    hasher: FixedState,
}

impl Namespaces {
    pub fn new() -> Self {
        Namespaces {
            entries: vec![Namespace {
                users: 1,
                ..Namespace::default()
            }],
            free: Vec::new(),
            index: HashTable::new(),
            hasher: FixedState::default(),
        }
    }

    pub fn get(&self, id: NamespaceId) -> &Namespace {
        &self.entries[id as usize]
    }

    /// The number of a key's namespace, if any node uses it.
    pub fn find(&self, key: &Key) -> Option<NamespaceId> {
        if key.extra_key.is_none() && key.salt().is_none() {
            return Some(DEFAULT_NAMESPACE);
        }
        let hash = self.hasher.hash_one((key.extra_key, key.salt()));
        let entries = &self.entries;
        self.index
            .find(hash, |&id| entries[id as usize].is(key))
            .copied()
    }

    /// The number of a key's namespace, made if needed; counts one more user.
    pub fn acquire(&mut self, key: &Key) -> NamespaceId {
        let id = self.find(key).unwrap_or_else(|| self.intern(key));
        self.retain(id);
        id
    }

    /// Counts one more user of a namespace that is in use.
    pub fn retain(&mut self, id: NamespaceId) {
        self.entries[id as usize].users += 1;
    }

    /// Counts one user less.
    pub fn release(&mut self, id: NamespaceId) {
        let entry = &mut self.entries[id as usize];
        entry.users -= 1;
        if entry.users > 0 {
            return;
        }
        let hash = self
            .hasher
            .hash_one((entry.extra_key.as_deref(), entry.cache_salt.as_deref()));
        *entry = Namespace::default();
        if let Ok(slot) = self.index.find_entry(hash, |&other| other == id) {
            slot.remove();
        }
        self.free.push(id);
    }

    pub fn set_lora_name(&mut self, id: NamespaceId, name: Option<&str>) {
        let entry = &mut self.entries[id as usize];
        if entry.lora_name.as_deref() != name {
            entry.lora_name = name.map(Arc::from);
        }
    }

    fn intern(&mut self, key: &Key) -> NamespaceId {
        let entry = Namespace {
            extra_key: key.extra_key.map(Arc::from),
            cache_salt: key.salt().map(Arc::from),
            ..Namespace::default()
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.entries[id as usize] = entry;
                id
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as NamespaceId
            }
        };
        let hash = self.hasher.hash_one((key.extra_key, key.salt()));
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.index.insert_unique(hash, id, |&id| {
            let entry = &entries[id as usize];
            hasher.hash_one((entry.extra_key.as_deref(), entry.cache_salt.as_deref()))
        });
        id
    }
}

/// Length of the longest common prefix.
pub(crate) fn common_prefix(left: &[i64], right: &[i64]) -> usize {
    // Blocks are compared as memory; only the first differing block is looked into.
    const BLOCK: usize = 256;
    let shared = left.len().min(right.len());
    let (left, right) = (&left[..shared], &right[..shared]);
    let mut at = 0;
    while at < shared {
        let end = (at + BLOCK).min(shared);
        if left[at..end] != right[at..end] {
            let differs = left[at..end].iter().zip(&right[at..end]);
            return at + differs.take_while(|(a, b)| a == b).count();
        }
        at = end;
    }
    shared
}

/// Whether a token is negative, which only matters where something is hashed (KEY-34).
pub(crate) fn has_negative(tokens: &[i64]) -> bool {
    tokens.iter().fold(0, |bits, token| bits | token) < 0
}
