//! Times: their form on the server, and the position up to which a front knows the log.
//!
//! Includes the log entries of commits.

use crate::connection::{Param, Row, Statement};
use crate::failure::Answer;
use crate::pool::PooledConnection;
use std::sync::atomic::{AtomicU64, Ordering};
use storage::Value;

/// Converts a time to the signed form of the server: sequences and int8 are signed.
pub(crate) fn signed(time: u64) -> i64 {
    (time ^ 1 << 63) as i64
}

fn unsigned(time: i64) -> u64 {
    time as u64 ^ 1 << 63
}

/// Converts a time from the server.
pub(crate) fn time_from(told: i64) -> u64 {
    unsigned(told)
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
    pub(crate) held: AtomicU64,
}

impl Times {
    /// Returns true if the store keeps a log.
    pub(crate) fn is_kept(&self) -> bool {
        self.limit.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn known(&self) -> u64 {
        self.known.load(Ordering::Acquire)
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Records a time of the server up to which everything is committed.
    pub(crate) fn hear(&self, time: u64) -> u64 {
        self.known.fetch_max(time, Ordering::AcqRel).max(time)
    }

    /// Records the time up to which everything is durable. Returns true if it advanced.
    pub(crate) fn hear_durable(&self, time: u64) -> bool {
        self.durable.fetch_max(time, Ordering::AcqRel) < time
    }

    /// Generates a unique commit time in a schema without a log. The low bits of the counter are the number of the
    /// front.
    pub(crate) fn invent(&self, number: i64, earliest: u64, ticks: u32) -> u64 {
        let after = |latest: u64| {
            let first = (latest.max(earliest) >> 10) + 1;
            (first + u64::from(ticks.saturating_sub(1))) << 10 | number as u64
        };
        let latest = self.known.fetch_update(Ordering::AcqRel, Ordering::Acquire, |time| Some(after(time)));
        after(latest.unwrap_or_else(|latest| latest))
    }
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
    /// Queues the write of the entry. The answer contains its time. Only the commit may follow.
    pub(crate) fn call(&self, lent: &mut PooledConnection, record: &Statement) -> Answer<()> {
        let (numbers, values) = self.parts();
        let [earliest, ticks, bytes] = self.place().map(Param::Int);
        let params =
            [earliest, ticks, Param::Ints(&numbers), Param::Many(&values), bytes, Param::Int(self.body)];
        lent.call(record, &params)
    }

    /// Returns the numbers and the contents of the parts.
    pub(crate) fn parts(&self) -> (Vec<i64>, Vec<Option<&[u8]>>) {
        self.parts.iter().map(|(number, value)| (i64::from(*number), Some(&**value))).unzip()
    }

    /// Returns the inputs of its order: earliest allowed time, number of ticks, size in bytes.
    pub(crate) fn place(&self) -> [i64; 3] {
        let bytes: usize = self.parts.iter().map(|(_, value)| 12 + value.len()).sum();
        [signed(self.earliest), i64::from(self.ticks.max(1)), bytes as i64]
    }

    /// Returns the number of the first part.
    pub(crate) fn first_part(&self) -> i64 {
        self.parts.first().map_or(0, |(number, _)| i64::from(*number))
    }
}

/// Returns the time of an entry from the rows of its call.
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
