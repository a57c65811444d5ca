//! Cursors: each reads its range by pages, and prefetches the records that the scan will need.
//!
//! A scan may pass hints. With range hints, a page covers as many ranges as fit. If the scan needs only a few records,
//! one round trip fetches them when the cursor reaches the first. A new kind of page is a statement in `pages.rs` and a
//! `read_` method here.

use crate::connection::{Param, Row};
use crate::keys::{self, bounds, prefix_end};
use crate::log::{is_log, log_bounds, scan_of};
use crate::pages::{Excerpts, IdIn, PAGE_BYTES, PageLimits, column, search_column};
use crate::scan_group::{FirstPage, ScanGroup};
use crate::session::PostgresSnapshot;
use crate::times::{time_in, unpack};
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::{Bound, Deref};
use std::sync::Arc;
use storage::{
    Cursor, Direction, Error, Hints, Ident, Key, Range, Ranges, RecordFilter, RemoteHints as _, Result,
    Value, ValueRef,
};

/// Number of entries of the first page of a scan, and the maximum of later pages.
pub(crate) const PAGES: (usize, usize) = (102, 4096);

/// Minimum number of entries of a page, however long the documents are. Rows beyond the memory limit are cut off by the
/// same rule.
const ENTRIES_MIN: usize = 12;

/// A search for bytes pays while at most one value of this many matches.
const MATCH_SHARE: usize = 8;

/// Maximum number of ranges in one query.
const RANGES_MAX: usize = 1000;

/// An entry of a page, possibly without its long parts.
struct Entry {
    key: Key,
    value: Part,
    record: Option<Part>,
    /// The part of the entry that did not come with its page.
    missing: Missing,
}

/// A value or a record.
enum Part {
    /// A part of the page.
    Paged(Bytes),
    Owned(Value),
}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Part::Paged(bytes) => bytes,
            Part::Owned(value) => value,
        }
    }
}

impl Part {
    fn view(&self) -> ValueRef<'_> {
        match self {
            Part::Paged(bytes) => ValueRef::Bytes(bytes),
            Part::Owned(value) => ValueRef::Value(value),
        }
    }
}

/// The part of an entry that its page left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// The entry is complete.
    Nothing,
    /// The record is missing: the hints did not say that it was needed.
    Record,
    /// The value or record is missing, since it was too long for the page.
    Long,
}

impl Entry {
    /// Returns the key of the record that the entry names.
    fn id(&self, id_in: IdIn) -> Option<&[u8]> {
        match id_in {
            IdIn::Nothing => None,
            IdIn::Key => self.key.get(self.key.len().checked_sub(8)?..),
            IdIn::Value => self.value.get(..8),
        }
    }
}

/// A cursor over a range.
pub(crate) struct PostgresCursor {
    snapshot: PostgresSnapshot,
    ident: Ident,
    /// The range that has not been read yet.
    range: Range,
    direction: Direction,
    /// The tree of the prefetched records, and how entries name them.
    records: Option<(Ident, IdIn)>,
    /// The hinted ranges, and whether some have been read.
    ranges: Option<(Box<dyn Ranges>, bool)>,
    /// Selects the entries whose records are needed.
    filter: Option<RecordFilter>,
    /// Bytes within the values that are needed.
    contains: Option<Box<[u8]>>,
    /// Number of entries left out, as [`Cursor::take_omitted`] returns it.
    omitted: u64,
    /// The excerpts that replace values.
    excerpts: Option<Excerpts>,
    /// The group of scans that begin together, and the number of this scan in the group.
    scan_group: Option<(Arc<ScanGroup>, usize)>,
    /// Entries that have been read and that the caller has not reached.
    page: VecDeque<Entry>,
    /// The entry at the cursor.
    current: Option<Entry>,
    /// True once all pages have been read.
    ended: bool,
    /// Number of entries of the next page. Grows while the scan continues, and shrinks for long documents.
    next_page: usize,
}

impl PostgresCursor {
    pub(crate) fn new(
        snapshot: &PostgresSnapshot,
        (ident, range): (Ident, Range),
        hints: Hints,
        direction: Direction,
    ) -> PostgresCursor {
        let id_in = |unique| if unique { IdIn::Value } else { IdIn::Key };
        let limit = hints.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        PostgresCursor {
            snapshot: snapshot.clone(),
            ident,
            range,
            direction,
            records: hints.prefetch_records.map(|(records, unique)| (records, id_in(unique))),
            ranges: hints.ranges.map(|ranges| (ranges, false)),
            filter: hints.record_filter,
            contains: hints.contains,
            omitted: 0,
            excerpts: hints.excerpt.map(Excerpts::new),
            scan_group: None,
            page: VecDeque::new(),
            current: None,
            ended: false,
            next_page: limit.map_or(PAGES.0, |limit| limit.clamp(1, PAGES.0)),
        }
    }

    /// The scan whose first page may be read with those of other scans. A cursor with several ranges reads its own.
    pub(crate) fn first_page(&self) -> Option<FirstPage> {
        let page = || FirstPage { ident: self.ident, range: self.range.clone(), named: self.id_in() };
        self.ranges.is_none().then(page)
    }

    /// Makes it one of several cursors that begin together.
    pub(crate) fn join(&mut self, group: &Arc<ScanGroup>, number: usize) {
        debug_assert!(self.scan_group.is_none() && self.page.is_empty(), "the cursor has begun");
        self.scan_group = Some((group.clone(), number));
    }

    /// Returns the tree and id location of the records that pages fetch. Records that few entries need are fetched
    /// later.
    fn id_in(&self) -> Option<(Ident, IdIn)> {
        self.records.filter(|_| self.filter.is_none())
    }

    /// Reads the next page. Fails if the first state was released and the tree or the position in the log no longer
    /// exists.
    fn read(&mut self) -> Result<()> {
        self.read_page()?;
        // Checked after the read: until then, another thread may release the state.
        if self.snapshot.session.is_pinned() {
            return Ok(());
        }
        let exists = match &self.current {
            _ if !is_log(self.ident) => self.snapshot.has_tree(self.ident)?,
            None => true,
            // Trimming removes the oldest entries.
            Some(last) => {
                let rows = self.snapshot.run(&self.snapshot.statements.log_first, &[])?;
                time_in(&rows).is_some_and(|first| *last.key >= first.to_be_bytes()[..])
            }
        };
        if exists { Ok(()) } else { Err(Error::NoSuchIdent(self.ident)) }
    }

    fn read_page(&mut self) -> Result<()> {
        if let Some((group, number)) = self.scan_group.take()
            && let Some(rows) = group.take(&self.snapshot, number)?
        {
            return self.take_page(&rows, false, group.page_limits());
        }
        match is_log(self.ident) {
            true => self.read_log(),
            false if self.ranges.is_some() => self.read_ranges(),
            false if self.contains.is_some() && self.records.is_none() => self.read_containing(),
            false => self.read_range(),
        }
    }

    /// Reads a page of the log. Its rows have a time and packed parts, not a key.
    fn read_log(&mut self) -> Result<()> {
        let limit = self.next_page;
        let mut params = log_bounds(&self.range).map(Param::Int).to_vec();
        params.push(Param::Int(limit as i64));
        let rows = self.snapshot.run(scan_of(&self.snapshot.statements, self.direction), &params)?;
        let bytes: usize = rows.iter().map(|row| row.bytes(column::VALUE).map_or(0, <[u8]>::len)).sum();
        self.ended = rows.len() < limit && bytes < PAGE_BYTES;
        self.next_page = (limit * 8).min(PAGES.1);
        let mut passed = None;
        for row in &rows {
            let time = row.bytes(column::KEY).unwrap_or_default();
            let parts = unpack(row.bytes(column::VALUE).unwrap_or_default());
            let mut parts =
                parts.ok_or_else(|| Error::Corrupted("a page of the change log is damaged".to_string()))?;
            if self.direction == Direction::Backward {
                parts.reverse();
            }
            for (part, value) in parts {
                let key = Key::from([time, &part.to_be_bytes()].concat());
                let value = Part::Owned(Value::from(value));
                self.take(Entry { key: key.clone(), value, record: None, missing: Missing::Nothing });
                passed = Some(key);
            }
        }
        passed.into_iter().for_each(|key| self.pass(key));
        Ok(())
    }

    /// Reads the next page of a single range.
    fn read_range(&mut self) -> Result<()> {
        let (lower, upper) = bounds(&self.range);
        let limits = PageLimits { entries: self.next_page, longest: PAGE_BYTES / self.next_page };
        let (records, id_in) = self.id_in().unwrap_or((Ident(0), IdIn::Nothing));
        let mut params =
            vec![Param::Int(keys::stored_ident(self.ident)), Param::Bytes(&lower), Param::Bytes(&upper)];
        let start = self.excerpts.as_ref().and_then(Excerpts::length).filter(|_| id_in == IdIn::Nothing);
        params
            .extend([limits.entries, start.unwrap_or(limits.longest)].map(|limit| Param::Int(limit as i64)));
        if id_in != IdIn::Nothing {
            params.push(Param::Int(keys::stored_ident(records)));
        }
        let pages = &self.snapshot.statements.pages;
        let statement = match start {
            Some(_) => pages.starts(self.direction),
            None => pages.range(self.direction, id_in),
        };
        let rows = self.snapshot.run(statement, &params)?;
        self.take_page(&rows, id_in == IdIn::Nothing, limits)
    }

    /// Reads the next page of a single range, without the values that the scan does not need. The last entry of the
    /// page is always returned, so that the caller gets control after each page.
    fn read_containing(&mut self) -> Result<()> {
        let Some(contains) = self.contains.take() else { return Ok(()) };
        let (lower, upper) = bounds(&self.range);
        let limit = self.next_page;
        let params = [
            Param::Int(keys::stored_ident(self.ident)),
            Param::Bytes(&lower),
            Param::Bytes(&upper),
            Param::Int(limit as i64),
            Param::Int((PAGE_BYTES / limit) as i64),
            Param::Bytes(&contains),
        ];
        let rows = self.snapshot.run(self.snapshot.statements.pages.containing(self.direction), &params)?;
        let row = rows.first().cloned().unwrap_or_default();
        let entries = row.int(search_column::ENTRIES) as usize;
        let arrays = [search_column::KEYS, search_column::LENGTHS, search_column::VALUES]
            .map(|column| row.elements(column));
        let [keys, lengths, values] = arrays.map(|elements| elements.map_err(Error::from));
        let (keys, lengths, values) = (keys?, lengths?, values?);
        let matches = keys.len();
        let last = row.bytes(search_column::ALL_KEYS).and_then(|keys| keys.last_chunk::<8>()).map(Key::from);
        let (mut bytes, mut count) = (0, 0);
        let mut passed = last.clone();
        for ((key, length), value) in
            keys.into_iter().flatten().zip(lengths.into_iter().flatten()).zip(values)
        {
            bytes += length.last_chunk().map_or(0, |length| u64::from_be_bytes(*length) as usize);
            if bytes > 2 * PAGE_BYTES && count > 0 {
                passed = self.page.back().map(|last| last.key.clone());
                break;
            }
            count += 1;
            let missing = if value.is_some() { Missing::Nothing } else { Missing::Long };
            let (key, value) = (Key::from(&key[..]), Part::Paged(value.unwrap_or_default()));
            self.take(Entry { key, value, record: None, missing });
        }
        self.ended = entries < limit && count == matches;
        if count == matches {
            if let Some(key) = last.filter(|last| self.page.back().is_none_or(|entry| entry.key != *last)) {
                let value = Part::Owned(Value::empty());
                self.take(Entry { key, value, record: None, missing: Missing::Nothing });
            }
            self.omitted += (entries - self.page.len().min(entries)) as u64;
        }
        let average = bytes / entries.max(1) + 1;
        self.next_page =
            (PAGE_BYTES / (2 * average)).clamp(ENTRIES_MIN, PAGES.1).min(limit.max(ENTRIES_MIN) * 8);
        passed.into_iter().for_each(|key| self.pass(key));
        match matches * MATCH_SHARE <= entries.max(MATCH_SHARE) {
            true => self.contains = Some(contains),
            // Values of the next page are whole.
            false => self.next_page = self.next_page.min(PAGES.0),
        }
        Ok(())
    }

    /// Takes the entries of a page, together with their values or with the records that they name.
    fn take_page(&mut self, rows: &[Row], of_values: bool, limits: PageLimits) -> Result<()> {
        // Rows are touched once: a large page is no longer in the processor's cache.
        let (mut bytes, mut count, mut misses) = (0, 0, 0);
        let mut truncated = None;
        let mut excerpts = self.excerpts.take().filter(|_| of_values);
        let starts = excerpts.as_ref().filter(|excerpts| excerpts.length().is_some());
        let has_starts = starts.is_some();
        for row in rows {
            let length = row.int(column::LENGTH) as usize;
            let excerpt = starts.filter(|_| length > 0).and_then(|excerpts| excerpts.of(row));
            bytes += if excerpt.is_some() { 0 } else { length };
            bytes += row.bytes(column::FETCHED).map_or(0, <[u8]>::len);
            if bytes > 2 * PAGE_BYTES && count > 0 {
                break;
            }
            count += 1;
            if row.bytes(column::LONG).is_some() {
                truncated = Some(row);
                break;
            }
            let mut entry = entry(row, if of_values { column::FETCHED } else { column::VALUE });
            misses += usize::from(entry.missing == Missing::Long && excerpt.is_none());
            if let Some(excerpt) = excerpt {
                (entry.value, entry.missing) = (Part::Owned(excerpt), Missing::Nothing);
            }
            if self.page.back().is_some_and(|last| !self.direction.is_before(&last.key, &entry.key)) {
                return Err(Error::Corrupted("PostgreSQL returned entries out of order".to_string()));
            }
            self.take(entry);
        }
        let learned = excerpts.as_mut().is_none_or(|excerpts| excerpts.learn(rows, misses));
        self.excerpts = excerpts.filter(|_| learned);
        let start = self.excerpts.as_ref().and_then(Excerpts::length);
        let average = start.filter(|_| !has_starts).unwrap_or(bytes / count.max(1)) + 1;
        self.next_page =
            (PAGE_BYTES / (2 * average)).clamp(ENTRIES_MIN, PAGES.1).min(limits.entries.max(ENTRIES_MIN) * 8);
        if has_starts && !learned {
            // The length of whole values is unknown.
            self.next_page = PAGES.0;
        }
        self.ended = rows.len() < limits.entries && count == rows.len();
        match truncated {
            Some(row) => self.read_truncated_keys(row),
            None => {
                self.pass_row(count.checked_sub(1).and_then(|last| rows.get(last)));
                Ok(())
            }
        }
    }

    /// Reads the next page of the hinted ranges.
    fn read_ranges(&mut self) -> Result<()> {
        let (batch, next) = self.next_ranges();
        if batch.is_empty() {
            self.ended = true;
            return Ok(());
        }
        let bounds: Vec<_> = batch.iter().map(bounds).collect();
        let lows: Vec<Option<&[u8]>> = bounds.iter().map(|(low, _)| Some(&**low)).collect();
        let highs: Vec<Option<&[u8]>> = bounds.iter().map(|(_, high)| Some(&**high)).collect();
        let limits = PageLimits { entries: self.next_page, longest: PAGE_BYTES / self.next_page };
        let (records, id_in) = self.id_in().unwrap_or((Ident(0), IdIn::Nothing));
        let statement = self.snapshot.statements.pages.ranges(self.direction, id_in);
        let params = [
            Param::Int(keys::stored_ident(self.ident)),
            Param::Many(&lows),
            Param::Many(&highs),
            Param::Int(limits.entries as i64),
            Param::Int(limits.longest as i64),
            Param::Int(keys::stored_ident(records)),
        ];
        let params = params.get(..params.len() - usize::from(id_in == IdIn::Nothing)).unwrap_or(&params);
        let rows = self.snapshot.run(statement, params)?;
        self.take_page(&rows, id_in == IdIn::Nothing, limits)?;
        if let (true, Some(next)) = (self.ended, next) {
            self.ended = false;
            match self.direction {
                Direction::Forward => self.range.lower = next.lower,
                Direction::Backward => self.range.upper = next.upper,
            }
        }
        Ok(())
    }

    /// Returns the next hinted ranges, and the range behind them.
    fn next_ranges(&mut self) -> (Vec<Range>, Option<Range>) {
        let mut batch = Vec::new();
        let Some((ranges, begun)) = &mut self.ranges else { return (batch, None) };
        let bound = match (&self.range.lower, &self.range.upper, self.direction) {
            (Bound::Included(at) | Bound::Excluded(at), _, Direction::Forward) => Some(at),
            (_, Bound::Included(at) | Bound::Excluded(at), Direction::Backward) => Some(at),
            _ => None,
        };
        if let (Some(at), true) = (bound, *begun) {
            ranges.go_to(at);
        }
        *begun = true;
        while let Some(range) = ranges.next_range() {
            let range = range.intersection(&self.range);
            if range.is_empty() {
                continue;
            }
            if batch.len() == RANGES_MAX {
                return (batch, Some(range));
            }
            batch.push(range);
        }
        (batch, None)
    }

    /// Reads all entries whose keys share their first 2,000 bytes, sorts them by the full key, and continues after
    /// them.
    fn read_truncated_keys(&mut self, first: &Row) -> Result<()> {
        let head = first.bytes(column::KEY).and_then(|key| key.get(..keys::PREFIX)).unwrap_or_default();
        let end = prefix_end(head);
        let params = [Param::Int(keys::stored_ident(self.ident)), Param::Bytes(head), Param::Bytes(&end)];
        let rows = self.snapshot.run(&self.snapshot.statements.run.clone(), &params)?;
        let mut run: Vec<Entry> = rows
            .iter()
            .map(|row| Entry {
                key: Key::from(row.bytes(column::LONG).or(row.bytes(column::KEY)).unwrap_or_default()),
                ..entry(row, column::VALUE)
            })
            .collect();
        run.sort_by(|a, b| a.key.cmp(&b.key));
        if self.direction == Direction::Backward {
            run.reverse();
        }
        run.into_iter().for_each(|entry| self.take(entry));
        self.ended = false;
        match (self.direction, Range::prefix(head).upper) {
            // A longer bound would be truncated, and the next page would begin with the same keys.
            (Direction::Forward, Bound::Excluded(next)) => self.range.lower = Bound::Included(next),
            (Direction::Forward, _) => self.ended = true,
            (Direction::Backward, _) => self.range.upper = Bound::Excluded(Key::from(head)),
        }
        Ok(())
    }

    /// Buffers an entry. A truncated bound can yield entries outside of the range, which are dropped.
    fn take(&mut self, entry: Entry) {
        if self.range.contains(&entry.key) {
            self.page.push_back(entry);
        }
    }

    /// Fetches the long values or records that the page left out, for the current entry and the buffered entries. A
    /// value stays missing if it was deleted after the first state of the cursor was released.
    fn fetch_long(&mut self) -> Result<()> {
        let (tree, id_in) = self.id_in().unwrap_or((self.ident, IdIn::Nothing));
        let entries = self.current.iter_mut().chain(&mut self.page);
        let long: Vec<&mut Entry> = entries.filter(|entry| entry.missing == Missing::Long).collect();
        let keys: Vec<Vec<u8>> =
            long.iter().map(|entry| entry.id(id_in).unwrap_or(&entry.key).to_vec()).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        let values = self.snapshot.get_many(tree, &keys)?;
        debug_assert_eq!(values.len(), keys.len(), "one value for each key");
        for (entry, value) in long.into_iter().zip(values) {
            match (id_in, value) {
                (IdIn::Nothing, None) => continue,
                (IdIn::Nothing, Some(value)) => entry.value = Part::Owned(value),
                (_, record) => entry.record = record.map(Part::Owned),
            }
            entry.missing = Missing::Nothing;
        }
        Ok(())
    }

    /// Returns true if this part of the current entry is missing.
    fn is_missing(&self, part: Missing) -> bool {
        self.current.as_ref().is_some_and(|entry| entry.missing == part)
    }

    /// Fetches the record of the current entry and the buffered records that the scan will need.
    fn fetch_selected(&mut self) -> Result<()> {
        let (Some((records, id_in)), Some(filter)) = (self.records, &mut self.filter) else {
            return Ok(());
        };
        if let Some(entry) = &mut self.current
            && !filter(&entry.key, &entry.value)
        {
            // A caller that looks ahead fetches the record itself.
            entry.missing = Missing::Nothing;
            return Ok(());
        }
        let following = self.page.iter_mut().filter(|entry| entry.missing == Missing::Record);
        let following = following.filter(|entry| filter(&entry.key, &entry.value)).take(PAGES.0);
        let selected: Vec<&mut Entry> = self.current.iter_mut().chain(following).collect();
        let keys: Vec<Vec<u8>> =
            selected.iter().map(|entry| entry.id(id_in).unwrap_or_default().to_vec()).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        let fetched = self.snapshot.prefetch_records(records, &keys)?;
        for (entry, record) in selected.into_iter().zip(fetched) {
            // A record too long for the batch is fetched alone at its use.
            entry.missing = Missing::Nothing;
            entry.record = record.map(Part::Owned);
        }
        Ok(())
    }

    /// Continues behind the last row of a page.
    fn pass_row(&mut self, last: Option<&Row>) {
        if let Some(last) = last.and_then(|row| row.bytes(column::KEY)) {
            self.pass(Key::from(last));
        }
    }

    /// Continues behind a key.
    fn pass(&mut self, key: Key) {
        match self.direction {
            Direction::Forward => {
                let behind = match &self.range.lower {
                    Bound::Included(lower) | Bound::Excluded(lower) => *lower > key,
                    Bound::Unbounded => false,
                };
                if !behind {
                    self.range.lower = Bound::Excluded(key);
                }
            }
            Direction::Backward => {
                let behind = match &self.range.upper {
                    Bound::Included(upper) | Bound::Excluded(upper) => *upper < key,
                    Bound::Unbounded => false,
                };
                if !behind {
                    self.range.upper = Bound::Excluded(key);
                }
            }
        }
    }
}

/// Converts a row into an entry; `column` holds the value.
fn entry(row: &Row, column: usize) -> Entry {
    let of_values = column == column::FETCHED;
    let record = if of_values { None } else { row.shared(column::FETCHED).map(Part::Paged) };
    let missing = match (row.bytes(column::LENGTH), &record) {
        (Some(_), _) => Missing::Long,
        (None, None) => Missing::Record,
        (None, Some(_)) => Missing::Nothing,
    };
    Entry {
        key: Key::from(row.bytes(column::KEY).unwrap_or_default()),
        value: Part::Paged(row.shared(column).unwrap_or_default()),
        record,
        missing,
    }
}

impl Cursor for PostgresCursor {
    fn next(&mut self) -> Result<Option<(&[u8], ValueRef<'_>)>> {
        loop {
            while self.page.is_empty() && !self.ended {
                self.read()?;
            }
            self.current = self.page.pop_front();
            if self.id_in().is_some() || !self.is_missing(Missing::Long) {
                break;
            }
            self.fetch_long()?;
            if !self.is_missing(Missing::Long) {
                break;
            }
        }
        Ok(self.current.as_ref().map(|entry| (&*entry.key, entry.value.view())))
    }

    fn take_omitted(&mut self) -> u64 {
        std::mem::take(&mut self.omitted)
    }

    fn prefetched_record(&mut self) -> Result<Option<Value>> {
        if self.is_missing(Missing::Long) {
            self.fetch_long()?;
        } else if self.filter.is_some() && self.is_missing(Missing::Record) {
            self.fetch_selected()?;
        }
        let record = self.current.as_mut().and_then(|entry| entry.record.take());
        Ok(record.map(|record| record.view().to_value()))
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        while let Some(first) = self.page.front() {
            if !self.direction.is_before(&first.key, key) {
                return Ok(());
            }
            self.page.pop_front();
        }
        let is_ahead = match (&self.range.lower, &self.range.upper, self.direction) {
            (Bound::Included(at) | Bound::Excluded(at), _, Direction::Forward) => **at < *key,
            (_, Bound::Included(at) | Bound::Excluded(at), Direction::Backward) => **at > *key,
            _ => true,
        };
        if is_ahead {
            if let Some((group, number)) = self.scan_group.take() {
                group.leave(number);
            }
            // Skipped keys were read in vain.
            if self.ranges.is_none() {
                self.next_page = (self.next_page / 8).max(PAGES.0.min(self.next_page));
            }
            match self.direction {
                Direction::Forward => self.range.lower = Bound::Included(Key::from(key)),
                Direction::Backward => self.range.upper = Bound::Included(Key::from(key)),
            }
        }
        Ok(())
    }
}
