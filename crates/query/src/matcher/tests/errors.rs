//! Errors of the parser, before any document is read.

use super::*;

#[test]
fn unknown_operators() {
    check_error(
        "{$nope: 1}",
        2,
        "unknown top level operator: $nope. If you have a field name that starts with a '$' symbol, consider using $getField or $setField.",
    );
    check_error(
        "{$gt: 1}",
        2,
        "unknown top level operator: $gt. If you have a field name that starts with a '$' symbol, consider using $getField or $setField.",
    );
    check_error("{a: {$nope: 1}}", 2, "unknown operator: $nope");
    check_error("{a: {$and: []}}", 2, "unknown operator: $and");
    check_error("{a: {$gt: 1, b: 2}}", 2, "unknown operator: b");
    check_error("{a: {$not: {$ref: 'foo'}}}", 2, "unknown operator: $ref");
}

#[test]
fn groups() {
    check_error("{$or: 1}", 2, "$or argument must be an array");
    check_error("{$and: []}", 2, "$and argument must be a non-empty array");
    check_error("{$nor: [1]}", 2, "$nor argument's entries must be objects");
    check_error("{a: {$not: 1}}", 2, "$not argument must be a regex or an object");
    check_error("{a: {$not: {}}}", 2, "$not argument must be a non-empty object");
    check_error("{a: {$not: {$options: 'a'}}}", 2, "$options needs a $regex");
}

#[test]
fn arguments() {
    check_error("{a: {$in: 1}}", 2, "$in needs an array");
    check_error("{a: {$nin: {b: 1}}}", 2, "$nin needs an array");
    check_error("{a: {$in: [{$gt: 1}]}}", 2, "cannot nest $ under $in");
    check_error("{a: {$in: [undefined]}}", 2, "InMatchExpression equality cannot be undefined");
    check_error("{a: undefined}", 2, "cannot compare to undefined");
    check_error("{a: {$gt: /x/}}", 2, "Can't have RegEx as arg to non-equality predicate over field 'a'.");
    check_error("{a: {$ne: /x/}}", 2, "Can't have regex as arg to $ne.");
    check_error("{a: {$regex: 1}}", 2, "$regex has to be a string");
    check_error("{a: {$regex: 'x', $options: 1}}", 2, "$options has to be a string");
    check_error("{a: {$regex: /x/i, $options: 'm'}}", 51075, "options set in both $regex and $options");
    check_error("{a: {$options: 'm', $regex: /x/i}}", 51074, "options set in both $regex and $options");
    check_error("{a: {$regex: 'x', $options: 'z'}}", 51108, " invalid flag in regex options: z");
    check_error(
        "{a: {$regex: '[)'}}",
        51091,
        "Regular expression is invalid: missing terminating ] for character class",
    );
    check_error("{a: {$elemMatch: 1}}", 2, "$elemMatch needs an Object");
    check_error("{a: {$elemMatch: {$expr: 1}}}", 2, "$expr can only be applied to the top-level document");
    check_error("{a: {$all: 1}}", 2, "$all needs an array");
    check_error("{a: {$all: [{$gt: 1}]}}", 2, "no $ expressions in $all");
    check_error("{a: {$all: [{$elemMatch: {b: 1}}, 1]}}", 2, "$all/$elemMatch has to be consistent");
    check_error("{$sampleRate: 2}", 2, "numeric argument to $sampleRate must be in [0, 1]");
    check_error("{$sampleRate: 'x'}", 2, "argument to $sampleRate must be a numeric type");
    check_error("{$alwaysTrue: 0}", 9, "$alwaysTrue must be an integer value of 1");
}

#[test]
fn numbers() {
    check_error("{a: {$size: 'x'}}", 2, "Failed to parse $size. Expected a number in: $size: \"x\"");
    check_error("{a: {$size: -1}}", 2, "Failed to parse $size. Expected a non-negative number in: $size: -1");
    check_error("{a: {$size: 1.5}}", 2, "Failed to parse $size. Expected an integer: $size: 1.5");
    check_error(
        "{a: {$size: Infinity}}",
        2,
        "Failed to parse $size. Cannot represent as a 64-bit integer: $size: inf",
    );
    check_error("{a: {$type: 'nope'}}", 2, "Unknown type name alias: nope");
    check_error("{a: {$type: 0}}", 2, "Invalid numerical type code: 0. Instead use {$exists:false}.");
    check_error("{a: {$type: 99}}", 2, "Invalid numerical type code: 99");
    check_error("{a: {$type: []}}", 9, "a must match at least one type");
    check_error("{a: {$type: ['string', null]}}", 14, "type must be represented as a number or a string");
    check_error("{a: {$mod: 1}}", 2, "malformed mod, needs to be an array");
    check_error("{a: {$mod: [1]}}", 2, "malformed mod, not enough elements");
    check_error("{a: {$mod: [1, 2, 3]}}", 2, "malformed mod, too many elements");
    check_error("{a: {$mod: ['x', 2]}}", 2, "malformed mod, divisor not a number");
    check_error("{a: {$mod: [2, 'x']}}", 2, "malformed mod, remainder not a number");
    check_error("{a: {$mod: [0.5, 2]}}", 2, "divisor cannot be 0");
    check_error(
        "{a: {$mod: [NaN, 2]}}",
        2,
        "malformed mod, divisor value is invalid :: caused by :: Unable to coerce NaN/Inf to integral type",
    );
    check_error(
        "{a: {$bitsAllSet: 'x'}}",
        2,
        "a takes an Array, a number, or a BinData but received: $bitsAllSet: \"x\"",
    );
    check_error("{a: {$bitsAllSet: -1}}", 9, "Expected a non-negative number in: $bitsAllSet: -1");
    check_error(
        "{a: {$bitsAnySet: [-1]}}",
        2,
        "Failed to parse bit position. Expected a non-negative number in: 0: -1",
    );
}

#[test]
fn unsupported_operators_are_named() {
    check_error("{$where: 'true'}", 2, "$where is not supported: no globalScriptEngine in $where parsing");
    check_error("{a: {$where: 'true'}}", 2, "$where cannot be applied to a field");
    check_error("{$text: {$search: 'x'}}", 2, "$text is not allowed in this context");
}

#[test]
fn depth_is_bounded() {
    use base::bson::Builder;
    let mut builder = Builder::new();
    for _ in 0..1000 {
        builder.begin_array(c"$or").push_document();
    }
    let error = Matcher::parse(builder.finish().view(), &Context::for_tests()).unwrap_err();
    assert_eq!(error.code().number(), 15);
}
