//! Waits of statements that hold no thread. A statement that must wait is suspended: it ends with an error that no
//! client receives, and its caller runs it again after the wait.

use super::Operation;
use crate::memory::LargePlace;
use base::{Error, ErrorCode, Result, err};
use parking_lot::Mutex;
use query::Interrupt;
use query::context::Ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Waker;
use std::time::{Duration, Instant};
use storage::{Queue, Ticket, time};

/// A ticket in the queue of a record. The holder of the first ticket writes the record.
pub type RecordTicket = Ticket<Arc<Queue>>;

/// A wait of a statement. After it, the caller runs the statement again: from its start, or with the progress that it
/// has kept.
pub struct Suspension {
    /// The end of the wait.
    pub ready: Ready,
    /// Ticket of the statement in the queue of its record, for [`Operation::resume`].
    pub ticket: Option<RecordTicket>,
    /// Place of a read among the operations that hold much memory, for [`Operation::restart`].
    pub place: Option<Arc<LargePlace>>,
    /// Latest end of the wait: a delay, or the limit of the operation.
    pub until: Option<Instant>,
}

/// How the statements of an operation wait.
#[derive(Default)]
pub(super) struct Waits {
    /// True if a wait suspends the statement: while `state` is not `OnThread`.
    suspends: AtomicBool,
    /// True if the statement begins again after a wait for memory, unless the caller keeps its progress.
    restarts: AtomicBool,
    /// True if the caller keeps the progress of its statements.
    keeps_progress: AtomicBool,
    /// True if the statement has already waited for its next commit. The next delay is skipped.
    has_waited: AtomicBool,
    state: Mutex<State>,
}

/// State of the waits.
#[derive(Default)]
enum State {
    /// The statement waits on its thread.
    #[default]
    OnThread,
    /// A wait suspends the statement. It may already have a ticket of a queue.
    Suspendable(Option<RecordTicket>),
    /// The statement has ended at a wait, which its caller has not taken yet.
    Suspended(Suspension),
    /// The statement waits. The waker is woken if the operation is killed.
    Waiting(Option<Waker>),
}

impl Waits {
    fn suspends(&self) -> bool {
        self.suspends.load(Relaxed)
    }

    fn allow(&self, ticket: Option<RecordTicket>) {
        *self.state.lock() = State::Suspendable(ticket);
        self.suspends.store(true, Relaxed);
    }

    fn hold_thread(&self) {
        if self.suspends.swap(false, Relaxed) {
            *self.state.lock() = State::OnThread;
        }
    }

    fn suspend(&self, suspension: Suspension) -> Error {
        let mut state = self.state.lock();
        if !matches!(*state, State::Suspended(_)) {
            *state = State::Suspended(suspension);
        }
        suspended()
    }

    /// Returns true if a wait for memory suspends the statement.
    pub(super) fn restarts(&self) -> bool {
        self.restarts.load(Relaxed) && self.suspends() && !self.keeps_progress.load(Relaxed)
    }

    /// Suspends the statement until an event, at most until a time. Returns the error that ends it.
    pub(super) fn suspend_until(&self, ready: Ready, until: Instant) -> Error {
        self.suspend(Suspension { ready, ticket: None, place: None, until: Some(until) })
    }

    /// Implements [`Interrupt::suspend_for`] of the operation.
    pub(super) fn suspend_for(&self, delay: Duration) -> Option<Result<()>> {
        if !self.suspends() {
            return None;
        }
        if self.has_waited.swap(false, Relaxed) {
            return Some(Ok(()));
        }
        Some(Err(self.suspend_until(Box::new(|_| false), time::now() + delay)))
    }

    /// Implements [`Interrupt::note_change`] of the operation: later waits hold the thread, unless the caller keeps
    /// the progress of the statement.
    pub(super) fn note_change(&self) {
        if !self.keeps_progress.load(Relaxed) {
            self.hold_thread();
        }
    }

    /// Wakes a suspended statement after its operation was killed.
    pub(super) fn wake(&self) {
        if self.suspends()
            && let State::Waiting(waiting) = &mut *self.state.lock()
            && let Some(waker) = waiting.take()
        {
            waker.wake();
        }
    }
}

impl Operation {
    /// Allows the statement to be suspended while it has changed nothing.
    pub fn allow_suspension(&self) {
        self.waits.allow(None);
    }

    /// Lets waits for memory suspend the statement of a reading command. `place` is the place for which it has waited.
    pub fn restart(&self, place: Option<Arc<LargePlace>>) {
        self.waits.restarts.store(true, Relaxed);
        if let Some(place) = place {
            self.memory.set_place(place);
        }
    }

    /// Holds the thread in later waits for memory: the statement has returned documents, or another thread helps it.
    pub(crate) fn no_restart(&self) {
        self.waits.restarts.store(false, Relaxed);
    }

    /// Frees the place that the statement has waited for and does not use.
    pub(crate) fn leave_place(&self) {
        drop(self.memory.leave_place());
    }

    /// Allows suspension after the first change, too: the caller keeps the progress of the statement.
    pub fn keep_progress(&self) {
        self.waits.keeps_progress.store(true, Relaxed);
    }

    /// Holds the thread in later waits: the statement cannot continue after a suspension.
    pub fn hold_thread(&self) {
        self.waits.hold_thread();
    }

    /// Allows the statement to be suspended again, possibly on another thread. `ticket` is the ticket of the statement,
    /// which continues or begins again. Its next commit is not delayed.
    pub fn resume(&self, ticket: Option<RecordTicket>) {
        self.resume_memory();
        self.waits.has_waited.store(true, Relaxed);
        self.waits.allow(ticket);
    }

    /// Leaves the queue of a record, after the statement that was suspended in it.
    pub fn leave_queue(&self) {
        drop(self.take_ticket());
    }

    /// Returns the wait of a suspended statement.
    pub fn take_suspension(&self) -> Option<Suspension> {
        if !self.suspends() {
            return None;
        }
        let state = std::mem::replace(&mut *self.waits.state.lock(), State::Waiting(None));
        let State::Suspended(suspension) = state else { return None };
        self.pause_memory();
        let limit = self.remaining_time().map(|left| time::now() + left);
        let until = suspension.until.into_iter().chain(limit).min();
        Some(Suspension { until, place: self.memory.leave_place(), ..suspension })
    }

    /// Registers the waker of a suspended statement. Returns the reason if the operation has been killed.
    pub fn killed_while_suspended(&self, waker: &Waker) -> Option<ErrorCode> {
        let State::Waiting(waiting) = &mut *self.waits.state.lock() else { return None };
        *waiting = Some(waker.clone());
        Some(self.killed.load(Relaxed)).filter(|reason| *reason != 0).map(ErrorCode::from_number)
    }

    /// Returns the ticket of a suspended statement that runs again.
    pub(crate) fn take_ticket(&self) -> Option<RecordTicket> {
        match &mut *self.waits.state.lock() {
            State::Suspendable(ticket) => ticket.take(),
            _ => None,
        }
    }

    /// Returns true if a wait suspends the statement. Otherwise it holds the thread.
    pub(crate) fn suspends(&self) -> bool {
        self.waits.suspends()
    }

    /// Suspends the statement. Returns the error that ends it.
    pub(crate) fn suspend(&self, ready: Ready, ticket: Option<RecordTicket>) -> Error {
        self.waits.suspend(Suspension { ready, ticket, place: None, until: None })
    }

    /// Errors: LockBusy if the statement is suspended. The statement must not change anything after this error.
    pub(crate) fn check_suspended(&self) -> Result<()> {
        let is_suspended = self.suspends() && matches!(*self.waits.state.lock(), State::Suspended(_));
        if is_suspended { Err(suspended()) } else { Ok(()) }
    }
}

/// Returns the error that ends a suspended statement. No client receives it.
fn suspended() -> Error {
    err!(LockBusy, "the statement waits for another statement")
}

/// The interrupt of callers that never wait: a wait fails with LockBusy, and a delay is skipped.
pub(crate) struct NeverWaits;

impl Interrupt for NeverWaits {
    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn suspend_until(&self, _: &mut dyn FnMut() -> Option<Ready>) -> Option<Error> {
        Some(suspended())
    }

    fn suspend_for(&self, _: Duration) -> Option<Result<()>> {
        Some(Ok(()))
    }
}
