//! `vellum verify`: reads all of a data directory or backup and reports damage.
//!
//! A data directory is read in place without any write: all pages of the base, all frames of the
//! journal, and each collection against its indexes, by the command `validate`. A backup's files
//! are read first. The backup is then restored to a scratch directory, which is verified as a data
//! directory.

use crate::cli::VerifyOptions;
use crate::failure::{Purpose, error_message};
use crate::print_error;
use base::bson::{Builder, DocumentBuf, Value};
use database::{Database, SystemClock};
use server::{LocalConnection, Server, Settings};
use std::ffi::CStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use storage::disk::{Files, SystemFiles};
use storage::{BackupDirectory, DiskOptions, Engine, ReadOnlyEngine, Restore};

/// Result of a verification.
#[derive(Default)]
struct Report {
    /// Parts that were read, one line each.
    read: Vec<String>,
    /// Damage, one line each.
    damages: Vec<String>,
}

/// Reason why a verification gave no report.
enum Failure {
    /// The data is unreadable or in use.
    Unreadable(String),
    /// The storage engine cannot read the data.
    Storage(storage::Error),
    /// The data is too damaged to open.
    Damaged(String),
}

impl From<storage::Error> for Failure {
    fn from(error: storage::Error) -> Self {
        match error {
            storage::Error::Corrupted(_) => Failure::Damaged(error.to_string()),
            error => Failure::Storage(error),
        }
    }
}

/// Verifies and prints the findings. Exit code: 0 sound, 1 damaged, 2 not verified.
pub(crate) fn verify(options: &VerifyOptions) -> ExitCode {
    let mut report = Report::default();
    let verified = match options.path.join("vellum.backup").exists() {
        true => verify_backup(options, &mut report),
        false => verify_directory(&options.path, options, &mut report),
    };
    let mut unreadable = None;
    match verified {
        Ok(()) => {}
        Err(Failure::Damaged(message)) => report.damages.push(message),
        Err(Failure::Unreadable(why)) => unreadable = Some(why),
        Err(Failure::Storage(error)) => {
            unreadable = Some(error_message(&error, &options.path, Purpose::Verify))
        }
    }
    let text: String = report.read.iter().map(|line| format!("{line}\n")).collect();
    // A closed standard output is not an error.
    let _ = io::stdout().write_all(text.as_bytes());
    report.damages.iter().for_each(|damage| print_error(&format!("damaged: {damage}")));
    match (unreadable, report.damages.is_empty()) {
        (Some(why), _) => {
            print_error(&why);
            ExitCode::from(2)
        }
        (None, true) => ExitCode::SUCCESS,
        (None, false) => ExitCode::FAILURE,
    }
}

fn verify_backup(options: &VerifyOptions, report: &mut Report) -> Result<(), Failure> {
    if options.journal_dir.is_some() {
        return Err(Failure::Unreadable(format!(
            "--journal-dir is only for a data directory, and {} is a backup",
            options.path.display()
        )));
    }
    let files: Arc<dyn Files> = Arc::new(SystemFiles);
    let backup = BackupDirectory::read(Arc::clone(&files), &options.path)?;
    if backup.is_unfinished() {
        report.read.push("an interrupted backup is ignored".to_string());
    }
    report.damages.extend(backup.check().iter().map(ToString::to_string));
    for part in backup.parts() {
        let (name, end) = (part.path.display(), crate::backup::format_cluster_time(part.end.covers));
        report.read.push(format!("{name}: {} frames, {} bytes, up to {end}", part.frames, part.bytes));
    }
    if !report.damages.is_empty() {
        return Ok(());
    }
    let within = options.scratch.clone().unwrap_or_else(std::env::temp_dir);
    let scratch = Scratch::new(&within).map_err(|error| {
        Failure::Unreadable(format!("making a scratch directory in {}: {error}", within.display()))
    })?;
    let restore = Restore {
        from: options.path.clone(),
        archives: options.journal_archive.clone(),
        until: None,
        to: scratch.0.clone(),
        cache_bytes: options.cache_size,
    };
    let restored = storage::restore(&files, &restore)?;
    report.read.push(format!("restored: up to {}", crate::backup::format_cluster_time(restored.time)));
    verify_directory(&scratch.0, options, report)
}

/// A temporary directory, removed after the verification.
struct Scratch(PathBuf);

impl Scratch {
    fn new(within: &Path) -> io::Result<Scratch> {
        let path = within.join(format!("vellum-verify-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            print_error(&format!("{} stays: {error}", self.0.display()));
        }
    }
}

fn verify_directory(data: &Path, options: &VerifyOptions, report: &mut Report) -> Result<(), Failure> {
    let journal_directory = options.journal_dir.clone().filter(|_| *data == *options.path);
    let disk = DiskOptions { journal_directory, cache_bytes: options.cache_size, ..DiskOptions::new(data) };
    let engine = Arc::new(ReadOnlyEngine::open(&disk)?);
    let snapshot = engine.snapshot();
    let idents = engine.idents();
    for ident in &idents {
        let damages = snapshot.verify(*ident, &mut || true)?;
        report.damages.extend(damages.into_iter().map(|damage| damage.message));
    }
    report.read.push(format!(
        "{}: {} trees, every page and every frame of the journal",
        data.display(),
        idents.len()
    ));
    let damaged = |error: base::Error| Failure::Damaged(error.message().to_string());
    let engine: Arc<dyn Engine> = engine;
    let database = Database::open(engine, Arc::new(SystemClock), server::seed()).map_err(damaged)?;
    let server = Server::new(Settings::default(), database).map_err(damaged)?;
    let mut commands = LocalConnection::of_server(&Arc::new(server));
    let names = names(&mut commands, "admin", c"listDatabases", "databases")?;
    for database in names {
        for collection in names_of_collections(&mut commands, &database)? {
            validate(&mut commands, &database, &collection, report)?;
        }
    }
    Ok(())
}

/// Runs a command on a database.
fn run(commands: &mut LocalConnection, database: &str, mut command: Builder) -> Result<DocumentBuf, Failure> {
    command.append(c"$db", database);
    let reply = commands.command(command.finish().view());
    let reply = reply.ok_or_else(|| Failure::Damaged("a command caused an internal error".to_string()))?;
    match reply.view().get("ok").and_then(|ok| ok.as_i64()) {
        Some(1) => Ok(reply),
        _ => {
            let why = reply.view().get("errmsg").and_then(|why| why.as_str()).unwrap_or("refused");
            Err(Failure::Damaged(why.to_string()))
        }
    }
}

fn names(
    commands: &mut LocalConnection,
    database: &str,
    command: &'static CStr,
    list: &str,
) -> Result<Vec<String>, Failure> {
    let mut request = Builder::new();
    request.append(command, 1).append(c"nameOnly", true);
    let reply = run(commands, database, request)?;
    let list = reply.view().get(list).and_then(|list| list.as_array());
    let documents = list.into_iter().flat_map(|list| list.iter()).filter_map(|value| value.as_document());
    Ok(documents.filter_map(|document| Some(document.get("name")?.as_str()?.to_string())).collect())
}

/// Returns the collections of a database. Views have no data.
fn names_of_collections(commands: &mut LocalConnection, database: &str) -> Result<Vec<String>, Failure> {
    let mut request = Builder::new();
    request.append(c"listCollections", 1).append(c"nameOnly", true);
    request.begin_document(c"cursor").append(c"batchSize", i64::from(i32::MAX)).end();
    let reply = run(commands, database, request)?;
    let cursor = reply.view().get("cursor").and_then(|cursor| cursor.as_document());
    let batch = cursor.and_then(|cursor| cursor.get("firstBatch")).and_then(|batch| batch.as_array());
    let documents = batch.into_iter().flat_map(|batch| batch.iter()).filter_map(|value| value.as_document());
    let text = |document: base::bson::Document<'_>, name: &str| {
        document.get(name).and_then(|value| value.as_str()).unwrap_or_default().to_string()
    };
    let stored = documents.filter(|document| text(*document, "type") != "view");
    Ok(stored.map(|document| text(document, "name")).collect())
}

fn validate(
    commands: &mut LocalConnection,
    database: &str,
    collection: &str,
    report: &mut Report,
) -> Result<(), Failure> {
    let mut command = Builder::new();
    command.append(c"validate", collection).append(c"full", true);
    let reply = run(commands, database, command)?;
    let reply = reply.view();
    let count = |name: &str| reply.get(name).and_then(|count| count.as_i64()).unwrap_or_default();
    report.read.push(format!(
        "{database}.{collection}: {} documents, {} indexes",
        count("nrecords"),
        count("nIndexes")
    ));
    if reply.get("valid").and_then(|valid| valid.as_bool()) == Some(true) {
        return Ok(());
    }
    let errors = reply.get("errors").and_then(|errors| errors.as_array());
    let errors: Vec<String> = errors
        .into_iter()
        .flat_map(|errors| errors.iter())
        .filter_map(|error| match error {
            Value::String(text) => Some(text.to_string()),
            _ => None,
        })
        .collect();
    // The `_id` of these records may be unreadable.
    let records = reply.get("corruptRecords").and_then(|records| records.as_array());
    let records = records.into_iter().flat_map(|records| records.iter());
    let records: Vec<String> =
        records.filter_map(|id| id.as_i64()).map(|id| format!("RecordId({id})")).collect();
    let records = if records.is_empty() { String::new() } else { format!(", {}", records.join(", ")) };
    report.damages.push(format!("{database}.{collection}{records}: {}", errors.join("; ")));
    Ok(())
}
