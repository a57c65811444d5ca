//! Restoring: the latest full part before a moment, and the commits from there on, in a new data directory.
//!
//! The directory is put together in `restore.tmp` within the one that is restored to, by an engine that commits what
//! the parts hold; then its files are moved to their places. Until that is over the file that tells the format says so,
//! and no server opens the directory. It gets an id of its own: what is committed to it from then on is another history
//! than that of the original, and neither's journal is taken for the other's.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::chain::BackupDirectory;
use super::trail::{Kind, Next, Part, Source, Trail, gap};
use crate::disk::directory::{BASE_FILE, Directory, FORMAT_FILE, JOURNAL_DIRECTORY, LOCK_FILE, RESTORING};
use crate::disk::files::Files;
use crate::disk::journal::{Segments, during};
use crate::disk::reader::Reader;
use crate::disk::record::Frame;
use crate::disk::swap::{self, Places};
use crate::disk::{DiskEngine, DiskOptions, archive, ownership};
use crate::{Batch, Durability, Engine, Error, Result};

/// What to restore, and where to.
#[derive(Debug, Clone)]
pub struct Restore {
    /// A directory of backups.
    pub from: PathBuf,
    /// Archives of the journal, and directories of journals themselves.
    pub archives: Vec<PathBuf>,
    /// The greatest cluster time of a commit to be restored; all there are, unless that is said.
    pub until: Option<u64>,
    /// The data directory to be made; it has to be empty, if it is there.
    pub to: PathBuf,
    /// Memory that may be taken.
    pub cache_bytes: u64,
}

/// What was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The full part that it began with.
    pub full: PathBuf,
    /// How many commits followed.
    pub commits: u64,
    /// The position of the last commit, as the original counts.
    pub position: u64,
    /// The greatest cluster time of any commit.
    pub time: u64,
}

fn refused(message: String) -> Error {
    Error::Io { kind: std::io::ErrorKind::InvalidInput, message }
}

/// A cluster time as people read it.
fn told(time: u64) -> String {
    format!("{},{}", time >> 32, time & u64::from(u32::MAX))
}

/// Restores a backup.
///
/// Errors: a target that is in use or not empty; a moment that what is there doesn't reach; commits that are missing,
/// which are told; damage, with file and place; the file system's. Then the target is as it was before.
pub fn restore(files: &Arc<dyn Files>, what: &Restore) -> Result<Restored> {
    let source = BackupDirectory::read(Arc::clone(files), &what.from)?;
    let full = choose(&source, what)?;
    let mut sources: Vec<Source> = Vec::new();
    let parts = source.parts().iter().filter(|part| part.kind == Kind::Changes && part.id == full.id);
    sources.extend(parts.clone().map(Part::source));
    for archive in &what.archives {
        let found = archived(files, archive, full.id)?;
        if found.is_empty() {
            let what = format!("{} has no journal of this backup's data directory", archive.display());
            return Err(refused(format!("{what} ({:016x})", full.id)));
        }
        sources.extend(found);
    }
    let covers: Vec<(u64, u64)> = source
        .parts()
        .iter()
        .filter(|part| part.id == full.id)
        .map(|part| (part.end.position, part.end.covers))
        .collect();
    let _lock = claim(files, &what.to)?;
    let places = places(&what.to);
    let restored = fill(files, what, full, sources, &covers, &places)
        .and_then(|restored| install(&**files, &places).map(|()| restored));
    if restored.is_err() {
        // As far as it goes: what stays keeps the directory from being served.
        let _ = swap::clear(&**files, &places);
        let _ = std::fs::remove_dir(&places.new_journal).and_then(|()| std::fs::remove_dir(&places.new));
        let is_there = |name: &str| files.open(&what.to.join(name), false).is_ok();
        if !is_there(BASE_FILE) {
            let _ = files.remove(&what.to.join(FORMAT_FILE));
        }
    }
    restored
}

/// The latest full part of no later than the moment.
fn choose<'a>(source: &'a BackupDirectory, what: &Restore) -> Result<&'a Part> {
    let fulls = || source.parts().iter().filter(|part| part.kind == Kind::Full);
    let Some(first) = fulls().next() else {
        let why = match source.is_unfinished() {
            true => "the backup was interrupted: it isn't complete, and can't be restored",
            false => "there is no full backup",
        };
        return Err(refused(format!("{}: {why}", what.from.display())));
    };
    let until = what.until.unwrap_or(u64::MAX);
    fulls().rfind(|part| part.end.time <= until).ok_or_else(|| {
        let why = format!(
            "the oldest backup has commits up to {}, which is later than the moment",
            told(first.end.time)
        );
        refused(format!("{}: {why}", what.from.display()))
    })
}

/// The files of an archive, or of a journal itself, that belong to a data directory.
fn archived(files: &Arc<dyn Files>, directory: &Path, id: u64) -> Result<Vec<Source>> {
    let mut found = archive::sources(&**files, &archive::place(directory, id));
    let named = archive::sources(&**files, directory);
    found.extend(named.into_iter().filter(|source| archive::belongs(files, source, id)));
    let segments = Segments { files: Arc::clone(files), directory: directory.to_path_buf(), id };
    for number in segments.list()? {
        let Some(mut reader) = Reader::open_segment(&segments, number)? else { continue };
        let header = reader.bytes(0, crate::disk::journal::SEGMENT_HEADER_BYTES)?;
        // Another directory's is no part of this history.
        if matches!(segments.check_header(number, header), Ok(true)) {
            found.extend(Source::segment(segments.path(number), reader)?);
        }
    }
    Ok(found)
}

fn places(to: &Path) -> Places {
    let new = to.join("restore.tmp");
    Places {
        directory: to.to_path_buf(),
        base: to.join(BASE_FILE),
        journal: to.join(JOURNAL_DIRECTORY),
        new_journal: new.join(JOURNAL_DIRECTORY),
        new,
    }
}

/// Makes sure that the target is nobody's, and that no server takes it for a data directory meanwhile.
fn claim(files: &Arc<dyn Files>, to: &Path) -> Result<Box<dyn std::any::Any + Send + Sync>> {
    ownership::check_target(&**files, to, &[LOCK_FILE])?;
    files.create_directory(to).map_err(|error| during("making", to, error))?;
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

/// Makes the new directory.
fn fill(
    files: &Arc<dyn Files>,
    what: &Restore,
    full: &Part,
    sources: Vec<Source>,
    covers: &[(u64, u64)],
    places: &Places,
) -> Result<Restored> {
    let options = DiskOptions {
        durability: Durability::None,
        cache_bytes: what.cache_bytes,
        ..DiskOptions::new(&places.new)
    };
    let engine = DiskEngine::open_on(Arc::clone(files), &options)?;
    let mut batches = Trail::new(Arc::clone(files), vec![full.source()], 0);
    while let Next::Frame(frame) = batches.next()? {
        commit(&engine, &frame.bytes, &full.path)?;
    }
    if batches.last() != full.frames {
        let what = format!("{}: {} frames are missing", full.path.display(), full.frames - batches.last());
        return Err(Error::Corrupted(what));
    }
    let mut latest = Batch::new();
    latest.set_time(full.end.time);
    engine.commit(latest)?;
    let mut restored =
        Restored { full: full.path.clone(), commits: 0, position: full.end.position, time: full.end.time };
    let mut trail = Trail::new(Arc::clone(files), sources, full.end.position);
    let reached = follow(&engine, &mut trail, what.until, &mut restored)?;
    if let (Some(until), false) = (what.until, reached) {
        let known = covers.iter().filter(|(position, _)| *position == restored.position);
        let known = known.map(|(_, covers)| *covers).fold(restored.time, u64::max);
        if known < until {
            return Err(refused(format!(
                "what is there goes up to {}, which is before the moment: the last commit is that of {}. Name what \
                 comes after, such as the archive of the journal, or restore all there is",
                told(known),
                told(restored.time)
            )));
        }
    }
    engine.close()?;
    Ok(restored)
}

/// Carries out the commits up to a moment; whether a later one is there.
fn follow(
    engine: &DiskEngine,
    trail: &mut Trail,
    until: Option<u64>,
    restored: &mut Restored,
) -> Result<bool> {
    loop {
        match trail.next()? {
            Next::End => return Ok(false),
            Next::Frame(frame) if until.is_some_and(|until| frame.time > until) => return Ok(true),
            Next::Frame(frame) => {
                commit(engine, &frame.bytes, Path::new("the journal"))?;
                restored.commits += 1;
                restored.position = frame.position;
                restored.time = restored.time.max(frame.time);
            }
            Next::Gap(next) => {
                let which = gap(trail.last() + 1, next - 1);
                return Err(refused(format!(
                    "{which}: what is there without a gap goes up to {} (restore to that moment, or find the missing \
                     files)",
                    told(restored.time)
                )));
            }
        }
    }
}

fn commit(engine: &DiskEngine, frame: &[u8], of: &Path) -> Result<()> {
    let batch = Frame::read(frame).and_then(|frame| frame.decode());
    let batch = batch.ok_or_else(|| Error::Corrupted(format!("{}: a frame makes no sense", of.display())))?;
    engine.wait_for_room(&mut || true)?;
    engine.commit(batch).map(drop)
}

/// Moves the new directory's files to their places, the one that tells the format last.
fn install(files: &dyn Files, places: &Places) -> Result<()> {
    let rename =
        |from: &Path, to: &Path| files.rename(from, to).map_err(|error| during("renaming", from, error));
    let sync = |path: &Path| files.sync_directory(path).map_err(|error| during("syncing", path, error));
    let names =
        files.list(&places.new_journal).map_err(|error| during("reading", &places.new_journal, error))?;
    files.create_directory(&places.journal).map_err(|error| during("making", &places.journal, error))?;
    for segment in names {
        rename(&places.new_journal.join(&segment), &places.journal.join(&segment))?;
    }
    sync(&places.journal)?;
    rename(&places.new.join(BASE_FILE), &places.base)?;
    sync(&places.directory)?;
    rename(&places.new.join(FORMAT_FILE), &places.directory.join(FORMAT_FILE))?;
    sync(&places.directory)?;
    swap::clear(files, places)?;
    // Empty by now; if they stay they do no harm.
    let _ = std::fs::remove_dir(&places.new_journal);
    let _ = std::fs::remove_dir(&places.new);
    Ok(())
}
