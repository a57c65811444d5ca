//! State that all connections share: configuration, sessions, counters, fail points, cluster time.

use crate::access::Requirements;
use crate::observe::activity::Activities;
use crate::observe::counters::Counters;
use crate::observe::profiler::Profiler;
use crate::process::blocking::{Processors, in_place};
use crate::process::event::Event;
use crate::process::memory::{MemoryLimit, MemoryLimitStats};
use crate::session::Sessions;
use crate::state::auth::Auth;
use crate::state::connection::Network;
use crate::state::execution::Execution;
use crate::state::fail_point::FailPoints;
use crate::state::http::Http;
use crate::state::parameters::Parameters;
use crate::state::replica_set::{ReplicaSet, TopologyState};
use crate::state::set_config::SetConfig;
use crate::state::set_settings::SetSettings;
use crate::state::settings::Settings;
use base::Result;
use base::bson::{Document, DocumentBuf, ObjectId};
use base::random::Random;
use database::language::Helpers;
use database::{Database, EventCount, time};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Function pointers into the command table, which is a later layer.
pub(crate) struct Commands {
    /// Number of commands.
    pub(crate) count: usize,
    /// Returns the requirements of the command with a name.
    pub(crate) requirements_of: fn(&str) -> Option<Requirements>,
    /// Runs a command as the server itself, inside of another command. The document includes `$db`.
    pub(crate) run: fn(&Server, Document<'_>) -> Result<InnerStatus>,
}

/// Result of a command that another command runs.
pub(crate) enum InnerStatus {
    /// The reply.
    Done(DocumentBuf),
    /// The command must run again after this event.
    Wait(Event),
}

/// State of a server, shared by its connections.
pub struct Server {
    /// Runs a command as the server itself.
    run: fn(&Server, Document<'_>) -> Result<InnerStatus>,
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
    /// Execution tickets, if commands are limited.
    pub(crate) execution: Option<Execution>,
    /// Counts unlocks by fsyncUnlock.
    pub(crate) unlocked: Arc<EventCount>,
    pub(crate) topology: TopologyState,
    pub(crate) started: Instant,
    pub(crate) processors: Arc<Processors>,
    /// Idle processors for long reads, once the server listens.
    pub(crate) helpers: OnceLock<Arc<dyn Helpers>>,
    random: Random,
}

impl Drop for Server {
    /// Ends the cursors: their plans refer to the database, which owns them, so neither would be freed.
    fn drop(&mut self) {
        self.database.cursors.end_all();
    }
}

impl Server {
    /// Returns the durability level, `memory` or, for a shared store, `store`.
    pub(crate) fn durability(&self) -> &'static str {
        match &self.settings {
            Settings { ephemeral: true, .. } => "memory",
            Settings { shared: true, .. } => "store",
            _ => self.database.engine().durability().name(),
        }
    }

    /// Creates a server for this database with these commands. It does not listen yet.
    ///
    /// Errors: the records of retryable writes cannot be read.
    pub(crate) fn with_commands(
        commands: Commands,
        settings: Settings,
        database: Arc<Database>,
        seed: u64,
    ) -> Result<Server> {
        if settings.strict {
            database.enable_strict_mode();
        }
        let fail_points = FailPoints::new(settings.test_commands, seed);
        let seconds = (database.now_millis() / 1000) as u32;
        let process = std::array::from_fn(|i| (seed >> (8 * i)) as u8);
        let memory_limit = settings.memory_limit.as_ref().map(|limit| limit.bytes);
        let sessions = Arc::new(Sessions::new(seed, database.clock().clone(), memory_limit));
        database.visit_retries(&mut |record| sessions.restore(record, settings.shared))?;
        database.set_blocking_hook(|work| in_place(work));
        let counters = Counters::new(commands.count);
        let auth = Auth::new(&settings, database.clone(), commands.requirements_of);
        let topology = TopologyState::open(&settings, ObjectId::from_parts(seconds, process, 0), &database);
        let server = Server {
            run: commands.run,
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
            execution: settings.execution_limits.map(Execution::new),
            unlocked: Arc::default(),
            topology,
            fail_points,
            auth,
            settings,
            started: time::now(),
            processors: Arc::new(Processors::of_machine()),
            helpers: OnceLock::new(),
            random: Random::new(seed),
        };
        if server.set().is_some() {
            server.set_settings.load(&server.database);
        }
        Ok(server)
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

    /// Runs an internal command that includes `$db`, inside of another command.
    ///
    /// Errors: the error of the command or of its first statement.
    pub(crate) fn run_inner(&self, command: Document<'_>) -> Result<InnerStatus> {
        (self.run)(self, command)
    }

    /// Ends [`serve`](crate::serve). Current replies are finished first.
    pub fn stop(&self) {
        self.network.stop.advance();
    }

    /// Returns the replica set once it is initiated.
    pub(crate) fn set(&self) -> Option<&ReplicaSet> {
        self.topology.set()
    }

    /// Initiates the set. The member becomes its primary.
    ///
    /// Errors: AlreadyInitialized; errors of the write.
    pub(crate) fn initiate(&self, name: &str, config: SetConfig, host: &str) -> Result<()> {
        self.topology.initiate(name, config, host, &self.database)?;
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
