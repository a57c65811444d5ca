//! Fingerprints of servers with MongoDB's protocol: Vellum, MongoDB, FerretDB, mongo-java-server, the lab's null
//! server, or an unknown server.
//!
//! A new kind of server is a branch of [`read`] with a function that states its durability.

use super::ReportedProperties;
use crate::result::DurabilityGuarantee;
use crate::target::{ClientSettings, Target, at, number};
use mongodb::bson::{Bson, Document, doc, serialize_to_document};
use mongodb::options::{Acknowledgment, WriteConcern};

/// Questions and answers. An error is an answer too.
#[derive(Debug, Default)]
struct CommandReplies {
    build: Document,
    status: Document,
    options: Document,
    hello: Document,
    default_concern: Document,
    /// Write concern of the connection string.
    given_concern: Option<WriteConcern>,
}

/// Asks a server for everything that a fingerprint needs.
pub(super) async fn ask(target: &Target) -> ReportedProperties {
    let mut answers = CommandReplies::default();
    let client = match target.mongo().await {
        Ok(client) => client,
        Err(error) => {
            let mut properties = ReportedProperties::default();
            properties.detail("server", error.to_string());
            return properties;
        }
    };
    if let ClientSettings::Mongo(options) = &*target.client {
        answers.given_concern = options.write_concern.clone();
    }
    let admin = client.database("admin");
    let commands = [
        (doc! { "buildInfo": 1 }, &mut answers.build),
        (doc! { "serverStatus": 1 }, &mut answers.status),
        (doc! { "getCmdLineOpts": 1 }, &mut answers.options),
        (doc! { "hello": 1 }, &mut answers.hello),
        (doc! { "getDefaultRWConcern": 1 }, &mut answers.default_concern),
    ];
    for (command, answer) in commands {
        // Unknown properties stay absent; later code reports the absence.
        *answer = admin.run_command(command).await.unwrap_or_default();
    }
    read(&answers)
}

/// Identifies the server by its answers, and derives its fingerprint.
fn read(answers: &CommandReplies) -> ReportedProperties {
    let mut properties = ReportedProperties::default();
    let build = &answers.build;
    let version = build.get_str("version").unwrap_or("?");
    let ferretdb_version = build.get_str("ferretdbVersion").ok().or_else(|| text(build, "ferretdb.version"));
    let server = if let Ok(own) = build.get_str("vellum") {
        vellum(answers, &mut properties);
        format!("Vellum {own}")
    } else if let Some(own) = ferretdb_version {
        let own = if own == "unknown" { "(embedded)" } else { own.trim_start_matches('v') };
        ferretdb(answers, own, &mut properties);
        format!("FerretDB {own}")
    } else if text(&answers.status, "process") == Some("java") {
        // It identifies as MongoDB but reports the name of its process.
        properties.fingerprint.engine = "memory".to_string();
        properties.journal(DurabilityGuarantee::Memory, "none");
        "mongo-java-server".to_string()
    } else {
        mongodb(answers, &mut properties);
        format!("MongoDB {version}")
    };
    if !server.starts_with("MongoDB") {
        properties.detail("follows", format!("MongoDB {version}"));
    }
    properties.fingerprint.server = server;
    if let Some(all) = answers.options.get_array("argv").ok().filter(|all| all.len() > 1) {
        properties.detail("options", options(all));
    }
    concern(answers, &mut properties);
    properties
}

/// Vellum reports its durability and its options as given.
fn vellum(answers: &CommandReplies, properties: &mut ReportedProperties) {
    let engine = text(&answers.status, "storageEngine.name").unwrap_or("?");
    properties.fingerprint.engine = engine.to_string();
    let journal_text = text(&answers.status, "vellum.durability");
    let durability = journal_text.or(argument(&answers.options, "--durability")).unwrap_or("relaxed");
    let interval = argument(&answers.options, "--journal-commit-interval").unwrap_or("100");
    let (promise, journal) = match (engine, durability) {
        // The default there is majority: the server's own disk and the configured standbys.
        ("postgres", _) => {
            (DurabilityGuarantee::Journaled, "PostgreSQL's log, synced before a write is acknowledged")
        }
        ("memory", _) => (DurabilityGuarantee::Memory, "none"),
        ("disk", "none") => (DurabilityGuarantee::Process, "synced only where a write asks"),
        ("disk", "relaxed") => (DurabilityGuarantee::Interval, &*format!("synced every {interval} ms")),
        ("disk", "journaled") => (DurabilityGuarantee::Journaled, "synced before a write is acknowledged"),
        _ => (DurabilityGuarantee::Unknown, "unknown"),
    };
    properties.journal(promise, journal);
    if engine != "disk" {
        return;
    }
    properties.detail("durability", durability);
    properties.detail("cache", argument(&answers.options, "--cache-size").unwrap_or("256M"));
    properties.directory =
        argument(&answers.options, "--journal-dir").or(argument(&answers.options, "--data")).map(Into::into);
}

/// mongod buffers its journal in process memory until the flush. A write with a weaker write concern can therefore be
/// lost with the process.
fn mongodb(answers: &CommandReplies, properties: &mut ReportedProperties) {
    let engine = text(&answers.status, "storageEngine.name").unwrap_or("?").to_string();
    let storage = answers.options.get_document("parsed").and_then(|parsed| parsed.get_document("storage"));
    let storage = storage.cloned().unwrap_or_default();
    if matches!(engine.as_str(), "inMemory" | "ephemeralForTest" | "devnull") {
        properties.journal(DurabilityGuarantee::Memory, "none");
    } else if engine == "wiredTiger" {
        let journal = at(&storage, "journal.enabled").and_then(Bson::as_bool).unwrap_or(true);
        let interval = number(&storage, "journal.commitIntervalMs").unwrap_or(100.0);
        let checkpoint = number(&storage, "syncPeriodSecs").unwrap_or(60.0);
        let is_journaled = journals(answers, journal);
        let promise =
            if is_journaled { DurabilityGuarantee::Journaled } else { DurabilityGuarantee::Delayed };
        let journal = if journal { format!("flushed every {interval} ms") } else { "none".to_string() };
        properties.journal(promise, journal);
        properties.detail("checkpoint", format!("every {checkpoint} s"));
        let directory = text(&storage, "dbPath").unwrap_or("/data/db");
        properties.directory = Some(directory.into());
    }
    properties.fingerprint.engine = engine;
}

/// Returns true if a default write waits for the journal. It does if its write concern asks for the journal, or for the
/// majority of a replica set whose majority counts only journaled writes.
fn journals(answers: &CommandReplies, has_journal: bool) -> bool {
    let given = answers.given_concern.as_ref();
    let given_j = given.and_then(|given| given.journal);
    let default = answers.default_concern.get_document("defaultWriteConcern").ok();
    let default_j = default.and_then(|concern| concern.get_bool("j").ok());
    let majority = match given.and_then(|given| given.w.as_ref()) {
        Some(w) => *w == Acknowledgment::Majority,
        None => default.is_some_and(|concern| text(concern, "w") == Some("majority")),
    };
    let is_member = answers.hello.contains_key("setName");
    has_journal && given_j.or(default_j).unwrap_or(majority && is_member)
}

/// FerretDB leaves durability to the database below it and does not report its settings. Version 2 has PostgreSQL
/// below, version 1 PostgreSQL or SQLite.
fn ferretdb(answers: &CommandReplies, version: &str, properties: &mut ReportedProperties) {
    let (engine, journal) = match version.starts_with('2') {
        true => ("PostgreSQL with DocumentDB", "PostgreSQL's log, whose settings are not reported"),
        false => {
            ("not reported", "not reported; on SQLite, each commit is synced unless its URL says otherwise")
        }
    };
    properties.fingerprint.engine = argument(&answers.options, "--handler").unwrap_or(engine).to_string();
    properties.detail("journal", journal);
}

/// Determines the default write concern: of the connection string, or else of the server.
fn concern(answers: &CommandReplies, properties: &mut ReportedProperties) {
    let promise = &mut properties.fingerprint.promise;
    let default = answers.default_concern.get_document("defaultWriteConcern");
    let (concern, source) = match (&answers.given_concern, default) {
        (Some(given), _) => {
            let is_weaker = matches!(promise, DurabilityGuarantee::Process | DurabilityGuarantee::Interval);
            if given.w == Some(Acknowledgment::Nodes(0)) {
                *promise = DurabilityGuarantee::Unknown;
            } else if given.journal == Some(true) && is_weaker {
                *promise = DurabilityGuarantee::Journaled;
            }
            (serialize_to_document(given).unwrap_or_default(), "from the connection string")
        }
        (None, Ok(default)) => (default.clone(), "the server's default"),
        (None, Err(_)) => (doc! { "w": 1 }, "the protocol's default: the server reports none"),
    };
    let w =
        concern.get("w").map_or("default".to_string(), |w| w.as_str().map_or(w.to_string(), String::from));
    let journal = concern.get_bool("j").map(|j| format!(", j {j}")).unwrap_or_default();
    properties.detail("write concern", format!("w {w}{journal} ({source})"));
}

/// Returns the server's command line without the program and without secrets, since reports are published.
fn options(all: &[Bson]) -> String {
    let mut follows_secret = false;
    let words = all.iter().skip(1).filter_map(Bson::as_str).map(|word| {
        let is_secret = word.to_ascii_lowercase().contains("password");
        let is_name = is_secret && word.starts_with('-') && !word.contains('=');
        let is_hidden = std::mem::replace(&mut follows_secret, is_name) || is_secret && !is_name;
        if is_hidden { "***".to_string() } else { crate::target::without_secrets(word) }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Returns the value of an option on the server's command line, as `--name value` or `--name=value`.
fn argument<'a>(options: &'a Document, name: &str) -> Option<&'a str> {
    let mut arguments = options.get_array("argv").ok()?.iter().filter_map(Bson::as_str);
    while let Some(each) = arguments.next() {
        if each == name {
            return arguments.next();
        }
        if let Some(value) = each.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')) {
            return Some(value);
        }
    }
    None
}

fn text<'a>(document: &'a Document, path: &str) -> Option<&'a str> {
    at(document, path)?.as_str()
}

#[cfg(test)]
mod tests;
