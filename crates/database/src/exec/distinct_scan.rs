//! DISTINCT_SCAN and COUNT_SCAN: answers from the keys of an index, for `distinct`, `$group` and `count`.

use super::ixscan::IndexScan;
use super::{Covering, ExecContext, IdStream, RecordStream, Report, Stats, stored};
use base::Result;
use base::bson::{Document, DocumentBuf, Path, Type};
use query::Row;
use std::sync::Arc;

// DISTINCT_SCAN: one record for each value of an index part. Other keys of the value are skipped.
//
// A key does not distinguish null from missing, which is no value. Null is therefore searched among
// the documents with null in their keys. Some keys of array elements do not determine the value.
// For these, all documents with null or undefined (an empty array) in their keys are returned, and
// one for each array within an array.

/// Yields documents with a single path.
pub(crate) struct DistinctScan {
    exec_context: Arc<ExecContext>,
    scan: IndexScan,
    covering: Covering,
    path: Path,
    /// Number of leading parts that determine the value.
    parts: usize,
    /// True if some documents have arrays on the path.
    arrays: bool,
    stats: Stats,
    fetched: u64,
}

impl DistinctScan {
    /// Returns the values at `path` from a scan that keeps its keys. `path` is the last of the
    /// leading `parts` of its index.
    pub(crate) fn new(exec_context: &Arc<ExecContext>, scan: IndexScan, parts: usize, path: &Path) -> Self {
        let covering = Covering::new(scan.spec(), &|other| other + 1 == parts);
        let arrays = scan.is_multikey(parts - 1);
        DistinctScan {
            arrays,
            exec_context: exec_context.clone(),
            scan: scan.by_key(),
            covering,
            path: path.clone(),
            parts,
            stats: Stats::default(),
            fetched: 0,
        }
    }
}

impl RecordStream for DistinctScan {
    fn next(&mut self) -> Result<Option<Row>> {
        while let Some(id) = self.scan.next()? {
            let made = match self.scan.key() {
                Some(key) => self.covering.document(&key.key_string, &key.type_bits)?,
                None => None,
            };
            let is_exact = |document: &DocumentBuf| {
                let value = self.path.get(document.view());
                !value.is_some_and(|value| matches!(value.kind(), Type::Array | Type::Undefined))
            };
            let is_array = |document: &DocumentBuf| {
                self.path.get(document.view()).is_some_and(|value| value.kind() == Type::Array)
            };
            let in_array = made.as_ref().is_some_and(is_array);
            if let Some(document) = made.filter(|made| !self.arrays || is_exact(made)) {
                self.scan.pass(self.parts)?;
                self.stats.advance();
                return Ok(Some(Row::stored(id.0, document)));
            }
            self.fetched += 1;
            self.exec_context.examine_document()?;
            let Some(value) = self.exec_context.fetch(id)? else { continue };
            let record = stored(id, value.to_shared());
            if self.arrays {
                if in_array {
                    self.scan.pass(self.parts)?;
                }
                self.stats.advance();
                return Ok(Some(record));
            }
            if self.path.get(record.document.view()).is_some_and(|value| value.kind() == Type::Null) {
                self.scan.pass(self.parts)?;
                self.stats.advance();
                return Ok(Some(record));
            }
            self.stats.need_time();
        }
        self.stats.end();
        Ok(None)
    }

    fn report(&self, report: &mut Report) {
        report.node(&self.stats).docs_if_any(self.fetched);
        self.scan.report(report);
    }
}

// COUNT_SCAN: counts the records within an index's bounds without reading documents.

/// Yields records without content.
pub(crate) struct CountScan(pub(crate) IndexScan);

impl RecordStream for CountScan {
    fn next(&mut self) -> Result<Option<Row>> {
        let id = self.0.next()?;
        Ok(id.map(|id| Row::stored(id.0, Document::EMPTY.to_owned())))
    }

    fn count(&mut self) -> Result<u64> {
        self.0.count()
    }

    fn report(&self, report: &mut Report) {
        self.0.report(report);
    }
}
