//! The hosts of the connection string: role and latency of each.
//!
//! A heartbeat query each second confirms that the server answers. A network that drops packets closes no connection,
//! and a wait on such a connection would last until TCP gives up.

use crate::config::{Config, Wanted};
use crate::connection::{Connection, Statement};
use crate::failure::{Answer, Failure, LOOK, should_continue};
use crate::incarnations::Incarnations;
use crate::lease::Lease;
use crate::pool::{Place, Pool};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use storage::store::MemberPreference;
use storage::threads;

/// Latency window: a host within this time of the nearest counts as near, as in routers of MongoDB.
const LOCAL_THRESHOLD: Duration = Duration::from_millis(15);

/// Timeout of the first survey of all hosts, and of a requested survey.
const LOOKED_FOR: Duration = Duration::from_secs(12);

/// Role of a host at the last survey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Role {
    Away,
    Primary,
    Standby,
}

/// A host of the connection string.
pub(crate) struct Member {
    pub(crate) place: Arc<Place>,
    pub(crate) pool: Arc<Pool>,
    /// The [`Role`] as a number.
    role: AtomicU8,
    /// Smoothed latency in microseconds; the latest surveys weigh most.
    took: AtomicU64,
    /// End of the period in which the host is skipped.
    pub(crate) passed_over: Mutex<Option<Instant>>,
}

impl Member {
    fn is(&self, role: Role) -> bool {
        self.role.load(Ordering::Acquire) == role as u8
    }

    /// Records the role of the host.
    pub(crate) fn note(&self, role: Role) {
        self.role.store(role as u8, Ordering::Release);
    }

    /// Updates the smoothed latency.
    fn note_took(&self, took: Duration) {
        let took = took.as_micros() as u64;
        let smooth = |before: u64| Some(if before == 0 { took } else { (4 * before + took) / 5 });
        // One thread alone writes the latency.
        let _ = self.took.fetch_update(Ordering::Relaxed, Ordering::Relaxed, smooth);
    }

    fn took(&self) -> Duration {
        Duration::from_micros(self.took.load(Ordering::Relaxed))
    }

    /// Returns true while the host is skipped after it was too slow.
    fn is_passed_over(&self) -> bool {
        self.passed_over.lock().is_some_and(|until| Instant::now() < until)
    }
}

/// All hosts that may be standbys.
pub(crate) struct Standbys {
    /// Empty for a single host.
    members: Vec<Member>,
    /// Round-robin counter over the hosts.
    next: AtomicUsize,
    /// Number of finished surveys, and whether a thread waits for the next.
    looks: Mutex<(u64, bool)>,
    /// Notified at the end of a survey.
    looked: Condvar,
    /// Notified by a request for a survey.
    asked: Condvar,
}

impl Standbys {
    /// Creates the list from a connection string, with at most `most` connections to each host.
    pub(crate) fn new(place: &Place, pool: &Pool, most: usize) -> Standbys {
        let hosts = if place.config.hosts.len() > 1 { place.config.hosts.as_slice() } else { &[] };
        let member = |host: &(String, u16)| {
            let config = Config { hosts: vec![host.clone()], wanted: Wanted::Any, ..place.config.clone() };
            let place = Arc::new(Place {
                config,
                incarnations: Arc::new(Incarnations::default()),
                incarnation: None,
            });
            Member {
                pool: pool.leading_to(&place, most),
                place,
                role: AtomicU8::new(Role::Away as u8),
                took: AtomicU64::new(0),
                passed_over: Mutex::default(),
            }
        };
        Standbys {
            members: hosts.iter().map(member).collect(),
            next: AtomicUsize::new(0),
            looks: Mutex::default(),
            looked: Condvar::new(),
            asked: Condvar::new(),
        }
    }

    /// Returns true if no host can be a standby.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Surveys each host: its role, and whether it has become the primary. Closes the connections to a host that does
    /// not answer, so that no thread waits on them.
    pub(crate) fn look(&self, primary: &Place) {
        for member in &self.members {
            let opened = Connection::open(&member.place.config, &Incarnations::default());
            match opened.and_then(|connection| primary.meet(connection)) {
                Ok((is_standby, took)) => {
                    member.note_took(took);
                    member.note(if is_standby { Role::Standby } else { Role::Primary });
                }
                Err(failure) => {
                    member.note(Role::Away);
                    if matches!(failure, Failure::Lost(_)) {
                        member.place.incarnations.end_connections();
                    }
                }
            }
        }
        let mut looks = self.looks.lock();
        *looks = (looks.0 + 1, false);
        self.looked.notify_all();
    }

    /// Sleeps for `pause`, or until a survey is requested.
    pub(crate) fn rest(&self, pause: Duration) {
        let mut looks = self.looks.lock();
        if !looks.1 {
            self.asked.wait_for(&mut looks, pause);
        }
    }

    /// Requests a survey of all hosts and waits for it.
    ///
    /// Errors: `Interrupted`.
    pub(crate) fn look_again(&self) -> Answer<()> {
        let end = Instant::now() + LOOKED_FOR;
        let mut looks = self.looks.lock();
        let before = looks.0;
        while looks.0 == before && Instant::now() < end {
            looks.1 = true;
            self.asked.notify_all();
            self.looked.wait_for(&mut looks, LOOK);
            should_continue()?;
        }
        Ok(())
    }

    /// Returns the standbys, starting with a different host each time. Hosts that were recently too slow come last, and
    /// only if the primary cannot serve.
    pub(crate) fn at_hand(&self, preference: MemberPreference) -> Vec<&Member> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let count = self.members.len();
        let turned = (0..count).filter_map(|at| self.members.get((first + at) % count));
        let there: Vec<&Member> = match preference {
            MemberPreference::Secondary | MemberPreference::SecondaryPreferred => {
                turned.filter(|member| member.is(Role::Standby)).collect()
            }
            // The primary takes its turn among them.
            MemberPreference::Nearest => {
                let there: Vec<&Member> = turned.filter(|member| !member.is(Role::Away)).collect();
                let nearest = there.iter().map(|member| member.took()).min().unwrap_or_default();
                let mut near = there.into_iter().filter(|member| member.took() <= nearest + LOCAL_THRESHOLD);
                near.next().filter(|member| member.is(Role::Standby)).into_iter().collect()
            }
            MemberPreference::PrimaryPreferred
                if self.members.iter().any(|member| member.is(Role::Primary)) =>
            {
                Vec::new()
            }
            MemberPreference::PrimaryPreferred => turned.filter(|member| member.is(Role::Standby)).collect(),
        };
        let (late, good): (Vec<_>, Vec<_>) = there.into_iter().partition(|member| member.is_passed_over());
        if preference.allows_primary() { good } else { good.into_iter().chain(late).collect() }
    }
}

/// Interval of the heartbeat.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Timeout of a heartbeat.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(4);

/// Interval of the survey of the other hosts. One of them may have become the primary while the old primary does not
/// know.
const SURVEY_INTERVAL: Duration = Duration::from_secs(3);

/// Latency of a new connection below which an unanswered old connection counts as dead.
const SOON: Duration = Duration::from_secs(1);

/// Time without an answer after which all connections are closed.
const DISCONNECT_AFTER: Duration = Duration::from_secs(10);

/// Starts the heartbeat thread, which runs until the front is closed.
pub(crate) fn start_heartbeat(place: &Arc<Place>, lease: &Arc<Lease>) {
    let (place, lease) = (place.clone(), lease.clone());
    let question = Statement::new("pulse", "select 1::int8");
    let mut pulse = Heartbeat { place, question, connection: None, silent_since: None };
    let beat = move || {
        while !lease.wait(HEARTBEAT_INTERVAL) {
            pulse.beat();
        }
    };
    if let Err(error) = threads::spawn("postgres-pulse", None, beat) {
        log::error!("the thread that detects unresponsive PostgreSQL servers could not start: {error}");
    }
}

/// Starts the survey thread if several hosts are configured. It runs until the front is closed.
pub(crate) fn start_survey(place: &Arc<Place>, standbys: &Arc<Standbys>, lease: &Arc<Lease>) {
    if standbys.is_empty() {
        return;
    }
    let (place, standbys, lease) = (place.clone(), standbys.clone(), lease.clone());
    let survey = move || {
        while !lease.wait(Duration::ZERO) {
            standbys.look(&place);
            standbys.rest(SURVEY_INTERVAL);
        }
    };
    if let Err(error) = threads::spawn("postgres-survey", None, survey) {
        log::error!("the thread that detects promotions of PostgreSQL servers could not start: {error}");
    }
}

/// State of the heartbeat thread, which has its own connection.
struct Heartbeat {
    place: Arc<Place>,
    question: Arc<Statement>,
    connection: Option<Connection>,
    /// Time of the first failed heartbeat of the present outage.
    silent_since: Option<Instant>,
}

impl Heartbeat {
    /// Sends one heartbeat. After a failure it tries a new connection, which shows whether the server or only the old
    /// connections are dead.
    fn beat(&mut self) {
        let asked = Instant::now();
        let had_one = self.connection.is_some();
        let Err(failure) = self.ask() else { return self.silent_since = None };
        let took = asked.elapsed();
        self.connection = None;
        if !had_one {
            return self.gone(&format!("{failure:?}"));
        }
        let again = Instant::now();
        match self.ask() {
            // The old connections lead nowhere. A new incarnation would have closed them already.
            Ok(()) if took >= HEARTBEAT_TIMEOUT && again.elapsed() < SOON => {
                log::warn!("closing unresponsive connections to PostgreSQL");
                self.place.incarnations.end_connections();
                self.connection = None;
                self.silent_since = None;
            }
            Ok(()) => self.silent_since = None,
            Err(failure) => self.gone(&format!("{failure:?}")),
        }
    }

    /// Runs the query on the connection of the heartbeat, or on a new one.
    fn ask(&mut self) -> Answer<()> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let mut opened = self.place.connect(&Arc::default())?;
                opened.limit(HEARTBEAT_TIMEOUT)?;
                opened
            }
        };
        connection.one(&self.question, &[])?;
        self.connection = Some(connection);
        Ok(())
    }

    /// Records that the server does not answer. Closes all connections once the outage has lasted.
    fn gone(&mut self, why: &str) {
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= DISCONNECT_AFTER {
            log::warn!("PostgreSQL has not responded for {} s: {why}", since.elapsed().as_secs());
            self.place.incarnations.end_connections();
            self.silent_since = Some(Instant::now());
        }
    }
}
