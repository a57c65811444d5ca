//! Commit times: their form on the server, and the position up to which a front knows the log.
//!
//! Includes the log entries of commits.

use crate::connection::{Param, Row, Statement};
use crate::failure::PgResult;
use crate::pool::PooledConnection;
use std::sync::atomic::{AtomicU64, Ordering};
use storage::Value;

/// Converts a time to the signed form of the server: sequences and int8 are signed.
pub(crate) fn signed(time: u64) -> i64 {
    (time ^ 1 << 63) as i64
}

/// Converts a time from the server.
pub(crate) fn unsigned(time: i64) -> u64 {
    time as u64 ^ 1 << 63
}

/// Returns the time in the first column.
pub(crate) fn time_in(rows: &[Row]) -> Option<u64> {
    rows.first().map(|row| unsigned(row.int(0)))
}

/// The position up to which a front knows the log.
#[derive(Default)]
pub(crate) struct Times {
    /// Everything up to this time is committed or never will be.
    known: AtomicU64,
    /// Everything up to this time also survives the loss of the server, as far as its configuration covers it.
    durable: AtomicU64,
    /// Size limit of the log in bytes; zero disables it.
    pub(crate) limit: AtomicU64,
    /// Size of the log in bytes at the last check.
    pub(crate) log_size: AtomicU64,
}

impl Times {
    /// Returns true if the store keeps a log.
    pub(crate) fn has_log(&self) -> bool {
        self.limit.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn known(&self) -> u64 {
        self.known.load(Ordering::Acquire)
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Records a time of the server up to which everything is committed.
    pub(crate) fn observe(&self, time: u64) -> u64 {
        self.known.fetch_max(time, Ordering::AcqRel).max(time)
    }

    /// Records the time up to which everything is durable. Returns true if it advanced.
    pub(crate) fn observe_durable(&self, time: u64) -> bool {
        self.durable.fetch_max(time, Ordering::AcqRel) < time
    }

    /// Generates a unique commit time in a schema without a log. The low bits of the counter are the number of the
    /// front.
    pub(crate) fn generate(&self, number: i64, earliest: u64, ticks: u32) -> u64 {
        let after = |latest: u64| {
            let first = (latest.max(earliest) >> 10) + 1;
            (first + u64::from(ticks.saturating_sub(1))) << 10 | number as u64
        };
        debug_assert!((0..1 << 10).contains(&number), "the number {number} changes the counter");
        let latest = self.known.fetch_update(Ordering::AcqRel, Ordering::Acquire, |time| Some(after(time)));
        let latest = latest.unwrap_or_else(|latest| latest);
        debug_assert!(after(latest) > latest.max(earliest), "the time of a commit goes back");
        after(latest)
    }
}

/// Maximum size of an entry that is stored in the row of its time. PostgreSQL stores a longer row in several pieces.
const INLINE_MAX: usize = 1900;

/// Approximate maximum size of a page of a longer entry.
const PAGE_BYTES: usize = 32 * 1024;

/// The parts of a log entry, packed: number, length and bytes of each part.
#[derive(Default)]
pub(crate) struct LogPages {
    /// Number of the first part in each page.
    pub(crate) first: Vec<i64>,
    /// Number of the last part in each page.
    pub(crate) last: Vec<i64>,
    values: Vec<Vec<u8>>,
}

impl LogPages {
    /// Returns the pages.
    pub(crate) fn values(&self) -> Vec<Option<&[u8]>> {
        self.values.iter().map(|page| Some(&**page)).collect()
    }

    /// Returns the only page of a short entry.
    pub(crate) fn inline(&self) -> Option<&[u8]> {
        let [page] = &self.values[..] else { return None };
        (page.len() <= INLINE_MAX).then_some(page)
    }
}

/// Returns the number and the bytes of each part in a page; `None` if the page is damaged.
pub(crate) fn unpack(mut page: &[u8]) -> Option<Vec<(u32, &[u8])>> {
    let mut parts = Vec::new();
    while !page.is_empty() {
        let (number, rest) = page.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        parts.push((u32::from_be_bytes(*number), value));
        page = rest;
    }
    Some(parts)
}

/// The log entry of a commit.
pub(crate) struct Entry<'a> {
    /// Unique number of the entry.
    pub(crate) body: i64,
    /// The time known before; the entry gets a later one.
    pub(crate) since: u64,
    pub(crate) parts: &'a [(u32, Value)],
    /// Number of times that the entry takes.
    pub(crate) ticks: u32,
    /// The earliest time that the entry may get.
    pub(crate) earliest: u64,
}

impl Entry<'_> {
    /// Queues the write of the entry. The reply contains its time. Only the commit may follow.
    pub(crate) fn call(&self, conn: &mut PooledConnection, record: &Statement) -> PgResult<()> {
        let pages = self.pages();
        let [earliest, ticks, bytes] = self.order_params().map(Param::Int);
        let (first, last, values) = (Param::Ints(&pages.first), Param::Ints(&pages.last), pages.values());
        conn.call(record, &[earliest, ticks, first, last, Param::Many(&values), bytes, Param::Int(self.body)])
    }

    /// Returns true if the entry is in the row of its time.
    pub(crate) fn is_short(&self) -> bool {
        self.parts.iter().map(|(_, value)| 8 + value.len()).sum::<usize>() <= INLINE_MAX
    }

    /// Returns a short entry with its own bytes.
    pub(crate) fn to_short(&self) -> ShortEntry {
        debug_assert!(self.is_short(), "the entry has pages");
        ShortEntry { body: self.body, page: self.pages().values.concat(), order: self.order_params() }
    }

    /// Packs the parts into pages.
    pub(crate) fn pages(&self) -> LogPages {
        let mut pages = LogPages::default();
        let mut rest: usize = self.parts.iter().map(|(_, value)| 8 + value.len()).sum();
        for (number, value) in self.parts {
            let fits = pages.values.last().is_some_and(|page| page.len() + 8 + value.len() <= PAGE_BYTES);
            if !fits {
                pages.first.push(i64::from(*number));
                pages.last.push(0);
                pages.values.push(Vec::with_capacity(rest.min(PAGE_BYTES)));
            }
            rest -= 8 + value.len();
            if let (Some(last), Some(page)) = (pages.last.last_mut(), pages.values.last_mut()) {
                *last = i64::from(*number);
                page.extend_from_slice(&number.to_be_bytes());
                page.extend_from_slice(&(value.len() as u32).to_be_bytes());
                page.extend_from_slice(value);
            }
        }
        debug_assert!(self.parts.is_sorted_by(|(a, _), (b, _)| a < b), "parts are out of order");
        debug_assert_eq!(pages.first.len(), pages.values.len(), "one first part for each page");
        debug_assert_eq!(pages.last.len(), pages.values.len(), "one last part for each page");
        pages
    }

    /// Returns the inputs of its order: earliest allowed time, number of ticks, size in bytes.
    pub(crate) fn order_params(&self) -> [i64; 3] {
        let bytes: usize = self.parts.iter().map(|(_, value)| 12 + value.len()).sum();
        [signed(self.earliest), i64::from(self.ticks.max(1)), bytes as i64]
    }

    /// Returns the number of the first part.
    pub(crate) fn first_part(&self) -> i64 {
        self.parts.first().map_or(0, |(number, _)| i64::from(*number))
    }
}

/// An entry in the row of its time, with its own bytes.
pub(crate) struct ShortEntry {
    /// Unique number of the entry.
    pub(crate) body: i64,
    pub(crate) page: Vec<u8>,
    /// The inputs of its order, as [`Entry::order_params`] returns them.
    pub(crate) order: [i64; 3],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_hold_the_parts_of_an_entry() {
        let long = Value::from(vec![7; PAGE_BYTES]);
        let parts = [(0, Value::from(&b"a"[..])), (1, Value::empty()), (2, long.clone()), (5, long)];
        let packed = |parts| Entry { body: 1, since: 0, parts, ticks: 1, earliest: 0 }.pages();
        let pages = packed(&parts);
        assert_eq!((&pages.first[..], &pages.last[..]), (&[0, 2, 5][..], &[1, 2, 5][..]));
        assert!(pages.inline().is_none() && packed(&parts[2..3]).inline().is_none());
        let unpacked: Vec<_> = pages.values.iter().flat_map(|page| unpack(page).unwrap()).collect();
        let expected: Vec<_> = parts.iter().map(|(number, value)| (*number, &**value)).collect();
        assert_eq!(unpacked, expected);
        let short = packed(&parts[..2]);
        let page = short.inline().unwrap();
        assert_eq!(unpack(page).unwrap(), [(0, &b"a"[..]), (1, &b""[..])]);
        assert!(unpack(&page[..page.len() - 1]).is_none());
    }

    #[test]
    fn times_keep_their_order() {
        let times = [0, 1, 5 << 32, (1 << 63) - 1, 1 << 63, u64::MAX];
        assert!(times.is_sorted_by_key(|time| signed(*time)));
        assert!(times.iter().all(|time| unsigned(signed(*time)) == *time));
        let known = Times::default();
        let first = known.generate(3, 7 << 32, 1);
        let second = known.generate(3, 0, 5);
        assert_eq!((first & 1023, second >> 10), (3, (first >> 10) + 5));
    }
}
