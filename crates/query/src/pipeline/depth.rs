//! Nesting limit of documents in a pipeline.
//!
//! Each stage may nest its input, so a pipeline could deepen documents without end. Comparison, sorting and encoding
//! recurse into nested values. Stages do not check the depth themselves. A stage's specification shows by how many
//! levels it may deepen its documents. The output is checked only after stages that together may deepen documents by
//! many levels. Typical pipelines need no check.

use super::operator::Effect;
use super::{Split, Stage, Stream};
use crate::Row;
use base::Result;
use base::bson::{Document, Element, MAX_DEPTH, MAX_STORED_DEPTH, Type, Value, check_depth};

/// Levels by which documents may exceed [`MAX_DEPTH`] between two checks.
const SLACK: usize = 50;

/// Levels that may be added to a stored document before it is too deep for a reply.
pub(crate) const ROOM: usize = MAX_DEPTH - MAX_STORED_DEPTH;

/// Counts the levels that the stages so far may have added.
#[derive(Default)]
pub(crate) struct Growth {
    since_look: usize,
    in_all: usize,
}

impl Growth {
    /// Records the next stage; returns whether its output must be checked.
    pub(crate) fn note(&mut self, levels: usize) -> bool {
        self.since_look = self.since_look.saturating_add(levels);
        self.in_all = self.in_all.saturating_add(levels);
        let look = self.since_look > SLACK;
        if look {
            self.since_look = 0;
        }
        look
    }

    /// Whether the final output must be checked.
    pub(crate) fn checks_output(&self) -> bool {
        self.in_all > ROOM && self.since_look > 0
    }
}

/// Returns the levels that a stage may add, or the depth of its new documents.
pub(crate) fn of_stage(stage: Document<'_>, effect: &Effect) -> usize {
    let computes = |spec: Element<'_>| matches!(spec.kind(), Type::Document | Type::Array);
    match effect {
        Effect::Filters | Effect::Reorders => 0,
        _ if stage.first().is_some_and(computes) => growth(Value::Document(stage)),
        _ => 0,
    }
}

/// Returns the levels that a specification may add to its inputs. No operator adds more levels than its own nesting,
/// and no field is deeper than the dots of its path. (`$reduce`, which adds levels in a loop, checks the depth itself.)
///
/// The validated specification bounds the recursion.
pub(crate) fn growth(spec: Value<'_>) -> usize {
    match spec {
        Value::Document(inner) => 1 + deepest(inner),
        Value::Array(inner) => 1 + deepest(inner.as_document()),
        Value::JavaScriptWithScope { scope, .. } => 1 + deepest(scope),
        _ => 0,
    }
}

/// Returns the maximum of the levels that each field may add, including the dots of its name.
fn deepest(document: Document<'_>) -> usize {
    let of = |element: Element<'_>| {
        let text = match element.kind() {
            Type::String => element.value().as_str().map_or(0, |text| dots(text.as_bytes())),
            _ => growth(element.value()),
        };
        dots(element.name_bytes()) + text
    };
    document.iter().map(of).max().unwrap_or(0)
}

/// Counts the dots of a possible target path; paths to read from begin with a dollar sign.
fn dots(text: &[u8]) -> usize {
    match text.first() {
        Some(b'$') => 0,
        _ => text.iter().filter(|byte| **byte == b'.').count(),
    }
}

/// Refuses documents that nest too deeply.
pub(super) struct Bounded(pub(super) Stream);

impl Stage for Bounded {
    fn next(&mut self) -> Result<Option<Row>> {
        let row = self.0.next()?;
        if let Some(row) = &row {
            check_depth(row.document.view())?;
        }
        Ok(row)
    }

    fn begin_section(&mut self) -> bool {
        self.0.begin_section()
    }

    fn split(&mut self) -> Option<Split> {
        Some(self.0.split()?.through(|rows, _| -> Stream { Box::new(Bounded(rows)) }))
    }
}

#[cfg(test)]
#[path = "depth_tests.rs"]
mod tests;
