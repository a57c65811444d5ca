//! The command line. Errors suggest the nearest option, or an example of a good value.
//!
//! The file depends only on clap and jiff, so that packaging/pages.rs can generate the man page and
//! shell completions from it alone.

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// A MongoDB-compatible document database in one small binary.
///
/// Without options it listens on 127.0.0.1:27017 and keeps all data in memory. Any MongoDB driver,
/// mongosh or Compass can connect.
#[derive(Parser, Debug)]
#[command(
    name = "vellum",
    version,
    long_version = concat!(env!("CARGO_PKG_VERSION"), ", follows MongoDB 8.2 (wire version 27)"),
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    disable_help_flag = true,
    max_term_width = 120,
    after_help = "Options can also be set in the environment (VELLUM_PORT=27018) or in the\n\
        file of --config (port = 27018). vellum --help-all explains all options.\n\n\
        Examples:\n  \
        vellum                             mongodb://127.0.0.1:27017/\n  \
        vellum --port 0 --parent-pipe      a free port; exits with its parent process\n  \
        vellum --data DIR                  documents on disk, durable within 100 ms\n  \
        vellum --data DIR --durability journaled   each write waits for the disk\n  \
        vellum --replset rs0               the primary of a replica set of one member"
)]
pub(crate) struct Cli {
    /// Without a verb: serve.
    #[command(subcommand)]
    pub(crate) verb: Option<Verb>,
    /// The options of `serve`, which need no verb.
    #[command(flatten)]
    pub(crate) serve: ServeOptions,
}

/// Verbs of the program.
#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Serve clients (the default verb)
    #[command(disable_help_flag = true)]
    Serve(Box<ServeOptions>),
    /// Check that a server answers: exit code 0 if it does
    #[command(disable_help_flag = true)]
    Ping(PingOptions),
    /// Recommend a cache size from the reads of a server
    #[command(disable_help_flag = true)]
    Advise(AdviseOptions),
    /// Copy all data of a running server or of a data directory
    #[command(
        disable_help_flag = true,
        override_usage = "vellum backup [OPTIONS] [URI] TO\n       vellum backup [OPTIONS] --data <DIR> TO"
    )]
    Backup(BackupOptions),
    /// Make a data directory from a backup, as of any moment
    #[command(disable_help_flag = true)]
    Restore(RestoreOptions),
    /// Check a data directory or a backup: exit code 0 if it is sound
    #[command(disable_help_flag = true)]
    Verify(VerifyOptions),
    /// Show a server's activity, every second
    #[command(disable_help_flag = true)]
    Top(TopOptions),
    /// Serve with mongod's options, like a program named mongod
    #[command(disable_help_flag = true)]
    Mongod(PassthroughArgs),
    /// Measure servers with the program vellum-lab
    #[command(disable_help_flag = true)]
    Lab(PassthroughArgs),
}

/// Words for another parser.
#[derive(Args, Clone, Debug)]
pub(crate) struct PassthroughArgs {
    /// Options, which --help lists
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub(crate) words: Vec<OsString>,
}

/// The server of a verb.
#[derive(Args, Clone, Debug)]
pub(crate) struct TargetServer {
    /// Connection string of the server
    #[arg(default_value = "mongodb://127.0.0.1:27017/")]
    pub(crate) uri: String,

    /// Timeout of a reply in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout: u64,
}

/// The options of `ping`.
#[derive(Args, Clone, Debug)]
pub(crate) struct PingOptions {
    /// The server.
    #[command(flatten)]
    pub(crate) target: TargetServer,

    /// Print nothing
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// Print help
    #[arg(long, short, action = ArgAction::HelpShort)]
    pub(crate) help: Option<bool>,
}

/// The options of `advise`.
#[derive(Args, Clone, Debug)]
pub(crate) struct AdviseOptions {
    /// The server.
    #[command(flatten)]
    pub(crate) target: TargetServer,

    /// Print the complete curves as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Print help
    #[arg(long, short, action = ArgAction::HelpShort)]
    pub(crate) help: Option<bool>,
}

/// The options of `backup`.
#[derive(Args, Clone, Debug)]
pub(crate) struct BackupOptions {
    /// Connection string of the server, unless --data is given, and the target directory
    ///
    /// The target is new, empty, or holds earlier backups. With earlier backups only the commits since are added, if
    /// the journal still has them. Default of the connection string: mongodb://127.0.0.1:27017/. Users need the role
    /// backup.
    #[arg(value_name = "PLACES", required = true, num_args = 1..=2)]
    pub(crate) arguments: Vec<String>,

    /// Read this data directory, without a server
    #[arg(long, value_name = "DIR", value_parser = directory())]
    pub(crate) data: Option<PathBuf>,

    /// Journal of the data directory, if outside of it
    #[arg(long, value_name = "DIR", requires = "data")]
    pub(crate) journal_dir: Option<PathBuf>,

    /// Journal archive of the data directory
    #[arg(long, value_name = "DIR", requires = "data")]
    pub(crate) journal_archive: Option<PathBuf>,

    /// Copy all data even if the changes would suffice
    #[arg(long)]
    pub(crate) full: bool,

    /// Timeout of each reply in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 60_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout: u64,

    /// Print only errors
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// Print help
    #[arg(long, short, action = ArgAction::HelpShort)]
    pub(crate) help: Option<bool>,
}

/// The options of `restore`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RestoreOptions {
    /// Directory of the backup
    #[arg(value_parser = directory())]
    pub(crate) from: PathBuf,

    /// Data directory to make: new or empty
    #[arg(long, value_name = "DIR", value_parser = directory())]
    pub(crate) data: PathBuf,

    /// Moment to restore. Default: the latest
    ///
    /// A time such as 2026-11-23T10:00:00Z restores all commits before that second began. A cluster time,
    /// SECONDS,INCREMENT, restores all commits up to this one, inclusive.
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub(crate) at: Option<u64>,

    /// Journal archive
    ///
    /// May be given several times. The journal directory of a data directory works, too.
    #[arg(long, value_name = "DIR")]
    pub(crate) journal_archive: Vec<PathBuf>,

    /// Memory to use
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_size)]
    pub(crate) cache_size: u64,

    /// Print only errors
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// Print help
    #[arg(long, short, action = ArgAction::HelpShort)]
    pub(crate) help: Option<bool>,
}

/// The options of `verify`.
#[derive(Args, Clone, Debug)]
pub(crate) struct VerifyOptions {
    /// Backup, or data directory without a running server
    #[arg(value_parser = directory())]
    pub(crate) path: PathBuf,

    /// Journal of the data directory, if outside of it
    #[arg(long, value_name = "DIR")]
    pub(crate) journal_dir: Option<PathBuf>,

    /// Journal archive to read with a backup
    #[arg(long, value_name = "DIR")]
    pub(crate) journal_archive: Vec<PathBuf>,

    /// Directory for a test restore of a backup. Default: the system's temporary directory
    #[arg(long, value_name = "DIR")]
    pub(crate) scratch: Option<PathBuf>,

    /// Memory to use
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_size)]
    pub(crate) cache_size: u64,

    /// Print help
    #[arg(long, short, action = ArgAction::HelpShort)]
    pub(crate) help: Option<bool>,
}

/// The options of `top`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TopOptions {
    /// The server.
    #[command(flatten)]
    pub(crate) target: TargetServer,

    /// Seconds between two updates
    #[arg(long, short, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    pub(crate) interval: f64,

    /// Collections to show. Default: 10 on a terminal, otherwise none
    #[arg(long, value_name = "NUMBER")]
    pub(crate) rows: Option<usize>,

    /// Updates until the program ends
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,

    /// Print help
    #[arg(long, short, action = ArgAction::HelpShort)]
    pub(crate) help: Option<bool>,
}

/// The options of `serve`. The first line of each is what --help prints: beyond 42 characters with the default, clap
/// would give every option two lines. Man pages have the rest.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServeOptions {
    /// Address to listen on
    ///
    /// Without --auth every client that can reach it can read and write. 127.0.0.1 accepts local clients only.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = parse_address)]
    pub(crate) bind: IpAddr,

    /// Port, 0 for a free one
    ///
    /// The first line of the output shows the port.
    #[arg(long, value_name = "PORT", default_value_t = 27017, value_parser = clap::value_parser!(u16))]
    pub(crate) port: u16,

    /// Storage: memory, disk or postgres
    ///
    /// Default: disk with --data, postgres with --postgres, otherwise memory.
    #[arg(long, value_enum, hide_possible_values = true)]
    pub(crate) engine: Option<Engine>,

    /// Data directory
    ///
    /// The server creates it if it does not exist.
    #[arg(long, value_name = "DIR", required_if_eq("engine", "disk"), value_parser = directory())]
    pub(crate) data: Option<PathBuf>,

    /// Accept other files in a new --data
    ///
    /// By default a new directory that holds other files is refused. Logs, pid files, dotfiles, lost+found and files
    /// that other options name are always accepted. MongoDB's files are always refused.
    #[arg(long, requires = "data", hide_short_help = true)]
    pub(crate) allow_other_files: bool,

    /// Durability of writes
    ///
    /// A write concern can ask for more. none: only a write concern syncs the journal, for tests. relaxed: the journal
    /// is synced at an interval, as in MongoDB. journaled: every write waits for a sync, and waiting writes share
    /// syncs.
    #[arg(long, value_name = "LEVEL", value_enum, requires = "data", hide_possible_values = true,
        default_value_t = Durability::Relaxed)]
    pub(crate) durability: Durability,

    /// Milliseconds between journal syncs
    ///
    /// For --durability relaxed: 1 to 500.
    #[arg(long, hide_short_help = true, value_name = "MS", requires = "data", default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(1..=500))]
    pub(crate) journal_commit_interval: u64,

    /// Cache for documents
    ///
    /// Memory for documents read and changed, such as 512M or 4G.
    #[arg(long, value_name = "BYTES", requires = "data", default_value = "256M", value_parser = parse_size)]
    pub(crate) cache_size: u64,

    /// Compression of documents on disk
    ///
    /// For pages written from now on: none, lz4, or zstd. zstd makes pages smaller and takes several times as long.
    #[arg(long, value_name = "METHOD", value_enum, requires = "data", hide_possible_values = true,
        hide_short_help = true, default_value_t = Compression::Lz4)]
    pub(crate) compression: Compression,

    /// Directory for the journal
    ///
    /// It may be on another volume. Give this option at every start.
    #[arg(long, value_name = "DIR", requires = "data")]
    pub(crate) journal_dir: Option<PathBuf>,

    /// Archive of the journal
    ///
    /// Checkpoints copy commits there before the journal drops them, for point-in-time restores: see docs/backup.md.
    /// The server keeps the files forever unless --journal-archive-keep is given.
    #[arg(long, value_name = "DIR", hide_short_help = true, requires = "data")]
    pub(crate) journal_archive: Option<PathBuf>,

    /// Retention of the archive
    ///
    /// Such as 7d, 12h or 30m.
    #[arg(long, value_name = "TIME", hide_short_help = true, requires = "journal_archive", value_parser = parse_duration)]
    pub(crate) journal_archive_keep: Option<Duration>,

    /// Scripts for a new data directory
    ///
    /// mongosh runs the *.js files of this directory in the order of their names, before the server first serves a new
    /// data directory.
    #[arg(long, hide_short_help = true, value_name = "DIR", requires = "data")]
    pub(crate) init_scripts: Option<PathBuf>,

    /// Save the sound data of --data and exit
    ///
    /// The server rebuilds indexes and prints losses.
    #[arg(long, requires = "data")]
    pub(crate) repair: bool,

    /// Memory limit of the process
    ///
    /// Such as 512M or 4G. Near the limit, writes that enlarge data in memory fail. Beyond it, the largest operations
    /// fail. Default: nine tenths of the control group's limit, or of the machine's memory.
    #[arg(long, value_name = "BYTES", hide_short_help = true, value_parser = parse_size)]
    pub(crate) memory_limit: Option<u64>,

    /// Maximum number of open connections
    ///
    /// Further connections are refused. Four fifths of the process's file limit is a second maximum.
    #[arg(long, hide_short_help = true, value_name = "NUMBER", default_value_t = 65536,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_connections: u32,

    /// Microseconds to poll for the next request of a single client
    ///
    /// Polling reduces the latency of a client that sends one request after the other. The server polls rarely if it
    /// finds no requests or several connections are active. Default: 100 with several processors, at most 1000.
    /// 0 turns polling off.
    #[arg(long, hide_short_help = true, value_name = "MICROS", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) busy_poll: Option<u32>,

    /// PostgreSQL server for the documents
    ///
    /// A connection string of libpq: 'host=a,b user=u …' or postgres://…. Several processes may share one server.
    /// `getCmdLineOpts` omits its password. Other users of the machine can read command lines: set PGPASSWORD or
    /// PGPASSFILE instead.
    #[arg(long, value_name = "CONNECTION", required_if_eq("engine", "postgres"),
        conflicts_with_all = ["data", "replset"])]
    pub(crate) postgres: Option<String>,

    /// Schema in the PostgreSQL server
    ///
    /// The server creates it if it does not exist.
    #[arg(
        long,
        value_name = "NAME",
        requires = "postgres",
        hide_short_help = true,
        default_value = "vellum"
    )]
    pub(crate) postgres_schema: String,

    /// Run as a replica set with this name
    ///
    /// The set has one member, which is initiated and primary from the first reply. Transactions and change streams
    /// need a set.
    #[arg(long, alias = "replSet", value_name = "NAME", value_parser = parse_set_name)]
    pub(crate) replset: Option<String>,

    /// Size of the oplog
    ///
    /// Bytes of changes to keep for change streams. Default: 64M. In PostgreSQL the default is the last value given, or
    /// 1G, and 0 keeps no changes.
    #[arg(long, value_name = "BYTES", value_parser = parse_log_size)]
    pub(crate) oplog_size: Option<u64>,

    /// Address that the set reports to clients
    ///
    /// Default: the address that each client connected to.
    #[arg(long, value_name = "HOST:PORT", requires = "replset", hide_short_help = true,
        value_parser = parse_advertised)]
    pub(crate) advertise: Option<String>,

    /// Require users to log in
    ///
    /// Roles limit each user. MONGO_INITDB_ROOT_USERNAME and _PASSWORD create the first user and turn this option on.
    /// While no user exists, a client on this machine may create the first user.
    #[arg(long, overrides_with = "no_auth")]
    pub(crate) auth: bool,

    /// Require no login, even if users exist
    ///
    /// For a lost administrator password: start on a loopback address and set a new password.
    #[arg(long, hide_short_help = true, overrides_with = "auth")]
    pub(crate) no_auth: bool,

    /// Exit when standard input closes
    ///
    /// A test run then leaves no server behind.
    #[arg(long)]
    pub(crate) parent_pipe: bool,

    /// Connections with TLS
    ///
    /// disabled: no TLS. allow and prefer: connections with and without TLS. require: TLS only. The options that follow
    /// name the files.
    #[arg(long, value_name = "MODE", value_enum, hide_possible_values = true, default_value_t = TlsMode::Disabled,
        requires_ifs = [("allow", "tls_certificate_key_file"), ("prefer", "tls_certificate_key_file"),
            ("require", "tls_certificate_key_file")])]
    pub(crate) tls_mode: TlsMode,

    /// Other options of TLS.
    #[command(flatten)]
    pub(crate) tls: TlsFiles,

    /// Serve a page and /metrics over HTTP
    ///
    /// Such as 127.0.0.1:9216, or 9216 for loopback only. The page shows the activity of the server, /metrics is for
    /// Prometheus, and /healthz and /readyz are health checks. With --tls-mode it is HTTPS. With --auth the page and
    /// /metrics need a login.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_http)]
    pub(crate) http: Option<SocketAddr>,

    /// Host name of the HTTP listener
    ///
    /// A comma-separated list. Addresses and localhost need no entry. Other names are refused, against DNS rebinding.
    #[arg(long, value_name = "NAME", hide_short_help = true, requires = "http", value_delimiter = ',')]
    pub(crate) http_host: Vec<String>,

    /// Allow clients to set clock and fail points
    ///
    /// Default: true on a loopback address without --auth.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true,
        hide_possible_values = true)]
    pub(crate) test_commands: Option<bool>,

    /// MongoDB version to follow: 8.0, 8.2 or 9.0
    ///
    /// For buildInfo, hello, featureCompatibilityVersion and a few rules, such as null behind arrays in 9.0: see
    /// docs/compatibility.md. Other error codes and texts are those of 8.2.
    #[arg(long, value_name = "VERSION", value_enum, hide_short_help = true, hide_possible_values = true,
        default_value_t = CompatibleWith::V8_2)]
    pub(crate) compatible_with: CompatibleWith,

    /// Report scans and sorts without an index
    ///
    /// At exit, and in the command strictReport: collection scans, in-memory sorts, unused and duplicate indexes.
    #[arg(long)]
    pub(crate) strict: bool,

    /// Log level
    ///
    /// error, warn, info, debug or trace. Default: info, or warn if the log goes to a terminal.
    #[arg(long, value_name = "LEVEL", value_enum, hide_possible_values = true)]
    pub(crate) log_level: Option<LogLevel>,

    /// Log format: text or json
    ///
    /// A JSON line has the format of mongod's log.
    #[arg(long, value_name = "FORMAT", value_enum, hide_possible_values = true, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,

    /// Log file instead of standard error
    ///
    /// SIGUSR1 starts a new file. SIGHUP reopens the file.
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,

    /// TOML file of these options
    ///
    /// The command line and the environment take precedence.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Print help
    #[arg(long, short, action = ArgAction::HelpShort)]
    help: Option<bool>,

    /// Print all options with details
    #[arg(long, hide_short_help = true, action = ArgAction::HelpLong)]
    help_all: Option<bool>,
}

/// The options of TLS that --help leaves to the man page.
#[derive(Args, Clone, Debug)]
pub(crate) struct TlsFiles {
    /// Certificate and key of the server
    ///
    /// One PEM file with both. Intermediate certificates may follow. SIGHUP and the command rotateCertificates reload
    /// it.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) tls_certificate_key_file: Option<PathBuf>,

    /// Password of an encrypted key
    ///
    /// Other users of this machine can see it in the process list. The environment
    /// (VELLUM_TLS_CERTIFICATE_KEY_FILE_PASSWORD) or a file hides it.
    #[arg(
        long,
        value_name = "PASSWORD",
        hide_short_help = true,
        requires = "tls_certificate_key_file",
        conflicts_with = "tls_certificate_key_file_password_file"
    )]
    pub(crate) tls_certificate_key_file_password: Option<String>,

    /// File with the password of an encrypted key
    ///
    /// The password is its first line.
    #[arg(long, value_name = "FILE", hide_short_help = true, requires = "tls_certificate_key_file")]
    pub(crate) tls_certificate_key_file_password_file: Option<PathBuf>,

    /// Authorities of client certificates
    ///
    /// A PEM file. A client's certificate must be signed by one of these authorities. Without this option the server
    /// requests no certificates.
    #[arg(long, value_name = "FILE", hide_short_help = true, requires = "tls_certificate_key_file")]
    pub(crate) tls_ca_file: Option<PathBuf>,

    /// Revoked client certificates
    ///
    /// A PEM file of revocation lists.
    #[arg(long, value_name = "FILE", hide_short_help = true, requires = "tls_ca_file")]
    pub(crate) tls_crl_file: Option<PathBuf>,

    /// Accept clients without a certificate
    ///
    /// For use with --tls-ca-file. The server still checks certificates that clients send.
    #[arg(long, hide_short_help = true, requires = "tls_ca_file")]
    pub(crate) tls_allow_connections_without_certificates: bool,

    /// TLS versions to disable
    ///
    /// A comma-separated list of TLS1_0, TLS1_1, TLS1_2 and TLS1_3. The first two are always disabled.
    #[arg(long, value_name = "LIST", hide_short_help = true, requires = "tls_certificate_key_file")]
    pub(crate) tls_disabled_protocols: Option<String>,
}

/// Whether connections need TLS.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq)]
pub(crate) enum TlsMode {
    /// TLS is off
    Disabled,
    /// Connections with and without TLS
    Allow,
    /// Equal to allow
    Prefer,
    /// TLS only
    Require,
}

/// Options that require a data directory.
pub(crate) const DISK_OPTIONS: &[&str] = &[
    "data",
    "allow-other-files",
    "durability",
    "journal-commit-interval",
    "cache-size",
    "compression",
    "journal-dir",
    "journal-archive",
    "journal-archive-keep",
    "init-scripts",
    "repair",
];

/// Options that require a PostgreSQL server.
pub(crate) const POSTGRES_OPTIONS: &[&str] = &["postgres", "postgres-schema"];

/// The engines.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq)]
pub(crate) enum Engine {
    /// In memory: data is lost when the process ends
    Memory,
    /// On disk, in the directory of --data
    Disk,
    /// In the PostgreSQL server of --postgres, which several processes may share
    Postgres,
}

/// Durability of writes without a write concern of `j: true`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq)]
pub(crate) enum Durability {
    /// Only a write concern syncs the journal: for tests
    None,
    /// The journal is synced at an interval, as in MongoDB
    Relaxed,
    /// Every write waits for a sync, and waiting writes share syncs
    Journaled,
}

/// The MongoDB versions that can be presented.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq)]
pub(crate) enum CompatibleWith {
    /// MongoDB 8.0
    #[value(name = "8.0")]
    V8_0,
    /// MongoDB 8.2
    #[value(name = "8.2")]
    V8_2,
    /// MongoDB 9.0
    #[value(name = "9.0")]
    V9_0,
}

/// Compression of pages of the data files.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq)]
pub(crate) enum Compression {
    /// No compression
    None,
    /// LZ4
    Lz4,
    /// Zstandard at its fastest level
    Zstd,
}

/// Log levels.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum LogLevel {
    /// Errors
    Error,
    /// And warnings
    Warn,
    /// And rare events
    Info,
    /// And frequent events
    Debug,
    /// And all other events
    Trace,
}

/// Formats of log lines.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq)]
pub(crate) enum LogFormat {
    /// Text for people
    Text,
    /// JSON in mongod's format
    Json,
}

/// Returns true for a connection string.
pub(crate) fn is_server_address(text: &str) -> bool {
    text.starts_with("mongodb://") || text.starts_with("mongodb+srv://")
}

/// Parses a directory. The address of a server would become a directory of this name.
fn directory() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|text| match text.to_str().is_some_and(is_server_address) {
        true => Err("this is the address of a server, and a directory is needed"),
        false => Ok(PathBuf::from(text)),
    })
}

/// Parses a number of seconds.
fn parse_interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds between 0.1 and 3600".to_string()),
    }
}

/// Parses the size of an oplog: as [`parse_size`], or 0.
fn parse_log_size(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { parse_size(text) }
}

/// Parses a duration: a number with s, m, h or d.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];
    let unit = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(*unit)?, *seconds)));
    let seconds = unit.and_then(|(number, each)| number.parse::<u64>().ok()?.checked_mul(each));
    match seconds {
        Some(seconds @ 1..) => Ok(Duration::from_secs(seconds)),
        _ => Err("expected a duration, such as 7d, 12h, 30m or 90s".to_string()),
    }
}

/// Parses a moment: a time in RFC 3339, or a cluster time. Returns the greatest cluster time before
/// or at it.
pub(crate) fn parse_moment(text: &str) -> Result<u64, String> {
    if let Some((seconds, increment)) = text.split_once(',') {
        return match (seconds.parse::<u32>(), increment.parse::<u32>()) {
            (Ok(seconds), Ok(increment)) => Ok(u64::from(seconds) << 32 | u64::from(increment)),
            _ => Err("expected SECONDS,INCREMENT, such as 1790000000,3".to_string()),
        };
    }
    let hint = "expected a time such as 2026-11-23T10:00:00Z, or SECONDS,INCREMENT";
    let moment: jiff::Timestamp = text.parse().map_err(|_| hint.to_string())?;
    if moment.subsec_nanosecond() != 0 {
        return Err("the resolution is one second: omit the fraction, or give SECONDS,INCREMENT".to_string());
    }
    match u32::try_from(moment.as_second()) {
        Ok(seconds @ 1..) => Ok((u64::from(seconds) << 32) - 1),
        _ => Err(hint.to_string()),
    }
}

/// Parses a number of bytes, with K, M or G for powers of 1024.
fn parse_size(text: &str) -> Result<u64, String> {
    const LEAST: u64 = 16 << 20;
    let (number, shift) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (text.get(..at), 10),
        Some((at, 'm' | 'M')) => (text.get(..at), 20),
        Some((at, 'g' | 'G')) => (text.get(..at), 30),
        _ => (Some(text), 0),
    };
    let number = number.and_then(|number| number.parse::<u64>().ok());
    match number.and_then(|number| number.checked_mul(1 << shift)) {
        Some(bytes) if bytes >= LEAST => Ok(bytes),
        Some(_) => Err("the minimum is 16M".to_string()),
        None => Err("expected a number of bytes, such as 268435456, 512M or 4G".to_string()),
    }
}

/// Parses a listening address.
pub(crate) fn parse_address(text: &str) -> Result<IpAddr, String> {
    if text == "localhost" {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    let hint = "not an IP address. Use 127.0.0.1 for this machine only, or 0.0.0.0 for all networks";
    text.parse().map_err(|_| hint.to_string())
}

/// Parses an address with port, or a port on the loopback address.
fn parse_http(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    let of_name = text.strip_prefix("localhost:").and_then(|port| port.parse::<u16>().ok());
    match of_name {
        Some(port) => Ok((Ipv4Addr::LOCALHOST, port).into()),
        None => {
            text.parse().map_err(|_| "expected ADDRESS:PORT, such as 127.0.0.1:9216, or a port".to_string())
        }
    }
}

/// Parses the name of a replica set.
pub(crate) fn parse_set_name(text: &str) -> Result<String, String> {
    let is_good = !text.is_empty()
        && text.len() <= 64
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    if is_good {
        Ok(text.to_string())
    } else {
        Err("a name may contain letters, digits, '-', '_' and '.'".to_string())
    }
}

fn parse_advertised(text: &str) -> Result<String, String> {
    // Clients compare addresses in lower case.
    let is_good = text
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0));
    if is_good {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("expected HOST:PORT, such as db.example:27017".to_string())
    }
}
