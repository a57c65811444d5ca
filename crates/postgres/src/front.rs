//! A front: one process of a store. It holds connections, a lease, and the numbers that it hands out.
//!
//! A follower thread reads the entries of other fronts from the log.
//!
//! A background thread deletes the rows of dropped trees in batches, one front at a time.
//!
//! A drop only records the tree in a table, in the same transaction that removes it from the catalog. Tree numbers are
//! never reused, so only older snapshots read those rows, and PostgreSQL keeps the rows for them. If a front dies,
//! another continues its deletions.
//!
//! Poolers between a front and its server, such as PgBouncer, are refused. A front sets its sessions up by start-up
//! options, keeps prepared statements in them, and relies on both from one transaction to the next.

use crate::config::Config;
use crate::connection::{Connection, Param, Statement};
use crate::failure::{Failure, PgResult, lock};
use crate::group::Groups;
use crate::incarnations::Incarnations;
use crate::lease::Lease;
use crate::members::{self, Standbys};
use crate::pool::{Endpoint, Pool, PooledConnection, run};
use crate::schema::{self, IDENTS, Statements};
use crate::session::{KnownGeneration, Sessions};
use crate::times::{Times, signed, time_in};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use storage::{Ident, threads};

/// Interval at which the lease thread checks for work.
const LEASE_INTERVAL: Duration = Duration::from_secs(1);

/// Number of intervals between two renewals. A lease lasts thirty seconds.
const RENEWED_EVERY: u64 = 5;

/// Default maximum age of a standby's state: the minimum of maxStalenessSeconds.
const MAX_STALENESS: Duration = Duration::from_secs(90);

/// Maximum lead of a front's clock over the server's in seconds: MongoDB's `maxAcceptableLogicalClockDriftSecs`.
const AHEAD_MAX: i64 = 31_536_000;

/// 2020-01-01 in milliseconds since 1970: the origin of the times in record ids.
const EPOCH: u64 = 1_577_836_800_000;

/// Limits of a front: maximum numbers of connections by purpose, and the age of standby reads.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections for reads, open cursors included.
    pub reads: usize,
    /// Connections for commits.
    pub commits: usize,
    /// Connections for open transactions.
    pub transactions: usize,
    /// Maximum age of a state read on a standby.
    pub stale: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { reads: 24, commits: 12, transactions: 12, stale: MAX_STALENESS }
    }
}

/// A process that uses the schema.
pub(crate) struct Front {
    pub(crate) statements: Arc<Statements>,
    pub(crate) reads: Arc<Pool>,
    pub(crate) commits: Arc<Pool>,
    pub(crate) groups: Groups,
    pub(crate) transactions: Arc<Pool>,
    /// Connections for changes of the catalog.
    pub(crate) changes: Arc<Pool>,
    /// Connections for queries made while another connection is held.
    pub(crate) control: Arc<Pool>,
    /// Connections for background work.
    pub(crate) background: Arc<Pool>,
    /// The incarnation in which this front was last confirmed (see
    /// [`confirm_incarnation`](Front::confirm_incarnation)), and the lock of that work.
    pub(crate) confirmed_incarnation: AtomicU64,
    pub(crate) confirming: Mutex<()>,
    /// Reserved tree numbers that have not been used.
    idents: Mutex<std::ops::Range<u64>>,
    /// The last record id.
    records: AtomicU64,
    /// Trees whose counts have rows of this front's transactions.
    pub(crate) transaction_counts: Arc<Mutex<BTreeSet<i64>>>,
    /// Position in the log, and the clock.
    pub(crate) times: Arc<Times>,
    /// The thread that polls the log for this front's streams.
    pub(crate) follower: Arc<Follower>,
    /// Number of this front, unique while the lease lasts.
    pub(crate) lease: Arc<Lease>,
    /// Counts round trips to the server.
    pub(crate) round_trips: Arc<AtomicU64>,
    /// The latest generation of the catalog that this process has seen.
    pub(crate) known: KnownGeneration,
    /// Open read sessions, for parking.
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) standbys: Arc<Standbys>,
}

impl Front {
    /// Connects, creates the schema if it is missing, and takes a number.
    ///
    /// Errors: errors of the server and of [`schema::prepare`]. VE002 if `log_bytes` would create or remove the log
    /// while other fronts rely on the present choice.
    pub(crate) fn open(
        config: Config,
        schema: &str,
        limits: Limits,
        log_bytes: Option<u64>,
    ) -> PgResult<Front> {
        let round_trips = Arc::new(AtomicU64::new(0));
        let incarnations = Arc::new(Incarnations::default());
        let mut first = Connection::open(&config, &incarnations).map_err(explain)?;
        schema::check_server(&mut first).map_err(explain)?;
        refuse_pooler(&config, &incarnations, &mut first)?;
        refuse_clock(&mut first, SystemTime::now())?;
        schema::prepare(&mut first, schema)?;
        drop(first);
        let statements = Arc::new(Statements::new(schema));
        let endpoint =
            Arc::new(Endpoint { config, incarnations, incarnation: Some(statements.incarnation.clone()) });
        let control = Pool::new(endpoint.clone(), 2, round_trips.clone());
        let lease = Arc::new(Lease::take(&control, &statements, limits.stale)?);
        let times = Arc::new(open_times(&control, &statements, lease.number(), log_bytes)?);
        let sessions = Arc::new(Sessions::default());
        let background = control.uncounted(3);
        let transaction_counts = Arc::new(Mutex::default());
        let state = (lease.clone(), background.clone(), statements.clone());
        let work = (sessions.clone(), times.clone(), transaction_counts.clone());
        let spawned = threads::spawn_essential("postgres-lease", None, move || {
            let ((lease, control, statements), (sessions, times, counts)) = (state, work);
            renew(&lease, &control, &statements, (&sessions, &times, &counts));
        });
        spawned.map_err(|error| Failure::Unavailable(error.to_string()))?;
        members::start_heartbeat(&endpoint, &lease);
        start_deletion(&background, &statements, &lease);
        let standbys = Arc::new(Standbys::new(&endpoint, &control, limits.reads));
        members::start_survey(&endpoint, &standbys, &lease);
        Ok(Front {
            reads: control.sibling(limits.reads),
            commits: control.sibling(limits.commits),
            groups: Groups::default(),
            transactions: control.sibling(limits.transactions),
            changes: control.sibling(2),
            round_trips,
            control,
            background,
            statements,
            confirmed_incarnation: AtomicU64::new(endpoint.incarnations.current()),
            confirming: Mutex::default(),
            idents: Mutex::new(0..0),
            records: AtomicU64::new(0),
            transaction_counts,
            times,
            follower: Arc::default(),
            known: KnownGeneration::default(),
            sessions,
            standbys,
            lease,
        })
    }

    /// Records a generation of the catalog that another part has read.
    pub(crate) fn observe(&self, generation: u64) {
        self.known.fetch_max(generation, Ordering::AcqRel);
    }

    /// Reads the latest generation of the catalog.
    pub(crate) fn latest_generation(&self) -> PgResult<u64> {
        let rows = self.run(|conn| conn.query(&self.statements.generation, &[]))?;
        let generation = rows.first().map_or(0, |row| row.int(0) as u64);
        self.observe(generation);
        Ok(generation)
    }

    /// Runs a query on a control connection.
    pub(crate) fn run<T>(&self, query: impl Fn(&mut PooledConnection) -> PgResult<T>) -> PgResult<T> {
        run(&self.control, &query)
    }

    /// Runs a query on a connection of another pool.
    pub(crate) fn run_on<T>(
        &self,
        pool: &Arc<Pool>,
        query: impl Fn(&mut PooledConnection) -> PgResult<T>,
    ) -> PgResult<T> {
        run(pool, &query)
    }

    /// Returns the number of this process.
    pub(crate) fn number(&self) -> i64 {
        self.lease.number()
    }

    /// Discards the reserved tree numbers.
    pub(crate) fn discard_idents(&self) {
        *self.idents.lock() = 0..0;
    }

    /// Returns a number for a new tree.
    pub(crate) fn new_ident(&self) -> PgResult<Ident> {
        self.confirm_incarnation()?;
        let mut idents = lock(&self.idents)?;
        if idents.is_empty() {
            let rows = self.run(|conn| conn.query(&self.statements.idents, &[]))?;
            let first = rows.first().map_or(0, |row| row.int(0)) as u64;
            *idents = first..first + IDENTS;
        }
        idents.next().map(Ident).ok_or_else(|| Failure::Unavailable("no tree numbers are left".to_string()))
    }

    /// Returns an id for a new record: time in milliseconds, number of the front, counter.
    pub(crate) fn new_record(&self) -> u64 {
        let millis = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        let at = |millis: u64| millis << 22 | (self.number() as u64) << 12;
        let now = at(millis.saturating_sub(EPOCH));
        let next = |last: u64| match last {
            last if now > last => now,
            last if last & 0xFFF < 0xFFF => last + 1,
            last => at((last >> 22) + 1),
        };
        debug_assert!((0..1 << 10).contains(&self.number()), "{} changes the time", self.number());
        let last = self.records.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| Some(next(last)));
        let last = last.unwrap_or_else(|last| last);
        debug_assert!(next(last) > last, "the record id {last} is given twice");
        next(last)
    }

    /// Returns the time of a commit: the time of its log entry. Without an entry, returns the latest known time;
    /// without a log, returns a generated time.
    pub(crate) fn time_of(&self, logged: Option<u64>, earliest: u64, ticks: u32) -> u64 {
        match logged {
            Some(time) => self.times.observe(time),
            None if self.times.has_log() => self.times.known(),
            None => self.times.generate(self.number(), earliest, ticks),
        }
    }

    /// Returns the latest known time. With a log, its clock decides; without a log, `earliest` is the minimum.
    pub(crate) fn time(&self, earliest: u64) -> u64 {
        self.times.observe(if self.times.has_log() { 0 } else { earliest })
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.lease.end();
        if let Err(failure) = self.run(|conn| {
            conn.query(&self.statements.leave, &[Param::Int(self.number()), Param::Int(self.lease.until())])
        }) {
            log::debug!("the lease was not released and will expire: {failure:?}");
        }
    }
}

/// Reads the state of the log and the clock from the server.
fn open_times(
    control: &Arc<Pool>,
    statements: &Statements,
    number: i64,
    log_bytes: Option<u64>,
) -> PgResult<Times> {
    let requested = log_bytes.map_or(-1, |bytes| bytes.min(i64::MAX as u64) as i64);
    let params = [Param::Int(number), Param::Int(requested)];
    let limit = run(control, &|conn| conn.query(&statements.keep_log, &params))?;
    let times = Times::default();
    times.limit.store(limit.first().map_or(0, |row| row.int(0) as u64), Ordering::Relaxed);
    if times.has_log() {
        // Runs under the lock that orders times: everything earlier is committed.
        let params = [Param::Int(signed(0))];
        let clock = run(control, &|conn| conn.query(&statements.tick, &params))?;
        times.observe(clock.first().map_or(0, |row| row.int(0) as u64 ^ 1 << 63));
    }
    Ok(times)
}

/// Refuses a clock that is far ahead of the server's. A commit would advance the clock of all fronts for ever.
fn refuse_clock(connection: &mut Connection, now: SystemTime) -> PgResult<()> {
    let clock = Statement::new("clock", "select floor(extract(epoch from now()))::int8");
    let server = connection.query(&clock, &[])?.first().map_or(0, |row| row.int(0));
    let ahead = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64 - server;
    match ahead > AHEAD_MAX {
        true => Err(Failure::Unavailable(format!(
            "the clock of this host is {ahead} seconds ahead of PostgreSQL's clock, and at most {AHEAD_MAX} are allowed"
        ))),
        false => Ok(()),
    }
}

/// Renews the lease, parks idle sessions, merges rows of counts and maintains the log until the front is closed.
fn renew(
    lease: &Lease,
    control: &Arc<Pool>,
    statements: &Statements,
    (sessions, times, counts): (&Sessions, &Times, &Mutex<BTreeSet<i64>>),
) {
    for tick in 0u64.. {
        if lease.wait(LEASE_INTERVAL) {
            return;
        }
        sessions.park_idle();
        merge_counts(counts, statements, control);
        if tick % RENEWED_EVERY != 0 {
            continue;
        }
        // If another front maintains the log, this front skips the round.
        match run(control, &|conn| maintain_log(times, statements, conn)) {
            Err(failure) if !failure.is_conflict() => {
                log::warn!("maintenance of the log in PostgreSQL failed: {failure:?}");
            }
            _ => {}
        }
        // A standby that shows the lease has therefore reached the time known now.
        if let Err(failure) = lease.renew(control, statements, times) {
            log::warn!("the lease on PostgreSQL could not be renewed: {failure:?}");
        }
    }
}

/// Merges the rows that transactions have inserted, so that each count has few rows.
pub(crate) fn merge_counts(counts: &Mutex<BTreeSet<i64>>, statements: &Statements, pool: &Arc<Pool>) {
    let trees: Vec<i64> = std::mem::take(&mut *counts.lock()).into_iter().collect();
    if trees.is_empty() {
        return;
    }
    let merged = run(pool, &|conn| {
        // A drop of the collection holds the fence.
        conn.call(&statements.share_fence, &[])?;
        conn.call(&statements.merge_counts, &[Param::Ints(&trees)])?;
        conn.flush()?;
        conn.results().map(drop)
    });
    if let Err(failure) = merged {
        if !failure.is_conflict() {
            log::warn!("counts in PostgreSQL keep the rows of transactions: {failure:?}");
        }
        counts.lock().extend(trees);
    }
}

/// Maintains the log: advances the clock to the server's wall clock and removes old entries. Runs every few seconds.
fn maintain_log(times: &Times, statements: &Statements, conn: &mut PooledConnection) -> PgResult<()> {
    if !times.has_log() {
        return Ok(());
    }
    let rows = conn.query(&statements.tick_to_now, &[])?;
    times.observe(time_in(&rows).unwrap_or_default());
    let rows = conn.query(&statements.trim, &[])?;
    times.log_size.store(rows.first().map_or(0, |row| row.int(0) as u64), Ordering::Relaxed);
    Ok(())
}

/// Polls for entries of other fronts and makes them durable, once for all streams of a front.
#[derive(Default)]
pub(crate) struct Follower {
    /// True after a request for an immediate poll.
    pub(crate) poll_requested: Mutex<bool>,
    pub(crate) wake: Condvar,
    /// Time up to which waiting streams have been notified.
    pub(crate) notified: AtomicU64,
    /// The streams of this front, once the thread has started.
    pub(crate) watchers: OnceLock<Watchers>,
}

/// The streams that wait for entries.
pub(crate) struct Watchers {
    /// Returns true if a stream waits.
    pub(crate) any: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Wakes all streams, since more entries are visible.
    pub(crate) wake: Arc<dyn Fn() + Send + Sync>,
}

impl Follower {
    /// Requests an immediate poll.
    pub(crate) fn request_poll(&self) {
        *self.poll_requested.lock() = true;
        self.wake.notify_all();
    }
}

/// Number of rows deleted in one batch.
const DELETE_BATCH: i64 = 2000;

/// Poll interval for dropped trees.
const DELETE_POLL: Duration = Duration::from_secs(5);

/// Minimum and maximum pause between two batches. A pause is otherwise as long as the batch took.
const DELETE_PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(2));

/// Starts the deletion thread, which runs until the front is closed.
pub(crate) fn start_deletion(pool: &Arc<Pool>, statements: &Arc<Statements>, lease: &Arc<Lease>) {
    let (pool, statements, lease) = (pool.clone(), statements.clone(), lease.clone());
    let delete_rows = move || {
        let mut pause = DELETE_POLL;
        while !lease.wait(pause) {
            let begin = Instant::now();
            pause = match delete_batch(&pool, &statements) {
                Ok(0..) => begin.elapsed().clamp(DELETE_PAUSE.0, DELETE_PAUSE.1),
                Ok(_) => DELETE_POLL,
                Err(failure) => {
                    if !failure.is_conflict() {
                        log::warn!("deletion of dropped data from PostgreSQL failed: {failure:?}");
                    }
                    DELETE_POLL
                }
            };
        }
    };
    if let Err(error) = threads::spawn_essential("postgres-delete", None, delete_rows) {
        log::error!("dropped data stays in PostgreSQL until another front deletes it: {error}");
    }
}

/// Deletes one batch and returns the number of rows. Negative if no rows are left or another front deletes.
fn delete_batch(pool: &Arc<Pool>, statements: &Statements) -> PgResult<i64> {
    let rows = run(pool, &|conn| conn.query(&statements.sweep, &[Param::Int(DELETE_BATCH)]))?;
    Ok(rows.first().map_or(-1, |row| row.int(0)))
}

/// Advice in the error for a pooler.
const POOLER_ADVICE: &str = "connect to PostgreSQL itself: a front's own pools bound its connections";

/// Replaces the error of a first statement by a clearer one if a pooler caused it.
pub(crate) fn explain(failure: Failure) -> Failure {
    match &failure {
        Failure::Server { message, .. } if message.contains("unsupported startup parameter") => {
            Failure::Unavailable(format!(
                "poolers such as PgBouncer are not supported ({message}): {POOLER_ADVICE}"
            ))
        }
        // The statement exists already, or is missing: the session belongs to another connection.
        Failure::Server { .. } if failure.is("42P05") || failure.is("26000") => pooler_error(),
        _ => failure,
    }
}

/// Returns the error for a session that a pooler shares between connections.
fn pooler_error() -> Failure {
    Failure::Unavailable(format!(
        "a pooler such as PgBouncer maps several connections to one session, which is not supported: {POOLER_ADVICE}"
    ))
}

/// Refuses a pooler that accepts sessions but drops their options, or shares one session between transactions.
pub(crate) fn refuse_pooler(
    config: &Config,
    incarnations: &Incarnations,
    connection: &mut Connection,
) -> PgResult<()> {
    let settings = Statement::new(
        "session",
        "select pg_backend_pid(), (current_setting('plan_cache_mode') = 'force_generic_plan' \
         and current_setting('transaction_isolation') = 'read committed' \
         and current_setting('synchronous_commit') = 'off' and current_setting('lock_timeout') = '50ms')::int4",
    );
    let session = |connection: &mut Connection| -> PgResult<(i64, bool)> {
        let rows = connection.query(&settings, &[])?;
        Ok(rows.first().map_or((0, false), |row| (row.int(0), row.int(1) != 0)))
    };
    let (process, is_set_up) = session(connection).map_err(explain)?;
    if !is_set_up {
        return Err(Failure::Unavailable(format!(
            "a pooler such as PgBouncer drops the start-up options of the session, which is not supported: \
             {POOLER_ADVICE}"
        )));
    }
    if connection.is_backend(process) {
        return Ok(());
    }
    // A proxy may still give each connection its own session.
    let another = Connection::open(config, incarnations).and_then(|mut another| session(&mut another));
    match another.map_err(explain)?.0 == process {
        true => Err(pooler_error()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Cluster;

    #[test]
    fn commits_ignore_the_isolation_level_of_the_role() {
        let Some(cluster) = Cluster::start().unwrap() else { return };
        cluster.run(&["alter role postgres set default_transaction_isolation = 'repeatable read'"]).unwrap();
        let level = "select (current_setting('transaction_isolation') = 'read committed')::int4";
        assert_eq!(cluster.run(&[level]).unwrap(), Some(1));
        assert_eq!(cluster.run(&["begin", level]).unwrap(), Some(1));
    }

    #[test]
    fn a_clock_far_ahead_is_refused() {
        let Some(cluster) = Cluster::start().unwrap() else { return };
        let config = cluster.config().unwrap();
        let mut connection = Connection::open(&config, &Incarnations::default()).unwrap();
        let now = SystemTime::now();
        let years = |number| Duration::from_secs(AHEAD_MAX as u64 * number);
        assert!(refuse_clock(&mut connection, now).is_ok());
        assert!(refuse_clock(&mut connection, now - years(20)).is_ok());
        assert!(refuse_clock(&mut connection, now + years(2)).is_err());
        let store = crate::PostgresStore::open(config, "clock", Limits::default(), None).unwrap();
        let time = store.front.times.known() >> 32;
        let front = &store.front;
        front.run(|conn| maintain_log(&front.times, &front.statements, conn)).unwrap();
        let seconds = now.duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!(time <= seconds + 60 && (front.times.known() >> 32).abs_diff(seconds) < 60);
    }
}
