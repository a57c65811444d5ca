//! How deep documents may become on their way through a pipeline.
//!
//! Each stage may nest what it is given, so a pipeline could grow documents without end, and what
//! compares, orders or encodes values follows their nesting. No stage looks after that itself: by how
//! much a stage may deepen its documents shows in its specification, and where stages together may
//! deepen them by much, what comes out is looked at. Pipelines that applications send may not, so
//! nothing is looked at at all.

use super::operator::Effect;
use super::{Stage, Stream};
use base::Result;
use base::bson::{Document, DocumentCow, Element, MAX_DEPTH, MAX_STORED_DEPTH, Type, Value, check_depth};

/// By how much documents may be deeper than [`MAX_DEPTH`] between two looks.
const SLACK: usize = 50;

/// What may be added to a stored document before it is too deep for a client.
pub(crate) const ROOM: usize = MAX_DEPTH - MAX_STORED_DEPTH;

/// Counts by how much the stages so far may have deepened documents.
#[derive(Default)]
pub(crate) struct Growth {
    since_look: usize,
    in_all: usize,
}

impl Growth {
    /// Notes that a stage is next; whether what it makes is to be looked at.
    pub(crate) fn note(&mut self, levels: usize) -> bool {
        self.since_look = self.since_look.saturating_add(levels);
        self.in_all = self.in_all.saturating_add(levels);
        let look = self.since_look > SLACK;
        if look {
            self.since_look = 0;
        }
        look
    }

    /// Whether what was made since the last look is to be looked at before a client gets it.
    pub(crate) fn look_in_the_end(&self) -> bool {
        self.in_all > ROOM && self.since_look > 0
    }
}

/// By how many levels a stage may deepen its documents, or how deep what it makes anew may be.
pub(crate) fn of_stage(stage: Document<'_>, effect: &Effect) -> usize {
    let computes = |spec: Element<'_>| matches!(spec.kind(), Type::Document | Type::Array);
    match effect {
        Effect::Filters | Effect::Reorders => 0,
        _ if stage.first().is_some_and(computes) => growth(Value::Document(stage)),
        _ => 0,
    }
}

/// By how many levels what is computed as a specification says may be deeper than what it is computed
/// of: no operator adds more levels than it takes itself, and no field lies deeper than the dots of
/// its path say. (What adds level after level in a loop, `$reduce`, looks itself.)
///
/// The recursion is bounded by what was validated.
pub(crate) fn growth(spec: Value<'_>) -> usize {
    match spec {
        Value::Document(inner) => 1 + deepest(inner),
        Value::Array(inner) => 1 + deepest(inner.as_document()),
        Value::JavaScriptWithScope { scope, .. } => 1 + deepest(scope),
        _ => 0,
    }
}

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

/// The dots of what may be a path to write to; a dollar sign leads those to read from.
fn dots(text: &[u8]) -> usize {
    match text.first() {
        Some(b'$') => 0,
        _ => text.iter().filter(|byte| **byte == b'.').count(),
    }
}

/// Refuses documents that nest too deep.
pub(super) struct Bounded(pub(super) Stream);

impl Stage for Bounded {
    fn next(&mut self) -> Result<Option<DocumentCow>> {
        let document = self.0.next()?;
        if let Some(document) = &document {
            check_depth(document.view())?;
        }
        Ok(document)
    }
}

#[cfg(test)]
#[path = "depth_tests.rs"]
mod tests;
