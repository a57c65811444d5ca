//! The hosts of the connection string: role and latency of each.
//!
//! A heartbeat query each second confirms that the server replies. A network that drops packets closes no connection,
//! and a wait on such a connection would last until TCP gives up.

use crate::config::{Config, TargetSessionAttrs};
use crate::connection::{Connection, Statement};
use crate::failure::{CHECK_INTERVAL, Failure, PgResult, should_continue};
use crate::incarnations::Incarnations;
use crate::lease::Lease;
use crate::pool::{Endpoint, Pool};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use storage::store::MemberPreference;
use storage::threads;

/// Latency window of the read preference `nearest`: MongoDB's default of `localThresholdMS`.
const LOCAL_THRESHOLD: Duration = Duration::from_millis(15);

/// Timeout of the first survey of all hosts, and of a requested survey.
const SURVEY_TIMEOUT: Duration = Duration::from_secs(12);

/// Role of a host at the last survey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Role {
    Unreachable,
    Primary,
    Standby,
}

/// A host of the connection string.
pub(crate) struct Member {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) pool: Arc<Pool>,
    /// The [`Role`] as a number.
    role: AtomicU8,
    /// Smoothed latency in microseconds; the latest surveys weigh most.
    latency: AtomicU64,
    /// End of the period in which the host is skipped.
    pub(crate) skipped_until: Mutex<Option<Instant>>,
}

impl Member {
    fn is(&self, role: Role) -> bool {
        self.role.load(Ordering::Acquire) == role as u8
    }

    /// Records the role of the host.
    pub(crate) fn set_role(&self, role: Role) {
        self.role.store(role as u8, Ordering::Release);
    }

    /// Updates the smoothed latency.
    fn add_latency(&self, latency: Duration) {
        let latency = latency.as_micros() as u64;
        let smooth = |before: u64| Some(if before == 0 { latency } else { (4 * before + latency) / 5 });
        // One thread alone writes the latency.
        let _ = self.latency.fetch_update(Ordering::Relaxed, Ordering::Relaxed, smooth);
    }

    fn latency(&self) -> Duration {
        Duration::from_micros(self.latency.load(Ordering::Relaxed))
    }

    /// Returns true while the host is skipped after it was too slow.
    fn is_skipped(&self) -> bool {
        self.skipped_until.lock().is_some_and(|until| Instant::now() < until)
    }
}

/// All hosts that may be standbys.
pub(crate) struct Standbys {
    /// Empty for a single host.
    members: Vec<Member>,
    /// Round-robin counter over the hosts.
    next: AtomicUsize,
    /// Number of finished surveys, and whether a thread waits for the next.
    surveys: Mutex<(u64, bool)>,
    /// Notified at the end of a survey.
    survey_ended: Condvar,
    /// Notified by a request for a survey.
    survey_requested: Condvar,
}

impl Standbys {
    /// Creates the list from a connection string, with at most `max_connections` connections to each host.
    pub(crate) fn new(endpoint: &Endpoint, pool: &Pool, max_connections: usize) -> Standbys {
        let hosts = if endpoint.config.hosts.len() > 1 { endpoint.config.hosts.as_slice() } else { &[] };
        let member = |host: &(String, u16)| {
            let config = Config {
                hosts: vec![host.clone()],
                target_session_attrs: TargetSessionAttrs::Any,
                ..endpoint.config.clone()
            };
            let endpoint = Arc::new(Endpoint {
                config,
                incarnations: Arc::new(Incarnations::default()),
                incarnation: None,
            });
            Member {
                pool: pool.for_endpoint(&endpoint, max_connections),
                endpoint,
                role: AtomicU8::new(Role::Unreachable as u8),
                latency: AtomicU64::new(0),
                skipped_until: Mutex::default(),
            }
        };
        Standbys {
            members: hosts.iter().map(member).collect(),
            next: AtomicUsize::new(0),
            surveys: Mutex::default(),
            survey_ended: Condvar::new(),
            survey_requested: Condvar::new(),
        }
    }

    /// Returns true if no host can be a standby.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Surveys each host: its role, and whether it has become the primary. Closes the connections to a host that does
    /// not reply, so that no thread waits on them.
    pub(crate) fn survey(&self, primary: &Endpoint) {
        for member in &self.members {
            let opened = Connection::open(&member.endpoint.config, &Incarnations::default());
            match opened.and_then(|connection| primary.probe(connection)) {
                Ok((is_standby, latency)) => {
                    member.add_latency(latency);
                    member.set_role(if is_standby { Role::Standby } else { Role::Primary });
                }
                Err(failure) => {
                    member.set_role(Role::Unreachable);
                    if matches!(failure, Failure::Unavailable(_)) {
                        member.endpoint.incarnations.end_connections();
                    }
                }
            }
        }
        let mut surveys = self.surveys.lock();
        *surveys = (surveys.0 + 1, false);
        self.survey_ended.notify_all();
    }

    /// Sleeps for `pause`, or until a survey is requested.
    pub(crate) fn wait(&self, pause: Duration) {
        let mut surveys = self.surveys.lock();
        if !surveys.1 {
            self.survey_requested.wait_for(&mut surveys, pause);
        }
    }

    /// Requests a survey of all hosts and waits for it.
    ///
    /// Errors: `Interrupted`.
    pub(crate) fn request_survey(&self) -> PgResult<()> {
        let end = Instant::now() + SURVEY_TIMEOUT;
        let mut surveys = self.surveys.lock();
        let before = surveys.0;
        while surveys.0 == before && Instant::now() < end {
            surveys.1 = true;
            self.survey_requested.notify_all();
            self.survey_ended.wait_for(&mut surveys, CHECK_INTERVAL);
            should_continue()?;
        }
        Ok(())
    }

    /// Returns the standbys, starting with a different host each time. Hosts that were recently too slow come last, and
    /// only if the primary cannot serve.
    pub(crate) fn candidates(&self, preference: MemberPreference) -> Vec<&Member> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let count = self.members.len();
        let rotated = (0..count).filter_map(|at| self.members.get((first + at) % count));
        let reachable: Vec<&Member> = match preference {
            MemberPreference::Secondary | MemberPreference::SecondaryPreferred => {
                rotated.filter(|member| member.is(Role::Standby)).collect()
            }
            // The primary takes its turn among them.
            MemberPreference::Nearest => {
                let reachable: Vec<&Member> =
                    rotated.filter(|member| !member.is(Role::Unreachable)).collect();
                let nearest = reachable.iter().map(|member| member.latency()).min().unwrap_or_default();
                let mut nearby =
                    reachable.into_iter().filter(|member| member.latency() <= nearest + LOCAL_THRESHOLD);
                nearby.next().filter(|member| member.is(Role::Standby)).into_iter().collect()
            }
            MemberPreference::PrimaryPreferred
                if self.members.iter().any(|member| member.is(Role::Primary)) =>
            {
                Vec::new()
            }
            MemberPreference::PrimaryPreferred => rotated.filter(|member| member.is(Role::Standby)).collect(),
        };
        let (slow, fast): (Vec<_>, Vec<_>) = reachable.into_iter().partition(|member| member.is_skipped());
        if preference.allows_primary() { fast } else { fast.into_iter().chain(slow).collect() }
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
const FAST_RECONNECT: Duration = Duration::from_secs(1);

/// Time without a reply after which all connections are closed.
const DISCONNECT_AFTER: Duration = Duration::from_secs(10);

/// Starts the heartbeat thread, which runs until the front is closed.
pub(crate) fn start_heartbeat(endpoint: &Arc<Endpoint>, lease: &Arc<Lease>) {
    let (endpoint, lease) = (endpoint.clone(), lease.clone());
    let query = Statement::new("heartbeat", "select 1::int8");
    let mut heartbeat = Heartbeat { endpoint, query, connection: None, silent_since: None };
    let send_heartbeat = move || {
        while !lease.wait(HEARTBEAT_INTERVAL) {
            heartbeat.send_heartbeat();
        }
    };
    if let Err(error) = threads::spawn_essential("pg-heartbeat", None, send_heartbeat) {
        log::error!("the thread that detects unresponsive PostgreSQL servers could not start: {error}");
    }
}

/// Starts the survey thread if several hosts are configured. It runs until the front is closed.
pub(crate) fn start_survey(endpoint: &Arc<Endpoint>, standbys: &Arc<Standbys>, lease: &Arc<Lease>) {
    if standbys.is_empty() {
        return;
    }
    let (endpoint, standbys, lease) = (endpoint.clone(), standbys.clone(), lease.clone());
    let run = move || {
        while !lease.wait(Duration::ZERO) {
            standbys.survey(&endpoint);
            standbys.wait(SURVEY_INTERVAL);
        }
    };
    if let Err(error) = threads::spawn_essential("postgres-survey", None, run) {
        log::error!("the thread that detects promotions of PostgreSQL servers could not start: {error}");
    }
}

/// State of the heartbeat thread, which has its own connection.
struct Heartbeat {
    endpoint: Arc<Endpoint>,
    query: Arc<Statement>,
    connection: Option<Connection>,
    /// Time of the first failed heartbeat of the present outage.
    silent_since: Option<Instant>,
}

impl Heartbeat {
    /// Sends one heartbeat. After a failure it tries a new connection, which shows whether the server or only the old
    /// connections are dead.
    fn send_heartbeat(&mut self) {
        let start = Instant::now();
        let was_connected = self.connection.is_some();
        let Err(failure) = self.run() else { return self.silent_since = None };
        let latency = start.elapsed();
        self.connection = None;
        if !was_connected {
            return self.record_outage(&format!("{failure:?}"));
        }
        let restarted = Instant::now();
        match self.run() {
            // The old connections lead nowhere. A new incarnation would have closed them already.
            Ok(()) if latency >= HEARTBEAT_TIMEOUT && restarted.elapsed() < FAST_RECONNECT => {
                log::warn!("closing unresponsive connections to PostgreSQL");
                self.endpoint.incarnations.end_connections();
                self.connection = None;
                self.silent_since = None;
            }
            Ok(()) => self.silent_since = None,
            Err(failure) => self.record_outage(&format!("{failure:?}")),
        }
    }

    /// Runs the query on the connection of the heartbeat, or on a new one.
    fn run(&mut self) -> PgResult<()> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let mut opened = self.endpoint.connect(&Arc::default())?;
                opened.set_timeout(HEARTBEAT_TIMEOUT)?;
                opened
            }
        };
        connection.query(&self.query, &[])?;
        self.connection = Some(connection);
        Ok(())
    }

    /// Records that the server does not reply. Closes all connections once the outage has lasted.
    fn record_outage(&mut self, why: &str) {
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= DISCONNECT_AFTER {
            log::warn!("PostgreSQL has not responded for {} s: {why}", since.elapsed().as_secs());
            self.endpoint.incarnations.end_connections();
            self.silent_since = Some(Instant::now());
        }
    }
}
