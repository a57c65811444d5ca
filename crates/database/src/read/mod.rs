//! Reads: find, aggregate, count, distinct. Each is parsed, planned, and then streamed.

mod aggregate;
mod capped_copy;
mod collections;
mod distinct;
mod find;
mod oplog;
mod sums;

pub use aggregate::{AggregateRequest, ServerSource, Sources};
pub(crate) use aggregate::{PlannedPipeline, check_first_stage};
pub use capped_copy::CappedCopy;
pub(crate) use collections::OtherCollections;
pub use find::FindRequest;
pub(crate) use find::stages;
pub use sums::MeasuredRange;

use crate::cursor::{Cursor, Release};
use crate::database::Database;
use crate::exec::{Documents, RecordStream};
use crate::plan::note_sort_key;
use base::{Result, bail, encoding, err};
use query::pipeline::from_fn;
use query::{Context, MetaKind, SortPattern, Stage};
use std::sync::Arc;

impl Database {
    /// Checks that a cursor's collection and snapshot still exist.
    ///
    /// Errors: QueryPlanKilled if the collection was dropped or replaced, or the snapshot released.
    pub fn check_cursor(&self, cursor: &Cursor) -> Result<()> {
        if cursor.released == Some(Release::Snapshot) {
            bail!(
                QueryPlanKilled,
                "the cursor's snapshot was released: it kept more than maxSnapshotHistoryBytes"
            );
        }
        let Some(uuid) = cursor.uuid else { return Ok(()) };
        match self.collection(&cursor.namespace) {
            // A collection that was renamed and renamed back has its name again, and lost its cursors.
            Some(now) if now.uuid == uuid && cursor.released.is_none() => Ok(()),
            _ => Err(err!(QueryPlanKilled, "collection dropped. UUID {}", encoding::uuid(&uuid))),
        }
    }
}

/// Returns a plan's records as the source of a pipeline whose stages may need metadata.
pub(crate) fn with_metadata(
    mut records: Box<dyn RecordStream>,
    sort: Option<Arc<SortPattern>>,
    context: &Arc<Context>,
) -> Box<dyn Stage> {
    let Some(sort) = sort.filter(|_| context.metadata.requires(MetaKind::SortKey)) else {
        return Box::new(Documents(records));
    };
    let context = context.clone();
    from_fn(move || {
        let Some(mut row) = records.next()? else { return Ok(None) };
        note_sort_key(&mut row, Some(&sort), &context)?;
        Ok(Some(row))
    })
}
