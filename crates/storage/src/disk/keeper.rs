//! The keeper: the thread that makes checkpoints, and puts right what has failed.
//!
//! It freezes the state when the changes in memory or the journal have grown large, when much of the base has
//! been dropped, or when the latest checkpoint is a while ago, writes the changes to the base, and lets go of
//! the segments that this makes superfluous, and of the room. A checkpoint that fails is tried again with the
//! same frozen state. All that time readers and writers go on, the latter ever more slowly.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::archive::Archive;
use super::checkpoint::Plan;
use super::core::Core;
use super::reader::Reader;
use super::state::Freeze;
use crate::{Error, Result};

/// How long to wait after a failure before the next attempt.
const RETRY: Duration = Duration::from_millis(100);
/// How often to look whether there is a reason for a checkpoint.
const LOOK: Duration = Duration::from_millis(500);
/// How long changes stay in the journal alone unless something else is asked for, as mongod has it.
const LONGEST: Duration = Duration::from_secs(60);
/// Less dropped than this, or than an eighth of the base, is no reason for a checkpoint.
const GARBAGE_BYTES_MIN: u64 = 4 << 20;
/// A base shorter than this is never written anew.
const REWRITE_BYTES_MIN: u64 = 8 << 20;

/// What others tell the keeper and hear from it.
pub(super) struct Desk {
    orders: Mutex<Orders>,
    /// How long changes may stay in the journal alone, `None` where that alone is no reason for a checkpoint.
    longest: Mutex<Option<Duration>>,
    /// Something was ordered.
    ordered: Condvar,
    /// A checkpoint ended, well or not.
    done: Condvar,
}

#[derive(Default)]
struct Orders {
    /// The number of checkpoints asked for, and of those begun after they were asked for.
    wanted: u64,
    begun: u64,
    /// The number of the last checkpoint completed.
    completed: u64,
    closing: bool,
    /// Why the latest attempt failed.
    error: Option<Error>,
}

impl Default for Desk {
    fn default() -> Self {
        Desk {
            orders: Mutex::default(),
            longest: Mutex::new(Some(LONGEST)),
            ordered: Condvar::new(),
            done: Condvar::new(),
        }
    }
}

impl Desk {
    /// Says how long changes may stay in the journal alone. The keeper looks a few times a second.
    pub(super) fn set_longest(&self, longest: Option<Duration>) {
        *self.longest.lock() = longest;
    }

    /// Whether changes may no longer stay in the journal alone, the latest checkpoint being so long ago.
    fn is_long(&self, ago: Duration) -> bool {
        self.longest.lock().is_some_and(|longest| ago >= longest)
    }

    /// Asks for a checkpoint, unless one is asked for already.
    pub(super) fn order(&self) {
        let mut orders = self.orders.lock();
        if orders.wanted == orders.begun {
            orders.wanted += 1;
            self.ordered.notify_all();
        }
    }

    /// Asks for a checkpoint of everything committed so far, and waits until it is complete or has failed.
    pub(super) fn order_and_wait(&self) -> Result<()> {
        let mut orders = self.orders.lock();
        orders.wanted = orders.wanted.max(orders.begun + 1);
        let mine = orders.wanted;
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

    /// Waits a while for a checkpoint to end, and returns why the latest attempt failed if it did.
    pub(super) fn wait_a_while(&self, most: Duration) -> Option<Error> {
        let mut orders = self.orders.lock();
        if orders.error.is_none() {
            self.done.wait_for(&mut orders, most);
        }
        orders.error.clone()
    }

    /// Whether the engine is closing.
    fn is_closing(&self) -> bool {
        self.orders.lock().closing
    }

    pub(super) fn close(&self) {
        self.orders.lock().closing = true;
        self.ordered.notify_all();
        self.done.notify_all();
    }
}

/// The thread's own.
pub(super) struct Keeper {
    core: Arc<Core>,
    next_table: u64,
    /// A checkpoint that was begun and isn't complete.
    begun: Option<Begun>,
    /// When one was last attempted.
    attempted: Instant,
    /// The number of the last order that was carried out.
    completed: u64,
    /// How long the base was when it was last written anew.
    rewritten: u64,
    /// Who keeps what segments held.
    archive: Option<Arc<Archive>>,
}

struct Begun {
    freeze: Freeze,
    plan: Plan,
    /// The first segment that is still needed after it.
    segment: u64,
    order: u64,
}

impl Keeper {
    pub(super) fn new(core: Arc<Core>, next_table: u64, archive: Option<Arc<Archive>>) -> Self {
        let attempted = Instant::now();
        Keeper { core, next_table, begun: None, attempted, completed: 0, rewritten: 0, archive }
    }

    /// Works until the desk closes, then makes a last checkpoint if there is anything to write.
    pub(super) fn run(mut self) {
        self.take_back();
        while let Some(order) = self.next_order() {
            let result = self.attempt(order);
            if result.is_ok() {
                self.take_back();
            }
            let mut orders = self.core.desk.orders.lock();
            // Only now, since whoever waits for it may copy the files then.
            orders.completed = orders.completed.max(self.completed);
            if let Err(error) = &result {
                if orders.error.is_none() {
                    log::warn!("a checkpoint failed, and is tried again: {error}");
                }
                orders.error = Some(error.clone());
                orders.wanted = orders.wanted.max(orders.begun + 1);
                self.core.desk.done.notify_all();
                if !orders.closing {
                    self.core.desk.ordered.wait_for(&mut orders, RETRY);
                }
            } else {
                orders.error = None;
                self.core.desk.done.notify_all();
            }
        }
        if (self.begun.is_some() || self.core.has_changes())
            && let Err(error) = self.attempt(u64::MAX)
        {
            log::warn!("no checkpoint at the end, the journal has everything: {error}");
        }
    }

    /// The order to carry out next; `None` when closing.
    fn next_order(&self) -> Option<u64> {
        let mut orders = self.core.desk.orders.lock();
        loop {
            if orders.closing {
                return None;
            }
            if orders.wanted > orders.begun || self.is_due() {
                orders.begun = orders.wanted;
                return Some(orders.begun);
            }
            self.core.desk.ordered.wait_for(&mut orders, LOOK);
        }
    }

    /// Writes the base anew if its file is far longer than what is in it; after an attempt only once more has
    /// been freed.
    fn take_back(&mut self) {
        let latest = self.core.latest();
        let file = self.core.file_bytes();
        // What a checkpoint will free first isn't to be copied.
        let later = self.begun.is_some() || is_much(latest.garbage_bytes, file);
        drop(latest);
        if later || file < REWRITE_BYTES_MIN || file <= self.rewritten {
            return;
        }
        let core = Arc::clone(&self.core);
        let mut base = core.base.lock();
        if file < REWRITE_BYTES_MIN + 3 * base.live_bytes() {
            return;
        }
        let rewritten = base.rewrite(&|| !core.desk.is_closing());
        if rewritten.is_ok() {
            core.look_through(base.view());
        }
        drop(base);
        if let Err(error) = rewritten
            && error != Error::Closed
        {
            log::warn!("the base stays as long as it is: {error}");
        }
        self.core.note_length();
        self.rewritten = self.core.file_bytes();
    }

    /// Whether there is a reason for a checkpoint that nobody has to order.
    fn is_due(&self) -> bool {
        let core = &self.core;
        core.journal.is_broken()
            || is_much(core.latest().garbage_bytes, core.file_bytes())
            || core.desk.is_long(self.attempted.elapsed()) && core.has_changes()
    }

    fn attempt(&mut self, order: u64) -> Result<()> {
        self.attempted = Instant::now();
        if let Some(begun) = self.begun.take() {
            let late = begun.order < order;
            self.complete(begun)?;
            if !late {
                return Ok(());
            }
        }
        let begun = self.begin(order)?;
        self.complete(begun)
    }

    fn begin(&mut self, order: u64) -> Result<Begun> {
        let segments = &self.core.journal.segments;
        let segment = segments.next(self.core.segment())?;
        let file = segments.create(segment)?;
        let freeze = self.core.freeze(segment, file);
        let plan = Plan::new(&freeze, self.next_table);
        self.next_table = plan.next_table;
        Ok(Begun { freeze, plan, segment, order })
    }

    fn complete(&mut self, begun: Begun) -> Result<()> {
        if begun.freeze.garbage_bytes > 0 {
            self.rewritten = 0;
        }
        // Once the base has these commits, the journal needn't have them after a crash; the archive wants them still.
        if self.archive.is_some()
            && let Err(error) = self.core.journal.sync()
        {
            log::warn!("the journal that is to be archived may have lost commits: {error}");
        }
        let view = Arc::clone(&self.core.latest().view);
        let written = {
            let mut base = self.core.base.lock();
            base.settle().and_then(|()| begun.plan.write(&mut base, &view)).map(|()| base.view())
        };
        drop(view);
        match written {
            Ok(view) => {
                self.core.thaw(&begun.plan, view);
                self.finish(&begun)
            }
            Err(error) => {
                self.begun = Some(begun);
                Err(error)
            }
        }
    }

    /// Lets go of what a complete checkpoint makes superfluous.
    fn finish(&mut self, begun: &Begun) -> Result<()> {
        self.core.journal.checkpointed(begun.plan.position());
        let segments = &self.core.journal.segments;
        let mut superfluous = Vec::new();
        for number in segments.list()?.into_iter().filter(|number| *number < begun.segment) {
            if Reader::open_segment(segments, number)?.is_some() {
                superfluous.push(number);
            }
        }
        // What can't be archived stays, and is tried again after the next checkpoint.
        let position = begun.plan.position();
        if self.archive.as_ref().is_none_or(|archive| archive.take(segments, &superfluous, position)) {
            superfluous.into_iter().try_for_each(|number| segments.remove(number))?;
        }
        self.core.note_checkpoint();
        if begun.order != u64::MAX {
            self.completed = self.completed.max(begun.order);
        }
        Ok(())
    }
}

/// Whether so many bytes of a base of that length are worth a checkpoint, to get them back.
fn is_much(garbage: u64, file_bytes: u64) -> bool {
    garbage >= GARBAGE_BYTES_MIN && garbage >= file_bytes / 8
}
