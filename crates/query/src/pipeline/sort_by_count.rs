//! `$sortByCount`: groups by an expression and sorts by the size of the groups, descending. The stage expands to a
//! `$group` and a `$sort`.
//!
//! ```text
//! {$sortByCount: <expression>}
//! ```

use super::parse::{Parsed, Scope};
use base::bson::{Builder, Element, Value};
use base::{Result, bail};

/// Parses `$sortByCount`. Errors: 40147 to 40149 as in MongoDB, and errors of expressions.
pub(crate) fn parse(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
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
