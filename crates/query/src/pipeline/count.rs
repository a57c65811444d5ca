//! `$count`: one document with the number of documents; no document for an empty input.
//!
//! ```text
//! {$count: <field>}
//! ```

use super::operator::{Operator, Reads};
use super::parse::{Parsed, Scope};
use super::{Environment, Stage, Stream};
use crate::Row;
use crate::accumulator::count_value;
use crate::interrupt_check::InterruptCheck;
use base::bson::{Builder, DocumentBuf, Element, FieldName, FieldNameBuf, Value};
use base::{Result, bail};
use std::sync::Arc;

/// A parsed `$count`: the name of the output field.
struct Count(FieldNameBuf);

/// Parses `$count`. Errors: 40156 to 40160 for an invalid name.
pub(crate) fn parse(spec: &Element<'_>, _scope: &Scope<'_>) -> Result<Parsed> {
    let Some(name) = spec.value().as_str() else {
        bail!(40156, "the count field must be a non-empty string");
    };
    if name.is_empty() {
        bail!(40157, "the count field must be a non-empty string");
    }
    if name.starts_with('$') {
        bail!(40158, "the count field cannot be a $-prefixed path");
    }
    let Ok(field_name) = FieldName::new(name) else {
        bail!(40159, "the count field cannot contain a null byte");
    };
    if name.contains('.') {
        bail!(40160, "the count field cannot contain '.'");
    }
    if name == "_id" {
        bail!(9039800, "the count field cannot be '_id'");
    }
    Ok(Parsed::one(Count(field_name.to_owned())))
}

/// Returns the `$group` and the `$project` that MongoDB expands it to.
pub(crate) fn explained(specification: Value<'_>) -> Vec<DocumentBuf> {
    let name = FieldName::trusted(specification.as_str().unwrap_or_default());
    let mut group = Builder::new();
    group.begin_document(c"$group").begin_document(c"_id").append(c"$const", Value::Null).end();
    group.begin_document(name).begin_document(c"$sum").append(c"$const", 1i32).end().end().end();
    let mut project = Builder::new();
    project.begin_document(c"$project").append(name, true).append(c"_id", false).end();
    vec![group.finish(), project.finish()]
}

impl Operator for Count {
    fn reads(&self) -> Reads {
        Reads::Only(Vec::new())
    }

    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream> {
        Ok(Box::new(Running {
            stage: self,
            input,
            interrupts: InterruptCheck::new(&environment.context),
            done: false,
        }))
    }
}

/// A blocking stage, which counts the whole input.
struct Running {
    stage: Arc<Count>,
    input: Stream,
    interrupts: InterruptCheck,
    done: bool,
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<Row>> {
        if self.done {
            return Ok(None);
        }
        self.done = true;
        let mut count = 0u64;
        while self.input.next()?.is_some() {
            self.interrupts.check()?;
            count += 1;
        }
        if count == 0 {
            return Ok(None);
        }
        let mut builder = Builder::new();
        builder.append(&self.stage.0, count_value(count));
        Ok(Some(builder.finish().into()))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{fails, gives};

    #[test]
    fn counts() {
        gives("[{a: 1}, {a: 2}]", "[{$count: 'n'}]", "[{n: 2}]");
        gives("[]", "[{$count: 'n'}]", "[]");
    }

    #[test]
    fn refuses_bad_names() {
        fails("[{$count: 1}]", 40156, "the count field must be a non-empty string");
        fails("[{$count: ''}]", 40157, "the count field must be a non-empty string");
        fails("[{$count: '$a'}]", 40158, "the count field cannot be a $-prefixed path");
        fails("[{$count: 'a.b'}]", 40160, "the count field cannot contain '.'");
    }
}
