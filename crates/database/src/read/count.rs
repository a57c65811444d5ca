//! count: how many documents match.

use super::AggregateRequest;
use super::find::stages;
use crate::database::Database;
use crate::plan::{Hint, Read, refuse_missing};
use crate::scope::Scope;
use crate::storage_error;
use base::Result;
use base::bson::{Builder, Document};
use query::matcher::Matcher;
use std::sync::Arc;

impl Database {
    /// Counts the documents that match, after `skip` and up to `limit` (zero: all). Without a
    /// filter it costs nothing: the collection's own count is returned.
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
            let all = self.count_view(scope, filter)?.saturating_sub(skip);
            return Ok(if limit == 0 { all } else { all.min(limit) });
        }
        let view = scope.view(self);
        let Some(collection) = view.catalog.get(namespace).cloned() else {
            return self.confirmed(view, refuse_missing(&matcher, namespace).map(|()| 0));
        };
        let window = |all: u64| match (all.saturating_sub(skip), limit) {
            (left, 0) => left,
            (left, limit) => left.min(limit),
        };
        if collection.is_view() {
            return Ok(window(self.count_view(scope, filter)?));
        }
        if matcher.is_empty() && hint.is_none() {
            // Running counts are those of the member that takes the writes.
            if let (Some(view), Some(data)) = (operation.elsewhere(), &collection.data)
                && let Some((records, _)) = view.snapshot.counted(data.ident).map_err(storage_error)?
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

    fn count_view(self: &Arc<Self>, scope: &Scope, filter: Document<'_>) -> Result<u64> {
        let mut out = Builder::new();
        out.begin_array(c"pipeline");
        out.push_document().append(c"$match", filter).end();
        out.push_document().append(c"$count", "n").end().end();
        let holder = out.finish();
        let mut cursor = self.aggregate(scope, &AggregateRequest::new(stages(&holder)))?;
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
