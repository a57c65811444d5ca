//! `$redact`: keeps or prunes each level of a document by an expression.
//!
//! ```text
//! {$redact: <expression>}                     yields $$KEEP, $$PRUNE or $$DESCEND
//! ```

use super::operator::Operator;
use super::parse::{Parsed, Scope};
use super::source::from_fn;
use super::{Environment, Stream};
use crate::expression::Expression;
use crate::interrupt_check::InterruptCheck;
use crate::{Arena, Context, RowView};
use base::bson::{Array, Builder, DocumentBuf, Element, MAX_DEPTH, Value};
use base::{Result, bail, err};
use std::sync::Arc;

/// A parsed `$redact`.
struct Redact(Expression);

/// Parses `$redact`. Errors: the errors of expressions.
pub(crate) fn parse(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    Ok(Parsed::one(Redact(Expression::parse_redact(spec.value(), scope.context)?)))
}

/// The value of the expression: `$$KEEP`, `$$PRUNE` or `$$DESCEND`.
enum Verdict {
    Keep,
    Prune,
    Descend,
}

impl Redact {
    /// Evaluates the expression at one level. Errors: 17053 for any other value.
    fn verdict(&self, level: RowView<'_>, context: &Context) -> Result<Verdict> {
        let arena = Arena::new();
        match self.0.evaluate(level, context, &arena)? {
            Some(Value::String("keep")) => Ok(Verdict::Keep),
            Some(Value::String("prune")) => Ok(Verdict::Prune),
            Some(Value::String("descend")) => Ok(Verdict::Descend),
            other => {
                let shown = other.map_or_else(|| "MISSING".to_string(), |value| value.to_string());
                Err(err!(
                    17053,
                    "$redact's expression should not return anything aside from the variables $$KEEP, $$DESCEND, \
                     and $$PRUNE, but returned {shown}"
                ))
            }
        }
    }

    /// Returns the remaining part of a row's document, if any.
    fn document(&self, level: RowView<'_>, depth: usize, context: &Context) -> Result<Option<DocumentBuf>> {
        match self.verdict(level, context)? {
            Verdict::Keep => Ok(Some(level.document.to_owned())),
            Verdict::Prune => Ok(None),
            // Documents created by a pipeline may nest deeper than stored ones.
            Verdict::Descend if depth >= 2 * MAX_DEPTH => {
                Err(err!(Overflow, "$redact: document nested deeper than {} levels", 2 * MAX_DEPTH))
            }
            Verdict::Descend => {
                let mut builder = Builder::new();
                for element in level.document {
                    match element.value() {
                        Value::Document(inner) => {
                            let redacted = self.document(level.part(inner), depth + 1, context)?;
                            builder.append_optional(element.field_name(), redacted.as_ref());
                        }
                        Value::Array(array) => {
                            builder.begin_array(element.field_name());
                            self.array((array, level), depth + 1, context, &mut builder)?;
                            builder.end();
                        }
                        _ => {
                            builder.append_element(&element);
                        }
                    }
                }
                Ok(Some(builder.finish()))
            }
        }
    }

    /// Appends the remaining elements of an array to the open array.
    fn array(
        &self,
        (array, level): (Array<'_>, RowView<'_>),
        depth: usize,
        context: &Context,
        builder: &mut Builder,
    ) -> Result<()> {
        if depth >= 2 * MAX_DEPTH {
            bail!(Overflow, "$redact: document nested deeper than {} levels", 2 * MAX_DEPTH);
        }
        for value in array.iter() {
            match value {
                Value::Document(inner) => {
                    if let Some(redacted) = self.document(level.part(inner), depth + 1, context)? {
                        builder.push(&redacted);
                    }
                }
                Value::Array(inner) => {
                    builder.push_array();
                    self.array((inner, level), depth + 1, context, builder)?;
                    builder.end();
                }
                other => {
                    builder.push(other);
                }
            }
        }
        Ok(())
    }
}

impl Operator for Redact {
    fn start(self: Arc<Self>, mut input: Stream, environment: &Environment) -> Result<Stream> {
        let context = Arc::clone(&environment.context);
        let mut interrupts = InterruptCheck::new(&context);
        Ok(from_fn(move || {
            while let Some(row) = input.next()? {
                interrupts.check()?;
                if let Some(redacted) = self.document(row.view(), 0, &context)? {
                    return Ok(Some(row.with(redacted)));
                }
            }
            Ok(None)
        }))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{gives, running_fails};

    #[test]
    fn each_level_is_decided() {
        let by_level = "[{$redact: {$cond: [{$eq: ['$level', 9]}, '$$PRUNE', '$$DESCEND']}}]";
        gives(
            "[{level: 1, a: {level: 9}, b: [{level: 9}, {level: 2, c: [[{level: 9}]]}, 5]}, {level: 9}]",
            by_level,
            "[{level: 1, b: [{level: 2, c: [[]]}, 5]}]",
        );
        gives("[{a: {b: 1}}]", "[{$redact: '$$KEEP'}]", "[{a: {b: 1}}]");
        running_fails("[{a: 1}]", "[{$redact: 'KEEP'}]", 17053, "but returned \"KEEP\"");
    }
}
