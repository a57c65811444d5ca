//! `$documents`: literal documents as the source.
//!
//! ```text
//! {$documents: <expression>}                  yields an array of documents
//! ```

use super::operator::{Kind, Operator};
use super::parse::{Parsed, Scope};
use super::source::from_documents;
use super::{Environment, Stream};
use crate::Arena;
use crate::expression::Expression;
use base::bson::{Document, Element, Value};
use base::{Result, err};
use std::sync::Arc;

/// A parsed `$documents`.
struct Documents(Expression);

/// Parses `$documents`. Errors: the errors of expressions. A value that is not an array of documents fails at run time
/// (5858203).
pub(crate) fn parse(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let expression = Expression::parse(spec.value(), scope.context)?;
    if expression.is_constant() {
        check(expression.constant())?;
    }
    Ok(Parsed::one(Documents(expression)))
}

fn check(value: Option<Value<'_>>) -> Result<()> {
    let all_documents = value
        .and_then(|value| value.as_array())
        .is_some_and(|array| array.iter().all(|v| v.as_document().is_some()));
    if all_documents {
        return Ok(());
    }
    Err(err!(5858203, "an array is expected: $documents takes an array of objects"))
}

impl Operator for Documents {
    fn kind(&self) -> Kind<'_> {
        Kind::Source
    }

    fn start(self: Arc<Self>, _input: Stream, environment: &Environment) -> Result<Stream> {
        let arena = Arena::new();
        let value = self.0.evaluate(Document::EMPTY, &environment.context, &arena)?;
        check(value)?;
        let array = value.and_then(|value| value.as_array());
        let documents = array.into_iter().flat_map(|array| array.iter());
        Ok(from_documents(documents.filter_map(|value| Some(value.as_document()?.to_owned())).collect()))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{fails, gives};

    #[test]
    fn gives_its_documents() {
        gives("[{x: 1}]", "[{$documents: [{a: 1}, {a: {$add: [1, 1]}}]}]", "[{a: 1}, {a: 2}]");
    }

    #[test]
    fn refuses_values_other_than_arrays_of_documents() {
        fails("[{$documents: {}}]", 5858203, "an array is expected");
        fails("[{$documents: [1]}]", 5858203, "an array is expected");
        fails(
            "[{$limit: 1}, {$documents: []}]",
            40602,
            "$documents is only valid as the first stage in a pipeline.",
        );
    }
}
