//! Hints for common mistakes on the command line, in place of clap's messages.
//!
//! A new hint is a function in [`hint`].

use crate::cli::is_server_address;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;
use std::path::Path;

/// Verbs that take a connection string.
const OF_SERVERS: &[&str] = &["ping", "top", "advise", "backup"];

/// Returns a hint for a mistake, if one is known.
pub(crate) fn hint(error: &clap::Error, words: &[OsString]) -> Option<String> {
    if !error.use_stderr() {
        return None;
    }
    let words: Vec<&str> = words.iter().skip(1).filter_map(|word| word.to_str()).collect();
    let by_words = separate_value(&words);
    if by_words.is_some()
        || !matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand)
    {
        return by_words;
    }
    let kinds = [ContextKind::InvalidSubcommand, ContextKind::InvalidArg];
    let word = kinds.iter().find_map(|kind| match error.get(*kind)? {
        ContextValue::String(word) => Some(word.as_str()),
        _ => None,
    })?;
    option_of_server(word, &words)
        .or_else(|| service_verb(word, words.first() == Some(&word)))
        .or_else(|| misplaced(word))
}

/// Returns a hint for an option whose value needs an equals sign.
fn separate_value(words: &[&str]) -> Option<String> {
    let mut pairs = words.iter().zip(words.iter().skip(1));
    let (_, value) =
        pairs.find(|(word, value)| **word == "--test-commands" && matches!(**value, "true" | "false"))?;
    Some(format!("--test-commands takes its value after an equals sign: --test-commands={value}"))
}

/// Returns a hint for an option of the server behind a verb that names the server or directory without an option.
fn option_of_server(word: &str, words: &[&str]) -> Option<String> {
    let verb = words.first()?;
    let at = words.iter().position(|given| given.split('=').next() == Some(word))?;
    let given = words.get(at)?;
    let value = given.split_once('=').map(|(_, value)| value).or_else(|| words.get(at + 1).copied());
    match word {
        "--port" | "--bind" if OF_SERVERS.contains(verb) => {
            let port =
                value.filter(|value| word == "--port" && value.parse::<u16>().is_ok()).unwrap_or("PORT");
            Some(format!(
                "{verb} has no option {word}. Give the connection string: vellum {verb} mongodb://127.0.0.1:{port}/"
            ))
        }
        "--data" if OF_SERVERS.contains(verb) => Some(format!(
            "{verb} has no option --data, because it queries a running server. Give the connection string: vellum \
             {verb} mongodb://127.0.0.1:27017/"
        )),
        "--data" if *verb == "verify" => {
            Some(format!("{verb} has no option --data: vellum {verb} '{}'", value.unwrap_or("DIR")))
        }
        _ => None,
    }
}

/// Returns a hint for verbs of service managers.
fn service_verb(word: &str, is_verb: bool) -> Option<String> {
    match word {
        "stop" | "shutdown" if is_verb => {
            Some(format!("'{word}' is not a verb. Ctrl-C, SIGTERM or the command shutdown stops a server"))
        }
        "start" | "run" if is_verb => {
            Some(format!("'{word}' is not a verb. vellum without a verb starts a server"))
        }
        _ => None,
    }
}

/// Returns a hint for a connection string or path in the place of a verb.
fn misplaced(word: &str) -> Option<String> {
    if is_server_address(word) {
        return Some(format!(
            "'{word}' is the address of a server. To check that it responds: vellum ping '{word}'. To watch \
             its load: vellum top '{word}'"
        ));
    }
    let is_path = !word.starts_with('-') && (word.contains(['/', '\\', '.']) || Path::new(word).exists());
    is_path.then(|| format!("'{word}' looks like a directory. To store data in it: vellum --data '{word}'"))
}
