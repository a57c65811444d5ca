//! `$lookup` joined with an `$unwind` of its output: a document for each match.
//!
//! The matches are never collected, so a document may have more matches than an array can hold.

use super::lookup::{Lookup, Search};
use super::unwind::Unwind;
use super::{Stage, Stream};
use crate::Row;
use base::Result;
use base::bson::Value;
use std::sync::Arc;

/// Joins one input document at a time, and returns its matches one by one.
struct Running {
    stage: Arc<Lookup>,
    unwind: Unwind,
    input: Stream,
    search: Search,
    current: Option<Current>,
}

/// The row being joined, the remaining matches and the number of matches so far.
struct Current {
    row: Row,
    matches: Stream,
    position: i64,
}

pub(super) fn start(stage: Arc<Lookup>, unwind: Unwind, input: Stream, search: Search) -> Stream {
    Box::new(Running { stage, unwind, input, search, current: None })
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<Row>> {
        loop {
            self.search.interrupts.check()?;
            if let Some(current) = &mut self.current {
                let document = current.row.document.view();
                if let Some(found) = current.matches.next()? {
                    let found = Value::Document(found.document.view());
                    let joined = self.unwind.output(document, Some(found), Some(current.position));
                    current.position += 1;
                    return Ok(Some(current.row.copy(joined)));
                }
                let unmatched = current.position == 0 && self.unwind.preserve;
                let alone = unmatched.then(|| current.row.copy(self.unwind.output(document, None, None)));
                self.current = None;
                if let Some(alone) = alone {
                    return Ok(Some(alone));
                }
            }
            let Some(row) = self.input.next()? else { return Ok(None) };
            let matches = self.search.matches(&self.stage, row.view())?;
            self.current = Some(Current { row, matches, position: 0 });
        }
    }
}
