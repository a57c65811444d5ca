//! Replaces a damaged directory by a salvaged one. The steps can be interrupted at any point.
//!
//! The old files move to `before-repair.N`, then the new ones move in, the format file with its new id last. Until then
//! base, journal and format do not match. Two marks in `repair.tmp` record the progress, and the next repair continues
//! from there. Nothing else opens the directory meanwhile: its commits would be lost.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::DiskOptions;
use super::directory::{
    BASE_FILE, FORMAT_FILE, JOURNAL_DIRECTORY, LOCK_FILE, NEW_BASE_FILE, NEW_FORMAT_FILE,
};
use super::files::Files;
use super::journal::{SUFFIX, during};
use super::mark;
use crate::{Error, Result};

/// Directory under construction.
const NEW: &str = "repair.tmp";
/// Mark of a complete new directory; contains the path for the old files.
const COMPLETE: &str = "complete";
/// Mark set once all old files have moved.
const MOVED: &str = "moved";

/// Paths of old and new files.
pub(super) struct SwapPaths {
    pub(super) directory: PathBuf,
    pub(super) base: PathBuf,
    pub(super) journal: PathBuf,
    pub(super) new: PathBuf,
    pub(super) new_journal: PathBuf,
}

impl SwapPaths {
    pub(super) fn of(options: &DiskOptions) -> Self {
        let directory = options.directory.clone();
        let new = directory.join(NEW);
        let (journal, new_journal) = match &options.journal_directory {
            Some(journal) => (journal.clone(), journal.join(NEW)),
            None => (directory.join(JOURNAL_DIRECTORY), new.join(JOURNAL_DIRECTORY)),
        };
        SwapPaths { base: directory.join(BASE_FILE), directory, journal, new, new_journal }
    }
}

/// Returns the names in a directory; none if it does not exist.
fn names(files: &dyn Files, directory: &Path) -> Result<Vec<String>> {
    match files.list(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        names => names.map_err(|error| during("reading", directory, error)),
    }
}

fn has(files: &dyn Files, directory: &Path, name: &str) -> Result<bool> {
    Ok(names(files, directory)?.iter().any(|other| other == name))
}

fn rename(files: &dyn Files, from: &Path, to: &Path) -> Result<()> {
    files.rename(from, to).map_err(|error| during("renaming", from, error))
}

fn make(files: &dyn Files, directory: &Path) -> Result<()> {
    files.create_directory(directory).map_err(|error| during("making", directory, error))
}

fn sync(files: &dyn Files, directory: &Path) -> Result<()> {
    files.sync_directory(directory).map_err(|error| during("syncing", directory, error))
}

fn write(files: &dyn Files, directory: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let path = directory.join(name);
    let write = || {
        let file = files.open(&path, true)?;
        file.set_len(0)?;
        file.write_at(bytes, 0)?;
        file.sync()?;
        files.sync_directory(directory)
    };
    write().map_err(|error| during("writing", &path, error))
}

fn read(files: &dyn Files, path: &Path) -> Result<Vec<u8>> {
    let read = || {
        let file = files.open(path, false)?;
        let mut bytes = vec![0; file.len()?.min(1 << 16) as usize];
        file.read_at(&mut bytes, 0)?;
        Ok(bytes)
    };
    read().map_err(|error| during("reading", path, error))
}

/// Returns the segments in a directory and their synced mark.
fn segments(files: &dyn Files, directory: &Path) -> Result<Vec<String>> {
    let mut names = names(files, directory)?;
    names.retain(|name| name.ends_with(SUFFIX) || name == mark::NAME);
    Ok(names)
}

/// Runs the exchange after the new directory is complete and closed. Returns the directory of the old files.
pub(super) fn begin(files: &dyn Files, paths: &SwapPaths) -> Result<PathBuf> {
    let existing = names(files, &paths.directory)?;
    let unused = (1..).map(|number| format!("before-repair.{number}")).find(|name| !existing.contains(name));
    let name = unused.unwrap_or_default();
    write(files, &paths.new, COMPLETE, name.as_bytes())?;
    exchange(files, paths, &name)
}

/// Checks that no exchange is unfinished. Errors: `Unavailable` if one is.
pub(super) fn check_none(files: &dyn Files, directory: &Path) -> Result<()> {
    match has(files, &directory.join(NEW), COMPLETE)? {
        true => Err(Error::Unavailable(format!(
            "{} has an interrupted repair. Repeat --repair with the same options",
            directory.display()
        ))),
        false => Ok(()),
    }
}

/// Finishes an interrupted exchange.
pub(super) fn resume(files: &dyn Files, paths: &SwapPaths) -> Result<()> {
    if !has(files, &paths.new, COMPLETE)? {
        return Ok(());
    }
    let name = String::from_utf8_lossy(&read(files, &paths.new.join(COMPLETE))?).into_owned();
    if !name.starts_with("before-repair.") || name.contains(['/', '\\']) {
        // The mark was incomplete.
        let mark = paths.new.join(COMPLETE);
        return files.remove(&mark).map_err(|error| during("removing", &mark, error));
    }
    exchange(files, paths, &name).map(drop)
}

/// Runs the exchange up to its end. Every step may have been done before.
fn exchange(files: &dyn Files, paths: &SwapPaths, name: &str) -> Result<PathBuf> {
    let old = paths.directory.join(name);
    let has_moved = has(files, &paths.new, MOVED)?;
    let mut new_segments = segments(files, &paths.new_journal)?;
    if has_moved {
        // Some or all may be in their place.
        new_segments.extend(segments(files, &paths.journal)?);
    }
    if new_segments.is_empty() {
        return Err(Error::Unavailable(format!(
            "{} does not have the journal of the interrupted repair. Repeat --repair with the same --journal-dir",
            paths.journal.display()
        )));
    }
    if !has_moved {
        move_old(files, paths, &old, name)?;
        write(files, &paths.new, MOVED, b"")?;
    }
    for segment in segments(files, &paths.new_journal)? {
        rename(files, &paths.new_journal.join(&segment), &paths.journal.join(&segment))?;
    }
    sync(files, &paths.journal)?;
    for file in [BASE_FILE, FORMAT_FILE] {
        if has(files, &paths.new, file)? {
            rename(files, &paths.new.join(file), &paths.directory.join(file))?;
            sync(files, &paths.directory)?;
        }
    }
    clear(files, paths)?;
    // Empty by now. If they remain, they do no harm.
    let _ = std::fs::remove_dir(&paths.new_journal);
    let _ = std::fs::remove_dir(&paths.new);
    Ok(old)
}

/// Moves an old file, unless it has moved before.
fn move_old(files: &dyn Files, paths: &SwapPaths, old: &Path, name: &str) -> Result<()> {
    let old_journal = match paths.journal == paths.directory.join(JOURNAL_DIRECTORY) {
        true => old.join(JOURNAL_DIRECTORY),
        false => paths.journal.join(name),
    };
    make(files, old)?;
    make(files, &old_journal)?;
    for segment in segments(files, &paths.journal)? {
        rename(files, &paths.journal.join(&segment), &old_journal.join(&segment))?;
    }
    sync(files, &old_journal)?;
    sync(files, &paths.journal)?;
    // The format file stays until a new one replaces it.
    if has(files, &paths.directory, FORMAT_FILE)? {
        let format = read(files, &paths.directory.join(FORMAT_FILE))?;
        write(files, old, FORMAT_FILE, &format)?;
    }
    for file in [BASE_FILE, NEW_BASE_FILE] {
        if has(files, &paths.directory, file)? {
            rename(files, &paths.directory.join(file), &old.join(file))?;
        }
    }
    sync(files, old)?;
    sync(files, &paths.directory)
}

/// Removes the remains of an earlier attempt.
pub(super) fn clear(files: &dyn Files, paths: &SwapPaths) -> Result<()> {
    for segment in segments(files, &paths.new_journal)? {
        remove(files, &paths.new_journal.join(segment))?;
    }
    // The marks in this order, so that a mark never refers to missing files.
    let known = [BASE_FILE, NEW_BASE_FILE, FORMAT_FILE, NEW_FORMAT_FILE, LOCK_FILE, COMPLETE, MOVED];
    for name in known {
        if has(files, &paths.new, name)? {
            remove(files, &paths.new.join(name))?;
        }
    }
    Ok(())
}

fn remove(files: &dyn Files, path: &Path) -> Result<()> {
    files.remove(path).map_err(|error: std::io::Error| -> Error { during("removing", path, error) })
}
