//! Operators on arrays as sets, without order and duplicates.

use super::evaluate::{Call, Computed, null, type_name, value};
use super::logic::truthy;
use super::node::Node;
use super::parse::Parser;
use super::table::Operator;
use crate::element_order::Ordered;
use base::bson::{Array, Builder, Value};
use base::{Error, ErrorCode, Result, bail};
use std::collections::BTreeSet;

/// A set of values in the order of the collation.
type Set<'a> = BTreeSet<Ordered<'a>>;

/// Builds the set of an array. Errors: interruption.
fn set<'a>(call: &Call<'_, 'a>, array: Array<'a>) -> Result<Set<'a>> {
    let mut set = Set::new();
    add(call, &mut set, array)?;
    Ok(set)
}

/// Adds an array to a set. Errors: interruption.
fn add<'a>(call: &Call<'_, 'a>, set: &mut Set<'a>, array: Array<'a>) -> Result<()> {
    for element in array.iter() {
        set.insert(Ordered(element, call.collation()));
        call.scope.context.steps(1)?;
    }
    Ok(())
}

fn to_array<'a>(call: &Call<'_, 'a>, set: &Set<'a>) -> Computed<'a> {
    let mut builder = Builder::new();
    set.iter().for_each(|element| {
        builder.push(element.0);
    });
    call.scope.array(builder)
}

/// Evaluates an array operand. Errors: the given code, with the type found after the message.
fn array<'a>(found: Option<Value<'a>>, code: i32, message: &str) -> Result<Array<'a>> {
    match found {
        Some(Value::Array(array)) => Ok(array),
        other => Err(Error::new(ErrorCode::Location(code), format!("{message}{}", type_name(other)))),
    }
}

/// `$setUnion`: the sorted union. Errors: 17043 for a value that is not an array.
pub(super) fn union<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let mut all = Set::new();
    for operand in call.values() {
        let Some(operand) = operand?.filter(|value| !value.is_nullish()) else { return null() };
        let operand = array(
            Some(operand),
            17043,
            "All operands of $setUnion must be arrays. One argument is of type: ",
        )?;
        add(call, &mut all, operand)?;
    }
    to_array(call, &all)
}

/// `$setIntersection`: the sorted intersection. Errors: 17047 for a value that is not an array.
pub(super) fn intersection<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let mut common: Option<Set<'a>> = None;
    for operand in call.values() {
        let Some(operand) = operand?.filter(|value| !value.is_nullish()) else { return null() };
        let message = "All operands of $setIntersection must be arrays. One argument is of type: ";
        let operand = set(call, array(Some(operand), 17047, message)?)?;
        common = Some(match common {
            None => operand,
            // The elements of the smaller set stay, as in MongoDB: equal numbers may differ in type.
            Some(mut common) => {
                let mut other = operand;
                if common.len() > other.len() {
                    std::mem::swap(&mut common, &mut other);
                }
                common.retain(|element| other.contains(element));
                common
            }
        });
    }
    to_array(call, &common.unwrap_or_default())
}

/// `$setDifference`: the difference in the order of the first array. Errors: 17048 and 17049 for a value that is not an
/// array.
pub(super) fn difference<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let (Some(left), Some(right)) = (call.get_non_null(0)?, call.get_non_null(1)?) else { return null() };
    let message = "both operands of $setDifference must be arrays. First argument is of type: ";
    let left = array(Some(left), 17048, message)?;
    let message = "both operands of $setDifference must be arrays. Second argument is of type: ";
    let mut seen = set(call, array(Some(right), 17049, message)?)?;
    let mut builder = Builder::new();
    for element in left.iter() {
        call.scope.context.steps(1)?;
        if seen.insert(Ordered(element, call.collation())) {
            builder.push(element);
        }
    }
    call.scope.array(builder)
}

/// Parses `$setEquals`, which takes two arguments or more. Errors: 17045 for fewer.
pub(super) fn parse_equals(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let node = parser.positional(operator, argument)?;
    let count = node.children().count();
    if count < 2 {
        bail!(17045, "$setEquals needs at least two arguments had: {count}");
    }
    Ok(node)
}

/// Evaluates `$setEquals`. Errors: 17044 for a value that is not an array, 5887502 if all operands are constants, as in
/// MongoDB 8.2.
pub(super) fn equals<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let constant = call.is_all_constant();
    let code = if constant { 5887502 } else { 17044 };
    let operand = |position: usize| {
        let message =
            format!("All operands of $setEquals must be arrays. {}-th argument is of type: ", position + 1);
        array(call.get(position)?, code, &message)
    };
    // MongoDB compares all others with the first constant, and checks all constants before.
    let first = (0..call.len()).find(|&position| call.is_constant(position)).unwrap_or(0);
    let expected = set(call, operand(first)?)?;
    let mut all_equal = true;
    for position in (0..call.len()).filter(|&position| position != first) {
        all_equal &= set(call, operand(position)?)? == expected;
        if !all_equal && !constant {
            break;
        }
    }
    value(all_equal)
}

const NO_SUPERSET: &str = "both operands of $setIsSubset must be arrays. Second argument is of type: ";

/// Checks a `$setIsSubset` whose second operand alone is constant. Errors: 17311 if it is not an array.
pub(super) fn check_subset(call: &Call<'_, '_>) -> Result<bool> {
    if !call.is_constant(0) && call.is_constant(1) {
        array(call.get(1)?, 17311, NO_SUPERSET)?;
    }
    Ok(false)
}

/// `$setIsSubset`. Errors: 17046 and 17042 for a value that is not an array.
pub(super) fn is_subset<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let message = "both operands of $setIsSubset must be arrays. First argument is of type: ";
    let left = array(call.get(0)?, 17046, message)?;
    let right = array(call.get(1)?, 17042, NO_SUPERSET)?;
    let mut sorted = None;
    for element in left.iter() {
        call.scope.context.steps(1)?;
        let found = match (call.has_member(element), &mut sorted) {
            (Some(found), _) => found,
            (None, Some(sorted)) => Set::contains(sorted, &Ordered(element, call.collation())),
            (None, sorted) => sorted.insert(set(call, right)?).contains(&Ordered(element, call.collation())),
        };
        if !found {
            return value(false);
        }
    }
    value(true)
}

/// `$anyElementTrue`. Errors: 17041 for a value that is not an array.
pub(super) fn any_true<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let operand = array(call.get(0)?, 17041, "$anyElementTrue's argument must be an array, but is ")?;
    value(operand.iter().any(|element| truthy(Some(element))))
}

/// `$allElementsTrue`. Errors: 17040 for a value that is not an array.
pub(super) fn all_true<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let operand = array(call.get(0)?, 17040, "$allElementsTrue's argument must be an array, but is ")?;
    value(operand.iter().all(|element| truthy(Some(element))))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_error, check_parse_error};

    #[test]
    fn sets_of_values() {
        check("{$setUnion: [[3, 1, 1.0], '$a']}", "{a: [2]}", "[1, 2, 3]");
        check("{$setUnion: [[1], '$a']}", "{}", "null");
        check("{$setIntersection: [[3, 2, 1], [1, 3]]}", "{}", "[1, 3]");
        check("{$setIntersection: []}", "{}", "[]");
        check("{$setIntersection: [[1, 2, 3], [1.0]]}", "{}", "[1.0]");
        check("{$setIntersection: [[1], [1.0]]}", "{}", "[1]");
        check("{$setDifference: [[3, 1, 3, 2], [1]]}", "{}", "[3, 2]");
        check_error("{$setUnion: [[1], 1]}", "{}", 17043);
        check_error("{$setIntersection: [1]}", "{}", 17047);
        check_error("{$setDifference: [1, [1]]}", "{}", 17048);
        check_error("{$setDifference: [[1], 1]}", "{}", 17049);
    }

    #[test]
    fn questions_about_sets() {
        check("{$setEquals: [[1, 2, 2], [2, 1]]}", "{}", "true");
        check("{$setIsSubset: [[1, 1], [2, 1]]}", "{}", "true");
        check("{$setIsSubset: [[[1]], [1]]}", "{}", "false");
        check("{$anyElementTrue: [[0, false, null]]}", "{}", "false");
        check("{$allElementsTrue: [[]]}", "{}", "true");
        check("{$allElementsTrue: ['$a']}", "{a: [1, 0]}", "false");
        check_error("{$setEquals: [[1], 1]}", "{}", 5887502);
        check("{$setEquals: ['$a', '$x', [2]]}", "{a: [1], x: 'x'}", "false");
        check_error("{$setEquals: ['$x', [2], '$a']}", "{a: [1], x: 'x'}", 17044);
        check_error("{$setIsSubset: [1, []]}", "{}", 17046);
        check_error("{$setIsSubset: [[], 1]}", "{}", 17042);
        check_parse_error("{$setIsSubset: ['$a', 1]}", 17311);
        check_error("{$anyElementTrue: null}", "{}", 17041);
        check_error("{$allElementsTrue: [null]}", "{}", 17040);
        check_parse_error("{$setEquals: [[1]]}", 17045);
    }
}
