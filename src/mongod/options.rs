//! Parser of mongod's command line and of its configuration file. The file is YAML, and its nested
//! names are options.
//!
//! A new option is a row of `OPTIONS` in `table.rs`; `settings.rs` reads its value.

use super::table::Support::{Off, Refused, Switch, Value};
use super::table::{find, find_in_file, refused_group, refused_group_in_file};
use yaml_rust2::parser::{Event, MarkedEventReceiver, Parser};
use yaml_rust2::scanner::{Marker, TScalarStyle};
use yaml_rust2::{Yaml, YamlLoader};

/// A given option with its value. A switch has "true" or "false".
pub(super) type ParsedOption = (&'static str, String);

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
        let known = find(name).ok_or_else(|| match refused_group(name) {
            Some(why) => format!("--{name} is not supported: {why}"),
            None => format!("unrecognised option '{word}'"),
        })?;
        match known.treatment {
            Refused(why) | Off(why) => return Err(format!("--{name} is not supported: {why}")),
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
    let failed = |error| format!("Error parsing YAML config file: {error}");
    YamlLoader::load_from_str(text).map_err(failed)?;
    let mut loader = ExactLoader::default();
    Parser::new_from_str(text).load(&mut loader, true).map_err(failed)?;
    let mut given = Vec::new();
    match loader.0.documents().first() {
        None | Some(Yaml::Null) => {}
        Some(document @ Yaml::Hash(_)) => parse_node("", document, &mut given)?,
        Some(_) => return Err("Error parsing YAML config file: expected a map".to_string()),
    }
    Ok(given)
}

/// Loads integers as texts, because a name may be `007`. It does not report errors in values.
#[derive(Default)]
struct ExactLoader(YamlLoader);

impl MarkedEventReceiver for ExactLoader {
    fn on_event(&mut self, event: Event, at: Marker) {
        let event = match event {
            Event::Scalar(text, TScalarStyle::Plain, anchor, tag) if text.parse::<i64>().is_ok() => {
                Event::Scalar(text, TScalarStyle::SingleQuoted, anchor, tag)
            }
            other => other,
        };
        self.0.on_event(event, at);
    }
}

/// Options that contradict each other.
const OPPOSITES: &[[&str; 2]] = &[["auth", "noauth"], ["bind_ip", "bind_ip_all"], ["journal", "nojournal"]];

/// Adds the options of a file to the options of the command line, which have precedence.
pub(super) fn add_file(given: &mut Vec<ParsedOption>, file: Vec<ParsedOption>) {
    let typed = given.clone();
    let is_overridden = |option: &ParsedOption| typed.iter().any(|typed| overrides(typed, option));
    given.extend(file.into_iter().filter(|option| option.0 != "config" && !is_overridden(option)));
}

fn overrides((name, value): &ParsedOption, (lower, lower_value): &ParsedOption) -> bool {
    let parameter = |text: &str| text.split('=').next().map(str::to_string);
    match name == lower {
        true => *name != "setParameter" || parameter(value) == parameter(lower_value),
        false => OPPOSITES.iter().any(|pair| pair.contains(name) && pair.contains(lower)),
    }
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
    // A refused option may have a list.
    let shown = scalar(path, value).map(|text| format!(" {text}")).unwrap_or_default();
    let refused = |why: &str| Err(format!("{path}:{shown} is not supported: {why}"));
    let known = find_in_file(path);
    if let Some(why) = refused_group_in_file(path).filter(|_| known.is_none()) {
        return refused(why);
    }
    if let Some(Refused(why)) = known.map(|known| known.treatment) {
        return refused(why);
    }
    let text = scalar(path, value)?;
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
        ("net.wireObjectCheck", "false") => return refused("messages are always validated"),
        ("systemLog.verbosity", _) => given.push(("verbose", text)),
        ("operationProfiling.mode", "off") => given.push(("profile", "0".to_string())),
        ("operationProfiling.mode", "slowOp") => given.push(("profile", "1".to_string())),
        ("operationProfiling.mode", "all") => given.push(("profile", "2".to_string())),
        ("operationProfiling.mode", _) => return refused("off, slowOp or all"),
        _ => {
            let known = known.ok_or_else(|| format!("Unrecognized option: {path}"))?;
            match (known.treatment, text.as_str()) {
                (Switch, "true") | (Value, _) => given.push((known.name, text)),
                (Switch | Off(_), "false") => {}
                (Switch, _) => return Err(format!("{path}: expected true or false, not {text}")),
                (Refused(why) | Off(why), _) => return refused(why),
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
    fn errors_use_mongods_texts() {
        for (line, part) in [
            ("--prot 5", "unrecognised option '--prot'"),
            ("serve", "unrecognised option 'serve'"),
            ("--port", "argument for option '--port' is missing"),
            ("--port 1 --port 2", "Multiple occurrences"),
            ("--fork=1", "does not take any arguments"),
            ("--shardsvr", "sharding is not supported"),
            ("--noobjcheck", "messages are always validated"),
            ("--outputConfig", "does not print the resolved options"),
            ("--configExpandTimeoutSecs 5", "no expansion directives"),
            ("--priorityPort 5", "one port"),
            ("--loadExtensions a", "no extensions"),
            ("--proxyUnixSocketPrefix a", "Unix domain sockets"),
            ("--enableEncryption", "does not encrypt its files"),
            ("--encryptionKeyFile a", "does not encrypt its files"),
            ("--auditDestination file", "no audit log"),
            ("--ldapServers a", "LDAP is not supported"),
            ("--directoryperdb", "share one file"),
            ("--wiredTigerStatisticsLogDelaySecs 5", "not WiredTiger"),
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
        let given = parse_file("replication: {replSetName: 007, oplogSizeMB: 0x40}").unwrap();
        assert_eq!(given, [("replSet", "007".to_string()), ("oplogSize", "64".to_string())]);
    }

    #[test]
    fn the_command_line_has_precedence() {
        let words = ["--auth", "--journal", "--bind_ip", "::1", "--setParameter", "a=1", "--port=5"];
        let typed = parse(&words.map(str::to_string)).unwrap();
        let text = "security: {authorization: disabled}\nstorage: {journal: {enabled: false}}\n\
             net: {bindIpAll: true, port: 6, maxIncomingConnections: 7}\nsetParameter: {a: 2, b: 3}\n";
        let mut given = typed.clone();
        add_file(&mut given, parse_file(text).unwrap());
        let added =
            [("maxConns", "7"), ("setParameter", "b=3")].map(|(name, value)| (name, value.to_string()));
        assert_eq!(given, [&typed[..], &added[..]].concat());
    }

    #[test]
    fn switches_that_stay_off_may_be_false() {
        let text = "storage: {directoryPerDB: false, wiredTiger: {engineConfig: {directoryForIndexes: false}}}\n\
             net: {tls: {FIPSMode: false, allowInvalidCertificates: false, allowInvalidHostnames: false}}\n\
             security: {redactClientLogData: false, transitionToAuth: false, enableEncryption: false}\n\
             systemLog: {traceAllExceptions: false}\n";
        assert_eq!(parse_file(text).unwrap(), []);
    }

    #[test]
    fn invalid_options_are_refused_by_name() {
        for (text, part) in [
            ("net: {prot: 5}", "Unrecognized option: net.prot"),
            ("net: {tls: {clusterFile: x}}", "net.tls.clusterFile: x is not supported"),
            ("security: {authorization: perhaps}", "enabled or disabled"),
            ("systemLog: {destination: syslog}", "syslog"),
            ("sharding: {clusterRole: shardsvr}", "sharding is not supported"),
            ("sharding: {archiveMovedChunks: true}", "sharding is not supported"),
            ("systemLog: {component: {replication: {verbosity: 2}}}", "use systemLog.verbosity"),
            ("auditLog: {destination: file}", "no audit log"),
            ("cloud: {monitoring: {free: {state: off}}}", "no cloud service"),
            ("storage: {directoryPerDB: true}", "share one file"),
            ("net: {wireObjectCheck: false}", "always validated"),
            ("net: {maxIncomingConnectionsOverride: [10.0.0.0/8]}", "has no exceptions"),
            ("processManagement: {fork: perhaps}", "expected true or false"),
            ("net: [1]", "expected a string"),
            ("- 1", "expected a map"),
            ("a: b: c", "Error parsing YAML"),
            ("net: {port: 1, port: 2}", "duplicated key in mapping"),
        ] {
            let error = parse_file(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
