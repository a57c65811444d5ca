//! Hints to a store with round trips: which entries a plan reads, which records it fetches, and what a collection scan
//! needs of each document.
//!
//! A store in this process takes no hints. One call when a cursor opens finds that out. A collection scan names the
//! fields that it reads, so that the store can return the start of a document in place of the document, and bytes that
//! each matching document has.

use super::bounds::{KeyBounds, KeyPosition};
use super::{ExecContext, Scan};
use crate::keys::{IndexEntry, RecordId};
use crate::storage_error;
use base::Result;
use base::bson::{LeadingElements, Value as BsonValue};
use query::matcher::Matcher;
use std::collections::VecDeque;
use std::sync::Arc;
use storage::{Cursor, Direction, Excerpt, Hints, Ident, Range, RecordFilter, Snapshot, Value};

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

/// Names of fields.
#[derive(Clone)]
pub(crate) struct Fields(Arc<[Box<str>]>);

/// Maximum number of names: the bits of a set.
const FIELDS_MAX: usize = 64;

impl Fields {
    /// Returns the set of these names; `None` if it is too large.
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str>) -> Option<Fields> {
        let mut names: Vec<Box<str>> = names.map(Box::from).collect();
        names.sort();
        names.dedup();
        (names.len() <= FIELDS_MAX).then(|| Fields(names.into()))
    }

    /// Returns the elements up to the last of the fields; `None` if a field is missing in these first bytes of a
    /// document.
    fn elements<'a>(&self, start: &'a [u8]) -> Option<LeadingElements<'a>> {
        let mut missing = u64::MAX.checked_shr((FIELDS_MAX - self.0.len()) as u32).unwrap_or(0);
        if missing == 0 {
            return Some(LeadingElements::default());
        }
        LeadingElements::read(start, |element| {
            let name = element.name_bytes();
            if let Some(position) = self.0.iter().position(|field| field.as_bytes() == name) {
                missing &= !(1 << position);
            }
            missing == 0
        })
    }
}

/// Returns bytes that are in each document with a match, if the filter requires that a path has a string or an object
/// id.
pub(super) fn required_bytes(filter: &Matcher) -> Option<Box<[u8]>> {
    if !filter.collation().is_simple() {
        return None;
    }
    let is_distinctive = |value: &BsonValue<'_>| match value {
        BsonValue::String(text) => !text.is_empty(),
        value => matches!(value, BsonValue::ObjectId(_)),
    };
    let equalities = filter.equalities().ok()?.into_iter().map(|(_, value)| value);
    let encoded = equalities.filter(is_distinctive).map(|value| value.to_owned());
    encoded.max_by_key(|value| value.bytes().len()).map(|longest| longest.bytes().into())
}

impl Excerpt for Fields {
    fn bytes_needed(&self, value: &[u8]) -> usize {
        self.elements(value).map_or(value.len(), LeadingElements::document_size)
    }

    fn of_start(&self, start: &[u8]) -> Option<Value> {
        Some(Value::from(self.elements(start)?.to_document().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::parse;
    use base::bson::{Builder, Document};
    use query::Context;
    use query::context::Uninterrupted;

    fn fields(names: &str) -> Fields {
        Fields::new(names.split_whitespace()).unwrap()
    }

    #[test]
    fn an_excerpt_ends_behind_the_last_field() {
        let mut builder = Builder::new();
        builder.append(c"a", 1i32).append(c"b", "text").append(c"a", 2i32).append(c"c", 3i32);
        let document = builder.finish();
        let whole = document.bytes();
        for (names, last) in [("", 0), ("a", 1), ("b", 2), ("b a b", 2), ("c a", 4)] {
            let fields = fields(names);
            let needed = fields.bytes_needed(whole);
            assert!(fields.of_start(&whole[..needed - 2]).is_none() || names.is_empty(), "{names:?}");
            for end in needed..=whole.len() {
                let excerpt = fields.of_start(&whole[..end]).unwrap();
                assert_eq!(excerpt.len(), needed, "{names:?} of {end}");
                let excerpt = Document::from_valid(&excerpt);
                base::bson::validate(excerpt.bytes()).unwrap();
                assert_eq!(excerpt.iter().count(), last, "{names:?}");
            }
        }
    }

    #[test]
    fn a_missing_field_needs_the_whole_document() {
        let mut builder = Builder::new();
        builder.append(c"a", 1i32);
        let document = builder.finish();
        let fields = fields("a b");
        assert_eq!(fields.bytes_needed(document.bytes()), document.bytes().len());
        assert!(fields.of_start(document.bytes()).is_none());
    }

    #[test]
    fn required_bytes_are_in_each_match() {
        let context = Context::new(0, 1, Arc::new(Uninterrupted));
        let required = |filter: &str| {
            let filter = Matcher::parse(parse(filter).unwrap().view(), &context).unwrap();
            (required_bytes(&filter), filter)
        };
        for (filter, document) in [
            ("{a: 'text'}", "{a: 'text'}"),
            ("{a: 'text', b: 'longer text'}", "{b: ['longer text'], a: ['text', 1]}"),
            ("{'a.b': 'text', n: {$gt: 1}}", "{a: [{b: 'text'}], n: 2}"),
            ("{a: {$in: ['text']}}", "{a: [null, 'text']}"),
            ("{a: {$all: ['text']}}", "{a: ['text']}"),
            ("{a: {$oid: '64b64c0f0f0f0f0f0f0f0f0f'}}", "{a: {$oid: '64b64c0f0f0f0f0f0f0f0f0f'}}"),
        ] {
            let (bytes, matcher) = required(filter);
            let document = parse(document).unwrap();
            assert!(matcher.matches(document.view(), &context).unwrap(), "{filter}");
            let bytes = bytes.unwrap_or_else(|| panic!("none for {filter}"));
            assert!(document.bytes().windows(bytes.len()).any(|part| *part == *bytes), "{filter}");
        }
        for filter in [
            "{}",
            "{a: ''}",
            "{a: 1}",
            "{a: null}",
            "{a: {$ne: 'text'}}",
            "{a: {$gt: 'text'}}",
            "{a: ['text']}",
            "{$or: [{a: 'text'}, {b: 'text'}]}",
            "{a: {$not: {$eq: 'text'}}}",
        ] {
            assert_eq!(required(filter).0, None, "{filter}");
        }
    }

    #[test]
    fn a_set_has_a_limit() {
        let names: Vec<String> = (0..=FIELDS_MAX).map(|number| format!("f{number:02}")).collect();
        assert!(Fields::new(names.iter().map(String::as_str)).is_none());
        let most = Fields::new(names.iter().skip(1).map(String::as_str)).unwrap();
        let mut builder = Builder::new();
        for name in &names {
            builder.append(base::bson::FieldName::trusted(name), true);
        }
        let document = builder.finish();
        assert_eq!(most.bytes_needed(document.bytes()), document.bytes().len());
    }
}
