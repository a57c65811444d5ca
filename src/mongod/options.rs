//! Table of all options of mongod, and the parser of its command line.
//!
//! The parser of mongod's configuration file is here too. It is YAML, and its nested names are
//! options.
//!
//! A new option is a row of [`OPTIONS`]; `settings.rs` reads its value.

use Support::{Refused, Switch, Value};
use yaml_rust2::{Yaml, YamlLoader};

/// Treatment of an option.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Support {
    /// A supported switch.
    Switch,
    /// An option with a value, which may be refused.
    Value,
    /// Refused by name, for this reason.
    Refused(&'static str),
}

const NO_SHARDS: &str = "sharding is not supported";
const NO_OUTGOING_TLS: &str = "Vellum opens no connections to other servers";
const NO_SYSLOG: &str = "syslog is not supported; use --logpath";
const NO_SOCKET: &str = "Unix domain sockets are not supported";
const NOT_WIRED_TIGER: &str = "the storage engine is not WiredTiger";
const NOT_IMPLEMENTED: &str = "Vellum does not have this feature";

/// An option of mongod.
#[derive(Debug)]
pub(super) struct MongodOption {
    /// Name without dashes.
    pub(super) name: &'static str,
    /// Name in a configuration file; empty if the file cannot have it.
    pub(super) path: &'static str,
    /// Treatment of the option.
    pub(super) treatment: Support,
}

const fn option(name: &'static str, path: &'static str, treatment: Support) -> MongodOption {
    MongodOption { name, path, treatment }
}

/// All options of mongod 8.0, by name.
pub(super) const OPTIONS: &[MongodOption] = &[
    option("auth", "", Switch),
    option("bind_ip", "net.bindIp", Value),
    option("bind_ip_all", "net.bindIpAll", Switch),
    option("clusterAuthMode", "security.clusterAuthMode", Value),
    option(
        "clusterIpSourceAllowlist",
        "security.clusterIpSourceAllowlist",
        Refused("Vellum has no cluster members to check"),
    ),
    option("config", "", Value),
    option("configExpand", "", Refused("the configuration file has no expansion directives")),
    option("configsvr", "", Refused(NO_SHARDS)),
    option("cpu", "", Refused("Vellum has nothing to print for it")),
    option("dbpath", "storage.dbPath", Value),
    option("directoryperdb", "storage.directoryPerDB", Refused("all databases share one file")),
    option("enableMajorityReadConcern", "replication.enableMajorityReadConcern", Value),
    option("filePermissions", "net.unixDomainSocket.filePermissions", Refused(NO_SOCKET)),
    option("fork", "processManagement.fork", Switch),
    option("help", "", Switch),
    option(
        "inMemorySizeGB",
        "storage.inMemory.engineConfig.inMemorySizeGB",
        Refused("memory is not bounded"),
    ),
    option("ipv6", "net.ipv6", Switch),
    option("journal", "storage.journal.enabled", Switch),
    option("journalCommitInterval", "storage.journal.commitIntervalMs", Value),
    option("keyFile", "security.keyFile", Value),
    option("listenBacklog", "net.listenBacklog", Refused("the backlog is fixed")),
    option("logappend", "systemLog.logAppend", Switch),
    option("logpath", "systemLog.path", Value),
    option("logRotate", "systemLog.logRotate", Value),
    option("maxConns", "net.maxIncomingConnections", Value),
    option("networkMessageCompressors", "net.compression.compressors", Value),
    option("noauth", "", Switch),
    option("nojournal", "", Switch),
    option("noscripting", "", Switch),
    option("notablescan", "", Switch),
    option("nounixsocket", "", Switch),
    option("oplogSize", "replication.oplogSizeMB", Value),
    option("pidfilepath", "processManagement.pidFilePath", Value),
    option("port", "net.port", Value),
    option("profile", "", Value),
    option(
        "profileFilter",
        "operationProfiling.filter",
        Refused("the command profile sets filters, for each database"),
    ),
    option("quiet", "systemLog.quiet", Switch),
    option("redactClientLogData", "security.redactClientLogData", Refused(NOT_IMPLEMENTED)),
    option("repair", "storage.repair", Switch),
    option("replSet", "replication.replSetName", Value),
    option("setParameter", "", Value),
    option("shardsvr", "", Refused(NO_SHARDS)),
    option("shutdown", "", Refused("send the process SIGTERM, or the command shutdown")),
    option("slowms", "operationProfiling.slowOpThresholdMs", Value),
    option("slowOpSampleRate", "operationProfiling.slowOpSampleRate", Value),
    option("storageEngine", "storage.engine", Value),
    option("syncdelay", "storage.syncPeriodSecs", Value),
    option("sysinfo", "", Refused("Vellum has nothing to print for it")),
    option("syslog", "", Refused(NO_SYSLOG)),
    option("syslogFacility", "systemLog.syslogFacility", Refused(NO_SYSLOG)),
    option("timeStampFormat", "systemLog.timeStampFormat", Value),
    option("timeZoneInfo", "processManagement.timeZoneInfo", Refused("time zone rules are compiled in")),
    option("tlsAllowConnectionsWithoutCertificates", "net.tls.allowConnectionsWithoutCertificates", Switch),
    option(
        "tlsAllowInvalidCertificates",
        "net.tls.allowInvalidCertificates",
        Refused("client certificates are always validated"),
    ),
    option("tlsAllowInvalidHostnames", "net.tls.allowInvalidHostnames", Refused(NO_OUTGOING_TLS)),
    option("tlsCAFile", "net.tls.CAFile", Value),
    option("tlsCertificateKeyFile", "net.tls.certificateKeyFile", Value),
    option("tlsCertificateKeyFilePassword", "net.tls.certificateKeyFilePassword", Value),
    option("tlsClusterAuthX509Attributes", "net.tls.clusterAuthX509.attributes", Refused(NO_OUTGOING_TLS)),
    option(
        "tlsClusterAuthX509ExtensionValue",
        "net.tls.clusterAuthX509.extensionValue",
        Refused(NO_OUTGOING_TLS),
    ),
    option("tlsClusterCAFile", "net.tls.clusterCAFile", Refused(NO_OUTGOING_TLS)),
    option("tlsClusterFile", "net.tls.clusterFile", Refused(NO_OUTGOING_TLS)),
    option("tlsClusterPassword", "net.tls.clusterPassword", Refused(NO_OUTGOING_TLS)),
    option("tlsCRLFile", "net.tls.CRLFile", Value),
    option("tlsDisabledProtocols", "net.tls.disabledProtocols", Value),
    option("tlsFIPSMode", "net.tls.FIPSMode", Refused("the built-in cryptography is not FIPS-certified")),
    option(
        "tlsLogVersions",
        "net.tls.logVersions",
        Refused("serverStatus has the counters in transportSecurity"),
    ),
    option("tlsMode", "net.tls.mode", Value),
    option("tlsOnNormalPorts", "", Refused("use --tlsMode requireTLS")),
    option(
        "transitionToAuth",
        "security.transitionToAuth",
        Refused("use --auth to require authentication, or omit it"),
    ),
    option("unixSocketPrefix", "net.unixDomainSocket.pathPrefix", Refused(NO_SOCKET)),
    option("upgrade", "", Refused("data files need no upgrade")),
    option("verbose", "", Switch),
    option("version", "", Switch),
    option("wiredTigerCacheSizeGB", "storage.wiredTiger.engineConfig.cacheSizeGB", Value),
    option(
        "wiredTigerCollectionBlockCompressor",
        "storage.wiredTiger.collectionConfig.blockCompressor",
        Refused(NOT_WIRED_TIGER),
    ),
    option(
        "wiredTigerDirectoryForIndexes",
        "storage.wiredTiger.engineConfig.directoryForIndexes",
        Refused(NOT_WIRED_TIGER),
    ),
    option("wiredTigerEngineConfigString", "", Refused(NOT_WIRED_TIGER)),
    option(
        "wiredTigerIndexPrefixCompression",
        "storage.wiredTiger.indexConfig.prefixCompression",
        Refused(NOT_WIRED_TIGER),
    ),
    option(
        "wiredTigerJournalCompressor",
        "storage.wiredTiger.engineConfig.journalCompressor",
        Refused(NOT_WIRED_TIGER),
    ),
];

/// TLS options: names before version 4.2 on the command line and in a file, and present names.
const OLD_NAMES: &[(&str, &str, &str)] = &[
    (
        "sslAllowConnectionsWithoutCertificates",
        "net.ssl.allowConnectionsWithoutCertificates",
        "tlsAllowConnectionsWithoutCertificates",
    ),
    ("sslAllowInvalidCertificates", "net.ssl.allowInvalidCertificates", "tlsAllowInvalidCertificates"),
    ("sslAllowInvalidHostnames", "net.ssl.allowInvalidHostnames", "tlsAllowInvalidHostnames"),
    ("sslCAFile", "net.ssl.CAFile", "tlsCAFile"),
    ("sslClusterFile", "net.ssl.clusterFile", "tlsClusterFile"),
    ("sslCRLFile", "net.ssl.CRLFile", "tlsCRLFile"),
    ("sslDisabledProtocols", "net.ssl.disabledProtocols", "tlsDisabledProtocols"),
    ("sslMode", "net.ssl.mode", "tlsMode"),
    ("sslPEMKeyFile", "net.ssl.PEMKeyFile", "tlsCertificateKeyFile"),
    ("sslPEMKeyPassword", "net.ssl.PEMKeyPassword", "tlsCertificateKeyFilePassword"),
];

/// A given option with its value. A switch has "true" or "false".
pub(super) type ParsedOption = (&'static str, String);

/// Returns the option of a present or older name.
pub(super) fn find(name: &str) -> Option<&'static MongodOption> {
    let older = OLD_NAMES.iter().find(|(older, _, _)| *older == name);
    let name = older.map_or(name, |(_, _, newer)| newer);
    OPTIONS.iter().find(|known| known.name == name)
}

/// Returns the option of a name in a file.
pub(super) fn find_in_file(path: &str) -> Option<&'static MongodOption> {
    match OLD_NAMES.iter().find(|(_, older, _)| *older == path) {
        Some((_, _, newer)) => find(newer),
        None => OPTIONS.iter().find(|known| known.path == path && !path.is_empty()),
    }
}

/// Parses a command line. Errors have mongod's texts.
pub(super) fn parse(words: &[String]) -> Result<Vec<ParsedOption>, String> {
    let mut given = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some((name, mut value)) = split(word) else {
            return Err(format!("unrecognised option '{word}'"));
        };
        // Repeated letters set the verbosity: -vv.
        if word.starts_with("-v") && word.chars().skip(1).all(|c| c == 'v') {
            given.push(("verbose", (word.len() - 1).to_string()));
            continue;
        }
        let known = find(name).ok_or_else(|| format!("unrecognised option '{word}'"))?;
        match known.treatment {
            Refused(why) => return Err(format!("--{name} is not supported: {why}")),
            Switch if name == "verbose" => given.push(("verbose", value.unwrap_or_else(|| "1".to_string()))),
            Switch if value.is_some() => {
                return Err(format!("option '--{name}' does not take any arguments"));
            }
            Switch => given.push((known.name, "true".to_string())),
            Value => {
                let value = value.take().or_else(|| words.next().cloned());
                let value =
                    value.ok_or_else(|| format!("the required argument for option '--{name}' is missing"))?;
                if known.name != "setParameter" && given.iter().any(|(name, _)| *name == known.name) {
                    return Err(format!("Multiple occurrences of option \"--{name}\""));
                }
                given.push((known.name, value));
            }
        }
    }
    Ok(given)
}

/// Splits a word into name and value.
fn split(word: &str) -> Option<(&str, Option<String>)> {
    let rest = match word {
        "-f" => "config",
        "-h" | "-?" => "help",
        _ if word.starts_with("-v") => "verbose",
        _ => word.strip_prefix("--")?,
    };
    match rest.split_once('=') {
        Some((name, value)) => Some((name, Some(value.to_string()))),
        None => Some((rest, None)),
    }
}

/// Parses a configuration file. Errors have mongod's texts.
pub(super) fn parse_file(text: &str) -> Result<Vec<ParsedOption>, String> {
    let documents = YamlLoader::load_from_str(text)
        .map_err(|error| format!("Error parsing YAML config file: {error}"))?;
    let mut given = Vec::new();
    match documents.first() {
        None | Some(Yaml::Null) => {}
        Some(document @ Yaml::Hash(_)) => parse_node("", document, &mut given)?,
        Some(_) => return Err("Error parsing YAML config file: expected a map".to_string()),
    }
    Ok(given)
}

fn parse_node(path: &str, value: &Yaml, given: &mut Vec<ParsedOption>) -> Result<(), String> {
    let Yaml::Hash(map) = value else { return parse_leaf(path, value, given) };
    for (key, value) in map {
        let key = key.as_str().ok_or_else(|| format!("{path}: names have to be strings"))?;
        if path == "setParameter" {
            given.push(("setParameter", format!("{key}={}", scalar(key, value)?)));
        } else if path.is_empty() {
            parse_node(key, value, given)?;
        } else {
            parse_node(&format!("{path}.{key}"), value, given)?;
        }
    }
    Ok(())
}

fn parse_leaf(path: &str, value: &Yaml, given: &mut Vec<ParsedOption>) -> Result<(), String> {
    if matches!(value, Yaml::Null) {
        return Ok(());
    }
    let text = scalar(path, value)?;
    let refused = |why: &str| Err(format!("{path}: {text} is not supported: {why}"));
    match (path, text.as_str()) {
        ("systemLog.destination", "file") => return Ok(()),
        ("systemLog.destination", _) => {
            return refused(
                "syslog is not supported; use \"file\" and \
         systemLog.path",
            );
        }
        ("security.authorization", "disabled") => given.push(("noauth", "true".to_string())),
        ("security.authorization", "enabled") => given.push(("auth", "true".to_string())),
        ("security.authorization", _) => return refused("enabled or disabled"),
        ("security.javascriptEnabled", "false") => given.push(("noscripting", "true".to_string())),
        ("security.javascriptEnabled", _) => return refused("JavaScript is not supported"),
        ("net.unixDomainSocket.enabled", "false") => given.push(("nounixsocket", "true".to_string())),
        ("net.unixDomainSocket.enabled", _) => return refused("Unix domain sockets are not supported"),
        ("storage.journal.enabled", "false") => given.push(("nojournal", "true".to_string())),
        ("systemLog.verbosity", _) => given.push(("verbose", text)),
        ("operationProfiling.mode", "off") => given.push(("profile", "0".to_string())),
        ("operationProfiling.mode", "slowOp") => given.push(("profile", "1".to_string())),
        ("operationProfiling.mode", "all") => given.push(("profile", "2".to_string())),
        ("operationProfiling.mode", _) => return refused("off, slowOp or all"),
        _ => {
            let known = find_in_file(path).ok_or_else(|| format!("Unrecognized option: {path}"))?;
            match (known.treatment, text.as_str()) {
                (Support::Refused(why), _) => return refused(why),
                (Support::Switch, "true") | (Support::Value, _) => given.push((known.name, text)),
                (Support::Switch, "false") => {}
                (Support::Switch, _) => return Err(format!("{path}: expected true or false, not {text}")),
            }
        }
    }
    Ok(())
}

fn scalar(path: &str, value: &Yaml) -> Result<String, String> {
    match value {
        Yaml::String(text) | Yaml::Real(text) => Ok(text.clone()),
        Yaml::Integer(number) => Ok(number.to_string()),
        Yaml::Boolean(flag) => Ok(flag.to_string()),
        _ => Err(format!("{path}: expected a string, a number or a boolean")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Vec<ParsedOption>, String> {
        parse(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn words_are_taken_apart_as_mongod_does() {
        let given = words("--port 5 --dbpath=/x -vv --noauth --setParameter a=1 --setParameter b=2").unwrap();
        let expected = [
            ("port", "5"),
            ("dbpath", "/x"),
            ("verbose", "2"),
            ("noauth", "true"),
            ("setParameter", "a=1"),
            ("setParameter", "b=2"),
        ];
        assert_eq!(given, expected.map(|(name, value)| (name, value.to_string())));
    }

    #[test]
    fn the_table_is_sorted() {
        let plain = |name: &str| name.to_ascii_lowercase().replace('_', "");
        assert!(OPTIONS.is_sorted_by_key(|known| plain(known.name)));
    }

    #[test]
    fn errors_use_mongods_texts() {
        for (line, part) in [
            ("--prot 5", "unrecognised option '--prot'"),
            ("serve", "unrecognised option 'serve'"),
            ("--port", "argument for option '--port' is missing"),
            ("--port 1 --port 2", "Multiple occurrences"),
            ("--fork=1", "does not take any arguments"),
            ("--shardsvr", "sharding is not supported"),
        ] {
            let error = words(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}

#[cfg(test)]
mod file_tests {
    use super::*;

    #[test]
    fn nested_names_are_options() {
        let given = parse_file(
            "# from the manual\nsystemLog:\n  destination: file\n  path: \"/var/log/m.log\"\n  logAppend: true\n\
             storage:\n  dbPath: /var/lib/m\n  wiredTiger: {engineConfig: {cacheSizeGB: 0.5}}\n\
             net:\n  bindIp: 127.0.0.1\n  port: 27018\nsecurity:\n  authorization: disabled\n\
             processManagement:\n  fork: false\nsetParameter:\n  enableTestCommands: 1\n",
        );
        let expected = [
            ("logpath", "/var/log/m.log"),
            ("logappend", "true"),
            ("dbpath", "/var/lib/m"),
            ("wiredTigerCacheSizeGB", "0.5"),
            ("bind_ip", "127.0.0.1"),
            ("port", "27018"),
            ("noauth", "true"),
            ("setParameter", "enableTestCommands=1"),
        ];
        assert_eq!(given.unwrap(), expected.map(|(name, value)| (name, value.to_string())));
        assert_eq!(parse_file("").unwrap(), []);
    }

    #[test]
    fn invalid_options_are_refused_by_name() {
        for (text, part) in [
            ("net: {prot: 5}", "Unrecognized option: net.prot"),
            ("net: {tls: {clusterFile: x}}", "net.tls.clusterFile: x is not supported"),
            ("security: {authorization: perhaps}", "enabled or disabled"),
            ("systemLog: {destination: syslog}", "syslog"),
            ("processManagement: {fork: perhaps}", "expected true or false"),
            ("net: [1]", "expected a string"),
            ("- 1", "expected a map"),
            ("a: b: c", "Error parsing YAML"),
        ] {
            let error = parse_file(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
