//! The data directory: its lock, the file that names its format, and the paths of its other files.
//!
//! A data directory that nobody serves, read without being changed.
//!
//! Opening the base writes nothing, and the journal is replayed into memory. What is committed to it is
//! seen and never written, so that a database can be opened on it that puts its catalog in order. It keeps servers out
//! as a server does.

use super::base::Base;
use super::control::Control;
use super::files::Files;
use super::journal::{Segments, during};
use super::state::State;
use super::{
    Backup, CHANGES_SHARE, DiskOptions, Since, SystemFiles, archive, base, of_state, ownership, recovery,
};
use crate::{Batch, Engine, Error, Ident, Position, Result, Snapshot, Statistics};
use parking_lot::Mutex;
use std::any::Any;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The version of the whole directory's format. A directory of another version is refused: Vellum has not been
/// released yet, so that no earlier one is in use. Numbers below this one were used during development.
pub(super) const FORMAT: u32 = 4;
pub(super) const FORMAT_FILE: &str = "vellum.format";
pub(super) const LOCK_FILE: &str = "vellum.lock";
pub(super) const BASE_FILE: &str = "base.vellum";
pub(super) const NEW_BASE_FILE: &str = "base.new";
pub(super) const NEW_FORMAT_FILE: &str = "vellum.format.new";
pub(super) const JOURNAL_DIRECTORY: &str = "journal";

/// What [`FORMAT_FILE`] says while a backup is being restored to a directory.
pub(super) const RESTORING: &str = "Vellum data directory\nbeing restored\n";

/// A data directory that nobody else has open.
pub(super) struct Directory {
    pub(super) base: PathBuf,
    pub(super) segments: Segments,
    /// Held as long as the directory is open.
    _lock: Box<dyn Any + Send + Sync>,
}

impl Directory {
    /// Opens a data directory, or sets one up in an empty or missing directory. A directory that is refused stays
    /// as it was.
    pub(super) fn open(files: Arc<dyn Files>, options: &DiskOptions) -> Result<Self> {
        ownership::check(&*files, options)?;
        let path = options.directory.as_path();
        let journal = options.journal_directory.clone().unwrap_or_else(|| path.join(JOURNAL_DIRECTORY));
        files.create_directory(path).map_err(|error| during("making", path, error))?;
        let lock = Directory::lock(&*files, path)?;
        let names = files.list(path).map_err(|error| during("reading", path, error))?;
        let mut segments = Segments { files: Arc::clone(&files), directory: journal, id: 0 };
        let has = |name: &str| names.iter().any(|other| other == name);
        if has(FORMAT_FILE) {
            segments.id = read_id(&*files, path)?;
        } else if has(BASE_FILE) {
            return Err(Error::Corrupted(format!("{} has data but no file {FORMAT_FILE}", path.display())));
        } else {
            set_up(path, &mut segments)?;
        }
        if !has(BASE_FILE) {
            finish_set_up(&*files, path)?;
        }
        Ok(Directory { base: path.join(BASE_FILE), segments, _lock: lock })
    }

    /// Takes the lock that keeps other processes out.
    pub(super) fn lock(files: &dyn Files, path: &Path) -> Result<Box<dyn Any + Send + Sync>> {
        files.lock(&path.join(LOCK_FILE)).map_err(|error| locking(path, error))
    }
}

fn locking(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            // The error's text is the number that the other process has left, where it could be read.
            let process =
                error.to_string().parse::<u32>().map(|id| format!(" (process {id})")).unwrap_or_default();
            let message = format!("another Vellum{process} uses {}", path.display());
            Error::Io { kind: io::ErrorKind::ResourceBusy, message }
        }
        _ => during("locking", path, error),
    }
}

/// Makes an empty base under another name and the journal's first segment, then the file that tells the
/// format.
fn set_up(path: &Path, segments: &mut Segments) -> Result<()> {
    segments.id = RandomState::new().build_hasher().finish();
    let journal = &segments.directory;
    segments.files.create_directory(journal).map_err(|error| during("making", journal, error))?;
    // A segment with frames belongs to somebody; one without is what an interrupted set-up leaves.
    for number in segments.list()? {
        let file = segments.path(number);
        let len = segments.files.open(&file, false).and_then(|file| file.len());
        if len.map_err(|error| during("reading", &file, error))? > super::journal::SEGMENT_HEADER_BYTES as u64
        {
            let what = format!("{} belongs to another data directory", file.display());
            return Err(Error::Corrupted(what));
        }
        segments.remove(number)?;
    }
    base::make(&*segments.files, &path.join(NEW_BASE_FILE))?;
    segments.create(1)?;
    write_format(path, segments)
}

/// Writes the file that tells the format and the id, or replaces it.
fn write_format(path: &Path, segments: &Segments) -> Result<()> {
    let (file, new) = (path.join(FORMAT_FILE), path.join(NEW_FORMAT_FILE));
    let text = format!("Vellum data directory\nformat {FORMAT}\nid {:016x}\n", segments.id);
    let write = || {
        let opened = segments.files.open(&new, true)?;
        opened.set_len(0)?;
        opened.write_at(text.as_bytes(), 0)?;
        opened.sync()?;
        segments.files.rename(&new, &file)?;
        segments.files.sync_directory(path)
    };
    write().map_err(|error| during("writing", &file, error))
}

/// Gives the base its name. Nothing is committed before that, so a directory with the format and without a
/// base is one whose setting up was interrupted, if it still has the new one.
fn finish_set_up(files: &dyn Files, path: &Path) -> Result<()> {
    let base = path.join(BASE_FILE);
    let rename = files.rename(&path.join(NEW_BASE_FILE), &base).and_then(|()| files.sync_directory(path));
    rename.map_err(|error| during("setting up", &base, error))
}

/// Checks the format's version, and returns the directory's id.
///
/// Errors: `Unavailable` if the directory has another version or a restore was interrupted, `Corrupted` if the file is
/// not as Vellum writes it.
pub(super) fn read_id(files: &dyn Files, path: &Path) -> Result<u64> {
    let path = path.join(FORMAT_FILE);
    let read = || {
        let file = files.open(&path, false)?;
        let mut bytes = vec![0; file.len()?.min(4096) as usize];
        file.read_at(&mut bytes, 0)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().map_err(|error| during("reading", &path, error))?;
    if text == RESTORING {
        return Err(Error::Unavailable(format!(
            "{} holds the beginning of a restore that was interrupted: empty it, and restore again",
            path.parent().unwrap_or(&path).display()
        )));
    }
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let id = field("id").filter(|id| id.len() == 16).and_then(|id| u64::from_str_radix(id, 16).ok());
    match (field("format").and_then(|format| format.parse::<u32>().ok()), id) {
        (Some(FORMAT), Some(id)) => Ok(id),
        (Some(other), _) if other != FORMAT => Err(Error::Unavailable(format!(
            "{}: the data directory has format {other}, and this version of Vellum reads format {FORMAT} alone",
            path.parent().unwrap_or(&path).display()
        ))),
        _ => Err(Error::Corrupted(format!("{} is not as Vellum writes it", path.display()))),
    }
}

/// An engine over a directory that it leaves as it is.
pub struct Still {
    /// As it was found.
    found: Arc<State>,
    latest: Mutex<Arc<State>>,
    commits: AtomicU64,
    segments: Segments,
    archive: Option<std::path::PathBuf>,
    /// Kept open for those who read it.
    base: Mutex<Base>,
    _lock: Box<dyn std::any::Any + Send + Sync>,
}

impl Still {
    /// Opens a data directory to be read.
    ///
    /// Fails with `Io` of the kind `ResourceBusy` if another process has it, with `Unavailable` if a newer version wrote it, with `Corrupted` if stored
    /// bytes aren't what was written, naming the file and the place, and where there is no data.
    pub fn open(options: &DiskOptions) -> Result<Still> {
        Still::open_on(Arc::new(SystemFiles), options)
    }

    /// The same on another file system.
    pub fn open_on(files: Arc<dyn Files>, options: &DiskOptions) -> Result<Still> {
        let path = &options.directory;
        ownership::check_is_ours(&*files, path)?;
        let id = read_id(&*files, path)?;
        let lock = Directory::lock(&*files, path)?;
        let journal = options.journal_directory.clone().unwrap_or_else(|| path.join(JOURNAL_DIRECTORY));
        let segments = Segments { files: Arc::clone(&files), directory: journal, id };
        let cache = options.cache_bytes / CHANGES_SHARE * (CHANGES_SHARE - 1);
        let control = Arc::new(Control::default());
        let base = Base::open(files, path.join(BASE_FILE), cache, options.compression, control)?;
        let loaded = base.load()?;
        let mut state = State::new(loaded.view, loaded.trees, loaded.position, loaded.time);
        recovery::read(&segments, loaded.position, |position, batch| {
            let below = state.prepare(&batch)?;
            state.apply(batch, &below, position);
            Ok(())
        })?;
        let found = Arc::new(state);
        let archive = options.archive.as_ref().map(|archive| archive::place(&archive.directory, id));
        let latest = Mutex::new(Arc::clone(&found));
        let commits = AtomicU64::new(0);
        Ok(Still { found, latest, commits, segments, archive, base: Mutex::new(base), _lock: lock })
    }

    /// The trees that were found.
    pub fn idents(&self) -> Vec<Ident> {
        self.found.idents()
    }
}

impl Engine for Still {
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        Arc::clone(&*self.latest.lock()) as Arc<dyn Snapshot>
    }

    fn commit(&self, batch: Batch) -> Result<Position> {
        let mut latest = self.latest.lock();
        let below = latest.prepare(&batch)?;
        let position = latest.position + 1;
        Arc::make_mut(&mut latest).apply(batch, &below, position);
        self.commits.fetch_add(1, Ordering::Relaxed);
        Ok(Position(position))
    }

    fn wait_for_room(&self, _: &mut dyn FnMut() -> bool) -> Result<()> {
        Ok(())
    }

    fn latest_time(&self) -> u64 {
        self.latest.lock().time
    }

    fn wait_journaled(&self, _: Position) -> Result<()> {
        Ok(())
    }

    fn durable(&self) -> Position {
        Position(self.latest.lock().position)
    }

    fn when_durable(&self, _: Arc<dyn Fn() + Send + Sync>) {}

    fn sync_soon(&self) {}

    fn backup(&self, since: Option<Since>, covers: u64) -> Result<Backup> {
        // What the process that wrote it has left to the system: a crash may take nothing that is in a backup.
        for number in self.segments.list()? {
            let path = self.segments.path(number);
            let sync = self.segments.files.open(&path, false).and_then(|file| file.sync());
            sync.map_err(|error| during("syncing", &path, error))?;
        }
        of_state(Arc::clone(&self.found), &self.segments, self.archive.as_deref(), since, covers)
    }

    fn has_journal(&self) -> bool {
        true
    }

    fn name(&self) -> &'static str {
        "disk"
    }

    fn statistics(&self) -> Statistics {
        let bytes = self.latest.lock().bytes;
        let file_bytes = self.base.lock().file_bytes();
        Statistics {
            bytes,
            file_bytes,
            commits: self.commits.load(Ordering::Relaxed),
            ..Statistics::default()
        }
    }
}
