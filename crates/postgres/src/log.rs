//! The log of changes: what a commit tells, how it is read, and who looks after it.
//!
//! Times come from the server: `record` in schema-3.sql, and `next_time` in schema-4.sql, give them so that no earlier one is ever added to
//! what can be seen. So whatever time a front has been told, the log has all entries up to it, and a stream
//! only has to know how far that would survive the loss of the server, too.

use crate::barrier::Barriers;
use crate::connection::Param;
use crate::failure::Answer;
use crate::front::{Follower, Front};
use crate::keys;
use crate::schema::Statements;
use crate::times::{Entry, signed, time_in};
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use storage::store::{Change, LOG, LOG_TREES};
use storage::{Cursor, Direction, Ident, Key, Lent, Range, Value, threads};

/// How often somebody looks for what other fronts have written, while anybody waits for it.
const POLL: Duration = Duration::from_millis(20);

/// The same while nobody does.
const IDLE: Duration = Duration::from_secs(1);

impl Front {
    /// What a change tells the log; `None` where that is nothing, or there is no log.
    pub(crate) fn entry<'a>(&self, change: &'a Change) -> Option<Entry<'a>> {
        let Change { log, ticks, earliest, .. } = change;
        (self.times.is_kept() && !log.is_empty()).then(|| Entry {
            body: self.new_record() as i64,
            since: self.times.known(),
            parts: log,
            ticks: *ticks,
            earliest: *earliest,
        })
    }

    /// Lets the clock of all fronts go on to a time, and gives what it shows.
    pub(crate) fn tick(&self, earliest: u64) -> Answer<u64> {
        let params = [Param::Int(signed(earliest))];
        let rows = self.ask(|lent| lent.one(&self.statements.tick, &params))?;
        Ok(self.times.hear(time_in(&rows).unwrap_or_default()))
    }

    /// The time of the oldest entry.
    pub(crate) fn log_first(&self) -> Answer<Option<u64>> {
        Ok(time_in(&self.ask(|lent| lent.one(&self.statements.log_first, &[]))?))
    }
}

/// Whether a tree is of the log.
pub(crate) fn is_log(tree: Ident) -> bool {
    tree >= LOG_TREES && tree <= LOG
}

/// The parameters of a scan of the log: times and parts, the lower included and the upper not.
pub(crate) fn log_bounds(range: &Range) -> [i64; 4] {
    let place = |bytes: &[u8], unbounded: (bool, [i64; 2])| {
        let number = |at: std::ops::Range<usize>| {
            bytes.get(at).unwrap_or_default().iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        // One byte more stands for the next key.
        let next = i64::from(bytes.len() > 12);
        if unbounded.0 { unbounded.1 } else { [signed(number(0..8)), number(8..12) as i64 + next] }
    };
    let (lower, upper) = keys::bounds(range);
    let has_no = |bound: &Bound<Key>| *bound == Bound::Unbounded;
    let [first, first_part] = place(&lower, (has_no(&range.lower), [i64::MIN, 0]));
    let [last, last_part] = place(&upper, (has_no(&range.upper), [i64::MAX, 1 << 32]));
    [first, first_part, last, last_part]
}

/// The list of the log's trees: there is one, from the beginning of time.
pub(crate) struct OneTree(Option<(Key, Value)>, Option<(Key, Value)>);

impl OneTree {
    pub(crate) fn new() -> OneTree {
        let zero = 0u64.to_be_bytes();
        OneTree(Some((Key::from(zero), Value::from(zero.as_slice()))), None)
    }
}

impl Cursor for OneTree {
    fn next(&mut self) -> storage::Result<Option<(&[u8], Lent<'_>)>> {
        self.1 = self.0.take();
        Ok(self.1.as_ref().map(|(key, value)| (&**key, Lent::Value(value))))
    }

    fn seek(&mut self, key: &[u8]) -> storage::Result<()> {
        self.0 = self.0.take().filter(|(at, _)| &**at >= key);
        Ok(())
    }
}

/// The statement for a scan in a direction.
pub(crate) fn scan_of(statements: &Statements, direction: Direction) -> &Arc<crate::connection::Statement> {
    &statements.log_scan[usize::from(direction == Direction::Backward)]
}

impl Follower {
    /// Begins to follow, until the front is gone. `anybody` says whether somebody waits, `grown` is called
    /// when there is more to see.
    pub(crate) fn start(
        self: &Arc<Self>,
        front: &Arc<Front>,
        barriers: &Arc<Barriers>,
        anybody: Arc<dyn Fn() -> bool + Send + Sync>,
        grown: Arc<dyn Fn() + Send + Sync>,
    ) {
        let (follower, front, barriers) = (self.clone(), Arc::downgrade(front), barriers.clone());
        let follow = move || {
            while follower.round(&front, &barriers, &*anybody, &*grown).is_some() {}
        };
        if let Err(error) = threads::spawn("postgres-log", None, follow) {
            log::error!("nobody looks for what other fronts write: {error}");
        }
    }

    /// Waits, and looks; `None` where the front is gone.
    fn round(
        &self,
        front: &Weak<Front>,
        barriers: &Barriers,
        anybody: &dyn Fn() -> bool,
        grown: &dyn Fn(),
    ) -> Option<()> {
        let mut asked = self.asked.lock();
        if !*asked {
            self.wake.wait_for(&mut asked, if anybody() { POLL } else { IDLE });
        }
        let is_asked = std::mem::take(&mut *asked);
        drop(asked);
        let front = front.upgrade()?;
        // Writers make it safe for their own sake, too.
        self.tell(&front, grown);
        if let Err(failure) = Follower::look(&front, barriers, is_asked || anybody()) {
            log::warn!("the log in PostgreSQL can't be followed: {failure:?}");
            std::thread::sleep(IDLE);
        }
        self.tell(&front, grown);
        Some(())
    }

    /// Tells those who wait where there is more to see.
    fn tell(&self, front: &Front, grown: &dyn Fn()) {
        let durable = front.times.durable();
        if self.told.swap(durable, Ordering::AcqRel) < durable {
            grown();
        }
    }

    fn look(front: &Front, barriers: &Barriers, anybody: bool) -> Answer<()> {
        front.settle()?;
        let rows = front.ask_on(&front.background, |lent| lent.one(&front.statements.log_last, &[]))?;
        let seen = front.times.hear(time_in(&rows).unwrap_or_default());
        match anybody && front.times.durable() < seen {
            true => {
                let since = Instant::now();
                let life = front.lives().current();
                // A standby that is gone must not keep this thread from seeing that the front is.
                barriers.wait_standbys(front, life, &mut || since.elapsed() < IDLE).map(drop)
            }
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_times_and_parts() {
        let key =
            |time: u64, part: u32| Key::from([&time.to_be_bytes()[..], &part.to_be_bytes()[..]].concat());
        assert_eq!(log_bounds(&Range::all()), [i64::MIN, 0, i64::MAX, 1 << 32]);
        let range = Range { lower: Bound::Excluded(key(5, u32::MAX)), upper: Bound::Included(key(9, 2)) };
        assert_eq!(log_bounds(&range), [signed(5), 1 << 32, signed(9), 3]);
        let range = Range { lower: Bound::Included(key(5, 1)), upper: Bound::Excluded(key(9, 0)) };
        assert_eq!(log_bounds(&range), [signed(5), 1, signed(9), 0]);
    }
}
