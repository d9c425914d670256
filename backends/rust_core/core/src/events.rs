//! KV events: what left or joined the device, for routers outside the server (EVT).
//!
//! One call records the pages of one node; neighbouring records are merged while the queue is
//! not drained (EVT-20). Hides the second hash chain of salted namespaces.

use std::sync::Arc;

use crate::hash::{Digest, event_salt_digest, event_seed, page_digests, published_hash};
use crate::indices::Indices;
use crate::key::Namespace;
use crate::nodes::Slot;
use crate::span::Span;
use crate::tree::Tree;

/// How adapters enter published hashes (EVT-16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventFormat {
    /// Only namespaces with a named adapter are seeded, by their extra key.
    Default,
    /// Every namespace is seeded by both its halves.
    Dynamo,
}

/// Blocks that became resident on the device, each chained to the one before (EVT-10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// One hash per page.
    pub hashes: Vec<i64>,
    /// Hash of the page before the first.
    pub parent: Option<i64>,
    /// Tokens of all units in order; a bigram unit gives two.
    pub tokens: Vec<i64>,
    /// Salt of the namespace.
    pub cache_salt: Option<Arc<str>>,
    /// Session of the insert.
    pub session_id: Option<Arc<str>>,
    /// Name of the namespace's adapter.
    pub lora_name: Option<Arc<str>>,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Blocks joined the device.
    Stored(StoredEvent),
    /// Blocks with these hashes left the device (EVT-11).
    Removed(Vec<i64>),
    /// Everything is gone; recorded by the cache (EVT-4).
    AllCleared,
}

/// The queue.
pub(crate) struct EventLog {
    format: EventFormat,
    queue: Vec<Event>,
}

impl EventLog {
    pub fn new(format: EventFormat) -> Self {
        EventLog {
            format,
            queue: Vec::new(),
        }
    }

    fn seed(&self, namespace: &Namespace) -> Option<Digest> {
        let extra_key = namespace.extra_key.as_deref();
        match self.format {
            EventFormat::Dynamo => event_seed(extra_key, namespace.cache_salt.as_deref()),
            EventFormat::Default => namespace
                .lora_name
                .as_ref()
                .and_then(|_| event_seed(extra_key, None)),
        }
    }

    /// EVT-20: appends to the last event if it is the same chain, else queues a new one.
    fn push_stored(&mut self, event: StoredEvent) {
        if let Some(Event::Stored(last)) = self.queue.last_mut()
            && last.hashes.last().copied() == event.parent
            && event.parent.is_some()
            && last.cache_salt == event.cache_salt
            && last.session_id == event.session_id
            && last.lora_name == event.lora_name
        {
            last.hashes.extend(event.hashes);
            last.tokens.extend(event.tokens);
            return;
        }
        self.queue.push(Event::Stored(event));
    }

    fn push_removed(&mut self, hashes: Vec<i64>) {
        if let Some(Event::Removed(last)) = self.queue.last_mut() {
            last.extend(hashes);
        } else {
            self.queue.push(Event::Removed(hashes));
        }
    }

    pub fn queued(&self) -> usize {
        self.queue.len()
    }
}

impl<V: Indices> Tree<V> {
    /// The event format; `None` when events are off.
    pub fn event_format(&self) -> Option<EventFormat> {
        self.events.as_ref().map(|log| log.format)
    }

    /// How many events are queued.
    pub fn queued_events(&self) -> usize {
        self.events.as_ref().map_or(0, EventLog::queued)
    }

    /// All queued events in order; empties the queue (EVT-3).
    pub fn take_events(&mut self) -> Vec<Event> {
        self.events
            .as_mut()
            .map_or_else(Vec::new, |log| std::mem::take(&mut log.queue))
    }

    /// Appends `AllCleared`; nothing when events are off (EVT-4).
    pub fn record_all_cleared(&mut self) {
        if let Some(log) = &mut self.events {
            log.queue.push(Event::AllCleared);
        }
    }

    /// Records that a node joined the device.
    pub(crate) fn record_stored(&mut self, slot: Slot, session_id: Option<&Arc<str>>) {
        if self.events.is_none() {
            return;
        }
        self.ensure_hashes(slot);
        self.ensure_event_hashes(slot);
        let node = &self.nodes[slot];
        let namespace = self.namespaces.get(node.namespace);
        let Some(log) = &mut self.events else { return };
        let seed = log.seed(namespace);
        let parent = (node.parent != self.nodes.root)
            .then(|| event_list(&self.nodes[node.parent], namespace).last())
            .flatten()
            .map(|digest| published_hash(digest, seed.as_ref()));
        let tokens = if self.layout.is_bigram {
            node.tokens.windows(2).flatten().copied().collect()
        } else {
            node.tokens.to_vec()
        };
        log.push_stored(StoredEvent {
            hashes: published(event_list(node, namespace), seed),
            parent,
            tokens,
            cache_salt: namespace.cache_salt.clone(),
            session_id: session_id.cloned(),
            lora_name: namespace.lora_name.clone(),
        });
    }

    /// Records that a node is about to leave the device.
    pub(crate) fn record_removed(&mut self, slot: Slot) {
        if self.events.is_none() {
            return;
        }
        self.ensure_hashes(slot);
        self.ensure_event_hashes(slot);
        let node = &self.nodes[slot];
        let namespace = self.namespaces.get(node.namespace);
        let Some(log) = &mut self.events else { return };
        let seed = log.seed(namespace);
        log.push_removed(published(event_list(node, namespace), seed));
    }

    /// EVT-12: the second chain, for a node and every ancestor that lacks it.
    fn ensure_event_hashes(&mut self, slot: Slot) {
        let namespace = self.namespaces.get(self.nodes[slot].namespace);
        if namespace.is_default() {
            return;
        }
        let first = event_salt_digest(namespace.cache_salt.as_deref());
        let missing: Vec<Slot> = self
            .nodes
            .path_up(slot)
            .take_while(|&slot| self.nodes[slot].event_hashes.is_none())
            .collect();
        for &slot in missing.iter().rev() {
            let parent = self.nodes[slot].parent;
            let prior = match &self.nodes[parent].event_hashes {
                Some(list) => list.last().copied(),
                None => first,
            };
            let mut digests = Vec::new();
            page_digests(&self.nodes[slot].tokens, self.layout, prior, &mut digests);
            self.nodes[slot].event_hashes = Some(Span::from(digests));
        }
    }
}

/// The list whose hashes a node publishes (EVT-12).
fn event_list<'a, V>(node: &'a crate::nodes::Node<V>, namespace: &Namespace) -> &'a [Digest] {
    let list = if namespace.is_default() {
        &node.hashes
    } else {
        &node.event_hashes
    };
    list.as_deref().unwrap_or(&[])
}

fn published(digests: &[Digest], seed: Option<Digest>) -> Vec<i64> {
    digests
        .iter()
        .map(|digest| published_hash(digest, seed.as_ref()))
        .collect()
}
