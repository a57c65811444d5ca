//! State that all connections share: configuration, sessions, counters, fail points, cluster time.

use crate::access::Requirements;
use crate::observe::activity::Activities;
use crate::observe::counters::Counters;
use crate::observe::profiler::Profiler;
use crate::process::blocking::in_place;
use crate::process::helpers::Processors;
use crate::process::memory_limit::{MemoryLimit, MemoryLimitStats};
use crate::session::Sessions;
use crate::state::auth::Auth;
use crate::state::fail_point::FailPoints;
use crate::state::http::{Http, HttpOptions};
use crate::state::network::Network;
use crate::state::parameters::{Parameters, Setting};
use crate::state::replica_set::ReplicaSet;
use crate::state::set_config::SetConfig;
use crate::state::set_settings::SetSettings;
use crate::state::tls::Tls;
use base::bson::{Builder, Document, DocumentBuf, ObjectId};
use base::random::Random;
use base::{CompatibleWith, Result, err};
use database::language::Helpers;
use database::time;
use database::{Database, EventCount};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Authentication mechanisms that are enabled by default.
pub const MECHANISMS: [&str; 3] = ["MONGODB-X509", "SCRAM-SHA-1", "SCRAM-SHA-256"];

/// Validated settings from the binary.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Command line for getCmdLineOpts.
    pub arguments: Vec<String>,
    /// Listening address.
    pub bind: std::net::IpAddr,
    /// Requested port; 0 selects a free port.
    pub port: u16,
    /// Name of the replica set, if the server presents itself as one.
    pub replica_set: Option<String>,
    /// True if the set begins with `replSetInitiate`, as in mongod, instead of with the server.
    pub awaits_initiation: bool,
    /// Address in hello, instead of the address that the client connected to.
    pub advertise: Option<String>,
    /// Name of the engine for serverStatus.
    pub engine: &'static str,
    /// Data directory, if any.
    pub data: Option<std::path::PathBuf>,
    /// True for a store that other processes may share.
    pub shared: bool,
    /// True if the engine keeps data only in memory.
    pub ephemeral: bool,
    /// True if the journal is synced regularly. A write on a replica set then waits for it by
    /// default.
    pub syncs: bool,
    /// Interval of these syncs.
    pub sync_interval: Duration,
    /// Memory limit of the process; `None` is unlimited.
    pub memory_limit: Option<MemoryLimit>,
    /// Maximum number of open connections.
    pub connections_max: usize,
    /// TLS; `None` if it is off.
    pub tls: Option<Arc<Tls>>,
    /// HTTP endpoint; `None` if it is off.
    pub http: Option<HttpOptions>,
    /// Time for which a network thread polls for the next request of a single client before it
    /// sleeps; zero disables it.
    pub busy_poll: Duration,
    /// Timeout of the first bytes and of the TLS handshake.
    pub handshake_timeout: Duration,
    /// Initial profiler settings: the level of all databases, the slow threshold in milliseconds,
    /// and the share of slow operations in the log.
    pub profiling: (i32, Option<i64>, Option<f64>),
    /// True if clients may set fail points and the clock.
    pub test_commands: bool,
    /// MongoDB version that the server reports.
    pub compatible_with: CompatibleWith,
    /// True if access control is enabled.
    pub auth: bool,
    /// True if a local client may create the first user.
    pub localhost_exception: bool,
    /// Enabled authentication mechanisms.
    pub mechanisms: Vec<String>,
    /// True to collect reads that an index would speed up, for strictReport and the exit.
    pub strict: bool,
}

impl Default for Settings {
    /// Returns settings for the memory engine on a free port of the loopback interface.
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
            busy_poll: wire::busy_poll::default_time(),
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

/// Function pointers into the command table, which is a later layer.
pub(crate) struct Commands {
    /// Returns the number of sessions.
    pub(crate) count: usize,
    /// Returns the needs of the command with a name.
    pub(crate) requirements_of: fn(&str) -> Option<Requirements>,
    /// Runs a command as the server itself. The document includes `$db`.
    pub(crate) run: fn(&Server, Document<'_>) -> Result<DocumentBuf>,
}

/// State of a server, shared by its connections.
pub struct Server {
    pub(crate) commands: Commands,
    pub(crate) database: Arc<Database>,
    pub(crate) settings: Settings,
    pub(crate) auth: Auth,
    pub(crate) activities: Activities,
    /// True if empty client metadata has been logged.
    pub(crate) warned_of_empty_metadata: AtomicBool,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) counters: Counters,
    pub(crate) http: Http,
    /// Counts of operations and cursors that the memory limit ended.
    pub(crate) memory_limit_stats: MemoryLimitStats,
    pub(crate) fail_points: FailPoints,
    pub(crate) parameters: Parameters,
    /// Profiler and slow operations.
    pub(crate) profiler: Profiler,
    pub(crate) set_settings: SetSettings,
    pub(crate) network: Network,
    /// Counts unlocks by fsyncUnlock.
    pub(crate) unlocked: Arc<EventCount>,
    pub(crate) topology: TopologyState,
    pub(crate) started: Instant,
    pub(crate) processors: Arc<Processors>,
    /// Idle processors for long reads, once the server listens.
    pub(crate) helpers: OnceLock<Arc<dyn Helpers>>,
    random: Random,
}

/// Topology state of hello, with the replica set.
pub(crate) struct TopologyState {
    /// Replica set of one member, set from the start or when it is initiated.
    set: OnceLock<ReplicaSet>,
    /// Identifies this run of the server.
    pub(crate) process_id: ObjectId,
    /// Counts changes of the content of hello.
    pub(crate) changed: Arc<EventCount>,
}

impl TopologyState {
    /// Appends `topologyVersion`, by which clients order replies.
    pub(crate) fn append_version(&self, reply: &mut Builder) {
        reply.begin_document(c"topologyVersion").append(c"processId", self.process_id);
        reply.append(c"counter", self.changed.read() as i64).end();
    }
}

impl Server {
    /// Creates a server for this database with these commands. It does not listen yet.
    pub(crate) fn with_commands(
        commands: Commands,
        settings: Settings,
        database: Arc<Database>,
        seed: u64,
    ) -> Server {
        if settings.strict {
            database.enable_strict_mode();
        }
        let fail_points = FailPoints::new(settings.test_commands, seed);
        let seconds = (database.now_millis() / 1000) as u32;
        let process = std::array::from_fn(|i| (seed >> (8 * i)) as u8);
        let sessions = Arc::new(Sessions::new(seed, database.clock().clone()));
        sessions.restore(database.take_retries(), settings.shared);
        database.set_blocking_hook(in_place);
        let counters = Counters::new(commands.count);
        let server = Server {
            commands,
            database,
            activities: Activities::default(),
            warned_of_empty_metadata: AtomicBool::new(false),
            sessions,
            counters,
            http: Http::default(),
            memory_limit_stats: MemoryLimitStats::default(),
            parameters: Parameters::new(
                MemoryLimit::of_operation(settings.memory_limit.as_ref()),
                settings.sync_interval,
            ),
            profiler: Profiler::new(settings.profiling),
            set_settings: SetSettings::default(),
            network: Network::new(settings.shared),
            unlocked: Arc::default(),
            topology: TopologyState {
                set: OnceLock::new(),
                process_id: ObjectId::from_parts(seconds, process, 0),
                changed: Arc::default(),
            },
            fail_points,
            auth: Auth::new(settings.auth, settings.mechanisms.clone()),
            settings,
            started: time::now(),
            processors: Arc::new(Processors::of_machine()),
            helpers: OnceLock::new(),
            random: Random::new(seed),
        };
        let open = |name: &String| {
            let (awaits, changed) = (server.settings.awaits_initiation, server.topology.changed.clone());
            ReplicaSet::open(name, awaits, &server.database, changed)
        };
        if let Some(set) = server.settings.replica_set.as_ref().and_then(open) {
            server.topology.set.get_or_init(|| set);
            server.set_settings.load(&server.database);
        }
        server.set_settings.feature_version.load(&server.database, server.settings.compatible_with);
        server
    }

    /// Returns the URL of the HTTP endpoint once it listens.
    pub fn http_url(&self) -> Option<String> {
        let scheme = if self.settings.tls.is_some() { "https" } else { "http" };
        self.http.address.get().map(|address| format!("{scheme}://{address}/"))
    }

    /// Returns the token that permits changes over HTTP without access control. `None` with access
    /// control, and if the system has no random numbers.
    pub fn http_token(&self) -> Option<&str> {
        Some(self.http.token()).filter(|token| !self.settings.auth && !token.is_empty())
    }

    /// Runs an internal command that includes `$db`. Returns its reply.
    ///
    /// Errors: the error of the command or of its first statement.
    pub(crate) fn run_own(&self, command: Document<'_>) -> Result<DocumentBuf> {
        (self.commands.run)(self, command)
    }

    /// Ends [`serve`](crate::serve). Current replies are finished first.
    pub fn stop(&self) {
        self.network.stop.advance();
    }

    /// Returns the maximum age of a transaction: the present value of
    /// transactionLifetimeLimitSeconds.
    pub(crate) fn transaction_lifetime(&self) -> Duration {
        match self.parameters.get("transactionLifetimeLimitSeconds") {
            Some(Setting::Integer(seconds)) => Duration::from_secs(seconds.unsigned_abs().into()),
            _ => Duration::from_secs(60),
        }
    }

    /// Returns the replica set once it is initiated.
    pub(crate) fn set(&self) -> Option<&ReplicaSet> {
        self.topology.set.get()
    }

    /// Initiates the set. The member becomes its primary.
    ///
    /// Errors: AlreadyInitialized; errors of the write.
    pub(crate) fn initiate(&self, name: &str, config: SetConfig, host: &str) -> Result<()> {
        let already = || err!(AlreadyInitialized, "already initialized");
        if self.set().is_some() {
            return Err(already());
        }
        let set = ReplicaSet::begin(name, config, 0, &self.database, self.topology.changed.clone());
        self.topology.set.set(set).map_err(|_| already())?;
        if let Some(set) = self.set() {
            set.store(&set.config(), host, &self.database)?;
        }
        self.set_settings.load(&self.database);
        self.topology.changed.advance();
        log::info!(
            id = 21331, c = "REPL", set = name;
            "Transition to primary complete; database writes are now permitted"
        );
        Ok(())
    }

    /// Returns true if the server presents itself as a replica set member, initiated or not.
    pub(crate) fn is_replica_set(&self) -> bool {
        self.settings.replica_set.is_some()
    }

    /// Returns true if the data may have several members: on a replica set, and on a shared store,
    /// where each process acts as a mongos.
    pub(crate) fn is_replicated(&self) -> bool {
        self.is_replica_set() || self.settings.shared
    }

    /// Returns true if the server is a front on a shared store with a common oplog.
    pub(crate) fn is_front_with_log(&self) -> bool {
        self.settings.shared && self.database.log_limit().is_some()
    }

    /// Returns the number of members that hold the data. Returns 1 after an error, which the
    /// following wait reports.
    pub(crate) fn members(&self) -> usize {
        self.database.members().unwrap_or(1)
    }

    /// Returns true if the server waits for `replSetInitiate`.
    pub fn awaits_initiation(&self) -> bool {
        self.is_replica_set() && self.set().is_none()
    }

    /// Returns true if the server accepts writes: a standalone always, a set while its member is
    /// the primary.
    pub(crate) fn is_primary(&self) -> bool {
        match self.set() {
            Some(set) => set.is_primary(&self.database),
            None => !self.is_replica_set(),
        }
    }

    /// Returns the cluster time of the last write: seconds and a counter.
    pub(crate) fn cluster_time(&self) -> u64 {
        self.database.cluster_time()
    }

    /// Returns a random number that seeds an operation. Not for secrets.
    pub(crate) fn random(&self) -> u64 {
        self.random.draw()
    }
}

/// Returns a seed that differs between runs. Not for secrets.
pub fn seed() -> u64 {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    nanos.rotate_left(32) ^ u64::from(std::process::id()).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
