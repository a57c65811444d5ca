//! Reads: find, aggregate, count, distinct. Each is parsed, planned, and then streamed.
//!
//! This module also passes the metadata of a plan's records to `$meta`.

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

/// An empty stream, for a missing collection.
pub(crate) struct Nothing;

impl Stage for Nothing {
    fn next(&mut self) -> Result<Option<DocumentCow>> {
        Ok(None)
    }
}

impl Database {
    /// Checks that a cursor's collection and snapshot still exist.
    ///
    /// Errors: QueryPlanKilled if the collection was dropped or replaced, or the snapshot released.
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

/// Returns a plan's records as the source of a pipeline whose stages may need metadata.
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

/// Documents whose metadata is stored in the context as they pass.
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
