//! mongod's configuration file: YAML, whose nested names are options.

use super::options::{Given, Treatment, find_in_file};
use yaml_rust2::{Yaml, YamlLoader};

/// The options that a file sets, in mongod's errors where it can't.
pub(super) fn parse(text: &str) -> Result<Vec<Given>, String> {
    let documents = YamlLoader::load_from_str(text)
        .map_err(|error| format!("Error parsing YAML config file: {error}"))?;
    let mut given = Vec::new();
    match documents.first() {
        None | Some(Yaml::Null) => {}
        Some(document @ Yaml::Hash(_)) => walk("", document, &mut given)?,
        Some(_) => return Err("Error parsing YAML config file: expected a map".to_string()),
    }
    Ok(given)
}

fn walk(path: &str, value: &Yaml, given: &mut Vec<Given>) -> Result<(), String> {
    let Yaml::Hash(map) = value else { return leaf(path, value, given) };
    for (key, value) in map {
        let key = key.as_str().ok_or_else(|| format!("{path}: names have to be strings"))?;
        if path == "setParameter" {
            given.push(("setParameter", format!("{key}={}", scalar(key, value)?)));
        } else if path.is_empty() {
            walk(key, value, given)?;
        } else {
            walk(&format!("{path}.{key}"), value, given)?;
        }
    }
    Ok(())
}

fn leaf(path: &str, value: &Yaml, given: &mut Vec<Given>) -> Result<(), String> {
    if matches!(value, Yaml::Null) {
        return Ok(());
    }
    let text = scalar(path, value)?;
    let refused = |why: &str| Err(format!("{path}: {text} means nothing to Vellum: {why}"));
    match (path, text.as_str()) {
        ("systemLog.destination", "file") => return Ok(()),
        ("systemLog.destination", _) => return refused("there is no syslog; \"file\" with systemLog.path"),
        ("security.authorization", "disabled") => given.push(("noauth", "true".to_string())),
        ("security.authorization", "enabled") => given.push(("auth", "true".to_string())),
        ("security.authorization", _) => return refused("enabled or disabled"),
        ("security.javascriptEnabled", "false") => given.push(("noscripting", "true".to_string())),
        ("security.javascriptEnabled", _) => return refused("there is no JavaScript"),
        ("net.unixDomainSocket.enabled", "false") => given.push(("nounixsocket", "true".to_string())),
        ("net.unixDomainSocket.enabled", _) => return refused("there is no Unix domain socket"),
        ("storage.journal.enabled", "false") => given.push(("nojournal", "true".to_string())),
        ("systemLog.verbosity", _) => given.push(("verbose", text)),
        ("operationProfiling.mode", "off") => given.push(("profile", "0".to_string())),
        ("operationProfiling.mode", "slowOp") => given.push(("profile", "1".to_string())),
        ("operationProfiling.mode", "all") => given.push(("profile", "2".to_string())),
        ("operationProfiling.mode", _) => return refused("off, slowOp or all"),
        _ => {
            let known = find_in_file(path).ok_or_else(|| format!("Unrecognized option: {path}"))?;
            match (known.treatment, text.as_str()) {
                (Treatment::Refused(why), _) => return refused(why),
                (Treatment::Switch, "true") | (Treatment::Value, _) => given.push((known.name, text)),
                (Treatment::Switch, "false") => {}
                (Treatment::Switch, _) => return Err(format!("{path}: expected true or false, not {text}")),
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

    #[test]
    fn nested_names_are_options() {
        let given = parse(
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
        assert_eq!(parse("").unwrap(), []);
    }

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        for (text, part) in [
            ("net: {prot: 5}", "Unrecognized option: net.prot"),
            ("net: {tls: {clusterFile: x}}", "net.tls.clusterFile: x means nothing"),
            ("security: {authorization: perhaps}", "enabled or disabled"),
            ("systemLog: {destination: syslog}", "syslog"),
            ("processManagement: {fork: perhaps}", "expected true or false"),
            ("net: [1]", "expected a string"),
            ("- 1", "expected a map"),
            ("a: b: c", "Error parsing YAML"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
