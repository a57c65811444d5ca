//! Converts options to the server's settings. Finds all contradictions before anything is opened.
//!
//! `cli.rs` declares an option. Its conversion belongs to the method of its target: `settings`, `disk`, `logging`,
//! `tls` or `postgres`. `ServeOptions::into_config` checks options that exclude or need each other.

use crate::cli::{
    Cli, CompatibleWith, Compression, Durability, Engine, LogFormat, LogLevel, ServeOptions, TlsMode,
};
use crate::first_user::FirstUser;
use crate::{process, tls};
use clap::CommandFactory;
use clap::error::ErrorKind;
use server::logging::{self, Destination};
use server::{ExecutionLimits, HttpOptions, Settings, Tls};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use storage::DiskOptions;
use storage::store::LogOptions;

/// Validated configuration of the process.
#[derive(Debug)]
pub(crate) struct Config {
    /// Settings of the server.
    pub(crate) settings: Settings,
    /// Durability of the engine in one line.
    pub(crate) durability_text: String,
    /// Options of the disk engine; `None` for other engines.
    pub(crate) disk: Option<DiskOptions>,
    /// PostgreSQL server and schema; `None` for other engines.
    pub(crate) postgres: Option<(postgres::Config, String)>,
    /// Size of the oplog; `None` without a replica set.
    pub(crate) oplog: Option<LogOptions>,
    /// Size of the oplog in PostgreSQL in bytes, if given.
    pub(crate) shared_oplog: Option<u64>,
    /// Folder of scripts that fill a new data directory.
    pub(crate) init_scripts: Option<PathBuf>,
    /// User to create in a new store.
    pub(crate) first_user: Option<FirstUser>,
    /// True to repair the data directory and exit.
    pub(crate) repair: bool,
    /// True to exit when standard input closes.
    pub(crate) parent_pipe: bool,
    /// Options of the log.
    pub(crate) log: logging::Options,
    /// Output when clients can connect.
    pub(crate) startup_output: StartupOutput,
    /// File for the process id.
    pub(crate) pid_file: Option<PathBuf>,
    /// Initial server parameters.
    pub(crate) parameters: Vec<(String, String)>,
    /// Warnings for shells that connect.
    pub(crate) warnings: Vec<String>,
}

impl Config {
    /// Returns the name of an option, which differs under the name of mongod.
    pub(crate) fn option_name(&self, of_vellum: &'static str, of_mongod: &'static str) -> &'static str {
        match self.startup_output {
            StartupOutput::Banner => of_vellum,
            StartupOutput::Nothing => of_mongod,
        }
    }
}

/// Output on standard output when clients can connect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum StartupOutput {
    /// The connection string and hints for a first start.
    Banner,
    /// Nothing: the log is on standard output, as in mongod.
    Nothing,
}

/// Returns the limits of commands over PostgreSQL: those that its connections can run.
fn execution_limits() -> ExecutionLimits {
    let limits = postgres::Limits::default();
    ExecutionLimits {
        reads: limits.reads,
        // Each standby has as many connections, and most clusters have two.
        secondary_reads: 2 * limits.reads,
        writes: postgres::COMMITS_MAX,
        transactions: limits.transactions,
    }
}

/// Describes the data loss after a crash or a regular exit. Printed at the start.
pub(crate) fn durability_text(
    disk: Option<&DiskOptions>,
    postgres: Option<&(postgres::Config, String)>,
) -> String {
    if let Some((server, schema)) = postgres {
        return format!(
            "PostgreSQL engine, schema {schema} of {server:?}: writes survive a crash of this process; \
             writes with j: true also survive a crash of the server"
        );
    }
    let Some(options) = disk else {
        let promise = "no journal and no data files; all data is lost when this process stops";
        return format!("memory engine: {promise}");
    };
    let promise = match options.durability {
        storage::Durability::None => {
            "only writes with j: true or w: majority sync the journal; writes survive a crash of this process, \
             but perhaps not of the machine"
                .to_string()
        }
        storage::Durability::Relaxed => format!(
            "writes survive a crash of this process at once, and of the machine after {} ms; with j: true \
             they survive both at once",
            options.journal_commit_interval.as_millis()
        ),
        storage::Durability::Journaled => {
            "every acknowledged write survives a crash of the machine".to_string()
        }
    };
    format!("disk engine in {}: {promise}", options.directory.display())
}

impl Engine {
    /// Returns the name for serverStatus.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Engine::Memory => "memory",
            Engine::Disk => "disk",
            Engine::Postgres => "postgres",
        }
    }
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

impl Compression {
    fn method(self) -> storage::Compression {
        match self {
            Compression::None => storage::Compression::None,
            Compression::Lz4 => storage::Compression::Lz4,
            Compression::Zstd => storage::Compression::Zstd,
        }
    }
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

/// Returns the default log level. On a terminal the banner replaces the log lines of the start.
fn default_level(on_standard_error: bool) -> LogLevel {
    match on_standard_error && std::io::stderr().is_terminal() {
        true => LogLevel::Warn,
        false => LogLevel::Info,
    }
}

fn option_error(kind: ErrorKind, message: String) -> clap::Error {
    Cli::command().error(kind, message)
}

impl ServeOptions {
    /// The configuration. `arguments` is the command line.
    ///
    /// A first user turns authentication on, unless `--no-auth` is set.
    ///
    /// Errors: options that contradict one another, and files that cannot be read.
    pub(crate) fn into_config(
        self,
        arguments: Vec<String>,
        first_user: Option<FirstUser>,
    ) -> Result<Config, clap::Error> {
        let disk = self.disk();
        let postgres = self.postgres()?;
        let engine = self.implied_engine(disk.is_some(), postgres.is_some())?;
        let tls = self.tls().map_err(|why| option_error(ErrorKind::InvalidValue, why))?;
        self.check_oplog_size(postgres.is_some())?;
        let auth = !self.no_auth && (self.auth || first_user.is_some());
        let bytes = self.oplog_size.unwrap_or(64 << 20);
        Ok(Config {
            oplog: self.replset.is_some().then_some(LogOptions { bytes }),
            shared_oplog: self.oplog_size,
            durability_text: durability_text(disk.as_ref(), postgres.as_ref()),
            init_scripts: self.init_scripts.clone(),
            first_user,
            repair: self.repair,
            parent_pipe: self.parent_pipe,
            log: self.logging(),
            settings: Settings {
                arguments,
                engine: engine.name(),
                shared: engine == Engine::Postgres,
                execution_limits: (engine == Engine::Postgres).then(execution_limits),
                ephemeral: engine == Engine::Memory,
                test_commands: self.test_commands.unwrap_or(self.bind.is_loopback() && !auth),
                auth,
                tls,
                ..self.settings()
            },
            disk,
            postgres,
            startup_output: StartupOutput::Banner,
            pid_file: None,
            parameters: Vec::new(),
            warnings: Vec::new(),
        })
    }

    /// The PostgreSQL server and its schema.
    fn postgres(&self) -> Result<Option<(postgres::Config, String)>, clap::Error> {
        let parse = |text| postgres::Config::parse(text, &|name| std::env::var(name).ok());
        match self.postgres.as_deref().map(parse).transpose() {
            Ok(server) => Ok(server.map(|server| (server, self.postgres_schema.clone()))),
            Err(why) => Err(option_error(ErrorKind::InvalidValue, format!("--postgres: {why}"))),
        }
    }

    /// The engine that the places for data imply. `--engine` may only confirm it.
    fn implied_engine(&self, has_disk: bool, has_postgres: bool) -> Result<Engine, clap::Error> {
        let engine = match (has_disk, has_postgres) {
            (_, true) => Engine::Postgres,
            (true, false) => Engine::Disk,
            (false, false) => Engine::Memory,
        };
        if self.engine.is_none_or(|named| named == engine) {
            return Ok(engine);
        }
        let message = match engine {
            Engine::Postgres => "--postgres selects the engine postgres: omit --engine or --postgres",
            _ => "--engine memory has no data directory: omit --engine or --data",
        };
        Err(option_error(ErrorKind::ArgumentConflict, message.to_string()))
    }

    /// Checks that there is an oplog whose size the option can set.
    fn check_oplog_size(&self, has_postgres: bool) -> Result<(), clap::Error> {
        let (kind, message) = match (self.oplog_size, &self.replset) {
            (Some(_), None) if !has_postgres => {
                (ErrorKind::MissingRequiredArgument, "--oplog-size needs --replset or --postgres")
            }
            (Some(0), Some(_)) => (
                ErrorKind::InvalidValue,
                "--oplog-size 0 needs --postgres: the oplog of a replica set has at least 16M",
            ),
            _ => return Ok(()),
        };
        Err(option_error(kind, message.to_string()))
    }

    fn logging(&self) -> logging::Options {
        let append = true;
        logging::Options {
            level: self.log_level.unwrap_or_else(|| default_level(self.log_file.is_none())).filter(),
            json: self.log_format == LogFormat::Json,
            to: match self.log_file.clone() {
                Some(path) => Destination::File { path, append },
                None => Destination::StandardError,
            },
        }
    }

    /// The settings that each follow from one option.
    fn settings(&self) -> Settings {
        let defaults = Settings::default();
        Settings {
            bind: self.bind,
            port: self.port,
            replica_set: self.replset.clone(),
            advertise: self.advertise.clone(),
            syncs: self.durability != Durability::None,
            sync_interval: Duration::from_millis(self.journal_commit_interval),
            compatible_with: self.compatible_with.into(),
            memory_limit: process::memory_limit(self.memory_limit),
            connections_max: self.max_connections as usize,
            busy_poll: self.busy_poll.map_or(defaults.busy_poll, |time| Duration::from_micros(time.into())),
            strict: self.strict,
            http: self.http.map(|address| HttpOptions { address, names: self.http_host.clone() }),
            ..defaults
        }
    }

    fn tls(&self) -> Result<Option<Arc<Tls>>, String> {
        let files = &self.tls;
        let password_file = files.tls_certificate_key_file_password_file.as_deref();
        let password = match password_file {
            Some(file) => Some(tls::password_in(file)?),
            None => files.tls_certificate_key_file_password.clone(),
        };
        let tls_arguments = tls::TlsArguments {
            mode: match self.tls_mode {
                TlsMode::Disabled => None,
                TlsMode::Allow => Some(server::TlsMode::Allow),
                TlsMode::Prefer => Some(server::TlsMode::Prefer),
                TlsMode::Require => Some(server::TlsMode::Require),
            },
            mode_option: "--tls-mode require",
            certificate_key_file: files.tls_certificate_key_file.clone(),
            password,
            ca_file: files.tls_ca_file.clone(),
            crl_file: files.tls_crl_file.clone(),
            without_certificates: files.tls_allow_connections_without_certificates,
            disabled_protocols: files.tls_disabled_protocols.clone(),
        };
        tls_arguments.open()
    }

    fn disk(&self) -> Option<DiskOptions> {
        Some(DiskOptions {
            directory: self.data.clone()?,
            journal_directory: self.journal_dir.clone(),
            durability: self.durability.level(),
            journal_commit_interval: Duration::from_millis(self.journal_commit_interval),
            cache_bytes: self.cache_size,
            archive: self
                .journal_archive
                .clone()
                .map(|directory| storage::ArchiveOptions { directory, keep: self.journal_archive_keep }),
            compression: self.compression.method(),
            other_files: self.named_files(),
            allow_other_files: self.allow_other_files,
        })
    }

    /// Returns the files named by options, which may be in the data directory.
    fn named_files(&self) -> Vec<PathBuf> {
        let tls = &self.tls;
        let named = [
            &self.log_file,
            &self.config,
            &self.init_scripts,
            &tls.tls_certificate_key_file,
            &tls.tls_certificate_key_file_password_file,
            &tls.tls_ca_file,
            &tls.tls_crl_file,
        ];
        named.into_iter().flatten().cloned().collect()
    }
}

impl From<CompatibleWith> for server::CompatibleWith {
    fn from(version: CompatibleWith) -> server::CompatibleWith {
        match version {
            CompatibleWith::V8_0 => server::CompatibleWith::V8_0,
            CompatibleWith::V8_2 => server::CompatibleWith::V8_2,
            CompatibleWith::V9_0 => server::CompatibleWith::V9_0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Verb;
    use clap::Parser;

    fn parse(line: &str) -> Result<Config, String> {
        let cli = Cli::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())?;
        let options = match cli.verb {
            None => cli.serve,
            Some(Verb::Serve(options)) => *options,
            Some(other) => return Err(format!("{other:?}")),
        };
        options.into_config(Vec::new(), None).map_err(|error| error.to_string())
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
        for line in ["vellum --port 0 --replset rs0", "vellum serve --replSet rs0 --port 0"] {
            let config = parse(line).unwrap();
            assert_eq!((config.settings.port, config.settings.replica_set.as_deref()), (0, Some("rs0")));
            assert_eq!(config.oplog, Some(LogOptions { bytes: 64 << 20 }));
        }
    }

    #[test]
    fn test_commands_are_for_loopback_by_default() {
        for (line, expected) in [
            ("vellum", true),
            ("vellum --bind 0.0.0.0", false),
            ("vellum --bind 0.0.0.0 --test-commands", true),
            ("vellum --test-commands=false", false),
            ("vellum --auth", false),
            ("vellum --auth --test-commands", true),
            ("vellum --auth --no-auth", true),
        ] {
            assert_eq!(parse(line).unwrap().settings.test_commands, expected, "{line}");
        }
    }

    #[test]
    fn users_are_asked_for() {
        for (line, expected) in [
            ("vellum", false),
            ("vellum --auth", true),
            ("vellum --auth --no-auth", false),
            ("vellum --no-auth --auth", true),
        ] {
            assert_eq!(parse(line).unwrap().settings.auth, expected, "{line}");
        }
        let options = |line: &str| Cli::try_parse_from(line.split_whitespace()).unwrap().serve;
        let first = || {
            FirstUser::from_environment(|name| Some(name.to_string()).filter(|name| !name.ends_with("FILE")))
        };
        for (line, expected) in [("vellum", true), ("vellum --no-auth", false)] {
            let config = options(line).into_config(Vec::new(), first().unwrap()).unwrap();
            assert!(config.first_user.is_some() && config.settings.auth == expected, "{line}");
        }
    }

    #[test]
    fn connections_have_a_bound() {
        assert_eq!(parse("vellum").unwrap().settings.connections_max, Settings::default().connections_max);
        assert_eq!(parse("vellum --max-connections 10").unwrap().settings.connections_max, 10);
        assert!(parse("vellum --max-connections 0").is_err());
        assert_eq!(parse("vellum").unwrap().settings.busy_poll, Settings::default().busy_poll);
        assert_eq!(parse("vellum --busy-poll 0").unwrap().settings.busy_poll, Duration::ZERO);
        assert_eq!(parse("vellum --busy-poll 20").unwrap().settings.busy_poll, Duration::from_micros(20));
        assert!(parse("vellum --busy-poll 1001").is_err());
    }

    #[test]
    fn http_is_asked_for() {
        assert_eq!(parse("vellum").unwrap().settings.http, None);
        for (line, address, names) in [
            ("vellum --http 9216", "127.0.0.1:9216", vec![]),
            ("vellum --http localhost:0", "127.0.0.1:0", vec![]),
            ("vellum --http 0.0.0.0:80 --http-host a,b", "0.0.0.0:80", vec!["a", "b"]),
            ("vellum --http [::1]:9216", "[::1]:9216", vec![]),
        ] {
            let options = parse(line).unwrap().settings.http.unwrap();
            assert_eq!(
                (options.address.to_string().as_str(), options.names),
                (address, names.iter().map(|name| name.to_string()).collect()),
                "{line}"
            );
        }
    }

    #[test]
    fn strictness_is_asked_for() {
        assert!(!parse("vellum").unwrap().settings.strict);
        assert!(parse("vellum serve --strict").unwrap().settings.strict);
    }

    #[test]
    fn logs_go_where_they_are_sent() {
        let log = parse("vellum --log-format json --log-file f").unwrap().log;
        assert!(log.json && log.to == Destination::File { path: "f".into(), append: true });
        let log = parse("vellum").unwrap().log;
        assert!(!log.json && log.to == Destination::StandardError);
    }

    #[test]
    fn a_data_directory_means_the_disk_engine() {
        let config =
            parse("vellum --data d --journal-dir j --cache-size 64M --durability journaled").unwrap();
        assert_eq!((config.settings.engine, config.settings.ephemeral), ("disk", false));
        let disk = config.disk.unwrap();
        assert_eq!((disk.cache_bytes, disk.durability), (64 << 20, storage::Durability::Journaled));
        assert_eq!(disk.journal_directory, Some(PathBuf::from("j")));
        for (level, part) in [
            ("none", "only writes with j: true or w: majority"),
            ("relaxed", "after 50 ms"),
            ("journaled", "every acknowledged"),
        ] {
            let line =
                format!("vellum --engine disk --data d --durability {level} --journal-commit-interval 50");
            let durability_text = parse(&line).unwrap().durability_text;
            assert!(durability_text.contains(part), "{durability_text}");
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
            ("vellum --replset rs0 --oplog-size 0", "--postgres"),
            ("vellum --engine disc", "memory"),
            ("vellum serv", "serve"),
            ("vellum --engine disk", "--data"),
            ("vellum --engine memory --data d", "--engine memory"),
            ("vellum --durability none", "--data"),
            ("vellum --repair", "--data"),
            ("vellum --journal-archive d", "--data"),
            ("vellum --data d --journal-archive-keep 7d", "--journal-archive"),
            ("vellum --data d --journal-archive a --journal-archive-keep long", "7d"),
            ("vellum --init-scripts d", "--data"),
            ("vellum --data d --cache-size 1M", "16M"),
            ("vellum --data d --cache-size much", "512M"),
            ("vellum --data d --durability some", "journaled"),
            ("vellum --log-format xml", "json"),
            ("vellum --tls-mode require", "--tls-certificate-key-file"),
            ("vellum --tls-mode perhaps", "require"),
            (
                "vellum --tls-mode require --tls-certificate-key-file /nowhere/a.pem",
                "/nowhere/a.pem: No such file",
            ),
            ("vellum --tls-certificate-key-file /nowhere/a.pem", "TLS is off: add --tls-mode require"),
            ("vellum --http everywhere", "127.0.0.1:9216"),
            ("vellum --http-host a", "--http"),
            ("vellum --tls-ca-file a", "--tls-certificate-key-file"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn the_journal_is_kept_as_long_as_asked() {
        let config = parse("vellum --data d --journal-archive a --journal-archive-keep 2h").unwrap();
        let archive = config.disk.unwrap().archive.unwrap();
        assert_eq!((archive.directory, archive.keep), ("a".into(), Some(Duration::from_secs(7200))));
        assert_eq!(parse("vellum --data d").unwrap().disk.unwrap().archive, None);
    }

    #[test]
    fn moments_are_times_and_cluster_times() {
        let second = 1_790_000_000u64 << 32;
        for (text, until) in [
            ("1790000000,3", Ok(second | 3)),
            ("2026-09-21T14:13:20Z", Ok(second - 1)),
            ("2026-09-21T16:13:20+02:00", Ok(second - 1)),
            ("2026-09-21T14:13:20.000Z", Ok(second - 1)),
            ("2026-09-21T14:13:20.5Z", Err("fraction")),
            ("2026-09-21", Err("expected a time")),
            ("yesterday", Err("expected a time")),
            ("1,2,3", Err("SECONDS,INCREMENT")),
        ] {
            let found = crate::cli::parse_moment(text);
            match until {
                Ok(until) => assert_eq!(found, Ok(until), "{text}"),
                Err(part) => {
                    assert!(found.as_ref().is_err_and(|why| why.contains(part)), "{text}: {found:?}")
                }
            }
        }
    }

    #[test]
    fn the_help_fits_two_screens() {
        let lines = Cli::command().term_width(80).render_help().to_string().lines().count();
        assert!(lines <= 50, "{lines} lines");
    }
}
