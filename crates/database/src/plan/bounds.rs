//! Index bounds of one predicate, including comparisons in `$expr`.

use crate::access::{Endpoint, Interval, Intervals};
use base::bson::{Document, Path, Type, Value, ValueBuf};
use query::collation::{Collation, depends_on_collation};
use query::expression::{Dependencies, Expression};
use query::matcher::{Comparison, ComparisonOp, In, Predicate, RegexMatch, TypeSet};
use query::{Arena, Context, Regex};
use storage::mutant;

// Index bounds of one predicate: never too narrow.
//
// A document that satisfies a predicate at a path has at least one key within the predicate's
// intervals, in an index on that path. *Exact* intervals contain no keys of other documents. Keys
// differ from the values that a filter sees in two ways. A missing field is null in a key. Each
// element of an array has a key, and an empty array has the key undefined.

/// Bounds of a predicate on the keys of an index.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// Intervals of the keys.
    pub(crate) intervals: Intervals,
    /// True if a key within the intervals proves the predicate.
    pub(crate) exact: bool,
    /// Requirements on the string order of the index.
    pub(crate) strings: Strings,
    /// True if an array can satisfy the predicate as a whole, independent of its elements, which
    /// are its keys.
    pub(crate) whole_arrays: bool,
}

/// String contents of bounds. They decide which indexes can use the bounds.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Strings {
    /// Some strings are ends of intervals, as sort keys of the query's collation.
    pub(crate) compared: bool,
    /// Some strings are prefixes of patterns: compared byte by byte in every collation.
    pub(crate) patterns: bool,
}

impl Bounds {
    /// Returns bounds that arrays satisfy only by their elements.
    pub(crate) fn new(intervals: Intervals, exact: bool, strings: Strings) -> Bounds {
        Bounds { intervals, exact, strings, whole_arrays: false }
    }
}

impl Strings {
    /// Combines the string contents of two bounds.
    pub(crate) fn and(self, other: Strings) -> Strings {
        Strings { compared: self.compared || other.compared, patterns: self.patterns || other.patterns }
    }

    fn of(value: Value<'_>) -> Strings {
        Strings { compared: depends_on_collation(value), patterns: false }
    }

    /// Returns true if an index with collation `index` has the keys where a query with collation
    /// `query` looks for them.
    pub(crate) fn fit(self, index: &Collation, query: &Collation) -> bool {
        (!self.compared || index == query) && (!self.patterns || index.is_simple())
    }
}

/// Returns the bounds of a predicate at a path; `None` if an index does not help.
pub(crate) fn of(predicate: &Predicate, path: &Path, collation: &Collation) -> Option<Bounds> {
    let mut bounds = any_path(predicate, path, collation)?;
    bounds.exact &= !is_positional(path);
    Some(bounds)
}

fn any_path(predicate: &Predicate, path: &Path, collation: &Collation) -> Option<Bounds> {
    match predicate {
        Predicate::Compare(comparison) => compare(comparison, path, collation),
        Predicate::In(within) => one_of(within, path, collation),
        Predicate::Regex(regex) => Some(pattern(regex)),
        Predicate::Exists => Some(inexact(vec![Interval::all()])),
        Predicate::Type(types) => types_of(types),
        Predicate::Mod(_) => Some(inexact(vec![Interval::bracket(Type::Double)])),
        // Bits would only narrow to numbers and binary data. Keys do not contain the size of an
        // array.
        Predicate::Bits(_) | Predicate::Size(_) => None,
        // Only geospatial indexes answer these predicates.
        Predicate::Geo(_) | Predicate::Near(_) => None,
        // The inner conditions have bounds of their own.
        Predicate::ElemMatchObject(_) | Predicate::ElemMatchValue(_) => None,
    }
}

/// Returns the bounds of a negated predicate: `$ne`, `$nin`, `$not` and `{$exists: false}`.
///
/// Requires positive bounds that are exact for every key of a value.
pub(crate) fn of_not(predicate: &Predicate, path: &Path, collation: &Collation) -> Option<Bounds> {
    if is_positional(path) {
        return None;
    }
    let positive = match predicate {
        Predicate::Exists => return Some(inexact(vec![Interval::point(Value::Null)])),
        Predicate::Compare(comparison) if is_null(&comparison.operand) => {
            let equal = comparison.op == ComparisonOp::Eq;
            let rest = Intervals::union(vec![Interval::point(Value::Null)]).complement();
            return equal.then(|| Bounds { intervals: rest, ..inexact(Vec::new()) });
        }
        Predicate::Compare(comparison) if is_plain(comparison.operand.view()) => {
            compare(comparison, path, collation)?
        }
        Predicate::In(within) if within.regexes.is_empty() => {
            let plain = within.values.iter().all(|value| is_plain(value.view()));
            if plain { one_of(within, path, collation)? } else { return None }
        }
        _ => return None,
    };
    positive.exact.then(|| Bounds { intervals: positive.intervals.complement(), ..positive })
}

/// Returns true if only an existing value satisfies the predicate. A sparse index then has the
/// document.
pub(crate) fn needs_value(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Compare(comparison) => {
            !matches!(comparison.operand.kind(), Type::Null | Type::MinKey | Type::MaxKey)
        }
        Predicate::In(within) => !within.has_null(),
        Predicate::Near(_) => false,
        _ => true,
    }
}

/// Returns true if a path component can be an array position. A filter then sees more values than
/// the index has keys, because it also looks for a field of that name in the elements.
pub(crate) fn is_positional(path: &Path) -> bool {
    path.components().iter().skip(1).any(|component| component.index().is_some())
}

fn inexact(intervals: Vec<Interval>) -> Bounds {
    Bounds::new(Intervals::union(intervals), false, Strings::default())
}

fn is_null(value: &ValueBuf) -> bool {
    value.kind() == Type::Null
}

/// Returns true if a value's keys equal the value and no other value has them. False for null
/// (shared with missing fields), arrays (elements have keys), MinKey and MaxKey.
fn is_plain(value: Value<'_>) -> bool {
    let number = value.as_number();
    !matches!(value.kind(), Type::Null | Type::Undefined | Type::Array | Type::MinKey | Type::MaxKey)
        && !number.is_some_and(|number| number.is_nan())
}

fn compare(comparison: &Comparison, path: &Path, collation: &Collation) -> Option<Bounds> {
    let operand = comparison.operand.view();
    if comparison.op == ComparisonOp::Eq {
        return equal(operand, path, collation);
    }
    let inclusive = matches!(comparison.op, ComparisonOp::Gte | ComparisonOp::Lte);
    let upwards = matches!(comparison.op, ComparisonOp::Gt | ComparisonOp::Gte);
    match operand.kind() {
        Type::Array if is_positional(path) => None,
        Type::Array => Some(compare_array(operand, upwards, inclusive, collation)),
        Type::Null => equal(operand, path, collation),
        Type::MinKey | Type::MaxKey if is_positional(path) => None,
        Type::MinKey | Type::MaxKey => {
            let intervals = Intervals::union(vec![beyond(operand, upwards, inclusive)]);
            // An empty array on the path has a key but no value to compare.
            let bounds = Bounds::new(intervals, path.components().len() == 1, Strings::default());
            // Arrays sort between MinKey and MaxKey, including `[MinKey]` and `[MaxKey]`.
            let inwards = upwards == (operand.kind() == Type::MinKey);
            Some(Bounds { whole_arrays: inwards && !inclusive, ..bounds })
        }
        _ if operand.as_number().is_some_and(|number| number.is_nan()) => {
            Some(inexact(vec![Interval::point(operand)]))
        }
        kind => {
            let mut interval = Interval::bracket(kind);
            if upwards {
                interval.low = Endpoint::collated(operand, inclusive, collation);
            } else {
                if kind.is_numeric() {
                    interval.low = Endpoint::new(Value::Double(f64::NEG_INFINITY), true);
                }
                interval.high = Endpoint::collated(operand, inclusive, collation);
            }
            let intervals = Intervals::union(vec![interval]);
            Some(Bounds::new(intervals, true, Strings::of(operand)))
        }
    }
}

/// Returns the bounds of a comparison with an array. The first elements decide the order of two arrays, unless they are
/// equal. The keys of an array are its elements, or undefined for an empty array. An array within an array is a key.
fn compare_array(operand: Value<'_>, upwards: bool, inclusive: bool, collation: &Collation) -> Bounds {
    let first = operand.as_array().and_then(|array| array.iter().next());
    let end = |value, inclusive| Endpoint::collated(value, inclusive, collation);
    let (mut elements, mut inner) = (Interval::all(), Interval::bracket(Type::Array));
    let mut intervals = Vec::new();
    if upwards {
        elements.low = first.map_or(elements.low, |first| end(first, true));
        inner.low = end(operand, inclusive);
    } else {
        // Only an empty array is before or equal to an empty array.
        elements.high = end(first.unwrap_or(Value::MinKey), true);
        inner.high = end(operand, inclusive);
        intervals.push(Interval::point(Value::Undefined));
    }
    intervals.extend([elements, inner]);
    Bounds { strings: Strings::of(operand), ..inexact(intervals) }
}

/// Returns the interval of a comparison with MinKey or MaxKey, which extends beyond the operand's
/// type.
fn beyond(operand: Value<'_>, upwards: bool, inclusive: bool) -> Interval {
    let is_outward = upwards == (operand.kind() == Type::MaxKey);
    let inclusive = inclusive || is_outward && mutant!("bounds beyond MinKey include it");
    match upwards {
        true => Interval::new(operand, inclusive, Value::MaxKey, true),
        false => Interval::new(Value::MinKey, true, operand, inclusive),
    }
}

fn equal(operand: Value<'_>, path: &Path, collation: &Collation) -> Option<Bounds> {
    let strings = Strings::of(operand);
    let point = |value| Interval::equal_to(value, collation);
    match operand {
        Value::Null | Value::Undefined if is_positional(path) => None,
        Value::Null | Value::Undefined => Some(inexact(vec![Interval::point(operand)])),
        Value::Array(array) => {
            // A document matches with the whole array or with an array element. The key is the
            // first element or the array.
            let first = array.iter().next().unwrap_or(Value::Undefined);
            Some(Bounds { strings, ..inexact(vec![point(first), point(operand)]) })
        }
        _ => Some(Bounds::new(Intervals::union(vec![point(operand)]), true, strings)),
    }
}

fn one_of(within: &In, path: &Path, collation: &Collation) -> Option<Bounds> {
    let mut intervals = Vec::with_capacity(within.values.len() + within.regexes.len());
    let (mut exact, mut strings) = (true, Strings::default());
    let mut add = |bounds: Bounds, intervals: &mut Vec<Interval>| {
        exact &= bounds.exact;
        strings = strings.and(bounds.strings);
        intervals.extend(bounds.intervals.as_slice().iter().cloned());
    };
    for value in &within.values {
        match value.view() {
            // `$in` may have very many numbers.
            number if number.as_number().is_some() => intervals.push(Interval::equal_to(number, collation)),
            value => add(equal(value, path, collation)?, &mut intervals),
        }
    }
    within.regexes.iter().for_each(|regex| add(pattern(regex), &mut intervals));
    Some(Bounds::new(Intervals::union(intervals), exact, strings))
}

/// Returns the bounds of a regular expression: matching strings, and the expression itself as a
/// stored value.
fn pattern(regex: &RegexMatch) -> Bounds {
    let mut strings = Interval::bracket(Type::String);
    let mut exact = false;
    if let Some((prefix, is_complete)) = Regex::literal_prefix(&regex.pattern, &regex.options) {
        exact = is_complete;
        strings.low = Endpoint::new(Value::String(&prefix), true);
        if let Some(after) = text_after(&prefix) {
            strings.high = Endpoint::new(Value::String(&after), false);
        }
    }
    let stored = match regex.options.len() {
        0 | 1 => Interval::point(regex.value()),
        // The filter matches options in any order. Keys have only the stored order.
        _ => {
            exact = false;
            Interval::bracket(Type::Regex)
        }
    };
    let intervals = Intervals::union(vec![strings, stored]);
    Bounds::new(intervals, exact, Strings { compared: false, patterns: true })
}

/// Returns the least string after all strings with this prefix.
fn text_after(prefix: &str) -> Option<String> {
    let mut after = prefix.to_string();
    while let Some(last) = after.pop() {
        let next = match last {
            '\u{D7FF}' => Some('\u{E000}'),
            _ => char::from_u32(u32::from(last) + 1),
        };
        if let Some(next) = next {
            after.push(next);
            return Some(after);
        }
    }
    None
}

fn types_of(types: &TypeSet) -> Option<Bounds> {
    // The keys of an array are its elements, so that only the document shows it.
    if types.contains(Type::Array) {
        return Some(inexact(vec![Interval::all()]));
    }
    let mut intervals: Vec<Interval> = types.types.iter().map(|kind| Interval::bracket(*kind)).collect();
    if types.all_numbers {
        intervals.push(Interval::bracket(Type::Double));
    }
    Some(inexact(intervals))
}

// Bounds from `$expr`: comparisons of a path with a value that is equal for all documents.
//
// Expressions compare across types and see arrays as a whole. Their bounds are therefore valid only
// for indexes without arrays on the path, and extend over all types. A missing value sorts before
// all other values in an expression, and is null in a key.

/// Returns the bounds that an expression that must be true gives to paths.
pub(crate) fn bounds(
    expression: &Expression,
    context: &Context,
    collation: &Collation,
) -> Vec<(Path, Bounds)> {
    let mut bounds = Vec::new();
    collect(expression, context, collation, &mut bounds);
    bounds
}

/// Nesting of expressions limits the recursion.
fn collect(
    expression: &Expression,
    context: &Context,
    collation: &Collation,
    bounds: &mut Vec<(Path, Bounds)>,
) {
    let Some((operator, operands)) = expression.as_call() else { return };
    match (operator, operands.as_slice()) {
        ("$and", all) => all.iter().for_each(|operand| collect(operand, context, collation, bounds)),
        (_, [left, right]) => {
            if let (Some(path), Some(value)) = (left.field_path(), constant(right, context)) {
                bounds.extend(
                    compare_expression(operator, value.view(), collation)
                        .map(|path_bounds| (path.clone(), path_bounds)),
                );
            } else if let (Some(path), Some(value)) = (right.field_path(), constant(left, context)) {
                let exchanged_operator =
                    compare_expression(exchanged_operator(operator), value.view(), collation);
                bounds.extend(exchanged_operator.map(|path_bounds| (path.clone(), path_bounds)));
            }
        }
        _ => {}
    }
}

/// Returns the value of an expression that reads no field of the document. It may read variables.
fn constant(expression: &Expression, context: &Context) -> Option<ValueBuf> {
    if expression.is_constant() {
        return expression.constant().map(|value| value.to_owned());
    }
    if !matches!(expression.dependencies(), Dependencies::Paths(paths) if paths.is_empty()) {
        return None;
    }
    // Only variables. Some operators return another value in each evaluation.
    if expression.as_call().is_some() {
        return None;
    }
    let arena = Arena::new();
    expression.evaluate(Document::EMPTY, context, &arena).ok().flatten().map(|value| value.to_owned())
}

/// Returns the comparison operator for exchanged operands.
fn exchanged_operator(operator: &str) -> &str {
    match operator {
        "$lt" => "$gt",
        "$lte" => "$gte",
        "$gt" => "$lt",
        "$gte" => "$lte",
        same => same,
    }
}

fn compare_expression(operator: &str, value: Value<'_>, collation: &Collation) -> Option<Bounds> {
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
    // Null and undefined are equal here.
    if value.is_nullish() {
        intervals.push(Interval::point(Value::Null));
        intervals.push(Interval::point(Value::Undefined));
    }
    let strings = Strings { compared: depends_on_collation(value), patterns: false };
    Some(Bounds::new(Intervals::union(intervals), false, strings))
}
