//! The reads: find, aggregate, count, distinct. Each parses first, then plans, then streams.
//!
//! Tells `$meta` what plans know of the records they find.

mod aggregate;
mod collections;
mod distinct;
mod find;
mod hash;
mod measure;
mod oplog;

pub use aggregate::{AggregateRequest, ServerSource, Sources};
pub(crate) use aggregate::{Front, check_first_stage};
pub(crate) use collections::OtherCollections;
pub use find::FindRequest;
pub(crate) use find::stages;
pub use measure::MeasuredRange;

use crate::commit::uuid_text;
use crate::cursor::Cursor;
use crate::database::Database;
use crate::exec::RecordStream;
use crate::plan::note;
use base::bson::DocumentCow;
use base::{Result, err};
use query::{Context, SortPattern, Stage};
use std::sync::Arc;

/// A plan's records as the source of a pipeline.
pub(crate) struct Documents(pub(crate) Box<dyn RecordStream>);

impl Stage for Documents {
    fn next(&mut self) -> Result<Option<DocumentCow>> {
        Ok(self.0.next()?.map(|record| record.document))
    }
}

/// No documents: what a collection that isn't there has.
pub(crate) struct Nothing;

impl Stage for Nothing {
    fn next(&mut self) -> Result<Option<DocumentCow>> {
        Ok(None)
    }
}

impl Database {
    /// Checks that what a cursor reads is still there.
    ///
    /// Errors: QueryPlanKilled where its collection was dropped or replaced, or its snapshot given up.
    pub fn check_cursor(&self, cursor: &Cursor) -> Result<()> {
        if cursor.lost {
            return Err(err!(
                QueryPlanKilled,
                "the cursor's snapshot was given up: it kept more than maxSnapshotHistoryBytes"
            ));
        }
        let Some(uuid) = cursor.uuid else { return Ok(()) };
        match self.collection(&cursor.namespace) {
            Some(now) if now.uuid == uuid => Ok(()),
            _ => Err(err!(QueryPlanKilled, "collection dropped. UUID {}", uuid_text(&uuid))),
        }
    }
}

/// A plan's records as the source of a pipeline, whose stages may ask for metadata.
pub(crate) fn with_metadata(
    records: Box<dyn RecordStream>,
    sort: Option<Arc<SortPattern>>,
    context: &Arc<Context>,
) -> Box<dyn Stage> {
    match context.metadata.wants_any() {
        true => Box::new(Described { records, sort, context: context.clone() }),
        false => Box::new(Documents(records)),
    }
}

/// Documents whose metadata is noted as they pass.
struct Described {
    records: Box<dyn RecordStream>,
    sort: Option<Arc<SortPattern>>,
    context: Arc<Context>,
}

impl Stage for Described {
    fn next(&mut self) -> Result<Option<DocumentCow>> {
        let Some(record) = self.records.next()? else { return Ok(None) };
        note(&record, self.sort.as_deref(), &self.context)?;
        Ok(Some(record.document))
    }
}
