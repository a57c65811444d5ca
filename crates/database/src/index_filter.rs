//! Index filters: which indexes queries of one shape may use.
//!
//! A filter lives beside its collection and dies with it, or with the process, as in MongoDB: the
//! catalog doesn't keep it. It names indexes that need not be there (yet); where none of them is,
//! the query scans the collection. It takes the place of a hint, but for `$natural`.

use crate::database::Database;
use crate::index::Index;
use crate::plan::{Read, shape};
use base::bson::{Document, DocumentBuf, compare_documents};
use base::{Namespace, Result, err};
use parking_lot::RwLock;
use query::matcher::Matcher;
use query::{Context, SortPattern};
use std::sync::Arc;

/// The queries that an index filter is for.
#[derive(Clone, Copy)]
pub struct ShapeRequest<'a> {
    /// Their filter, with any constants.
    pub query: Document<'a>,
    /// Their order; empty is none.
    pub sort: Document<'a>,
    /// Their projection; empty is none.
    pub projection: Document<'a>,
}

/// The indexes that queries of one shape may use.
pub struct IndexFilter {
    shape: Vec<u8>,
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
    /// The filter for a query's shape.
    pub(crate) fn find(&self, read: &Read, context: &Context) -> Option<Arc<IndexFilter>> {
        let filters = self.filters.read();
        if filters.is_empty() {
            return None;
        }
        let shape = shape_of_read(read, context);
        filters.iter().find(|filter| filter.shape == shape).cloned()
    }

    fn set(&self, filter: IndexFilter) {
        let mut filters = self.filters.write();
        filters.retain(|other| other.shape != filter.shape);
        filters.push(Arc::new(filter));
    }
}

fn shape_of_read(read: &Read, context: &Context) -> Vec<u8> {
    let described = read.matcher.describe();
    let collation = own_collation(context);
    let collation = collation.as_ref().map_or(Document::EMPTY, DocumentBuf::view);
    shape::encode(described.view(), read.sort.as_deref(), read.projection.as_ref(), collation)
}

/// The collation that a command asks for itself: one that it has from its collection is no part of
/// the shape.
fn own_collation(context: &Context) -> Option<DocumentBuf> {
    context.own_collation.then(|| context.collation.document().unwrap_or(Document::EMPTY).to_owned())
}

impl ShapeRequest<'_> {
    /// Errors: those of parsing filter, sort and projection.
    fn read(&self, context: &Context) -> Result<Read> {
        let mut read = Read::new(Arc::new(Matcher::parse(self.query, context)?));
        if !self.sort.is_empty() {
            read.sort = Some(Arc::new(SortPattern::parse(self.sort)?));
        }
        if !self.projection.is_empty() {
            query::Projection::parse_find(self.projection, context)?;
            read.projection = Some(self.projection.to_owned());
        }
        Ok(read)
    }
}

impl Database {
    /// Sets which indexes, by key pattern and by name, the queries of a shape may use, in place of
    /// what was set before.
    ///
    /// Errors: BadValue where there is no such collection; those of parsing the shape.
    pub fn set_index_filter(
        &self,
        namespace: &Namespace,
        request: &ShapeRequest<'_>,
        (mut keys, names): (Vec<DocumentBuf>, Vec<String>),
        context: &Context,
    ) -> Result<()> {
        let collection = self.collection(namespace).ok_or_else(|| err!(BadValue, "no such collection"))?;
        let data = collection.data()?;
        let shape = shape_of_read(&request.read(context)?, context);
        keys.sort_by(|a, b| compare_documents(a.view(), b.view()));
        keys.dedup();
        data.index_filters.set(IndexFilter {
            shape,
            query: request.query.to_owned(),
            sort: request.sort.to_owned(),
            projection: request.projection.to_owned(),
            collation: own_collation(context),
            keys,
            names,
        });
        Ok(())
    }

    /// Forgets the index filter of a shape, or all of a collection. There need be none.
    ///
    /// Errors: those of parsing the shape.
    pub fn clear_index_filters(
        &self,
        namespace: &Namespace,
        request: Option<&ShapeRequest<'_>>,
        context: &Context,
    ) -> Result<()> {
        let shape = match request {
            Some(request) => Some(shape_of_read(&request.read(context)?, context)),
            None => None,
        };
        let Some(collection) = self.collection(namespace) else { return Ok(()) };
        let mut filters = collection.data()?.index_filters.filters.write();
        filters.retain(|filter| shape.as_ref().is_some_and(|shape| filter.shape != *shape));
        Ok(())
    }

    /// The index filters of a collection, as they were set.
    ///
    /// Errors: CommandNotSupportedOnView.
    pub fn index_filters(&self, namespace: &Namespace) -> Result<Vec<Arc<IndexFilter>>> {
        match self.collection(namespace) {
            Some(collection) => Ok(collection.data()?.index_filters.filters.read().clone()),
            None => Ok(Vec::new()),
        }
    }
}
