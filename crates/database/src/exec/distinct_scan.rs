//! DISTINCT_SCAN and COUNT_SCAN: answers from the keys of an index, for `distinct`, `$group` and `count`.

use super::ixscan::IndexScan;
use super::{Covering, IdStream, RecordStream, Report, Stats, Surroundings, stored};
use base::Result;
use base::bson::{Document, DocumentBuf, Path, Type};
use query::Row;
use std::sync::Arc;

// DISTINCT_SCAN: one record for each value that an index has at one of its parts, the other keys of the value
// being passed over.
//
// A key can't tell null from missing, which is no value. So null is looked for among the documents that have
// it in their keys. Of elements of arrays some keys don't tell the value: there all documents are yielded that have
// null in their keys, or undefined, as empty arrays have, and one for each array within an array.

/// Yields documents with the one path.
pub(crate) struct DistinctScan {
    surroundings: Arc<Surroundings>,
    scan: IndexScan,
    covering: Covering,
    path: Path,
    /// How many leading parts make up the value.
    parts: usize,
    /// Whether some documents have arrays on the path.
    arrays: bool,
    stats: Stats,
    fetched: u64,
}

impl DistinctScan {
    /// The values that a scan, which keeps its keys, finds at `path`, the last of so many `parts` of its index.
    pub(crate) fn new(surroundings: &Arc<Surroundings>, scan: IndexScan, parts: usize, path: &Path) -> Self {
        let covering = Covering::new(scan.spec(), &|other| other + 1 == parts);
        let arrays = scan.is_multikey(parts - 1);
        DistinctScan {
            arrays,
            surroundings: surroundings.clone(),
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
            let tells = |document: &DocumentBuf| {
                let value = self.path.get(document.view());
                !value.is_some_and(|value| matches!(value.kind(), Type::Array | Type::Undefined))
            };
            let is_array = |document: &DocumentBuf| {
                self.path.get(document.view()).is_some_and(|value| value.kind() == Type::Array)
            };
            let in_array = made.as_ref().is_some_and(is_array);
            if let Some(document) = made.filter(|made| !self.arrays || tells(made)) {
                self.scan.pass(self.parts)?;
                self.stats.advance();
                return Ok(Some(Row::stored(id.0, document)));
            }
            self.fetched += 1;
            self.surroundings.examine_document()?;
            let Some(value) = self.surroundings.fetch(id)? else { continue };
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

// COUNT_SCAN: how many records lie within an index's bounds; no document is read.

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
