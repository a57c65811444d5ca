//! Plans as trees of nodes, and running them: streams of records over one snapshot.
//!
//! A plan is data ([`Node`]). Opening it makes a stream of each node. A stream pulls from the one below it:
//! [`RecordStream`]s yield documents in [`Row`]s, [`IdStream`]s the ids that an index found, which FETCH turns into
//! documents. Streams of one kind share a file. A stream counts its work, and explain prints the counts with
//! the nodes.

mod bounds;
mod collscan;
mod counters;
mod covered;
mod describe;
mod distinct_scan;
mod fetch;
mod geo_near;
mod ixscan;
mod node;
mod open;
mod or;
mod prefetch;
mod sort;
mod text;

pub(crate) use bounds::KeyBounds;
pub(crate) use collscan::NaturalOrder;
pub(crate) use counters::{Report, Stats};
pub(crate) use covered::Covering;
pub(crate) use describe::Explainer;
pub(crate) use fetch::{Ahead, Found, found_by, lookup};
pub(crate) use geo_near::NearAccess;
pub(crate) use node::{Fetches, Ids, Keys, Node, Scan, TextSearch, Within};
pub(crate) use sort::{Limit, SortOptions};

use crate::index::IndexSpec;
use crate::keys::RecordId;
use crate::operation::Operation;
use crate::storage_error;
use base::bson::{Document, DocumentCow};
use base::{Result, err};
use ixscan::IndexKey;
use query::matcher::Matcher;
use query::{Context, Interrupt, Row};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;
use storage::{Ident, Snapshot, Value};

/// Returns the row of a stored document.
#[inline]
fn stored(id: RecordId, document: Arc<[u8]>) -> Row {
    Row::stored(id.0, DocumentCow::Shared(document))
}

/// Yields records one at a time; owns its snapshot.
pub trait RecordStream: Send {
    /// The next record, or `None` when there are no more (and ever after).
    fn next(&mut self) -> Result<Option<Row>>;

    /// Counts what is left, without making records where that can be avoided.
    fn count(&mut self) -> Result<u64> {
        let mut count = 0;
        while self.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// Reports what its node did, and those below it.
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn report(&self, _report: &mut Report) {}
}

/// Yields the ids of records that an index found.
pub(crate) trait IdStream: Send {
    /// The next id, or `None` when there are no more (and ever after).
    fn next(&mut self) -> Result<Option<RecordId>>;

    /// The key that the last id was found at, if it was asked for when the plan was built.
    fn key(&self) -> Option<&IndexKey>;

    /// The index that the last id was found in.
    fn index(&self) -> Option<&IndexSpec>;

    /// The document of the last id, if its page carried it.
    fn prefetched_record(&mut self) -> Result<Option<Value>> {
        Ok(None)
    }

    /// Reports what its node did, and those below it.
    fn report(&self, report: &mut Report);
}

/// How many documents or keys a stage looks at for one result before the work goes on through
/// [`Operation::at_length`]: so quick reads don't pay for giving the thread's other clients away,
/// and slow ones don't hold these up.
const PATIENCE: u64 = 1000;

/// The next record that a stage searches for: first among [`PATIENCE`] that it looks at, then at length. The
/// search is told among how many, and gives `None` where it is none of these.
fn patiently<S>(
    stage: &mut S,
    operation: fn(&S) -> &Arc<Operation>,
    search: impl Fn(&mut S, u64) -> Result<Option<Option<Row>>>,
) -> Result<Option<Row>> {
    if let Some(found) = search(stage, PATIENCE)? {
        return Ok(found);
    }
    let operation = operation(stage).clone();
    operation.at_length(|| search(stage, u64::MAX).map(Option::flatten))
}

/// The document of a record; `None` where the entry that named it was read from an earlier state than there is
/// now, and the document has gone since.
///
/// Errors: DataCorruptionDetected where an index names a record that isn't there.
#[inline]
fn record_of(snapshot: &dyn Snapshot, records: Ident, id: RecordId) -> Result<Option<Value>> {
    let value = snapshot.get(records, &id.0.to_be_bytes()).map_err(storage_error)?;
    if value.is_some() || snapshot.remote().is_some_and(|remote| !remote.is_pinned()) {
        return Ok(value);
    }
    Err(err!(DataCorruptionDetected, "an index names record {}, which isn't there", id.0))
}

/// What all stages of one plan share.
pub(crate) struct Surroundings {
    /// Says when to stop; counts what was examined.
    pub(crate) operation: Arc<Operation>,
    /// The data as of when the plan started.
    pub(crate) snapshot: Arc<dyn Snapshot>,
    /// The tree of the collection's documents.
    pub(crate) records: Ident,
    /// What a scan of the collection goes by.
    pub(crate) natural: NaturalOrder,
    /// For evaluating filters.
    pub(crate) context: Arc<Context>,
}

impl Surroundings {
    /// The document of a record, as [`record_of`] gives it.
    ///
    /// Errors: DataCorruptionDetected where an index names a record that isn't there.
    #[inline]
    fn fetch(&self, id: RecordId) -> Result<Option<Value>> {
        record_of(self.snapshot.as_ref(), self.records, id)
    }

    /// The document of the last id of a stream.
    ///
    /// Errors: as [`fetch`](Self::fetch).
    #[inline]
    fn document(&self, ids: &mut dyn IdStream, id: RecordId) -> Result<Option<Value>> {
        match ids.prefetched_record()? {
            Some(document) => Ok(Some(document)),
            None => self.fetch(id),
        }
    }

    /// Whether a document passes a filter, if there is one.
    #[inline]
    fn passes(&self, filter: &Option<Arc<Matcher>>, document: &[u8]) -> Result<bool> {
        match filter {
            Some(filter) => filter.matches(Document::from_valid(document), &self.context),
            None => Ok(true),
        }
    }

    /// Counts a document and asks now and then whether to stop.
    #[inline]
    fn examine_document(&self) -> Result<()> {
        self.tick(&self.operation.docs_examined)
    }

    /// Counts a key and asks now and then whether to stop.
    #[inline]
    fn examine_key(&self) -> Result<()> {
        self.tick(&self.operation.keys_examined)
    }

    /// An operation runs on one thread at a time, so no count is lost by reading and writing
    /// apart, which costs a fraction of a locked addition.
    #[inline]
    fn tick(&self, counter: &AtomicI64) -> Result<()> {
        let count = counter.load(Relaxed);
        counter.store(count + 1, Relaxed);
        if count & 127 == 0 { self.operation.check() } else { Ok(()) }
    }
}
