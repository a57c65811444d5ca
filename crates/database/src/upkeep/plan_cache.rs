//! Commands for index filters and cached plans (planCacheSetFilter and related commands), by query
//! shape.

use crate::catalog::cached_plans::IndexFilter;
use crate::database::Database;
use crate::plan::{Read, shape};
use base::bson::{Document, DocumentBuf, compare_documents};
use base::{Namespace, Result, err};
use query::matcher::Matcher;
use query::{Context, SortPattern};
use std::sync::Arc;

/// The query shape of an index filter.
#[derive(Clone, Copy)]
pub struct ShapeRequest<'a> {
    /// The filter, with any constants.
    pub query: Document<'a>,
    /// The sort; empty means none.
    pub sort: Document<'a>,
    /// The projection; empty means none.
    pub projection: Document<'a>,
}

impl ShapeRequest<'_> {
    /// Errors: parse errors of filter, sort and projection.
    fn shape(&self, context: &Context) -> Result<Vec<u8>> {
        Ok(shape::of_read(&self.read(context)?, context))
    }

    /// Errors: parse errors of filter, sort and projection.
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
    /// Sets the allowed indexes of a query shape, by key pattern and by name. Replaces an earlier
    /// filter.
    ///
    /// Errors: BadValue for a missing collection; parse errors of the shape.
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
        data.cached_plans.clear(Some(&shape));
        keys.sort_by(|a, b| compare_documents(a.view(), b.view()));
        keys.dedup();
        data.index_filters.set(IndexFilter {
            shape,
            query: request.query.to_owned(),
            sort: request.sort.to_owned(),
            projection: request.projection.to_owned(),
            collation: shape::explicit_collation(context),
            keys,
            names,
        });
        Ok(())
    }

    /// Removes the index filter of a shape, or all filters of a collection. Succeeds without any
    /// filter.
    ///
    /// Errors: CommandNotSupportedOnView; parse errors of the shape.
    pub fn clear_index_filters(
        &self,
        namespace: &Namespace,
        request: Option<&ShapeRequest<'_>>,
        context: &Context,
    ) -> Result<()> {
        self.clear_of_shape(namespace, request, context, true)
    }

    /// Removes the cached plan of a shape, or all plans of a collection. Succeeds without any plan.
    ///
    /// Errors: CommandNotSupportedOnView; parse errors of the shape.
    pub fn clear_cached_plans(
        &self,
        namespace: &Namespace,
        request: Option<&ShapeRequest<'_>>,
        context: &Context,
    ) -> Result<()> {
        self.clear_of_shape(namespace, request, context, false)
    }

    /// Removes cached plans, and index filters too if `clears_filters` is set.
    fn clear_of_shape(
        &self,
        namespace: &Namespace,
        request: Option<&ShapeRequest<'_>>,
        context: &Context,
        clears_filters: bool,
    ) -> Result<()> {
        let shape = request.map(|request| request.shape(context)).transpose()?;
        let Some(collection) = self.collection(namespace) else { return Ok(()) };
        let data = collection.data()?;
        if clears_filters {
            data.index_filters.clear(shape.as_deref());
        }
        data.cached_plans.clear(shape.as_deref());
        Ok(())
    }

    /// Returns the index filters of a collection in the order of their creation.
    ///
    /// Errors: CommandNotSupportedOnView.
    pub fn index_filters(&self, namespace: &Namespace) -> Result<Vec<Arc<IndexFilter>>> {
        match self.collection(namespace) {
            Some(collection) => Ok(collection.data()?.index_filters.all()),
            None => Ok(Vec::new()),
        }
    }
}
