//! Converts mongod's options to Vellum's configuration.
//!
//! `options.rs` declares an option. Its conversion belongs to the method of its target, such as `disk`, `log` or `tls`.

use super::options::ParsedOption;
use crate::cli::{Engine, parse_set_name};
use crate::config::{Config, StartupOutput, durability_text};
use crate::process;
use server::logging::{self, Destination};
use server::{Settings, Tls, TlsMode};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use storage::store::LogOptions;
use storage::{DiskOptions, Durability};

/// mongod's default data directory.
const DBPATH: &str = "/data/db";

/// Options that name files, which may be in the data directory.
const FILE_OPTIONS: &[&str] =
    &["config", "logpath", "pidfilepath", "keyFile", "tlsCertificateKeyFile", "tlsCAFile", "tlsCRLFile"];

/// Minimum cache of the disk engine, in bytes.
const CACHE_MIN: f64 = (16 << 20) as f64;

/// Default cache in bytes.
const CACHE: u64 = 256 << 20;

/// Prefix of the parameter with the authentication mechanisms.
const MECHANISMS_PARAMETER: &str = "authenticationMechanisms=";

/// Options by name. Options of the command line come before options of the file.
pub(super) struct Options(pub(super) Vec<ParsedOption>);

impl Options {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| *given == name).map(|(_, value)| value.as_str())
    }

    /// Returns true if a switch is on.
    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value != "false")
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, String> {
        let parse = |text: &str| {
            text.parse().map_err(|_| format!("the argument ('{text}') for option '--{name}' is invalid"))
        };
        self.get(name).map(parse).transpose()
    }

    /// Checks an option whose value can only be the existing behavior.
    fn accept_only(&self, name: &str, good: &[&str], why: &str) -> Result<(), String> {
        match self.get(name).filter(|value| !good.contains(value)) {
            Some(value) => Err(format!("--{name} {value} is not supported: {why}")),
            None => Ok(()),
        }
    }

    /// Builds the configuration. Fails for contradictions and for options without a meaning here.
    pub(super) fn into_config(self, arguments: Vec<String>) -> Result<Config, String> {
        self.check()?;
        let engine = match self.get("storageEngine").unwrap_or("wiredTiger") {
            "wiredTiger" => Engine::Disk,
            "ephemeralForTest" | "inMemory" => Engine::Memory,
            other => return Err(format!("Cannot start server with an unknown storage engine: {other}")),
        };
        let disk = match engine {
            Engine::Disk => Some(self.disk()?),
            Engine::Memory | Engine::Postgres => {
                if self.has("repair") {
                    return Err(
                        "--repair does not apply to the memory engine, which stores nothing".to_string()
                    );
                }
                if self.get("wiredTigerCacheSizeGB").is_some() {
                    return Err("--wiredTigerCacheSizeGB does not apply to the memory engine".to_string());
                }
                None
            }
        };
        let bind = self.bind()?;
        let auth = self.auth()?;
        let (parameters, test_commands) = self.parameters()?;
        let replica_set = self.get("replSet").map(set_name).transpose()?;
        let default_interval = Settings::default().sync_interval;
        let settings = Settings {
            arguments,
            bind,
            port: self.number("port")?.unwrap_or(27017),
            awaits_initiation: replica_set.is_some(),
            replica_set,
            engine: engine.name(),
            ephemeral: engine == Engine::Memory,
            syncs: !self.has("nojournal"),
            sync_interval: disk.as_ref().map_or(default_interval, |disk| disk.journal_commit_interval),
            test_commands,
            tls: self.tls()?,
            auth,
            mechanisms: self.mechanisms()?,
            localhost_exception: self.localhost_exception()?,
            profiling: (
                self.number("profile")?.unwrap_or(0),
                self.number("slowms")?,
                self.number("slowOpSampleRate")?,
            ),
            memory_limit: process::memory_limit(None),
            connections_max: self.number("maxConns")?.unwrap_or(Settings::default().connections_max),
            ..Settings::default()
        };
        // A standalone has no oplog, so the size has no effect.
        let megabytes = self.number::<f64>("oplogSize")?.unwrap_or(64.0);
        let bytes = (megabytes * 1024.0 * 1024.0) as u64;
        let oplog = settings.replica_set.is_some().then_some(LogOptions { bytes });
        Ok(Config {
            oplog,
            shared_oplog: None,
            settings,
            durability_text: durability_text(disk.as_ref(), None),
            postgres: None,
            disk,
            init_scripts: None,
            first_user: None,
            repair: self.has("repair"),
            parent_pipe: false,
            log: self.log()?,
            startup_output: StartupOutput::Nothing,
            pid_file: self.get("pidfilepath").map(PathBuf::from),
            parameters,
            warnings: Vec::new(),
        })
    }

    /// Refuses invalid values of options and combinations.
    fn check(&self) -> Result<(), String> {
        self.accept_only("clusterAuthMode", &["keyFile"], "x.509 cluster authentication is not implemented")?;
        self.accept_only("configExpand", &["none"], "the configuration file has no expansion directives")?;
        self.accept_only("enableMajorityReadConcern", &["true", "1"], "majority reads are always enabled")?;
        self.accept_only("logFormat", &["default", "json"], "the log is JSON")?;
        self.accept_only("logRotate", &["rename"], "SIGHUP reopens the log")?;
        self.accept_only(
            "networkMessageCompressors",
            &["snappy,zstd,zlib"],
            "snappy, zstd and zlib are always enabled",
        )?;
        self.accept_only("oplogMinRetentionHours", &["0", "0.0"], "--oplogSize limits the oplog")?;
        self.accept_only(
            "wiredTigerIndexPrefixCompression",
            &["true", "1"],
            "the storage engine is not WiredTiger",
        )?;
        if self.number::<u64>("maxConns")?.is_some_and(|number| number < 5) {
            return Err("maxConns has to be at least 5".to_string());
        }
        if self.number::<i32>("profile")?.is_some_and(|level| !(0..=2).contains(&level)) {
            return Err("Bad value for profile: use 0, 1 or 2".to_string());
        }
        if self.number::<f64>("slowOpSampleRate")?.is_some_and(|rate| !(0.0..=1.0).contains(&rate)) {
            return Err("slowOpSampleRate must be between 0.0 and 1.0 inclusive".to_string());
        }
        self.accept_only("timeStampFormat", &["iso8601-utc"], "times in the log are UTC")?;
        if self.number::<f64>("oplogSize")?.is_some_and(|size| size <= 0.0) {
            return Err("bad --oplogSize, arg must be greater than 0".to_string());
        }
        if self.has("fork") && self.get("logpath").is_none() {
            return Err("--fork has to be used with --logpath".to_string());
        }
        if self.has("journal") && self.has("nojournal") {
            return Err("Can't specify both --journal and --nojournal options.".to_string());
        }
        Ok(())
    }

    fn disk(&self) -> Result<DiskOptions, String> {
        let mut options = DiskOptions::new(self.directory());
        if self.has("nojournal") {
            options.durability = Durability::None;
        }
        if let Some(millis) = self.number("journalCommitInterval")? {
            if !(1..=500).contains(&millis) {
                return Err("--journalCommitInterval out of allowed range (1-500ms)".to_string());
            }
            options.journal_commit_interval = Duration::from_millis(millis);
        }
        options.other_files =
            FILE_OPTIONS.iter().filter_map(|name| self.get(name)).map(PathBuf::from).collect();
        options.cache_bytes = CACHE;
        if let Some(gigabytes) = self.number::<f64>("wiredTigerCacheSizeGB")? {
            let bytes = gigabytes * f64::from(1 << 30);
            if !bytes.is_finite() || bytes < CACHE_MIN {
                return Err("--wiredTigerCacheSizeGB: the minimum is 0.016".to_string());
            }
            options.cache_bytes = bytes as u64;
        }
        Ok(options)
    }

    /// Returns the data directory, which mongod never creates.
    pub(super) fn directory(&self) -> PathBuf {
        PathBuf::from(self.get("dbpath").unwrap_or(DBPATH))
    }

    /// Returns the listening address.
    fn bind(&self) -> Result<IpAddr, String> {
        let all =
            if self.has("ipv6") { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { Ipv4Addr::UNSPECIFIED.into() };
        if self.has("bind_ip_all") {
            return Ok(all);
        }
        let Some(list) = self.get("bind_ip") else { return Ok(Ipv4Addr::LOCALHOST.into()) };
        let mut addresses = Vec::new();
        for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let address = match name {
                "localhost" => Ipv4Addr::LOCALHOST.into(),
                "*" => all,
                _ => name
                    .parse()
                    .map_err(|_| format!("--bind_ip {name}: Vellum takes IP addresses and localhost"))?,
            };
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        match addresses.as_slice() {
            [one] => Ok(*one),
            several => {
                // The unspecified address includes the others.
                let everything = several.iter().find(|address| address.is_unspecified()).copied();
                everything
                    .ok_or_else(|| format!("--bind_ip {list}: Vellum listens on one address, or on all"))
            }
        }
    }

    /// Returns true if access control is enabled. `keyFile` also enables it, although a set of one
    /// member never shows its key.
    fn auth(&self) -> Result<bool, String> {
        if let Some(path) = self.get("keyFile") {
            std::fs::read(path).map_err(|error| format!("--keyFile {path}: {error}"))?;
        }
        match (self.has("auth"), self.has("noauth")) {
            (true, true) => Err("Can't specify both --auth and --noauth options.".to_string()),
            (requested, refused) => Ok(requested || !refused && self.get("keyFile").is_some()),
        }
    }

    fn tls(&self) -> Result<Option<Arc<Tls>>, String> {
        let mode = match self.get("tlsMode").unwrap_or("disabled") {
            "disabled" => None,
            "allowTLS" | "allowSSL" => Some(TlsMode::Allow),
            "preferTLS" | "preferSSL" => Some(TlsMode::Prefer),
            "requireTLS" | "requireSSL" => Some(TlsMode::Require),
            other => return Err(format!("unsupported value for tlsMode {other}")),
        };
        let requested = crate::tls::TlsArguments {
            mode,
            mode_option: "--tlsMode requireTLS",
            certificate_key_file: self.get("tlsCertificateKeyFile").map(PathBuf::from),
            password: self.get("tlsCertificateKeyFilePassword").map(str::to_string),
            ca_file: self.get("tlsCAFile").map(PathBuf::from),
            crl_file: self.get("tlsCRLFile").map(PathBuf::from),
            without_certificates: self.has("tlsAllowConnectionsWithoutCertificates"),
            disabled_protocols: self.get("tlsDisabledProtocols").map(str::to_string),
        };
        requested.open()
    }

    /// Returns true if a local client may create the first user.
    fn localhost_exception(&self) -> Result<bool, String> {
        let given = self.0.iter().filter(|(name, _)| *name == "setParameter");
        match given.filter_map(|(_, text)| text.strip_prefix("enableLocalhostAuthBypass=")).next() {
            None | Some("true" | "1") => Ok(true),
            Some("false" | "0") => Ok(false),
            Some(other) => Err(format!("--setParameter enableLocalhostAuthBypass={other}: true or false")),
        }
    }

    /// Returns the authentication mechanisms.
    fn mechanisms(&self) -> Result<Vec<String>, String> {
        let given = self.0.iter().filter(|(name, _)| *name == "setParameter");
        let Some(list) = given.filter_map(|(_, text)| text.strip_prefix(MECHANISMS_PARAMETER)).next() else {
            return Ok(Settings::default().mechanisms);
        };
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        names
            .map(|name| match server::MECHANISMS.contains(&name) {
                true => Ok(name.to_string()),
                false => {
                    Err(format!("--setParameter {MECHANISMS_PARAMETER}{list}: unknown mechanism {name}"))
                }
            })
            .collect()
    }

    /// Returns the server parameters, and true if test commands are allowed.
    fn parameters(&self) -> Result<(Vec<(String, String)>, bool), String> {
        let mut parameters = Vec::new();
        let mut test_commands = false;
        let mut known = Vec::new();
        for (_, text) in self.0.iter().filter(|(name, _)| *name == "setParameter") {
            let (name, value) =
                text.split_once('=').ok_or_else(|| format!("Illegal option assignment: \"{text}\""))?;
            if known.contains(&name) {
                continue;
            }
            known.push(name);
            match (name, value) {
                ("enableTestCommands", _) => test_commands = matches!(value, "1" | "true"),
                // Handled with the settings.
                ("authenticationMechanisms" | "enableLocalhostAuthBypass", _) => {}
                // The server collects none.
                ("diagnosticDataCollectionEnabled", "false" | "0") => {}
                _ => parameters.push((name.to_string(), value.to_string())),
            }
        }
        if let Some(seconds) = self.number::<f64>("syncdelay")? {
            parameters.push(("syncdelay".to_string(), seconds.to_string()));
        }
        if self.has("quiet") {
            parameters.push(("quiet".to_string(), "true".to_string()));
        }
        if self.has("notablescan") {
            parameters.push(("notablescan".to_string(), "true".to_string()));
        }
        Ok((parameters, test_commands))
    }

    fn log(&self) -> Result<logging::Options, String> {
        let append = self.has("logappend");
        let to = match self.get("logpath") {
            Some(path) => Destination::File { path: path.into(), append },
            None if append => return Err("--logappend has to be used with --logpath".to_string()),
            None => Destination::StandardOutput,
        };
        let level = match self.number::<u32>("verbose")? {
            None | Some(0) => log::LevelFilter::Info,
            Some(1) => log::LevelFilter::Debug,
            Some(_) => log::LevelFilter::Trace,
        };
        Ok(logging::Options { level, json: true, to })
    }
}

/// Parses the name of a set. Seeds after a slash, as in old versions, are refused.
fn set_name(text: &str) -> Result<String, String> {
    parse_set_name(text).map_err(|why| format!("--replSet {text}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::super::options::parse;
    use super::*;

    fn config(line: &str) -> Result<Config, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        Options(parse(&words)?).into_config(Vec::new())
    }

    #[test]
    fn engines_are_chosen_by_mongods_names() {
        let found = config("--dbpath /x --wiredTigerCacheSizeGB 0.5 --journalCommitInterval 50").unwrap();
        let disk = found.disk.unwrap();
        assert_eq!((disk.directory, disk.cache_bytes), (PathBuf::from("/x"), 512 << 20));
        assert_eq!(disk.journal_commit_interval, Duration::from_millis(50));
        assert_eq!(config("").unwrap().disk.unwrap().directory, PathBuf::from("/data/db"));
        assert_eq!(config("--nojournal").unwrap().disk.unwrap().durability, Durability::None);
        for engine in ["ephemeralForTest", "inMemory"] {
            let found = config(&format!("--storageEngine {engine} --dbpath /x")).unwrap();
            assert!(found.disk.is_none() && found.settings.ephemeral);
        }
    }

    #[test]
    fn several_addresses_become_one() {
        for (line, expected) in [
            ("", "127.0.0.1"),
            ("--bind_ip localhost", "127.0.0.1"),
            ("--bind_ip 127.0.0.1,localhost", "127.0.0.1"),
            ("--bind_ip_all", "0.0.0.0"),
            ("--bind_ip_all --ipv6", "::"),
            ("--bind_ip 127.0.0.1,0.0.0.0", "0.0.0.0"),
            ("--bind_ip ::1", "::1"),
        ] {
            assert_eq!(config(line).unwrap().settings.bind.to_string(), expected, "{line}");
        }
    }

    #[test]
    fn parameters_are_passed_on() {
        let found =
            config("--setParameter enableTestCommands=1 --setParameter ttlMonitorSleepSecs=5").unwrap();
        assert!(found.settings.test_commands);
        let twice = "--setParameter enableTestCommands=0 --setParameter enableTestCommands=1";
        assert!(!config(twice).unwrap().settings.test_commands, "the first one counts");
        assert_eq!(found.parameters, [("ttlMonitorSleepSecs".to_string(), "5".to_string())]);
        assert!(!config("").unwrap().settings.test_commands);
    }

    #[test]
    fn access_control_has_three_options() {
        let key = std::env::temp_dir().join(format!("vellum-key-{}", std::process::id()));
        std::fs::write(&key, "c2VjcmV0").unwrap();
        let key_file = format!("--keyFile {}", key.display());
        for (line, expected) in [
            ("", false),
            ("--noauth", false),
            ("--auth", true),
            (key_file.as_str(), true),
            (format!("{key_file} --noauth").as_str(), false),
        ] {
            assert_eq!(config(line).unwrap().settings.auth, expected, "{line}");
        }
        std::fs::remove_file(key).unwrap();
        let named = config("--setParameter authenticationMechanisms=SCRAM-SHA-256").unwrap();
        assert_eq!(named.settings.mechanisms, ["SCRAM-SHA-256"]);
        assert!(named.settings.localhost_exception);
        let without = config("--auth --setParameter enableLocalhostAuthBypass=0").unwrap();
        assert!(!without.settings.localhost_exception);
        assert!(named.parameters.is_empty());
    }

    #[test]
    fn options_that_describe_the_server_are_accepted() {
        let accepted = "--objcheck --configExpand none --logFormat json --oplogMinRetentionHours 0 \
            --wiredTigerIndexPrefixCompression true --timeZoneInfo /usr/share/zoneinfo";
        assert!(config(accepted).is_ok());
    }

    #[test]
    fn unsupported_options_are_refused_by_name() {
        for (line, part) in [
            ("--storageEngine rocks", "unknown storage engine: rocks"),
            ("--bind_ip 127.0.0.1,127.0.0.2", "one address"),
            ("--bind_ip db.example", "db.example"),
            ("--port x", "'x'"),
            ("--syncdelay x", "'x'"),
            ("--oplogSize 0", "--oplogSize"),
            ("--fork", "--logpath"),
            ("--logappend", "--logpath"),
            ("--keyFile /nowhere/key", "/nowhere/key"),
            ("--auth --noauth", "both --auth and --noauth"),
            ("--setParameter authenticationMechanisms=SCRAM-SHA-256,PLAIN", "unknown mechanism PLAIN"),
            ("--profile 3", "Bad value for profile: use 0, 1 or 2"),
            ("--slowOpSampleRate 2", "slowOpSampleRate must be between"),
            ("--tlsMode requireTLS", "needs a certificate key file"),
            ("--tlsMode sometimes", "unsupported value for tlsMode sometimes"),
            ("--tlsMode requireTLS --tlsCertificateKeyFile /nowhere/a.pem", "/nowhere/a.pem: No such file"),
            ("--sslMode requireSSL --sslPEMKeyFile /nowhere/a.pem", "/nowhere/a.pem: No such file"),
            ("--tlsCAFile /nowhere/a.pem", "TLS is off: add --tlsMode requireTLS"),
            ("--tlsClusterFile a", "Vellum opens no connections to other servers"),
            ("--setParameter x", "Illegal option assignment"),
            ("--maxConns 4", "maxConns has to be at least 5"),
            ("--storageEngine inMemory --wiredTigerCacheSizeGB 1", "memory engine"),
            ("--storageEngine inMemory --repair", "stores nothing"),
            ("--configExpand exec", "no expansion directives"),
            ("--logFormat text", "the log is JSON"),
            ("--oplogMinRetentionHours 2", "--oplogSize limits the oplog"),
            ("--wiredTigerIndexPrefixCompression false", "not WiredTiger"),
            ("--wiredTigerCacheSizeGB 0.001", "0.016"),
            ("--replSet a/b", "--replSet a/b"),
        ] {
            let error = config(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
