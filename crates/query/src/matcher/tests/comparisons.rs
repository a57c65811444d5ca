//! Comparison, membership, patterns, types and bits, on scalars.

use super::*;

#[test]
fn equality_is_by_value_across_numeric_types() {
    check("{}", &["{}", "{a: 1}"], &[]);
    check(
        "{a: 1}",
        &["{a: 1}", "{a: 1.0}", "{a: NumberLong('1')}", "{a: NumberDecimal('1')}", "{b: 2, a: 1}"],
        &["{a: 2}", "{}", "{a: '1'}", "{a: true}"],
    );
    check("{a: 'x'}", &["{a: 'x'}"], &["{a: 'xy'}", "{a: ''}", "{a: /x/}"]);
    check("{a: {$eq: /x/}}", &["{a: /x/}"], &["{a: 'x'}", "{a: /x/i}"]);
    check("{a: {$eq: 1, $gt: 0}}", &["{a: 1}"], &["{a: 2}"]);
}

#[test]
fn embedded_documents_are_equal_in_their_order() {
    check(
        "{a: {b: 1, c: 2}}",
        &["{a: {b: 1, c: 2}}", "{a: {b: 1.0, c: 2}}"],
        &["{a: {c: 2, b: 1}}", "{a: {b: 1}}", "{a: {b: 1, c: 2, d: 3}}"],
    );
    check("{a: {}}", &["{a: {}}"], &["{a: {b: 1}}", "{}", "{a: []}"]);
    check("{a: {$ref: 'c', $id: 1}}", &["{a: {$ref: 'c', $id: 1}}"], &["{a: 1}"]);
}

#[test]
fn ranges_stay_within_their_type_bracket() {
    check(
        "{a: {$gt: 1}}",
        &["{a: 2}", "{a: 1.5}", "{a: Infinity}"],
        &["{a: 1}", "{a: 'x'}", "{a: MaxKey}", "{a: null}", "{}", "{a: NaN}", "{a: Date(0)}"],
    );
    check("{a: {$lt: 'm'}}", &["{a: 'a'}", "{a: ''}"], &["{a: 'm'}", "{a: 'z'}", "{a: 1}", "{a: null}"]);
    check(
        "{a: {$gte: {b: 1}}}",
        &["{a: {b: 1}}", "{a: {b: 2}}", "{a: {c: 0}}"],
        &["{a: {b: 0}}", "{a: {}}", "{a: 1}"],
    );
    check("{a: {$lt: true}}", &["{a: false}"], &["{a: true}", "{a: 0}"]);
    check("{a: {$gte: 1, $lte: 3}}", &["{a: 1}", "{a: 3}"], &["{a: 0}", "{a: 4}"]);
}

#[test]
fn null_is_equal_to_missing_but_not_to_undefined() {
    check("{a: null}", &["{a: null}", "{}", "{b: 1}"], &["{a: 1}", "{a: undefined}", "{a: {}}"]);
    check("{a: {$gte: null}}", &["{a: null}", "{}"], &["{a: 1}"]);
    check("{a: {$lte: null}}", &["{a: null}", "{}"], &["{a: 1}"]);
    check("{a: {$gt: null}}", &[], &["{a: null}", "{}", "{a: 1}"]);
    check("{a: {$ne: null}}", &["{a: 1}", "{a: {}}"], &["{a: null}", "{}"]);
    check(
        "{'a.b': null}",
        &["{}", "{a: 1}", "{a: {}}", "{a: {b: null}}", "{a: [{}]}"],
        &["{a: {b: 1}}", "{a: []}", "{a: [1]}"],
    );
}

#[test]
fn nan_equals_itself_and_is_not_ordered() {
    check("{a: NaN}", &["{a: NaN}"], &["{a: 1}", "{}"]);
    check("{a: {$gte: NaN}}", &["{a: NaN}"], &["{a: 1}"]);
    check("{a: {$lte: NaN}}", &["{a: NaN}"], &["{a: -1}"]);
    check("{a: {$gt: NaN}}", &[], &["{a: NaN}", "{a: 1}"]);
    check("{a: {$lt: 5}}", &["{a: -1}"], &["{a: NaN}"]);
}

#[test]
fn the_extreme_keys_compare_with_everything() {
    check("{a: {$lt: MaxKey}}", &["{a: 1}", "{a: 'x'}", "{a: null}", "{}", "{a: MinKey}"], &["{a: MaxKey}"]);
    check("{a: {$gte: MinKey}}", &["{a: 1}", "{}", "{a: MinKey}"], &[]);
    check("{a: {$gt: MinKey}}", &["{a: 1}"], &["{a: MinKey}"]);
    check("{a: MaxKey}", &["{a: MaxKey}"], &["{a: 1}", "{}"]);
    check("{a: {$gt: MaxKey}}", &[], &["{a: MaxKey}", "{a: 1}"]);
    check("{a: {$gte: MaxKey}}", &["{a: MaxKey}"], &["{a: 1}"]);
}

#[test]
fn membership_takes_constants_null_and_patterns() {
    check("{a: {$in: [3, 1, 'x']}}", &["{a: 1}", "{a: 3.0}", "{a: 'x'}"], &["{a: 2}", "{}", "{a: 'y'}"]);
    check("{a: {$in: [null, 1]}}", &["{}", "{a: null}", "{a: 1}"], &["{a: 2}", "{a: undefined}"]);
    check("{a: {$in: [/^x/i, 1]}}", &["{a: 'Xy'}", "{a: 1}", "{a: /^x/i}"], &["{a: 'yx'}", "{a: /^x/}"]);
    check("{a: {$in: []}}", &[], &["{}", "{a: 1}"]);
    check("{a: {$nin: [1, /x/]}}", &["{}", "{a: 2}", "{a: 'y'}"], &["{a: 1}", "{a: 'x'}"]);
    check("{a: {$nin: []}}", &["{}", "{a: 1}"], &[]);
    check(
        "{a: {$in: [{b: 1}, [1]]}}",
        &["{a: {b: 1}}", "{a: [1]}", "{a: [[1]]}"],
        &["{a: {b: 2}}", "{a: 1}"],
    );
}

#[test]
fn patterns_match_strings_and_equal_themselves() {
    check("{a: /b/}", &["{a: 'abc'}", "{a: /b/}"], &["{a: 'x'}", "{a: 1}", "{a: /b/i}", "{}"]);
    check("{a: {$regex: 'B', $options: 'i'}}", &["{a: 'abc'}"], &["{a: 'x'}"]);
    check("{a: {$options: 'i', $regex: 'B'}}", &["{a: 'abc'}"], &["{a: 'x'}"]);
    check("{a: {$regex: /B/, $options: 'i'}}", &["{a: 'abc'}"], &["{a: 'x'}"]);
    check("{a: {$regex: /B/i}}", &["{a: 'abc'}"], &["{a: 'x'}"]);
    check("{a: {$regex: 'a', $gt: 'b'}}", &["{a: 'ca'}"], &["{a: 'ab'}", "{a: 'c'}"]);
    check("{a: {$not: /b/}}", &["{a: 'x'}", "{a: 1}", "{}"], &["{a: 'b'}"]);
    check("{a: {$not: {$regex: 'b'}}}", &["{a: 'x'}"], &["{a: 'b'}"]);
    check("{a: /b/im}", &["{a: /b/mi}"], &[]);
}

#[test]
fn existence_and_type() {
    check("{a: {$exists: true}}", &["{a: 1}", "{a: null}", "{a: []}"], &["{}"]);
    check("{a: {$exists: 0}}", &["{}"], &["{a: 1}"]);
    check(
        "{'a.b': {$exists: false}}",
        &["{}", "{a: 1}", "{a: [1]}", "{a: []}"],
        &["{a: {b: 1}}", "{a: [{b: 1}]}"],
    );
    check("{a: {$type: 'int'}}", &["{a: 1}", "{a: [1]}"], &["{a: 1.0}", "{}", "{a: 'x'}"]);
    check(
        "{a: {$type: 'number'}}",
        &["{a: 1}", "{a: 1.5}", "{a: NumberLong('1')}", "{a: NumberDecimal('1')}"],
        &["{a: 'x'}"],
    );
    check("{a: {$type: 4}}", &["{a: [1]}", "{a: []}"], &["{a: 1}"]);
    check("{a: {$type: [2, 'null', -1]}}", &["{a: 'x'}", "{a: null}", "{a: MinKey}"], &["{a: 1}", "{}"]);
    check("{a: {$type: 2.0}}", &["{a: 'x'}"], &["{a: 1}"]);
}

#[test]
fn remainders_are_truncated_towards_zero() {
    check(
        "{a: {$mod: [4, 1]}}",
        &["{a: 5}", "{a: 5.9}", "{a: NumberDecimal('5')}", "{a: [2, 9]}"],
        &["{a: -5}", "{a: 4}", "{a: 'x'}", "{a: NaN}", "{a: Infinity}", "{}"],
    );
    check("{a: {$mod: [4.9, -1.5]}}", &["{a: -5}"], &["{a: 5}"]);
    check("{a: {$mod: [-1, 0]}}", &["{a: NumberLong('-9223372036854775808')}"], &[]);
}

#[test]
fn bits_of_numbers_and_bytes() {
    check(
        "{a: {$bitsAllSet: 5}}",
        &["{a: 5}", "{a: 7.0}", "{a: -1}", "{a: NumberDecimal('5')}", "{a: HexData(0, '0580')}"],
        &["{a: 4}", "{a: 5.5}", "{a: 'x'}", "{}"],
    );
    check("{a: {$bitsAllClear: [1, 3]}}", &["{a: 5}", "{a: 0}", "{a: HexData(0, '0580')}"], &["{a: 2}"]);
    check("{a: {$bitsAnySet: [0, 200]}}", &["{a: 1}", "{a: -2}"], &["{a: 2}"]);
    check("{a: {$bitsAnyClear: [0, 1]}}", &["{a: 1}", "{a: 2}"], &["{a: 3}"]);
    check("{a: {$bitsAllSet: [15]}}", &["{a: HexData(0, '0580')}", "{a: 32768}"], &["{a: 1}"]);
    check("{a: {$bitsAllSet: HexData(0, '0580')}}", &["{a: HexData(0, '0580')}", "{a: 32773}"], &["{a: 5}"]);
    check("{a: {$bitsAllSet: []}}", &["{a: 0}"], &["{a: 'x'}"]);
}

#[test]
fn logic_combines() {
    check("{$and: [{a: 1}, {b: 2}]}", &["{a: 1, b: 2}"], &["{a: 1}"]);
    check("{$or: [{a: 1}, {b: 2}]}", &["{a: 1}", "{b: 2}"], &["{a: 2}"]);
    check("{$nor: [{a: 1}, {b: 2}]}", &["{a: 2}", "{}"], &["{b: 2}", "{a: 1}"]);
    check("{a: {$not: {$gt: 1, $lt: 5}}}", &["{a: 1}", "{a: 9}", "{}"], &["{a: 3}"]);
    check("{a: {$not: {$not: {$gt: 1}}}}", &["{a: 2}"], &["{a: 1}"]);
    check("{$or: [{}, {a: 1}]}", &["{}", "{a: 2}"], &[]);
    check("{$comment: 'why', a: 1}", &["{a: 1}"], &["{}"]);
    check("{$alwaysTrue: 1}", &["{}"], &[]);
    check("{$alwaysFalse: 1}", &[], &["{}"]);
    check("{$sampleRate: 1.0}", &["{}"], &[]);
    check("{$sampleRate: 0}", &[], &["{}"]);
    check("{$expr: {$eq: ['$a', '$b']}}", &["{a: 1, b: 1}", "{}"], &["{a: 1, b: 2}"]);
    check("{$expr: true}", &["{}"], &[]);
    check("{$expr: '$a'}", &["{a: 1}"], &["{a: 0}", "{}"]);
}
