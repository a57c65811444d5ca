//! Indexes: what a specification says, which keys a document has, what is known of the paths.

mod array_paths;
mod building;
mod decode;
mod geo;
mod keys;
mod known;
mod spec;
mod text;
mod wildcard;

pub use building::Building;
pub use geo::GeoIndex;
pub(crate) use geo::{KeyRange, elements, hashes};
pub use keys::{DocumentKeys, KeyOf};
pub(crate) use known::KnownSpecs;
pub use spec::{IndexSpec, KeyKind, KeyPart};
pub use text::TextIndex;
pub use wildcard::Wildcard;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use storage::Ident;

/// An index of a collection: its specification, its tree, and what its documents turned out to hold.
pub struct Index {
    /// What createIndexes said, shared with the twins of the index.
    pub spec: Arc<IndexSpec>,
    /// Its tree in the engine.
    pub ident: Ident,
    /// Per key part, a bit for each component of the path where some document has an array; for the
    /// paths of a wildcard index see [`Wildcard`]. Bits are only ever added: a scan planned on older bits is checked again when it starts.
    multikey: Box<[AtomicU32]>,
    /// How often a plan has used the index, for `$indexStats`; a wildcard index counts the uses for
    /// all paths.
    pub uses: Arc<AtomicU64>,
    /// Since when `uses` counts, in milliseconds since 1970.
    pub since_millis: i64,
}

impl Index {
    /// An index over a tree, with the multikey bits recorded so far (none for a new one).
    pub fn new(spec: impl Into<Arc<IndexSpec>>, ident: Ident, multikey: &[u32], since_millis: i64) -> Index {
        let spec = spec.into();
        let bits = (0..spec.multikey_words()).map(|part| multikey.get(part).copied().unwrap_or(0));
        Index {
            ident,
            multikey: bits.map(AtomicU32::new).collect(),
            uses: Arc::default(),
            since_millis,
            spec,
        }
    }

    /// The same index over another tree, its uses not counted yet: one that holds the same entries
    /// or none at all.
    pub(crate) fn over(&self, ident: Ident, holds_entries: bool, since_millis: i64) -> Index {
        let bits = if holds_entries { self.multikey_bits() } else { Vec::new() };
        Index::new(self.spec.clone(), ident, &bits, since_millis)
    }

    /// Whether any document has an array along any of the paths.
    pub fn is_multikey(&self) -> bool {
        self.multikey.iter().any(|bits| bits.load(Relaxed) != 0)
    }

    /// Per key part, the bits of the components where some document has an array.
    pub fn multikey_bits(&self) -> Vec<u32> {
        self.multikey.iter().map(|bits| bits.load(Relaxed)).collect()
    }

    /// The bits of a document about to be indexed, if some of them aren't known yet.
    pub(crate) fn unknown_multikey(&self, document: &[u32]) -> Option<Vec<u32>> {
        let mut parts = self.multikey.iter().zip(document);
        parts.any(|(known, bits)| bits & !known.load(Relaxed) != 0).then(|| document.to_vec())
    }

    /// Adds the bits of a document about to be indexed.
    pub fn note_multikey(&self, document: &[u32]) {
        for (known, bits) in self.multikey.iter().zip(document) {
            known.fetch_or(*bits, Relaxed);
        }
    }

    /// Whether this is the index on `_id` that every collection has.
    pub fn is_id(&self) -> bool {
        self.spec.clustered || self.spec.name == "_id_"
    }

    /// Whether two documents may not have the same key.
    pub fn unique(&self) -> bool {
        self.spec.unique
    }
}
