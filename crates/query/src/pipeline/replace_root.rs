//! `$replaceRoot` and `$replaceWith`: replace each document by a computed one.
//!
//! ```text
//! {$replaceRoot: {newRoot: <expression>}}
//! {$replaceWith: <expression>}
//! ```

use super::operator::{Kind, Operator, Reads};
use super::parse::{Parsed, Scope};
use super::transformation::{Transformation, start};
use super::{Environment, Stream};
use crate::expression::{Dependencies, Expression};
use crate::{Arena, Context, RowView};
use base::bson::{Document, DocumentBuf, Element, Value};
use base::{Error, Result, bail, err};
use std::sync::Arc;

/// A parsed stage of either kind.
struct ReplaceRoot {
    /// The subject of the error for a value that is not a document.
    operand: &'static str,
    new_root: Expression,
}

/// Parses `$replaceRoot`. Errors: 40229, 40414 and 40415 as in MongoDB, and errors of expressions.
pub(crate) fn parse_replace_root(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let Value::Document(options) = spec.value() else {
        bail!(40229, "expected an object as specification for $replaceRoot stage, got {}", spec.kind());
    };
    let mut new_root = None;
    for option in options {
        if option.name() != "newRoot" {
            return Err(Error::unknown_field(format_args!("$replaceRoot.{}", option.name())));
        }
        new_root = Some(Expression::parse(option.value(), scope.context)?);
    }
    let new_root = new_root.ok_or_else(|| Error::missing_field("$replaceRoot.newRoot"))?;
    Ok(Parsed::one(ReplaceRoot { operand: "'newRoot' expression ", new_root }))
}

/// Parses `$replaceWith`. Errors: the errors of expressions.
pub(crate) fn parse_replace_with(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let new_root = Expression::parse(spec.value(), scope.context)?;
    Ok(Parsed::one(ReplaceRoot { operand: "'replacement document' ", new_root }))
}

/// Returns the error for a new root that is not a document.
pub(super) fn not_a_root(operand: &str, value: Option<Value<'_>>, document: Document<'_>) -> Error {
    let (shown, kind) = match value {
        Some(value) => (value.to_string(), value.kind().alias()),
        None => ("MISSING".to_string(), "missing"),
    };
    err!(
        40228,
        "{operand} must evaluate to an object, but resulting value was: {shown}. Type of resulting value: '{kind}'. \
         Input document: {document}"
    )
}

impl Transformation for ReplaceRoot {
    fn transform(&self, row: RowView<'_>, context: &Context, arena: &Arena) -> Result<DocumentBuf> {
        match self.new_root.evaluate(row, context, arena)? {
            Some(Value::Document(root)) => Ok(root.to_owned()),
            other => Err(not_a_root(self.operand, other, row.document)),
        }
    }
}

impl Operator for ReplaceRoot {
    fn kind(&self) -> Kind<'_> {
        Kind::Transformation(self)
    }

    fn reads(&self) -> Reads {
        match self.new_root.dependencies() {
            Dependencies::Paths(paths) => Reads::Only(paths),
            Dependencies::Whole => Reads::Everything,
        }
    }

    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream> {
        Ok(start(self, input, environment))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{fails, gives, running_fails};

    #[test]
    fn takes_the_document_computed() {
        gives("[{a: {b: 1}}]", "[{$replaceRoot: {newRoot: '$a'}}]", "[{b: 1}]");
        gives("[{a: {b: 1}}]", "[{$replaceWith: {x: '$a.b'}}]", "[{x: 1}]");
    }

    #[test]
    fn refuses_values_other_than_documents() {
        running_fails("[{a: 1}]", "[{$replaceRoot: {newRoot: '$a'}}]", 40228, "must evaluate to an object");
        running_fails("[{a: 1}]", "[{$replaceWith: '$b'}]", 40228, "'replacement document'");
        fails(
            "[{$replaceRoot: 1}]",
            40229,
            "expected an object as specification for $replaceRoot stage, got int",
        );
        fails("[{$replaceRoot: {x: 1}}]", 40415, "'$replaceRoot.x' is an unknown field");
        fails("[{$replaceRoot: {}}]", 40414, "'$replaceRoot.newRoot' is missing");
    }
}
