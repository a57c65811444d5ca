//! Validated settings of a server.

use crate::process::memory::MemoryLimit;
use crate::state::execution::ExecutionLimits;
use crate::state::http::HttpOptions;
use crate::state::tls::Tls;
use base::CompatibleWith;
use std::sync::Arc;
use std::time::Duration;

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
    /// Limits of running commands; `None` is unlimited.
    pub execution_limits: Option<ExecutionLimits>,
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
            execution_limits: None,
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
