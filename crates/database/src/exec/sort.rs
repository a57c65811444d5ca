//! SORT: all records in order, or the first ones.
//!
//! The [`Sorter`] holds at most `internalQueryMaxBlockingSortMemoryUsageBytes` of memory. Beyond
//! that, it spills to disk or fails.
//!
//! LIMIT and SKIP: a part of the records, by count.

use super::ixscan::IndexKey;
use super::{ExecContext, IdStream, RecordStream, Report, SEARCH_BUDGET, Stats};
use crate::index::IndexSpec;
use crate::keys::RecordId;
use base::Result;
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
    exec_context: Arc<ExecContext>,
    input: Box<dyn RecordStream>,
    pattern: Arc<SortPattern>,
    options: SortOptions,
    sorter: Sorter,
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
        Sort {
            exec_context: exec_context.clone(),
            input,
            pattern: pattern.clone(),
            sorter: Sorter::new(limit, options.memory, options.allow_disk_use)
                .spilling_into(&exec_context.context.spills),
            options,
            sorted: false,
            stats: Stats::default(),
        }
    }

    /// Reads the whole input and sorts it.
    fn fill(&mut self) -> Result<()> {
        self.exec_context.operation.count_sort();
        if self.gather(SEARCH_BUDGET)? {
            return self.sorter.finish();
        }
        let operation = self.exec_context.operation.clone();
        operation.run_long(|| {
            self.gather(u64::MAX)?;
            self.sorter.finish()
        })
    }

    /// Reads records up to a total number of steps. Returns true at the end of the input.
    fn gather(&mut self, upto: u64) -> Result<bool> {
        let mut key = Vec::new();
        while self.stats.works < upto {
            let Some(mut row) = self.input.next()? else { return Ok(true) };
            self.stats.need_time();
            key.clear();
            match row.metadata.as_ref().and_then(|metadata| metadata.order.as_deref()) {
                Some(order) => key.extend_from_slice(order),
                None => self.pattern.key(row.view(), &mut key)?,
            }
            // The sorter keeps the record id.
            let id = std::mem::take(&mut row.record_id);
            let document = if self.options.keeps_meta { row.to_document() } else { row.document };
            self.sorter.add(&key, id, document)?;
        }
        Ok(false)
    }
}

impl RecordStream for Sort {
    fn next(&mut self) -> Result<Option<Row>> {
        if !self.sorted {
            self.fill()?;
            self.sorted = true;
        }
        let Some((id, document)) = self.sorter.next_document()? else {
            self.stats.end();
            return Ok(None);
        };
        self.stats.advance();
        let row = if self.options.keeps_meta { Row::from_document(document.view()) } else { document.into() };
        Ok(Some(Row { record_id: id, ..row }))
    }

    fn report(&self, report: &mut Report) {
        let statistics = self.sorter.statistics();
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
