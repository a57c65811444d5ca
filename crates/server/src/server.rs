//! What all connections share: configuration, sessions, counters, fail points, the cluster time.

use crate::activity::Activities;
use crate::auth::Auth;
use crate::blocking::in_place;
use crate::cluster_parameters::ClusterParameters;
use crate::command::COMMANDS;
use crate::compatible_with::CompatibleWith;
use crate::counters::Counters;
use crate::default_concerns::DefaultConcerns;
use crate::fail_point::FailPoints;
use crate::http::{Http, HttpOptions};
use crate::logging::now_millis;
use crate::memory_limit::{Ended, MemoryLimit};
use crate::parameters::{Parameters, Setting};
use crate::profiler::Profiler;
use crate::replica_set::ReplicaSet;
use crate::session::Sessions;
use crate::signal::Signal;
use crate::tls::{Tls, Told};
use crate::transaction::TransactionCounters;
use base::bson::{Builder, ObjectId};
use base::random::Random;
use database::{Database, SessionId};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wire::busy_poll::Latest;

mod feature_version;
pub(crate) mod user_write_block;

use feature_version::FeatureVersion;
use user_write_block::UserWriteBlock;

/// The ways to log in that are there unless options say which.
pub const MECHANISMS: [&str; 3] = ["MONGODB-X509", "SCRAM-SHA-1", "SCRAM-SHA-256"];

/// What the binary decided, checked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The command line, as getCmdLineOpts shows it.
    pub arguments: Vec<String>,
    /// The address listened on.
    pub bind: std::net::IpAddr,
    /// The port asked for; 0 takes a free one.
    pub port: u16,
    /// The replica set's name, where the server shows itself as one.
    pub replica_set: Option<String>,
    /// Whether the set begins with `replSetInitiate`, as mongod's does, and not with the server.
    pub awaits_initiation: bool,
    /// The address that hello names instead of the one a client dialled.
    pub advertise: Option<String>,
    /// The engine's name, as serverStatus shows it.
    pub engine: &'static str,
    /// The data directory, where there is one.
    pub data: Option<std::path::PathBuf>,
    /// Whether the store is another server's, which other processes may use, too.
    pub shared: bool,
    /// Whether the engine keeps data in memory alone.
    pub ephemeral: bool,
    /// Whether the journal is synced unasked, so that a write on a replica set that says nothing waits for it.
    pub syncs: bool,
    /// How often it is synced unasked.
    pub sync_interval: Duration,
    /// How much memory the process may have; `None` is as much as it gets.
    pub memory_limit: Option<MemoryLimit>,
    /// The most connections open at once.
    pub connections_max: usize,
    /// How connections are encrypted; `None` where TLS is off.
    pub tls: Option<Arc<Tls>>,
    /// Where figures are served by HTTP; `None` where they aren't.
    pub http: Option<HttpOptions>,
    /// How long a network thread looks for the next request of a lone client before it sleeps; zero is not at all.
    pub busy_poll: Duration,
    /// How long a client may take to begin, and for the handshake of TLS.
    pub handshake_timeout: Duration,
    /// Which operations are profiled and logged until `profile` says otherwise: the level of every database, what
    /// counts as slow in milliseconds, and the share of slow operations that are told of.
    pub profiling: (i32, Option<i64>, Option<f64>),
    /// Whether clients may make commands fail and set the clock.
    pub test_commands: bool,
    /// The MongoDB version that the server presents itself as.
    pub compatible_with: CompatibleWith,
    /// Whether only users get in, and each may do what their roles allow.
    pub auth: bool,
    /// Whether somebody on this machine may make the first user.
    pub localhost_exception: bool,
    /// The ways to log in, by their names.
    pub mechanisms: Vec<String>,
    /// Whether reads that an index would help are collected, for strictReport and the end.
    pub strict: bool,
}

impl Default for Settings {
    /// The memory engine on a free port of the loopback interface.
    fn default() -> Settings {
        Settings {
            arguments: vec!["vellum".to_string()],
            bind: std::net::Ipv4Addr::LOCALHOST.into(),
            port: 0,
            replica_set: None,
            awaits_initiation: false,
            advertise: None,
            engine: "memory",
            data: None,
            shared: false,
            ephemeral: true,
            syncs: true,
            sync_interval: Duration::from_millis(100),
            memory_limit: None,
            connections_max: 65_536,
            profiling: (0, None, None),
            tls: None,
            http: None,
            busy_poll: wire::busy_poll::usual(),
            handshake_timeout: Duration::from_secs(30),
            test_commands: true,
            compatible_with: CompatibleWith::default(),
            auth: false,
            localhost_exception: true,
            mechanisms: MECHANISMS.map(str::to_string).to_vec(),
            strict: false,
        }
    }
}

/// The state of one server, shared by its connections.
pub struct Server {
    pub(crate) database: Arc<Database>,
    pub(crate) settings: Settings,
    pub(crate) auth: Auth,
    pub(crate) activities: Activities,
    /// Whether a client with empty metadata has been logged.
    pub(crate) warned_of_empty_metadata: AtomicBool,
    /// The connection that had the latest request.
    pub(crate) latest: Latest,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) counters: Counters,
    pub(crate) http: Http,
    /// What has been ended for want of memory.
    pub(crate) ended: Ended,
    pub(crate) transactions: TransactionCounters,
    pub(crate) fail_points: FailPoints,
    pub(crate) parameters: Parameters,
    /// Which operations `system.profile` and the log tell of.
    pub(crate) profiler: Profiler,
    pub(crate) default_concerns: DefaultConcerns,
    /// The feature compatibility version.
    pub(crate) feature_version: FeatureVersion,
    /// Whether the writes of users are blocked.
    pub(crate) user_write_block: UserWriteBlock,
    /// Whom the log has told why they aren't served.
    pub(crate) told: Told,
    /// Raised when fsyncUnlock lets writes go on.
    pub(crate) unlocked: Arc<Signal>,
    pub(crate) topology: TopologyState,
    /// The set of one that the server is, if it is one: there from the beginning, or once it is initiated.
    pub(crate) set: OnceLock<ReplicaSet>,
    /// The parameters of the set.
    pub(crate) cluster_parameters: ClusterParameters,
    /// Network threads that are handling a request.
    pub(crate) occupied: AtomicUsize,
    /// The threads that serve a client each.
    #[cfg(unix)]
    pub(crate) brisk: crate::dedicated_threads::Threads,
    /// Requests under way, from their frame to their reply.
    pub(crate) busy: AtomicUsize,
    /// Set once no more requests are taken.
    pub(crate) stopping: AtomicBool,
    /// Raised when the server is to stop.
    pub(crate) stop: Arc<Signal>,
    pub(crate) started: Instant,
    random: Random,
    message_ids: AtomicU64,
}

/// What hello says of the set, and when it last changed.
pub(crate) struct TopologyState {
    /// Tells one run of the server from another.
    pub(crate) process_id: ObjectId,
    /// Raised when what hello says changes.
    pub(crate) changed: Arc<Signal>,
}

impl TopologyState {
    /// Appends `topologyVersion`, by which clients tell newer news from older.
    pub(crate) fn append_version(&self, reply: &mut Builder) {
        reply.begin_document(c"topologyVersion").append(c"processId", self.process_id);
        reply.append(c"counter", self.changed.count() as i64).end();
    }
}

impl Server {
    /// A server of this database that isn't listening yet.
    pub fn new(settings: Settings, database: Arc<Database>) -> Server {
        let seed = seed();
        if settings.strict {
            database.be_strict();
        }
        let fail_points = FailPoints::new(settings.test_commands, seed);
        let seconds = (now_millis() / 1000) as u32;
        let process = std::array::from_fn(|i| (seed >> (8 * i)) as u8);
        let sessions = Arc::new(Sessions::new(seed, database.clock().clone()));
        sessions.restore(database.take_retries(), settings.shared);
        database.wait_through(in_place);
        let server = Server {
            database,
            activities: Activities::default(),
            warned_of_empty_metadata: AtomicBool::new(false),
            latest: Latest::default(),
            sessions,
            counters: Counters::new(COMMANDS.len()),
            http: Http::default(),
            ended: Ended::default(),
            transactions: TransactionCounters::default(),
            parameters: Parameters::new(
                MemoryLimit::of_operation(settings.memory_limit.as_ref()),
                settings.sync_interval,
            ),
            profiler: Profiler::new(settings.profiling),
            default_concerns: DefaultConcerns::default(),
            feature_version: FeatureVersion::default(),
            user_write_block: UserWriteBlock::default(),
            told: Told::default(),
            unlocked: Arc::default(),
            topology: TopologyState {
                process_id: ObjectId::from_parts(seconds, process, 0),
                changed: Arc::default(),
            },
            set: OnceLock::new(),
            cluster_parameters: ClusterParameters::default(),
            fail_points,
            auth: Auth::new(settings.auth, settings.mechanisms.clone()),
            #[cfg(unix)]
            brisk: crate::dedicated_threads::Threads::new(settings.shared),
            settings,
            occupied: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            stop: Arc::default(),
            started: Instant::now(),
            random: Random::new(seed),
            message_ids: AtomicU64::new(0),
        };
        if let Some(set) = server.settings.replica_set.as_ref().and_then(|name| server.open_set(name)) {
            server.set.get_or_init(|| set);
            server.load_set_settings();
        }
        server.load_feature_version();
        server
    }

    /// Where HTTP is served, once it is.
    pub fn http_url(&self) -> Option<String> {
        let scheme = if self.settings.tls.is_some() { "https" } else { "http" };
        self.http.address.get().map(|address| format!("{scheme}://{address}/"))
    }

    /// Ends [`serve`](crate::serve), replies under way being finished.
    pub fn stop(&self) {
        self.stop.raise();
    }

    /// Ends a session, with its transaction and its cursors.
    pub(crate) fn end_session(&self, id: &SessionId) {
        if let Some(session) = self.sessions.end(id) {
            session.abort_any_transaction(&self.database, &self.transactions);
        }
        self.database.cursors.kill_session(id);
    }

    /// Aborts the transaction that a session has under way.
    pub(crate) fn abort_transaction_of(&self, id: &SessionId) {
        if let Some(session) = self.sessions.get(id) {
            session.abort_any_transaction(&self.database, &self.transactions);
        }
    }

    /// How long a transaction may stay open, as the parameter transactionLifetimeLimitSeconds says now.
    pub(crate) fn transaction_lifetime(&self) -> Duration {
        match self.parameters.get("transactionLifetimeLimitSeconds") {
            Some(Setting::Integer(seconds)) => Duration::from_secs(seconds.unsigned_abs().into()),
            _ => Duration::from_secs(60),
        }
    }

    /// The set of one that the server is, once it is initiated.
    pub(crate) fn set(&self) -> Option<&ReplicaSet> {
        self.set.get()
    }

    /// Aborts every transaction under way.
    pub(crate) fn abort_transactions(&self) {
        for session in self.sessions.all() {
            session.abort_any_transaction(&self.database, &self.transactions);
            self.database.cursors.kill_transaction(&session.id);
        }
    }

    /// Whether the server shows itself as a member of a replica set, initiated or not.
    pub(crate) fn is_replica_set(&self) -> bool {
        self.settings.replica_set.is_some()
    }

    /// Whether the data may have several members: those of a replica set, or of a server that several processes
    /// share, to whose clients each of these is a mongos.
    pub(crate) fn is_replicated(&self) -> bool {
        self.is_replica_set() || self.settings.shared
    }

    /// Whether the server is one of several processes on one store, which keeps a log for them all.
    pub(crate) fn is_front_with_log(&self) -> bool {
        self.settings.shared && self.database.log_limit().is_some()
    }

    /// How many members hold the data. Where that can't be found out there is one: the wait that follows tells
    /// why.
    pub(crate) fn members(&self) -> usize {
        self.database.members().unwrap_or(1)
    }

    /// Whether the server is a replica set that `replSetInitiate` has yet to begin.
    pub fn awaits_initiation(&self) -> bool {
        self.is_replica_set() && self.set().is_none()
    }

    /// Whether writes are taken: by a standalone always, by a set while its member is the primary.
    pub(crate) fn is_primary(&self) -> bool {
        match self.set() {
            Some(set) => set.is_primary(self),
            None => !self.is_replica_set(),
        }
    }

    /// The time of the last write as clients of a set see it: seconds and a count within them.
    pub(crate) fn cluster_time(&self) -> u64 {
        self.database.cluster_time()
    }

    /// A random number, to start an operation's own; not for secrets.
    pub(crate) fn random(&self) -> u64 {
        self.random.draw()
    }

    /// The number of the next message sent.
    pub(crate) fn next_message_id(&self) -> i32 {
        self.message_ids.fetch_add(1, Ordering::Relaxed) as i32
    }
}

/// A number that differs between runs, to start random numbers with; not for secrets.
pub fn seed() -> u64 {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    nanos.rotate_left(32) ^ u64::from(std::process::id()).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
