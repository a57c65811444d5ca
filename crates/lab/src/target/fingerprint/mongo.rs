//! Fingerprints of servers with MongoDB's protocol: Vellum, MongoDB, FerretDB, mongo-java-server, the lab's null server, or
//! an unknown server.
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
    if let Ok(own) = build.get_str("vellum") {
        properties.fingerprint.server = format!("Vellum {own}");
        properties.detail("follows", format!("MongoDB {version}"));
        vellum(answers, &mut properties);
    } else if let Some(own) = ferretdb_version(answers) {
        let own = if own == "unknown" { "(embedded)" } else { own.trim_start_matches('v') };
        properties.fingerprint.server = format!("FerretDB {own}");
        properties.detail("follows", format!("MongoDB {version}"));
        ferretdb(answers, own, &mut properties);
    } else if is_java_server(answers) {
        properties.fingerprint.server = "mongo-java-server".to_string();
        properties.detail("follows", format!("MongoDB {version}"));
        properties.fingerprint.engine = "memory".to_string();
        properties.fingerprint.promise = DurabilityGuarantee::Memory;
        properties.detail("journal", "none");
    } else {
        properties.fingerprint.server = format!("MongoDB {version}");
        mongodb(answers, &mut properties);
    }
    if let Ok(all) = answers.options.get_array("argv") {
        let words = options(all);
        if !words.is_empty() {
            properties.detail("options", words);
        }
    }
    concern(answers, &mut properties);
    properties
}

/// Vellum reports its durability and its options as given.
fn vellum(answers: &CommandReplies, properties: &mut ReportedProperties) {
    let engine = text(&answers.status, &["storageEngine", "name"]).unwrap_or("?");
    properties.fingerprint.engine = engine.to_string();
    if engine == "postgres" {
        // The default there is majority: the server's own disk and the configured standbys.
        properties.fingerprint.promise = DurabilityGuarantee::Journaled;
        properties.detail("journal", "PostgreSQL's log, synced before a write is acknowledged");
        return;
    }
    if engine != "disk" {
        properties.fingerprint.promise =
            if engine == "memory" { DurabilityGuarantee::Memory } else { DurabilityGuarantee::Unknown };
        properties.detail("journal", "none");
        return;
    }
    let journal_text = text(&answers.status, &["vellum", "durability"]);
    let durability = journal_text.or(argument(&answers.options, "--durability")).unwrap_or("relaxed");
    let interval = argument(&answers.options, "--journal-commit-interval").unwrap_or("100");
    properties.fingerprint.promise = match durability {
        "none" => DurabilityGuarantee::Process,
        "relaxed" => DurabilityGuarantee::Interval,
        "journaled" => DurabilityGuarantee::Journaled,
        _ => DurabilityGuarantee::Unknown,
    };
    properties.detail("durability", durability);
    properties.detail(
        "journal",
        match durability {
            "none" => "synced only where a write asks".to_string(),
            "relaxed" => format!("synced every {interval} ms"),
            _ => "synced before a write is acknowledged".to_string(),
        },
    );
    properties.detail("cache", argument(&answers.options, "--cache-size").unwrap_or("256M"));
    properties.directory =
        argument(&answers.options, "--journal-dir").or(argument(&answers.options, "--data")).map(Into::into);
}

/// mongod buffers its journal in process memory until the flush. A write with a weaker write concern can therefore be
/// lost with the process.
fn mongodb(answers: &CommandReplies, properties: &mut ReportedProperties) {
    let engine = text(&answers.status, &["storageEngine", "name"]).unwrap_or("?").to_string();
    let storage = answers.options.get_document("parsed").and_then(|parsed| parsed.get_document("storage"));
    let storage = storage.cloned().unwrap_or_default();
    if matches!(engine.as_str(), "inMemory" | "ephemeralForTest" | "devnull") {
        properties.fingerprint.promise = DurabilityGuarantee::Memory;
        properties.detail("journal", "none");
    } else if engine == "wiredTiger" {
        let journal = flag(&storage, &["journal", "enabled"]).unwrap_or(true);
        let interval = number(&storage, &["journal", "commitIntervalMs"]).unwrap_or(100.0);
        let checkpoint = number(&storage, &["syncPeriodSecs"]).unwrap_or(60.0);
        let journal_text = if journal { format!("flushed every {interval} ms") } else { "none".to_string() };
        properties.detail("journal", journal_text);
        properties.detail("checkpoint", format!("every {checkpoint} s"));
        properties.fingerprint.promise = if journals(answers, journal) {
            DurabilityGuarantee::Journaled
        } else {
            DurabilityGuarantee::Delayed
        };
        let directory = text(&storage, &["dbPath"]).unwrap_or("/data/db");
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
        None => default.is_some_and(|concern| text(concern, &["w"]) == Some("majority")),
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

/// Returns the version of FerretDB, if the server is one.
fn ferretdb_version(answers: &CommandReplies) -> Option<&str> {
    let build = &answers.build;
    build.get_str("ferretdbVersion").ok().or_else(|| text(build, &["ferretdb", "version"]))
}

/// It identifies as MongoDB but reports the name of its process.
fn is_java_server(answers: &CommandReplies) -> bool {
    text(&answers.status, &["process"]) == Some("java")
}

/// Determines the default write concern: of the connection string, or else of the server.
fn concern(answers: &CommandReplies, properties: &mut ReportedProperties) {
    let promise = &mut properties.fingerprint.promise;
    let (concern, source) =
        match (&answers.given_concern, answers.default_concern.get_document("defaultWriteConcern")) {
            (Some(given), _) => {
                if given.w == Some(Acknowledgment::Nodes(0)) {
                    *promise = DurabilityGuarantee::Unknown;
                } else if given.journal == Some(true)
                    && matches!(promise, DurabilityGuarantee::Process | DurabilityGuarantee::Interval)
                {
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
    let mut after_secret = false;
    let words = all.iter().skip(1).filter_map(Bson::as_str).map(|word| {
        let secret = word.to_ascii_lowercase().contains("password");
        let hidden =
            std::mem::replace(&mut after_secret, secret && word.starts_with('-') && !word.contains('='));
        match () {
            () if hidden || (secret && !after_secret) => "***".to_string(),
            () => crate::target::without_secrets(word),
        }
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

fn text<'a>(document: &'a Document, path: &[&str]) -> Option<&'a str> {
    at(document, path)?.as_str()
}

fn flag(document: &Document, path: &[&str]) -> Option<bool> {
    at(document, path)?.as_bool()
}

#[cfg(test)]
mod tests;
