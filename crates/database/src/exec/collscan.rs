//! Reads of a whole collection: COLLSCAN in natural order or backward, and EOF, which reads
//! nothing.

use super::prefetch::clustered;
use super::{
    ExecContext, RecordStream, Report, SEARCH_BUDGET, Stats, record_of, search_within_budget, stored,
};
use crate::collection::Data;
use crate::keys::{IndexEntry, RecordId};
use crate::storage_error;
use base::Result;
use query::Row;
use query::matcher::Matcher;
use std::sync::Arc;
use storage::{Cursor, Direction, Ident, Range, Snapshot, Value, ValueRef};

// COLLSCAN: every document, in natural order or backward.

/// Reads the collection and yields matching documents.
pub(crate) struct CollScan {
    exec_context: Arc<ExecContext>,
    cursor: Natural,
    filter: Option<Arc<Matcher>>,
    stats: Stats,
    examined: u64,
}

impl CollScan {
    pub(crate) fn new(
        exec_context: &Arc<ExecContext>,
        forward: bool,
        filter: Option<Arc<Matcher>>,
    ) -> Result<CollScan> {
        let direction = if forward { Direction::Forward } else { Direction::Backward };
        Ok(CollScan {
            exec_context: exec_context.clone(),
            cursor: exec_context.natural.walk(&exec_context.snapshot, direction)?,
            filter,
            stats: Stats::default(),
            examined: 0,
        })
    }
}

impl CollScan {
    /// Returns the next matching document among `budget` examined ones; `None` if none of them
    /// matches.
    fn search(&mut self, mut budget: u64) -> Result<Option<Option<Row>>> {
        while let Some((id, value)) = self.cursor.next()? {
            self.examined += 1;
            self.exec_context.examine_document()?;
            let matched = self.exec_context.passes(&self.filter, &value)?;
            if matched {
                self.stats.advance();
                return Ok(Some(Some(stored(id, value.to_shared()))));
            }
            self.stats.need_time();
            budget -= 1;
            if budget == 0 {
                return Ok(None);
            }
        }
        self.stats.end();
        Ok(Some(None))
    }

    /// Counts the matching documents among `budget` examined ones. Returns true at the end.
    fn count_some(&mut self, mut budget: u64) -> Result<(u64, bool)> {
        let mut count = 0;
        while let Some((_, value)) = self.cursor.next()? {
            self.examined += 1;
            self.exec_context.examine_document()?;
            let matched = self.exec_context.passes(&self.filter, &value)?;
            self.stats.need_time();
            count += u64::from(matched);
            budget -= 1;
            if budget == 0 {
                return Ok((count, false));
            }
        }
        Ok((count, true))
    }
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
    pub(crate) fn walk(self, snapshot: &Arc<dyn Snapshot>, direction: Direction) -> Result<Natural> {
        let cursor = match self.clustered {
            Some(index) => clustered(snapshot.as_ref(), (index, self.records), direction),
            None => snapshot.scan(self.records, Range::all(), direction),
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
