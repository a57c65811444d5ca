//! EXPRESS: one document by a key that only one can have, `_id` above all.
//!
//! Two lookups, no scan: it is what most reads and writes by `_id` come down to. MongoDB shows little of it.

use super::{Explainer, Record, RecordStream, Stats, Surroundings};
use crate::access::Access;
use crate::keys::IndexEntry;
use crate::operation::Operation;
use crate::storage_error;
use base::Result;
use base::bson::Document;
use query::matcher::Matcher;
use query::{Context, Interrupt};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::{Ident, Snapshot, Value};

/// Yields the one document of a key, looked up when it is first asked for.
pub(crate) struct Express {
    surroundings: Arc<Surroundings>,
    access: Arc<Access>,
    key: Vec<u8>,
    filter: Option<Arc<Matcher>>,
    stats: Stats,
    keys_examined: u64,
    docs_examined: u64,
}

/// Looks up the document of a key in a unique index.
#[allow(clippy::too_many_arguments)]
pub(crate) fn lookup(
    operation: &Operation,
    snapshot: &dyn Snapshot,
    index: Ident,
    records: Ident,
    key: &[u8],
    filter: Option<&Matcher>,
    context: &Context,
) -> Result<(u64, u64, Option<Record>)> {
    found_by(operation, snapshot.lookup(index, key, records), key, filter, context)
}

/// What came of that lookup.
pub(crate) fn found_by(
    operation: &Operation,
    found: storage::Result<Option<(Value, Value)>>,
    key: &[u8],
    filter: Option<&Matcher>,
    context: &Context,
) -> Result<(u64, u64, Option<Record>)> {
    operation.check()?;
    let Some((entry, value)) = found.map_err(storage_error)? else { return Ok((0, 0, None)) };
    operation.keys_examined.fetch_add(1, Relaxed);
    operation.docs_examined.fetch_add(1, Relaxed);
    let id = IndexEntry::from_parts(key, &entry, true)?.record;
    let matched = match filter {
        Some(filter) => filter.matches(Document::from_valid(&value), context)?,
        None => true,
    };
    Ok((1, 1, matched.then(|| Record::stored(id, value.to_shared()))))
}

impl Express {
    pub(crate) fn new(
        surroundings: &Arc<Surroundings>,
        access: &Arc<Access>,
        key: Vec<u8>,
        filter: Option<Arc<Matcher>>,
    ) -> Express {
        Express {
            surroundings: surroundings.clone(),
            access: access.clone(),
            key,
            filter,
            stats: Stats::default(),
            keys_examined: 0,
            docs_examined: 0,
        }
    }
}

impl RecordStream for Express {
    fn next(&mut self) -> Result<Option<Record>> {
        if self.stats.works > 0 {
            self.stats.end();
            return Ok(None);
        }
        let around = &self.surroundings;
        let (keys, docs, record) = lookup(
            &around.operation,
            around.snapshot.as_ref(),
            self.access.index.ident,
            around.records,
            &self.key,
            self.filter.as_deref(),
            &around.context,
        )?;
        (self.keys_examined, self.docs_examined) = (keys, docs);
        match record {
            Some(_) => self.stats.advance(),
            None => self.stats.end(),
        }
        Ok(record)
    }

    fn explain(&self, out: &mut Explainer) {
        let spec = &self.access.index.spec;
        match spec.clustered {
            true => out.out().append(c"stage", "EXPRESS_CLUSTERED_IXSCAN"),
            false => {
                let shown = out.out().append(c"stage", "EXPRESS_IXSCAN");
                shown
                    .append(c"keyPattern", spec.key.to_string().as_str())
                    .append(c"indexName", spec.name.as_str())
            }
        };
        out.out().append_optional(c"filter", self.filter.as_ref().map(|filter| filter.describe()).as_ref());
        if let Some(projection) = out.projection.take() {
            out.out().append(c"projection", &projection).append(c"projectionCovered", false);
        }
        out.keys(self.keys_examined);
        out.docs(self.docs_examined);
        out.count(c"nReturned", self.stats.advanced);
    }
}

/// The one record, if any, of a lookup already made, or what went wrong.
pub(crate) struct Found(pub(crate) Option<Result<Record>>);

impl RecordStream for Found {
    fn next(&mut self) -> Result<Option<Record>> {
        self.0.take().transpose()
    }
}
