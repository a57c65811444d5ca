//! Indexes: what a specification says, which keys a document has, what is known of the paths.

mod geo;
mod keys;
mod spec;
mod text;
mod wildcard;

pub use geo::GeoIndex;
pub(crate) use geo::{KeyRange, elements, hashes};
pub use keys::{DocumentKeys, KeyOf};
pub use spec::{IndexSpec, KeyKind, KeyPart};
pub use text::TextIndex;
pub use wildcard::Wildcard;

use base::bson::Document;
use base::{Namespace, Result};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use query::Context;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use storage::Ident;
use storage::store::Build;

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

// An index that is being built while documents change.
//
// The builder loads the entries of a snapshot, sorted, a few at a time. Whoever changes a document meanwhile
// writes its entries into the index being built as into any other, and marks the record: the builder leaves
// out what its snapshot says of marked records. So nothing has to be caught up with at the end.

/// An index of a collection that no plan may use yet.
pub struct Building {
    /// The index; its tree holds what has been loaded so far, and what was written since the build began.
    pub index: Arc<Index>,
    /// What its builder is told by those who write to it.
    pub build: Arc<Build>,
}

// Specifications of indexes that were checked before.
//
// Test suites create the same collections with the same indexes before each test, and checking what createIndexes is given
// was a third of its instructions. What a specification says depends on nothing but its bytes, unless it takes a
// collation from the collection or has a filter: those are checked each time.

/// How many are kept; the next one forgets them all.
const MOST: usize = 256;

/// Longer ones are not kept, in bytes.
const LONGEST: usize = 512;

/// The specifications of a database that are kept, by their bytes.
#[derive(Default)]
pub(crate) struct KnownSpecs(Mutex<HashMap<Box<[u8]>, Arc<IndexSpec>, RandomState>>);

impl KnownSpecs {
    /// What [`IndexSpec::parse`] says of a specification.
    ///
    /// Errors: those of `parse`.
    pub(crate) fn parse(
        &self,
        specification: Document<'_>,
        namespace: &Namespace,
        context: &Context,
    ) -> Result<Arc<IndexSpec>> {
        let bytes = specification.bytes();
        if !context.collation.is_simple() || bytes.len() > LONGEST {
            return IndexSpec::parse(specification, namespace, context).map(Arc::new);
        }
        if let Some(known) = self.0.lock().get(bytes) {
            return Ok(known.clone());
        }
        let spec = Arc::new(IndexSpec::parse(specification, namespace, context)?);
        if spec.partial.is_none() {
            let mut known = self.0.lock();
            if known.len() >= MOST {
                known.clear();
            }
            known.insert(bytes.into(), spec.clone());
        }
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json;
    use query::Collation;

    fn context(collation: &str) -> Context {
        let collation = extended_json::parse(collation).unwrap();
        let context = Context::for_tests();
        match collation.view().is_empty() {
            true => context,
            false => context.with_collation(Collation::parse(collation.view(), "collation").unwrap()),
        }
    }

    #[test]
    fn what_was_checked_before_is_not_checked_again_unless_more_than_its_bytes_counts() {
        let known = KnownSpecs::default();
        let namespace = Namespace::parse("test.c").unwrap();
        let simple = context("{}");
        let again = |spec: &str, second: &Context| {
            let spec = extended_json::parse(spec).unwrap();
            let first = known.parse(spec.view(), &namespace, &simple).unwrap();
            let second = known.parse(spec.view(), &namespace, second).unwrap();
            (Arc::ptr_eq(&first, &second), second)
        };
        let plain = "{key: {a: 1}, name: 'a_1'}";
        assert!(again(plain, &simple).0);
        let (same, spec) = again(plain, &context("{locale: 'de'}"));
        assert!(!same && !spec.collation.is_simple(), "the collection has a collation");
        assert!(
            again("{key: {a: 1}, name: 'a_1', collation: {locale: 'de'}}", &simple).0,
            "the index has one"
        );
        assert!(!again("{key: {a: 1}, name: 'a_1', partialFilterExpression: {b: 1}}", &simple).0);
        assert!(again("{key: {a: 1}, name: 'a_1', unique: true}", &simple).1.unique);
        assert!(!again(plain, &simple).1.unique);
    }

    #[test]
    fn only_so_many_are_kept_and_what_is_refused_is_refused_again() {
        let known = KnownSpecs::default();
        let namespace = Namespace::parse("test.c").unwrap();
        let context = context("{}");
        for number in 0..3 * MOST {
            let spec = extended_json::parse(&format!("{{key: {{a: 1}}, name: 'a{number}'}}")).unwrap();
            known.parse(spec.view(), &namespace, &context).unwrap();
            assert!(known.0.lock().len() <= MOST);
        }
        let wrong = extended_json::parse("{key: {a: 0}, name: 'a'}").unwrap();
        for _ in 0..2 {
            assert!(known.parse(wrong.view(), &namespace, &context).is_err());
        }
    }
}
