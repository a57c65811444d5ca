//! State shared by the engine's threads: trees, journal, base, and the order of commits.
//!
//! [`Core::commit`] is the path of a write: append to the journal, apply to the next state, publish it. Space limits of
//! writers, the freeze of changes for a checkpoint and the timed syncs are methods here too. State of one thread alone
//! belongs to its module: `checkpointer.rs`, `journal.rs`.

use crate::mark;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::base::{Base, CacheCounts, View};
use super::checkpoint::Plan;
use super::checkpointer::CheckpointQueue;
use super::files::{Control, File};
use super::journal::{Appender, Journal};
use super::state::{Freeze, State, Table};
use crate::record::Encoded;
use crate::{Batch, Error, Position, Result, Room};

/// Number of operations above which a batch is applied to a copy of the state, so that readers do not wait.
const LARGE_BATCH: usize = 512;
/// Maximum delay of a writer while a checkpoint runs and space remains.
const DELAY_MAX: Duration = Duration::from_millis(10);

/// Error text of a refused commit if the disk is not full.
const CHECKPOINTS_LAG: &str = "writes are faster than checkpoints";

/// The engine as its callers and its own threads see it.
pub(super) struct Core {
    /// Held during a commit.
    writer: Mutex<Writer>,
    /// The latest state. Locked only for a reference count or a small batch.
    state: Mutex<Arc<State>>,
    pub(super) journal: Journal,
    /// Locked while a checkpoint writes. Readers have their views.
    pub(super) base: Mutex<Base>,
    pub(super) control: Arc<Control>,
    pub(super) checkpoint_queue: CheckpointQueue,
    /// Limits that start a checkpoint.
    bounds: Bounds,
    /// Copy of a field of the state, readable without the lock.
    changed_bytes: AtomicU64,
    /// Number of commits since the start.
    pub(super) commits: AtomicU64,
    /// Number of checkpoints since the start.
    pub(super) checkpoints: AtomicU64,
    /// Approximate memory of the changes that checkpoints have written since the start.
    pub(super) written_bytes: AtomicU64,
    /// Length of the base's file at the last checkpoint.
    file_bytes: AtomicU64,
    /// The last known counters of the cache.
    cache: Mutex<CacheCounts>,
    flushing: Mutex<Flushing>,
    /// Notified after a change of `flushing`.
    flush: Condvar,
    /// Copy of `flushing.requested`, which makes a repeated request cheap.
    requested: AtomicBool,
}

/// Requests to the syncing thread.
#[derive(Default)]
struct Flushing {
    /// A sync was requested before the end of the interval.
    requested: bool,
    /// The engine is closing.
    stop: bool,
    /// Interval of periodic syncs.
    interval: Option<Duration>,
}

/// State that only the committing thread uses.
struct Writer {
    appender: Appender,
    /// Commits are refused.
    closed: bool,
}

/// Limits that start a checkpoint. At twice the limits, writers that ask for space wait.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Bytes of changes in memory.
    pub(super) changed_bytes: u64,
    /// Bytes of journal since the latest checkpoint.
    pub(super) journal_bytes: u64,
    /// Bytes of changes at which every commit is refused. Far above twice `changed_bytes`, since many writers may be
    /// admitted at one time.
    pub(super) refused_bytes: u64,
}

impl Core {
    pub(super) fn new(
        state: State,
        journal: Journal,
        appender: Appender,
        base: Base,
        control: Arc<Control>,
        bounds: Bounds,
    ) -> Self {
        debug_assert!(bounds.changed_bytes > 0 && bounds.journal_bytes > 0, "divisors");
        debug_assert!(
            bounds.refused_bytes >= bounds.changed_bytes,
            "commits fail before a checkpoint begins"
        );
        debug_assert_eq!(appender.position(), state.position, "the journal continues elsewhere");
        Core {
            writer: Mutex::new(Writer { appender, closed: false }),
            changed_bytes: AtomicU64::new(state.changed_bytes),
            state: Mutex::new(Arc::new(state)),
            journal,
            file_bytes: AtomicU64::new(base.file_bytes()),
            base: Mutex::new(base),
            control,
            checkpoint_queue: CheckpointQueue::default(),
            bounds,
            commits: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            cache: Mutex::default(),
            flushing: Mutex::default(),
            flush: Condvar::new(),
            requested: AtomicBool::new(false),
        }
    }

    /// Returns the latest state, in constant time.
    pub(super) fn latest(&self) -> Arc<State> {
        Arc::clone(&self.state.lock())
    }

    /// Checks, journals and applies a batch. Waits only for other commits.
    ///
    /// The frame is written under the lock, which takes 0.4 µs of a commit's 1.8 µs. A later write could fail after
    /// other commits have built on a state that the journal never gets.
    pub(super) fn commit(&self, batch: Batch) -> Result<Position> {
        let mut encoded = Encoded::new(&batch)?;
        if self.changed_bytes.load(Ordering::Relaxed) > self.bounds.refused_bytes {
            self.checkpoint_queue.request();
            return Err(Error::Full(self.control.full().unwrap_or_else(|| CHECKPOINTS_LAG.to_owned())));
        }
        let mut writer = self.writer.lock();
        if writer.closed {
            return Err(Error::Closed);
        }
        let before = self.latest();
        let below = before.prepare(&batch)?;
        let large = (batch.len() > LARGE_BATCH).then(|| State::clone(&before));
        // From here on only this commit and readers hold the state.
        drop(before);
        let appended = self.journal.append(&mut writer.appender, &mut encoded);
        let position = appended.inspect_err(|_| self.request_recovery_checkpoint())?;
        let discarded = match large {
            Some(mut next) => {
                mark!("a large batch is applied to a copy");
                let discarded = next.apply(batch, &below, position);
                self.publish(Arc::new(next));
                discarded
            }
            None => self.apply(batch, &below, position),
        };
        drop(writer);
        drop(discarded);
        if self.fullness() >= 1000 {
            self.checkpoint_queue.request();
        }
        self.commits.fetch_add(1, Ordering::Relaxed);
        Ok(Position(position))
    }

    /// Applies a small batch in place. Returns the discarded trees.
    fn apply(&self, batch: Batch, below: &[Option<usize>], position: u64) -> Vec<Table> {
        let mut state = self.state.lock();
        let state = Arc::make_mut(&mut state);
        let discarded = state.apply(batch, below, position);
        self.changed_bytes.store(state.changed_bytes, Ordering::Relaxed);
        discarded
    }

    /// Replaces the state after a large batch was applied to a copy.
    fn publish(&self, next: Arc<State>) {
        debug_assert!(next.position > self.latest().position, "a commit is lost");
        self.changed_bytes.store(next.changed_bytes, Ordering::Relaxed);
        let before = std::mem::replace(&mut *self.state.lock(), next);
        drop(before);
    }

    /// Returns the fill level of change memory and journal, in thousandths of the checkpoint limit.
    fn fullness(&self) -> u64 {
        let changed = self.changed_bytes.load(Ordering::Relaxed) * 1000 / self.bounds.changed_bytes;
        changed.max(self.journal.bytes() * 1000 / self.bounds.journal_bytes)
    }

    /// Returns true if a checkpoint must free space.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(super) fn needs_checkpoint(&self) -> bool {
        self.fullness() >= 1000
    }

    /// Requests a checkpoint if the journal is broken, since only a checkpoint repairs it.
    fn request_recovery_checkpoint(&self) {
        if self.journal.is_broken() {
            self.checkpoint_queue.request();
        }
    }

    /// Delays a writer while checkpoints lag: a little at first, completely at twice the limit. Fails only if a
    /// checkpoint cannot be made.
    pub(super) fn room(&self) -> Result<Room> {
        // Read before the conditions, so that no event is missed.
        let seen = self.control.progress.read();
        let fullness = self.fullness();
        if fullness < 1000 {
            return Ok(Room::Free);
        }
        mark!("a writer meets the checkpoint limit");
        self.checkpoint_queue.request();
        if fullness < 2000 {
            return Ok(Room::After(DELAY_MAX * (fullness - 1000) as u32 / 1000));
        }
        if let Some(message) = self.control.full() {
            return Err(Error::Full(message));
        }
        if let Some(error) = self.checkpoint_queue.error() {
            return Err(error);
        }
        match self.writer.lock().closed {
            true => Err(Error::Closed),
            false => Ok(Room::Checkpoint(self.control.progress.listen(seen))),
        }
    }

    /// Returns the approximate memory of changes, without changes being written.
    #[cfg(test)]
    pub(super) fn changed(&self) -> u64 {
        self.changed_bytes.load(Ordering::Relaxed)
    }

    /// Returns the greatest time of any commit.
    pub(super) fn latest_time(&self) -> u64 {
        self.state.lock().time
    }

    /// Returns true if a checkpoint would write anything.
    pub(super) fn has_changes(&self) -> bool {
        !self.latest().is_clean() || self.journal.bytes() > super::journal::SEGMENT_HEADER_BYTES as u64
    }

    /// Returns the number of the current segment.
    pub(super) fn segment(&self) -> u64 {
        self.writer.lock().appender.number()
    }

    /// Freezes the state, and switches the journal to a new segment.
    pub(super) fn freeze(&self, number: u64, file: Arc<dyn File>) -> Freeze {
        let mut writer = self.writer.lock();
        self.journal.switch(&mut writer.appender, number, file);
        let mut state = self.state.lock();
        debug_assert_eq!(state.position, writer.appender.position(), "the older segments lack a commit");
        self.changed_bytes.store(0, Ordering::Relaxed);
        let freeze = Arc::make_mut(&mut state).freeze();
        drop(state);
        drop(writer);
        self.control.progress.advance();
        freeze
    }

    /// Replaces the changes that a checkpoint has written by the base.
    pub(super) fn thaw(&self, plan: &Plan, view: Arc<View>) {
        // The writer lock: a large batch is applied to a copy of the state, which must not overwrite this change.
        let writer = self.writer.lock();
        let mut state = self.state.lock();
        let before = Arc::clone(&state);
        debug_assert_eq!(view.position(), plan.position(), "the base is of another checkpoint");
        Arc::make_mut(&mut state).thaw(&plan.tables, view);
        drop(state);
        drop(writer);
        // Possibly the last reference to the old view and changes: freed outside of the lock.
        drop(before);
    }

    /// Replaces the view of the base by another view of equal contents.
    pub(super) fn replace_view(&self, view: Arc<View>) {
        let writer = self.writer.lock();
        let mut state = self.state.lock();
        let before = Arc::clone(&state);
        debug_assert_eq!(view.position(), state.view.position(), "the view has other contents");
        Arc::make_mut(&mut state).replace_view(view);
        drop(state);
        drop(writer);
        drop(before);
    }

    pub(super) fn record_checkpoint(&self) {
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        self.record_length();
    }

    /// Records the present length of the base.
    pub(super) fn record_length(&self) {
        self.file_bytes.store(self.base.lock().file_bytes(), Ordering::Relaxed);
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes.load(Ordering::Relaxed)
    }

    /// Returns the counters of the cache. During a checkpoint, returns the counters from before it.
    pub(super) fn cache(&self) -> CacheCounts {
        let now = self.base.try_lock().map(|base| base.cache());
        let mut seen = self.cache.lock();
        *seen = now.unwrap_or(*seen);
        *seen
    }

    /// Refuses later commits.
    pub(super) fn refuse_commits(&self) -> bool {
        !std::mem::replace(&mut self.writer.lock().closed, true)
    }

    /// Syncs the journal on request and at intervals, until the engine closes.
    pub(super) fn flush_every(&self, interval: Option<Duration>) {
        let mut flushing = self.flushing.lock();
        flushing.interval = interval;
        while !flushing.stop {
            if !flushing.requested {
                match flushing.interval {
                    Some(interval) => _ = self.flush.wait_for(&mut flushing, interval),
                    None => self.flush.wait(&mut flushing),
                }
            }
            // Reset before the sync: a request during the sync may concern a later commit.
            flushing.requested = false;
            self.requested.store(false, Ordering::Release);
            drop(flushing);
            self.flush();
            flushing = self.flushing.lock();
        }
    }

    /// Syncs the journal if necessary.
    fn flush(&self) {
        if self.journal.has_unsynced() && !self.journal.is_broken() {
            if let Err(error) = self.journal.sync() {
                mark!("a background sync fails");
                log::error!("commits are blocked until the next checkpoint: {error}");
                self.checkpoint_queue.request();
            }
        } else {
            self.journal.needs_no_sync();
        }
    }

    /// Does the syncing thread's work once, for an engine without threads. `periodic` is true at the end of an
    /// interval. Otherwise only a requested sync runs.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(super) fn step_flush(&self, periodic: bool) {
        let requested = std::mem::take(&mut self.flushing.lock().requested);
        self.requested.store(false, Ordering::Release);
        if requested || periodic {
            self.flush();
        }
    }

    /// Sets the interval of periodic syncs, if they are enabled.
    pub(super) fn set_flush_interval(&self, interval: Duration) {
        let mut flushing = self.flushing.lock();
        flushing.interval = flushing.interval.map(|_| interval);
        drop(flushing);
        self.flush.notify_all();
    }

    /// Requests a sync without waiting.
    pub(super) fn sync_soon(&self) {
        if self.journal.has_unsynced() && !self.requested.swap(true, Ordering::AcqRel) {
            self.flushing.lock().requested = true;
            self.flush.notify_all();
        }
    }

    pub(super) fn stop_flushing(&self) {
        self.flushing.lock().stop = true;
        self.flush.notify_all();
    }
}
