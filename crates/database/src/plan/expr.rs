//! Bounds from `$expr`: comparisons of a path with what is the same for every document.
//!
//! Expressions compare across types and see arrays whole, so their bounds hold only for indexes
//! without arrays on the path, and reach over all types; a missing value, which sorts before
//! everything, is null in a key.

use super::bounds::{Bounds, Strings};
use super::interval::{Endpoint, Interval, Intervals};
use base::bson::{Document, Path, Value, ValueBuf};
use query::collation::{Collation, depends_on_collation};
use query::expression::{Dependencies, Expression};
use query::{Arena, Context};

/// The bounds that an expression, which must be true, gives to paths.
pub(crate) fn bounds(
    expression: &Expression,
    context: &Context,
    collation: &Collation,
) -> Vec<(Path, Bounds)> {
    let mut found = Vec::new();
    collect(expression, context, collation, &mut found);
    found
}

/// Recursion is bounded by the nesting of expressions.
fn collect(
    expression: &Expression,
    context: &Context,
    collation: &Collation,
    found: &mut Vec<(Path, Bounds)>,
) {
    let Some((operator, operands)) = expression.as_call() else { return };
    match (operator, operands.as_slice()) {
        ("$and", all) => all.iter().for_each(|operand| collect(operand, context, collation, found)),
        (_, [left, right]) => {
            if let (Some(path), Some(value)) = (left.field_path(), constant(right, context)) {
                found.extend(compare(operator, value.view(), collation).map(|bounds| (path.clone(), bounds)));
            } else if let (Some(path), Some(value)) = (right.field_path(), constant(left, context)) {
                let turned = compare(turned(operator), value.view(), collation);
                found.extend(turned.map(|bounds| (path.clone(), bounds)));
            }
        }
        _ => {}
    }
}

/// The value of an expression that reads nothing of the document (variables it may read).
fn constant(expression: &Expression, context: &Context) -> Option<ValueBuf> {
    if expression.is_constant() {
        return expression.constant().map(|value| value.to_owned());
    }
    if !matches!(expression.dependencies(), Dependencies::Paths(paths) if paths.is_empty()) {
        return None;
    }
    // Only variables: of what an operator computes some differs each time.
    if expression.as_call().is_some() {
        return None;
    }
    let arena = Arena::new();
    expression.evaluate(Document::EMPTY, context, &arena).ok().flatten().map(|value| value.to_owned())
}

/// The comparison with its sides exchanged.
fn turned(operator: &str) -> &str {
    match operator {
        "$lt" => "$gt",
        "$lte" => "$gte",
        "$gt" => "$lt",
        "$gte" => "$lte",
        same => same,
    }
}

fn compare(operator: &str, value: Value<'_>, collation: &Collation) -> Option<Bounds> {
    let end = |inclusive| Endpoint::collated(value, inclusive, collation);
    let mut intervals = match operator {
        "$eq" => vec![Interval::equal_to(value, collation)],
        "$lt" | "$lte" => {
            let below = Interval { high: end(operator == "$lte"), ..Interval::all() };
            vec![below, Interval::point(Value::Null)]
        }
        "$gt" | "$gte" => vec![Interval { low: end(operator == "$gte"), ..Interval::all() }],
        _ => return None,
    };
    // Null and undefined count as one here.
    if value.is_nullish() {
        intervals.push(Interval::point(Value::Null));
        intervals.push(Interval::point(Value::Undefined));
    }
    let strings = Strings { compared: depends_on_collation(value), patterns: false };
    Some(Bounds::new(Intervals::union(intervals), false, strings))
}
