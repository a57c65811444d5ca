//! One process's part in a store: its connections, its lease, and the numbers that it hands out.
//!
//! A follower looks for what other fronts have written, and local commits wake it.
//!
//! Removing the rows of what has been dropped: some at a time, by one front at a time, behind everybody's back.
//!
//! Whoever drops a tree only notes that in a table, in the very transaction that takes it out of the catalog: no number
//! is ever a second tree's, so only an older reader reads those rows again, and PostgreSQL keeps them for it.
//! Another front goes on with what a front leaves that dies.
//!
//! Poolers between a front and its server, as PgBouncer: refused, since a front sets its sessions up by start-up
//! options, keeps prepared statements in them, and knows them from one transaction to the next.

use crate::config::Config;
use crate::connection::{Connection, Param, Statement};
use crate::failure::{Answer, Failure, lock};
use crate::lease::Lease;
use crate::lives::Lives;
use crate::members::{self, Standbys};
use crate::pool::{Lent, Place, Pool, ask};
use crate::schema::{self, IDENTS, Statements};
use crate::session::{Known, Sessions};
use crate::times::{Times, signed, time_in};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use storage::{Ident, threads};

/// How often the thread that renews the lease looks around.
const TICK: Duration = Duration::from_secs(1);

/// In which of these rounds a lease is renewed; it lasts thirty seconds.
const RENEWED_EVERY: u64 = 5;

/// How old a state may be that is read on a standby, unless somebody says otherwise: the least that
/// maxStalenessSeconds can ask for.
const STALE: Duration = Duration::from_secs(90);

/// 2020 in milliseconds since 1970: where the times in record ids begin.
const EPOCH: u64 = 1_577_836_800_000;

/// How many connections a front has at most, by what they are for, and what else bounds it.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// For reading, those of open cursors included.
    pub reads: usize,
    /// For commits.
    pub commits: usize,
    /// For open transactions.
    pub transactions: usize,
    /// How old a state may be that is read on a standby.
    pub stale: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { reads: 24, commits: 12, transactions: 12, stale: STALE }
    }
}

/// A process that uses the schema.
pub(crate) struct Front {
    pub(crate) statements: Arc<Statements>,
    pub(crate) reads: Arc<Pool>,
    pub(crate) commits: Arc<Pool>,
    pub(crate) transactions: Arc<Pool>,
    /// For changes of the catalog.
    pub(crate) changes: Arc<Pool>,
    /// For questions that are asked while another connection is held.
    pub(crate) control: Arc<Pool>,
    /// For what happens by itself.
    pub(crate) background: Arc<Pool>,
    /// The life of the server that this front has last made sure of, and whoever is at it.
    pub(crate) settled: AtomicU64,
    pub(crate) settling: Mutex<()>,
    idents: Mutex<std::ops::Range<u64>>,
    records: AtomicU64,
    /// How far the log is known, and the clock.
    pub(crate) times: Arc<Times>,
    pub(crate) follower: Arc<Follower>,
    /// Its number, which no other process has while the lease lasts.
    pub(crate) lease: Arc<Lease>,
    /// How many answers of the server have been waited for.
    pub(crate) trips: Arc<AtomicU64>,
    /// The latest generation of the catalog that this process has heard of.
    pub(crate) known: Known,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) standbys: Arc<Standbys>,
}

impl Front {
    /// Connects, makes the schema where it isn't there, and takes a number.
    ///
    /// Errors: the server's, those of [`schema::prepare`], and VE002 where other fronts rely on there being a log
    /// or none, which `log_bytes` would change.
    pub(crate) fn open(
        config: Config,
        schema: &str,
        limits: Limits,
        log_bytes: Option<u64>,
    ) -> Answer<Front> {
        let trips = Arc::new(AtomicU64::new(0));
        let lives = Arc::new(Lives::default());
        let mut first = Connection::open(&config, &lives).map_err(explain)?;
        schema::refuse_relatives(&mut first).map_err(explain)?;
        refuse(&config, &lives, &mut first)?;
        schema::prepare(&mut first, schema)?;
        drop(first);
        let statements = Arc::new(Statements::new(schema));
        let place = Arc::new(Place { config, lives, life: Some(statements.life.clone()) });
        let control = Pool::new(place.clone(), 2, trips.clone());
        let lease = Arc::new(Lease::take(&control, &statements, limits.stale)?);
        let times = Arc::new(open_times(&control, &statements, lease.number(), log_bytes)?);
        let sessions = Arc::new(Sessions::default());
        let background = control.uncounted(3);
        let renewing =
            (lease.clone(), background.clone(), statements.clone(), sessions.clone(), times.clone());
        let spawned = threads::spawn("postgres-lease", None, move || {
            let (lease, control, statements, sessions, times) = renewing;
            renew(&lease, &control, &statements, (&sessions, &times));
        });
        spawned.map_err(|error| Failure::Lost(error.to_string()))?;
        members::start_pulse(&place, &lease);
        start(&background, &statements, &lease);
        let standbys = Arc::new(Standbys::new(&place, &control, limits.reads));
        members::start_survey(&place, &standbys, &lease);
        Ok(Front {
            reads: control.another(limits.reads),
            commits: control.another(limits.commits),
            transactions: control.another(limits.transactions),
            changes: control.another(2),
            trips,
            control,
            background,
            statements,
            settled: AtomicU64::new(place.lives.current()),
            settling: Mutex::default(),
            idents: Mutex::new(0..0),
            records: AtomicU64::new(0),
            times,
            follower: Arc::default(),
            known: Known::default(),
            sessions,
            standbys,
            lease,
        })
    }

    /// Notes a generation of the catalog that somebody has told.
    pub(crate) fn hear(&self, generation: u64) {
        self.known.fetch_max(generation, Ordering::AcqRel);
    }

    /// Asks for the latest generation of the catalog.
    pub(crate) fn latest_generation(&self) -> Answer<u64> {
        let rows = self.ask(|lent| lent.one(&self.statements.generation, &[]))?;
        let generation = rows.first().map_or(0, |row| row.int(0) as u64);
        self.hear(generation);
        Ok(generation)
    }

    /// Asks a question on a connection of its own.
    pub(crate) fn ask<T>(&self, question: impl Fn(&mut Lent) -> Answer<T>) -> Answer<T> {
        ask(&self.control, &question)
    }

    /// The same on a connection of another pool.
    pub(crate) fn ask_on<T>(&self, pool: &Arc<Pool>, question: impl Fn(&mut Lent) -> Answer<T>) -> Answer<T> {
        ask(pool, &question)
    }

    /// The number of this process.
    pub(crate) fn number(&self) -> i64 {
        self.lease.number()
    }

    /// Gives the numbers up that have not been given to trees yet.
    pub(crate) fn give_up_idents(&self) {
        *self.idents.lock() = 0..0;
    }

    /// A number for a new tree.
    pub(crate) fn new_ident(&self) -> Answer<Ident> {
        self.settle()?;
        let mut idents = lock(&self.idents)?;
        if idents.is_empty() {
            let rows = self.ask(|lent| lent.one(&self.statements.idents, &[]))?;
            let first = rows.first().map_or(0, |row| row.int(0)) as u64;
            *idents = first..first + IDENTS;
        }
        idents.next().map(Ident).ok_or_else(|| Failure::Lost("there are no more numbers".to_string()))
    }

    /// An id for a new record: the time in milliseconds, the front's number, a counter.
    pub(crate) fn new_record(&self) -> u64 {
        let millis = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        let at = |millis: u64| millis << 22 | (self.number() as u64) << 12;
        let now = at(millis.saturating_sub(EPOCH));
        let next = |last: u64| match last {
            last if now > last => now,
            last if last & 0xFFF < 0xFFF => last + 1,
            last => at((last >> 22) + 1),
        };
        let last = self.records.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| Some(next(last)));
        next(last.unwrap_or_else(|last| last))
    }

    /// The time of a commit: that of its entry in the log, the latest known where it has none there, or one
    /// that is made up where there is no log.
    pub(crate) fn time_of(&self, logged: Option<u64>, earliest: u64, ticks: u32) -> u64 {
        match logged {
            Some(time) => self.times.hear(time),
            None if self.times.is_kept() => self.times.known(),
            None => self.times.invent(self.number(), earliest, ticks),
        }
    }

    /// The latest time that is known. Where there is a log its clock is the one that counts; else `earliest`
    /// if that is later.
    pub(crate) fn time(&self, earliest: u64) -> u64 {
        self.times.hear(if self.times.is_kept() { 0 } else { earliest })
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.lease.end();
        if let Err(failure) = self.ask(|lent| {
            lent.one(&self.statements.leave, &[Param::Int(self.number()), Param::Int(self.lease.until())])
        }) {
            log::debug!("the lease runs out by itself: {failure:?}");
        }
    }
}

/// What the server says of the log, and of the time.
fn open_times(
    control: &Arc<Pool>,
    statements: &Statements,
    number: i64,
    log_bytes: Option<u64>,
) -> Answer<Times> {
    let wanted = log_bytes.map_or(-1, |bytes| bytes.min(i64::MAX as u64) as i64);
    let params = [Param::Int(number), Param::Int(wanted)];
    let kept = ask(control, &|lent| lent.one(&statements.keep_log, &params))?;
    let times = Times::default();
    times.limit.store(kept.first().map_or(0, |row| row.int(0) as u64), Ordering::Relaxed);
    if times.is_kept() {
        // Under the lock of those who are given times: whatever is earlier is committed.
        let params = [Param::Int(signed(0))];
        let clock = ask(control, &|lent| lent.one(&statements.tick, &params))?;
        times.hear(clock.first().map_or(0, |row| row.int(0) as u64 ^ 1 << 63));
    }
    Ok(times)
}

fn renew(
    lease: &Lease,
    control: &Arc<Pool>,
    statements: &Statements,
    (sessions, times): (&Sessions, &Times),
) {
    for tick in 0u64.. {
        if lease.wait(TICK) {
            return;
        }
        sessions.park_idle();
        if tick % RENEWED_EVERY != 0 {
            continue;
        }
        // Whoever finds others at it leaves it to them.
        match ask(control, &|lent| look_after(times, statements, lent)) {
            Err(failure) if !failure.is_conflict() => {
                log::warn!("the log in PostgreSQL could not be looked after: {failure:?}");
            }
            _ => {}
        }
        // So a standby that shows the lease has come to the time that is told by now.
        if let Err(failure) = lease.renew(control, statements, times) {
            log::warn!("the lease on PostgreSQL could not be renewed: {failure:?}");
        }
    }
}

/// What is done for the log every few seconds: the clock goes on, and what is too old is removed.
fn look_after(times: &Times, statements: &Statements, lent: &mut Lent) -> Answer<()> {
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
    pub(crate) asked: Mutex<bool>,
    pub(crate) wake: Condvar,
    /// Up to which time those who wait have been told of.
    pub(crate) told: AtomicU64,
}

impl Follower {
    /// Asks for a look at once.
    pub(crate) fn ask(&self) {
        *self.asked.lock() = true;
        self.wake.notify_all();
    }
}

/// How many rows are removed at a time.
const AT_ONCE: i64 = 2000;

/// How often somebody looks whether there are any.
const IDLE: Duration = Duration::from_secs(5);

/// The shortest and the longest rest between two rounds, which is otherwise as long as the round took.
const REST: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(2));

/// Begins to remove, until the front is gone.
pub(crate) fn start(pool: &Arc<Pool>, statements: &Arc<Statements>, lease: &Arc<Lease>) {
    let (pool, statements, lease) = (pool.clone(), statements.clone(), lease.clone());
    let sweep = move || {
        let mut pause = IDLE;
        while !lease.wait(pause) {
            let begin = Instant::now();
            pause = match round(&pool, &statements) {
                Ok(0..) => begin.elapsed().clamp(REST.0, REST.1),
                Ok(_) => IDLE,
                Err(failure) => {
                    if !failure.is_conflict() {
                        log::warn!("what has been dropped is not removed from PostgreSQL: {failure:?}");
                    }
                    IDLE
                }
            };
        }
    };
    if let Err(error) = threads::spawn("postgres-sweep", None, sweep) {
        log::error!("what is dropped stays in PostgreSQL until another front removes it: {error}");
    }
}

/// How many rows have been removed; negative where there are none, or another front is at it.
fn round(pool: &Arc<Pool>, statements: &Statements) -> Answer<i64> {
    let rows = ask(pool, &|lent| lent.one(&statements.sweep, &[Param::Int(AT_ONCE)]))?;
    Ok(rows.first().map_or(-1, |row| row.int(0)))
}

/// What is to be done about it.
const ADVICE: &str = "connect to PostgreSQL itself: a front's own pools bound its connections";

/// What a server's refusal to begin a session means, or of what a new one asks first, where it is a pooler's.
pub(crate) fn explain(failure: Failure) -> Failure {
    match &failure {
        Failure::Server { message, .. } if message.contains("unsupported startup parameter") => {
            Failure::Lost(format!("poolers such as PgBouncer are not supported ({message}): {ADVICE}"))
        }
        // A statement is there already, or isn't there any more: another connection's session.
        Failure::Server { .. } if failure.is("42P05") || failure.is("26000") => shared(),
        _ => failure,
    }
}

fn shared() -> Failure {
    Failure::Lost(format!(
        "what lies between this program and PostgreSQL, a pooler such as PgBouncer, gives several connections one \
         session, which is not supported: {ADVICE}"
    ))
}

/// Refuses a pooler that lets sessions begin, and keeps the options from them, or gives one session to several
/// transactions at a time.
pub(crate) fn refuse(config: &Config, lives: &Lives, connection: &mut Connection) -> Answer<()> {
    let asked = Statement::new(
        "session",
        "select pg_backend_pid(), (current_setting('plan_cache_mode') = 'force_generic_plan' \
         and current_setting('synchronous_commit') = 'off' and current_setting('lock_timeout') = '50ms')::int4",
    );
    let session = |connection: &mut Connection| -> Answer<(i64, bool)> {
        let rows = connection.one(&asked, &[])?;
        Ok(rows.first().map_or((0, false), |row| (row.int(0), row.int(1) != 0)))
    };
    let (process, is_set_up) = session(connection).map_err(explain)?;
    if !is_set_up {
        return Err(Failure::Lost(format!(
            "what lies between this program and PostgreSQL, a pooler such as PgBouncer, keeps its start-up options \
             from the server, which is not supported: {ADVICE}"
        )));
    }
    if connection.is_to(process) {
        return Ok(());
    }
    // Whoever answers for the server may still give each connection a session of its own.
    let another = Connection::open(config, lives).and_then(|mut another| session(&mut another));
    match another.map_err(explain)?.0 == process {
        true => Err(shared()),
        false => Ok(()),
    }
}
