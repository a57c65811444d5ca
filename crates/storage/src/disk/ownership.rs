//! The owner of a directory, determined by file names: Vellum, MongoDB or another program.
//!
//! The checks write nothing, so a refused directory stays unchanged.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::DiskOptions;
use super::directory::{
    BASE_FILE, FORMAT_FILE, JOURNAL_DIRECTORY, LOCK_FILE, NEW_BASE_FILE, NEW_FORMAT_FILE, read_id,
};
use super::files::Files;
use super::journal::SUFFIX;
use super::{mark, swap};
use crate::{Error, Result};

/// Names left in a data directory by an interrupted creation, or by a repair that saved nothing.
const SET_UP: &[&str] = &[JOURNAL_DIRECTORY, LOCK_FILE, NEW_BASE_FILE, NEW_FORMAT_FILE, "_tmp", "repair.tmp"];

/// Maximum number of files in an error.
const NAMED: usize = 3;

/// Returns true for the name of a MongoDB data file.
fn is_mongodb(name: &str) -> bool {
    name.starts_with("WiredTiger")
        || name.ends_with(".wt")
        // Files of MMAPv1, MongoDB's engine before WiredTiger.
        || matches!(name, "storage.bson" | "mongod.lock" | "diagnostic.data" | "local.0" | "local.ns")
}

/// Returns true for names that any directory may contain, made by a file system, a log or a process id file.
fn is_harmless(name: &str) -> bool {
    name == "lost+found"
        || name.starts_with('.')
        || name.ends_with(".pid")
        || name.ends_with(".log")
        || name.contains(".log.")
        || matches!(name, "log" | "logs")
}

/// Checks a data directory before it is opened or created. Writes nothing. Returns the first MongoDB files among
/// Vellum's.
pub(super) fn check(files: &dyn Files, options: &DiskOptions) -> Result<Option<String>> {
    let path = &options.directory;
    let names = files.names_if_any(path)?;
    let has = |name: &str| names.iter().any(|other| other == name);
    if has(FORMAT_FILE) {
        read_id(files, path)?;
        swap::check_none(files, path)?;
        return Ok(mongodb_files(&names));
    }
    if has(BASE_FILE) {
        return Err(Error::Corrupted(format!("{} has data but no file {FORMAT_FILE}", path.display())));
    }
    let journal = options.journal_directory.as_ref();
    let archive = options.archive.as_ref().map(|archive| &archive.directory);
    let expected = [Some(path), journal, archive].into_iter().flatten().chain(&options.other_files);
    let expected: Vec<PathBuf> = expected.map(|path| resolved(path)).collect();
    let check = |directory: &Path, names: &[String]| {
        refuse_mongodb(directory, names)?;
        if options.allow_other_files {
            return Ok(());
        }
        let real = resolved(directory);
        let is_known = |name: &str| {
            is_harmless(name)
                || SET_UP.contains(&name)
                || name.ends_with(SUFFIX)
                || expected.iter().any(|path| path.starts_with(real.join(name)))
        };
        refuse_others(directory, names, is_known)
    };
    check(path, &names)?;
    if let Some(journal) = journal {
        let names = files.names_if_any(journal)?;
        // A journal gets its mark after its directory has got the format file.
        if names.iter().any(|name| name == mark::NAME) {
            return Err(other_journal(
                journal,
                "Choose another directory, or empty this one if its data is gone",
            ));
        }
        check(journal, &names)?;
    }
    Ok(None)
}

/// Returns the error of a journal that belongs to another data directory.
pub(super) fn other_journal(journal: &Path, remedy: &str) -> Error {
    let message = format!("{} holds the journal of another data directory. {remedy}", journal.display());
    Error::Io { kind: ErrorKind::AlreadyExists, message }
}

/// Checks that a directory contains only the names of `own` and harmless ones. Writes nothing.
pub(super) fn check_target(files: &dyn Files, path: &Path, own: &[&str]) -> Result<()> {
    let names = files.names_if_any(path)?;
    refuse_mongodb(path, &names)?;
    refuse_others(path, &names, |name| is_harmless(name) || own.contains(&name))
}

/// Refuses a directory that is not a data directory of Vellum, for read-only calls.
pub(super) fn check_is_ours(files: &dyn Files, path: &Path) -> Result<()> {
    let names = files.names(path)?;
    if names.iter().any(|name| name == FORMAT_FILE) {
        return swap::check_none(files, path);
    }
    refuse_mongodb(path, &names)?;
    let message =
        format!("{} is not a data directory of Vellum: it has no file {FORMAT_FILE}", path.display());
    Err(Error::Io { kind: ErrorKind::NotFound, message })
}

/// Refuses a MongoDB directory without files of Vellum. Writes nothing.
pub(super) fn check_is_salvageable(files: &dyn Files, path: &Path) -> Result<()> {
    let names = files.names(path)?;
    let is_ours = |name: &String| matches!(name.as_str(), FORMAT_FILE | BASE_FILE);
    match names.iter().any(is_ours) {
        true => Ok(()),
        false => refuse_mongodb(path, &names),
    }
}

/// Returns a path without links, as far as it exists, so that two spellings of one place compare equal.
fn resolved(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => {
            parent.canonicalize().map_or(absolute.clone(), |parent| parent.join(name))
        }
        _ => absolute,
    }
}

/// Returns the first MongoDB files among names, and the number of further ones.
fn mongodb_files(names: &[String]) -> Option<String> {
    let mut files: Vec<&str> = names.iter().map(String::as_str).filter(|name| is_mongodb(name)).collect();
    files.sort_unstable();
    (!files.is_empty()).then(|| listed(&files))
}

/// Refuses a directory with files of MongoDB.
fn refuse_mongodb(path: &Path, names: &[String]) -> Result<()> {
    let Some(found) = mongodb_files(names) else { return Ok(()) };
    let message = format!(
        "{} holds MongoDB's files ({found}). Vellum cannot read them, and has changed nothing. Copy the \
         data with mongodump and mongorestore (see docs/moving.md), and choose another directory",
        path.display()
    );
    Err(Error::Io { kind: ErrorKind::AlreadyExists, message })
}

/// Refuses a directory with unknown files.
fn refuse_others(path: &Path, names: &[String], is_known: impl Fn(&str) -> bool) -> Result<()> {
    let mut unknown: Vec<&str> = names.iter().map(String::as_str).filter(|name| !is_known(name)).collect();
    unknown.sort_unstable();
    if unknown.is_empty() {
        return Ok(());
    }
    let message = format!(
        "{} isn't empty: it holds {}. Choose a new or empty directory",
        path.display(),
        listed(&unknown)
    );
    Err(Error::Io { kind: ErrorKind::DirectoryNotEmpty, message })
}

/// Returns the first names, and the number of further ones.
fn listed(names: &[&str]) -> String {
    let first = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_identify_the_owner() {
        for name in
            ["WiredTiger", "WiredTiger.lock", "collection-0-1.wt", "storage.bson", "mongod.lock", "local.0"]
        {
            assert!(is_mongodb(name) && !is_harmless(name), "{name}");
        }
        for name in
            ["lost+found", ".gitkeep", "mongod.log", "mongod.log.2026-11-25T10-00-00", "vellum.pid", "logs"]
        {
            assert!(is_harmless(name) && !is_mongodb(name), "{name}");
        }
        for name in ["Cargo.toml", "src", "catalogue", "wt"] {
            assert!(!is_harmless(name) && !is_mongodb(name), "{name}");
        }
    }

    #[test]
    fn an_error_names_a_few_files() {
        assert_eq!(listed(&["a", "b", "c"]), "a, b, c");
        assert_eq!(listed(&["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
    }
}
