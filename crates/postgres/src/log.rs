//! The log of changes: what a commit tells, how it is read, and who looks after it.
//!
//! Times come from the server: `record` in schema-3.sql, and `next_time` in schema-4.sql, give them so that no earlier one is ever added to
//! what can be seen. So whatever time a front has been told, the log has all entries up to it, and a stream
//! only has to know how far that would survive the loss of the server, too.

use crate::barrier::Barriers;
use crate::connection::{Param, Row};
use crate::failure::Answer;
use crate::front::Front;
use crate::keys;
use crate::pool::Lent;
use crate::schema::Statements;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use storage::store::{Change, LOG, LOG_TREES};
use storage::{Cursor, Direction, Ident, Key, Range, Value};

/// How often somebody looks for what other fronts have written, while anybody waits for it.
const POLL: Duration = Duration::from_millis(20);

/// The same while nobody does.
const IDLE: Duration = Duration::from_secs(1);

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
    parts: &'a [(u32, Value)],
    ticks: u32,
    earliest: u64,
}

impl Entry<'_> {
    /// Queues the writing of the entry: its answer has the time. Nothing may follow but the commit.
    pub(crate) fn call(&self, lent: &mut Lent, statements: &Statements) -> Answer<()> {
        let (numbers, values) = self.parts();
        let [earliest, ticks, bytes] = self.place().map(Param::Int);
        let params =
            [earliest, ticks, Param::Ints(&numbers), Param::Many(&values), bytes, Param::Int(self.body)];
        lent.call(&statements.record, &params)
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
    let place = |bytes: &[u8], unbounded: [i64; 2]| {
        let number = |at: std::ops::Range<usize>| {
            bytes.get(at).unwrap_or_default().iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        // One byte more stands for the next key.
        let next = i64::from(bytes.len() > 12);
        if bytes.is_empty() { unbounded } else { [signed(number(0..8)), number(8..12) as i64 + next] }
    };
    let ((_, lower), (_, upper)) = keys::bounds(LOG_TREES, range);
    let ([first, first_part], [last, last_part]) =
        (place(&lower, [i64::MIN, 0]), place(&upper, [i64::MAX, 1 << 32]));
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
    fn next(&mut self) -> storage::Result<Option<(&[u8], &Value)>> {
        self.1 = self.0.take();
        Ok(self.1.as_ref().map(|(key, value)| (&**key, value)))
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

/// What is done for the log every few seconds: the clock goes on, and what is too old is removed.
pub(crate) fn look_after(times: &Times, statements: &Statements, lent: &mut Lent) -> Answer<()> {
    if !times.is_kept() {
        return Ok(());
    }
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let rows = lent.one(&statements.tick, &[Param::Int(signed(seconds << 32 | 1))])?;
    times.hear(time_in(&rows).unwrap_or_default());
    let rows = lent.one(&statements.trim, &[])?;
    times.held.store(rows.first().map_or(0, |row| row.int(0) as u64), Ordering::Relaxed);
    Ok(())
}

/// Looks for what other fronts have written, and has it made safe, for whoever waits: one look for all of a
/// front's streams.
#[derive(Default)]
pub(crate) struct Follower {
    asked: Mutex<bool>,
    wake: Condvar,
    /// Up to which time those who wait have been told of.
    told: AtomicU64,
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
        if let Err(error) = std::thread::Builder::new().name("postgres-log".to_string()).spawn(follow) {
            log::error!("nobody looks for what other fronts write: {error}");
        }
    }

    /// Asks for a look at once.
    pub(crate) fn ask(&self) {
        *self.asked.lock() = true;
        self.wake.notify_all();
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
    use std::ops::Bound;

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
