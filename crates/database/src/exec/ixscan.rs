//! Scans of the keys of an index within bounds: IXSCAN yields the ids of their records. DISTINCT_SCAN and COUNT_SCAN
//! answer `distinct`, `$group` and `count` from the keys alone.

use super::bounds::{KeyBounds, KeyPosition};
use super::or::SeenIds;
use super::prefetch::Prefetch;
use super::{
    Covering, ExecContext, IdStream, RecordStream, Report, SEARCH_BUDGET, Scan, ScanKeys, Stats, stored,
};
use crate::access::Access;
use crate::index::IndexSpec;
use crate::keys::{IndexEntry, RecordId};
use crate::storage_error;
use base::Result;
use base::bson::{Document, DocumentBuf, Path, Type};
use base::key_string::{component_length, successor};
use query::matcher::Part;
use query::{Interrupt, Row};
use std::sync::Arc;
use storage::{Cursor, Range, Value};

/// A copied key of an index.
#[derive(Clone, Default)]
pub(crate) struct IndexKey {
    /// The indexed values.
    pub(crate) key_string: Vec<u8>,
    /// Type bits: the types that the key string omits.
    pub(crate) type_bits: Vec<u8>,
}

/// Scans an index within bounds and yields record ids, each once.
pub(crate) struct IndexScan {
    exec_context: Arc<ExecContext>,
    access: Arc<Access>,
    forward: bool,
    cursor: Box<dyn Cursor>,
    /// Bounds checked for each key; `None` if the cursor's range has only matching keys.
    bounds: Option<KeyBounds>,
    seen: Option<SeenIds>,
    /// Number of leading parts that form a value of which one key is enough; zero if all keys are
    /// needed.
    first_of: usize,
    /// The last key, if it is needed.
    key: Option<IndexKey>,
    /// Filter on the keys.
    filter: Option<(Part, Covering)>,
    stats: Stats,
    examined: u64,
    seeks: u64,
    duplicates: (u64, u64),
}

impl IndexScan {
    /// Opens a scan.
    pub(super) fn open(around: &Arc<ExecContext>, scan: &Scan, prefetch: Prefetch) -> Result<IndexScan> {
        let (range, bounds) = scan.keys();
        let cursor = around.cursor(scan, range, bounds.as_ref(), prefetch)?;
        around.operation.check()?;
        Ok(IndexScan::over(around, scan, cursor, bounds))
    }

    /// Opens several in one direction.
    pub(super) fn several(
        around: &Arc<ExecContext>,
        scans: &[Scan],
        prefetch: Prefetch,
    ) -> Result<Vec<IndexScan>> {
        let (ranges, bounds): (Vec<_>, Vec<_>) = scans.iter().map(Scan::keys).unzip();
        let bounded = scans.iter().zip(ranges).zip(&bounds);
        let bounded = bounded.map(|((scan, range), bounds)| (scan, range, bounds.as_ref()));
        let cursors = around.cursors(bounded, prefetch)?;
        around.operation.check()?;
        let over = |((cursor, scan), bounds)| IndexScan::over(around, scan, cursor, bounds);
        Ok(cursors.into_iter().zip(scans).zip(bounds).map(over).collect())
    }

    fn over(
        around: &Arc<ExecContext>,
        scan: &Scan,
        cursor: Box<dyn Cursor>,
        bounds: Option<KeyBounds>,
    ) -> IndexScan {
        let several = scan.access.any_multikey() && !scan.access.is_single_key();
        IndexScan {
            exec_context: around.clone(),
            access: scan.access.clone(),
            forward: scan.forward,
            cursor,
            bounds,
            seen: several.then(SeenIds::default),
            first_of: 0,
            key: scan.keeps_keys.then(IndexKey::default),
            filter: scan.filter.clone(),
            stats: Stats::default(),
            examined: 0,
            seeks: 1,
            duplicates: (0, 0),
        }
    }

    /// Returns the index.
    pub(crate) fn spec(&self) -> &IndexSpec {
        &self.access.index.spec
    }

    /// Returns true if some document has an array on a part's path.
    pub(crate) fn is_multikey(&self, part: usize) -> bool {
        self.access.is_multikey(part)
    }

    /// Yields the first record of each value of this number of leading parts. The scan keeps its
    /// keys.
    pub(crate) fn first_of(self, parts: usize) -> IndexScan {
        IndexScan { first_of: parts, ..self }
    }

    /// Yields a record for each of its keys.
    pub(crate) fn by_key(self) -> IndexScan {
        IndexScan { seen: None, ..self }
    }

    /// Skips all keys whose first `parts` equal the last key's. The scan keeps its keys.
    pub(crate) fn pass(&mut self, parts: usize) -> Result<()> {
        debug_assert!(self.key.is_some(), "a scan that passes keys does not keep them");
        let Some(key) = &self.key else { return Ok(()) };
        let mut length = 0;
        for part in self.access.index.spec.parts.iter().take(parts) {
            let rest = key.key_string.get(length..).unwrap_or_default();
            let ascending = part.kind != crate::index::KeyKind::Descending;
            length += component_length(rest, ascending).unwrap_or(rest.len());
        }
        let prefix = key.key_string.get(..length).unwrap_or(&key.key_string);
        // Backward, a key before the prefix sorts after all keys with the prefix.
        let target = if self.forward { successor(prefix) } else { Some(prefix.to_vec()) };
        let Some(target) = target else { return Ok(()) };
        self.seeks += 1;
        self.cursor.seek(&target).map_err(storage_error)
    }

    /// Returns the number of examined keys.
    pub(crate) fn examined(&self) -> u64 {
        self.examined
    }

    /// Counts the remaining records without copying keys.
    pub(crate) fn count(&mut self) -> Result<u64> {
        self.key = None;
        let mut count = 0;
        while count < SEARCH_BUDGET {
            if self.next()?.is_none() {
                return Ok(count);
            }
            count += 1;
        }
        let operation = self.exec_context.operation.clone();
        operation.run_long(|| {
            while self.next()?.is_some() {
                count += 1;
            }
            Ok(count)
        })
    }
}

impl IdStream for IndexScan {
    fn next(&mut self) -> Result<Option<RecordId>> {
        let unique = self.access.index.spec.unique;
        while let Some((key, value)) = self.cursor.next().map_err(storage_error)? {
            self.examined += 1;
            self.exec_context.examine_key()?;
            let entry = IndexEntry::from_parts(key, &value, unique)?;
            if let Some(bounds) = &mut self.bounds {
                match bounds.position(entry.key_string, self.forward) {
                    KeyPosition::Inside => {}
                    KeyPosition::Before => {
                        self.seeks += 1;
                        self.stats.need_time();
                        self.cursor.seek(bounds.target()).map_err(storage_error)?;
                        continue;
                    }
                    KeyPosition::After => break,
                }
            }
            if let Some(seen) = &mut self.seen {
                self.duplicates.0 += 1;
                if !seen.insert(entry.record) {
                    self.duplicates.1 += 1;
                    self.stats.need_time();
                    continue;
                }
            }
            if let Some((filter, covering)) = &self.filter {
                let (document, _) = covering.with_nulls(entry.key_string, entry.type_bits)?;
                if !filter.matches(document.view(), &self.exec_context.context)? {
                    self.stats.need_time();
                    continue;
                }
            }
            if let Some(key) = &mut self.key {
                key.key_string.clear();
                key.key_string.extend_from_slice(entry.key_string);
                key.type_bits.clear();
                key.type_bits.extend_from_slice(entry.type_bits);
            }
            let record = entry.record;
            if self.first_of > 0 {
                self.pass(self.first_of)?;
            }
            self.stats.advance();
            return Ok(Some(record));
        }
        self.stats.end();
        Ok(None)
    }

    fn key(&self) -> Option<&IndexKey> {
        self.key.as_ref()
    }

    fn index(&self) -> Option<&IndexSpec> {
        Some(&self.access.index.spec)
    }

    fn prefetched_record(&mut self) -> Result<Option<Value>> {
        self.cursor.prefetched_record().map_err(storage_error)
    }

    fn report(&self, report: &mut Report) {
        let ran = report.node(&self.stats).keys(self.examined).count(c"seeks", self.seeks);
        ran.count(c"dupsTested", self.duplicates.0).count(c"dupsDropped", self.duplicates.1);
    }
}

impl Scan {
    /// Returns the range of its keys, and the bounds to check if the range has other keys too.
    fn keys(&self) -> (Range, Option<KeyBounds>) {
        let bounds = match &self.within {
            ScanKeys::Bounds => KeyBounds::new(&self.access),
            ScanKeys::Split { bounds, .. } => bounds.clone_for_scan(),
            ScanKeys::Prefix(prefix) => return (Range::prefix(prefix), None),
            ScanKeys::Range(range) => return (range.clone(), None),
        };
        (bounds.range(), (!bounds.is_contiguous()).then_some(bounds))
    }
}

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
    /// True if the keys do not contain the values.
    fetches: bool,
    stats: Stats,
    fetched: u64,
}

impl DistinctScan {
    /// Returns the values at `path` from a scan that keeps its keys. `path` is the last of the
    /// leading `parts` of its index.
    pub(crate) fn new(
        exec_context: &Arc<ExecContext>,
        scan: IndexScan,
        parts: usize,
        path: &Path,
        fetches: bool,
    ) -> Self {
        let covering = Covering::new(scan.spec(), &|other| other + 1 == parts);
        let arrays = scan.is_multikey(parts - 1);
        DistinctScan {
            arrays,
            fetches,
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
            let made = match self.scan.key().filter(|_| !self.fetches) {
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
            // A missing field has the key of null.
            if self.path.get(record.document.view()).is_some() {
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
