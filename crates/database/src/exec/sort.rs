//! SORT: all records in order, or the first ones.
//!
//! The [`Sorter`] holds at most `internalQueryMaxBlockingSortMemoryUsageBytes` of memory. Beyond
//! that, it spills to disk or fails.
//!
//! LIMIT and SKIP: a part of the records, by count.

use super::ixscan::IndexKey;
use super::{Documents, Eof, ExecContext, IdStream, RecordStream, Report, SEARCH_BUDGET, Stats};
use crate::index::IndexSpec;
use crate::keys::RecordId;
use crate::operation::Operation;
use base::Result;
use query::pipeline::RowSorter;
use query::{Row, SortPattern, Sorter};
use std::sync::Arc;
use storage::Value;

/// Limits of a sort.
#[derive(Clone, Copy)]
pub(crate) struct SortOptions {
    /// Number of records to return; zero is unlimited.
    pub(crate) limit: u64,
    /// Memory limit in bytes.
    pub(crate) memory: usize,
    /// Allows spilling to a temporary file.
    pub(crate) allow_disk_use: bool,
    /// True if the records' metadata must be kept.
    pub(crate) keeps_meta: bool,
}

/// Sorts its input.
pub(crate) struct Sort {
    operation: Arc<Operation>,
    input: Box<dyn RecordStream>,
    rows: RowSorter,
    /// True after the input has been read.
    sorted: bool,
    stats: Stats,
}

impl Sort {
    pub(crate) fn new(
        exec_context: &Arc<ExecContext>,
        input: Box<dyn RecordStream>,
        pattern: &Arc<SortPattern>,
        options: SortOptions,
    ) -> Sort {
        let limit = match options.limit {
            0 => usize::MAX,
            limit => usize::try_from(limit).unwrap_or(usize::MAX),
        };
        let ExecContext { operation, context, .. } = &**exec_context;
        let sorter =
            Sorter::new(limit, options.memory, options.allow_disk_use).spilling_into(&context.spills);
        let rows = RowSorter::new(pattern, sorter, options.keeps_meta, context);
        Sort { operation: operation.clone(), input, rows, sorted: false, stats: Stats::default() }
    }

    /// Reads the whole input and sorts it.
    fn fill(&mut self) -> Result<()> {
        self.operation.count_sort();
        let Sort { operation, input, rows, .. } = self;
        if input.begin_section() {
            let input = std::mem::replace(input, Box::new(Eof::default()));
            operation.run_long(|| rows.add_all(Box::new(Documents(input))).and_then(|()| rows.finish()))?;
        } else if rows.add_rows(|| input.next(), SEARCH_BUDGET)? {
            rows.finish()?;
        } else {
            operation.run_long(|| rows.add_rows(|| input.next(), u64::MAX).and_then(|_| rows.finish()))?;
        }
        self.stats.works = rows.statistics().0;
        Ok(())
    }
}

impl RecordStream for Sort {
    fn next(&mut self) -> Result<Option<Row>> {
        if !self.sorted {
            self.fill()?;
            self.sorted = true;
        }
        let row = self.rows.next_row()?;
        match row {
            Some(_) => self.stats.advance(),
            None => self.stats.end(),
        }
        Ok(row)
    }

    fn report(&self, report: &mut Report) {
        let (_, statistics) = self.rows.statistics();
        let ran = report.node(&self.stats).count(c"totalDataSizeSorted", statistics.bytes_sorted);
        ran.own.append(c"usedDisk", statistics.spills > 0);
        ran.count(c"spills", statistics.spills).count(c"spilledDataStorageSize", statistics.spilled_bytes);
        self.input.report(report);
    }
}

// LIMIT: at most a number of records.

/// Ends after a number of records, without a further call of its input.
pub(crate) struct Limit {
    input: Box<dyn RecordStream>,
    limit: u64,
    /// True for a node of the plan; false if the reader ends by itself.
    shown: bool,
    stats: Stats,
}

impl Limit {
    pub(crate) fn new(input: Box<dyn RecordStream>, limit: u64) -> Limit {
        Limit { input, limit, shown: true, stats: Stats::default() }
    }

    /// Returns the first record only, for a write of one document.
    pub(crate) fn first(input: Box<dyn RecordStream>) -> Limit {
        Limit { shown: false, ..Limit::new(input, 1) }
    }
}

impl RecordStream for Limit {
    fn next(&mut self) -> Result<Option<Row>> {
        let record = match self.stats.advanced < self.limit {
            true => self.input.next()?,
            false => None,
        };
        match record {
            Some(_) => self.stats.advance(),
            None => self.stats.end(),
        }
        Ok(record)
    }

    fn report(&self, report: &mut Report) {
        if self.shown {
            report.node(&self.stats);
        }
        self.input.report(report);
    }
}

// SKIP: skips the first records.

/// Skips the first records or ids of its input. Skipped ids need no fetch.
pub(crate) struct Skip<S: ?Sized> {
    input: Box<S>,
    /// Number of records still to skip.
    left: u64,
    stats: Stats,
}

impl<S: ?Sized> Skip<S> {
    pub(crate) fn new(input: Box<S>, skip: u64) -> Skip<S> {
        Skip { input, left: skip, stats: Stats::default() }
    }

    fn find<T>(&mut self, next: impl Fn(&mut S) -> Result<Option<T>>) -> Result<Option<T>> {
        while let Some(found) = next(&mut self.input)? {
            if self.left == 0 {
                self.stats.advance();
                return Ok(Some(found));
            }
            self.left -= 1;
            self.stats.need_time();
        }
        self.stats.end();
        Ok(None)
    }
}

impl RecordStream for Skip<dyn RecordStream> {
    fn next(&mut self) -> Result<Option<Row>> {
        self.find(|input| input.next())
    }

    fn report(&self, report: &mut Report) {
        report.node(&self.stats);
        self.input.report(report);
    }
}

impl IdStream for Skip<dyn IdStream> {
    fn next(&mut self) -> Result<Option<RecordId>> {
        self.find(|input| input.next())
    }

    fn key(&self) -> Option<&IndexKey> {
        self.input.key()
    }

    fn index(&self) -> Option<&IndexSpec> {
        self.input.index()
    }

    fn prefetched_record(&mut self) -> Result<Option<Value>> {
        self.input.prefetched_record()
    }

    fn report(&self, report: &mut Report) {
        report.node(&self.stats);
        self.input.report(report);
    }
}
