//! Results of single statements of a command, recorded while the profiler is on.

use base::bson::{Builder, Document, DocumentBuf};
use database::Operation;
use database::time;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A finished statement.
pub(crate) struct Note {
    /// The statement as sent.
    pub(crate) statement: DocumentBuf,
    /// Counts of the statement, such as `nMatched`.
    pub(crate) counts: DocumentBuf,
    /// Numbers of examined keys and documents.
    pub(crate) examined: (i64, i64),
    /// Summary of the plan.
    pub(crate) plan: Option<String>,
    pub(crate) took: Duration,
}

/// Recorded statements of a command.
pub(crate) struct Notes {
    began: Instant,
    examined: (i64, i64),
    pub(crate) list: Vec<Note>,
}

impl Default for Notes {
    fn default() -> Notes {
        Notes { began: time::now(), examined: (0, 0), list: Vec::new() }
    }
}

impl Notes {
    /// Records a finished statement. `operation` is the command's operation.
    pub(crate) fn add(
        &mut self,
        statement: Document<'_>,
        operation: &Operation,
        count: impl FnOnce(&mut Builder),
    ) {
        let now = time::now();
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
        operation.clear_plans();
        (self.began, self.examined) = (now, examined);
    }
}
