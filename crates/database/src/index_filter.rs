//! Index filters: which indexes queries of one shape may use.
//!
//! A filter lives beside its collection and dies with it, or with the process, as in MongoDB: the
//! catalog doesn't keep it. It names indexes that need not be there (yet); where none of them is,
//! the query scans the collection. It takes the place of a hint, but for `$natural`.

use crate::index::Index;
use base::bson::{DocumentBuf, compare_documents};
use parking_lot::RwLock;
use std::sync::Arc;

/// The indexes that queries of one shape may use.
pub struct IndexFilter {
    pub(crate) shape: Vec<u8>,
    /// The filter it was set with.
    pub query: DocumentBuf,
    /// The order it was set with.
    pub sort: DocumentBuf,
    /// The projection it was set with.
    pub projection: DocumentBuf,
    /// The collation that it was set with, if any.
    pub collation: Option<DocumentBuf>,
    /// The key patterns of the indexes allowed, in the order of documents.
    pub keys: Vec<DocumentBuf>,
    /// The names of the indexes allowed.
    pub names: Vec<String>,
}

impl IndexFilter {
    /// Whether it allows an index.
    pub(crate) fn allows(&self, index: &Index) -> bool {
        let spec = &index.spec;
        self.names.contains(&spec.name)
            || self.keys.iter().any(|key| compare_documents(key.view(), spec.key.view()).is_eq())
    }
}

/// The index filters of a collection.
#[derive(Default)]
pub struct IndexFilters {
    filters: RwLock<Vec<Arc<IndexFilter>>>,
}

impl IndexFilters {
    /// The filter for a query's shape, which is asked for only where there are filters.
    pub(crate) fn find(&self, shape: impl FnOnce() -> Vec<u8>) -> Option<Arc<IndexFilter>> {
        let filters = self.filters.read();
        if filters.is_empty() {
            return None;
        }
        let shape = shape();
        filters.iter().find(|filter| filter.shape == shape).cloned()
    }

    /// Puts a filter in the place of the one of its shape.
    pub(crate) fn set(&self, filter: IndexFilter) {
        let mut filters = self.filters.write();
        filters.retain(|other| other.shape != filter.shape);
        filters.push(Arc::new(filter));
    }

    /// Forgets the filter of a shape, or all.
    pub(crate) fn clear(&self, shape: Option<&[u8]>) {
        self.filters.write().retain(|filter| shape.is_some_and(|shape| filter.shape != shape));
    }

    /// All filters, in the order in which they were set.
    pub(crate) fn all(&self) -> Vec<Arc<IndexFilter>> {
        self.filters.read().clone()
    }
}
