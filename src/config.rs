//! The command line, checked: wrong options are refused with the nearest right one, bad values
//! with what a good one looks like.

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use server::Settings;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;
use storage::DiskOptions;
use storage::store::LogOptions;

/// A MongoDB-compatible document database in one small binary.
///
/// Without options it listens on 127.0.0.1:27017 and keeps everything in memory: the right thing
/// for test suites and for trying things out. Any MongoDB driver, mongosh or Compass connects.
#[derive(Parser, Debug)]
#[command(
    name = "vellum",
    version,
    long_version = concat!(env!("CARGO_PKG_VERSION"), ", follows MongoDB 8.0 (wire version 25)"),
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
        vellum                             mongodb://127.0.0.1:27017/\n  \
        vellum --port 0 --parent-pipe      a free port; ends with the process that started it\n  \
        vellum --data /var/lib/vellum      documents on disk, durable within 100 ms\n  \
        vellum --replset rs0               a replica set of one, for transactions and change streams"
)]
pub(crate) struct Cli {
    /// What to do; without a verb, serve.
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    serve: ServeOptions,
}

/// The verbs.
#[derive(Subcommand, Debug)]
enum Verb {
    /// Listen for clients and serve them (what happens without a verb, too)
    Serve(ServeOptions),
    /// Measure a server: experiments and load tests
    Lab(Box<lab::Options>),
}

/// The options of `serve`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServeOptions {
    /// Address to listen on; anyone who reaches it can read and write, as there are no users yet
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = parse_address)]
    bind: IpAddr,

    /// Port to listen on; 0 picks a free one, which the first line printed tells
    #[arg(long, value_name = "PORT", default_value_t = 27017, value_parser = clap::value_parser!(u16))]
    port: u16,

    /// Where documents live; unless said, on disk if --data is given, else in memory
    #[arg(long, value_enum)]
    engine: Option<Engine>,

    /// Directory to keep documents in, made if it isn't there
    #[arg(long, value_name = "DIR", required_if_eq("engine", "disk"))]
    data: Option<PathBuf>,

    /// What a write survives without asking for more
    #[arg(long, value_name = "LEVEL", value_enum, requires = "data", default_value_t = Durability::Relaxed)]
    durability: Durability,

    /// How often the journal is synced when durability is relaxed, in milliseconds
    #[arg(long, value_name = "MS", requires = "data", default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(1..=500))]
    journal_commit_interval: u64,

    /// Memory for documents read and changed, such as 512M or 4G
    #[arg(long, value_name = "BYTES", requires = "data", default_value = "256M", value_parser = parse_size)]
    cache_size: u64,

    /// Directory for the journal, on another volume perhaps; to be named at every start
    #[arg(long, value_name = "DIR", requires = "data")]
    journal_dir: Option<PathBuf>,

    /// Salvage what is sound in --data, build all indexes anew, tell what is lost, and exit
    #[arg(long, requires = "data")]
    repair: bool,

    /// Show this server as the primary of a replica set of one, by this name
    #[arg(long, value_name = "NAME", value_parser = parse_set_name)]
    replset: Option<String>,

    /// Most bytes of changes that a replica set keeps for change streams and local.oplog.rs
    #[arg(long, value_name = "BYTES", requires = "replset", default_value = "64M", value_parser = parse_size)]
    oplog_size: u64,

    /// Address that a replica set tells its clients, instead of the one they dialled
    #[arg(long, value_name = "HOST:PORT", requires = "replset", value_parser = parse_advertised)]
    advertise: Option<String>,

    /// Exit when standard input closes, so that no test run leaves a server behind
    #[arg(long)]
    parent_pipe: bool,

    /// Let clients make commands fail and set the clock; unless said, on while --bind is a loopback address
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    test_commands: Option<bool>,

    /// Tell at the end, and by strictReport, of collection scans, in-memory sorts, unused and duplicate indexes
    #[arg(long)]
    strict: bool,

    /// How much to log, to standard error
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = LogLevel::Info)]
    log_level: LogLevel,
}

/// The engines.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq)]
enum Engine {
    /// In memory: nothing is written to disk, and everything is gone when the process ends
    Memory,
    /// On disk, in the directory of --data
    Disk,
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Engine::Memory => "memory",
            Engine::Disk => "disk",
        }
    }
}

/// What a write survives without asking for more; a write that asks for j: true always gets it.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq)]
enum Durability {
    /// The journal is never synced unasked: for tests of what a durable server does
    None,
    /// Journaled at once, synced every so often: what MongoDB does
    Relaxed,
    /// Every write waits for a sync, which it shares with all that wait
    Journaled,
}

impl Durability {
    fn level(self) -> storage::Durability {
        match self {
            Durability::None => storage::Durability::None,
            Durability::Relaxed => storage::Durability::Relaxed,
            Durability::Journaled => storage::Durability::Journaled,
        }
    }
}

/// What a crash, or just the end, costs: printed at start, so that nobody is surprised.
fn promise(disk: Option<&DiskOptions>) -> String {
    let Some(options) = disk else {
        let what = "no journal, nothing is written to disk; all data is lost when this process ends";
        return format!("memory engine: {what}");
    };
    let what = match options.durability {
        storage::Durability::None => {
            "the journal is not synced unless a write asks (j: true); what was written survives the end of this \
             process, but perhaps not that of the machine"
                .to_string()
        }
        storage::Durability::Relaxed => format!(
            "every write survives the end of this process, and that of the machine after {} ms, or at once if it \
             asks (j: true)",
            options.journal_commit_interval.as_millis()
        ),
        storage::Durability::Journaled => "every acknowledged write survives the end of the machine".to_string(),
    };
    format!("disk engine in {}: {what}", options.directory.display())
}

/// The levels of the log.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    fn filter(self) -> log::LevelFilter {
        match self {
            LogLevel::Error => log::LevelFilter::Error,
            LogLevel::Warn => log::LevelFilter::Warn,
            LogLevel::Info => log::LevelFilter::Info,
            LogLevel::Debug => log::LevelFilter::Debug,
            LogLevel::Trace => log::LevelFilter::Trace,
        }
    }
}

/// What the binary does, decided.
#[derive(Debug)]
pub(crate) struct Config {
    /// What the server is told.
    pub(crate) settings: Settings,
    /// What the engine promises, in one line.
    pub(crate) promise: String,
    /// Where and how data is kept on disk; `None` for the memory engine.
    pub(crate) disk: Option<DiskOptions>,
    /// How much of the changes is kept; `None` without a replica set.
    pub(crate) log: Option<LogOptions>,
    /// Whether to repair that and exit.
    pub(crate) repair: bool,
    /// Whether to exit when standard input closes.
    pub(crate) parent_pipe: bool,
    /// How much to log.
    pub(crate) log_level: log::LevelFilter,
}

/// What the binary is asked to do.
#[derive(Debug)]
pub(crate) enum Work {
    /// Serve clients.
    Serve(Box<Config>),
    /// Measure servers.
    Lab(Box<lab::Options>),
}

impl Cli {
    /// Turns the parsed options into work. Fails where they contradict one another.
    pub(crate) fn into_work(self, arguments: Vec<String>) -> Result<Work, clap::Error> {
        let options = match self.verb {
            Some(Verb::Lab(options)) => return Ok(Work::Lab(options)),
            Some(Verb::Serve(options)) => options,
            None => self.serve,
        };
        options.into_config(arguments).map(Box::new).map(Work::Serve)
    }
}

impl ServeOptions {
    fn into_config(self, arguments: Vec<String>) -> Result<Config, clap::Error> {
        let disk = self.disk();
        let engine = if disk.is_some() { Engine::Disk } else { Engine::Memory };
        if self.engine.is_some_and(|named| named != engine) {
            let what = "--engine memory keeps nothing in a directory: leave one of --engine and --data out";
            return Err(Cli::command().error(ErrorKind::ArgumentConflict, what));
        }
        let log = self.replset.is_some().then_some(LogOptions { bytes: self.oplog_size });
        Ok(Config {
            log,
            settings: Settings {
                arguments,
                bind: self.bind,
                port: self.port,
                replica_set: self.replset,
                advertise: self.advertise,
                engine: engine.name(),
                ephemeral: engine == Engine::Memory,
                syncs: self.durability != Durability::None,
                test_commands: self.test_commands.unwrap_or(self.bind.is_loopback()),
                strict: self.strict,
                ..Settings::default()
            },
            promise: promise(disk.as_ref()),
            disk,
            repair: self.repair,
            parent_pipe: self.parent_pipe,
            log_level: self.log_level.filter(),
        })
    }

    fn disk(&self) -> Option<DiskOptions> {
        Some(DiskOptions {
            directory: self.data.clone()?,
            journal_directory: self.journal_dir.clone(),
            durability: self.durability.level(),
            journal_commit_interval: Duration::from_millis(self.journal_commit_interval),
            cache_bytes: self.cache_size,
        })
    }
}

/// A number of bytes, with K, M or G for the powers of 1024.
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

fn parse_address(text: &str) -> Result<IpAddr, String> {
    if text == "localhost" {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    let hint = "not an IP address; 127.0.0.1 serves this machine alone, 0.0.0.0 every network it is on";
    text.parse().map_err(|_| hint.to_string())
}

fn parse_set_name(text: &str) -> Result<String, String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Config, String> {
        let cli = Cli::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())?;
        match cli.into_work(Vec::new()).map_err(|error| error.to_string())? {
            Work::Serve(config) => Ok(*config),
            Work::Lab(_) => Err("the lab".to_string()),
        }
    }

    #[test]
    fn the_options_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serving_needs_neither_verb_nor_options() {
        for line in ["vellum", "vellum serve"] {
            let config = parse(line).unwrap();
            assert_eq!((config.settings.port, config.settings.engine), (27017, "memory"));
        }
        for line in ["vellum --port 0 --replset rs0", "vellum serve --replset rs0 --port 0"] {
            let config = parse(line).unwrap();
            assert_eq!((config.settings.port, config.settings.replica_set.as_deref()), (0, Some("rs0")));
            assert_eq!(config.log, Some(LogOptions { bytes: 64 << 20 }));
        }
    }

    #[test]
    fn test_commands_are_for_loopback_unless_said_otherwise() {
        for (line, expected) in [
            ("vellum", true),
            ("vellum --bind 0.0.0.0", false),
            ("vellum --bind 0.0.0.0 --test-commands", true),
            ("vellum --test-commands=false", false),
        ] {
            assert_eq!(parse(line).unwrap().settings.test_commands, expected, "{line}");
        }
    }

    #[test]
    fn strictness_is_asked_for() {
        assert!(!parse("vellum").unwrap().settings.strict);
        assert!(parse("vellum serve --strict").unwrap().settings.strict);
    }

    #[test]
    fn a_data_directory_means_the_disk_engine() {
        let config =
            parse("vellum --data d --journal-dir j --cache-size 64M --durability journaled").unwrap();
        assert_eq!((config.settings.engine, config.settings.ephemeral), ("disk", false));
        let disk = config.disk.unwrap();
        assert_eq!((disk.cache_bytes, disk.durability), (64 << 20, storage::Durability::Journaled));
        assert_eq!(disk.journal_directory, Some(PathBuf::from("j")));
        for (level, part) in
            [("none", "not synced"), ("relaxed", "after 50 ms"), ("journaled", "every acknowledged")]
        {
            let line =
                format!("vellum --engine disk --data d --durability {level} --journal-commit-interval 50");
            let promise = parse(&line).unwrap().promise;
            assert!(promise.contains(part), "{promise}");
        }
        assert!(parse("vellum").unwrap().disk.is_none());
    }

    #[test]
    fn mistakes_are_explained() {
        for (line, part) in [
            ("vellum --prot 1", "--port"),
            ("vellum --port 99999", "0..=65535"),
            ("vellum --bind nowhere", "not an IP address"),
            ("vellum --replset a/b", "letters, digits"),
            ("vellum --replset rs0 --advertise here", "HOST:PORT"),
            ("vellum --advertise a:1", "--replset"),
            ("vellum --oplog-size 64M", "--replset"),
            ("vellum --replset rs0 --oplog-size 1M", "16M"),
            ("vellum --engine disc", "memory"),
            ("vellum serv", "serve"),
            ("vellum --engine disk", "--data"),
            ("vellum --engine memory --data d", "--engine memory"),
            ("vellum --durability none", "--data"),
            ("vellum --repair", "--data"),
            ("vellum --data d --cache-size 1M", "16M"),
            ("vellum --data d --cache-size much", "512M"),
            ("vellum --data d --durability some", "journaled"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
