//! Counts of documents: `$count` for the whole input, `$sortByCount` for each value of an expression.
//!
//! ```text
//! {$count: <field>}                           one document; no document for an empty input
//! {$sortByCount: <expression>}                a $group and a $sort by the size of the groups, descending
//! ```

use super::operator::{Operator, Reads};
use super::parse::{Parsed, Scope};
use super::source::from_fn;
use super::{Environment, Stream};
use crate::accumulator::count_value;
use crate::interrupt_check::InterruptCheck;
use base::bson::{Builder, DocumentBuf, Element, FieldName, FieldNameBuf, Value};
use base::{Result, bail};
use std::sync::Arc;

/// A parsed `$count`: the name of the output field.
struct Count(FieldNameBuf);

/// Parses `$count`. Errors: 40156 to 40160 for an invalid name.
pub(crate) fn parse_count(spec: &Element<'_>, _scope: &Scope<'_>) -> Result<Parsed> {
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
pub(crate) fn explained_count(specification: Value<'_>) -> Vec<DocumentBuf> {
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

    /// Starts the stage, which blocks: it counts the whole input.
    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream> {
        let (mut input, mut interrupts) = (Some(input), InterruptCheck::new(&environment.context));
        Ok(from_fn(move || {
            let Some(mut input) = input.take() else { return Ok(None) };
            let mut count = 0u64;
            while input.next()?.is_some() {
                interrupts.check()?;
                count += 1;
            }
            if count == 0 {
                return Ok(None);
            }
            let mut builder = Builder::new();
            builder.append(&self.0, count_value(count));
            Ok(Some(builder.finish().into()))
        }))
    }
}

/// Parses `$sortByCount`. Errors: 40147 to 40149 as in MongoDB, and errors of expressions.
pub(crate) fn parse_sort_by_count(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    match spec.value() {
        Value::Document(expression) => {
            if !expression.first().is_some_and(|first| first.name().starts_with('$')) {
                bail!(
                    40147,
                    "the sortByCount field must be defined as a $-prefixed path or an expression inside an object"
                );
            }
        }
        Value::String(path) if path.starts_with('$') => {}
        Value::String(_) => {
            bail!(
                40148,
                "the sortByCount field must be defined as a $-prefixed path or an expression inside an object"
            );
        }
        _ => bail!(40149, "the sortByCount field must be specified as a string or as an object"),
    }
    let mut stages = Builder::new();
    stages.begin_array(c"stages");
    stages.push_document().begin_document(c"$group").append_renamed(c"_id", spec);
    stages.begin_document(c"count").append(c"$sum", 1i32).end().end().end();
    stages.push_document().begin_document(c"$sort").append(c"count", -1i32).end().end();
    Parsed::stages(stages, scope)
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

    #[test]
    fn counts_values_the_most_frequent_first() {
        gives(
            "[{a: 1}, {a: 2}, {a: 2}]",
            "[{$sortByCount: '$a'}]",
            "[{_id: 2, count: 2}, {_id: 1, count: 1}]",
        );
        gives("[{a: -1}, {a: 1}]", "[{$sortByCount: {$abs: '$a'}}]", "[{_id: 1, count: 2}]");
    }

    #[test]
    fn refuses_values_other_than_expressions() {
        fails("[{$sortByCount: {a: 1}}]", 40147, "$-prefixed path or an expression inside an object");
        fails("[{$sortByCount: 'a'}]", 40148, "$-prefixed path or an expression inside an object");
        fails("[{$sortByCount: 1}]", 40149, "must be specified as a string or as an object");
    }
}
