//! Times: how the server has them, and how far a front knows the log.

use crate::connection::Row;
use std::sync::atomic::{AtomicU64, Ordering};

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
