//! SORT: all records in order, or the first of them.
//!
//! The [`Sorter`] does the work: it holds no more than the memory that
//! `internalQueryMaxBlockingSortMemoryUsageBytes` allows, and spills beyond it or refuses.
//!
//! LIMIT and SKIP: part of the records, by count.

use super::{Explainer, IdStream, IndexKey, PATIENCE, Record, RecordStream, Stats, Surroundings};
use crate::index::IndexSpec;
use crate::keys::RecordId;
use base::Result;
use base::bson::{Document, DocumentCow};
use query::{DocumentMetadata, SortPattern, Sorter};
use std::sync::Arc;
use storage::{Ident, Value};

/// How a sort may hold what it sorts.
pub(crate) struct SortOptions {
    /// How many records are wanted; zero is all.
    pub(crate) limit: u64,
    /// Whether it may spill to a temporary file.
    pub(crate) allow_disk_use: bool,
    /// Whether what is known of records beside their documents is to be kept.
    pub(crate) keeps_meta: bool,
}

/// Sorts what lies below.
pub(crate) struct Sort {
    surroundings: Arc<Surroundings>,
    input: Box<dyn RecordStream>,
    pattern: Arc<SortPattern>,
    options: SortOptions,
    sorter: Sorter,
    /// Whether the input has been read.
    sorted: bool,
    stats: Stats,
}

impl Sort {
    pub(crate) fn new(
        surroundings: &Arc<Surroundings>,
        input: Box<dyn RecordStream>,
        pattern: &Arc<SortPattern>,
        options: SortOptions,
    ) -> Sort {
        let limit = match options.limit {
            0 => usize::MAX,
            limit => usize::try_from(limit).unwrap_or(usize::MAX),
        };
        let memory = surroundings.context.limits.sort;
        Sort {
            surroundings: surroundings.clone(),
            input,
            pattern: pattern.clone(),
            sorter: Sorter::new(limit, memory, options.allow_disk_use)
                .spilling_into(&surroundings.context.spills),
            options,
            sorted: false,
            stats: Stats::default(),
        }
    }

    /// Reads the whole input and sorts it.
    fn fill(&mut self) -> Result<()> {
        self.surroundings.operation.note_sort();
        if self.gather(PATIENCE)? {
            return self.sorter.finish();
        }
        let operation = self.surroundings.operation.clone();
        operation.at_length(|| {
            self.gather(u64::MAX)?;
            self.sorter.finish()
        })
    }

    /// Reads records until so many have been read in all; whether that was the end.
    fn gather(&mut self, upto: u64) -> Result<bool> {
        let mut key = Vec::new();
        while self.stats.works < upto {
            let Some(record) = self.input.next()? else { return Ok(true) };
            self.stats.need_time();
            key.clear();
            match &record.sort_key {
                Some(made) => key.extend_from_slice(made),
                None => match &record.meta {
                    Some(meta) => self.pattern.key_of(record.document.view(), meta, &mut key)?,
                    None => self.pattern.key(record.document.view(), &mut key)?,
                },
            }
            let id = record.id.0;
            let document = match self.options.keeps_meta {
                true => record.meta.unwrap_or_default().joined(record.document.view()),
                false => record.document,
            };
            self.sorter.add(&key, id, document)?;
        }
        Ok(false)
    }
}

/// The record of a document that was joined with its metadata.
fn parted(id: RecordId, joined: Document<'_>) -> Record {
    let (document, meta) = DocumentMetadata::parted(joined);
    let document = DocumentCow::Owned(document.to_owned());
    Record { id, document, sort_key: None, meta: Some(Box::new(meta)) }
}

impl RecordStream for Sort {
    fn next(&mut self) -> Result<Option<Record>> {
        if !self.sorted {
            self.fill()?;
            self.sorted = true;
        }
        let Some((id, document)) = self.sorter.give()? else {
            self.stats.end();
            return Ok(None);
        };
        self.stats.advance();
        let id = RecordId(id);
        match self.options.keeps_meta {
            true => Ok(Some(parted(id, document.view()))),
            false => Ok(Some(Record { id, document, sort_key: None, meta: None })),
        }
    }

    fn explain(&self, out: &mut Explainer) {
        let builder = out.stage("SORT", None, &self.stats);
        builder.begin_document(c"sortPattern");
        self.pattern.append_to(builder);
        builder.end();
        let memory = self.surroundings.context.limits.sort;
        builder.append(c"memLimit", i32::try_from(memory).unwrap_or(i32::MAX));
        if self.options.limit > 0 {
            builder.append(c"limitAmount", i32::try_from(self.options.limit).unwrap_or(i32::MAX));
        }
        // MongoDB's simple sort is the one that needs nothing but the document itself.
        builder.append(c"type", if self.options.keeps_meta { "default" } else { "simple" });
        let statistics = self.sorter.statistics();
        out.count(c"totalDataSizeSorted", statistics.bytes_sorted);
        if out.executed() {
            out.out().append(c"usedDisk", statistics.spills > 0);
        }
        out.count(c"spills", statistics.spills);
        out.count(c"spilledDataStorageSize", statistics.spilled_bytes);
        out.input(|out| self.input.explain(out));
    }
}

// LIMIT: no more than so many records.

/// Ends after a number of records; what lies below is not asked again.
pub(crate) struct Limit {
    input: Box<dyn RecordStream>,
    limit: u64,
    /// Whether explain shows it: not where what reads it ends by itself.
    shown: bool,
    stats: Stats,
}

impl Limit {
    pub(crate) fn new(input: Box<dyn RecordStream>, limit: u64) -> Limit {
        Limit { input, limit, shown: true, stats: Stats::default() }
    }

    /// The first record, for a write of one document.
    pub(crate) fn first(input: Box<dyn RecordStream>) -> Limit {
        Limit { shown: false, ..Limit::new(input, 1) }
    }
}

impl RecordStream for Limit {
    fn next(&mut self) -> Result<Option<Record>> {
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

    fn explain(&self, out: &mut Explainer) {
        if !self.shown {
            return self.input.explain(out);
        }
        out.stage("LIMIT", None, &self.stats)
            .append(c"limitAmount", i32::try_from(self.limit).unwrap_or(i32::MAX));
        out.input(|out| self.input.explain(out));
    }
}

// SKIP: passes over the first records.

/// Leaves out the first records of what lies below.
pub(crate) struct Skip {
    input: Box<dyn RecordStream>,
    skip: u64,
    left: u64,
    stats: Stats,
}

impl Skip {
    pub(crate) fn new(input: Box<dyn RecordStream>, skip: u64) -> Skip {
        Skip { input, skip, left: skip, stats: Stats::default() }
    }
}

impl RecordStream for Skip {
    fn next(&mut self) -> Result<Option<Record>> {
        while let Some(record) = self.input.next()? {
            if self.left == 0 {
                self.stats.advance();
                return Ok(Some(record));
            }
            self.left -= 1;
            self.stats.need_time();
        }
        self.stats.end();
        Ok(None)
    }

    fn explain(&self, out: &mut Explainer) {
        explain(self.skip, &self.stats, out);
        out.input(|out| self.input.explain(out));
    }
}

/// The same of what an index finds, so that nothing is fetched in vain.
pub(crate) struct SkipIds {
    input: Box<dyn IdStream>,
    skip: u64,
    left: u64,
    stats: Stats,
}

impl SkipIds {
    pub(crate) fn new(input: Box<dyn IdStream>, skip: u64) -> SkipIds {
        SkipIds { input, skip, left: skip, stats: Stats::default() }
    }
}

impl IdStream for SkipIds {
    fn next(&mut self) -> Result<Option<RecordId>> {
        while let Some(id) = self.input.next()? {
            if self.left == 0 {
                self.stats.advance();
                return Ok(Some(id));
            }
            self.left -= 1;
            self.stats.need_time();
        }
        self.stats.end();
        Ok(None)
    }

    fn key(&self) -> Option<&IndexKey> {
        self.input.key()
    }

    fn index(&self) -> Option<&IndexSpec> {
        self.input.index()
    }

    fn bring(&mut self, records: Ident) {
        self.input.bring(records);
    }

    fn expect_few(&mut self, ids: u64) {
        self.input.expect_few(ids.saturating_add(self.skip));
    }

    fn record(&mut self) -> Result<Option<Value>> {
        self.input.record()
    }

    fn explain(&self, out: &mut Explainer) {
        explain(self.skip, &self.stats, out);
        out.input(|out| self.input.explain(out));
    }
}

fn explain(skip: u64, stats: &Stats, out: &mut Explainer) {
    out.stage("SKIP", None, stats).append(c"skipAmount", i32::try_from(skip).unwrap_or(i32::MAX));
}
