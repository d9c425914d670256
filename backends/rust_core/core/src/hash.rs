//! Page hashes, namespace seeds and published event hashes (KEY-30 to KEY-38, EVT-12 to EVT-16).
//!
//! Digests stay binary inside the tree. Hides the byte layout that other programs rely on.

use sha2::{Digest as _, Sha256};

use crate::error::{Result, TreeError};

/// One SHA-256 digest.
pub type Digest = [u8; 32];

/// How the units of a key are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLayout {
    /// Units per page.
    pub page_size: usize,
    /// Whether a unit is a pair of neighbouring tokens.
    pub is_bigram: bool,
}

impl PageLayout {
    /// Units that `raw` tokens make (KEY-5).
    pub fn units(&self, raw: usize) -> usize {
        raw.saturating_sub(usize::from(self.is_bigram))
    }

    /// Raw tokens that `units` units span; an empty run spans none (KEY-8).
    pub fn raw(&self, units: usize) -> usize {
        if units == 0 {
            0
        } else {
            units + usize::from(self.is_bigram)
        }
    }

    /// The raw tokens of the whole pages of a key, and its units (KEY-21).
    pub fn align<'a>(&self, tokens: &'a [i64]) -> (&'a [i64], usize) {
        let units = self.units(tokens.len()) / self.page_size * self.page_size;
        (&tokens[..self.raw(units)], units)
    }
}

/// Appends the chained digests of all pages of `tokens`, a short last page included (KEY-30 to
/// KEY-33). Tokens must not be negative.
pub fn page_digests(
    tokens: &[i64],
    layout: PageLayout,
    mut prior: Option<Digest>,
    digests: &mut Vec<Digest>,
) {
    let units = layout.units(tokens.len());
    let mut message = Vec::with_capacity(33 + layout.page_size.min(units) * 16);
    let mut start = 0;
    while start < units {
        let end = (start + layout.page_size).min(units);
        message.clear();
        if let Some(prior) = prior {
            message.extend_from_slice(&prior);
        }
        append_page(
            &mut message,
            &tokens[start..layout.raw(end - start) + start],
            layout,
        );
        let digest: Digest = Sha256::digest(&message).into();
        digests.push(digest);
        prior = Some(digest);
        start = end;
    }
}

fn append_page(message: &mut Vec<u8>, page: &[i64], layout: PageLayout) {
    let is_wide = page.iter().fold(0, |bits, &token| bits | token as u64) > u64::from(u32::MAX);
    if is_wide {
        message.push(0xff);
    }
    let mut push = |token: i64| {
        if is_wide {
            message.extend_from_slice(&(token as u64).to_le_bytes());
        } else {
            message.extend_from_slice(&(token as u32).to_le_bytes());
        }
    };
    if layout.is_bigram {
        for pair in page.windows(2) {
            push(pair[0]);
            push(pair[1]);
        }
    } else {
        page.iter().for_each(|&token| push(token));
    }
}

/// Seed of the storage hash chain of a namespace (KEY-35).
pub fn storage_namespace_seed(extra_key: Option<&str>, cache_salt: Option<&str>) -> Option<Digest> {
    namespace_digest(b"sglang-cache-namespace-v1", extra_key, cache_salt)
}

/// Seed of published hashes (EVT-16).
pub(crate) fn event_seed(extra_key: Option<&str>, cache_salt: Option<&str>) -> Option<Digest> {
    namespace_digest(b"sglang-kv-event-namespace-v1", extra_key, cache_salt)
}

fn namespace_digest(label: &[u8], extra_key: Option<&str>, salt: Option<&str>) -> Option<Digest> {
    if extra_key.is_none() && salt.is_none() {
        return None;
    }
    let mut hasher = Sha256::new();
    hasher.update(label);
    for part in [extra_key, salt] {
        match part {
            None => hasher.update([0]),
            Some(text) => {
                hasher.update([1]);
                hasher.update((text.len() as u64).to_le_bytes());
                hasher.update(text.as_bytes());
            }
        }
    }
    Some(hasher.finalize().into())
}

/// First prior digest of the event chain of a salted namespace (EVT-12).
pub(crate) fn event_salt_digest(cache_salt: Option<&str>) -> Option<Digest> {
    cache_salt.map(|salt| {
        let mut hasher = Sha256::new();
        hasher.update(b"sglang-cache-salt-v1\0");
        hasher.update(salt.as_bytes());
        hasher.finalize().into()
    })
}

/// The hash that events publish for a digest (KEY-38, EVT-15).
pub(crate) fn published_hash(digest: &Digest, seed: Option<&Digest>) -> i64 {
    let [a, b, c, d, e, f, g, h, ..] = *digest;
    let head = [a, b, c, d, e, f, g, h];
    match seed {
        None => i64::from_be_bytes(head),
        Some(seed) => {
            let mut hasher = Sha256::new();
            hasher.update(seed);
            hasher.update(head);
            published_hash(&hasher.finalize().into(), None)
        }
    }
}

/// Lowercase hex of a digest.
pub fn to_hex(digest: &Digest) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(64);
    for byte in digest {
        text.push(DIGITS[usize::from(byte >> 4)] as char);
        text.push(DIGITS[usize::from(byte & 15)] as char);
    }
    text
}

/// Refuses tokens that cannot be hashed (KEY-34).
pub(crate) fn check_hashable(tokens: &[i64]) -> Result<()> {
    if crate::key::has_negative(tokens) {
        let text = "a key with a negative token cannot be hashed";
        return Err(TreeError::InvalidArgument(text.into()));
    }
    Ok(())
}
