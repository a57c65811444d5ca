//! Indexes: specifications, keys of documents, and knowledge about the paths.

mod geo;
mod keys;
mod spec;
mod text;
mod wildcard;

pub use geo::GeoIndex;
pub(crate) use geo::{KeyRange, elements, hashes};
pub use keys::{DocumentKeys, KeyOf};
pub(crate) use keys::{duplicate_key, shown};
pub use spec::{IndexSpec, KeyKind, KeyPart};
pub use text::TextIndex;
pub use wildcard::Wildcard;

use base::bson::Document;
use base::{Namespace, Result};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use query::Context;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use storage::Ident;
use storage::store::Build;

/// An index of a collection: its specification, its tree, and its multikey bits.
pub struct Index {
    /// The specification of createIndexes, shared with copies of the index.
    pub spec: Arc<IndexSpec>,
    /// Tree of the index in the engine.
    pub ident: Ident,
    /// For each key part, a bit for each path component at which some document has an array; for the paths of a
    /// wildcard index see [`Wildcard`]. Bits are only ever added. A scan planned on older bits is checked again at its
    /// start.
    multikey: SmallVec<[AtomicU32; 4]>,
    /// Number of uses by plans, for `$indexStats`. A wildcard index counts the uses of all paths together.
    pub uses: Arc<AtomicU64>,
    /// Start of the count `uses`, in milliseconds since 1970.
    pub since_millis: i64,
}

impl Index {
    /// Creates an index over a tree with its stored multikey bits (none for a new index).
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

    /// Returns this index over another tree, with no counted uses. The tree holds the same entries, or none.
    pub(crate) fn over(&self, ident: Ident, holds_entries: bool, since_millis: i64) -> Index {
        let bits = if holds_entries { self.multikey_bits() } else { Vec::new() };
        Index::new(self.spec.clone(), ident, &bits, since_millis)
    }

    /// Returns this index with another specification and tree. The counted uses stay.
    pub(crate) fn with(&self, spec: impl Into<Arc<IndexSpec>>, ident: Ident, multikey: &[u32]) -> Index {
        let index = Index::new(spec, ident, multikey, self.since_millis);
        index.uses.store(self.uses.load(Relaxed), Relaxed);
        index
    }

    /// Returns true if any document has an array on any of the paths.
    pub fn is_multikey(&self) -> bool {
        self.multikey.iter().any(|bits| bits.load(Relaxed) != 0)
    }

    /// For each key part, returns the bits of the components at which some document has an array.
    pub fn multikey_bits(&self) -> Vec<u32> {
        self.multikey().collect()
    }

    /// Yields the same bits.
    pub(crate) fn multikey(&self) -> impl Iterator<Item = u32> {
        self.multikey.iter().map(|bits| bits.load(Relaxed))
    }

    /// Returns the multikey bits of a new document, if any of them are new.
    pub(crate) fn unknown_multikey(&self, document: &[u32]) -> Option<Vec<u32>> {
        debug_assert!(document.len() <= self.multikey.len(), "bits of another index: {}", document.len());
        let mut parts = self.multikey.iter().zip(document);
        parts.any(|(known, bits)| bits & !known.load(Relaxed) != 0).then(|| document.to_vec())
    }

    /// Adds the multikey bits of a new document.
    pub fn note_multikey(&self, document: &[u32]) {
        debug_assert!(document.len() <= self.multikey.len(), "bits of another index: {}", document.len());
        for (known, bits) in self.multikey.iter().zip(document) {
            known.fetch_or(*bits, Relaxed);
        }
    }

    /// Returns true for the index on `_id` that every collection has.
    pub fn is_id(&self) -> bool {
        self.spec.clustered || self.spec.name == "_id_"
    }

    /// Returns true if two documents must not have the same key.
    pub fn unique(&self) -> bool {
        self.spec.unique
    }
}

// An index that is built while documents change.
//
// The builder loads the entries of a snapshot, sorted, in small batches. Meanwhile a writer adds entries to the new
// index as to any other, and marks the record. The builder skips the snapshot's entries of marked records. No catch-up
// phase is therefore necessary at the end.

/// An index that no plan may use yet.
pub struct Building {
    /// The index. Its tree holds the entries loaded so far and the entries of writers since the start of the build.
    pub index: Arc<Index>,
    /// Reports of writers to the builder.
    pub build: Arc<Build>,
}

// A cache of checked index specifications.
//
// Test suites create the same collections with the same indexes before each test, and checking the specifications took
// a third of the instructions of createIndexes. The result depends only on the bytes of a specification, with two
// exceptions: a collation from the collection, and a filter. These are checked each time.

/// Maximum number of cached specifications. The cache is emptied when it is full.
const MOST: usize = 256;

/// Maximum length of a cached specification in bytes.
const LONGEST: usize = 512;

/// The cached specifications of a database by their bytes.
#[derive(Default)]
pub(crate) struct KnownSpecs(Mutex<HashMap<Box<[u8]>, Arc<IndexSpec>, RandomState>>);

impl KnownSpecs {
    /// Returns the result of [`IndexSpec::parse`], checked as a new index.
    ///
    /// Errors: errors of `parse`, of [`wildcard::check_new`] and of [`IndexSpec::check_new`].
    pub(crate) fn parse(
        &self,
        specification: Document<'_>,
        namespace: &Namespace,
        context: &Context,
    ) -> Result<Arc<IndexSpec>> {
        let parse = || {
            wildcard::check_new(specification)?;
            let spec = IndexSpec::parse(specification, namespace, context)?;
            spec.check_new(specification).map(|()| Arc::new(spec))
        };
        let bytes = specification.bytes();
        if !context.collation.is_simple() || bytes.len() > LONGEST {
            return parse();
        }
        if let Some(known) = self.0.lock().get(bytes) {
            return Ok(known.clone());
        }
        let spec = parse()?;
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
    fn equal_specifications_share_one_parse() {
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
    fn the_cache_is_bounded_and_excludes_errors() {
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
