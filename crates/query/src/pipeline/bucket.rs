//! `$bucket`: groups by given boundaries. The stage expands to a `$group` by a `$switch` over the boundaries, and a
//! `$sort`.
//!
//! ```text
//! {$bucket: {
//!     groupBy: <expression>,
//!     boundaries: [<constant>, …],            at least two, ascending, of one type
//!     default: <constant>,                    optional: the `_id` of values outside the boundaries
//!     output: {<field>: <accumulator>, …},    optional: a count by default
//! }}
//! ```

use super::parse::{Parsed, Scope};
use crate::Collation;
use crate::expression::Expression;
use base::bson::{Builder, Document, Element, Value, ValueBuf};
use base::{Result, bail, err};
use std::cmp::Ordering;

/// Parses `$bucket`. Errors: 40191 to 40202 as in MongoDB, and errors of expressions and accumulators.
pub(crate) fn parse(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let Value::Document(options) = spec.value() else {
        bail!(40201, "Argument to $bucket stage must be an object, but found type: {}.", spec.kind().alias());
    };
    let (mut group_by, mut boundaries, mut default, mut output) = (None, None, None, None);
    for option in options {
        match option.name() {
            "groupBy" => group_by = Some(parse_group_by("$bucket", 40202, option.value())?),
            "boundaries" => boundaries = Some(parse_boundaries(option.value(), scope)?),
            "default" => default = Some(parse_default(option.value(), scope)?),
            "output" => output = Some(parse_output(option.value())?),
            other => bail!(40197, "Unrecognized option to $bucket: {other}."),
        }
    }
    let (Some(group_by), Some(boundaries)) = (group_by, boundaries) else {
        bail!(40198, "$bucket requires 'groupBy' and 'boundaries' to be specified.");
    };
    if let Some(default) = &default {
        check_default(default, &boundaries, &scope.context.collation)?;
    }
    let mut stages = Builder::new();
    stages.begin_array(c"stages").push_document().begin_document(c"$group");
    append_switch(&mut stages, group_by, &boundaries, default.as_ref());
    append_output(&mut stages, output);
    stages.end().end().push_document().begin_document(c"$sort").append(c"_id", 1i32).end().end();
    Parsed::stages(stages, scope)
}

/// Checks the expression to group by: a path or an operator.
///
/// Errors: the stage's code for any other value.
pub(super) fn parse_group_by<'a>(stage: &str, code: i32, value: Value<'a>) -> Result<Value<'a>> {
    let is_expression = match value {
        Value::String(path) => path.starts_with('$'),
        Value::Document(expression) => expression.first().is_some_and(|first| first.name().starts_with('$')),
        _ => false,
    };
    if is_expression {
        return Ok(value);
    }
    Err(base::Error::new(
        base::ErrorCode::from_number(code),
        format!(
            "The {stage} 'groupBy' field must be defined as a $-prefixed path or an expression, but found: {value}."
        ),
    ))
}

/// Parses the boundaries: at least two constants, ascending and of one type. Errors: 40200 and 40191 to 40194.
fn parse_boundaries(value: Value<'_>, scope: &Scope<'_>) -> Result<Vec<ValueBuf>> {
    let Value::Array(array) = value else {
        bail!(40200, "The $bucket 'boundaries' field must be an array, but found type: {}.", value.kind());
    };
    let mut boundaries: Vec<ValueBuf> = Vec::new();
    for boundary in array.iter() {
        let expression = Expression::parse(boundary, scope.context)?;
        let Some(constant) = expression.constant() else {
            bail!(
                40191,
                "The $bucket 'boundaries' field must be an array of constant values, but found value: {boundary}."
            );
        };
        boundaries.push(constant.to_owned());
    }
    if boundaries.len() < 2 {
        let count = boundaries.len();
        bail!(
            40192,
            "The $bucket 'boundaries' field must have at least 2 values, but found {count} value(s)."
        );
    }
    for (at, pair) in boundaries.windows(2).enumerate() {
        let [lower, upper] = pair else { continue };
        check_pair(at, lower.view(), upper.view(), &scope.context.collation)?;
    }
    Ok(boundaries)
}

/// Checks two adjacent boundaries. Errors: 40193 for different types, 40194 unless ascending.
fn check_pair(at: usize, lower: Value<'_>, upper: Value<'_>, collation: &Collation) -> Result<()> {
    if lower.kind().canonical_rank() != upper.kind().canonical_rank() {
        bail!(
            40193,
            "All values in the the 'boundaries' option to $bucket must have the same type. Found conflicting types {} \
             and {}.",
            lower.kind().alias(),
            upper.kind().alias()
        );
    }
    if collation.compare(lower, upper) == Ordering::Less {
        return Ok(());
    }
    Err(err!(
        40194,
        "The 'boundaries' option to $bucket must be sorted, but elements {at} and {} are not in ascending order \
         ({lower} is not less than {upper}).",
        at + 1
    ))
}

fn parse_default(value: Value<'_>, scope: &Scope<'_>) -> Result<ValueBuf> {
    match Expression::parse(value, scope.context)?.constant() {
        Some(constant) => Ok(constant.to_owned()),
        None => {
            Err(err!(40195, "The $bucket 'default' field must be a constant expression, but found: {value}."))
        }
    }
}

/// Checks that the default is outside the boundaries or of another type. Errors: 40199.
fn check_default(default: &ValueBuf, boundaries: &[ValueBuf], collation: &Collation) -> Result<()> {
    let (Some(lowest), Some(highest)) = (boundaries.first(), boundaries.last()) else { return Ok(()) };
    let same_type = default.kind().canonical_rank() == lowest.kind().canonical_rank();
    let outside = collation.compare(default.view(), lowest.view()) == Ordering::Less
        || collation.compare(default.view(), highest.view()) != Ordering::Less;
    if outside || !same_type {
        return Ok(());
    }
    Err(err!(
        40199,
        "The $bucket 'default' field must be less than the lowest boundary or greater than or equal to the highest \
         boundary."
    ))
}

fn parse_output(value: Value<'_>) -> Result<Document<'_>> {
    let found = value.kind().alias();
    value
        .as_document()
        .ok_or_else(|| err!(40196, "The $bucket 'output' field must be an object, but found type: {found}."))
}

/// Appends the `_id`: the lower boundary of the value's range.
fn append_switch(stages: &mut Builder, by: Value<'_>, boundaries: &[ValueBuf], default: Option<&ValueBuf>) {
    stages.begin_document(c"_id").begin_document(c"$switch").begin_array(c"branches");
    for pair in boundaries.windows(2) {
        let [lower, upper] = pair else { continue };
        stages.push_document().begin_document(c"case").begin_array(c"$and");
        for (operator, boundary) in [(c"$gte", lower), (c"$lt", upper)] {
            stages.push_document().begin_array(operator).push(by);
            stages.push_document().append(c"$literal", boundary).end().end().end();
        }
        stages.end().end().begin_document(c"then").append(c"$literal", lower).end().end();
    }
    stages.end();
    if let Some(default) = default {
        stages.begin_document(c"default").append(c"$literal", default).end();
    }
    stages.end().end();
}

/// Appends the output fields; a count by default.
fn append_output(stages: &mut Builder, output: Option<Document<'_>>) {
    match output {
        Some(output) => {
            stages.append_all(output);
        }
        None => {
            stages.begin_document(c"count").append(c"$sum", 1i32).end();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{fails, gives, running_fails};

    #[test]
    fn counts_by_range() {
        let input = "[{a: 0}, {a: 5}, {a: 9}, {a: 10}]";
        gives(
            input,
            "[{$bucket: {groupBy: '$a', boundaries: [0, 5, 11]}}]",
            "[{_id: 0, count: 1}, {_id: 5, count: 3}]",
        );
        gives(
            input,
            "[{$bucket: {groupBy: '$a', boundaries: [0, 5], default: 'other', output: {s: {$sum: '$a'}}}}]",
            "[{_id: 0, s: 0}, {_id: 'other', s: 24}]",
        );
        running_fails(
            input,
            "[{$bucket: {groupBy: '$a', boundaries: [0, 5]}}]",
            40066,
            "$switch could not find",
        );
    }

    #[test]
    fn refuses_bad_specifications() {
        fails("[{$bucket: 1}]", 40201, "must be an object, but found type: int.");
        fails("[{$bucket: {groupBy: '$a'}}]", 40198, "requires 'groupBy' and 'boundaries'");
        fails("[{$bucket: {groupBy: 'a', boundaries: [1, 2]}}]", 40202, "$-prefixed path");
        fails("[{$bucket: {groupBy: '$a', boundaries: 1}}]", 40200, "must be an array, but found type: int.");
        fails("[{$bucket: {groupBy: '$a', boundaries: ['$b', 2]}}]", 40191, "array of constant values");
        fails("[{$bucket: {groupBy: '$a', boundaries: [1]}}]", 40192, "but found 1 value(s).");
        fails("[{$bucket: {groupBy: '$a', boundaries: [1, 'x']}}]", 40193, "must have the same type");
        fails(
            "[{$bucket: {groupBy: '$a', boundaries: [2, 1]}}]",
            40194,
            "elements 0 and 1 are not in ascending order",
        );
        fails(
            "[{$bucket: {groupBy: '$a', boundaries: [1, 3], default: '$b'}}]",
            40195,
            "constant expression",
        );
        fails("[{$bucket: {groupBy: '$a', boundaries: [1, 3], output: 1}}]", 40196, "must be an object");
        fails(
            "[{$bucket: {groupBy: '$a', boundaries: [1, 3], x: 1}}]",
            40197,
            "Unrecognized option to $bucket: x.",
        );
        fails(
            "[{$bucket: {groupBy: '$a', boundaries: [1, 3], default: 2}}]",
            40199,
            "less than the lowest boundary",
        );
    }
}
