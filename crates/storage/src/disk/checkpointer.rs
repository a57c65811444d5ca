//! The checkpointer: the thread that makes checkpoints and recovers from failures.
//!
//! It freezes the state if changes or journal have grown large, if much of the base was dropped, or if the latest
//! checkpoint is old. It writes the changes to the base, then removes obsolete segments and frees space. A failed
//! checkpoint is retried with the same frozen state. Meanwhile readers and writers continue, writers ever more slowly.

use crate::time;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::archive::Archive;
use super::checkpoint::Plan;
use super::core::Core;
use super::reader::Reader;
use super::state::Freeze;
use crate::{Error, Result};

/// Pause after a failure before the next attempt.
const RETRY: Duration = Duration::from_millis(100);
/// Interval at which the reasons for a checkpoint are checked.
const LOOK: Duration = Duration::from_millis(500);
/// Default maximum time between checkpoints, as in mongod.
const LONGEST: Duration = Duration::from_secs(60);
/// Minimum of dropped bytes for a checkpoint, which must also be an eighth of the base.
const GARBAGE_BYTES_MIN: u64 = 4 << 20;
/// Minimum length of a base that is compacted.
const REWRITE_BYTES_MIN: u64 = 8 << 20;

/// Orders to the checkpointer and its results.
pub(super) struct CheckpointQueue {
    orders: Mutex<QueueState>,
    /// Maximum time between checkpoints; `None` disables this reason.
    longest: Mutex<Option<Duration>>,
    /// Notified after an order.
    ordered: Condvar,
    /// Notified after the end of a checkpoint, successful or not.
    done: Condvar,
}

/// Orders and results, under the lock.
#[derive(Default)]
struct QueueState {
    /// Numbers of checkpoints ordered and started.
    wanted: u64,
    /// Number of the last order that has started.
    started: u64,
    /// Number of the last completed order.
    completed: u64,
    /// The engine is closing.
    closing: bool,
    /// Error of the latest attempt.
    error: Option<Error>,
}

impl QueueState {
    /// Asserts the order of the numbers.
    fn assert_valid(&self) {
        debug_assert!(self.completed <= self.started, "{} ended, {} began", self.completed, self.started);
        debug_assert!(self.started <= self.wanted, "{} began, {} ordered", self.started, self.wanted);
    }
}

impl Default for CheckpointQueue {
    fn default() -> Self {
        CheckpointQueue {
            orders: Mutex::default(),
            longest: Mutex::new(Some(LONGEST)),
            ordered: Condvar::new(),
            done: Condvar::new(),
        }
    }
}

impl CheckpointQueue {
    /// Sets the maximum time between checkpoints. The thread checks it twice a second.
    pub(super) fn set_longest(&self, longest: Option<Duration>) {
        *self.longest.lock() = longest;
    }

    /// Returns true if the latest checkpoint is older than the maximum.
    fn is_long(&self, ago: Duration) -> bool {
        self.longest.lock().is_some_and(|longest| ago >= longest)
    }

    /// Orders a checkpoint, unless one is already ordered.
    pub(super) fn order(&self) {
        let mut orders = self.orders.lock();
        orders.assert_valid();
        if orders.wanted == orders.started {
            orders.wanted += 1;
            self.ordered.notify_all();
        }
    }

    /// Orders a checkpoint of everything committed so far, and waits until it is complete or has failed.
    pub(super) fn order_and_wait(&self) -> Result<()> {
        let mut orders = self.orders.lock();
        orders.wanted = orders.wanted.max(orders.started + 1);
        let mine = orders.wanted;
        debug_assert!(mine > orders.completed, "the order is complete before it began");
        self.ordered.notify_all();
        orders.error = None;
        loop {
            if orders.completed >= mine {
                return Ok(());
            }
            if let Some(error) = &orders.error {
                return Err(error.clone());
            }
            if orders.closing {
                return Err(Error::Closed);
            }
            self.done.wait(&mut orders);
        }
    }

    /// Waits a limited time for a checkpoint to end. Returns the error of the latest attempt if it failed.
    pub(super) fn wait_a_while(&self, most: Duration) -> Option<Error> {
        let mut orders = self.orders.lock();
        if orders.error.is_none() {
            self.done.wait_for(&mut orders, most);
        }
        orders.error.clone()
    }

    /// Returns true if the engine is closing.
    fn is_closing(&self) -> bool {
        self.orders.lock().closing
    }

    /// Ends the thread after a last checkpoint.
    pub(super) fn close(&self) {
        self.orders.lock().closing = true;
        self.ordered.notify_all();
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
    /// Number of the last completed order.
    completed: u64,
    /// Length of the base after the last compaction.
    rewritten: u64,
    /// Archive of obsolete segments.
    archive: Option<Arc<Archive>>,
}

/// A checkpoint whose state is frozen.
struct Started {
    freeze: Freeze,
    plan: Plan,
    /// First segment that is needed after the checkpoint.
    segment: u64,
    /// Number of the order that began the checkpoint.
    order: u64,
}

impl Checkpointer {
    pub(super) fn new(core: Arc<Core>, next_table: u64, archive: Option<Arc<Archive>>) -> Self {
        let attempted = time::now();
        Checkpointer { core, next_table, started: None, attempted, completed: 0, rewritten: 0, archive }
    }

    /// Runs until the engine closes, then makes a last checkpoint if necessary.
    pub(super) fn run(mut self) {
        self.take_back();
        while let Some(order) = self.next_order() {
            if self.step(order).is_err() {
                let mut orders = self.core.checkpoint_queue.orders.lock();
                if !orders.closing {
                    self.core.checkpoint_queue.ordered.wait_for(&mut orders, RETRY);
                }
            }
        }
        self.finish_last();
    }

    /// Makes a checkpoint if one is ordered or due, for an engine without threads.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(super) fn step_if_due(&mut self) -> Result<()> {
        let mut orders = self.core.checkpoint_queue.orders.lock();
        if orders.wanted <= orders.started && !self.is_due() {
            return Ok(());
        }
        orders.started = orders.wanted;
        let order = orders.started;
        drop(orders);
        self.step(order)
    }

    /// Makes an ordered checkpoint, and reports its result to the waiters.
    fn step(&mut self, order: u64) -> Result<()> {
        let result = self.attempt(order);
        if result.is_ok() {
            self.take_back();
        }
        let mut orders = self.core.checkpoint_queue.orders.lock();
        // After the cleanup, since a caller that waited may copy the files now.
        orders.completed = orders.completed.max(self.completed);
        orders.assert_valid();
        if let Err(error) = &result {
            if orders.error.is_none() {
                log::warn!("a checkpoint failed and is retried: {error}");
            }
            orders.wanted = orders.wanted.max(orders.started + 1);
        }
        orders.error = result.clone().err();
        self.core.checkpoint_queue.done.notify_all();
        result
    }

    /// Makes the last checkpoint if necessary.
    pub(super) fn finish_last(&mut self) {
        if (self.started.is_some() || self.core.has_changes())
            && let Err(error) = self.attempt(u64::MAX)
        {
            log::warn!("the checkpoint at shutdown failed, the journal has all commits: {error}");
        }
    }

    /// Returns the next order; `None` when closing.
    fn next_order(&self) -> Option<u64> {
        let mut orders = self.core.checkpoint_queue.orders.lock();
        loop {
            if orders.closing {
                return None;
            }
            if orders.wanted > orders.started || self.is_due() {
                orders.started = orders.wanted;
                return Some(orders.started);
            }
            self.core.checkpoint_queue.ordered.wait_for(&mut orders, LOOK);
        }
    }

    /// Compacts the base if its file is far longer than its contents. After an attempt, waits until more has been
    /// freed.
    fn take_back(&mut self) {
        let latest = self.core.latest();
        let file = self.core.file_bytes();
        // Data that a checkpoint is about to free should not be copied.
        let later = self.started.is_some() || is_much(latest.garbage_bytes, file);
        drop(latest);
        if later || file < REWRITE_BYTES_MIN || file <= self.rewritten {
            return;
        }
        debug_assert!(self.started.is_none(), "a compaction during a checkpoint");
        let core = Arc::clone(&self.core);
        let mut base = core.base.lock();
        if file < REWRITE_BYTES_MIN + 3 * base.live_bytes() {
            return;
        }
        let rewritten = base.rewrite(&|| !core.checkpoint_queue.is_closing());
        if rewritten.is_ok() {
            core.look_through(base.view());
        }
        drop(base);
        if let Err(error) = rewritten
            && error != Error::Closed
        {
            log::warn!("the base could not be shortened: {error}");
        }
        self.core.note_length();
        self.rewritten = self.core.file_bytes();
    }

    /// Returns true if a checkpoint is due without an order.
    fn is_due(&self) -> bool {
        let core = &self.core;
        core.journal.is_broken()
            || is_much(core.latest().garbage_bytes, core.file_bytes())
            || core.checkpoint_queue.is_long(time::since(self.attempted)) && core.has_changes()
    }

    /// Resumes the checkpoint of a failed attempt, then begins another if the order is later.
    fn attempt(&mut self, order: u64) -> Result<()> {
        self.attempted = time::now();
        if let Some(started) = self.started.take() {
            let late = started.order < order;
            self.complete(started)?;
            if !late {
                return Ok(());
            }
        }
        let started = self.begin(order)?;
        self.complete(started)
    }

    /// Freezes the state and switches the journal to a new segment.
    fn begin(&mut self, order: u64) -> Result<Started> {
        debug_assert!(self.started.is_none(), "an incomplete checkpoint is forgotten");
        let segments = &self.core.journal.segments;
        let segment = segments.next(self.core.segment())?;
        debug_assert!(segment > self.core.segment(), "segment {segment} exists");
        let file = segments.create(segment)?;
        let freeze = self.core.freeze(segment, file);
        let plan = Plan::new(&freeze, self.next_table);
        debug_assert!(plan.next_table >= self.next_table, "a table's number is given again");
        self.next_table = plan.next_table;
        Ok(Started { freeze, plan, segment, order })
    }

    /// Writes the frozen changes to the base, then cleans up. A failure keeps the checkpoint for a retry.
    fn complete(&mut self, started: Started) -> Result<()> {
        if started.freeze.garbage_bytes > 0 {
            self.rewritten = 0;
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
            base.settle().and_then(|()| started.plan.write(&mut base, &view)).map(|()| base.view())
        };
        drop(view);
        match written {
            Ok(view) => {
                self.core.thaw(&started.plan, view);
                self.finish(&started)
            }
            Err(error) => {
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
        let mut superfluous = Vec::new();
        for number in segments.list()?.into_iter().filter(|number| *number < started.segment) {
            if Reader::open_segment(segments, number)?.is_some() {
                superfluous.push(number);
            }
        }
        // Segments that cannot be archived stay, for a retry after the next checkpoint.
        let position = started.plan.position();
        if self.archive.as_ref().is_none_or(|archive| archive.take(segments, &superfluous, position)) {
            superfluous.into_iter().try_for_each(|number| segments.remove(number))?;
        }
        self.core.note_checkpoint();
        if started.order != u64::MAX {
            self.completed = self.completed.max(started.order);
        }
        Ok(())
    }
}

/// Returns true if freeing so many bytes of a base of this length justifies a checkpoint.
fn is_much(garbage: u64, file_bytes: u64) -> bool {
    garbage >= GARBAGE_BYTES_MIN && garbage >= file_bytes / 8
}
