//! Hints to a store with round trips: which entries a plan reads, and which records it fetches.
//!
//! A store in this process takes no hints. One call when a cursor opens finds that out.

use super::bounds::{KeyBounds, KeyPosition};
use super::{ExecContext, Scan};
use crate::keys::{IndexEntry, RecordId};
use crate::storage_error;
use base::Result;
use std::collections::VecDeque;
use storage::{Cursor, Direction, Hints, Ident, Range, RecordFilter, Snapshot, Value};

/// Number of documents that a [`ReadAhead`] reads in one round trip.
const AHEAD: usize = 100;

/// Reads of the stage above an index scan.
#[derive(Clone, Copy, Default)]
pub(super) struct Prefetch {
    /// True if it reads the records.
    pub(super) records: bool,
    /// Number of records after which it probably ends; zero if unknown.
    pub(super) limit: u64,
}

impl Prefetch {
    /// Returns the prefetch below a stage that skips this number of records.
    pub(super) fn below_skip(self, skip: u64) -> Prefetch {
        let limit = if self.limit > 0 { self.limit.saturating_add(skip) } else { 0 };
        Prefetch { limit, ..self }
    }

    /// Returns the prefetch of one of several scans.
    pub(super) fn of_several(self) -> Prefetch {
        Prefetch { limit: 0, ..self }
    }
}

impl ExecContext {
    /// Opens the cursor of a scan over a range. The bounds decide if the range has other keys too.
    pub(super) fn cursor(
        &self,
        scan: &Scan,
        range: Range,
        bounds: Option<&KeyBounds>,
        prefetch: Prefetch,
    ) -> Result<Box<dyn Cursor>> {
        let (ident, direction) = (scan.access.index.ident, direction(scan.forward));
        let cursor = match self.snapshot.remote() {
            None => self.snapshot.scan(ident, range, direction),
            Some(remote) => remote.scan_hinted(ident, range, self.hints(scan, bounds, prefetch), direction),
        };
        cursor.map_err(storage_error)
    }

    /// Opens the cursors of several scans in one direction.
    pub(super) fn cursors<'s>(
        &self,
        scans: impl Iterator<Item = (&'s Scan, Range, Option<&'s KeyBounds>)>,
        prefetch: Prefetch,
    ) -> Result<Vec<Box<dyn Cursor>>> {
        let Some(remote) = self.snapshot.remote() else {
            return scans.map(|(scan, range, bounds)| self.cursor(scan, range, bounds, prefetch)).collect();
        };
        let mut forward = true;
        let hinted = |(scan, range, bounds): (&Scan, Range, Option<&KeyBounds>)| {
            forward = scan.forward;
            (scan.access.index.ident, range, self.hints(scan, bounds, prefetch.of_several()))
        };
        let scans = scans.map(hinted).collect();
        remote.scan_together(scans, direction(forward)).map_err(storage_error)
    }

    fn hints(&self, scan: &Scan, bounds: Option<&KeyBounds>, prefetch: Prefetch) -> Hints {
        let unique = scan.access.index.spec.unique;
        // After a seek behind a yielded key, the scan is no longer at the entry that names the
        // record.
        let records = (prefetch.records && scan.first_of == 0).then_some((self.records, unique));
        let hints = Hints { prefetch_records: records, ..Hints::default() };
        if bounds.is_none() && scan.filter.is_none() {
            return Hints { limit: (prefetch.limit > 0).then_some(prefetch.limit), ..hints };
        }
        // Explain counts the keys between the ranges, as MongoDB does.
        if self.operation.is_explained() {
            return hints;
        }
        let ranges = bounds.and_then(|bounds| bounds.ranges(scan.forward));
        let within = bounds.filter(|_| ranges.is_none()).map(KeyBounds::clone_for_scan);
        let chooses = within.is_some() || scan.filter.is_some();
        let record_filter = chooses.then(|| self.record_filter(scan, within));
        Hints { ranges, record_filter, ..hints }
    }

    /// Returns true for entries within the bounds that pass the filter of a scan.
    fn record_filter(&self, scan: &Scan, mut within: Option<KeyBounds>) -> RecordFilter {
        let (filter, context) = (scan.filter.clone(), self.context.clone());
        let (forward, unique) = (scan.forward, scan.access.index.spec.unique);
        let mut record_filter = move |key: &[u8], value: &[u8]| -> Result<bool> {
            let entry = IndexEntry::from_parts(key, value, unique)?;
            if within
                .as_mut()
                .is_some_and(|within| within.position(entry.key_string, forward) != KeyPosition::Inside)
            {
                return Ok(false);
            }
            let Some((filter, covering)) = &filter else { return Ok(true) };
            let (document, _) = covering.with_nulls(entry.key_string, entry.type_bits)?;
            filter.matches(document.view(), &context)
        };
        // The scan finds the same error at this entry and returns it.
        Box::new(move |key, value| record_filter(key, value).unwrap_or(true))
    }
}

/// A cursor over the index that orders a clustered collection, for a walk that reads all records.
pub(super) fn clustered(
    snapshot: &dyn Snapshot,
    (index, records): (Ident, Ident),
    direction: Direction,
) -> storage::Result<Box<dyn Cursor>> {
    let hints = || Hints { prefetch_records: Some((records, true)), ..Hints::default() };
    match snapshot.remote() {
        None => snapshot.scan(index, Range::all(), direction),
        Some(remote) => remote.scan_hinted(index, Range::all(), hints(), direction),
    }
}

pub(super) fn direction(forward: bool) -> Direction {
    if forward { Direction::Forward } else { Direction::Backward }
}

/// Reads the documents of a list of ids, many in one round trip.
#[derive(Default)]
pub(super) struct ReadAhead {
    documents: VecDeque<Option<Value>>,
    /// True if the store returns no documents ahead.
    is_local: bool,
}

impl ReadAhead {
    /// The document of a record. `next` are the ids behind it.
    ///
    /// Errors: as [`ExecContext::fetch`].
    pub(super) fn document(
        &mut self,
        around: &ExecContext,
        id: RecordId,
        next: impl Iterator<Item = RecordId>,
    ) -> Result<Option<Value>> {
        if self.documents.is_empty()
            && !self.is_local
            && let Some(remote) = around.snapshot.remote()
        {
            let ids = std::iter::once(id).chain(next.take(AHEAD - 1));
            let keys: Vec<[u8; 8]> = ids.map(|id| id.0.to_be_bytes()).collect();
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            self.documents = remote.prefetch_records(around.records, &keys).map_err(storage_error)?.into();
            self.is_local = self.documents.is_empty();
        }
        match self.documents.pop_front().flatten() {
            Some(document) => Ok(Some(document)),
            None => around.fetch(id),
        }
    }
}
