//! A data directory that nobody serves, read without being changed.
//!
//! Opening the base writes nothing, and the journal is replayed into memory. What is committed to it is
//! seen and never written, so that a database can be opened on it that puts its catalog in order. It keeps servers out
//! as a server does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::base::Base;
use super::control::Control;
use super::directory::{self, BASE_FILE, Directory, JOURNAL_DIRECTORY};
use super::files::Files;
use super::journal::{Segments, during};
use super::state::State;
use super::{Backup, CHANGES_SHARE, DiskOptions, Since, SystemFiles, archive, of_state, ownership, recovery};
use crate::{Batch, Engine, Ident, Position, Result, Snapshot, Statistics};

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
        let id = directory::read_id(&*files, path)?;
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
