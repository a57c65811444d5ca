//! Operations of a history's sessions, and their results.

use super::documents::Doc;
use super::recorder::Recorder;
use super::statements::{Ddl, Stmt};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

/// The collections. The first two are created with all their indexes, the third only by renames or
/// inserts.
pub(crate) const NAMESPACES: [&str; 3] = ["m.a", "m.b", "x.c"];

/// An operation of a session.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Begin and end in the order of all sessions' steps.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Number of finished commits at its begin.
    pub(crate) least: usize,
    /// Number of started commits at its end.
    pub(crate) most: usize,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Statement(Statement),
    Begin { transaction: usize, time: u64, at_earlier: bool },
    Commit { transaction: usize, outcome: Result<u64, Failure> },
    Abort { transaction: usize },
    Ddl { namespace: usize, ddl: Ddl, outcome: Result<Option<u64>, Failure> },
}

#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(crate) transaction: Option<usize>,
    pub(crate) namespace: usize,
    pub(crate) number: i64,
    pub(crate) stmt: Stmt,
    /// Time of a snapshot read.
    pub(crate) at: Option<u64>,
    pub(crate) outcome: Result<Reported, Failure>,
}

/// Result of a statement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reported {
    /// Number of documents matched, deleted, inserted or counted.
    pub(crate) n: u64,
    pub(crate) inserted: bool,
    pub(crate) docs: Vec<Doc>,
    pub(crate) sum: i64,
    /// Time of the last commit.
    pub(crate) time: Option<u64>,
}

/// An error code.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: i32,
    pub(crate) message: String,
}

/// Collects the events.
pub(crate) struct History {
    pub(crate) recorder: Arc<Recorder>,
    /// Number of commits before the history.
    pub(crate) before: usize,
    events: Mutex<Vec<Event>>,
    steps: AtomicU64,
    numbers: AtomicI64,
    transactions: AtomicUsize,
}

/// A started event.
pub(crate) struct Started {
    start: u64,
    least: usize,
}

impl History {
    pub(crate) fn new(recorder: Arc<Recorder>) -> History {
        let before = recorder.done();
        History {
            before,
            recorder,
            events: Mutex::default(),
            steps: AtomicU64::new(0),
            // Greater than the numbers of an earlier history on the same engine.
            numbers: AtomicI64::new(1 + 1000 * before as i64),
            transactions: AtomicUsize::new(0),
        }
    }

    /// Returns the number of the next statement.
    pub(crate) fn next_number(&self) -> i64 {
        self.numbers.fetch_add(1, Ordering::SeqCst)
    }

    /// Returns the number of the next transaction.
    pub(crate) fn next_transaction(&self) -> usize {
        self.transactions.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn start(&self) -> Started {
        Started { start: self.steps.fetch_add(1, Ordering::SeqCst), least: self.recorder.done() }
    }

    pub(crate) fn end(&self, started: Started, kind: Kind) {
        let most = self.recorder.started();
        let end = self.steps.fetch_add(1, Ordering::SeqCst);
        let Started { start, least } = started;
        self.events.lock().push(Event { start, end, least, most, kind });
    }

    /// Returns all events in the order of their begins.
    pub(crate) fn events(&self) -> Vec<Event> {
        let mut events = self.events.lock().clone();
        events.sort_by_key(|event| event.start);
        events
    }
}

impl From<base::Error> for Failure {
    fn from(error: base::Error) -> Failure {
        Failure { code: error.code().number(), message: error.to_string() }
    }
}
