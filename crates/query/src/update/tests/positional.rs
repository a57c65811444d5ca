//! `$`, `$[]` and `$[identifier]`.

use super::case;

#[test]
fn the_matched_position_takes_the_place_of_the_dollar() {
    case("{$set: {'a.$': 9}}").at(1).gives("{a: [1, 2]}", "{a: [1, 9]}");
    case("{$inc: {'a.$.b': 1}, $set: {'a.0.c': 1}}")
        .at(1)
        .gives("{a: [{b: 1}, {b: 1}]}", "{a: [{b: 1, c: 1}, {b: 2}]}");
    case("{$inc: {'a.$.b': 1}, $set: {'a.1.c': 1}}")
        .at(1)
        .gives("{a: [1, {b: 1}]}", "{a: [1, {b: 2, c: 1}]}");
    case("{$set: {'a.$': 1}}").fails(
        "{a: [1]}",
        2,
        "The positional operator did not find the match needed from the query.",
    );
    case("{$set: {'a.$': 1, 'a.0': 2}}").at(0).fails("{a: [1]}", 40, "Update created a conflict at 'a.0'");
}

#[test]
fn all_elements() {
    case("{$inc: {'a.$[]': 1}}").gives("{a: [1, 2]}", "{a: [2, 3]}");
    case("{$set: {'a.$[].b.$[]': 0}}").gives("{a: [{b: [1]}, {b: [2, 3]}]}", "{a: [{b: [0]}, {b: [0, 0]}]}");
    case("{$unset: {'a.$[].b': 1}}").gives("{a: [{b: 1}, {c: 1}]}", "{a: [{}, {c: 1}]}");
    case("{$inc: {'a.$[]': 1}}").keeps("{a: []}");
    case("{$inc: {'a.$[]': 1}}").fails("{a: 1}", 2, "Cannot apply array updates to non-array element a: 1");
    let missing = "The path 'a' must exist in the document in order to apply array updates.";
    case("{$inc: {'a.$[]': 1}}").fails("{}", 2, missing);
}

#[test]
fn chosen_elements() {
    case("{$set: {'a.$[x]': 0}}").filter("{x: {$gt: 1}}").gives("{a: [1, 2, 3]}", "{a: [1, 0, 0]}");
    case("{$set: {'a.$[x].c': 0}}")
        .filter("{'x.b': 1, 'x.d': 2}")
        .gives("{a: [{b: 1, d: 2}, {b: 1}]}", "{a: [{b: 1, d: 2, c: 0}, {b: 1}]}");
    case("{$set: {'a.$[x].b.$[y]': 0}}")
        .filter("{'x.k': 1}")
        .filter("{$or: [{y: 5}, {y: 6}]}")
        .gives("{a: [{k: 1, b: [5, 7]}, {k: 2, b: [5]}]}", "{a: [{k: 1, b: [0, 7]}, {k: 2, b: [5]}]}");
    case("{$set: {'a.$[x].c': 0, 'a.$[y].d': 1}}")
        .filter("{'x.b': 1}")
        .filter("{'y.b': {$lt: 5}}")
        .gives("{a: [{b: 1}, {b: 2}]}", "{a: [{b: 1, c: 0, d: 1}, {b: 2, d: 1}]}");
    case("{$set: {'a.$[x]': 0, 'a.$[y]': 1}}").filter("{x: 1}").filter("{y: 1}").fails(
        "{a: [1]}",
        40,
        "Update created a conflict at 'a.0'",
    );
}

#[test]
fn filters_and_identifiers_must_fit() {
    case("{$set: {'a.$[x]': 0}}").fails("{}", 2, "No array filter found for identifier 'x' in path 'a.$[x]'");
    case("{$set: {a: 0}}").filter("{x: 1}").fails(
        "{}",
        9,
        "The array filter for identifier 'x' was not used in the update { $set: { a: 0 } }",
    );
    case("{$set: {'a.$[x]': 0}}").filter("{x: 1}").filter("{x: 2}").fails(
        "{}",
        9,
        "Found multiple array filters with the same top-level field name x",
    );
    case("{$set: {'a.$[x]': 0}}").filter("{x: 1, y: 2}").fails(
        "{}",
        9,
        "Error parsing array filter :: caused by :: Expected a single top-level field name, found 'x' and 'y'",
    );
    case("{$set: {'a.$[X]': 0}}").filter("{X: 1}").fails(
        "{}",
        2,
        "Error parsing array filter :: caused by :: The top-level field name must be an alphanumeric string \
         beginning with a lowercase letter, found 'X'",
    );
    case("[{$set: {a: 0}}]").filter("{x: 1}").fails(
        "{}",
        9,
        "arrayFilters may not be specified for pipeline-syle updates",
    );
}
