//! What the engine's threads share: the state, the journal, the base, and the order of commits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::base::{Base, CacheCounts, View};
use super::checkpoint::Plan;
use super::control::Control;
use super::files::File;
use super::journal::{Appender, Journal};
use super::keeper::Desk;
use super::record::Encoded;
use super::state::{Freeze, State, Table};
use crate::{Batch, Error, Position, Result};

/// Batches with more operations than this are applied to a copy of the state, so that readers don't wait.
const LARGE: usize = 512;
/// How long a writer waits for a checkpoint before it looks again, and asks whether to go on.
const LOOK: Duration = Duration::from_millis(10);
/// The longest that a writer is held up while a checkpoint runs and there is still room.
const SLOWEST: Duration = Duration::from_millis(10);

/// Why a commit is refused while the disk isn't full.
const TOO_FAST: &str = "changes are made faster than checkpoints can write them";

/// The engine, as its callers and its own threads see it.
pub(super) struct Core {
    /// Held throughout a commit.
    writer: Mutex<Writer>,
    /// The latest state. Locked only for the time of a reference count or a small batch.
    state: Mutex<Arc<State>>,
    pub(super) journal: Journal,
    /// Locked while a checkpoint writes; readers have their views.
    pub(super) base: Mutex<Base>,
    pub(super) control: Arc<Control>,
    pub(super) desk: Desk,
    bounds: Bounds,
    /// A copy of the state's own, to be read without the lock.
    changed_bytes: AtomicU64,
    pub(super) commits: AtomicU64,
    pub(super) checkpoints: AtomicU64,
    file_bytes: AtomicU64,
    /// The cache's counters as they were seen last.
    cache: Mutex<CacheCounts>,
    flushing: Mutex<Flushing>,
    /// Something about `flushing` has changed.
    flush: Condvar,
    /// A copy of `flushing.asked`, so that asking again costs nothing.
    asked: AtomicBool,
}

/// What the thread that syncs is told.
#[derive(Default)]
struct Flushing {
    /// Somebody wants a sync before the interval ends.
    asked: bool,
    stop: bool,
    /// How often there is one unasked.
    interval: Option<Duration>,
}

struct Writer {
    appender: Appender,
    closed: bool,
}

/// What sets off a checkpoint. At twice as much writers wait for it, if they ask for room.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Changes in memory.
    pub(super) changed_bytes: u64,
    /// Journal since the latest checkpoint.
    pub(super) journal_bytes: u64,
    /// Changes in memory beyond which commits are refused, whether their writers have asked or not: far
    /// beyond twice `changed_bytes`, since many may have asked at a time, and then each commits.
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
        Core {
            writer: Mutex::new(Writer { appender, closed: false }),
            changed_bytes: AtomicU64::new(state.changed_bytes),
            state: Mutex::new(Arc::new(state)),
            journal,
            file_bytes: AtomicU64::new(base.file_bytes()),
            base: Mutex::new(base),
            control,
            desk: Desk::default(),
            bounds,
            commits: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            cache: Mutex::default(),
            flushing: Mutex::default(),
            flush: Condvar::new(),
            asked: AtomicBool::new(false),
        }
    }

    pub(super) fn latest(&self) -> Arc<State> {
        Arc::clone(&self.state.lock())
    }

    /// Checks, journals and applies a batch. Waits for other commits only.
    ///
    /// The frame is written with the lock held, which takes 0.4 µs of a commit's 1.8 µs: written later, it could
    /// fail when others have built on a state that the journal will never have.
    pub(super) fn commit(&self, batch: Batch) -> Result<Position> {
        let mut encoded = Encoded::new(&batch)?;
        if self.changed_bytes.load(Ordering::Relaxed) > self.bounds.refused_bytes {
            self.desk.order();
            return Err(Error::Full(self.control.full().unwrap_or_else(|| TOO_FAST.to_owned())));
        }
        let mut writer = self.writer.lock();
        if writer.closed {
            return Err(Error::Closed);
        }
        let before = self.latest();
        let below = before.prepare(&batch)?;
        let large = (batch.len() > LARGE).then(|| State::clone(&before));
        // From here on nothing but this commit holds the state, unless a reader does.
        drop(before);
        let appended = self.journal.append(&mut writer.appender, &mut encoded);
        let position = appended.inspect_err(|_| self.mend_journal())?;
        let discarded = match large {
            Some(mut next) => {
                let discarded = next.apply(batch, &below, position);
                self.publish(Arc::new(next));
                discarded
            }
            None => self.apply(batch, &below, position),
        };
        drop(writer);
        drop(discarded);
        if self.fullness() >= 1000 {
            self.desk.order();
        }
        self.commits.fetch_add(1, Ordering::Relaxed);
        Ok(Position(position))
    }

    fn apply(&self, batch: Batch, below: &[Option<usize>], position: u64) -> Vec<Table> {
        let mut state = self.state.lock();
        let state = Arc::make_mut(&mut state);
        let discarded = state.apply(batch, below, position);
        self.changed_bytes.store(state.changed_bytes, Ordering::Relaxed);
        discarded
    }

    fn publish(&self, next: Arc<State>) {
        self.changed_bytes.store(next.changed_bytes, Ordering::Relaxed);
        let before = std::mem::replace(&mut *self.state.lock(), next);
        drop(before);
    }

    /// How full the memory for changes and the journal are, in thousandths of what sets off a checkpoint.
    fn fullness(&self) -> u64 {
        let changed = self.changed_bytes.load(Ordering::Relaxed) * 1000 / self.bounds.changed_bytes;
        changed.max(self.journal.bytes() * 1000 / self.bounds.journal_bytes)
    }

    /// Orders what a journal that takes no commits needs to take them again.
    fn mend_journal(&self) {
        if self.journal.is_broken() {
            self.desk.order();
        }
    }

    /// Holds a writer up while checkpoints lag: a little at first, entirely at twice the bound. Fails only
    /// if a checkpoint cannot be made.
    pub(super) fn wait_for_room(&self, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        loop {
            let fullness = self.fullness();
            if fullness < 1000 {
                return Ok(());
            }
            self.desk.order();
            if !go_on() {
                return Ok(());
            }
            if fullness < 2000 {
                thread::sleep(SLOWEST * (fullness - 1000) as u32 / 1000);
                return Ok(());
            }
            if let Some(message) = self.control.full() {
                return Err(Error::Full(message));
            }
            if let Some(error) = self.desk.wait_a_while(LOOK) {
                return Err(error);
            }
            if self.writer.lock().closed {
                return Err(Error::Closed);
            }
        }
    }

    /// About how much memory changes take, those being written not counted.
    #[cfg(test)]
    pub(super) fn changed(&self) -> u64 {
        self.changed_bytes.load(Ordering::Relaxed)
    }

    /// The greatest time of any commit.
    pub(super) fn latest_time(&self) -> u64 {
        self.state.lock().time
    }

    /// Whether a checkpoint would write anything.
    pub(super) fn has_changes(&self) -> bool {
        !self.latest().is_clean() || self.journal.bytes() > super::journal::SEGMENT_HEADER_BYTES as u64
    }

    /// The number of the segment being written.
    pub(super) fn segment(&self) -> u64 {
        self.writer.lock().appender.number()
    }

    /// Freezes the state, and lets the journal go on in a new segment.
    pub(super) fn freeze(&self, number: u64, file: Arc<dyn File>) -> Freeze {
        let mut writer = self.writer.lock();
        self.journal.switch(&mut writer.appender, number, file);
        let mut state = self.state.lock();
        self.changed_bytes.store(0, Ordering::Relaxed);
        Arc::make_mut(&mut state).freeze()
    }

    /// Lets the base take the place of what a checkpoint has written.
    pub(super) fn thaw(&self, plan: &Plan, view: Arc<View>) {
        // A large batch is applied to a copy of the state, which must not take the place of this one.
        let writer = self.writer.lock();
        let mut state = self.state.lock();
        let before = Arc::clone(&state);
        Arc::make_mut(&mut state).thaw(&plan.tables, view);
        drop(state);
        drop(writer);
        // Perhaps the last reference to the view and the changes of before: freed outside of the lock.
        drop(before);
    }

    /// Lets readers read the base through another view of the same.
    pub(super) fn look_through(&self, view: Arc<View>) {
        let writer = self.writer.lock();
        let mut state = self.state.lock();
        let before = Arc::clone(&state);
        Arc::make_mut(&mut state).view = view;
        drop(state);
        drop(writer);
        drop(before);
    }

    pub(super) fn note_checkpoint(&self) {
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        self.note_length();
    }

    /// Notes how long the base is now.
    pub(super) fn note_length(&self) {
        self.file_bytes.store(self.base.lock().file_bytes(), Ordering::Relaxed);
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes.load(Ordering::Relaxed)
    }

    /// The cache's counters; while a checkpoint has the base, those of before it.
    pub(super) fn cache(&self) -> CacheCounts {
        let now = self.base.try_lock().map(|base| base.cache());
        let mut seen = self.cache.lock();
        *seen = now.unwrap_or(*seen);
        *seen
    }

    /// Refuses commits from now on.
    pub(super) fn refuse_commits(&self) -> bool {
        !std::mem::replace(&mut self.writer.lock().closed, true)
    }

    /// Syncs the journal when asked to, and every so often if there is an interval, until told to stop.
    pub(super) fn flush_every(&self, interval: Option<Duration>) {
        let mut flushing = self.flushing.lock();
        flushing.interval = interval;
        while !flushing.stop {
            if !flushing.asked {
                match flushing.interval {
                    Some(interval) => _ = self.flush.wait_for(&mut flushing, interval),
                    None => self.flush.wait(&mut flushing),
                }
            }
            // Before the sync: whoever asks while it runs may have committed too late for it.
            flushing.asked = false;
            self.asked.store(false, Ordering::Release);
            drop(flushing);
            if self.journal.has_unsynced() && !self.journal.is_broken() {
                if let Err(error) = self.journal.sync() {
                    log::error!("no commits until the next checkpoint: {error}");
                    self.desk.order();
                }
            } else {
                self.journal.needs_no_sync();
            }
            flushing = self.flushing.lock();
        }
    }

    /// Says how often the journal is synced unasked, where it is at all.
    pub(super) fn set_flush_interval(&self, interval: Duration) {
        let mut flushing = self.flushing.lock();
        flushing.interval = flushing.interval.map(|_| interval);
        drop(flushing);
        self.flush.notify_all();
    }

    /// Asks for a sync without waiting for it.
    pub(super) fn sync_soon(&self) {
        if self.journal.has_unsynced() && !self.asked.swap(true, Ordering::AcqRel) {
            self.flushing.lock().asked = true;
            self.flush.notify_all();
        }
    }

    pub(super) fn stop_flushing(&self) {
        self.flushing.lock().stop = true;
        self.flush.notify_all();
    }
}
