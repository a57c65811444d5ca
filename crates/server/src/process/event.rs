//! Events that requests wait for without a thread.
//!
//! An event can be polled with a waker, as a future, or awaited by a thread.

use crate::process::blocking;
use database::time;
use database::{Database, JournalWait, Position, Ready};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

/// An event with an optional deadline.
pub(crate) enum Event {
    /// The journal has the commit of this position, or has failed. A query of the journal tells
    /// both apart.
    Journaled {
        position: Position,
        /// Deadline.
        until: Option<Instant>,
    },
    /// Any other event.
    Other {
        /// Deadline.
        until: Instant,
        ready: Ready,
    },
}

impl Event {
    /// Returns the deadline.
    pub(crate) fn until(&self) -> Option<Instant> {
        match self {
            Event::Journaled { until, .. } => *until,
            Event::Other { until, .. } => Some(*until),
        }
    }

    /// Returns the event without its deadline.
    pub(crate) fn into_ready(self) -> Ready {
        match self {
            Event::Other { ready, .. } => ready,
            // The caller asks the journal again.
            Event::Journaled { .. } => Box::new(|_: &Waker| true),
        }
    }

    /// Returns true if the event has happened. Otherwise registers the waker.
    ///
    /// If no journal sync is running, this thread runs one, since waking another thread takes
    /// longer. Requests that arrive during a sync hold no thread.
    pub(crate) fn has_happened(&mut self, database: &Database, waker: &Waker) -> bool {
        match self {
            Event::Other { ready, .. } => ready(waker),
            Event::Journaled { position, .. } => match database.await_journaled(*position, waker) {
                JournalWait::Satisfied => true,
                JournalWait::Pending => false,
                JournalWait::SyncNeeded => {
                    _ = blocking::in_place(|| database.wait_journaled(*position));
                    true
                }
            },
        }
    }

    /// Waits for the event on this thread.
    pub(crate) fn wait(mut self, database: &Database) {
        if let Event::Journaled { position, until: None } = self {
            // The caller asks the journal again about the outcome.
            _ = database.wait_journaled(position);
            return;
        }
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        while !self.has_happened(database, &waker) {
            match self.until().map(|until| until.saturating_duration_since(time::now())) {
                Some(left) if left.is_zero() => return,
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
        }
    }
}

/// Wakes a waiting thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
