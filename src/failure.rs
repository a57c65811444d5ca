//! Failures of a server: their kinds, and messages about data directories with the problem, its place and the remedy.
//!
//! `--repair` writes the undamaged data to a new directory and reports the losses. As in mongod,
//! the process then exits: with 0 if any data was saved.
//!
//! A new message is an arm of [`error_message`].

use crate::config::Config;
use database::keys::{CATALOG, RETRIES};
use database::repair::{Repaired, repair as repair_database};
use database::{Clock, SystemClock};
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use storage::store::{LOG, LOG_TREES};
use storage::{DataLoss, DiskEngine, Error, Ident, Salvage};

/// Reason why a server failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    pub(crate) message: String,
}

/// Kinds of failures, which have different exit codes in mongod.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A wrong option or value. Some can be checked only while the server starts.
    Options,
    /// The server cannot listen on the address.
    Address,
    /// The data directory is unusable.
    Data,
    /// Another failure.
    Other,
}

impl Failure {
    /// Creates a failure of a kind.
    pub(crate) fn new(kind: Kind, message: impl Display) -> Failure {
        Failure { kind, message: message.to_string() }
    }

    /// Creates a failure of a wrong option or value.
    pub(crate) fn of_options(message: impl Display) -> Failure {
        Failure::new(Kind::Options, message)
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Failure {
        Failure::new(Kind::Other, message)
    }
}

/// Purpose of opening the directory.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    /// Serve it, with Vellum's options.
    Serve,
    /// Serve it, with mongod's options.
    Mongod,
    /// Repair it.
    Repair,
    /// Verify it.
    Verify,
    /// Back it up.
    Backup,
    /// Write a backup to it or restore one into it.
    Target,
}

/// Returns the message for an error, with the remedy.
pub(crate) fn error_message(error: &Error, directory: &Path, purpose: Purpose) -> String {
    match error {
        Error::Io { kind: ErrorKind::ResourceBusy, message } => {
            format!("{message}. {}", in_use_remedy(purpose))
        }
        Error::Io { kind: ErrorKind::DirectoryNotEmpty, message } => match purpose {
            Purpose::Serve => format!("{message}, or allow these files with --allow-other-files"),
            Purpose::Mongod => format!("{message}, or allow these files with VELLUM_ALLOW_OTHER_FILES=true"),
            _ => message.clone(),
        },
        Error::Io { kind: ErrorKind::PermissionDenied, message } => {
            let user = user_name();
            let message = message.split(" (os error").next().unwrap_or_default();
            format!(
                "user {user} may not use {} ({message}). Give the directory to this user (chown -R {user} {0}), or choose \
                 another directory",
                directory.display()
            )
        }
        Error::Io { kind: ErrorKind::ReadOnlyFilesystem, .. } => {
            format!("{} is on a read-only file system. Choose another directory", directory.display())
        }
        Error::Io { kind: ErrorKind::NotADirectory, .. } => {
            let file = directory.ancestors().find(|path| path.exists()).unwrap_or(directory);
            format!("{} is a file, and a directory is needed. Choose another path", file.display())
        }
        Error::Io { kind: ErrorKind::NotFound, message } if message.starts_with("reading ") => {
            let path = message["reading ".len()..].split(": ").next().unwrap_or_default();
            format!("the directory {path} does not exist. Check the path")
        }
        Error::Unavailable(why) => why.clone(),
        Error::Corrupted(_) if matches!(purpose, Purpose::Serve | Purpose::Mongod) => {
            format!(
                "{error}. Make a copy of {}, then save the undamaged data with --repair",
                directory.display()
            )
        }
        error => error.to_string(),
    }
}

/// Returns the remedy if another process uses the directory.
fn in_use_remedy(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Serve | Purpose::Mongod | Purpose::Target => {
            "Stop that process first, or choose another directory"
        }
        Purpose::Repair => "Stop that process first",
        Purpose::Verify => {
            "Stop that server first, or make a backup of it (vellum backup URI TO) and verify the backup"
        }
        Purpose::Backup => "Name that server by its connection string instead of --data",
    }
}

/// Returns the name of the process's user.
#[cfg(unix)]
fn user_name() -> String {
    let id = nix::unistd::geteuid();
    match nix::unistd::User::from_uid(id) {
        Ok(Some(user)) => user.name,
        _ => id.to_string(),
    }
}

#[cfg(not(unix))]
fn user_name() -> String {
    std::env::var("USERNAME").unwrap_or_else(|_| "of this process".to_string())
}

/// Repairs the data directory of a configuration.
pub(crate) fn repair(config: &Config) -> Result<(), String> {
    let options = config.disk.as_ref().ok_or("--repair needs --data")?;
    let salvage = DiskEngine::salvage(options)
        .map_err(|error| error_message(&error, &options.directory, Purpose::Repair))?;
    let now = SystemClock.now_millis();
    let repaired = repair_database(&**salvage.engine(), salvage.idents(), now, server::seed());
    let repaired = repaired.map_err(|error| format!("cannot repair the database: {error}"))?;
    let mut report = report(&salvage, &repaired);
    let nothing = repaired.collections.iter().all(|collection| collection.records == 0) && !report.is_empty();
    let result = if nothing {
        salvage.discard().map_err(|error| error.to_string())?;
        Err(format!("no data could be recovered; {} is unchanged", options.directory.display()))
    } else {
        let trees = salvage.idents().len();
        if salvage.idents().contains(&LOG) {
            report.push("lost: the oplog: change streams cannot resume".to_string());
        }
        let old = salvage.finish().map_err(|error| error.to_string())?;
        if report.is_empty() {
            report.push("lost: nothing".to_string());
        }
        report.insert(0, format!("read: {}: {trees} trees", options.directory.display()));
        report.extend(summary(&repaired, &old));
        Ok(())
    };
    let text: String = report.into_iter().map(|line| line + "\n").collect();
    // A closed standard output is not an error.
    let _ = io::stdout().write_all(text.as_bytes());
    result
}

/// Returns a line for each loss, with the collection's name if known.
fn report(salvage: &Salvage, repaired: &Repaired) -> Vec<String> {
    let mut lines: Vec<String> = salvage.lost().iter().filter_map(|lost| loss_line(lost, repaired)).collect();
    lines.extend(repaired.notes.iter().map(|note| format!("lost: {note}")));
    lines
}

/// A damaged index loses no data, because it has been rebuilt.
fn loss_line(lost: &DataLoss, repaired: &Repaired) -> Option<String> {
    let count = match lost.entries {
        Some(0) => "damaged".to_string(),
        Some(1) => "1 record".to_string(),
        Some(count) => format!("{count} records"),
        None => "records".to_string(),
    };
    let Some(ident) = lost.ident else { return Some(format!("lost: {count}: {}", lost.message)) };
    let collections = repaired.collections.iter().map(|collection| ("", collection));
    let snapshots = repaired.snapshots.iter().map(|collection| ("a snapshot of ", collection));
    let owner = collections.chain(snapshots).find(|(_, collection)| collection.idents.contains(&ident));
    match owner {
        Some((of, collection)) if collection.data == ident => {
            Some(format!("lost: {of}{}: {count}: {}", collection.namespace, lost.message))
        }
        Some(_) => None,
        None => Some(format!("lost: {}: {count}: {}", tree_name(ident), lost.message)),
    }
}

/// Returns the name of a tree that belongs to no collection.
fn tree_name(ident: Ident) -> String {
    match ident {
        CATALOG => "the catalog".to_string(),
        RETRIES => "the records of retryable writes".to_string(),
        _ if ident >= LOG_TREES => "the oplog".to_string(),
        _ => format!("a collection or index without a catalog entry (tree {})", ident.0),
    }
}

fn summary(repaired: &Repaired, old: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for collection in &repaired.collections {
        let indexes = collection.idents.len().saturating_sub(1);
        let (namespace, records) = (&collection.namespace, collection.records);
        lines.push(format!("kept: {namespace}: {records} documents, {indexes} indexes rebuilt"));
    }
    if lines.is_empty() {
        lines.push("kept: no documents, because no collection was found".to_string());
    }
    lines.push(format!("the old files are in {}", old.display()));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_name_their_tree() {
        let names = [
            (0, "the catalog"),
            (7, "a collection or index without a catalog entry (tree 7)"),
            (1 << 62, "the oplog"),
            (LOG.0, "the oplog"),
            (u64::MAX, "the records of retryable writes"),
        ];
        for (ident, name) in names {
            let lost =
                DataLoss { ident: Some(Ident(ident)), entries: Some(2), message: "page 5".to_string() };
            let line = loss_line(&lost, &Repaired::default());
            assert_eq!(line.unwrap(), format!("lost: {name}: 2 records: page 5"));
        }
    }
}
