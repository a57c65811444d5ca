//! From one predicate to the values its documents have in an index, comparisons in `$expr` included.

use super::interval::{Endpoint, Interval, Intervals};
use base::bson::{Document, Path, Type, Value, ValueBuf};
use query::collation::{Collation, depends_on_collation};
use query::expression::{Dependencies, Expression};
use query::matcher::{Comparison, ComparisonOp, In, Predicate, RegexMatch, TypeSet};
use query::{Arena, Context, Regex};

// From one predicate to the values its documents have in an index: never too few.
//
// A document that satisfies a predicate at a path has at least one key, in an index on that path,
// within the predicate's intervals. *Exact* intervals hold no key of any other document either.
// Two things set keys apart from the values that a filter sees: what is missing is null in a key,
// and an array's elements are keys of their own, an empty array's being undefined.

/// What a predicate asks of an index's keys.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// Where the keys lie.
    pub(crate) intervals: Intervals,
    /// Whether a key within them proves the predicate.
    pub(crate) exact: bool,
    /// What an index must order its strings by to have the keys there.
    pub(crate) strings: Strings,
    /// Whether a whole array satisfies the predicate whatever its elements are, which are its keys.
    pub(crate) whole_arrays: bool,
}

/// What bounds say of strings, and so which indexes they are right for.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Strings {
    /// Some are ends of the intervals, as keys of the query's collation.
    pub(crate) compared: bool,
    /// Some begin as a pattern does: byte by byte, whatever the query's collation.
    pub(crate) patterns: bool,
}

impl Bounds {
    /// Bounds that an array satisfies by its elements.
    pub(crate) fn new(intervals: Intervals, exact: bool, strings: Strings) -> Bounds {
        Bounds { intervals, exact, strings, whole_arrays: false }
    }
}

impl Strings {
    /// What bounds of two kinds together say.
    pub(crate) fn and(self, other: Strings) -> Strings {
        Strings { compared: self.compared || other.compared, patterns: self.patterns || other.patterns }
    }

    fn of(value: Value<'_>) -> Strings {
        Strings { compared: depends_on_collation(value), patterns: false }
    }

    /// Whether an index that orders strings so has the keys where a query looks for them.
    pub(crate) fn fit(self, index: &Collation, query: &Collation) -> bool {
        (!self.compared || index == query) && (!self.patterns || index.is_simple())
    }
}

/// The bounds of a predicate at a path, or nothing where an index doesn't help.
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
        // Bits would only narrow to numbers and binaries; the size of an array isn't in its keys.
        Predicate::Bits(_) | Predicate::Size(_) => None,
        // Only places' own indexes have what these ask for.
        Predicate::Geo(_) | Predicate::Near(_) => None,
        // What is inside gives bounds of its own.
        Predicate::ElemMatchObject(_) | Predicate::ElemMatchValue(_) => None,
    }
}

/// The bounds of a negated predicate: `$ne`, `$nin`, `$not` and `{$exists: false}`.
///
/// Only where the positive bounds are exact for every key that stands for a value.
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

/// Whether the predicate holds only where there is a value, so that a sparse index has the document.
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

/// Whether a component may pick an array's element by position. There a filter sees more values
/// than there are keys: it looks for a field of that name in the elements too.
pub(crate) fn is_positional(path: &Path) -> bool {
    path.components().iter().skip(1).any(|component| component.index().is_some())
}

fn inexact(intervals: Vec<Interval>) -> Bounds {
    Bounds::new(Intervals::union(intervals), false, Strings::default())
}

fn is_null(value: &ValueBuf) -> bool {
    value.kind() == Type::Null
}

/// Whether a value's keys are equal to it and nothing else is: all but null, which missing ones
/// share, arrays, whose elements are keys, and the ends of the order.
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
        // A whole array lies in no order that its elements, the keys, would tell.
        Type::Array => None,
        Type::Null => equal(operand, path, collation),
        Type::MinKey | Type::MaxKey if is_positional(path) => None,
        Type::MinKey | Type::MaxKey => {
            let intervals = Intervals::union(vec![beyond(operand, upwards, inclusive)]);
            // Below an empty array there is a key and nothing to compare.
            let bounds = Bounds::new(intervals, path.components().len() == 1, Strings::default());
            // An array lies between both ends, also [MinKey] and [MaxKey].
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

/// Comparison with an end of the order, which reaches beyond its own type.
fn beyond(operand: Value<'_>, upwards: bool, inclusive: bool) -> Interval {
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
            // A document has it as the whole array, whose first element then is a key, or as an
            // element of an array.
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
            // Of such there may be very many.
            number if number.as_number().is_some() => intervals.push(Interval::equal_to(number, collation)),
            value => add(equal(value, path, collation)?, &mut intervals),
        }
    }
    within.regexes.iter().for_each(|regex| add(pattern(regex), &mut intervals));
    Some(Bounds::new(Intervals::union(intervals), exact, strings))
}

/// Strings that may match, and the pattern itself as a stored value.
fn pattern(regex: &RegexMatch) -> Bounds {
    let mut strings = Interval::bracket(Type::String);
    let mut exact = false;
    if let Some((prefix, whole)) = Regex::literal_prefix(&regex.pattern, &regex.options) {
        exact = whole;
        strings.low = Endpoint::new(Value::String(&prefix), true);
        if let Some(after) = text_after(&prefix) {
            strings.high = Endpoint::new(Value::String(&after), false);
        }
    }
    let stored = match regex.options.len() {
        0 | 1 => Interval::point(regex.value()),
        // Options match in any order, keys only in the order stored.
        _ => {
            exact = false;
            Interval::bracket(Type::Regex)
        }
    };
    let intervals = Intervals::union(vec![strings, stored]);
    Bounds::new(intervals, exact, Strings { compared: false, patterns: true })
}

/// The least text after all that begin with `prefix`.
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
    if types.contains(Type::Array) {
        return None;
    }
    let mut intervals: Vec<Interval> = types.types.iter().map(|kind| Interval::bracket(*kind)).collect();
    if types.all_numbers {
        intervals.push(Interval::bracket(Type::Double));
    }
    Some(inexact(intervals))
}

// Bounds from `$expr`: comparisons of a path with what is the same for every document.
//
// Expressions compare_expression across types and see arrays whole, so their bounds hold only for indexes
// without arrays on the path, and reach over all types; a missing value, which sorts before
// everything, is null in a key.

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
                found.extend(
                    compare_expression(operator, value.view(), collation)
                        .map(|bounds| (path.clone(), bounds)),
                );
            } else if let (Some(path), Some(value)) = (right.field_path(), constant(left, context)) {
                let turned = compare_expression(turned(operator), value.view(), collation);
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
    // Null and undefined count as one here.
    if value.is_nullish() {
        intervals.push(Interval::point(Value::Null));
        intervals.push(Interval::point(Value::Undefined));
    }
    let strings = Strings { compared: depends_on_collation(value), patterns: false };
    Some(Bounds::new(Intervals::union(intervals), false, strings))
}
