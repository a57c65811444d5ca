//! The reads: find, aggregate, count, distinct. Each parses first, then plans, then streams.

mod aggregate;
mod collections;
mod count;
mod distinct;
mod find;
mod hash;
mod metadata;
mod oplog;
mod out;
mod tail;
mod transactions;

pub use aggregate::{AggregateRequest, Sources};
pub(crate) use aggregate::{Front, check_first_stage};
pub(crate) use collections::OtherCollections;
pub use find::FindRequest;
pub(crate) use find::stages;

use crate::commit::uuid_text;
use crate::cursor::Cursor;
use crate::database::Database;
use crate::exec::RecordStream;
use base::bson::DocumentCow;
use base::{Result, err};
use query::Stage;

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
