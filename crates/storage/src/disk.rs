//! The disk engine: a journal, recent changes in memory, and a checkpointed base.
//!
//! 1. [`DiskEngine::commit`](crate::Engine::commit) checks a batch against the latest state and
//!    appends it to the journal (`journal.rs`, `../record.rs`). It then applies the batch to the
//!    state (`state.rs`): persistent trees of the changes since the checkpoint, above the base.
//! 2. A reader takes an immutable state and looks in up to three layers: changes, changes that a
//!    checkpoint is writing, base (`state.rs`, `cursor.rs`, `base.rs`).
//! 3. When the changes have grown, the checkpointer (`checkpointer.rs`) freezes them and writes them atomically
//!    to the base (`checkpoint.rs`), a file of pages. The journal before them is then unused.
//! 4. Opening reads the position of the base and replays the later journal in chunks
//!    (`recovery.rs`, `reader.rs`).
//! 5. Backups are streams of a snapshot or of the journal's frames (`backup.rs`). `archive.rs`
//!    keeps these frames beyond checkpoints. `directory.rs` also reads a directory that no server
//!    has open.
//! 6. Salvage copies the intact data of a damaged directory to a new one (`salvage.rs`, `swap.rs`).
//!
//! `docs/storage-disk.md` has the formats, and `docs/storage-disk-figures.md` the measurements.

mod archive;
mod backup;
mod base;
mod checkpoint;
mod checkpointer;
mod core;
mod cursor;
mod directory;
mod files;
mod journal;
mod latency;
mod mark;
mod ownership;
mod reader;
mod recovery;
mod reuse;
mod salvage;
mod state;
mod swap;
#[cfg(test)]
mod tests;
mod write_buffer;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use crate::{
    Backup, Batch, Curve, Durability, End, Engine, Error, JournalWait, Journaling, Position, Reads, Result,
    Room, Since, Snapshot, Span, Statistics, WorkingSet, mutant, threads,
};
use archive::Archive;
use backup::{Changes, FrameStream, Source};
use base::Base;
use checkpointer::Checkpointer;
use core::{Bounds, Core};
use directory::Directory;
use files::Control;
use journal::{Journal, Segments};
use reader::Reader;
use reuse::Reuse;
use state::State;

pub use archive::ArchiveOptions;
pub use backup::{BackupDirectory, Part, PartWriter, Restore, Restored, restore};
#[cfg(any(test, debug_assertions, feature = "testing"))]
pub(crate) use base::{entries, framed};
pub use directory::ReadOnlyEngine;
pub use files::{BLOCK, File, Files, SystemFiles};
#[cfg(any(test, debug_assertions, feature = "testing"))]
pub(crate) use journal::{SEGMENT_HEADER_BYTES, seed};
pub use salvage::{DataLoss, Salvage};

/// Divisor of the cache size: changes may take this part before a checkpoint begins.
const CHANGES_SHARE: u64 = 4;
const CHANGED_BYTES_MIN: u64 = 4 << 20;
const CHANGED_BYTES_MAX: u64 = 256 << 20;
/// Ratio of the journal's limit to the limit of changes. The journal may be longer, because it has
/// every version of keys that change often.
const JOURNAL_SHARE: u64 = 4;
/// Commits are refused at this multiple of the checkpoint limit, plus this number of bytes for
/// concurrent commits.
const REFUSED_SHARE: u64 = 4;
const REFUSED_BYTES: u64 = 64 << 20;

/// Options of a [`DiskEngine`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskOptions {
    /// The data directory, created if it does not exist.
    pub directory: PathBuf,
    /// Directory of the journal, if not in the data directory, for example on another volume. It
    /// must be given at each start.
    pub journal_directory: Option<PathBuf>,
    /// Default durability of commits.
    pub durability: Durability,
    /// Interval of journal syncs at [`Durability::Relaxed`].
    pub journal_commit_interval: Duration,
    /// Memory for read and changed data, in bytes. Three quarters are for pages of the base. A
    /// checkpoint begins when changes take a quarter, and [`Engine::room`] waits at twice
    /// that. Changes never take more than four times that plus 64 MiB and one batch.
    pub cache_bytes: u64,
    /// Archive of the journal beyond checkpoints, if any.
    pub archive: Option<ArchiveOptions>,
    /// Compression of newly written pages of the base.
    pub compression: Compression,
    /// Files that a new data directory may contain, such as a log or a certificate.
    pub other_files: Vec<PathBuf>,
    /// True if a new data directory may contain any other files except MongoDB's.
    pub allow_other_files: bool,
}

/// Compression of pages, if it makes them shorter by an eighth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    None = 0,
    /// LZ4: some microseconds per page.
    #[default]
    Lz4 = 1,
    /// Zstandard at its fastest level: smaller, and several times slower.
    Zstd = 2,
}

impl DiskOptions {
    /// Returns the default options for a directory: relaxed, synced every 100 ms, with 256 MiB of
    /// cache.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        DiskOptions {
            directory: directory.into(),
            journal_directory: None,
            durability: Durability::Relaxed,
            journal_commit_interval: Duration::from_millis(100),
            cache_bytes: 256 << 20,
            archive: None,
            compression: Compression::default(),
            other_files: Vec::new(),
            allow_other_files: false,
        }
    }

    fn bounds(&self) -> Bounds {
        let changed_bytes = (self.cache_bytes / CHANGES_SHARE).clamp(CHANGED_BYTES_MIN, CHANGED_BYTES_MAX);
        Bounds {
            changed_bytes,
            journal_bytes: changed_bytes * JOURNAL_SHARE,
            refused_bytes: changed_bytes * REFUSED_SHARE + REFUSED_BYTES,
        }
    }
}

/// An [`Engine`] whose data outlives the process, and after a journal sync also a crash of the
/// machine.
///
/// Dropping it, or [`DiskEngine::close`], runs a last checkpoint. The next opening then has nothing
/// to replay.
pub struct DiskEngine {
    core: Arc<Core>,
    durability: Durability,
    /// Lock of the directory, released last.
    directory: Mutex<Option<Directory>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    replayed: u64,
    /// Position after which the journal has each commit.
    complete_after: u64,
    reuse: Arc<Reuse>,
    cache_bytes: u64,
    /// Locked like the directory.
    archive: Mutex<Option<Arc<Archive>>>,
    /// The checkpointer of an engine without threads.
    stepped: Mutex<Option<Checkpointer>>,
}

impl DiskEngine {
    /// Opens or creates a data directory, and replays its journal after the last checkpoint.
    ///
    /// Errors: `Io` of the kind `ResourceBusy` if another process has the directory open;
    /// `Unavailable` if a newer version wrote it; `Corrupted` with file and place if stored bytes
    /// differ from the written bytes; errors of [`DiskEngine::check`].
    pub fn open(options: &DiskOptions) -> Result<Self> {
        DiskEngine::open_on(Arc::new(SystemFiles), options)
    }

    /// Checks that a data directory can be opened or created: it is Vellum's, empty or missing.
    /// Writes nothing. Returns the first few of MongoDB's files among Vellum's.
    ///
    /// Errors: `Io` of the kind `AlreadyExists` for MongoDB's files, and of the kind
    /// `DirectoryNotEmpty` for other files.
    pub fn check(options: &DiskOptions) -> Result<Option<String>> {
        ownership::check(&SystemFiles, options)
    }

    /// Opens a data directory on a given file system.
    pub fn open_on(files: Arc<dyn Files>, options: &DiskOptions) -> Result<Self> {
        DiskEngine::open_with(files, options, options.bounds())
    }

    /// Opens a data directory without threads. The caller runs their work by [`step_flush`](Self::step_flush) and
    /// [`step_checkpoint`](Self::step_checkpoint). A write to a full disk fails at once.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub fn open_stepped(files: Arc<dyn Files>, options: &DiskOptions) -> Result<Self> {
        let (engine, checkpointer) =
            DiskEngine::recover(files, options, options.bounds(), Control::impatient())?;
        *engine.stepped.lock() = Some(checkpointer);
        Ok(engine)
    }

    /// Does the work of the syncing thread once. `periodic` is true at the end of an interval. Otherwise only a
    /// requested sync runs.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub fn step_flush(&self, periodic: bool) {
        self.core.step_flush(periodic && self.durability != Durability::None);
    }

    /// Does the work of the checkpointer once: a checkpoint, if one is ordered or due.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub fn step_checkpoint(&self) -> Result<()> {
        self.stepped.lock().as_mut().map_or(Ok(()), Checkpointer::step_if_due)
    }

    fn open_with(files: Arc<dyn Files>, options: &DiskOptions, bounds: Bounds) -> Result<Self> {
        let (engine, checkpointer) = DiskEngine::recover(files, options, bounds, Control::default())?;
        engine.start(checkpointer, options.journal_commit_interval)?;
        Ok(engine)
    }

    /// Recovers the state of a data directory. Returns an engine without threads, and its checkpointer.
    fn recover(
        files: Arc<dyn Files>,
        options: &DiskOptions,
        bounds: Bounds,
        control: Control,
    ) -> Result<(Self, Checkpointer)> {
        let directory = Directory::open(Arc::clone(&files), options)?;
        let control = Arc::new(control);
        let cache = options.cache_bytes / CHANGES_SHARE * (CHANGES_SHARE - 1);
        debug_assert!(cache <= options.cache_bytes, "the pages have more than the whole cache");
        let (path, compression) = (directory.base.clone(), options.compression);
        let base = Base::open(Arc::clone(&files), path, cache, compression, Arc::clone(&control))?;
        let reuse = Arc::clone(&base.reuse);
        let loaded = base.load()?;
        let archive = options.archive.as_ref();
        let archive =
            archive.map(|archive| Archive::open(files, archive, directory.segments.id, loaded.position));
        let archive = archive.transpose()?.map(Arc::new);
        let mut state = State::new(loaded.view, loaded.trees, loaded.position, loaded.time);
        let mut count = 0;
        let replay = |position, batch| {
            count += 1;
            let below = state.prepare(&batch)?;
            state.apply(batch, &below, position);
            Ok(())
        };
        let (appender, complete_after) = recovery::recover(&directory.segments, loaded.position, replay)?;
        base.sync()?;
        directory.segments.files.sync_names(&directory.segments.directory)?;
        debug_assert_eq!(state.position, loaded.position + count, "a replayed commit is not counted");
        let journal = match options.durability {
            Durability::Journaled => Journal::written_by_syncs(directory.segments.clone(), &appender)?,
            _ => Journal::new(directory.segments.clone(), &appender),
        };
        let core = Arc::new(Core::new(state, journal, appender, base, control, bounds));
        let engine = DiskEngine {
            core,
            durability: options.durability,
            directory: Mutex::new(Some(directory)),
            threads: Mutex::default(),
            replayed: count,
            complete_after,
            reuse,
            cache_bytes: options.cache_bytes,
            archive: Mutex::new(archive.clone()),
            stepped: Mutex::default(),
        };
        let (core, weak_core) = (Arc::clone(&engine.core), Arc::downgrade(&engine.core));
        engine.core.journal.on_remaining_waiters(Arc::new(move || {
            if let Some(core) = weak_core.upgrade() {
                core.sync_soon();
            }
        }));
        Ok((engine, Checkpointer::new(core, loaded.next_table, archive)))
    }

    /// Returns the number of commits replayed from the journal at the opening.
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    fn start(&self, checkpointer: Checkpointer, interval: Duration) -> Result<()> {
        self.spawn("checkpointer", move || checkpointer.run())?;
        let interval = (self.durability != Durability::None).then_some(interval);
        let core = Arc::clone(&self.core);
        self.spawn("storage-flush", move || core.flush_every(interval))
    }

    fn spawn(&self, name: &'static str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = threads::spawn_essential(name, None, run)?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Closes the engine: refuses further commits, syncs the journal, and runs a last checkpoint.
    /// Snapshots still held can then only read data in memory. A second call does nothing.
    pub fn close(&self) -> Result<()> {
        if !self.core.refuse_commits() {
            return Ok(());
        }
        self.core.stop_flushing();
        let synced = self.core.journal.sync();
        self.core.control.close();
        self.core.checkpoint_queue.close();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A panic would have ended the process.
            let _ = thread.join();
        }
        if let Some(mut checkpointer) = self.stepped.lock().take() {
            checkpointer.finish_last();
        }
        self.core.base.lock().close();
        *self.archive.lock() = None;
        *self.directory.lock() = None;
        // A failed journal sync loses nothing if the checkpoint has everything.
        match self.core.has_changes() {
            true => synced,
            false => Ok(()),
        }
    }
}

/// Returns a backup of a state, or of the commits between an earlier backup and the state.
fn backup_of_state(
    state: Arc<State>,
    (segments, complete_after): (&Segments, u64),
    archive: Option<&Path>,
    since: Option<Since>,
    covers: u64,
) -> Result<Backup> {
    let end = End { position: state.position, time: state.time, covers: covers.max(state.time) };
    debug_assert!(end.covers >= end.time, "a commit of the backup is later than its end");
    let mut why = None;
    if let Some(since) = since {
        match changes((segments, complete_after), archive, since, end.position)? {
            Ok(frame_stream) => {
                let changes = Changes { frame_stream, end: end.position };
                return Ok(Backup::changes(Box::new(changes), since, end));
            }
            Err(reason) => why = Some(reason),
        }
    }
    let idents = state.idents();
    Ok(Backup::full(state, idents, segments.id, end).instead(why))
}

/// Returns the commits after an earlier backup, or the reason that they are unavailable.
fn changes(
    (segments, complete_after): (&Segments, u64),
    archive: Option<&Path>,
    since: Since,
    end: u64,
) -> Result<std::result::Result<FrameStream, String>> {
    if since.id != segments.id {
        return Ok(Err("the earlier backup is of another data directory".to_string()));
    }
    if since.position > end {
        let message = format!("the earlier backup goes up to commit {}, the data to {end}", since.position);
        return Ok(Err(message));
    }
    if since.position < complete_after && !mutant!("backups overlook what the journal has lost") {
        return Ok(Err(format!("a crash has removed commits up to {complete_after} from the journal")));
    }
    let mut sources = Vec::new();
    for number in segments.list()? {
        match Reader::open_segment(segments, number) {
            Ok(None) => {}
            Ok(Some(reader)) => sources.extend(Source::segment(segments.path(number), reader)?),
            // A checkpoint has just removed it: its contents are archived or gone.
            Err(Error::Io { kind: ErrorKind::NotFound, .. }) => {}
            Err(error) => return Err(error),
        }
    }
    // A crash may have removed commits that the base has from the segments before the needed ones.
    let needed = sources.partition_point(|source| source.first() <= since.position + 1);
    sources.drain(..needed.saturating_sub(1));
    let live = sources.iter().map(Source::first).min().unwrap_or(end + 1);
    // After the segments, because a segment is removed only after it is archived.
    sources.extend(archive.iter().flat_map(|archive| archive::sources(&*segments.files, archive)));
    let begin = sources.iter().filter(|source| source.reaches(since.position + 1)).map(Source::first).min();
    if since.position < end && begin.unwrap_or(live).min(live) > since.position + 1 {
        let message = format!("the journal from commit {} on is no longer available", since.position + 1);
        return Ok(Err(message));
    }
    Ok(Ok(FrameStream::new(Arc::clone(&segments.files), sources, since.position)))
}

impl Drop for DiskEngine {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            log::error!("closing the storage engine: {error}");
        }
    }
}

/// Converts cache sizes from the pages' share to the whole cache.
fn scaled_to_cache(span: Span) -> Span {
    let scaled = |bytes: u64| bytes / (CHANGES_SHARE - 1) * CHANGES_SHARE;
    let points = span.curve.points().iter().map(|(bytes, rate)| (scaled(*bytes), *rate));
    Span { curve: Curve::new(points.collect()), ..span }
}

impl Engine for DiskEngine {
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        self.core.latest()
    }

    fn commit(&self, batch: Batch) -> Result<Position> {
        self.core.commit(batch)
    }

    fn room(&self) -> Result<Room> {
        #[cfg(any(test, debug_assertions, feature = "testing"))]
        if self.core.needs_checkpoint() {
            // The next line reports a failure.
            let _ = self.step_checkpoint();
        }
        self.core.room()
    }

    fn latest_time(&self) -> u64 {
        self.core.latest_time()
    }

    fn backup(&self, since: Option<Since>, covers: u64) -> Result<Backup> {
        let state = self.core.latest();
        // A crash must not lose anything in a backup. Later commits would otherwise continue from
        // another state.
        self.wait_journaled(Position(state.position))?;
        let segments = &self.core.journal.segments;
        let archive = self.archive.lock().clone();
        let archive = archive.as_ref().map(|archive| archive.directory());
        backup_of_state(state, (segments, self.complete_after), archive, since, covers)
    }

    fn name(&self) -> &'static str {
        "disk"
    }

    /// Sizes are sizes of the whole cache in the options; pages have a share of it.
    fn working_set(&self) -> Option<WorkingSet> {
        let mut by_base = self.core.latest().by_base();
        let scaled =
            |reads: Reads| Reads { hour: scaled_to_cache(reads.hour), start: scaled_to_cache(reads.start) };
        let mut trees = Vec::new();
        let report = self.reuse.report(&mut |table, reads| {
            trees.push((by_base.remove(&table).unwrap_or_default(), scaled(reads)));
        });
        let (all, others) = (scaled(report.all), scaled(report.others));
        Some(WorkingSet { cache_bytes: self.cache_bytes, trees, all, others, ..report })
    }

    fn statistics(&self) -> Statistics {
        let reads = self.reuse.reads();
        let state = self.core.latest();
        let latency = &self.core.journal.latency;
        let cache = self.core.cache();
        Statistics {
            bytes: state.bytes,
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            cache_evictions: cache.evictions,
            cache_bytes: cache.bytes,
            entry_reads: reads.0,
            entry_misses: reads.1,
            syncs: latency.count(),
            commits: self.core.commits.load(Ordering::Relaxed),
            sync_micros_p50: latency.percentile(50),
            sync_micros_p95: latency.percentile(95),
            sync_micros_p99: latency.percentile(99),
            sync_micros: latency.sum(),
            sync_counts: latency.by_doublings(),
            checkpoints: self.core.checkpoints.load(Ordering::Relaxed),
            changed_bytes: state.changed_bytes,
            written_bytes: self.core.written_bytes.load(Ordering::Relaxed),
            journal_bytes: self.core.journal.bytes(),
            file_bytes: self.core.file_bytes(),
            archive: self.archive.lock().as_ref().map(|archive| archive.counts()),
        }
    }
}

impl Journaling for DiskEngine {
    fn durable(&self) -> Position {
        Position(self.core.journal.durable())
    }

    fn when_durable(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.core.journal.when_durable(wake);
    }

    fn sync_soon(&self) {
        self.core.sync_soon();
    }

    fn wait_journaled(&self, position: Position) -> Result<()> {
        let result = self.core.journal.wait(position.0);
        if result.is_err() {
            self.core.checkpoint_queue.request();
        }
        result
    }

    fn await_journaled(&self, position: Position, waker: &Waker) -> JournalWait {
        self.core.journal.await_sync(position.0, waker)
    }

    fn checkpoint(&self) -> Result<()> {
        #[cfg(any(test, debug_assertions, feature = "testing"))]
        if self.stepped.lock().is_some() {
            self.core.checkpoint_queue.request();
            return self.step_checkpoint();
        }
        self.core.checkpoint_queue.request_and_wait()
    }

    fn checkpoint_after(&self, longest: Option<Duration>) {
        self.core.checkpoint_queue.set_interval(longest);
    }

    fn sync_every(&self, interval: Duration) {
        self.core.set_flush_interval(interval);
    }

    fn has_journal(&self) -> bool {
        true
    }

    fn durability(&self) -> Durability {
        self.durability
    }
}
