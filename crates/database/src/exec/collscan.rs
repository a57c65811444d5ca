//! Reads of a whole collection: COLLSCAN in natural order or backward, and EOF, which reads
//! nothing.

use super::prefetch::{clustered, required_bytes};
use super::{
    ExecContext, Fields, RecordStream, Report, SEARCH_BUDGET, Stats, record_of, search_within_budget, stored,
};
use crate::catalog::collection::Data;
use crate::keys::{IndexEntry, RecordId};
use crate::operation::Operation;
use crate::storage_error;
use base::Result;
use query::matcher::Matcher;
use query::pipeline::Split;
use query::{Interrupt, Row};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::{Cursor, Direction, Excerpt, Hints, Ident, Range, Snapshot, Value, ValueRef};

// COLLSCAN: every document, in natural order or backward.

/// Reads the collection and yields matching documents.
pub(crate) struct CollScan {
    exec_context: Arc<ExecContext>,
    cursor: Natural,
    /// True if the cursor may leave out documents that do not match.
    omits: bool,
    forward: bool,
    filter: Option<Arc<Matcher>>,
    stats: Stats,
    examined: u64,
    /// Documents to examine before the end of the section.
    section: u64,
    /// The last record, and the first one after the scan.
    last: u64,
    end: u64,
}

/// Documents of a section. A thread gives work away after each.
const SECTION: u64 = 2048;

/// Number of documents that one thread scans faster than two.
const FEW: u64 = 4 * SECTION;

impl CollScan {
    pub(crate) fn new(
        exec_context: &Arc<ExecContext>,
        forward: bool,
        filter: Option<Arc<Matcher>>,
        fields: Option<Fields>,
    ) -> Result<CollScan> {
        let direction = if forward { Direction::Forward } else { Direction::Backward };
        let ExecContext { snapshot, natural, operation, .. } = &**exec_context;
        // Explain counts the examined documents.
        let filtered = filter.as_deref().filter(|_| snapshot.remote().is_some() && !operation.is_explained());
        let contains = filtered.and_then(required_bytes);
        let omits = contains.is_some();
        let excerpt = fields.map(|fields| Arc::new(fields) as Arc<dyn Excerpt>);
        let hints = Hints { excerpt, contains, ..Hints::default() };
        Ok(CollScan {
            exec_context: exec_context.clone(),
            cursor: natural.walk(snapshot, direction, hints)?,
            omits,
            forward,
            filter,
            stats: Stats::default(),
            examined: 0,
            section: u64::MAX,
            last: 0,
            end: u64::MAX,
        })
    }

    /// Returns true if parts of the scan may run on other threads: a long scan forward over local data. Explain shows
    /// one scan.
    fn has_sections(&self) -> bool {
        let ExecContext { operation, snapshot, records, natural, context } = &*self.exec_context;
        self.section <= SECTION
            || (context.helpers.is_some() || operation.helps())
                && self.forward
                && natural.clustered.is_none()
                && snapshot.remote().is_none()
                && operation.transaction().is_none()
                && !operation.is_explained()
                && snapshot.entries(*records).is_ok_and(|entries| entries > FEW)
    }

    /// Returns the record after the last one of the collection.
    fn end_of_collection(&self) -> Result<u64> {
        let ExecContext { snapshot, natural, .. } = &*self.exec_context;
        let mut backward = natural.walk(snapshot, Direction::Backward, Hints::default())?;
        Ok(backward.next()?.map_or(0, |(id, _)| id.0.saturating_add(1)))
    }

    /// Returns a scan of the second half of the remaining records.
    fn later_half(&mut self) -> Result<Option<CollScan>> {
        if self.end == u64::MAX {
            self.end = self.end_of_collection()?;
        }
        let middle = self.last + self.end.saturating_sub(self.last) / 2;
        if middle - self.last < SECTION {
            return Ok(None);
        }
        let around = &*self.exec_context;
        let operation = Arc::new(Operation::helping(&around.operation));
        let interrupt: Arc<dyn Interrupt> = operation.clone();
        let exec_context = Arc::new(ExecContext {
            context: Arc::new(around.context.for_helper(&interrupt)),
            operation,
            snapshot: around.snapshot.clone(),
            ..*around
        });
        let range = Range { lower: Bound::Included(middle.to_be_bytes().into()), upper: Bound::Unbounded };
        let cursor =
            around.snapshot.scan(around.records, range, Direction::Forward).map_err(storage_error)?;
        let later = CollScan {
            exec_context,
            cursor: Natural { cursor, clustered: None },
            omits: false,
            forward: true,
            filter: self.filter.clone(),
            stats: Stats::default(),
            examined: 0,
            section: 0,
            last: middle,
            end: self.end,
        };
        self.end = middle;
        Ok(Some(later))
    }
}

impl CollScan {
    /// Returns the next matching document among `budget` examined ones; `None` if none of them
    /// matches.
    fn search(&mut self, budget: u64) -> Result<Option<Option<Row>>> {
        let most = budget.min(self.section);
        let mut last = self.last;
        let mut step = 0;
        while step < most {
            let Some((id, value)) = self.cursor.next()?.filter(|(id, _)| id.0 < self.end) else {
                self.count_omitted()?;
                self.stats.end();
                return Ok(Some(None));
            };
            last = id.0;
            self.examined += 1;
            self.exec_context.examine_document()?;
            step += 1;
            if has_value(self.omits, &value) && self.exec_context.passes(&self.filter, &value)? {
                self.section -= step;
                self.last = last;
                self.stats.advance();
                return Ok(Some(Some(stored(id, value.to_shared()))));
            }
            self.stats.need_time();
            step += self.count_omitted()?;
        }
        self.section -= most;
        self.last = last;
        Ok((self.section == 0).then_some(None))
    }

    /// Counts the documents that the cursor has left out as examined, and returns their number.
    #[inline]
    fn count_omitted(&mut self) -> Result<u64> {
        if !self.omits {
            return Ok(0);
        }
        let omitted = self.cursor.cursor.take_omitted();
        if omitted > 0 {
            self.examined += omitted;
            self.exec_context.operation.docs_examined.fetch_add(omitted as i64, Relaxed);
            self.exec_context.operation.check()?;
        }
        Ok(omitted)
    }

    /// Counts the matching documents among `budget` examined ones. Returns true at the end.
    fn count_some(&mut self, mut budget: u64) -> Result<(u64, bool)> {
        let mut count = 0;
        while let Some((_, value)) = self.cursor.next()? {
            self.examined += 1;
            self.exec_context.examine_document()?;
            let matched = has_value(self.omits, &value) && self.exec_context.passes(&self.filter, &value)?;
            self.stats.need_time();
            count += u64::from(matched);
            budget = budget.saturating_sub(1 + self.count_omitted()?);
            if budget == 0 {
                return Ok((count, false));
            }
        }
        self.count_omitted()?;
        Ok((count, true))
    }
}

/// Returns false for a document that the cursor has returned without its value because it does not match. Its filter
/// could fail on an empty document.
fn has_value(omits: bool, value: &[u8]) -> bool {
    !(omits && value.is_empty())
}

impl RecordStream for CollScan {
    fn next(&mut self) -> Result<Option<Row>> {
        search_within_budget(self, |stage| &stage.exec_context.operation, Self::search)
    }

    fn count(&mut self) -> Result<u64> {
        let (mut count, ended) = self.count_some(SEARCH_BUDGET)?;
        if !ended {
            let operation = self.exec_context.operation.clone();
            count += operation.run_long(|| self.count_some(u64::MAX))?.0;
        }
        self.stats.advanced += count;
        self.stats.end();
        Ok(count)
    }

    fn begin_section(&mut self) -> bool {
        self.exec_context.operation.follow_thread();
        let begins = !self.stats.ended && self.has_sections();
        if begins {
            self.section = SECTION;
        }
        begins
    }

    fn split(&mut self) -> Option<Split<Box<dyn RecordStream>>> {
        // The scan itself will return the error.
        let later = self.later_half().ok().flatten()?;
        let helping = later.exec_context.operation.clone();
        let interrupt = helping.clone();
        Some(Split { rows: Box::new(later), interrupt, finish: Box::new(move || helping.end_help()) })
    }

    fn report(&self, report: &mut Report) {
        report.node(&self.stats).docs(self.examined);
    }
}

// Natural order: insertion order, or `_id` order in a clustered collection.
//
// A clustered collection stores its records by number like any other collection. Its natural order
// is a full scan of its `_id` index.

/// Scans a collection in natural order, or backward.
pub(crate) struct Natural {
    cursor: Box<dyn Cursor>,
    clustered: Option<Fetched>,
}

/// The document of the last key.
struct Fetched {
    snapshot: Arc<dyn Snapshot>,
    records: Ident,
    value: Option<Value>,
}

/// The trees that determine a natural order.
#[derive(Clone, Copy)]
pub(crate) struct NaturalOrder {
    records: Ident,
    /// The tree of a clustered collection's index.
    clustered: Option<Ident>,
}

impl NaturalOrder {
    /// Returns the natural order of a collection.
    pub(crate) fn of(data: &Data) -> NaturalOrder {
        NaturalOrder { records: data.ident, clustered: data.clustered_index().map(|index| index.ident) }
    }

    /// Starts a scan of a snapshot.
    pub(crate) fn walk(
        self,
        snapshot: &Arc<dyn Snapshot>,
        direction: Direction,
        hints: Hints,
    ) -> Result<Natural> {
        let cursor = match (self.clustered, snapshot.remote()) {
            (Some(index), _) => clustered(snapshot.as_ref(), (index, self.records), direction),
            (None, Some(remote)) => remote.scan_hinted(self.records, Range::all(), hints, direction),
            (None, None) => snapshot.scan(self.records, Range::all(), direction),
        };
        let cursor = cursor.map_err(storage_error)?;
        let fetched = || Fetched { snapshot: snapshot.clone(), records: self.records, value: None };
        Ok(Natural { cursor, clustered: self.clustered.map(|_| fetched()) })
    }
}

impl Natural {
    /// Returns the next record and its document.
    ///
    /// Errors: DataCorruptionDetected, storage errors.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<(RecordId, ValueRef<'_>)>> {
        let Some(fetched) = &mut self.clustered else {
            let Some((key, value)) = self.cursor.next().map_err(storage_error)? else { return Ok(None) };
            return Ok(Some((RecordId::from_key(key)?, value)));
        };
        loop {
            let Some((key, value)) = self.cursor.next().map_err(storage_error)? else { return Ok(None) };
            let id = IndexEntry::from_parts(key, &value, true)?.record;
            let document = match self.cursor.prefetched_record().map_err(storage_error)? {
                Some(document) => Some(document),
                None => record_of(fetched.snapshot.as_ref(), fetched.records, id)?,
            };
            if let Some(document) = document {
                return Ok(Some((id, ValueRef::Value(fetched.value.insert(document)))));
            }
        }
    }
}

// EOF: a filter that matches no document.

/// Yields nothing and reads nothing.
#[derive(Default)]
pub(crate) struct Eof {
    stats: Stats,
}

impl RecordStream for Eof {
    fn next(&mut self) -> Result<Option<Row>> {
        self.stats.end();
        Ok(None)
    }

    fn report(&self, report: &mut Report) {
        report.node(&self.stats);
    }
}
