//! Restores: the latest full part before a point in time, and later commits, into a new data directory.
//!
//! An engine in `restore.tmp`, inside the target, commits the contents of the parts. Its files are then moved to their
//! places. Until the end, the format file marks the target as incomplete, and no server opens it. The directory gets a
//! new id, since its later commits are a different history from the original's. Neither accepts the other's journal.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;

use super::chain::BackupDirectory;
use super::frame_stream::{FrameStream, Next, Part, Source, gap};
use crate::disk::directory::{BASE_FILE, Directory, FORMAT_FILE, JOURNAL_DIRECTORY, LOCK_FILE, RESTORING};
use crate::disk::files::{Files, during};
use crate::disk::journal::Segments;
use crate::disk::reader::Reader;
use crate::disk::swap::{self, SwapPaths};
use crate::disk::{DiskEngine, DiskOptions, archive, base, ownership};
use crate::record::{Frame, NO_SEED};
use crate::{Batch, Durability, Engine, Error, Kind, Result};

/// Source and target of a restore.
#[derive(Debug, Clone)]
pub struct Restore {
    /// Directory of backups.
    pub from: PathBuf,
    /// Archives of the journal, and journal directories.
    pub archives: Vec<PathBuf>,
    /// Greatest cluster time of a restored commit; `None` restores all commits.
    pub until: Option<u64>,
    /// The new data directory. It must be empty or missing.
    pub to: PathBuf,
    /// Memory limit.
    pub cache_bytes: u64,
}

/// Result of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The full part at the start.
    pub full: PathBuf,
    /// Number of commits after the full part.
    pub commits: u64,
    /// Position of the last commit in the original directory.
    pub position: u64,
    /// Greatest cluster time of any commit.
    pub time: u64,
}

fn refused(message: String) -> Error {
    Error::Io { kind: std::io::ErrorKind::InvalidInput, message }
}

/// Formats a cluster time for people: date in UTC, and number.
fn format_time(time: u64) -> String {
    let (seconds, number) = (time >> 32, time & u64::from(u32::MAX));
    match Timestamp::from_second(seconds.cast_signed()) {
        Ok(date) if time != 0 => format!("{date} ({seconds},{number})"),
        _ => "an unknown time".to_string(),
    }
}

/// Restores a backup.
///
/// Errors: a target that is in use or not empty; an unreachable point in time; missing commits, with their positions;
/// damage, with file and offset; I/O. An error leaves the target as before.
pub fn restore(files: &Arc<dyn Files>, options: &Restore) -> Result<Restored> {
    let source = BackupDirectory::read(Arc::clone(files), &options.from)?;
    let full = choose(&source, options)?;
    let mut sources: Vec<Source> = Vec::new();
    let parts = source.parts().iter().filter(|part| part.kind == Kind::Changes && part.id == full.id);
    sources.extend(parts.clone().map(Part::source));
    for archive in &options.archives {
        let Some(journal) = archived(files, archive, full.id)? else {
            let directory = archive.display();
            let id = full.id;
            return Err(refused(format!(
                "{directory} contains no journal of this backup's data directory ({id:016x})"
            )));
        };
        sources.extend(journal);
    }
    let covers: Vec<(u64, u64)> = source
        .parts()
        .iter()
        .filter(|part| part.id == full.id)
        .map(|part| (part.end.position, part.end.covers))
        .collect();
    let _lock = lock_target(files, &options.to)?;
    let paths = paths(&options.to);
    let restored = fill(files, options, full, sources, &covers, &paths).and_then(|restored| {
        if options.until.is_none() {
            options.archives.iter().try_for_each(|journal| check_base(&**files, journal, &restored))?;
        }
        install(&**files, &paths).map(|()| restored)
    });
    if restored.is_err() {
        // Best effort: remaining files keep the directory from being served.
        let _ = swap::clear(&**files, &paths);
        let _ = std::fs::remove_dir(&paths.new_journal).and_then(|()| std::fs::remove_dir(&paths.new));
        let is_there = |name: &str| files.open(&options.to.join(name), false).is_ok();
        if !is_there(BASE_FILE) {
            let _ = files.remove(&options.to.join(FORMAT_FILE));
        }
    }
    restored
}

/// Returns the latest full part that is not after the point in time.
fn choose<'a>(source: &'a BackupDirectory, options: &Restore) -> Result<&'a Part> {
    let fulls = || source.parts().iter().filter(|part| part.kind == Kind::Full);
    let Some(first) = fulls().next() else {
        let why = match source.is_unfinished() {
            true => "the backup was interrupted: it is incomplete and cannot be restored",
            false => "it contains no full backup",
        };
        return Err(refused(format!("{}: {why}", options.from.display())));
    };
    let until = options.until.unwrap_or(u64::MAX);
    fulls().rfind(|part| part.end.time <= until).ok_or_else(|| {
        let why = format!(
            "the oldest full backup ends at {}, which is after the requested time",
            format_time(first.end.time)
        );
        refused(format!("{}: {why}", options.from.display()))
    })
}

/// Returns the files of an archive, or of a journal, that belong to a data directory. `None` if the directory has no
/// such file. The journal of a server that has stopped has one without commits.
fn archived(files: &Arc<dyn Files>, directory: &Path, id: u64) -> Result<Option<Vec<Source>>> {
    let mut sources = archive::sources(&**files, &archive::folder(directory, id));
    let named = archive::sources(&**files, directory);
    sources.extend(named.into_iter().filter(|source| archive::belongs(files, source, id)));
    let mut is_known = !sources.is_empty();
    let segments = Segments { files: Arc::clone(files), directory: directory.to_path_buf(), id };
    for number in segments.list()? {
        let Some(mut reader) = Reader::open_segment(&segments, number)? else { continue };
        let header = reader.bytes(0, crate::disk::journal::SEGMENT_HEADER_BYTES)?;
        // A file of another directory is not part of this history.
        if matches!(segments.check_header(number, header), Ok(true)) {
            is_known = true;
            sources.extend(Source::segment(segments.path(number), reader)?);
        }
    }
    Ok(is_known.then_some(sources))
}

/// Refuses a restore if the data file beside a journal has commits that the journal no longer has, since a server that
/// stops moves them there.
fn check_base(files: &dyn Files, journal: &Path, restored: &Restored) -> Result<()> {
    let path = journal.with_file_name(BASE_FILE);
    let Some(position) = base::position(files, &path).filter(|position| *position > restored.position) else {
        return Ok(());
    };
    Err(refused(format!(
        "the commits {} to {position} are in {} and no longer in its journal: start a server on that directory, or \
         restore to a time with --at",
        restored.position + 1,
        path.display()
    )))
}

/// Returns the paths of the target and of the directory under construction in it.
fn paths(to: &Path) -> SwapPaths {
    let new = to.join("restore.tmp");
    SwapPaths {
        directory: to.to_path_buf(),
        base: to.join(BASE_FILE),
        journal: to.join(JOURNAL_DIRECTORY),
        new_journal: new.join(JOURNAL_DIRECTORY),
        new,
    }
}

/// Checks that the target is free, and marks it so that no server opens it meanwhile.
fn lock_target(files: &Arc<dyn Files>, to: &Path) -> Result<Box<dyn std::any::Any + Send + Sync>> {
    ownership::check_target(&**files, to, &[LOCK_FILE])?;
    files.make(to)?;
    let lock = Directory::lock(&**files, to)?;
    ownership::check_target(&**files, to, &[LOCK_FILE])?;
    let path = to.join(FORMAT_FILE);
    let mark = || {
        let file = files.open(&path, true)?;
        file.write_at(RESTORING.as_bytes(), 0)?;
        file.sync()?;
        files.sync_directory(to)
    };
    mark().map_err(|error| {
        // Nothing else has been done.
        let _ = files.remove(&path);
        during("writing", &path, error)
    })?;
    Ok(lock)
}

/// Fills the new directory.
fn fill(
    files: &Arc<dyn Files>,
    options: &Restore,
    full: &Part,
    sources: Vec<Source>,
    covers: &[(u64, u64)],
    paths: &SwapPaths,
) -> Result<Restored> {
    let disk_options = DiskOptions {
        durability: Durability::None,
        cache_bytes: options.cache_bytes,
        ..DiskOptions::new(&paths.new)
    };
    let engine = DiskEngine::open_on(Arc::clone(files), &disk_options)?;
    let mut batches = FrameStream::new(Arc::clone(files), vec![full.source()], 0);
    while let Next::Frame(frame) = batches.next()? {
        commit(&engine, &frame.bytes, &full.path)?;
    }
    if batches.last() != full.frames {
        let message = format!("{}: {} frames are missing", full.path.display(), full.frames - batches.last());
        return Err(Error::Corrupted(message));
    }
    let mut latest = Batch::new();
    latest.set_time(full.end.time);
    engine.commit(latest)?;
    let mut restored =
        Restored { full: full.path.clone(), commits: 0, position: full.end.position, time: full.end.time };
    let mut frame_stream = FrameStream::new(Arc::clone(files), sources, full.end.position);
    let reached = follow(&engine, &mut frame_stream, options.until, &mut restored)?;
    if let (Some(until), false) = (options.until, reached) {
        let ends = covers.iter().filter(|(position, _)| *position == restored.position);
        let end = ends.map(|(_, covers)| *covers).fold(restored.time, u64::max);
        if end < until {
            return Err(refused(format!(
                "the backup ends at {}, which is before the requested time: its last commit is at {}. Add \
                 later parts, such as the archive of the journal, or restore without a time",
                format_time(end),
                format_time(restored.time)
            )));
        }
    }
    debug_assert_eq!(restored.position, full.end.position + restored.commits, "{restored:?}");
    debug_assert!(engine.latest_time() >= full.end.time, "a time could be given again");
    engine.close()?;
    Ok(restored)
}

/// Applies the commits up to a point in time. Returns true if a later commit exists.
fn follow(
    engine: &DiskEngine,
    frame_stream: &mut FrameStream,
    until: Option<u64>,
    restored: &mut Restored,
) -> Result<bool> {
    loop {
        match frame_stream.next()? {
            Next::End => return Ok(false),
            Next::Frame(frame) if until.is_some_and(|until| frame.time > until) => return Ok(true),
            Next::Frame(frame) => {
                debug_assert_eq!(frame.position, restored.position + 1, "a commit is missing");
                commit(engine, &frame.bytes, Path::new("the journal"))?;
                restored.commits += 1;
                restored.position = frame.position;
                restored.time = restored.time.max(frame.time);
            }
            Next::Gap(next) => {
                let which = gap(frame_stream.last() + 1, next - 1);
                return Err(refused(format!(
                    "{which}: the parts without a gap end at {} (restore to that time, or find the missing \
                     files)",
                    format_time(restored.time)
                )));
            }
        }
    }
}

/// Commits the batch of one frame. `of` names the file in errors.
fn commit(engine: &DiskEngine, frame: &[u8], of: &Path) -> Result<()> {
    let batch = Frame::read(frame, NO_SEED).and_then(|frame| frame.decode());
    let batch = batch.ok_or_else(|| Error::Corrupted(format!("{}: a frame is invalid", of.display())))?;
    engine.wait_for_space(&mut || true)?;
    engine.commit(batch).map(drop)
}

/// Moves the new directory's files to their places, the format file last.
fn install(files: &dyn Files, paths: &SwapPaths) -> Result<()> {
    let names = files.names(&paths.new_journal)?;
    files.make(&paths.journal)?;
    for segment in names {
        files.move_file(&paths.new_journal.join(&segment), &paths.journal.join(&segment))?;
    }
    files.sync_names(&paths.journal)?;
    files.move_file(&paths.new.join(BASE_FILE), &paths.base)?;
    files.sync_names(&paths.directory)?;
    files.move_file(&paths.new.join(FORMAT_FILE), &paths.directory.join(FORMAT_FILE))?;
    files.sync_names(&paths.directory)?;
    swap::clear(files, paths)?;
    // Empty by now. If they remain, they do no harm.
    let _ = std::fs::remove_dir(&paths.new_journal);
    let _ = std::fs::remove_dir(&paths.new);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_date_and_a_number() {
        for (seconds, expected) in [
            (1, "1970-01-01T00:00:01Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_164_799, "2024-02-28T23:59:59Z"),
            (1_795_918_174, "2026-11-29T02:09:34Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(format_time(seconds << 32 | 7), format!("{expected} ({seconds},7)"));
        }
        assert_eq!(format_time(0), "an unknown time");
    }
}
