//! distinct: the different values of a path. count: the number of matching documents.

use super::find::stages;
use super::{AggregateRequest, Documents};
use crate::database::Database;
use crate::operation::{Operation, PlanUse};
use crate::plan::{Hint, Read, read_missing};
use crate::scope::Scope;
use crate::storage_error;
use base::bson::{Builder, Document, DocumentBuf, FieldName, MAX_DOCUMENT_SIZE, Path, PathComponent, Value};
use base::{Result, bail};
use query::matcher::Matcher;
use query::{Collation, Context, Stage};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Database {
    /// Returns the distinct values at a path among the matching documents, as a document with the
    /// array `values`. The elements of an array count as single values. The values are sorted by
    /// the collation, except after a pipeline.
    ///
    /// Errors: 17217 if the values exceed the size of one reply.
    pub fn distinct(
        self: &Arc<Self>,
        scope: &Scope,
        key: &str,
        filter: Document<'_>,
        hint: Option<Hint>,
    ) -> Result<DocumentBuf> {
        let Scope { operation, namespace, context, .. } = scope;
        let matcher = Arc::new(Matcher::parse_query(filter, context)?);
        let view = scope.view(self);
        let mut values = Values::new(Path::new(FieldName::new(key)?), scope);
        let found = view.catalog.get(namespace).cloned();
        let through_pipeline = self.is_virtual(namespace) || found.as_ref().is_some_and(|it| it.is_view());
        let mut source: Box<dyn Stage> = if through_pipeline {
            let mut out = Builder::new();
            out.begin_array(c"pipeline").push_document().append(c"$match", filter).end().end();
            let holder = out.finish();
            let request = AggregateRequest { hint, ..AggregateRequest::new(super::find::stages(&holder)) };
            self.aggregate(scope, &request)?.into_source()
        } else {
            let Some(collection) = found else {
                let refused = read_missing(operation, &matcher, namespace);
                return self.confirmed(view, refused.map(|()| values.finish()));
            };
            let path = Path::new(FieldName::new(key)?);
            let covering = Some(vec![path.clone()]);
            let read = Read { hint, covering, distinct: Some(path), ..Read::new(matcher) };
            let records = self.read(operation, view, &collection, read, context);
            Box::new(Documents(self.confirmed(view, records)?))
        };
        let gathered = operation.run(|| {
            while let Some(row) = source.next()? {
                values.add(row.document.view())?;
            }
            Ok(())
        });
        gathered.map_err(|error| match through_pipeline {
            true => error.context("PlanExecutor error during aggregation"),
            false => {
                error.context(&format!("Executor error during distinct command on namespace: {namespace}"))
            }
        })?;
        // The groups of a pipeline have no order.
        Ok(if through_pipeline { values.finish() } else { values.sorted() })
    }
}

/// Distinct values in the order of their first occurrence.
struct Values {
    path: Path,
    /// Position of each value in the order of occurrence, by sort key.
    seen: BTreeMap<Vec<u8>, usize>,
    collation: Collation,
    /// The values in the order of occurrence.
    out: Builder,
    context: Arc<Context>,
    operation: Arc<Operation>,
}

impl Values {
    fn new(path: Path, scope: &Scope) -> Values {
        let Scope { operation, context, .. } = scope;
        let mut out = Builder::new();
        out.begin_array(c"values");
        let collation = context.collation.clone();
        Values {
            path,
            seen: BTreeMap::new(),
            collation,
            out,
            context: context.clone(),
            operation: operation.clone(),
        }
    }

    fn add(&mut self, document: Document<'_>) -> Result<()> {
        let path = self.path.clone();
        self.walk(Value::Document(document), path.components(), false)
    }

    /// Follows the path through every element of its arrays. The length of the path limits the
    /// recursion.
    fn walk(&mut self, value: Value<'_>, components: &[PathComponent], nested: bool) -> Result<()> {
        let Some((first, rest)) = components.split_first() else {
            return match value {
                Value::Array(array) if !nested => array.iter().try_for_each(|element| self.note(element)),
                _ => self.note(value),
            };
        };
        match value {
            Value::Document(document) => match document.get(first.name()) {
                Some(inner) => self.walk(inner, rest, false),
                None => Ok(()),
            },
            Value::Array(array) if !nested => {
                if let Some(element) = first.index().and_then(|index| array.get(index)) {
                    self.walk(element, rest, false)?;
                }
                array
                    .iter()
                    .filter(|element| matches!(element, Value::Document(_)))
                    .try_for_each(|element| self.walk(element, components, true))
            }
            _ => Ok(()),
        }
    }

    /// Errors: interruption; 17217 above the limit of a reply.
    fn note(&mut self, value: Value<'_>) -> Result<()> {
        self.context.steps(1)?;
        // The key, the value and the sorted reply. A growing buffer doubles.
        let size = match value {
            Value::String(text) => text.len(),
            Value::Document(document) => document.bytes().len(),
            Value::Array(array) => array.bytes().len(),
            Value::Binary { bytes, .. } => bytes.len(),
            _ => 0,
        };
        self.operation.reserve_required(4 * size)?;
        let mut key = Vec::new();
        self.collation.append_key(value, true, &mut key);
        let next = self.seen.len();
        if *self.seen.entry(key).or_insert(next) != next {
            return Ok(());
        }
        self.out.push(value);
        if self.out.len() > MAX_DOCUMENT_SIZE {
            bail!(17217, "distinct too big, 16mb cap");
        }
        Ok(())
    }

    fn finish(mut self) -> DocumentBuf {
        self.out.end();
        self.out.finish()
    }

    /// Returns the values in sort order instead of the order of occurrence.
    fn sorted(mut self) -> DocumentBuf {
        let order = std::mem::take(&mut self.seen);
        let met = self.finish();
        let values = met.view().get("values").and_then(|values| values.as_array());
        let values: Vec<Value<'_>> = values.into_iter().flat_map(|values| values.iter()).collect();
        let mut out = Builder::with_buffer(Vec::with_capacity(met.view().bytes().len()));
        out.begin_array(c"values");
        for value in order.values().filter_map(|met| values.get(*met)) {
            out.push(*value);
        }
        out.end();
        out.finish()
    }
}

impl Database {
    /// Counts the matching documents after `skip` and up to `limit` (zero: unlimited). Without a
    /// filter, returns the collection's record count at no cost.
    pub fn count(
        self: &Arc<Self>,
        scope: &Scope,
        filter: Document<'_>,
        hint: Option<Hint>,
        skip: u64,
        limit: u64,
    ) -> Result<u64> {
        let Scope { operation, namespace, context, .. } = scope;
        let matcher = Arc::new(Matcher::parse_query(filter, context)?);
        if self.is_virtual(namespace) {
            let all = self.count_view(scope, filter, hint)?.saturating_sub(skip);
            return Ok(if limit == 0 { all } else { all.min(limit) });
        }
        let view = scope.view(self);
        let Some(collection) = view.catalog.get(namespace).cloned() else {
            return self.confirmed(view, read_missing(operation, &matcher, namespace).map(|()| 0));
        };
        let window = |all: u64| match (all.saturating_sub(skip), limit) {
            (left, 0) => left,
            (left, limit) => left.min(limit),
        };
        if collection.is_view() {
            return Ok(window(self.count_view(scope, filter, hint)?));
        }
        if matcher.is_empty() && hint.is_none() {
            operation.record_plan([PlanUse::Stage("RECORD_STORE_FAST_COUNT")]);
            // The running counts belong to the primary.
            if let (Some(view), Some(data)) = (operation.standby_view(), &collection.data)
                && let Some(remote) = view.snapshot.remote()
                && let [(_, records, _), ..] = remote.counts(&[data.ident]).map_err(storage_error)?[..]
            {
                return Ok(window(records.max(0) as u64));
            }
            self.refresh_counts(&collection)?;
            return self.confirmed(view, Ok(window(collection.records().max(0) as u64)));
        }
        let read = Read { hint, skip, limit, covering: Some(Vec::new()), ..Read::new(matcher) };
        let records = self.read(operation, view, &collection, read, context);
        let mut records = self.confirmed(view, records)?;
        operation.run(|| records.count()).map_err(|error| {
            error.context(&format!("Executor error during count command on namespace: {namespace}"))
        })
    }

    fn count_view(self: &Arc<Self>, scope: &Scope, filter: Document<'_>, hint: Option<Hint>) -> Result<u64> {
        let mut out = Builder::new();
        out.begin_array(c"pipeline");
        out.push_document().append(c"$match", filter).end();
        out.push_document().append(c"$count", "n").end().end();
        let holder = out.finish();
        let request = AggregateRequest { hint, ..AggregateRequest::new(stages(&holder)) };
        let mut cursor = self.aggregate(scope, &request)?;
        let mut batch = Builder::new();
        batch.begin_array(c"b");
        cursor.next_batch(1, &mut batch)?;
        batch.end();
        let batch = batch.finish();
        let first = batch.view().get("b").and_then(|b| b.as_array()).and_then(|b| b.get(0));
        let count = first.and_then(|v| v.as_document()).and_then(|d| d.get("n")).and_then(|n| n.as_i64());
        Ok(count.unwrap_or(0) as u64)
    }
}
