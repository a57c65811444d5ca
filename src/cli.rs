//! The command line. Errors suggest the nearest option, or an example of a good value.
//!
//! The file depends only on clap and jiff, so that packaging/pages.rs can generate the man page and
//! shell completions from it alone.

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// A MongoDB-compatible document database in one small binary.
///
/// Without options it listens on 127.0.0.1:27017 and keeps everything in memory. Any MongoDB driver,
/// mongosh or Compass connects.
#[derive(Parser, Debug)]
#[command(
    name = "vellum",
    version,
    long_version = concat!(env!("CARGO_PKG_VERSION"), ", follows MongoDB 8.2 (wire version 27)"),
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    disable_help_flag = true,
    max_term_width = 120,
    after_help = "Each option can also stand in the environment (VELLUM_PORT=27018) or in the\n\
        file of --config (port = 27018). vellum --help-all explains all options.\n\n\
        Examples:\n  \
        vellum                             mongodb://127.0.0.1:27017/\n  \
        vellum --port 0 --parent-pipe      a free port; ends with its parent process\n  \
        vellum --data DIR                  documents on disk, durable within 100 ms\n  \
        vellum --data DIR --durability journaled   each write waits for the disk\n  \
        vellum --replset rs0               the primary of a replica set of one member"
)]
pub(crate) struct Cli {
    /// What to do; without a verb, serve.
    #[command(subcommand)]
    pub(crate) verb: Option<Verb>,
    /// The options of `serve`, which need no verb.
    #[command(flatten)]
    pub(crate) serve: ServeOptions,
}

/// The verbs.
#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Listen for clients and serve them (what happens without a verb, too)
    #[command(disable_help_flag = true)]
    Serve(Box<ServeOptions>),
    /// Ask a server whether it answers: exit code 0 if it does
    #[command(disable_help_flag = true)]
    Ping(PingOptions),
    /// Say how large a server's cache should be, from what was read
    #[command(disable_help_flag = true)]
    Advise(AdviseOptions),
    /// Copy all data of a running server, or of a directory
    #[command(
        disable_help_flag = true,
        override_usage = "vellum backup [OPTIONS] [URI] TO\n       vellum backup [OPTIONS] --data <DIR> TO"
    )]
    Backup(BackupOptions),
    /// Make a data directory of a backup, as of any moment
    #[command(disable_help_flag = true)]
    Restore(RestoreOptions),
    /// Read all of a data directory or a backup: exit code 0 if it is sound
    #[command(disable_help_flag = true)]
    Verify(VerifyOptions),
    /// Show what a server does, every second
    #[command(disable_help_flag = true)]
    Top(TopOptions),
    /// Serve with mongod's own options, as a program called mongod does
    #[command(disable_help_flag = true)]
    Mongod(Words),
    /// Measure servers: runs the program vellum-lab
    #[command(disable_help_flag = true)]
    Lab(Words),
}

/// Words that somebody else makes sense of.
#[derive(Args, Clone, Debug)]
pub(crate) struct Words {
    /// Options, which --help lists
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub(crate) words: Vec<OsString>,
}

/// The server that a verb asks.
#[derive(Args, Clone, Debug)]
pub(crate) struct Asked {
    /// The server's connection string
    #[arg(default_value = "mongodb://127.0.0.1:27017/")]
    pub(crate) uri: String,

    /// How long to wait for an answer, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout: u64,
}

/// The options of `ping`.
#[derive(Args, Clone, Debug)]
pub(crate) struct PingOptions {
    /// The server.
    #[command(flatten)]
    pub(crate) asked: Asked,

    /// Say nothing, not even that it answered
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// Print this
    #[arg(long, short, action = ArgAction::HelpShort)]
    pub(crate) help: Option<bool>,
}

/// The options of `advise`.
#[derive(Args, Clone, Debug)]
pub(crate) struct AdviseOptions {
    /// The server.
    #[command(flatten)]
    pub(crate) asked: Asked,

    /// Print the whole curves as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Print this
    #[arg(long, short, action = ArgAction::HelpShort)]
    pub(crate) help: Option<bool>,
}

/// The options of `backup`.
#[derive(Args, Clone, Debug)]
pub(crate) struct BackupOptions {
    /// The server's connection string, unless --data is given, and the directory to write to
    ///
    /// The directory may be new, empty, or hold earlier backups: then only what has been committed since is added, if
    /// the journal still has it. Without a connection string it is mongodb://127.0.0.1:27017/. Users need the role
    /// backup.
    #[arg(value_name = "PLACES", required = true, num_args = 1..=2)]
    pub(crate) places: Vec<String>,

    /// Read this data directory, which no server has open
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// Where its journal is, if not in it
    #[arg(long, value_name = "DIR", requires = "data")]
    pub(crate) journal_dir: Option<PathBuf>,

    /// Where its journal is kept beyond checkpoints
    #[arg(long, value_name = "DIR", requires = "data")]
    pub(crate) journal_archive: Option<PathBuf>,

    /// Copy everything, though changes would do
    #[arg(long)]
    pub(crate) full: bool,

    /// How long to wait for each answer, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 60_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout: u64,

    /// Say nothing where all goes well
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// Print this
    #[arg(long, short, action = ArgAction::HelpShort)]
    pub(crate) help: Option<bool>,
}

/// The options of `restore`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RestoreOptions {
    /// The directory with the backup
    pub(crate) from: PathBuf,

    /// The data directory to make: new or empty
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,

    /// The moment to restore, if not the latest there is
    ///
    /// A time such as 2026-11-23T10:00:00Z: everything committed before that second began. Or a cluster time,
    /// SECONDS,INCREMENT: everything up to and with that commit.
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub(crate) at: Option<u64>,

    /// Where the journal was kept beyond checkpoints
    ///
    /// Several times, if it is in several places; the journal's own directory of a data directory is one, too.
    #[arg(long, value_name = "DIR")]
    pub(crate) journal_archive: Vec<PathBuf>,

    /// Memory to take
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_size)]
    pub(crate) cache_size: u64,

    /// Say nothing where all goes well
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// Print this
    #[arg(long, short, action = ArgAction::HelpShort)]
    pub(crate) help: Option<bool>,
}

/// The options of `verify`.
#[derive(Args, Clone, Debug)]
pub(crate) struct VerifyOptions {
    /// A data directory that no server has open, or a backup
    pub(crate) place: PathBuf,

    /// Where a data directory's journal is, if not in it
    #[arg(long, value_name = "DIR")]
    pub(crate) journal_dir: Option<PathBuf>,

    /// Where the journal was kept beyond checkpoints, to be read with a backup
    #[arg(long, value_name = "DIR")]
    pub(crate) journal_archive: Vec<PathBuf>,

    /// Where a backup is restored to, to look through it: the system's temporary directory, unless said
    #[arg(long, value_name = "DIR")]
    pub(crate) scratch: Option<PathBuf>,

    /// Memory to take
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_size)]
    pub(crate) cache_size: u64,

    /// Print this
    #[arg(long, short, action = ArgAction::HelpShort)]
    pub(crate) help: Option<bool>,
}

/// The options of `top`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TopOptions {
    /// The server.
    #[command(flatten)]
    pub(crate) asked: Asked,

    /// Seconds from one look to the next
    #[arg(long, short, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    pub(crate) interval: f64,

    /// Collections shown: 10 on a terminal, else none
    #[arg(long, value_name = "NUMBER")]
    pub(crate) rows: Option<usize>,

    /// Looks, after which to end
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,

    /// Print this
    #[arg(long, short, action = ArgAction::HelpShort)]
    pub(crate) help: Option<bool>,
}

/// The options of `serve`. The first line of each is what --help prints: beyond 42 characters with the default, clap
/// would give every option two lines. Man pages have the rest.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServeOptions {
    /// Address to listen on
    ///
    /// Without --auth anyone who reaches it can read and write: 127.0.0.1 serves this machine alone.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = parse_address)]
    pub(crate) bind: IpAddr,

    /// Port, 0 for a free one
    ///
    /// The first line printed tells which port was taken.
    #[arg(long, value_name = "PORT", default_value_t = 27017, value_parser = clap::value_parser!(u16))]
    pub(crate) port: u16,

    /// Where: memory, disk or postgres
    ///
    /// Unless said, on disk if --data is given, in PostgreSQL if --postgres is, else in memory.
    #[arg(long, value_enum, hide_possible_values = true)]
    pub(crate) engine: Option<Engine>,

    /// Directory to keep documents in
    ///
    /// It is made if it isn't there.
    #[arg(long, value_name = "DIR", required_if_eq("engine", "disk"))]
    pub(crate) data: Option<PathBuf>,

    /// Accept other files in a new --data
    ///
    /// Without it a directory that holds other files than Vellum's is refused. Logs, files of process ids, names that begin with a dot, lost+found and files that other options name may be there anyhow. MongoDB's files are refused in any case.
    #[arg(long, requires = "data", hide_short_help = true)]
    pub(crate) allow_other_files: bool,

    /// What a write survives
    ///
    /// It is for writes that don't ask for more. none: the journal is never synced unasked, for tests; relaxed: it is synced every so often, as MongoDB's; journaled: every write waits for a sync, which it shares with all that wait.
    #[arg(long, value_name = "LEVEL", value_enum, requires = "data", hide_possible_values = true,
        default_value_t = Durability::Relaxed)]
    pub(crate) durability: Durability,

    /// Milliseconds between syncs
    ///
    /// It holds where durability is relaxed.
    #[arg(long, hide_short_help = true, value_name = "MS", requires = "data", default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(1..=500))]
    pub(crate) journal_commit_interval: u64,

    /// Memory for documents
    ///
    /// For those read and changed: such as 512M or 4G.
    #[arg(long, value_name = "BYTES", requires = "data", default_value = "256M", value_parser = parse_size)]
    pub(crate) cache_size: u64,

    /// Compression of documents on disk
    ///
    /// Of pages written from now on: none, lz4, or zstd, which makes them smaller and takes several times as long.
    #[arg(long, value_name = "METHOD", value_enum, requires = "data", hide_possible_values = true,
        hide_short_help = true, default_value_t = Compression::Lz4)]
    pub(crate) compression: Compression,

    /// Directory for the journal
    ///
    /// It may be on another volume, and has to be named at every start.
    #[arg(long, value_name = "DIR", requires = "data")]
    pub(crate) journal_dir: Option<PathBuf>,

    /// Directory to keep the journal in
    ///
    /// What checkpoints make superfluous goes there, for backups to restore any moment from: see docs/backup.md. It is kept for ever, unless --journal-archive-keep is given.
    #[arg(long, value_name = "DIR", hide_short_help = true, requires = "data")]
    pub(crate) journal_archive: Option<PathBuf>,

    /// How long to keep it
    ///
    /// Such as 7d, 12h or 30m.
    #[arg(long, value_name = "TIME", hide_short_help = true, requires = "journal_archive", value_parser = parse_duration)]
    pub(crate) journal_archive_keep: Option<Duration>,

    /// Scripts for mongosh to fill new --data
    ///
    /// A directory whose *.js mongosh runs, by name, before a new data directory is served.
    #[arg(long, hide_short_help = true, value_name = "DIR", requires = "data")]
    pub(crate) init_scripts: Option<PathBuf>,

    /// Save what is sound of --data, and exit
    ///
    /// Indexes are built anew, and what is lost is told.
    #[arg(long, requires = "data")]
    pub(crate) repair: bool,

    /// Memory for the process
    ///
    /// As it comes near, writes that make data in memory grow are refused; beyond it the largest operations end with an error. Unless said, nine tenths of what the control group has, or the machine: such as 512M or 4G.
    #[arg(long, value_name = "BYTES", hide_short_help = true, value_parser = parse_size)]
    pub(crate) memory_limit: Option<u64>,

    /// Connections open at once
    ///
    /// More are refused, as are those beyond four fifths of the files that the system lets the process open.
    #[arg(long, hide_short_help = true, value_name = "NUMBER", default_value_t = 65536,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_connections: u32,

    /// Microseconds to look for a lone client's next request before sleeping
    ///
    /// So a client that sends one request after the other is answered sooner. It stops where it is in vain, and while several connections have requests. Unless said, 50 where there are several processors; 0 is never.
    #[arg(long, hide_short_help = true, value_name = "MICROS", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) busy_poll: Option<u32>,

    /// PostgreSQL server to keep documents in
    ///
    /// As libpq takes it: 'host=a,b user=u …' or postgres://…; several processes may share one.
    #[arg(long, value_name = "CONNECTION", required_if_eq("engine", "postgres"),
        conflicts_with_all = ["data", "replset"])]
    pub(crate) postgres: Option<String>,

    /// Schema in that server
    ///
    /// It is made if it isn't there.
    #[arg(
        long,
        value_name = "NAME",
        requires = "postgres",
        hide_short_help = true,
        default_value = "vellum"
    )]
    pub(crate) postgres_schema: String,

    /// Be a replica set of one, of this name
    ///
    /// The set is initiated and its member the primary from the first reply; transactions and change streams need it.
    #[arg(long, value_name = "NAME", value_parser = parse_set_name)]
    pub(crate) replset: Option<String>,

    /// Changes kept for streams
    ///
    /// So many bytes of the latest changes are kept: 64M unless said; in PostgreSQL what was said last or 1G, and with 0 none.
    #[arg(long, value_name = "BYTES", value_parser = parse_log_size)]
    pub(crate) oplog_size: Option<u64>,

    /// Address that a set tells its clients
    ///
    /// It takes the place of the address that each client dialled.
    #[arg(long, value_name = "HOST:PORT", requires = "replset", hide_short_help = true,
        value_parser = parse_advertised)]
    pub(crate) advertise: Option<String>,

    /// Let users in, and nobody else
    ///
    /// Each may do what their roles allow. The first is made by MONGO_INITDB_ROOT_USERNAME and _PASSWORD, or by whoever is on this machine, as long as there is none. With a first user of the environment this goes without saying.
    #[arg(long, overrides_with = "no_auth")]
    pub(crate) auth: bool,

    /// Let everybody in, in spite of users
    ///
    /// Who has lost the last administrator's password gets in again so: on a loopback address, for as long as it takes.
    #[arg(long, hide_short_help = true, overrides_with = "auth")]
    pub(crate) no_auth: bool,

    /// Exit when standard input closes
    ///
    /// So no test run leaves a server behind.
    #[arg(long)]
    pub(crate) parent_pipe: bool,

    /// TLS: see man vellum
    ///
    /// disabled: nobody connects with TLS; allow and prefer: clients may connect with it and without; require: nobody connects without. The options that follow name its files.
    #[arg(long, value_name = "MODE", value_enum, hide_possible_values = true, default_value_t = TlsMode::Disabled,
        requires_ifs = [("allow", "tls_certificate_key_file"), ("prefer", "tls_certificate_key_file"),
            ("require", "tls_certificate_key_file")])]
    pub(crate) tls_mode: TlsMode,

    /// Other options of TLS.
    #[command(flatten)]
    pub(crate) tls: TlsFiles,

    /// Serve a page and /metrics by HTTP
    ///
    /// Such as 127.0.0.1:9216, or 9216 for this machine alone. The page shows what goes on, /metrics is for Prometheus, /healthz and /readyz for whoever watches over processes. With --tls-mode it is HTTPS, with --auth users log in.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_http)]
    pub(crate) http: Option<SocketAddr>,

    /// Name that HTTP is asked for by
    ///
    /// Several with commas between. Addresses and localhost need none: other names could be somebody else's page.
    #[arg(long, value_name = "NAME", hide_short_help = true, requires = "http", value_delimiter = ',')]
    pub(crate) http_host: Vec<String>,

    /// Let clients set clock and fail points
    ///
    /// Unless said, they may while --bind is a loopback address and nobody has to log in.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true,
        hide_possible_values = true)]
    pub(crate) test_commands: Option<bool>,

    /// MongoDB version to present: 8.0 or 8.2
    ///
    /// buildInfo, hello and featureCompatibilityVersion say it. Error codes and texts are those of 8.2 either way.
    #[arg(long, value_name = "VERSION", value_enum, hide_short_help = true, hide_possible_values = true,
        default_value_t = CompatibleWith::V8_2)]
    pub(crate) compatible_with: CompatibleWith,

    /// Report scans and sorts without an index
    ///
    /// At the end, and to the command strictReport: collection scans, in-memory sorts, unused and duplicate indexes.
    #[arg(long)]
    pub(crate) strict: bool,

    /// How much to log
    ///
    /// error, warn, info, debug or trace. Unless said, info; warn if the log goes to a terminal.
    #[arg(long, value_name = "LEVEL", value_enum, hide_possible_values = true)]
    pub(crate) log_level: Option<LogLevel>,

    /// Log lines as text or json
    ///
    /// A line of JSON is an object in mongod's form.
    #[arg(long, value_name = "FORMAT", value_enum, hide_possible_values = true, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,

    /// File to log to, not standard error
    ///
    /// SIGUSR1 begins a new file, SIGHUP opens it again.
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,

    /// TOML file of these options
    ///
    /// The command line and the environment go before it.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Print this
    #[arg(long, short, action = ArgAction::HelpShort)]
    help: Option<bool>,

    /// Print all options, and more about each
    #[arg(long, hide_short_help = true, action = ArgAction::HelpLong)]
    help_all: Option<bool>,
}

/// The options of TLS that --help leaves to the man page.
#[derive(Args, Clone, Debug)]
pub(crate) struct TlsFiles {
    /// Certificate and key of the server
    ///
    /// One PEM file with both; certificates that lead to the authority's may follow. SIGHUP and the command rotateCertificates read it again.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) tls_certificate_key_file: Option<PathBuf>,

    /// Password of an encrypted key
    ///
    /// Others on this machine see it among the processes: the environment (VELLUM_TLS_CERTIFICATE_KEY_FILE_PASSWORD) or a file hide it.
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
    /// Its first line is the password.
    #[arg(long, value_name = "FILE", hide_short_help = true, requires = "tls_certificate_key_file")]
    pub(crate) tls_certificate_key_file_password_file: Option<PathBuf>,

    /// Authorities of clients' certificates
    ///
    /// A PEM file of certificates, one of which must have signed a client's. Without it clients are asked for none.
    #[arg(long, value_name = "FILE", hide_short_help = true, requires = "tls_certificate_key_file")]
    pub(crate) tls_ca_file: Option<PathBuf>,

    /// Certificates of clients that are no longer good
    ///
    /// A PEM file of revocation lists.
    #[arg(long, value_name = "FILE", hide_short_help = true, requires = "tls_ca_file")]
    pub(crate) tls_crl_file: Option<PathBuf>,

    /// Let in clients without a certificate
    ///
    /// With --tls-ca-file; a certificate that is shown is still checked.
    #[arg(long, hide_short_help = true, requires = "tls_ca_file")]
    pub(crate) tls_allow_connections_without_certificates: bool,

    /// Versions of TLS not to use
    ///
    /// Out of TLS1_0, TLS1_1, TLS1_2 and TLS1_3, with commas between; the first two are never used.
    #[arg(long, value_name = "LIST", hide_short_help = true, requires = "tls_certificate_key_file")]
    pub(crate) tls_disabled_protocols: Option<String>,
}

/// Who may connect without TLS.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq)]
pub(crate) enum TlsMode {
    /// Everybody: there is none
    Disabled,
    /// Everybody, and TLS is taken from whoever begins with it
    Allow,
    /// The same
    Prefer,
    /// Nobody
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

/// The engines.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq)]
pub(crate) enum Engine {
    /// In memory: nothing is written to disk, and everything is gone when the process ends
    Memory,
    /// On disk, in the directory of --data
    Disk,
    /// In the PostgreSQL server of --postgres, which several processes may share
    Postgres,
}

/// What a write survives without asking for more; a write that asks for j: true always gets it.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq)]
pub(crate) enum Durability {
    /// The journal is never synced unasked: for tests of what a durable server does
    None,
    /// Journaled at once, synced every so often: what MongoDB does
    Relaxed,
    /// Every write waits for a sync, which it shares with all that wait
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
}

/// How pages of the data files are compressed.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq)]
pub(crate) enum Compression {
    /// Not at all
    None,
    /// By LZ4
    Lz4,
    /// By Zstandard at its fastest
    Zstd,
}

/// The levels of the log.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum LogLevel {
    /// What went wrong
    Error,
    /// And what may
    Warn,
    /// And what happens seldom
    Info,
    /// And what happens often
    Debug,
    /// And everything else
    Trace,
}

/// The forms of a log line.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// For programs, in mongod's form
    Json,
}

/// Parses a number of seconds.
fn parse_interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("it has to be a number of seconds between 0.1 and 3600".to_string()),
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
        _ => Err("expected a span of time, such as 7d, 12h, 30m or 90s".to_string()),
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
        return Err("commits are told apart by seconds: leave the fraction out, or give SECONDS,INCREMENT"
            .to_string());
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
        Some(_) => Err("at least 16M are needed".to_string()),
        None => Err("expected a number of bytes, such as 268435456, 512M or 4G".to_string()),
    }
}

/// Parses a listening address.
pub(crate) fn parse_address(text: &str) -> Result<IpAddr, String> {
    if text == "localhost" {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    let hint = "not an IP address; 127.0.0.1 serves this machine alone, 0.0.0.0 every network it is on";
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
        Err("a name is made of letters, digits, '-', '_' and '.'".to_string())
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
