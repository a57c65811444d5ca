//! The log of changes: the entries of commits, their reads, and its maintenance.
//!
//! The server assigns times. The functions `record` and `next_time` in schema.sql never add an
//! earlier time to the visible entries. The log is therefore complete up to any reported time. A stream only needs the
//! time up to which entries also survive the loss of the server.

use crate::barrier::Barriers;
use crate::connection::Param;
use crate::failure::PgResult;
use crate::front::{Follower, Front, Watchers};
use crate::keys;
use crate::schema::Statements;
use crate::times::{Entry, signed, time_in};
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use storage::store::{Change, LOG, LOG_TREES};
use storage::{Cursor, Direction, Ident, Key, Range, Value, ValueRef, threads};

/// Poll interval for entries of other fronts while a stream waits.
const POLL_WATCHED: Duration = Duration::from_millis(20);

/// Poll interval while no stream waits.
const POLL_IDLE: Duration = Duration::from_secs(1);

impl Front {
    /// Returns the log entry of a change; `None` if the change has no entry or the store keeps no log.
    pub(crate) fn entry<'a>(&self, change: &'a Change) -> Option<Entry<'a>> {
        let Change { log, ticks, earliest, .. } = change;
        (self.times.has_log() && !log.is_empty()).then(|| Entry {
            body: self.new_record() as i64,
            since: self.times.known(),
            parts: log,
            ticks: *ticks,
            earliest: *earliest,
        })
    }

    /// Advances the clock of all fronts to a time, and returns its present time.
    pub(crate) fn tick(&self, earliest: u64) -> PgResult<u64> {
        let params = [Param::Int(signed(earliest))];
        let rows = self.run(|conn| conn.query(&self.statements.tick, &params))?;
        Ok(self.times.observe(time_in(&rows).unwrap_or_default()))
    }

    /// Returns the time of the oldest entry.
    pub(crate) fn log_first(&self) -> PgResult<Option<u64>> {
        Ok(time_in(&self.run(|conn| conn.query(&self.statements.log_first, &[]))?))
    }
}

/// Returns true if a tree belongs to the log.
pub(crate) fn is_log(tree: Ident) -> bool {
    tree >= LOG_TREES && tree <= LOG
}

/// Returns the parameters of a log scan: times and parts, lower inclusive and upper exclusive.
pub(crate) fn log_bounds(range: &Range) -> [i64; 4] {
    let position = |bytes: &[u8], unbounded: (bool, [i64; 2])| {
        let number = |at: std::ops::Range<usize>| {
            bytes.get(at).unwrap_or_default().iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        // An additional byte means the next key.
        let next = i64::from(bytes.len() > 12);
        if unbounded.0 { unbounded.1 } else { [signed(number(0..8)), number(8..12) as i64 + next] }
    };
    let (lower, upper) = keys::bounds(range);
    let has_no = |bound: &Bound<Key>| *bound == Bound::Unbounded;
    let [first, first_part] = position(&lower, (has_no(&range.lower), [i64::MIN, 0]));
    let [last, last_part] = position(&upper, (has_no(&range.upper), [i64::MAX, 1 << 32]));
    [first, first_part, last, last_part]
}

/// The list of log trees. It has one tree, which begins at time zero.
pub(crate) struct OneTree(Option<(Key, Value)>, Option<(Key, Value)>);

impl OneTree {
    pub(crate) fn new() -> OneTree {
        let zero = 0u64.to_be_bytes();
        OneTree(Some((Key::from(zero), Value::from(zero.as_slice()))), None)
    }
}

impl Cursor for OneTree {
    fn next(&mut self) -> storage::Result<Option<(&[u8], ValueRef<'_>)>> {
        self.1 = self.0.take();
        Ok(self.1.as_ref().map(|(key, value)| (&**key, ValueRef::Value(value))))
    }

    fn seek(&mut self, key: &[u8]) -> storage::Result<()> {
        self.0 = self.0.take().filter(|(at, _)| &**at >= key);
        Ok(())
    }
}

/// Returns the statement for a scan in a direction.
pub(crate) fn scan_of(statements: &Statements, direction: Direction) -> &Arc<crate::connection::Statement> {
    &statements.log_scan[usize::from(direction == Direction::Backward)]
}

impl Follower {
    /// Starts the follower thread, which runs until the front is closed.
    pub(crate) fn start(self: &Arc<Self>, front: &Arc<Front>, barriers: &Arc<Barriers>, watchers: Watchers) {
        _ = self.watchers.set(watchers);
        let (follower, front, barriers) = (self.clone(), Arc::downgrade(front), barriers.clone());
        let follow = move || while follower.round(&front, &barriers).is_some() {};
        if let Err(error) = threads::spawn_essential("postgres-log", None, follow) {
            log::error!("the thread that reads the log of other fronts could not start: {error}");
        }
    }

    /// Waits, then polls once. Returns `None` if the front is closed.
    fn round(&self, front: &Weak<Front>, barriers: &Barriers) -> Option<()> {
        let mut poll_requested = self.poll_requested.lock();
        if !*poll_requested {
            self.wake
                .wait_for(&mut poll_requested, if self.has_watchers() { POLL_WATCHED } else { POLL_IDLE });
        }
        let is_requested = std::mem::take(&mut *poll_requested);
        drop(poll_requested);
        let front = front.upgrade()?;
        if let Err(failure) = Follower::poll(&front, barriers, is_requested || self.has_watchers()) {
            log::warn!("reading the log in PostgreSQL failed: {failure:?}");
            std::thread::sleep(POLL_IDLE);
        }
        self.notify(&front);
        Some(())
    }

    /// Returns true if a stream waits.
    fn has_watchers(&self) -> bool {
        self.watchers.get().is_some_and(|watchers| (watchers.any)())
    }

    /// Notifies the waiting streams if more entries are visible. Writers call it too: their waits make entries durable.
    pub(crate) fn notify(&self, front: &Front) {
        let Some(watchers) = self.watchers.get().filter(|watchers| (watchers.any)()) else { return };
        let durable = front.times.durable();
        if self.notified.fetch_max(durable, Ordering::AcqRel) < durable {
            (watchers.wake)();
        }
    }

    /// Reads the latest time of the log. While a stream waits, also waits until the entries up to it are durable.
    fn poll(front: &Front, barriers: &Barriers, has_watchers: bool) -> PgResult<()> {
        front.confirm_incarnation()?;
        let rows = front.run_on(&front.background, |conn| conn.query(&front.statements.log_last, &[]))?;
        let seen = front.times.observe(time_in(&rows).unwrap_or_default());
        match has_watchers && front.times.durable() < seen {
            true => {
                let since = Instant::now();
                let incarnation = front.incarnations().current();
                // The time limit lets this thread notice the end of the front while a standby is lost.
                barriers.wait_standbys(front, incarnation, &mut || since.elapsed() < POLL_IDLE).map(drop)
            }
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::Limits;
    use crate::state::PostgresStore;
    use crate::testing::Cluster;
    use storage::Error;
    use storage::store::{Commits, LogCursor, ReadViews};

    #[test]
    fn a_cursor_whose_session_was_parked_continues_until_its_position_is_trimmed() {
        let Some(cluster) = Cluster::start().unwrap() else { return };
        let store = PostgresStore::open(cluster.config().unwrap(), "trim", Limits::default(), None).unwrap();
        for _ in 0..300 {
            let log = vec![(0, Value::from(&b"entry"[..]))];
            store.commit(&mut Change { log, ..Change::default() }).unwrap().unwrap();
        }
        let begun = |direction| {
            let snapshot = store.read_view_with_time(0).0.snapshot;
            let mut cursor =
                LogCursor::new(snapshot, (Bound::Unbounded, Bound::Unbounded), direction).unwrap();
            (0..10).for_each(|_| drop(cursor.next_entry().unwrap().unwrap()));
            cursor
        };
        let park = || {
            std::thread::sleep(Duration::from_millis(50));
            store.front.sessions.park_for_waiters();
        };
        let rest = |mut cursor: LogCursor| -> Result<usize, Error> {
            let mut count = 0;
            while cursor.next_entry()?.is_some() {
                count += 1;
            }
            Ok(count)
        };
        let directions = [Direction::Forward, Direction::Backward];
        let (continued, trimmed) = (directions.map(begun), directions.map(begun));
        park();
        continued.into_iter().for_each(|cursor| assert_eq!(rest(cursor), Ok(290)));
        let trim = "delete from trim.log_order where time < (select max(time) from trim.log_order)";
        cluster.run(&[trim]).unwrap();
        trimmed.into_iter().for_each(|cursor| assert!(matches!(rest(cursor), Err(Error::NoSuchIdent(_)))));
    }

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
