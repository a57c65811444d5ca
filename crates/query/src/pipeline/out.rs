//! `$out`: replaces the content of a collection by the documents.
//!
//! ```text
//! {$out: <collection>}
//! {$out: {db: <string>, coll: <string>}}
//! ```

use super::collections::{Namespace, Sink};
use super::definition::{Requester, Resource, Right};
use super::operator::Operator;
use super::parse::{Parsed, Scope};
use super::{Environment, Stage, Stream};
use crate::Row;
use crate::interrupt_check::InterruptCheck;
use base::bson::{Element, Value};
use base::{Result, bail};
use std::sync::Arc;

/// Longest name of a collection, in bytes. The name of the database and a dot are before it.
const NAME_MAX: usize = base::namespace::NAMESPACE_MAX - 2;

/// Code for a target in an internal database.
const INTERNAL_DATABASE: i32 = 31321;

/// A parsed `$out`: its target.
struct Out(Namespace);

/// Parses `$out`.
///
/// Errors: 16990 unless it is a string or a document, errors of `{db, coll}`, 17385 and 31321 for internal collections,
/// IllegalOperation for an invalid name.
pub(crate) fn parse(spec: &Element<'_>, _scope: &Scope<'_>) -> Result<Parsed> {
    let into = match spec.value() {
        Value::String(collection) => Namespace::local(collection),
        Value::Document(into) => Namespace::parse("$out", into)?,
        other => {
            bail!(16990, "$out only supports a string or object argument, but found {}", other.kind());
        }
    };
    into.check_target("$out", (17385, INTERNAL_DATABASE))?;
    if into.collection.starts_with('$') {
        bail!(IllegalOperation, "$out cannot write to the invalid name '{}'", into.collection);
    }
    if into.collection.len() > NAME_MAX {
        bail!(IllegalOperation, "$out cannot write to a name of more than {NAME_MAX} bytes");
    }
    Ok(Parsed::one(Out(into)))
}

/// Returns the required rights. `$out` replaces the collection's content.
pub(crate) fn rights<'v>(specification: Value<'v>, _requester: &Requester<'_>) -> Vec<Right<'v>> {
    vec![Right { on: Resource::Target(specification), actions: &["insert", "remove"] }]
}

impl Operator for Out {
    fn check_target(&self, environment: &Environment) -> Result<()> {
        self.0.check_database(environment.collections.namespace().0, "$out", INTERNAL_DATABASE)
    }

    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream> {
        self.check_target(environment)?;
        let environment = environment.clone();
        Ok(Box::new(Running { stage: self, input: Some(input), sink: None, pending: None, environment }))
    }
}

/// Writes the whole input in one call. A call after LockBusy continues.
struct Running {
    stage: Arc<Out>,
    /// `None` after its end.
    input: Option<Stream>,
    /// `None` before the first call, and after the end.
    sink: Option<Box<dyn Sink>>,
    /// A row that is not written yet.
    pending: Option<Row>,
    environment: Environment,
}

impl Stage for Running {
    /// Writes all documents and returns none. After an error the collection keeps its old content.
    fn next(&mut self) -> Result<Option<Row>> {
        let Running { stage, input, sink: open, pending, environment } = self;
        let sink = match open {
            Some(sink) => sink,
            None if input.is_none() => return Ok(None),
            None => open.insert(environment.collections.out(&stage.0, &environment.context)?),
        };
        let mut interrupts = InterruptCheck::new(&environment.context);
        while let Some(rows) = input {
            if pending.is_none() {
                *pending = rows.next()?;
            }
            match pending {
                Some(row) => {
                    interrupts.check()?;
                    sink.write(row.document.view())?;
                    *pending = None;
                }
                None => *input = None,
            }
        }
        sink.finish()?;
        *open = None;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{Run, fails};

    #[test]
    fn replaces_the_content() {
        let run =
            Run::new("[{_id: 1}, {_id: 2}]", "[{$match: {_id: 2}}, {$out: 'o'}]").with("o", "[{_id: 9}]");
        run.gives("[]");
        run.holds("o", "[{_id: 2}]");
    }

    #[test]
    fn a_failure_leaves_the_old_content() {
        let run = Run::new("[{_id: 1, a: 1}]", "[{$replaceWith: '$a'}, {$out: 'o'}]").with("o", "[{_id: 9}]");
        run.fails(40228, "must evaluate to an object");
        run.holds("o", "[{_id: 9}]");
    }

    #[test]
    fn refuses_bad_targets_and_places() {
        fails("[{$out: 1}]", 16990, "$out only supports a string or object argument, but found int");
        fails("[{$out: {db: 'd'}}]", 40414, "'$out.coll' is missing");
        fails("[{$out: {db: 'd', coll: 'c', x: 1}}]", 40415, "'$out.x' is an unknown field");
        fails("[{$out: 'x'}, {$limit: 1}]", 40601, "$out can only be the final stage in the pipeline");
    }
}
