//! Index filters and kept plans, set, cleared and listed by the shape of the queries that they are for, as
//! planCacheSetFilter and its like do.

use crate::database::Database;
use crate::kept_plans::IndexFilter;
use crate::plan::{Read, shape};
use base::bson::{Document, DocumentBuf, compare_documents};
use base::{Namespace, Result, err};
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

impl ShapeRequest<'_> {
    /// Errors: those of parsing filter, sort and projection.
    fn shape(&self, context: &Context) -> Result<Vec<u8>> {
        Ok(shape::of_read(&self.read(context)?, context))
    }

    /// Errors: those of parsing filter, sort and projection.
    fn read(&self, context: &Context) -> Result<Read> {
        let mut read = Read::new(Arc::new(Matcher::parse_query(self.query, context)?));
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
        let shape = request.shape(context)?;
        data.kept_plans.clear(Some(&shape));
        keys.sort_by(|a, b| compare_documents(a.view(), b.view()));
        keys.dedup();
        data.index_filters.set(IndexFilter {
            shape,
            query: request.query.to_owned(),
            sort: request.sort.to_owned(),
            projection: request.projection.to_owned(),
            collation: shape::own_collation(context),
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
        let shape = request.map(|request| request.shape(context)).transpose()?;
        let Some(collection) = self.collection(namespace) else { return Ok(()) };
        let data = collection.data()?;
        data.index_filters.clear(shape.as_deref());
        data.kept_plans.clear(shape.as_deref());
        Ok(())
    }

    /// Forgets the plan kept for a shape, or all of a collection. There need be none.
    ///
    /// Errors: those of parsing the shape.
    pub fn clear_kept_plans(
        &self,
        namespace: &Namespace,
        request: Option<&ShapeRequest<'_>>,
        context: &Context,
    ) -> Result<()> {
        let shape = request.map(|request| request.shape(context)).transpose()?;
        if let Some(Some(data)) = self.collection(namespace).map(|collection| collection.data.clone()) {
            data.kept_plans.clear(shape.as_deref());
        }
        Ok(())
    }

    /// The index filters of a collection, as they were set.
    ///
    /// Errors: CommandNotSupportedOnView.
    pub fn index_filters(&self, namespace: &Namespace) -> Result<Vec<Arc<IndexFilter>>> {
        match self.collection(namespace) {
            Some(collection) => Ok(collection.data()?.index_filters.all()),
            None => Ok(Vec::new()),
        }
    }
}
