//! What the statements of one command did each, while the profiler listens.

use base::bson::{Builder, Document, DocumentBuf};
use database::Operation;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// One statement that is over.
pub(crate) struct Note {
    /// The statement as its command gave it.
    pub(crate) statement: DocumentBuf,
    /// What it counted, such as `nMatched`.
    pub(crate) counts: DocumentBuf,
    /// Keys and documents that it examined.
    pub(crate) examined: (i64, i64),
    /// How it found its documents.
    pub(crate) plan: Option<String>,
    /// How long it took.
    pub(crate) took: Duration,
}

/// The statements of a command so far.
pub(crate) struct Notes {
    began: Instant,
    examined: (i64, i64),
    pub(crate) list: Vec<Note>,
}

impl Default for Notes {
    fn default() -> Notes {
        Notes { began: Instant::now(), examined: (0, 0), list: Vec::new() }
    }
}

impl Notes {
    /// Notes a statement that has just ended, `operation` being that of the command.
    pub(crate) fn add(
        &mut self,
        statement: Document<'_>,
        operation: &Operation,
        count: impl FnOnce(&mut Builder),
    ) {
        let now = Instant::now();
        let examined = (operation.keys_examined.load(Relaxed), operation.docs_examined.load(Relaxed));
        let mut counts = Builder::new();
        count(&mut counts);
        self.list.push(Note {
            statement: statement.to_owned(),
            counts: counts.finish(),
            examined: (examined.0 - self.examined.0, examined.1 - self.examined.1),
            plan: operation.plan_summary(),
            took: now - self.began,
        });
        operation.forget_plans();
        (self.began, self.examined) = (now, examined);
    }
}
