//! The data directory: its lock, its format file, and the paths of its other files.
//!
//! The module also opens a data directory read-only.
//!
//! Opening the base writes nothing, and the journal is replayed into memory. Commits to a read-only engine are visible
//! and never written, so a database can repair its catalog on it. A read-only engine locks the directory like a server.

use super::base::{self, Base};
use super::files::{ANOTHER_PROCESS, Control, Files, during};
use super::journal::Segments;
use super::state::State;
use super::{
    Backup, CHANGES_SHARE, DiskOptions, Since, SystemFiles, archive, backup_of_state, ownership, recovery,
};
use crate::{Batch, Engine, Error, Ident, Journaling, Position, Result, Snapshot, Statistics};
use parking_lot::Mutex;
use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Format version of the whole directory. Other versions are refused. Vellum is unreleased, so no earlier version is in
/// use; lower numbers were used during development.
pub(super) const FORMAT: u32 = 4;
pub(super) const FORMAT_FILE: &str = "vellum.format";
pub(super) const LOCK_FILE: &str = "vellum.lock";
pub(super) const BASE_FILE: &str = "base.vellum";
pub(super) const NEW_BASE_FILE: &str = "base.new";
pub(super) const NEW_FORMAT_FILE: &str = "vellum.format.new";
pub(super) const JOURNAL_DIRECTORY: &str = "journal";

/// Content of [`FORMAT_FILE`] during a restore into a directory.
pub(super) const RESTORING: &str = "Vellum data directory\nbeing restored\n";

/// A locked data directory.
pub(super) struct Directory {
    pub(super) base: PathBuf,
    pub(super) segments: Segments,
    /// Held while the directory is open.
    _lock: Box<dyn Any + Send + Sync>,
}

impl Directory {
    /// Opens a data directory, or creates one in an empty or missing directory. A refused directory stays unchanged.
    pub(super) fn open(files: Arc<dyn Files>, options: &DiskOptions) -> Result<Self> {
        ownership::check(&*files, options)?;
        let path = options.directory.as_path();
        let journal = options.journal_directory.clone().unwrap_or_else(|| path.join(JOURNAL_DIRECTORY));
        files.make(path)?;
        let lock = Directory::lock(&*files, path)?;
        let names = files.names(path)?;
        let mut segments = Segments { files: Arc::clone(&files), directory: journal, id: 0 };
        let has = |name: &str| names.iter().any(|other| other == name);
        if has(FORMAT_FILE) {
            segments.id = read_id(&*files, path)?;
            if !has(BASE_FILE) && !has(NEW_BASE_FILE) {
                let message = format!(
                    "{} is missing. --repair saves the documents that the journal has",
                    path.join(BASE_FILE).display()
                );
                return Err(Error::Corrupted(message));
            }
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

    /// Takes the lock that excludes other processes.
    pub(super) fn lock(files: &dyn Files, path: &Path) -> Result<Box<dyn Any + Send + Sync>> {
        files.lock(&path.join(LOCK_FILE)).map_err(|error| locking(path, error))
    }
}

/// Returns the error of a failed lock, with the process that holds it.
fn locking(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            // The text names the other process, if it is known.
            let (by, path) = (error.to_string(), path.display());
            let message = match by.parse::<u32>() {
                Ok(id) => format!("another Vellum (process {id}) uses {path}"),
                Err(_) if by == ANOTHER_PROCESS => format!("{by} has locked {path}"),
                Err(_) => format!("another Vellum uses {path}"),
            };
            Error::Io { kind: io::ErrorKind::ResourceBusy, message }
        }
        _ => during("locking", path, error),
    }
}

/// Creates an empty base under a temporary name, the journal's first segment, and then the format file.
fn set_up(path: &Path, segments: &mut Segments) -> Result<()> {
    segments.id = segments.files.random();
    let journal = &segments.directory;
    segments.files.make(journal)?;
    // A segment with frames belongs to other data. A segment without frames remains from an interrupted creation.
    for number in segments.list()? {
        let file = segments.path(number);
        let len = segments.files.open(&file, false).and_then(|file| file.len());
        if len.map_err(|error| during("reading", &file, error))? > super::journal::SEGMENT_HEADER_BYTES as u64
        {
            let message = format!("{} belongs to another data directory", file.display());
            return Err(Error::Corrupted(message));
        }
        segments.remove(number)?;
    }
    base::make(&*segments.files, &path.join(NEW_BASE_FILE))?;
    segments.create(1)?;
    write_format(path, segments)
}

/// Writes or replaces the file with the format and the id.
fn write_format(path: &Path, segments: &Segments) -> Result<()> {
    let text = format!("Vellum data directory\nformat {FORMAT}\nid {:016x}\n", segments.id);
    segments.files.replace(path, NEW_FORMAT_FILE, FORMAT_FILE, text.as_bytes())
}

/// Renames the new base. No commit precedes this step. A directory with a format file and without a base is therefore
/// an interrupted creation, if it has the new base.
fn finish_set_up(files: &dyn Files, path: &Path) -> Result<()> {
    let base = path.join(BASE_FILE);
    let rename = files.rename(&path.join(NEW_BASE_FILE), &base).and_then(|()| files.sync_directory(path));
    rename.map_err(|error| during("setting up", &base, error))
}

/// Checks the format version and returns the directory's id.
///
/// Errors: `Unavailable` for another version or an interrupted restore, `Corrupted` for an invalid file.
pub(super) fn read_id(files: &dyn Files, path: &Path) -> Result<u64> {
    let path = path.join(FORMAT_FILE);
    let text = String::from_utf8_lossy(&files.read_small(&path)?).into_owned();
    if text == RESTORING {
        return Err(Error::Unavailable(format!(
            "{} contains an interrupted restore: empty it, and restore again",
            path.parent().unwrap_or(&path).display()
        )));
    }
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let id = field("id").filter(|id| id.len() == 16).and_then(|id| u64::from_str_radix(id, 16).ok());
    match (field("format").and_then(|format| format.parse::<u32>().ok()), id) {
        (Some(FORMAT), Some(id)) => Ok(id),
        (Some(other), _) if other != FORMAT => Err(Error::Unavailable(format!(
            "{}: the data directory has format {other}, and this version of Vellum reads only format {FORMAT}",
            path.parent().unwrap_or(&path).display()
        ))),
        _ => Err(Error::Corrupted(format!("{} has invalid contents", path.display()))),
    }
}

/// A read-only engine over a directory.
pub struct ReadOnlyEngine {
    /// State of the directory when opened.
    initial: Arc<State>,
    /// State with the commits made on this engine, which are never written.
    latest: Mutex<Arc<State>>,
    commits: AtomicU64,
    segments: Segments,
    /// Position after which the journal has each commit.
    complete_after: u64,
    archive: Option<PathBuf>,
    /// Kept open for its readers.
    base: Mutex<Base>,
    /// Excludes servers and other processes.
    _lock: Box<dyn Any + Send + Sync>,
}

impl ReadOnlyEngine {
    /// Opens a data directory read-only.
    ///
    /// Errors: `Io` of kind `ResourceBusy` if another process has it. `Unavailable` if a newer version wrote it.
    /// `Corrupted`, with file and offset, for damaged or missing data.
    pub fn open(options: &DiskOptions) -> Result<ReadOnlyEngine> {
        ReadOnlyEngine::open_on(Arc::new(SystemFiles), options)
    }

    /// Opens a data directory of another file system.
    pub fn open_on(files: Arc<dyn Files>, options: &DiskOptions) -> Result<ReadOnlyEngine> {
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
        let complete_after = recovery::read(&segments, loaded.position, |position, batch| {
            let below = state.prepare(&batch)?;
            state.apply(batch, &below, position);
            Ok(())
        })?;
        let initial = Arc::new(state);
        let archive = options.archive.as_ref().map(|archive| archive::folder(&archive.directory, id));
        let latest = Mutex::new(Arc::clone(&initial));
        let commits = AtomicU64::new(0);
        let (base, _lock) = (Mutex::new(base), lock);
        Ok(ReadOnlyEngine { initial, latest, commits, segments, complete_after, archive, base, _lock })
    }

    /// Returns the trees of the directory.
    pub fn idents(&self) -> Vec<Ident> {
        self.initial.idents()
    }
}

impl Engine for ReadOnlyEngine {
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        Arc::clone(&*self.latest.lock()) as Arc<dyn Snapshot>
    }

    fn commit(&self, batch: Batch) -> Result<Position> {
        let mut latest = self.latest.lock();
        let below = latest.prepare(&batch)?;
        debug_assert!(latest.position >= self.initial.position, "the state goes back");
        let position = latest.position + 1;
        Arc::make_mut(&mut latest).apply(batch, &below, position);
        self.commits.fetch_add(1, Ordering::Relaxed);
        Ok(Position(position))
    }

    fn latest_time(&self) -> u64 {
        self.latest.lock().time
    }

    fn backup(&self, since: Option<Since>, covers: u64) -> Result<Backup> {
        // Syncs data that the writing process left to the system: a crash must not remove what a backup contains.
        for number in self.segments.list()? {
            let path = self.segments.path(number);
            let sync = self.segments.files.open(&path, false).and_then(|file| file.sync());
            sync.map_err(|error| during("syncing", &path, error))?;
        }
        let segments = (&self.segments, self.complete_after);
        backup_of_state(Arc::clone(&self.initial), segments, self.archive.as_deref(), since, covers)
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

impl Journaling for ReadOnlyEngine {
    fn wait_journaled(&self, _: Position) -> Result<()> {
        Ok(())
    }

    fn durable(&self) -> Position {
        Position(self.latest.lock().position)
    }

    fn when_durable(&self, _: Arc<dyn Fn() + Send + Sync>) {}

    fn sync_soon(&self) {}

    fn has_journal(&self) -> bool {
        true
    }
}
