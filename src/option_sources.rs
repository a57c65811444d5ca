//! Options from the environment and a file, inserted before the command line as if typed.
//!
//! Precedence: command line, then environment, then file. Each option has one name: `--cache-size`
//! is `VELLUM_CACHE_SIZE` and `cache-size = "1G"`.

use crate::cli::{DISK_OPTIONS, POSTGRES_OPTIONS, ServeOptions};
use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, Args, Command};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

const PREFIX: &str = "VELLUM_";

/// Kubernetes sets `VELLUM_PORT` to an address in each container beside a service named vellum.
const SERVICE_LINK: &str = "tcp://";

/// An option from the environment or the file, below the command line in precedence.
struct LowerOption {
    name: String,
    /// The option as typed; `None` for a flag that is off.
    word: Option<OsString>,
    /// Source of the option.
    origin: String,
}

/// A complete command line.
pub(crate) struct Expanded {
    /// Words to parse.
    pub(crate) words: Vec<OsString>,
    /// Options that were not typed, with their sources. Error messages list them.
    pub(crate) origins: Vec<String>,
}

/// Completes the command line of `serve`. Other verbs stay unchanged.
///
/// Fails for an unreadable file and for unknown options in it. The error has the line and the
/// nearest name.
pub(crate) fn expand(
    words: Vec<OsString>,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Expanded, String> {
    let verb = words.get(1).and_then(|word| word.to_str()).filter(|word| !word.starts_with('-'));
    let asks_for_help = words.iter().any(|word| {
        ["--help", "-h", "--help-all", "--version", "-V"].iter().any(|requested| word == requested)
    });
    if verb.is_some_and(|verb| verb != "serve") || asks_for_help {
        return Ok(Expanded { words, origins: Vec::new() });
    }
    if typed_value(&words, "auth").is_some() && typed_value(&words, "no-auth").is_some() {
        return Err("--auth and --no-auth contradict each other: give one of them".to_string());
    }
    let options = ServeOptions::augment_args(Command::new("serve"));
    let mut lower = from_environment(environment, &options)?;
    let named = lower.iter().find(|lower| lower.name == "config").map(|lower| lower.value());
    if let Some(file) = typed_value(&words, "config").or(named) {
        let file = PathBuf::from(file);
        for option in from_file(&file, &options)? {
            if !lower.iter().any(|known| known.overrides(&option)) {
                lower.push(option);
            }
        }
    }
    // With a typed memory engine, other places of data in the environment and the file are ignored.
    let in_memory = typed_value(&words, "engine").is_some_and(|engine| engine == "memory");
    lower.retain(|lower| {
        typed_value(&words, &lower.name).is_none()
            && !(in_memory && [DISK_OPTIONS, POSTGRES_OPTIONS].concat().contains(&lower.name.as_str()))
    });
    let at = if verb.is_some() { 2 } else { 1 }.min(words.len());
    let mut words = words;
    words.splice(at..at, lower.iter_mut().filter_map(|lower| lower.word.take()));
    Ok(Expanded { words, origins: lower.into_iter().map(|lower| lower.origin).collect() })
}

impl LowerOption {
    /// Returns true if an option of lower precedence has no effect: it has the same name, or is the opposite of a flag
    /// that is on.
    fn overrides(&self, other: &LowerOption) -> bool {
        let is_opposite =
            matches!((self.name.as_str(), other.name.as_str()), ("auth", "no-auth") | ("no-auth", "auth"));
        self.name == other.name || is_opposite && self.word.is_some()
    }

    fn value(&self) -> OsString {
        let word = self.word.clone().unwrap_or_default();
        let text = word.to_string_lossy();
        text.split_once('=').map_or_else(OsString::new, |(_, value)| value.into())
    }
}

/// Returns the typed value of an option; empty for a flag.
fn typed_value(words: &[OsString], name: &str) -> Option<OsString> {
    let option = format!("--{name}");
    words.iter().enumerate().find_map(|(at, word)| {
        if word.as_os_str() == OsStr::new(&option) {
            return Some(words.get(at + 1).cloned().unwrap_or_default());
        }
        let text = word.to_string_lossy();
        let value = text.strip_prefix(&option)?.strip_prefix('=')?;
        Some(value.into())
    })
}

/// Returns the options in the environment.
fn from_environment(
    environment: impl Iterator<Item = (OsString, OsString)>,
    options: &Command,
) -> Result<Vec<LowerOption>, String> {
    let mut lower = Vec::new();
    for (variable, value) in environment {
        let Some(name) = variable.to_str().and_then(|variable| variable.strip_prefix(PREFIX)) else {
            continue;
        };
        let name = name.to_ascii_lowercase().replace('_', "-");
        if !is_option(options, &name) || value.is_empty() {
            continue;
        }
        if name == "port" && value.to_string_lossy().starts_with(SERVICE_LINK) {
            continue;
        }
        let origin = variable.to_string_lossy().into_owned();
        let mut word = OsString::from(format!("--{name}"));
        let word = if is_flag(options, &name) {
            parse_bool(&value.to_string_lossy())
                .ok_or_else(|| format!("{origin}: expected true or false"))?
                .then_some(word)
        } else {
            word.push("=");
            word.push(&value);
            Some(word)
        };
        lower.push(LowerOption { name, word, origin });
    }
    Ok(lower)
}

/// Returns the options in a file.
fn from_file(path: &Path, options: &Command) -> Result<Vec<LowerOption>, String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
    let table: toml::Table = text.parse().map_err(|error| {
        let code = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim_end());
        let is_yaml =
            code.filter(|line| !line.contains('=')).any(|line| line.ends_with(':') || line.contains(": "));
        let hint = match is_yaml {
            true => {
                format!("--config takes TOML. For mongod's YAML file: vellum mongod --config '{shown}'")
            }
            false => String::new(),
        };
        format!("{shown}: {error}{hint}")
    })?;
    let mut lower = Vec::new();
    for (key, value) in table {
        if key == "config" {
            return Err(format!(
                "{shown}: 'config' is allowed only on the command line and as VELLUM_CONFIG"
            ));
        }
        if matches!(key.as_str(), "help" | "help-all") {
            return Err(format!("{shown}: '{key}' is allowed only on the command line"));
        }
        if !is_option(options, &key) {
            let line = line_of(&text, &key).map(|line| format!(":{line}")).unwrap_or_default();
            let nearest =
                nearest(options, &key).map(|name| format!(". Did you mean '{name}'?")).unwrap_or_default();
            return Err(format!("{shown}{line}: unknown option '{key}'{nearest}"));
        }
        let word = match (&value, is_flag(options, &key)) {
            (toml::Value::Boolean(on), true) => on.then(|| format!("--{key}").into()),
            (_, true) => return Err(format!("{shown}: {key}: expected true or false")),
            (toml::Value::String(text), _) => Some(format!("--{key}={text}").into()),
            (toml::Value::Integer(number), _) => Some(format!("--{key}={number}").into()),
            (toml::Value::Boolean(on), _) => Some(format!("--{key}={on}").into()),
            _ => return Err(format!("{shown}: {key}: expected a string, an integer or a boolean")),
        };
        let origin = format!("{key} in {shown}");
        lower.push(LowerOption { name: key, word, origin });
    }
    Ok(lower)
}

/// Returns the line number of a key in a file, from 1.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let name = |line: &str| {
        let name = line.split('=').next().unwrap_or_default().trim();
        name.trim_matches(['"', '\'', '[', ']']).to_string()
    };
    text.lines().position(|line| name(line) == key).map(|at| at + 1)
}

/// Returns the nearest option name, as suggested by clap.
fn nearest(options: &Command, name: &str) -> Option<String> {
    let words = [format!("--{name}")];
    let error =
        options.clone().disable_help_flag(true).no_binary_name(true).try_get_matches_from(words).err()?;
    match error.get(ContextKind::SuggestedArg)? {
        ContextValue::String(option) => Some(option.trim_start_matches('-').to_string()),
        _ => None,
    }
}

fn is_option(options: &Command, name: &str) -> bool {
    !matches!(name, "help" | "help-all")
        && options.get_arguments().any(|argument| argument.get_long() == Some(name))
}

fn is_flag(options: &Command, name: &str) -> bool {
    let argument = options.get_arguments().find(|argument| argument.get_long() == Some(name));
    argument.is_some_and(|argument| matches!(argument.get_action(), ArgAction::SetTrue))
}

/// Parses a truth value.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(line: &str, environment: &[(&str, &str)]) -> Result<String, String> {
        let words = line.split_whitespace().map(OsString::from).collect();
        let environment =
            environment.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let words = expand(words, environment)?.words;
        Ok(words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "))
    }

    fn file(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("vellum-{name}-{}.toml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn the_environment_sets_options_missing_on_the_command_line() {
        let environment =
            [("VELLUM_PORT", "5"), ("VELLUM_STRICT", "yes"), ("VELLUM_BINARY", "x"), ("PORT", "6")];
        assert_eq!(expanded("vellum", &environment).unwrap(), "vellum --port=5 --strict");
        assert_eq!(
            expanded("vellum serve --port 7", &environment).unwrap(),
            "vellum serve --strict --port 7"
        );
        assert_eq!(expanded("vellum --port=7", &environment).unwrap(), "vellum --strict --port=7");
        for line in ["vellum ping", "vellum lab clean", "vellum --help"] {
            assert_eq!(expanded(line, &environment).unwrap(), line);
        }
        for (name, value) in
            [("VELLUM_STRICT", "0"), ("VELLUM_DATA", ""), ("VELLUM_PORT", "tcp://10.0.0.1:5")]
        {
            assert_eq!(expanded("vellum", &[(name, value)]).unwrap(), "vellum");
        }
        assert!(expanded("vellum", &[("VELLUM_STRICT", "perhaps")]).unwrap_err().contains("VELLUM_STRICT"));
    }

    #[test]
    fn the_file_sets_remaining_options() {
        let path = file(
            "fills",
            "port = 5\ncache-size = \"1G\"\nstrict = true\nrepair = false\ntest-commands = false",
        );
        let line = format!("vellum --config {}", path.display());
        let found = expanded(&line, &[("VELLUM_PORT", "6")]).unwrap();
        for word in ["--port=6", "--cache-size=1G", "--strict", "--test-commands=false"] {
            assert!(found.split(' ').any(|found| found == word), "{found}");
        }
        assert!(!found.contains("--port=5") && !found.contains("--repair"), "{found}");
        let named = expanded("vellum", &[("VELLUM_CONFIG", &path.display().to_string())]).unwrap();
        assert!(named.contains("--port=5"), "{named}");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_environment_decides_about_logins_before_the_file() {
        for (in_file, variable, expected) in [
            ("no-auth = true", ("VELLUM_AUTH", "true"), "--auth"),
            ("auth = true", ("VELLUM_NO_AUTH", "true"), "--no-auth"),
            ("auth = true", ("VELLUM_NO_AUTH", "false"), "--auth"),
            ("no-auth = true", ("VELLUM_AUTH", "false"), "--no-auth"),
            ("auth = true", ("VELLUM_AUTH", "false"), ""),
        ] {
            let path = file("logins", in_file);
            let line = format!("vellum --config={}", path.display());
            let found = expanded(&line, &[variable]).unwrap();
            let words: Vec<_> = found.split(' ').filter(|word| word.ends_with("auth")).collect();
            assert_eq!(words.join(" "), expected, "{in_file}, {variable:?}");
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn memory_leaves_other_places_of_data_alone() {
        let environment = [("VELLUM_DATA", "d"), ("VELLUM_POSTGRES", "host=x"), ("VELLUM_PORT", "5")];
        assert_eq!(
            expanded("vellum --engine memory", &environment).unwrap(),
            "vellum --port=5 --engine memory"
        );
    }

    #[test]
    fn mistakes_in_a_file_are_named() {
        for (name, text, part) in [
            ("broken", "port = = 5", "line 1"),
            ("flag", "strict = 1", "strict: expected true or false"),
            ("kind", "port = [1]", "port: expected"),
            ("nested", "config = \"x\"", "'config' is allowed only on the command line and as VELLUM_CONFIG"),
        ] {
            let path = file(name, text);
            let error = expanded(&format!("vellum --config={}", path.display()), &[]).unwrap_err();
            assert!(error.contains(part) && error.contains(".toml"), "{error}");
            std::fs::remove_file(path).unwrap();
        }
        assert!(expanded("vellum --config /nowhere", &[]).unwrap_err().contains("/nowhere"));
    }
}
