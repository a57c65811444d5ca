//! What a request waits for. No thread is held while it does.
//!
//! An event is polled with a waker, as a future is, or waited for by a thread that has nothing else to do.

use crate::blocking;
use database::{Awaited, Database, Position};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

/// Registers a waker with what is waited for, and tells whether it has happened already.
pub(crate) type Ready = Box<dyn FnMut(&Waker) -> bool + Send>;

/// Something that will happen, or the end of the time for it.
pub(crate) enum Event {
    /// The journal has the commit of this position, or can't have it, which asking it tells.
    Journaled {
        position: Position,
        /// When to go on in any case.
        until: Option<Instant>,
    },
    /// Anything else.
    Other {
        /// When to go on in any case.
        until: Instant,
        ready: Ready,
    },
}

impl Event {
    /// When to go on in any case.
    pub(crate) fn until(&self) -> Option<Instant> {
        match self {
            Event::Journaled { until, .. } => *until,
            Event::Other { until, .. } => Some(*until),
        }
    }

    /// Whether it has happened; if not, the waker is woken once it does.
    ///
    /// Who finds nobody syncing the journal does so on this thread, since waking another one takes longer. Who comes
    /// meanwhile holds none.
    pub(crate) fn has_happened(&mut self, database: &Database, waker: &Waker) -> bool {
        match self {
            Event::Other { ready, .. } => ready(waker),
            Event::Journaled { position, .. } => match database.await_journaled(*position, waker) {
                Awaited::There => true,
                Awaited::Later => false,
                Awaited::Yours => {
                    blocking::in_place(&mut || _ = database.wait_journaled(*position));
                    true
                }
            },
        }
    }

    /// Waits for it on this thread.
    pub(crate) fn wait(mut self, database: &Database) {
        if let Event::Journaled { position, until: None } = self {
            // Whether the journal has it, is asked again.
            _ = database.wait_journaled(position);
            return;
        }
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        while !self.has_happened(database, &waker) {
            match self.until().map(|until| until.saturating_duration_since(Instant::now())) {
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
