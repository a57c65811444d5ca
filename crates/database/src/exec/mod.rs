//! Plans as trees of nodes, and their execution: streams of records over one snapshot.
//!
//! A plan is data ([`Node`]). Opening it creates a stream for each node. A stream pulls from the
//! streams below: [`RecordStream`]s yield documents in [`Row`]s, and [`IdStream`]s yield record ids
//! from an index. FETCH reads the documents of ids. Related streams share a file. A stream counts
//! its work, and explain prints the counts with the nodes.

mod bounds;
mod collscan;
mod covered;
mod describe;
mod fetch;
mod geo_near;
mod ixscan;
mod node;
mod or;
mod prefetch;
mod sort;

pub(crate) use bounds::KeyBounds;
pub(crate) use collscan::{Natural, NaturalOrder};
pub(crate) use covered::Covering;
pub(crate) use describe::{Explainer, Report, Stats};
pub(crate) use fetch::{PeekedStream, SingleRecord, finish_lookup, lookup};
pub(crate) use geo_near::NearAccess;
pub(crate) use node::{Fetches, Ids, Keys, Node, Scan, ScanKeys, TextSearch};
pub(crate) use prefetch::Fields;
pub(crate) use sort::{Limit, SortOptions};

use crate::index::IndexSpec;
use crate::keys::RecordId;
use crate::operation::Operation;
use crate::storage_error;
use base::bson::{Document, DocumentCow};
use base::{Result, err};
use collscan::Eof;
use ixscan::IndexKey;
use query::matcher::Matcher;
use query::pipeline::Split;
use query::{Context, Interrupt, Row, Stage};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;
use storage::{Ident, Snapshot, Value};

/// Returns the row of a stored document.
#[inline]
fn stored(id: RecordId, document: Arc<[u8]>) -> Row {
    Row::stored(id.0, DocumentCow::Shared(document))
}

/// A stream of records. Owns its snapshot.
pub trait RecordStream: Send {
    /// Returns the next record; `None` at the end and in all later calls.
    fn next(&mut self) -> Result<Option<Row>>;

    /// Counts the remaining records, if possible without creating them.
    fn count(&mut self) -> Result<u64> {
        let mut count = 0;
        while self.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// See [`Stage::begin_section`](query::Stage::begin_section).
    fn begin_section(&mut self) -> bool {
        false
    }

    /// See [`Stage::split`](query::Stage::split).
    fn split(&mut self) -> Option<Split<Box<dyn RecordStream>>> {
        None
    }

    /// Reports the statistics of its node and of the nodes below.
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn report(&self, _report: &mut Report) {}
}

/// A plan's records as the source of a pipeline.
pub(crate) struct Documents(pub(crate) Box<dyn RecordStream>);

impl Stage for Documents {
    fn next(&mut self) -> Result<Option<Row>> {
        self.0.next()
    }

    fn begin_section(&mut self) -> bool {
        self.0.begin_section()
    }

    fn split(&mut self) -> Option<Split> {
        Some(self.0.split()?.through(|records, _| -> Box<dyn Stage> { Box::new(Documents(records)) }))
    }
}

/// A stream of record ids from an index.
pub(crate) trait IdStream: Send {
    /// Returns the next id; `None` at the end and in all later calls.
    fn next(&mut self) -> Result<Option<RecordId>>;

    /// Returns the key of the last id, if the plan requested keys.
    fn key(&self) -> Option<&IndexKey>;

    /// Returns the index of the last id.
    fn index(&self) -> Option<&IndexSpec>;

    /// The document of the last id, if its page carried it.
    fn prefetched_record(&mut self) -> Result<Option<Value>> {
        Ok(None)
    }

    /// Reports the statistics of its node and of the nodes below.
    fn report(&self, report: &mut Report);
}

/// Length of documents that are each worth a check for interruption.
const CHECKED_BYTES: usize = 16 << 10;

/// Number of documents or keys that a stage examines for one result before it continues through
/// [`Operation::run_long`]. Fast reads then avoid the cost of handing over the thread's other
/// clients, and slow reads do not block these.
const SEARCH_BUDGET: u64 = 1000;

/// Returns the next record found by a stage: first among [`SEARCH_BUDGET`] examined ones, then as long
/// work. The search receives this limit and returns `None` if it finds nothing within it.
fn search_within_budget<S>(
    stage: &mut S,
    operation: fn(&S) -> &Arc<Operation>,
    search: impl Fn(&mut S, u64) -> Result<Option<Option<Row>>>,
) -> Result<Option<Row>> {
    if let Some(found) = search(stage, SEARCH_BUDGET)? {
        return Ok(found);
    }
    let operation = operation(stage).clone();
    operation.run_long(|| search(stage, u64::MAX).map(Option::flatten))
}

/// Returns the document of a record. Returns `None` if its index entry was read from an earlier
/// state and the document is gone since.
///
/// Errors: DataCorruptionDetected if an index names a missing record.
#[inline]
fn record_of(snapshot: &dyn Snapshot, records: Ident, id: RecordId) -> Result<Option<Value>> {
    let value = snapshot.get(records, &id.0.to_be_bytes()).map_err(storage_error)?;
    if value.is_some() || snapshot.remote().is_some_and(|remote| !remote.is_pinned()) {
        return Ok(value);
    }
    Err(err!(DataCorruptionDetected, "an index entry refers to the missing record {}", id.0))
}

/// State shared by all stages of a plan.
pub(crate) struct ExecContext {
    /// Interrupts the plan and counts examined keys and documents.
    pub(crate) operation: Arc<Operation>,
    /// Snapshot of the data at the start of the plan.
    pub(crate) snapshot: Arc<dyn Snapshot>,
    /// The tree of the collection's documents.
    pub(crate) records: Ident,
    /// The order of a collection scan.
    pub(crate) natural: NaturalOrder,
    /// Context for evaluating filters.
    pub(crate) context: Arc<Context>,
}

impl ExecContext {
    /// Returns the document of a record, see [`record_of`].
    ///
    /// Errors: DataCorruptionDetected if an index names a missing record.
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

    /// Returns true if a document passes the filter, if any.
    #[inline]
    fn passes(&self, filter: &Option<Arc<Matcher>>, document: &[u8]) -> Result<bool> {
        // Some large documents take as long as many small ones.
        if document.len() > CHECKED_BYTES {
            self.operation.check()?;
        }
        match filter {
            Some(filter) => filter.matches(Document::from_valid(document), &self.context),
            None => Ok(true),
        }
    }

    /// Counts a document and checks from time to time for interruption.
    #[inline]
    fn examine_document(&self) -> Result<()> {
        self.tick(&self.operation.docs_examined)
    }

    /// Counts a key and checks from time to time for interruption.
    #[inline]
    fn examine_key(&self) -> Result<()> {
        self.tick(&self.operation.keys_examined)
    }

    /// An operation runs on one thread at a time. A separate load and store therefore loses no
    /// count, at a fraction of the cost of an atomic addition.
    #[inline]
    fn tick(&self, counter: &AtomicI64) -> Result<()> {
        let count = counter.load(Relaxed);
        counter.store(count + 1, Relaxed);
        if count & 127 == 0 { self.operation.check() } else { Ok(()) }
    }
}
