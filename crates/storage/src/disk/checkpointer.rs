//! The checkpointer: the thread that makes checkpoints and recovers from failures.
//!
//! It freezes the state if changes or journal have grown large, if much of the base was dropped, or if the latest
//! checkpoint is old. It writes the changes to the base, then removes obsolete segments and frees space. A failed
//! checkpoint is retried with the same frozen state. Meanwhile readers and writers continue, writers ever more slowly.

use crate::time;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::archive::Archive;
use super::checkpoint::Plan;
use super::core::Core;
use super::reader::Reader;
use super::state::Freeze;
use crate::{Error, Result, mark, mutant};

/// Pause after a failure before the next attempt.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Interval at which the reasons for a checkpoint are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Default maximum time between checkpoints, as in mongod.
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// Minimum of dropped bytes for a checkpoint, which must also be an eighth of the base.
const GARBAGE_BYTES_MIN: u64 = 4 << 20;
/// Minimum length of a base that is compacted.
const REWRITE_BYTES_MIN: u64 = 8 << 20;

/// Requests to the checkpointer and its results.
pub(super) struct CheckpointQueue {
    state: Mutex<QueueState>,
    /// Maximum time between checkpoints; `None` disables this reason.
    interval: Mutex<Option<Duration>>,
    /// Notified after a request.
    notified: Condvar,
    /// Notified after the end of a checkpoint, successful or not.
    done: Condvar,
}

/// Requests and results, under the lock.
#[derive(Default)]
struct QueueState {
    /// Number of the last request.
    requested: u64,
    /// Number of the last request whose checkpoint has started.
    started: u64,
    /// Number of the last completed request.
    completed: u64,
    /// The engine is closing.
    closing: bool,
    /// Error of the latest attempt.
    error: Option<Error>,
}

impl QueueState {
    /// Asserts the request of the numbers.
    fn assert_valid(&self) {
        debug_assert!(self.completed <= self.started, "{} ended, {} began", self.completed, self.started);
        debug_assert!(self.started <= self.requested, "{} began, {} ordered", self.started, self.requested);
    }
}

impl Default for CheckpointQueue {
    fn default() -> Self {
        CheckpointQueue {
            state: Mutex::default(),
            interval: Mutex::new(Some(INTERVAL_MAX)),
            notified: Condvar::new(),
            done: Condvar::new(),
        }
    }
}

impl CheckpointQueue {
    /// Sets the maximum time between checkpoints. The thread checks it twice a second.
    pub(super) fn set_interval(&self, interval: Option<Duration>) {
        *self.interval.lock() = interval;
    }

    /// Returns true if the latest checkpoint is older than the maximum.
    fn is_overdue(&self, ago: Duration) -> bool {
        self.interval.lock().is_some_and(|interval| ago >= interval)
    }

    /// Requests a checkpoint, unless one is already requested.
    pub(super) fn request(&self) {
        let mut queue = self.state.lock();
        queue.assert_valid();
        if queue.requested == queue.started {
            queue.requested += 1;
            self.notified.notify_all();
        }
    }

    /// Requests a checkpoint of everything committed so far, and waits until it is complete or has failed.
    pub(super) fn request_and_wait(&self) -> Result<()> {
        let mut queue = self.state.lock();
        queue.requested = queue.requested.max(queue.started + 1);
        let number = queue.requested;
        debug_assert!(number > queue.completed, "the order is complete before it began");
        self.notified.notify_all();
        queue.error = None;
        loop {
            if queue.completed >= number {
                return Ok(());
            }
            if let Some(error) = &queue.error {
                return Err(error.clone());
            }
            if queue.closing {
                return Err(Error::Closed);
            }
            self.done.wait(&mut queue);
        }
    }

    /// Returns the error of the latest attempt if it failed.
    pub(super) fn error(&self) -> Option<Error> {
        self.state.lock().error.clone()
    }

    /// Returns true if the engine is closing.
    fn is_closing(&self) -> bool {
        self.state.lock().closing
    }

    /// Ends the thread after a last checkpoint.
    pub(super) fn close(&self) {
        self.state.lock().closing = true;
        self.notified.notify_all();
        self.done.notify_all();
    }
}

/// State of the thread.
pub(super) struct Checkpointer {
    core: Arc<Core>,
    /// Number of the next new table.
    next_table: u64,
    /// An incomplete checkpoint.
    started: Option<Started>,
    /// Time of the last attempt.
    attempted: Instant,
    /// Number of the last completed request.
    completed: u64,
    /// Length of the base after the last compaction.
    compacted: u64,
    /// Archive of obsolete segments.
    archive: Option<Arc<Archive>>,
}

/// A checkpoint whose state is frozen.
struct Started {
    freeze: Freeze,
    plan: Plan,
    /// First segment that is needed after the checkpoint.
    segment: u64,
    /// Number of the request that began the checkpoint.
    request: u64,
}

impl Checkpointer {
    pub(super) fn new(core: Arc<Core>, next_table: u64, archive: Option<Arc<Archive>>) -> Self {
        let attempted = time::now();
        Checkpointer { core, next_table, started: None, attempted, completed: 0, compacted: 0, archive }
    }

    /// Runs until the engine closes, then makes a last checkpoint if necessary.
    pub(super) fn run(mut self) {
        self.compact();
        while let Some(request) = self.next_request() {
            if self.step(request).is_err() {
                let mut queue = self.core.checkpoint_queue.state.lock();
                if !queue.closing {
                    self.core.checkpoint_queue.notified.wait_for(&mut queue, RETRY_PAUSE);
                }
            }
        }
        self.finish_last();
    }

    /// Makes a checkpoint if one is requested or due, for an engine without threads.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(super) fn step_if_due(&mut self) -> Result<()> {
        let mut queue = self.core.checkpoint_queue.state.lock();
        if queue.requested <= queue.started && !self.is_due() {
            return Ok(());
        }
        queue.started = queue.requested;
        let request = queue.started;
        drop(queue);
        self.step(request)
    }

    /// Makes a requested checkpoint, and reports its result to the waiters.
    fn step(&mut self, request: u64) -> Result<()> {
        let result = self.attempt(request);
        if result.is_ok() {
            self.compact();
        }
        let mut queue = self.core.checkpoint_queue.state.lock();
        // After the cleanup, since a caller that waited may copy the files now.
        queue.completed = queue.completed.max(self.completed);
        queue.assert_valid();
        if let Err(error) = &result {
            if queue.error.is_none() {
                log::warn!("a checkpoint failed and is retried: {error}");
            }
            queue.requested = queue.requested.max(queue.started + 1);
        }
        queue.error = result.clone().err();
        self.core.checkpoint_queue.done.notify_all();
        drop(queue);
        self.core.control.progress.advance();
        result
    }

    /// Makes the last checkpoint if necessary.
    pub(super) fn finish_last(&mut self) {
        if (self.started.is_some() || self.core.has_changes())
            && let Err(error) = self.attempt(u64::MAX)
        {
            mark!("the last checkpoint fails");
            log::warn!("the checkpoint at shutdown failed, the journal has all commits: {error}");
        }
    }

    /// Returns the next request; `None` when closing.
    fn next_request(&self) -> Option<u64> {
        let mut queue = self.core.checkpoint_queue.state.lock();
        loop {
            if queue.closing {
                return None;
            }
            if queue.requested > queue.started || self.is_due() {
                queue.started = queue.requested;
                return Some(queue.started);
            }
            self.core.checkpoint_queue.notified.wait_for(&mut queue, CHECK_INTERVAL);
        }
    }

    /// Compacts the base if its file is far longer than its contents. After an attempt, waits until more has been
    /// freed.
    fn compact(&mut self) {
        let latest = self.core.latest();
        let file = self.core.file_bytes();
        // Data that a checkpoint is about to free should not be copied.
        let later = self.started.is_some() || frees_enough(latest.garbage_bytes, file);
        drop(latest);
        if later || file < REWRITE_BYTES_MIN || file <= self.compacted {
            return;
        }
        mark!("the base is compacted");
        debug_assert!(self.started.is_none(), "a compaction during a checkpoint");
        let core = Arc::clone(&self.core);
        let mut base = core.base.lock();
        if file < REWRITE_BYTES_MIN + 3 * base.live_bytes() {
            return;
        }
        let compacted = base.rewrite(&|| !core.checkpoint_queue.is_closing());
        if compacted.is_ok() {
            core.replace_view(base.view());
        }
        drop(base);
        if let Err(error) = compacted
            && error != Error::Closed
        {
            log::warn!("the base could not be shortened: {error}");
        }
        self.core.record_length();
        self.compacted = self.core.file_bytes();
    }

    /// Returns true if a checkpoint is due without a request.
    fn is_due(&self) -> bool {
        let core = &self.core;
        core.journal.is_broken()
            || frees_enough(core.latest().garbage_bytes, core.file_bytes())
            || core.checkpoint_queue.is_overdue(time::since(self.attempted)) && core.has_changes()
    }

    /// Resumes the checkpoint of a failed attempt, then begins another if the request is later.
    fn attempt(&mut self, request: u64) -> Result<()> {
        self.attempted = time::now();
        if let Some(started) = self.started.take() {
            mark!("a failed checkpoint is resumed");
            let late = started.request < request;
            self.complete(started)?;
            if !late {
                return Ok(());
            }
        }
        let started = self.begin(request)?;
        self.complete(started)
    }

    /// Freezes the state and switches the journal to a new segment.
    fn begin(&mut self, request: u64) -> Result<Started> {
        debug_assert!(self.started.is_none(), "an incomplete checkpoint is forgotten");
        let segments = &self.core.journal.segments;
        let segment = segments.next(self.core.segment())?;
        debug_assert!(segment > self.core.segment(), "segment {segment} exists");
        // An incomplete segment before a later one would look damaged to recovery.
        let file = segments.create(segment).inspect_err(|_| {
            mark!("a checkpoint gets no segment");
            if !mutant!("incomplete segments stay") {
                _ = segments.remove(segment);
            }
        })?;
        let freeze = self.core.freeze(segment, file);
        let plan = Plan::new(&freeze, self.next_table);
        debug_assert!(plan.next_table >= self.next_table, "a table's number is given again");
        self.next_table = plan.next_table;
        Ok(Started { freeze, plan, segment, request })
    }

    /// Writes the frozen changes to the base, then cleans up. A failure keeps the checkpoint for a retry.
    fn complete(&mut self, started: Started) -> Result<()> {
        if started.freeze.garbage_bytes > 0 {
            self.compacted = 0;
        }
        // Recovery needs no commits that are in the base; the archive still does.
        if self.archive.is_some()
            && let Err(error) = self.core.journal.sync()
        {
            log::warn!("the journal for the archive may have lost commits: {error}");
        }
        let view = Arc::clone(&self.core.latest().view);
        let written = {
            let mut base = self.core.base.lock();
            debug_assert!(
                base.view().position() <= started.plan.position(),
                "the base is ahead of its checkpoint"
            );
            base.sync_name().and_then(|()| started.plan.write(&mut base, &view)).map(|()| base.view())
        };
        drop(view);
        match written {
            Ok(view) => {
                self.core.thaw(&started.plan, view);
                self.core.written_bytes.fetch_add(started.freeze.changed_bytes, Ordering::Relaxed);
                self.finish(&started)
            }
            Err(error) => {
                mark!("a checkpoint cannot write the base");
                self.started = Some(started);
                Err(error)
            }
        }
    }

    /// Removes what a complete checkpoint made obsolete.
    fn finish(&mut self, started: &Started) -> Result<()> {
        debug_assert!(started.segment <= self.core.segment(), "the journal has not reached the checkpoint");
        self.core.journal.checkpointed(started.plan.position());
        debug_assert!(
            self.core.journal.durable() >= started.plan.position(),
            "commits of the base are not durable"
        );
        let segments = &self.core.journal.segments;
        let mut obsolete = Vec::new();
        for number in segments.list()?.into_iter().filter(|number| *number < started.segment) {
            if Reader::open_segment(segments, number)?.is_some() {
                obsolete.push(number);
            }
        }
        // Segments that cannot be archived stay, for a retry after the next checkpoint.
        let position = started.plan.position();
        if self.archive.as_ref().is_none_or(|archive| archive.take(segments, &obsolete, position)) {
            obsolete.into_iter().try_for_each(|number| segments.remove(number))?;
        }
        self.core.record_checkpoint();
        if started.request != u64::MAX {
            self.completed = self.completed.max(started.request);
        }
        Ok(())
    }
}

/// Returns true if freeing so many bytes of a base of this length justifies a checkpoint.
fn frees_enough(garbage: u64, file_bytes: u64) -> bool {
    garbage >= GARBAGE_BYTES_MIN && garbage >= file_bytes / 8
}
