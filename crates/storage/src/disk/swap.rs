//! Replaces a damaged directory by a salvaged one. The steps can be interrupted at any point.
//!
//! The old files move to `before-repair.N`, then the new ones move in, the format file with its new id last. Until then
//! base, journal and format do not match. Two marks in `repair.tmp` record the progress, and the next repair continues
//! from there. Nothing else opens the directory meanwhile: its commits would be lost.

use std::path::{Path, PathBuf};

use super::DiskOptions;
use super::directory::{
    BASE_FILE, FORMAT_FILE, JOURNAL_DIRECTORY, LOCK_FILE, NEW_BASE_FILE, NEW_FORMAT_FILE,
};
use super::files::{Files, during};
use super::journal::SUFFIX;
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

fn has(files: &dyn Files, directory: &Path, name: &str) -> Result<bool> {
    Ok(files.names_if_any(directory)?.iter().any(|other| other == name))
}

fn write(files: &dyn Files, directory: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let path = directory.join(name);
    let write = files.write_file(&path, bytes).and_then(|_| files.sync_directory(directory));
    write.map_err(|error| during("writing", &path, error))
}

/// Returns the segments in a directory and their synced mark.
fn segments(files: &dyn Files, directory: &Path) -> Result<Vec<String>> {
    let mut names = files.names_if_any(directory)?;
    names.retain(|name| name.ends_with(SUFFIX) || name == mark::NAME);
    Ok(names)
}

/// Runs the exchange after the new directory is complete and closed. Returns the directory of the old files.
pub(super) fn begin(files: &dyn Files, paths: &SwapPaths) -> Result<PathBuf> {
    let existing = files.names_if_any(&paths.directory)?;
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
    let name = String::from_utf8_lossy(&files.read_small(&paths.new.join(COMPLETE))?).into_owned();
    if !name.starts_with("before-repair.") || name.contains(['/', '\\']) {
        // The mark was incomplete.
        return files.remove_file(&paths.new.join(COMPLETE));
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
        files.move_file(&paths.new_journal.join(&segment), &paths.journal.join(&segment))?;
    }
    files.sync_names(&paths.journal)?;
    for file in [BASE_FILE, FORMAT_FILE] {
        if has(files, &paths.new, file)? {
            files.move_file(&paths.new.join(file), &paths.directory.join(file))?;
            files.sync_names(&paths.directory)?;
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
    files.make(old)?;
    files.make(&old_journal)?;
    for segment in segments(files, &paths.journal)? {
        files.move_file(&paths.journal.join(&segment), &old_journal.join(&segment))?;
    }
    files.sync_names(&old_journal)?;
    files.sync_names(&paths.journal)?;
    // The format file stays until a new one replaces it.
    if has(files, &paths.directory, FORMAT_FILE)? {
        let format = files.read_small(&paths.directory.join(FORMAT_FILE))?;
        write(files, old, FORMAT_FILE, &format)?;
    }
    for file in [BASE_FILE, NEW_BASE_FILE] {
        if has(files, &paths.directory, file)? {
            files.move_file(&paths.directory.join(file), &old.join(file))?;
        }
    }
    files.sync_names(old)?;
    files.sync_names(&paths.directory)
}

/// Removes the remains of an earlier attempt.
pub(super) fn clear(files: &dyn Files, paths: &SwapPaths) -> Result<()> {
    for segment in segments(files, &paths.new_journal)? {
        files.remove_file(&paths.new_journal.join(segment))?;
    }
    // The marks in this order, so that a mark never refers to missing files.
    let known = [BASE_FILE, NEW_BASE_FILE, FORMAT_FILE, NEW_FORMAT_FILE, LOCK_FILE, COMPLETE, MOVED];
    for name in known {
        if has(files, &paths.new, name)? {
            files.remove_file(&paths.new.join(name))?;
        }
    }
    Ok(())
}
