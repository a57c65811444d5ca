//! One process's part in a store: its connections, its lease, and the numbers that it hands out.

use crate::config::Config;
use crate::connection::{Connection, Param};
use crate::failure::{Answer, Failure};
use crate::pool::{Lent, Pool};
use crate::schema::{self, IDENTS, Statements};
use crate::session::{Known, Sessions};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use storage::Ident;

/// How often the thread that renews the lease looks around.
const TICK: Duration = Duration::from_secs(1);

/// In which of these rounds a lease is renewed; it lasts thirty seconds.
const RENEWED_EVERY: u64 = 5;

/// 2020 in milliseconds since 1970: where the times in record ids begin.
const EPOCH: u64 = 1_577_836_800_000;

/// How many connections a front has at most, by what they are for.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// For reading, those of open cursors included.
    pub reads: usize,
    /// For commits.
    pub commits: usize,
    /// For open transactions.
    pub transactions: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { reads: 24, commits: 12, transactions: 12 }
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
    /// Its number, which no other process has while the lease lasts.
    pub(crate) number: i64,
    idents: Mutex<std::ops::Range<u64>>,
    records: AtomicU64,
    time: AtomicU64,
    lease: Arc<Lease>,
    /// How many answers of the server have been waited for.
    pub(crate) trips: Arc<AtomicU64>,
    /// The latest generation of the catalog that this process has heard of.
    pub(crate) known: Known,
    pub(crate) sessions: Arc<Sessions>,
}

#[derive(Default)]
struct Lease {
    ended: Mutex<bool>,
    wake: Condvar,
    lost: AtomicBool,
}

impl Front {
    /// Connects, makes the schema where it isn't there, and takes a number.
    ///
    /// Errors: the server's, and those of [`schema::prepare`].
    pub(crate) fn open(config: Config, schema: &str, limits: Limits) -> Answer<Front> {
        let trips = Arc::new(AtomicU64::new(0));
        schema::prepare(&mut Connection::open(&config, &trips)?, schema)?;
        let config = Arc::new(config);
        let statements = Arc::new(Statements::new(schema));
        let control = Pool::new(config.clone(), 2, trips.clone());
        let number = take_number(&control, &statements)?;
        let lease = Arc::new(Lease::default());
        let sessions = Arc::new(Sessions::default());
        let renewing = (lease.clone(), control.clone(), statements.clone(), sessions.clone());
        let spawned = std::thread::Builder::new().name("postgres-lease".to_string()).spawn(move || {
            let (lease, control, statements, sessions) = renewing;
            renew(&lease, &control, &statements, &sessions, number);
        });
        spawned.map_err(|error| Failure::Lost(error.to_string()))?;
        Ok(Front {
            reads: control.another(limits.reads),
            commits: control.another(limits.commits),
            transactions: control.another(limits.transactions),
            changes: control.another(2),
            trips,
            control,
            statements,
            number,
            idents: Mutex::new(0..0),
            records: AtomicU64::new(0),
            time: AtomicU64::new(0),
            known: Known::default(),
            sessions,
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

    /// A number for a new tree.
    pub(crate) fn new_ident(&self) -> Answer<Ident> {
        let mut idents = self.idents.lock();
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
        let at = |millis: u64| millis << 22 | (self.number as u64) << 12;
        let now = at(millis.saturating_sub(EPOCH));
        let next = |last: u64| match last {
            last if now > last => now,
            last if last & 0xFFF < 0xFFF => last + 1,
            last => at((last >> 22) + 1),
        };
        let last = self.records.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| Some(next(last)));
        next(last.unwrap_or_else(|last| last))
    }

    /// The time of a commit that takes so many, which no other commit of any front has: the low bits of the
    /// counter are the front's number.
    pub(crate) fn new_time(&self, earliest: u64, ticks: u32) -> u64 {
        let after = |latest: u64| {
            let first = (latest.max(earliest) >> 10) + 1;
            (first + u64::from(ticks.saturating_sub(1))) << 10 | self.number as u64
        };
        let latest = self.time.fetch_update(Ordering::AcqRel, Ordering::Acquire, |time| Some(after(time)));
        after(latest.unwrap_or_else(|latest| latest))
    }

    /// The time of the latest commit here, and `earliest` if that is later.
    pub(crate) fn time(&self, earliest: u64) -> u64 {
        self.time.fetch_max(earliest, Ordering::AcqRel).max(earliest)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        *self.lease.ended.lock() = true;
        self.lease.wake.notify_all();
        if let Err(failure) = self.ask(|lent| lent.one(&self.statements.leave, &[Param::Int(self.number)])) {
            log::debug!("the lease runs out by itself: {failure:?}");
        }
    }
}

fn ask<T>(control: &Arc<Pool>, question: &dyn Fn(&mut Lent) -> Answer<T>) -> Answer<T> {
    loop {
        let mut lent = control.take(&|| {})?;
        match question(&mut lent) {
            Err(failure) if failure.ends_connection() && !lent.is_new => control.clear(),
            answer => return answer,
        }
    }
}

fn take_number(control: &Arc<Pool>, statements: &Statements) -> Answer<i64> {
    // Somebody else may have taken the free one that was seen.
    for _ in 0..64 {
        let rows = ask(control, &|lent| lent.one(&statements.front, &[]))?;
        if let Some(row) = rows.first() {
            return Ok(row.int(0));
        }
    }
    Err(Failure::Lost("no number is free: there are 1,023 processes on this schema".to_string()))
}

fn renew(lease: &Lease, control: &Arc<Pool>, statements: &Statements, sessions: &Sessions, number: i64) {
    for tick in 0u64.. {
        let mut ended = lease.ended.lock();
        if !*ended {
            lease.wake.wait_for(&mut ended, TICK);
        }
        if *ended {
            return;
        }
        drop(ended);
        sessions.park_idle();
        if tick % RENEWED_EVERY != 0 {
            continue;
        }
        match ask(control, &|lent| lent.one(&statements.renew, &[Param::Int(number)])) {
            Ok(rows) if !rows.is_empty() => lease.lost.store(false, Ordering::Relaxed),
            Ok(_) => lease.lost.store(true, Ordering::Relaxed),
            Err(failure) => log::warn!("the lease on PostgreSQL could not be renewed: {failure:?}"),
        }
    }
}
