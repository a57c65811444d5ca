//! Times: how the server has them, and how far a front knows the log.
//!
//! What a commit tells the log of changes.

use crate::connection::{Param, Row, Statement};
use crate::failure::Answer;
use crate::pool::Lent;
use std::sync::atomic::{AtomicU64, Ordering};
use storage::Value;

/// A time as the server has it: sequences and int8 are signed.
pub(crate) fn signed(time: u64) -> i64 {
    (time ^ 1 << 63) as i64
}

fn unsigned(time: i64) -> u64 {
    time as u64 ^ 1 << 63
}

/// A time that the server has told.
pub(crate) fn time_from(told: i64) -> u64 {
    unsigned(told)
}

/// The time in a row's first column.
pub(crate) fn time_in(rows: &[Row]) -> Option<u64> {
    rows.first().map(|row| unsigned(row.int(0)))
}

/// How far a front knows the log.
#[derive(Default)]
pub(crate) struct Times {
    /// Everything up to here has been committed, or never will be.
    known: AtomicU64,
    /// The same, and it would survive the loss of the server as far as its configuration says.
    durable: AtomicU64,
    /// How many bytes are kept; zero where there is no log.
    pub(crate) limit: AtomicU64,
    /// How many there are, as of the last look.
    pub(crate) held: AtomicU64,
}

impl Times {
    /// Whether there is a log.
    pub(crate) fn is_kept(&self) -> bool {
        self.limit.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn known(&self) -> u64 {
        self.known.load(Ordering::Acquire)
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Notes a time that the server has told, of what is committed.
    pub(crate) fn hear(&self, time: u64) -> u64 {
        self.known.fetch_max(time, Ordering::AcqRel).max(time)
    }

    /// Notes up to which time everything would survive; whether that is news.
    pub(crate) fn hear_durable(&self, time: u64) -> bool {
        self.durable.fetch_max(time, Ordering::AcqRel) < time
    }

    /// The time of a commit in a schema without a log, which no other commit of any front has: the low bits of
    /// the counter are the front's number.
    pub(crate) fn invent(&self, number: i64, earliest: u64, ticks: u32) -> u64 {
        let after = |latest: u64| {
            let first = (latest.max(earliest) >> 10) + 1;
            (first + u64::from(ticks.saturating_sub(1))) << 10 | number as u64
        };
        let latest = self.known.fetch_update(Ordering::AcqRel, Ordering::Acquire, |time| Some(after(time)));
        after(latest.unwrap_or_else(|latest| latest))
    }
}

/// What a commit tells the log.
pub(crate) struct Entry<'a> {
    /// A number that no other entry has.
    pub(crate) body: i64,
    /// What was known before: its time is a later one.
    pub(crate) since: u64,
    pub(crate) parts: &'a [(u32, Value)],
    pub(crate) ticks: u32,
    pub(crate) earliest: u64,
}

impl Entry<'_> {
    /// Queues the writing of the entry by the statement for it: its answer has the time. Nothing may follow but the commit.
    pub(crate) fn call(&self, lent: &mut Lent, record: &Statement) -> Answer<()> {
        let (numbers, values) = self.parts();
        let [earliest, ticks, bytes] = self.place().map(Param::Int);
        let params =
            [earliest, ticks, Param::Ints(&numbers), Param::Many(&values), bytes, Param::Int(self.body)];
        lent.call(record, &params)
    }

    /// The numbers of its parts, and what they say.
    pub(crate) fn parts(&self) -> (Vec<i64>, Vec<Option<&[u8]>>) {
        self.parts.iter().map(|(number, value)| (i64::from(*number), Some(&**value))).unzip()
    }

    /// What its place depends on: the earliest time that it may have, how many it takes, and its bytes.
    pub(crate) fn place(&self) -> [i64; 3] {
        let bytes: usize = self.parts.iter().map(|(_, value)| 12 + value.len()).sum();
        [signed(self.earliest), i64::from(self.ticks.max(1)), bytes as i64]
    }

    /// The first of its parts.
    pub(crate) fn first_part(&self) -> i64 {
        self.parts.first().map_or(0, |(number, _)| i64::from(*number))
    }
}

/// The time that an entry was given, in the rows of its call.
pub(crate) fn time_given(rows: Option<&Vec<Row>>) -> Option<u64> {
    time_in(rows?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_order() {
        let times = [0, 1, 5 << 32, (1 << 63) - 1, 1 << 63, u64::MAX];
        assert!(times.is_sorted_by_key(|time| signed(*time)));
        assert!(times.iter().all(|time| unsigned(signed(*time)) == *time));
        let known = Times::default();
        let first = known.invent(3, 7 << 32, 1);
        let second = known.invent(3, 0, 5);
        assert_eq!((first & 1023, second >> 10), (3, (first >> 10) + 5));
    }
}
